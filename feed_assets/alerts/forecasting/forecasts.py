"""Forecast the deadlines that are still to come of instances that are not there: the probability of a miss, and why, in
one sentence.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

from sqlalchemy import Connection

from feed_assets.alerts.deadlines.due_times import (
    Deadlines,
    decide_feed_misses,
    decide_process_misses,
    find_sla,
    open_deadlines,
)
from feed_assets.alerts.deadlines.store import SlaMisses
from feed_assets.alerts.forecasting.chains import Chain, ChainReader, OpenDeadline
from feed_assets.alerts.forecasting.outlooks import FEWEST
from feed_assets.context.errors import InstanceQueryError
from feed_assets.context.operation import OperationContext
from feed_assets.entities.common import Kind
from feed_assets.json_form import Hidden, shows
from feed_assets.log.definitions.schedules import load_schedules
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.messages.levels import SlaLevel
from feed_assets.log.records import FeedKey, ProcessKey
from feed_assets.log.watermarks import Watermarks
from feed_assets.plan.edges import Key

_MOMENT = timedelta(microseconds=1)


@shows("deadline", "kind, name, cluster, nominal_time, level, due_at")
@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """How probable it is that an instance misses a deadline, by `earlier` ones; `probability` is None if there are not
    enough of them.
    """

    deadline: Hidden[OpenDeadline]
    probability: float | None
    earlier: int
    reason: str

    @property
    def share(self) -> str:
        """The probability for people."""
        return "unknown" if self.probability is None else f"{self.probability:.1%}"

    @property
    def sentence(self) -> str:
        """The forecast for people."""
        if self.probability is None:
            return self.reason
        return f"it will miss this deadline with a probability of {self.probability:.0%}: {self.reason}"

    def is_at_risk(self, warn_at: float) -> bool:
        """Return whether people are warned of it."""
        return self.probability is not None and self.probability >= warn_at


def decide_forecast(deadline: OpenDeadline, chain: Chain, as_of: datetime) -> Forecast:
    """Return what a chain says of a deadline."""
    probability = chain.share_after((deadline.due_at - as_of).total_seconds())
    few = f"not enough history: {chain.earlier} earlier instances, and {FEWEST} are needed"
    return Forecast(
        deadline=deadline,
        probability=None if probability is None else min(max(round(probability, 3), _LEAST), 1 - _LEAST),
        earlier=chain.earlier,
        reason=few if probability is None else chain.reason,
    )


def find_coming(
    connection: Connection, deadlines: Deadlines, as_of: datetime, until: datetime, limit: int
) -> list[datetime]:
    """Return the first instances whose deadline is after `as_of`, at `until` at the latest, and that are not there."""
    coming, missing = _iter_coming(connection, deadlines, as_of, until), list[datetime]()
    while len(missing) < limit and (times := list(islice(coming, limit))):
        missing += find_missing(connection, deadlines, times)
    return missing[:limit]


def find_missing(connection: Connection, deadlines: Deadlines, times: Sequence[datetime]) -> list[datetime]:
    """Return which of some instances are not there: would their deadlines have passed, they would have missed them."""
    name, cluster = deadlines.name, deadlines.cluster
    if deadlines.kind is Kind.FEED:
        rows = FeedInstances(connection).get_many([FeedKey(name, cluster, time) for time in times])
        misses = decide_feed_misses(deadlines, times, rows, times[-1]) if times else []
    else:
        keys = [ProcessKey(name, cluster, time) for time in times]
        found, starts = ProcessInstances(connection).get_many(keys), SlaMisses(connection).starts(keys)
        misses = decide_process_misses(deadlines, times, found, starts, times[-1]) if times else []
    return [miss.nominal_time for miss in misses if miss.told_at is not None]


def forecast(reader: ChainReader, wanted: Sequence[tuple[Deadlines, datetime]]) -> list[Forecast]:
    """Return how probable it is that each of some instances misses its deadline."""
    coming = [
        OpenDeadline(
            kind=deadlines.kind,
            name=deadlines.name,
            cluster=deadlines.cluster,
            nominal_time=nominal_time,
            level=deadlines.level,
            due_at=deadlines.due_at(nominal_time),
        )
        for deadlines, nominal_time in wanted
    ]
    chains = zip(coming, reader.read(coming), strict=True)
    return [decide_forecast(deadline, chain, reader.as_of) for deadline, chain in chains]


def _iter_coming(connection: Connection, deadlines: Deadlines, as_of: datetime, until: datetime) -> Iterator[datetime]:
    """Yield from where the walk along the deadlines stands; where none has begun, from the first that is to come."""
    standing = Watermarks(connection).get(deadlines.watermark, deadlines.name, deadlines.cluster)
    first = deadlines.sla.since or as_of - deadlines.delay
    if standing is not None and standing.next_time is not None:
        first = standing.next_time
    time = deadlines.ceil(first)
    while time is not None and (due_at := deadlines.due_at(time)) <= until:
        if due_at > as_of:
            yield time
        time = deadlines.ceil(time + _MOMENT)


_LEAST = 0.001
"""Probabilities are given in thousandths; nothing is certain before the deadline."""


MOST = 1_000
"""Forecasts are made for so many deadlines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecasts:
    """The forecasts of deadlines up to `until`, the most probable misses first. Without `is_complete` there are more
    deadlines than `MOST`: those of the last entities are left out.
    """

    until: datetime
    forecasts: tuple[Forecast, ...]
    is_complete: bool

    @property
    def summary(self) -> str:
        """How to see the others, if there are more."""
        others = "--kind, --name, --clusters and --within choose others"
        return "" if self.is_complete else f"the first {MOST:,} deadlines; {others}"


def forecast_deadlines(
    context: OperationContext,
    within: timedelta,
    *,
    kind: Kind | None = None,
    name: str | None = None,
    clusters: tuple[str, ...] = (),
) -> Forecasts:
    """Forecast the deadlines within a time from now, of instances that are not there; of one kind, one entity and some
    clusters if given. Processes that are not scheduled have none.

    It costs a walk over the SLAs, and the reading of chains side by side (see `ChainReader`).

    Raises:
        EntityNotFoundError: there is no such feed or process.
        InstanceQueryError: the one that is named has no SLA, or is not scheduled, or a cluster is not declared.
    """
    context.require_clusters(clusters)
    until = context.as_of + within
    wanted: list[tuple[Deadlines, datetime]] = []
    kinds = _kinds_of(context, kind, name)
    with context.read() as connection:
        reader = ChainReader(connection=connection, timeline=context.timeline, as_of=context.as_of)
        keys = _keys_of(context, connection, kinds, name, clusters)
        for deadlines in _iter_deadlines(context, connection, keys):
            times = find_coming(connection, deadlines, context.as_of, until, MOST + 1 - len(wanted))
            wanted += [(deadlines, time) for time in times]
            if len(wanted) > MOST:
                break
        found = forecast(reader, wanted[:MOST])
    return Forecasts(until=until, forecasts=_in_order(found), is_complete=len(wanted) <= MOST)


def _kinds_of(context: OperationContext, kind: Kind | None, name: str | None) -> tuple[Kind, ...]:
    """Return the kinds that are asked for. Raises EntityNotFoundError if none of them has the name."""
    if name is None:
        return (Kind.FEED, Kind.PROCESS) if kind is None else (kind,)
    return context.kinds_of(name, kind)


def _keys_of(
    context: OperationContext,
    connection: Connection,
    kinds: tuple[Kind, ...],
    name: str | None,
    clusters: tuple[str, ...],
) -> list[tuple[Kind, Key]]:
    """Return the feeds and processes with deadlines, in order. Raises InstanceQueryError if a named one has none."""
    declared = [
        (kind, key)
        for kind in kinds
        for key in sorted(context.records(kind))
        if name in (None, key[0])
        and (not clusters or key[1] in clusters)
        and find_sla(context.plan, kind, *key) is not None
    ]
    view = load_schedules(connection, context.without_row)
    scheduled = [(kind, key) for kind, key in declared if kind is Kind.FEED or view.is_scheduled(kind, *key)]
    if name is not None and not scheduled:
        what = " or ".join(kind.value for kind in kinds)
        raise InstanceQueryError(
            subject=f"{what} {name!r}",
            reason="it is not scheduled, so its deadlines do not count" if declared else "it has no SLA there",
            next_step="Schedule it." if declared else "Declare `sla`, or name another one.",
        )
    return scheduled


def _iter_deadlines(
    context: OperationContext, connection: Connection, keys: list[tuple[Kind, Key]]
) -> Iterator[Deadlines]:
    for kind, (name, cluster) in keys:
        for level in SlaLevel:
            deadlines = open_deadlines(connection, context.timeline, kind, name, cluster, level)
            if deadlines is not None:
                yield deadlines


def _in_order(found: list[Forecast]) -> tuple[Forecast, ...]:
    def order(each: Forecast) -> tuple[object, ...]:
        return -(each.probability or 0.0), each.deadline.due_at, each.deadline.name, each.deadline.cluster

    return tuple(sorted(found, key=order))
