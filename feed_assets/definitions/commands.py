"""What can be asked of entities: to declare, schedule and inspect them."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

from feed_assets.entities.common import Kind
from feed_assets.operation import Does, Param, operation
from feed_assets.parameters import AnyKindFirst, AnyName, Clusters, Files, Name, Names

if TYPE_CHECKING:
    from feed_assets.definitions.verbs.context import EntityContext
    from feed_assets.definitions.verbs.verb_results import VerbResult

GROUPS = {
    "entity": """Declare, schedule and inspect clusters, datasources, feeds and processes.

    FILES are files, folders or URLs of YAML documents or Falcon XML; `-` is standard input. Every command can be
    repeated safely.
    """
}


@operation("entity validate", checks=True, text="lines")
def validate(context: "EntityContext", *, files: Files) -> "VerbResult":
    """Check FILES as `submit` or `update` would, together with all declared entities."""
    from feed_assets.definitions.verbs.changes import validate

    return validate(context, files)


@operation("entity submit", does=Does.DECLARES, checks=True, text="lines")
def submit(context: "EntityContext", *, files: Files) -> "VerbResult":
    """Declare all entities in FILES, or none. Feeds and processes then wait for `schedule`."""
    from feed_assets.definitions.verbs.changes import submit

    return submit(context, files)


@operation("entity submit-and-schedule", does=Does.DECLARES, checks=True, text="lines")
def submit_and_schedule(context: "EntityContext", *, files: Files) -> "VerbResult":
    """Declare the entities in FILES and schedule them; if scheduling is refused, they stay submitted."""
    from feed_assets.definitions.verbs.changes import submit

    return submit(context, files, and_schedule=True)


@operation("entity update", does=Does.DECLARES, checks=True, text="lines")
def update(context: "EntityContext", *, files: Files) -> "VerbResult":
    """Update all declared entities in FILES, or none."""
    from feed_assets.definitions.verbs.changes import update

    return update(context, files)


@operation("entity delete", does=Does.DECLARES, text="lines")
def delete(context: "EntityContext", *, kind: AnyKindFirst = None, names: Names) -> "VerbResult":
    """Delete the entities NAMES. This kills their unfinished instances and ends their runs."""
    from feed_assets.definitions.verbs.changes import delete

    return delete(context, kind, names)


@operation(
    "entity clone",
    does=Does.DECLARES,
    checks=True,
    text="lines",
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
) -> "VerbResult":
    """Declare entity NEW as NAME is defined, with its comments. Metadata, schedules and instances are not copied."""
    from feed_assets.definitions.verbs.cloning import clone

    return clone(context, kind, name, new, [*(replace or {}).items()])


@operation("entity update-cluster-dependents", does=Does.DECLARES, checks=True, text="lines")
def update_cluster_dependents(
    context: "EntityContext", *, cluster: Annotated[str, Param("The cluster.", argument=True, of=(Kind.CLUSTER,))]
) -> "VerbResult":
    """Move the feeds and processes that refer to another version of CLUSTER to its current one."""
    from feed_assets.definitions.verbs.cluster_dependents import update_cluster_dependents

    return update_cluster_dependents(context, cluster)


@operation("entity schedule", does=Does.ACTS, checks=True, text="lines")
def schedule(
    context: "EntityContext", *, kind: AnyKindFirst = None, names: Names, clusters: Clusters = ()
) -> "VerbResult":
    """Schedule the feeds or processes NAMES, from the start of their validity."""
    from feed_assets.definitions.verbs.schedules import schedule

    return schedule(context, kind, names, clusters or None)


@operation("entity suspend", does=Does.ACTS, text="lines")
def suspend(
    context: "EntityContext", *, kind: AnyKindFirst = None, names: Names, clusters: Clusters = ()
) -> "VerbResult":
    """Suspend the feeds or processes NAMES: nothing new starts until they are resumed; running instances finish."""
    from feed_assets.definitions.verbs.schedules import suspend

    return suspend(context, kind, names, clusters or None)


@operation("entity resume", does=Does.ACTS, text="lines")
def resume(
    context: "EntityContext", *, kind: AnyKindFirst = None, names: Names, clusters: Clusters = ()
) -> "VerbResult":
    """Resume the feeds or processes NAMES where `suspend` stopped them."""
    from feed_assets.definitions.verbs.schedules import resume

    return resume(context, kind, names, clusters or None)


@operation("entity touch", does=Does.ACTS, text="lines")
def touch(
    context: "EntityContext",
    *,
    kind: AnyKindFirst = None,
    name: Name,
    clusters: Clusters = (),
    effective_from: Annotated[datetime | None, Param("The effective time, such as 2015-02-28T06:30Z.")] = None,
) -> "VerbResult":
    """Start a new release of process NAME with unchanged definitions."""
    from feed_assets.definitions.verbs.touch import touch

    return touch(context, kind, name, clusters or None, effective_from)
