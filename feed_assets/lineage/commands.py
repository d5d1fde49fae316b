"""What can be asked about lineage."""

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

from feed_assets.entities.common import Kind
from feed_assets.errors import WrongUsageError
from feed_assets.instances.lists.commands import Named
from feed_assets.operation import Param, later, operation
from feed_assets.parameters import SCHEDULABLE, Feed, Instance, KindFirst

if TYPE_CHECKING:
    from feed_assets.context import consolidation
    from feed_assets.context import operation as contexts
    from feed_assets.context.operation import OperationContext
    from feed_assets.definitions.verbs.context import EntityContext
    from feed_assets.lineage import columns, groups, instance_views, recorded, records, runs, windows
    from feed_assets.lineage import proof as proving

later(globals())

GROUPS = {
    "lineage": """Show what data came of, and what came of them.

    KIND is feed or process. INSTANCE is a nominal time such as 2013-11-03T05:00Z, a day or a partition key.
    """
}

NameAndInstance = Annotated[
    tuple[str, ...],
    Param(
        "The feed or process, and the instance.",
        argument=True,
        of=SCHEDULABLE,
        proposes="names",
        metavar="[KIND] NAME [INSTANCE]",
    ),
]
Proven = Annotated[
    bool, Param("Read what storage has: the data that are there, byte by byte, against their manifests and events.")
]
On = Annotated[
    tuple[str, ...],
    Param("Begin on these clusters only; by default on all.", option="cluster", of=(Kind.CLUSTER,), commas=True),
]
Up = Annotated[bool, Param("Only what it came of.")]
Down = Annotated[bool, Param("Only what came of it.")]
Levels = Annotated[int, Param("How many steps from data to data.", least=1)]
From = Annotated[datetime | None, Param("Without INSTANCE: what attempts touched that had not ended before this time.")]
Before = Annotated[datetime | None, Param("And that began before this time; by default now.")]
InForm = Annotated[Literal["cdap"] | None, Param("Without INSTANCE: the JSON of CDAP.", option="format")]
MaybeColumn = Annotated[str | None, Param("The column; by default each.", argument=True, proposes="columns")]
OfInstance = Annotated[
    str | None,
    Param("As this instance was made, the others as they were then; by default the last made.", proposes="times"),
]
AtMost = Annotated[int, Param("How many attempts, the first ones.", least=1)]
AsOf = Annotated[datetime | None, Param("Only what was recorded at this time or before; by default now.")]


@operation("lineage show", text="text", forms=("dot", "svg"), example="airline-report 2013-11-07 --up")
def show(
    context: "OperationContext",
    *,
    kind: KindFirst = None,
    names: NameAndInstance,
    clusters: On = (),
    up: Up = False,
    down: Down = False,
    levels: Levels = 10,
    as_of: AsOf = None,
    proof: Proven = False,
    start: From = None,
    end: Before = None,
    form: InForm = None,
) -> "records.LineageGraph | windows.WindowLineage | Mapping[str, Any]":
    """Show the data and the attempts that INSTANCE of NAME came of, and those that came of it, with digests.

    Where a feed and a process share NAME, the feed is meant, unless KIND tells.

    Events are what happened to data: they arrived, were made by an attempt at a process, copied, evicted, restored or
    made again. Without --up and --down both directions are shown.

    Of a feed with a current instance INSTANCE is the time of a version, and may be left out.

    Without INSTANCE, show who has read and written which feeds from --start to before --end: from the data of NAME to
    the processes and replications that touched them, and on to all that these touched.
    """
    name, *instances = names
    of_window, of_instance = {"--start": start, "--end": end, "--format": form}, {"--as-of": as_of, "--proof": proof}
    others = " and ".join(option for option, value in (of_window if instances else of_instance).items() if value)
    if len(instances) > 1:
        raise WrongUsageError(f"Give one NAME and one INSTANCE, without {' '.join(instances[1:])}.")
    if instances and others:
        raise WrongUsageError(f"Leave out {others}, or INSTANCE: a window of time is of all instances.")
    if not instances and not any(of_window.values()):
        instances = recorded.find_current(context, name, kind)
    if not instances:
        if not any(of_window.values()):
            raise WrongUsageError("Give INSTANCE, too, or --start for what was touched in a window of time.")
        if others:
            raise WrongUsageError(f"Leave out {others}, or give INSTANCE in place of a window of time.")
        window: dict[str, Any] = {"start": start, "end": end, "levels": levels, "up": up, "down": down}
        found = windows.find_window_lineage(context, name, kind=kind, clusters=clusters, **window)
        return found.cdap if form else found
    given: dict[str, Any] = {"up": up, "down": down, "levels": levels, "as_of": as_of}
    graph = recorded.find_lineage(context, name, instances[0], kind=kind, clusters=clusters, **given)
    return proving.prove_lineage(context, graph) if proof else graph


@operation("lineage run", text="text", rows="attempts", example="4a1c9bd2-7f5e-4d0c-8a27-d1c0c5a0e1f2")
def run(
    context: "OperationContext",
    *,
    run: Annotated[str, Param("Its id; lineage show tells it.", argument=True)],
    limit: AtMost = 50,
) -> "runs.RunThen":
    """Show RUN as it was: properties, definitions, inputs and outputs with digests, facts and quality of each attempt.

    And what was said then of its process, feeds and clusters, whatever was said or deleted since.
    """
    return runs.find_run_then(context, run, limit)


@operation("lineage group", text="text", forms=("dot", "svg"), example="pipeline flights")
def group(
    context: "EntityContext",
    *,
    kind: Annotated[
        Literal["pipeline", "group", "tag", "owner", "cluster", "colo"],
        Param("What entities have in common.", argument=True),
    ],
    name: Annotated[str, Param("Its name; of a tag with a value NAME=VALUE.", argument=True, proposes="groups")],
) -> "records.LineageGraph":
    """Show what hangs on a pipeline, a group, a tag, an owner, a cluster or a colo: its entities, and what each reads
    and writes.
    """
    return groups.show_group(context, records.NodeKind(kind), name)


@operation("lineage column", text="text", forms=("dot", "svg"), example="daily-delays mean_wind_speed --up")
def column(
    context: "OperationContext",
    *,
    feed: Feed,
    column: MaybeColumn = None,
    clusters: On = (),
    up: Up = False,
    down: Down = False,
    levels: Levels = 10,
    instance: OfInstance = None,
    as_of: AsOf = None,
) -> "records.LineageGraph":
    """Show the columns that COLUMN of FEED came of, and those that came of it, by which expressions; without COLUMN, of
    each column.

    `of` and `in` tell of values, `decided by` and `decides` of filters, joins, groups and orders. FEED.* stands for all
    columns of a feed. Without --up and --down both directions are shown. Each column names the instance of which it is
    told: of each feed the one that was last made.
    """
    subject = contexts.resolve_subject(context, feed, instance, kind=Kind.FEED, clusters=clusters)
    return columns.find_column_lineage(
        context, subject, column or columns.ALL, up=up, down=down, levels=levels, as_of=as_of
    )


@operation(
    "instance dependency",
    none="nothing is one step away",
    table="tag, kind, name, cluster, instance, by",
    rows="dependencies",
)
def dependency(context: "OperationContext", *, subject: Named, instance: Instance) -> "instance_views.Neighbours":
    """Show the instances that one depends on, and its dependents, one step away."""
    return instance_views.find_dependencies(context, subject.resolve(context, instance))


@operation("instance triage", rows="graphs", text="text", forms=("dot",))
def triage(
    context: "OperationContext", *, subject: Named, instance: Instance
) -> "consolidation.Consolidated[instance_views.TriageGraph]":
    """Show what an instance depends on, upstream to the first that are AVAILABLE or SUCCEEDED."""
    return instance_views.find_triage(context, subject.resolve(context, instance))
