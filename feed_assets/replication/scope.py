"""The scope of a query about copies: the flows of a feed to some targets, and a range of instances."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sqlalchemy import Connection

from feed_assets.context.errors import InstanceQueryError
from feed_assets.context.operation import OperationContext
from feed_assets.entities.common import Kind
from feed_assets.entities.flow_names import flow_name, parse_flow
from feed_assets.instances.lists.ranges import decide_range
from feed_assets.json_form import Hidden, NominalTime
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.plan.records import ProcessRecord
from feed_assets.releases.timeline import ActiveRelease
from feed_assets.replication.queries import CopyQuery

AT_ONCE = 500
"""How many instances of a target are handled before the facts of the next ones are read."""

OnProgress = Callable[[str, int, int], None]
"""Called with what is done, and the numbers of handled and of all instances or files."""

_MOMENT, _DAY = timedelta(microseconds=1), timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyScope:
    """The flows of a query, and the nominal times `[start, end)`."""

    feed: str
    flows: Hidden[tuple[ProcessRecord, ...]]
    start: NominalTime
    end: NominalTime

    @property
    def targets(self) -> tuple[str, ...]:
        """The clusters of the targets."""
        return tuple(sorted({flow.cluster for flow in self.flows}))

    def count_instances(self, context: OperationContext, *, since: datetime | None = None) -> int:
        """Return how many instances all targets have in the range, or from `since` to its end."""
        records = [context.plan.feeds[self.feed, target] for target in self.targets]
        return sum(len(record.sequence.indices_between(since or self.start, self.end)) for record in records)

    def iter_slices(self, context: OperationContext, instances: int) -> "Iterator[CopyScope]":
        """Yield consecutive parts of the range, each with about so many instances of a target, oldest first."""
        records = [context.plan.feeds[self.feed, target] for target in self.targets]
        start, length = self.start, min(record.sequence.frequency.as_duration() for record in records) * instances
        if not all(record.is_expected for record in records):
            length = max(length, _DAY)
        while start < self.end:
            stop = min(start + length, self.end)
            yield replace(self, start=start, end=stop)
            start = stop

    def iter_governed(
        self, context: OperationContext, connection: Connection, flow: ProcessRecord
    ) -> Iterator[tuple[ActiveRelease, datetime]]:
        """Yield the instances of a flow in the range, oldest first, with the definitions that govern them."""
        for active in context.timeline.spans(connection, flow.key, self.start):
            sequence = active.record.sequence
            if not active.record.is_enumerated:
                (edge,) = active.record.inputs
                first, last = max(self.start, active.start), min(self.end, active.stop) - _MOMENT
                times = FeedInstances(connection).available_times(*edge.feed_key, first, last)
                yield from ((active, time) for time in times)
                continue
            for index in active.between(self.start, self.end):
                yield active, sequence.at(index)


def is_due(active: ActiveRelease, nominal_time: datetime, as_of: datetime) -> bool:
    """Return whether a copy is due, including its delay."""
    return nominal_time + active.record.delay <= as_of


def find_scope(context: OperationContext, query: CopyQuery, results: int | None = None) -> CopyScope:
    """Find the flows and the range of a query: by default the newest `results` instances, or all (`decide_range`).

    Raises:
        EntityNotFoundError: there is no such feed.
        InstanceQueryError: the feed has no such copies, or the range is invalid.
    """
    flow = parse_flow(query.feed)
    feed = query.feed if flow is None else flow[0]
    named = {name for name in (query.source, flow and flow[1]) if name}
    known = find_flows(context, feed)
    if not known:
        raise InstanceQueryError(
            subject=f"feed {feed!r}",
            reason="it is not replicated",
            next_step="Add a cluster of type target whose validity overlaps that of a source.",
        )
    _require(feed, "to", query.targets, {each.cluster for each in known})
    _require(feed, "from", named, {source_of(each) for each in known})
    selected = [
        each for each in known if (not query.targets or each.cluster in query.targets) and named <= {source_of(each)}
    ]
    if not selected:
        targets = ", ".join(sorted(query.targets)) or "anywhere"
        raise InstanceQueryError(
            subject=f"feed {feed!r}",
            reason=f"it is not copied from {', '.join(sorted(named))} to {targets}",
            next_step=f"It is copied {', '.join(map(describe_direction, known))}.",
        )
    sequences = [each.sequence for each in selected]
    sequences += [context.plan.feeds[feed, each.cluster].sequence for each in selected]
    start, stop = decide_range(sequences, start=query.start, end=query.end, results=results, now=context.as_of)
    return CopyScope(feed=feed, flows=tuple(selected), start=start, end=stop)


def find_flows(context: OperationContext, feed: str) -> tuple[ProcessRecord, ...]:
    """Return the flows of a feed, by target and source.

    Raises:
        EntityNotFoundError: there is no such feed.
    """
    clusters = context.clusters_of(Kind.FEED, feed)
    found = (
        context.plan.processes.get((flow_name(feed, source), target)) for target in clusters for source in clusters
    )
    return tuple(flow for flow in found if flow is not None)


def source_of(flow: ProcessRecord) -> str:
    """Return the source cluster of a flow."""
    assert flow.copy is not None
    return flow.copy.source


def describe_direction(flow: ProcessRecord) -> str:
    """Return source and target of a flow as part of a sentence."""
    return f"from {source_of(flow)} to {flow.cluster}"


def _require(feed: str, way: str, requested: Collection[str], known: Collection[str]) -> None:
    if unknown := sorted(set(requested) - set(known)):
        raise InstanceQueryError(
            subject=f"cluster {', '.join(unknown)}",
            reason=f"feed {feed!r} is not copied {way} it",
            next_step=f"It is copied {way} {', '.join(sorted(known))}.",
        )
