"""What can be asked about instances: their states, work and data, and how good their rows were."""

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

from feed_assets.context.consolidation import PAGE, Lifecycle
from feed_assets.entities.common import Kind
from feed_assets.instances.lists.query_fields import FilterField, OrderField
from feed_assets.operation import Does, Param, later, operation
from feed_assets.parameters import (
    Clusters,
    End,
    Feed,
    Instance,
    KindFirst,
    Limit,
    MaybeInstance,
    Name,
    Newest,
    Offset,
    Process,
    Results,
    Start,
)

if TYPE_CHECKING:
    from feed_assets.context import consolidation
    from feed_assets.context import operation as contexts
    from feed_assets.context.operation import OperationContext
    from feed_assets.instances.lists import calendars, feed_listings, quality, queries, ranges, runs

later(globals())

GROUPS = {
    "instance": """Inspect and control instances of feeds and processes.

    KIND is feed or process; for a replicated feed, the commands are about its copies by default. INSTANCE is a nominal
    time such as 2013-11-03T05:00Z, a day or a partition key. Ranges include --start and exclude --end.
    """,
    "quality": "Show how good the rows of feed instances were.",
}
_ROWS = (
    "cluster, instance=nominal_time, status, attempt, started=started_at:seconds, ended=ended_at:seconds, run=run_id, "
    "details=remark, copied from=copied_from"
)
_STEPS = "cluster, instance, attempt, step, status, started, ended, run, details, log"
_SPARE = ("attempt", "started", "ended", "run")
_FILTER = f"FIELD:value with FIELD one of {', '.join(FilterField)}; may be repeated."
_ORDER = "By default the newest first, or with a start the oldest first."
_DIRECTION = "The direction of --order-by; by default ascending."
_LENGTH = "How many of each cluster: the newest, 10 by default; with --start the oldest, all by default."
_LIFECYCLE = "For a feed replication (the default if it is copied), import, export or eviction; may be repeated."

Cluster = Annotated[
    str | None, Param("The cluster; by default each on which a process writes the feed.", of=(Kind.CLUSTER,))
]
Lifecycles = Annotated[tuple[Lifecycle, ...], Param(_LIFECYCLE, option="lifecycle")]
AllAttempts = Annotated[bool, Param("A line for each attempt.")]
Number = Annotated[int | None, Param("This attempt, counted from 1; by default the newest.", least=1)]
Statuses = Annotated[tuple[str, ...], Param("STATUS:value; may be repeated.", option="filter-by")]
Length = Annotated[int | None, Param(_LENGTH, option="num-results", least=1)]
Year = Annotated[int | None, Param("The year; by default that of the newest instance that is due.", least=2)]
Day = Annotated[str | None, Param("The day, as in 2013-11-03, instead of a year.")]
Look = Annotated[bool, Param("Read storage now instead of the record; what is gone is recorded.", needs=Does.NOTIFIES)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """The feed or process that is asked about."""

    kind: KindFirst = None
    name: Name
    clusters: Clusters = ()
    lifecycles: Lifecycles = ()

    def resolve(self, context: "OperationContext", instance: datetime | None = None, **more: Any) -> "contexts.Subject":
        """Find it, and the instance that is meant."""
        more |= {"kind": self.kind, "clusters": self.clusters, "lifecycles": self.lifecycles}
        return contexts.resolve_subject(context, self.name, instance, **more)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed(Named):
    """Which of its instances are asked for, and their order."""

    filters: Annotated[tuple[str, ...], Param(_FILTER, option="filter-by")] = ()
    order_by: Annotated[OrderField | None, Param(_ORDER)] = None
    sort_order: Annotated[Literal["asc", "desc"] | None, Param(_DIRECTION)] = None

    def find(self, context: "OperationContext", **more: Any) -> "ranges.InstanceQuery":
        """Return the query, with more of its fields."""
        subject = self.resolve(context)
        chosen = ranges.parse_filter(subject.kind, self.filters, is_of_data=False)
        context.require_clusters([*(chosen.clusters or ()), *(chosen.source_clusters or ())])
        own = {name: getattr(self, name) for name in ("start", "end", "offset", "results") if hasattr(self, name)}
        return ranges.InstanceQuery(
            subject=subject,
            filter=chosen,
            order=self.order_by,
            descending=None if self.sort_order is None else self.sort_order == "desc",
            **own,
            **more,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranged(Listed):
    """Those of a range."""

    start: Start = None
    end: End = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Paged(Ranged):
    """A page of those of a range."""

    offset: Offset = 0
    results: Results = PAGE


@operation(
    "instance list",
    table=_ROWS,
    rows="instances",
    spare=_SPARE,
    example="flights --start 2013-11-03T05:00Z --filter-by STATUS:MISSING",
)
def list_(context: "OperationContext", *, query: Paged, all_attempts: AllAttempts = False) -> "queries.InstancePage":
    """List the instances of a process, the copies of a feed, or its data; waiting ones with what they lack."""
    return queries.list_instances(context, query.find(context, all_attempts=all_attempts))


@operation("instance status", table=_ROWS, rows="instances", spare=_SPARE)
def status(context: "OperationContext", *, query: Paged, all_attempts: AllAttempts = False) -> "queries.InstancePage":
    """List the same as `list`."""
    return list_(context, query=query, all_attempts=all_attempts)


@operation("instance running", table=_ROWS, rows="instances", spare=_SPARE)
def running(
    context: "OperationContext", *, query: Listed, offset: Offset = 0, results: Results = PAGE
) -> "queries.InstancePage":
    """List the running instances of a process, or copies of a feed, whatever their time."""
    return queries.find_running(context, query.find(context, offset=offset, results=results))


@operation("instance summary", table="cluster, status, instances", rows="counts")
def summary(context: "OperationContext", *, query: Ranged, results: Newest = None) -> "queries.InstanceSummary":
    """Count the instances of a range by state, on each cluster; UNSCHEDULED ones are not yet created."""
    return queries.summarize_instances(context, query.find(context), results)


@operation(
    "instance calendar",
    table="when=label, cluster, expected, states=counts:counts, of these=marks:counts, copied from=source_cluster",
    rows="cells",
    example="flights --year 2013",
)
def calendar(
    context: "OperationContext",
    *,
    kind: KindFirst = None,
    name: Name,
    year: Year = None,
    day: Day = None,
    clusters: Clusters = (),
) -> "calendars.Calendar":
    """Count the instances of each day of a year by state, or of each hour of a day; a replica's beside its source's.

    Days are those of the time zone of the feed or process; UNSCHEDULED instances are not due yet.
    """
    return calendars.show_calendar(
        context, contexts.resolve_subject(context, name, kind=kind, clusters=clusters), year, day
    )


@operation("instance params", table="cluster, property, value", rows="instances")
def params(context: "OperationContext", *, subject: Named, instance: Instance) -> "runs.ParamsFound":
    """Show the properties with which an instance of a process, or a copy of a feed, has run; none before it begins."""
    return runs.find_params(context, subject.resolve(context, instance, preferred=Kind.PROCESS))


@operation(
    "instance steps",
    table="cluster, attempt, step, status=state, started=started_at:seconds, ended=ended_at:seconds, frames=written, "
    "reason",
    rows="steps",
    example="load-orders 2026-03-01T06:00Z",
)
def steps(
    context: "OperationContext", *, process: Process, instance: Instance, clusters: Clusters = ()
) -> "consolidation.Consolidated[runs.InstanceStep]":
    """Show the steps of an instance of a process, for each attempt; a KEPT one was made by an earlier attempt."""
    return runs.find_steps(
        context, contexts.resolve_subject(context, process, instance, kind=Kind.PROCESS, clusters=clusters)
    )


@operation("instance logs", table=_STEPS, rows="steps", spare=_SPARE)
def logs(context: "OperationContext", *, query: Paged, attempt: Number = None) -> "queries.InstancePage":
    """Show the run of each attempt, its steps, and links to them (with the setting `webserver`)."""
    return runs.find_logs(context, query.find(context), attempt)


@operation(
    "instance listing",
    none="no instance is there",
    table="cluster, instance=nominal_time, status, size=bytes:size, files, created=created_at, url",
    rows="instances",
    example="flights --start 2013-11-01T04:00Z --look",
)
def listing(
    context: "OperationContext",
    *,
    feed: Feed,
    start: Start = None,
    end: End = None,
    clusters: Clusters = (),
    filters: Statuses = (),
    results: Length = None,
    look: Look = False,
    author: str,
) -> "feed_listings.FeedListing":
    """List the instances of a feed with availability, size and time."""
    return feed_listings.list_feed(
        context,
        contexts.resolve_subject(context, feed, kind=Kind.FEED, clusters=clusters),
        start=start,
        end=end,
        statuses=ranges.parse_filter(Kind.FEED, filters).statuses,
        results=results,
        look=look,
        author=author,
    )


@operation("quality show", rows="instances", text="lines", example="flights 2013-11-03")
def show_quality(
    context: "OperationContext", *, feed: Feed, instance: MaybeInstance = None, cluster: Cluster = None
) -> "tuple[quality.InstanceQuality, ...]":
    """Show what was found about the rows of INSTANCE of FEED, by default of the newest one.

    It is what the newest attempt has found, whether the instance was published or not.
    """
    on = () if cluster is None else (cluster,)
    return quality.show_quality(context, contexts.resolve_subject(context, feed, instance, kind=Kind.FEED, clusters=on))


@operation(
    "quality history",
    none="no attempt has looked at its rows",
    table="instance=nominal_time, cluster, rows, bad=rejected, good %=percent:.12g, needed %=threshold:.12g, result, "
    "broken=broken_rules",
    rows="instances",
    example="flights --limit 7",
)
def quality_history(
    context: "OperationContext", *, feed: Feed, cluster: Cluster = None, limit: Limit = 30
) -> "quality.QualityTrend":
    """Show how good the newest instances of FEED were, newest first."""
    on = () if cluster is None else (cluster,)
    return quality.quality_history(context, contexts.resolve_subject(context, feed, kind=Kind.FEED, clusters=on), limit)
