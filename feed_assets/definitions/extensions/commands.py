"""What can be asked of extensions and their jobs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from feed_assets.errors import WrongUsageError
from feed_assets.loading.entity_files import EntityFile
from feed_assets.operation import Does, Param, later, operation

if TYPE_CHECKING:
    from feed_assets.definitions.extensions import jobs, recipes, records, registry
    from feed_assets.definitions.verbs import planning, verb_results
    from feed_assets.definitions.verbs.context import EntityContext

later(globals())

GROUPS = {
    "extension": "Install recipes that make entities of parameters, and use them.",
    "extension job": """Make, change and end jobs: the entities that an extension makes of some parameters.

    A job is one change, completely or not at all. Its entities change with the job only.
    """,
}
_READS_FOLDERS = "It reads a folder where it runs."

Name = Annotated[str, Param("The extension.", argument=True, proposes="extensions")]
Job = Annotated[str, Param("The job.", argument=True, proposes="jobs")]
File = Annotated[
    tuple[EntityFile, ...] | None, Param("Parameters: YAML, JSON, or lines NAME=VALUE; may be repeated.", file=True)
]
Parameters = Annotated[dict[str, str] | None, Param("One of them; may be repeated.", option="parameter")]
Digest = Annotated[str | None, Param("Only the plan that --dry-run shows with this digest, or one that begins so.")]


def _given(files: tuple[EntityFile, ...] | None, parameters: dict[str, str] | None) -> "recipes.Given":
    return recipes.read_given(files or (), parameters or {})


@operation(
    "extension list",
    none="there is no extension",
    table="name, version=made_by, status, jobs:count, description",
    rows="extensions",
    spare=("description", "version"),
)
def list_extensions(context: "EntityContext") -> "tuple[records.ShownExtension, ...]":
    """List the extensions: those with this program, of installed packages, and those that are registered."""
    return registry.list_extensions(context)


@operation("extension describe", plain=True, example="directory-mirror")
def describe(context: "EntityContext", *, name: Name) -> str:
    """Print what an extension says of itself: its README."""
    return registry.describe_extension(context, name)


@operation(
    "extension show",
    none="nothing can be given to it",
    table="name, type, required:yes, default:json, example:json, description",
    rows="parameters",
    spare=("description",),
    example="directory-mirror",
)
def show(context: "EntityContext", *, name: Name) -> "records.ShownExtension":
    """Show an extension with its parameters."""
    return registry.show_extension(context, name)


@operation("extension register", does=Does.ADMINISTERS, text="lines", example="my-recipe", no_route=_READS_FOLDERS)
def register(
    context: "EntityContext",
    *,
    folder: Annotated[str, Param("The folder of the recipe.", argument=True, file=True)],
) -> "verb_results.VerbResult":
    """Keep the recipe in FOLDER in the state, so that jobs can be made of it. Code of the same name is replaced."""
    return registry.register_extension(context, Path(folder))


@operation("extension unregister", does=Does.ADMINISTERS, text="lines")
def unregister(context: "EntityContext", *, name: Name) -> "verb_results.VerbResult":
    """Forget an extension that is registered, and has no jobs."""
    return registry.unregister_extension(context, name)


@operation("extension enable", does=Does.ADMINISTERS, text="lines")
def enable(context: "EntityContext", *, name: Name) -> "verb_results.VerbResult":
    """Let jobs of an extension be submitted, scheduled and updated again."""
    return registry.enable_extension(context, name, is_enabled=True)


@operation("extension disable", does=Does.ADMINISTERS, safe=True, text="lines")
def disable(context: "EntityContext", *, name: Name) -> "verb_results.VerbResult":
    """Let no job of an extension be submitted, scheduled or updated. Its jobs go on as they are."""
    return registry.enable_extension(context, name, is_enabled=False)


@operation("extension job validate", text="lines", example="directory-mirror models --file -")
def validate_job(
    context: "EntityContext", *, extension: Name, name: Job, file: File = None, parameters: Parameters = None
) -> "planning.PlannedChanges":
    """Show what a job NAME of EXTENSION would change, and change nothing."""
    return jobs.validate_job(context, extension, name, _given(file, parameters))


@operation(
    "extension job submit",
    does=Does.DECLARES,
    checks=True,
    text="lines",
    answers=201,
    example="directory-mirror models --file - --schedule",
)
def submit_job(
    context: "EntityContext",
    *,
    extension: Name,
    name: Job,
    file: File = None,
    parameters: Parameters = None,
    schedule: Annotated[bool, Param("Schedule its feeds and processes, too.")] = False,
    digest: Digest = None,
) -> "verb_results.VerbResult | planning.PlannedChanges":
    """Make the entities of a job NAME by EXTENSION, all or none. Feeds and processes then wait for `schedule`."""
    given = _given(file, parameters)
    return jobs.submit_job(context, extension, name, given, is_scheduled=schedule, digest=digest)


@operation(
    "extension job update",
    does=Does.DECLARES,
    safe=True,
    checks=True,
    text="lines",
    example="models --parameter frequency='hours(6)' --dry-run",
)
def update_job(
    context: "EntityContext",
    *,
    name: Annotated[str, Param("The job; with --all the extension.", argument=True, proposes="jobs")],
    every: Annotated[bool, Param("All jobs of the extension NAME, with their parameters.", option="all")] = False,
    file: File = None,
    parameters: Parameters = None,
    digest: Digest = None,
) -> "verb_results.VerbResult | planning.PlannedChanges":
    """Make the entities of a job anew, by its extension as it is now: new ones come, and others go, all or none.

    The job keeps its parameters, but for those that are given; those of a file replace all of them. New feeds and
    processes are scheduled if others of the job are.
    """
    is_given = bool(file or parameters)
    if every and is_given:
        raise WrongUsageError("With --all each job keeps its parameters: give none.")
    if every:
        return jobs.update_all(context, name, digest=digest)
    return jobs.update_jobs(context, (name,), _given(file, parameters) if is_given else None, digest=digest)


@operation("extension job schedule", does=Does.ACTS, checks=True, text="lines")
def schedule_job(context: "EntityContext", *, name: Job) -> "verb_results.VerbResult":
    """Schedule the feeds and processes of a job, from the start of their validity."""
    return jobs.change_job(context, name, verb_results.EntityVerb.SCHEDULE)


@operation("extension job suspend", does=Does.ACTS, safe=True, text="lines")
def suspend_job(context: "EntityContext", *, name: Job) -> "verb_results.VerbResult":
    """Suspend the feeds and processes of a job: nothing new starts until they are resumed."""
    return jobs.change_job(context, name, verb_results.EntityVerb.SUSPEND)


@operation("extension job resume", does=Does.ACTS, text="lines")
def resume_job(context: "EntityContext", *, name: Job) -> "verb_results.VerbResult":
    """Resume the feeds and processes of a job where `suspend` stopped them."""
    return jobs.change_job(context, name, verb_results.EntityVerb.RESUME)


@operation("extension job delete", does=Does.DECLARES, text="lines", example="models --dry-run")
def delete_job(
    context: "EntityContext", *, name: Job, digest: Digest = None
) -> "verb_results.VerbResult | planning.PlannedChanges":
    """Delete a job with its entities, all or none. This kills their unfinished instances and ends their runs."""
    return jobs.delete_job(context, name, digest=digest)


@operation(
    "extension job list",
    none="there is no job",
    table="name, extension, version=made_by, current:yes, entities:count",
    rows="jobs",
    spare=("version",),
)
def list_jobs(
    context: "EntityContext",
    *,
    extension: Annotated[
        str | None, Param("Only those of this extension.", argument=True, proposes="extensions")
    ] = None,
) -> "tuple[records.ShownJob, ...]":
    """List the jobs, and whether their extension is still the one that has made them."""
    return jobs.list_jobs(context, extension)


@operation("extension job show", table="kind, name, status", rows="entities")
def show_job(context: "EntityContext", *, name: Job) -> "records.ShownJob":
    """Show a job: what has made it of which parameters, and the states of its entities."""
    return jobs.show_job(context, name)
