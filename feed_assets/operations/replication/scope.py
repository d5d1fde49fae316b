"""Which copies a question is about: the flows of a feed to some targets, and the instances of a range."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection

from feed_assets.entities.common import Kind
from feed_assets.entities.flow_names import flow_name, parse_flow
from feed_assets.lifecycle.governance import Governed
from feed_assets.operations.errors import InstanceQueryError
from feed_assets.operations.instances.ranges import PAGE, decide_range
from feed_assets.operations.scene import Scene
from feed_assets.plan.records import ProcessRecord

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyQuery:
    """The copies of a feed to some targets (none named: all), from one source (None: all), in a range.

    `feed` may also be the name of a flow. `start` and `end` are None for the defaults of instances, which `results`
    goes with (see `decide_range`).
    """

    feed: str
    targets: Collection[str] = ()
    source: str | None = None
    start: datetime | None = None
    end: datetime | None = None
    results: int = PAGE


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyScope:
    """The flows that a query means, and the nominal times `[start, stop)`."""

    feed: str
    flows: tuple[ProcessRecord, ...]
    start: datetime
    stop: datetime

    @property
    def targets(self) -> tuple[str, ...]:
        """The clusters that are copied to."""
        return tuple(sorted({flow.cluster for flow in self.flows}))

    def iter_governed(
        self, scene: Scene, connection: Connection, flow: ProcessRecord
    ) -> Iterator[tuple[Governed, datetime]]:
        """The instances of a flow in the range, oldest first, with the definitions that govern them."""
        for governed in scene.governance.stretches(connection, flow.key, self.start):
            sequence = governed.record.sequence
            for index in governed.between(self.start, self.stop):
                yield governed, sequence.at(index)


def is_due(governed: Governed, nominal_time: datetime, as_of: datetime) -> bool:
    """Whether a copy is to be made by now: a delay has passed, too."""
    return nominal_time + governed.record.delay <= as_of


def find_scope(scene: Scene, query: CopyQuery) -> CopyScope:
    """The flows and the range that a query means.

    Raises:
        EntityNotFoundError: there is no such feed.
        InstanceQueryError: it is not copied, or not so, or the range makes no sense.
    """
    flow = parse_flow(query.feed)
    feed = query.feed if flow is None else flow[0]
    named = {name for name in (query.source, flow and flow[1]) if name}
    known = find_flows(scene, feed)
    if not known:
        raise InstanceQueryError(
            subject=f"feed {feed!r}",
            reason="it is copied nowhere",
            next_step="Give it a cluster of type target, whose validity overlaps with that of a source.",
        )
    _require(feed, "to", query.targets, {each.cluster for each in known})
    _require(feed, "from", named, {source_of(each) for each in known})
    wanted = [
        each for each in known if (not query.targets or each.cluster in query.targets) and named <= {source_of(each)}
    ]
    if not wanted:
        targets = ", ".join(sorted(query.targets)) or "anywhere"
        raise InstanceQueryError(
            subject=f"feed {feed!r}",
            reason=f"it is not copied from {', '.join(sorted(named))} to {targets}",
            next_step=f"It is copied {', '.join(map(describe_way, known))}.",
        )
    sequences = [each.sequence for each in wanted]
    sequences += [scene.plan.feeds[feed, each.cluster].sequence for each in wanted]
    start, stop = decide_range(sequences, start=query.start, end=query.end, results=query.results, now=scene.as_of)
    return CopyScope(feed=feed, flows=tuple(wanted), start=start, stop=stop)


def find_flows(scene: Scene, feed: str) -> tuple[ProcessRecord, ...]:
    """The flows of a feed, by target and source.

    Raises:
        EntityNotFoundError: there is no such feed.
    """
    clusters = scene.clusters_of(Kind.FEED, feed)
    found = (scene.plan.processes.get((flow_name(feed, source), target)) for target in clusters for source in clusters)
    return tuple(flow for flow in found if flow is not None)


def source_of(flow: ProcessRecord) -> str:
    """The cluster that a flow copies from."""
    assert flow.copy is not None
    return flow.copy.source


def describe_way(flow: ProcessRecord) -> str:
    """From where to where a flow copies, in a sentence part."""
    return f"from {source_of(flow)} to {flow.cluster}"


def _require(feed: str, way: str, wanted: Collection[str], known: Collection[str]) -> None:
    if unknown := sorted(set(wanted) - set(known)):
        raise InstanceQueryError(
            subject=f"cluster {', '.join(unknown)}",
            reason=f"feed {feed!r} is not copied {way} it",
            next_step=f"It is copied {way} {', '.join(sorted(known))}.",
        )


def render_lag(lag: timedelta) -> str:
    """How far behind, for people.

    >>> render_lag(timedelta(0)), render_lag(timedelta(days=1, hours=2)), render_lag(timedelta(minutes=90))
    ('none', '1 d 2 h', '1 h 30 min')
    """
    minutes = int(lag.total_seconds()) // 60
    parts = ((minutes // 1440, "d"), (minutes // 60 % 24, "h"), (minutes % 60, "min"))
    return " ".join(f"{count} {unit}" for count, unit in parts if count) or "none"
