"""What can be asked of entities: to declare, schedule, inspect and check them."""

import json
from dataclasses import replace as replaced
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from feed_assets.definitions.lists.query_fields import Form, ListField, ListQuery
from feed_assets.entities.common import Kind
from feed_assets.errors import WrongUsageError
from feed_assets.operation import Confirm, Does, Param, later, operation
from feed_assets.parameters import (
    AnyKindFirst,
    AnyName,
    Clusters,
    Files,
    Instance,
    KindFirst,
    MaybeFiles,
    Name,
    Names,
    Process,
)

if TYPE_CHECKING:
    from feed_assets.context import errors, settings_in_force
    from feed_assets.definitions import verification
    from feed_assets.definitions.checks import declared_definitions
    from feed_assets.definitions.lists import history as entity_history
    from feed_assets.definitions.lists import listing, reading
    from feed_assets.definitions.lists import lookup as feed_lookup
    from feed_assets.definitions.verbs import (
        changes,
        cloning,
        plan_effects,
        planning,
        renaming,
        schedules,
        states,
        verb_results,
    )
    from feed_assets.definitions.verbs import context as verb_context
    from feed_assets.definitions.verbs.context import EntityContext
    from feed_assets.plan import rendering
    from feed_assets.settings import Settings

later(globals())

GROUPS = {
    "entity": """Declare, schedule and inspect clusters, datasources, feeds and processes.

    FILES are files, folders or URLs of YAML documents or Falcon XML; `-` is standard input. Every command can be
    repeated safely.
    """
}

Prune = Annotated[bool, Param("Remove the entities that FILES do not contain.")]


@operation("plan", text="lines")
def plan(
    context: "EntityContext",
    *,
    files: MaybeFiles = None,
    prune: Prune = False,
    detailed_exitcode: Annotated[bool, Param("Exit with 4 if something would change.")] = False,
) -> "planning.PlannedChanges":
    """Show what would change if FILES were applied, and change nothing.

    FILES are files, folders or URLs. Without FILES it shows the unrecorded edits of the entities folder.

    Exits with 0, with 1 if the change would be refused, and with --detailed-exitcode with 4 if something would change.
    """
    planned = planning.plan_files(context, files, prune=prune)
    return replaced(planned, tells_difference=detailed_exitcode and not planned.difference.is_empty)


@operation(
    "apply",
    does=Does.DECLARES,
    safe=True,
    checks=True,
    text="lines",
    answers=202,
    example="new/clicks.yaml --digest 4f0c91d2",
)
def apply(
    context: "EntityContext",
    *,
    files: MaybeFiles = None,
    prune: Prune = False,
    digest: Annotated[
        str | None, Param("Apply only the plan with this digest, or with one that begins so (8 characters).")
    ] = None,
    yes: Annotated[bool, Param("Do not ask for confirmation.")] = False,
    delete_all: Annotated[bool, Param("Confirm that most of the declared entities are deleted.")] = False,
    confirm: Confirm,
) -> "verb_results.VerbResult | planning.PlannedChanges":
    """Apply FILES as one change, completely or not at all.

    FILES are files, folders or URLs. Without FILES it records the edits of the entities folder. The change takes effect
    at its effective times. If nothing differs, nothing happens.

    Shows the change and asks for confirmation, unless --digest or --yes is given. A change that deletes most of the
    declared entities at once needs --digest or --delete-all instead of --yes. With --yes alone, a change that another
    one comes before is planned anew.
    """
    for is_last in (*(False,) * planning.OUTDATED_PLANS, True):
        planned = planning.plan_files(context, files, prune=prune)
        if digest is not None and not planned.difference.is_empty:
            planning.require_digest(planned.digest, digest)
        if context.dry_run:
            planning.check_planned(context, planned)
            break
        is_confirmed = delete_all or digest is not None
        if not (is_confirmed or yes or planned.difference.is_empty or planned.errors):
            confirm(f"{rendering.render_difference(planned.difference)}\nApply this?")
            is_confirmed = True
        try:
            return planning.apply_planned(context, planned, may_delete_all=is_confirmed)
        except errors.PlanOutdatedError:  # with --yes alone nobody has seen the plan
            if is_last or is_confirmed:
                raise
    return planned


@operation("entity validate", checks=True, text="lines")
def validate(context: "EntityContext", *, files: Files) -> "verb_results.VerbResult":
    """Check FILES as `submit` or `update` would, together with all declared entities."""
    return changes.validate(context, files)


@operation("entity submit", does=Does.DECLARES, checks=True, text="lines", answers=201)
def submit(context: "EntityContext", *, files: Files) -> "verb_results.VerbResult":
    """Declare all entities in FILES, or none. Feeds and processes then wait for `schedule`."""
    return changes.submit(context, files)


@operation("entity submit-and-schedule", does=Does.DECLARES, checks=True, text="lines", answers=201)
def submit_and_schedule(context: "EntityContext", *, files: Files) -> "verb_results.VerbResult":
    """Declare the entities in FILES and schedule them; if scheduling is refused, they stay submitted."""
    return changes.submit(context, files, and_schedule=True)


@operation("entity update", does=Does.DECLARES, safe=True, checks=True, text="lines")
def update(context: "EntityContext", *, files: Files) -> "verb_results.VerbResult":
    """Update all declared entities in FILES, or none."""
    return changes.update(context, files)


@operation("entity delete", does=Does.DECLARES, text="lines")
def delete(context: "EntityContext", *, kind: AnyKindFirst = None, names: Names) -> "verb_results.VerbResult":
    """Delete the entities NAMES. This kills their unfinished instances and ends their runs."""
    return changes.delete(context, kind, names)


@operation(
    "entity clone",
    does=Does.DECLARES,
    checks=True,
    text="lines",
    answers=201,
    example="clicks clicks-eu --replace /clicks/=/clicks-eu/",
)
def clone(
    context: "EntityContext",
    *,
    kind: AnyKindFirst = None,
    name: AnyName,
    new: Annotated[str, Param("The name of the clone.", argument=True)],
    replace: Annotated[
        dict[str, str] | None,
        Param("A text of the definition, and what the clone has instead. May be repeated.", metavar="OLD=NEW"),
    ] = None,
) -> "verb_results.VerbResult":
    """Declare entity NEW as NAME is defined, with its comments. Metadata, schedules and instances are not copied."""
    return cloning.clone(context, kind, name, new, [*(replace or {}).items()])


@operation("entity rename", does=Does.DECLARES, text="lines", example="clicks page-views --dry-run")
def rename(
    context: "EntityContext",
    *,
    kind: KindFirst = None,
    name: Name,
    new: Annotated[str, Param("Its new name.", argument=True)],
    digest: Annotated[
        str | None, Param("Only the change that --dry-run shows with this digest, or one that begins so.")
    ] = None,
) -> "renaming.Renamed":
    """Call feed or process NAME by NEW: in its definition, in all that refer to it, and in everything that is recorded.

    Comments stay, and its data stay where they are. Refused while a run works on it, or on what reads or writes it.
    """
    return renaming.rename(context, kind, name, new, digest)


@operation("entity update-cluster-dependents", does=Does.DECLARES, checks=True, text="lines")
def update_cluster_dependents(
    context: "EntityContext", *, cluster: Annotated[str, Param("The cluster.", argument=True, of=(Kind.CLUSTER,))]
) -> "verb_results.VerbResult":
    """Move the feeds and processes that refer to another version of CLUSTER to its current one."""
    return changes.update_cluster_dependents(context, cluster)


@operation("entity schedule", does=Does.ACTS, checks=True, text="lines")
def schedule(
    context: "EntityContext", *, kind: AnyKindFirst = None, names: Names, clusters: Clusters = ()
) -> "verb_results.VerbResult":
    """Schedule the feeds or processes NAMES, from the start of their validity."""
    return schedules.change_work(context, verb_results.EntityVerb.SCHEDULE, kind, names, clusters or None)


@operation("entity suspend", does=Does.ACTS, safe=True, text="lines")
def suspend(
    context: "EntityContext", *, kind: AnyKindFirst = None, names: Names, clusters: Clusters = ()
) -> "verb_results.VerbResult":
    """Suspend the feeds or processes NAMES: nothing new starts until they are resumed; running instances finish."""
    return schedules.change_work(context, verb_results.EntityVerb.SUSPEND, kind, names, clusters or None)


@operation("entity resume", does=Does.ACTS, text="lines")
def resume(
    context: "EntityContext", *, kind: AnyKindFirst = None, names: Names, clusters: Clusters = ()
) -> "verb_results.VerbResult":
    """Resume the feeds or processes NAMES where `suspend` stopped them."""
    return schedules.change_work(context, verb_results.EntityVerb.RESUME, kind, names, clusters or None)


@operation("entity touch", does=Does.ACTS, text="lines", answers=201)
def touch(
    context: "EntityContext",
    *,
    kind: AnyKindFirst = None,
    name: Name,
    clusters: Clusters = (),
    effective_from: Annotated[datetime | None, Param("The effective time, such as 2015-02-28T06:30Z.")] = None,
) -> "verb_results.VerbResult":
    """Start a new release of process NAME with unchanged definitions."""
    return schedules.touch(context, kind, name, clusters or None, effective_from)


@operation("entity status", table="cluster, status", rows="rows")
def status(context: "EntityContext", *, kind: AnyKindFirst = None, name: AnyName) -> "states.EntityStatus":
    """Show the status of an entity: SUBMITTED, RUNNING, SUSPENDED or COMPLETED, overall and on each cluster."""
    return reading.find_status(context, kind, name)


@operation("entity definition", rows="definition", plain=True)
def definition(
    context: "EntityContext",
    *,
    kind: AnyKindFirst = None,
    name: AnyName,
    version: Annotated[int | None, Param("This version; see history.")] = None,
    form: Annotated[Form, Param("As it was written, or converted.", option="format")] = Form.WRITTEN,
) -> str:
    """Print the definition of an entity."""
    return reading.show_definition(context, kind, name, version=version, form=form).rstrip("\n")


@operation(
    "entity list",
    none="no entity is as asked for",
    table="kind, name",
    rows="entities",
    example="--kind feed,process --filter-by STATUS:SUSPENDED --fields TAGS",
)
def list_entities(
    context: "EntityContext",
    *,
    kinds: Annotated[
        tuple[Kind, ...], Param("Only these kinds, separated by commas.", option="kind", commas=True)
    ] = (),
    fields: Annotated[
        tuple[ListField, ...], Param(f"Also show these fields: {', '.join(ListField)}.", commas=True)
    ] = (),
    query: ListQuery,
) -> "listing.EntityPage":
    """List entities by name. All conditions must hold; several filters by one field are alternatives."""
    return reading.find_page(context, query, kinds, fields)


@operation(
    "entity dependency",
    none="it needs nothing, and nothing needs it",
    table="kind, name, tags:commas",
    rows="dependencies",
)
def dependency(
    context: "EntityContext", *, kind: AnyKindFirst = None, name: AnyName
) -> "tuple[reading.Neighbour, ...]":
    """Show the entities that an entity depends on, and its dependents; feeds as Input or Output of processes."""
    loaded = context.load()
    return reading.find_neighbours(loaded.bundle.bundle, verb_context.get_declared(loaded, kind, name).key)


@operation(
    "entity summary",
    none="there is none on the cluster",
    table="name=entity.name, status=entity.status, instance=instance.nominal_time, instance status=instance.status",
    rows="entities",
)
def summary(
    context: "EntityContext",
    *,
    kind: Annotated[Kind, Param("Feed or process.", argument=True)],
    cluster: Annotated[str | None, Param("The cluster; not needed if there is only one.", of=(Kind.CLUSTER,))] = None,
    start: Annotated[datetime | None, Param("From this nominal time on; by default 2 days before --end.")] = None,
    end: Annotated[datetime | None, Param("Before this nominal time; by default up to now.")] = None,
    num_instances: Annotated[int, Param("How many instances for each entity.", least=1)] = 7,
    query: ListQuery,
) -> "reading.EntitySummary":
    """Show the feeds or processes on a cluster with their newest instances."""
    return reading.summarize(context, kind, cluster, query, start=start, end=end, instances=num_instances)


@operation(
    "entity lookup",
    table="feed, cluster, type, instance=nominal_time",
    rows="feeds",
    example="/weather/2013/11/03/05",
)
def lookup(
    context: "EntityContext", *, path: Annotated[str, Param("The path or the URL.", argument=True)]
) -> "feed_lookup.FoundFeeds":
    """Show the feeds of PATH, the complete path of an instance."""
    return feed_lookup.FoundFeeds(feeds=feed_lookup.FeedLookup(context.load().bundle.bundle).find(path))


@operation(
    "entity unseen",
    none="of every feed something has come, or no tick has looked yet",
    table="feed, cluster, since, readers:commas, why=reason, next step=remedy",
    rows="feeds",
)
def unseen(context: "EntityContext") -> "tuple[plan_effects.UnseenFeed, ...]":
    """List the feeds that no process writes, and of which nothing has ever come, though something should have."""
    with context.database.read() as connection:
        return plan_effects.list_unseen(connection, context.load().bundle.bundle, context.now)


def _recorded(context: "EntityContext", kind: Kind | None, name: str) -> Kind:
    """Record the edits of files, and return the kind of an entity."""
    replaced(context, dry_run=False).record()
    return verb_context.find_kind(context.load(), kind, name)


@operation("entity history", table="version, action, at=recorded_at, author, by=origin, changed", rows="history")
def history(
    context: "EntityContext", *, kind: AnyKindFirst = None, name: AnyName
) -> "tuple[entity_history.HistoryEntry, ...]":
    """Show all versions of an entity: time, author, command and number of changed fields."""
    return entity_history.entity_history(context.database, _recorded(context, kind, name), name)


@operation(
    "entity blame",
    table="field, value=text, version, author, at=recorded_at",
    rows="fields",
    example="flights clusters.primary",
)
def blame(
    context: "EntityContext",
    *,
    kind: AnyKindFirst = None,
    names: Annotated[
        tuple[str, ...],
        Param("The entity; behind it a field.", argument=True, proposes="names", metavar="[KIND] NAME [FIELD]"),
    ],
) -> "tuple[entity_history.Blame, ...]":
    """Show which version set each field of an entity, or FIELD and the fields below it."""
    name, *fields = names
    if len(fields) > 1:
        raise WrongUsageError("Give one KIND, one NAME and one FIELD.")
    return entity_history.blame(context.database, _recorded(context, kind, name), name, *fields)


@operation("entity governing", table="kind, name, version, author, at=recorded_at", rows="governing")
def governing(
    context: "EntityContext",
    *,
    process: Process,
    instance: Instance,
    cluster: Annotated[
        str | None,
        Param("The cluster of the instance; not needed if the process is on one only.", of=(Kind.CLUSTER,)),
    ] = None,
) -> "entity_history.Governing":
    """Show the definitions that govern INSTANCE of PROCESS: the release and its versions."""
    return entity_history.governing_version(
        context.database, process, reading.find_cluster(context.load(), cluster, process), instance
    )


@operation("entity verify-store", rows="issues", text="line")
def verify(context: "EntityContext") -> "verification.StoreReport":
    """Verify that files, journal and history agree. Exits with 1 if they do not."""
    store = context.store
    return verification.StoreReport(
        items=tuple(verification.verify_store(context.database, store.folder, store.values, context.now))
    )


@operation("validate", rows="issues", text="line")
def validate_declared(
    settings: "Settings",
    *,
    path: Annotated[str | None, Param("A folder, a file or an fsspec URL.", argument=True, local=True)] = None,
    strict: Annotated[bool, Param("Also fail for warnings.")] = False,
    live: Annotated[
        bool,
        Param(
            "Also contact storages, Spark, catalogs, databases and state, import functions, let Spark analyze SQL.",
            local=True,
        ),
    ] = False,
) -> "declared_definitions.ValidationReport":
    """Check the entities in PATH, and the code that they name: a folder, a file or an fsspec URL; by default those of
    the settings.

    Exits with 0 if the entities are valid, with 1 if they are not, with 2 for wrong usage or settings.
    """
    location = path if path is None or "://" in path else str(Path(path).absolute())
    return declared_definitions.validate_location(settings, location, live=live, strict=strict)


@operation("schema", plain=True)
def schema(*, kind: Annotated[Kind | None, Param("Only this kind of entity.")] = None) -> str:
    """Print the JSON Schema of entity files, for editors.

    For the YAML language server: `feed-assets schema > entity.schema.json`, and in each file
    `# yaml-language-server: $schema=entity.schema.json`.
    """
    return json.dumps(declared_definitions.entity_schema(kind), indent=2)


@operation("settings", table="setting=name, value, source", rows="settings")
def show_settings(
    settings: "Settings",
    *,
    path: Annotated[str | None, Param("Entities of a project.", argument=True, local=True)] = None,  # noqa: ARG001
) -> "settings_in_force.SettingsInForce":
    """Show the settings of the project of the working directory, or else of the project of PATH: each with its value,
    without secrets, and its source.
    """
    return settings_in_force.find_settings_in_force(settings)
