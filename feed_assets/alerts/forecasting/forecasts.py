"""Forecast the deadlines that are still to come of instances that are not there: the probability of a miss, and why, in
one sentence; and warn of them, once an instance and level, when a miss is as probable as `sla.warn_at`.

A walk along the nominal times of each feed and process with `warn_at` watches what is not there at its nominal time. A
deadline has a row from then until the instance comes, the warning is told, or it is missed. It is looked at after an
eighth of the time that is left, at least a minute. So a tick costs a query, the instances that have come due since the
last one, and a forecast for each missing one that is looked at; entities without `warn_at` cost nothing. A warning is
written and its watch removed in one transaction, so that a restart does not repeat it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import compress, islice

from sqlalchemy import Connection

from feed_assets.alerts.deadlines.due_times import (
    DeadlineKey,
    Deadlines,
    find_misses,
    find_sla,
    iter_deadlines,
    open_deadlines,
)
from feed_assets.alerts.deadlines.messages import build_message
from feed_assets.alerts.deadlines.records import LateInstance
from feed_assets.alerts.forecasting.chains import Chain, ChainReader, OpenDeadline
from feed_assets.alerts.forecasting.outlooks import FEWEST
from feed_assets.context.bulkheads import TickStep
from feed_assets.context.errors import InstanceQueryError
from feed_assets.context.operation import OperationContext
from feed_assets.context.tick import Handler, Tick, tick_step, work_off
from feed_assets.entities.common import Kind
from feed_assets.json_form import Hidden, shows
from feed_assets.log.agenda import Agenda, AgendaKey, AgendaKind, Entry
from feed_assets.log.cursors import Cursors
from feed_assets.log.definitions.schedules import load_schedules
from feed_assets.log.messages.levels import SlaLevel
from feed_assets.log.messages.outbox import Outbox
from feed_assets.log.messages.payloads import SlaEvent
from feed_assets.log.messages.records import OutboxMessage
from feed_assets.log.records import Watermark, WatermarkKind
from feed_assets.log.watermarks import Watermarks
from feed_assets.releases.timeline import is_applied
from feed_assets.sql.database import lock_log
from feed_assets.timing.dates import NEVER

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
    connection: Connection, found: Iterable[Deadlines], as_of: datetime, until: datetime, limit: int
) -> list[tuple[Deadlines, datetime]]:
    """Return the first instances whose deadline is after `as_of`, at `until` at the latest, and that are not there."""
    listed = list(found)
    standing = Watermarks(connection).next_of([(each.watermark, each.name, each.cluster) for each in listed])
    coming = (
        (each, time)
        for each in listed
        for time in _iter_coming(each, standing.get((each.watermark, each.name, each.cluster)), as_of, until)
    )
    missing: list[tuple[Deadlines, datetime]] = []
    while len(missing) < limit and (asked := list(islice(coming, limit))):
        missing += compress(asked, are_missing(connection, asked))
    return missing[:limit]


def are_missing(connection: Connection, asked: Sequence[tuple[Deadlines, datetime]]) -> list[bool]:
    """Return whether each of some instances is not there: would its deadline have passed, it would have missed it."""
    misses = find_misses(connection, [(deadlines, [time]) for deadlines, time in asked], NEVER)
    missed = {(*miss.instance, miss.level) for miss in misses if miss.told_at is not None}
    return [(of.kind, of.name, of.cluster, time, of.level) in missed for of, time in asked]


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


def _iter_coming(
    deadlines: Deadlines, standing: Watermark | None, as_of: datetime, until: datetime
) -> Iterator[datetime]:
    """Yield from where the walk along the deadlines stands; where none has begun, from the first that is to come."""
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
    kinds: tuple[Kind, ...] = (Kind.FEED, Kind.PROCESS) if kind is None else (kind,)
    if name is not None:
        kinds = context.kinds_of(name, kind)
    with context.read() as connection:
        reader = ChainReader(connection=connection, timeline=context.timeline, as_of=context.as_of)
        of = _keys_of(context, connection, kinds, name, clusters)
        keys = [DeadlineKey(*each, level) for each in of for level in SlaLevel]
        deadlines = iter_deadlines(connection, context.timeline, keys)
        wanted = find_coming(connection, deadlines, context.as_of, until, MOST + 1)
        found = forecast(reader, wanted[:MOST])
    found.sort(key=lambda each: (each.deadline.due_at, each.deadline.name, each.deadline.cluster))
    found.sort(key=lambda each: -(each.probability or 0.0))
    return Forecasts(until=until, forecasts=tuple(found), is_complete=len(wanted) <= MOST)


def _keys_of(
    context: OperationContext,
    connection: Connection,
    kinds: tuple[Kind, ...],
    name: str | None,
    clusters: tuple[str, ...],
) -> list[tuple[Kind, str, str]]:
    """Return the feeds and processes with deadlines, in order. Raises InstanceQueryError if a named one has none."""
    declared = [
        (kind, *key)
        for kind in kinds
        for key in sorted(context.records(kind))
        if name in (None, key[0])
        and (not clusters or key[1] in clusters)
        and find_sla(context.plan, kind, *key) is not None
    ]
    view = load_schedules(connection)
    scheduled = [each for each in declared if each[0] is Kind.FEED or view.is_scheduled(*each)]
    if name is not None and not scheduled:
        what = " or ".join(kind.value for kind in kinds)
        raise InstanceQueryError(
            subject=f"{what} {name!r}",
            reason="it is not scheduled, so its deadlines do not count" if declared else "it has no SLA there",
            next_step="Schedule it." if declared else "Declare `sla`, or name another one.",
        )
    return scheduled


ENTITIES_A_STEP = 100
INSTANCES_A_STEP = 100
LOOKS_A_STEP = 100
LOOKS = 8
SHORTEST_PAUSE = timedelta(minutes=1)

_KINDS = {Kind.FEED: WatermarkKind.FEED_RISK, Kind.PROCESS: WatermarkKind.PROCESS_RISK}
WATCHED = {
    AgendaKind.FEED_RISK_LOW: SlaLevel.LOW,
    AgendaKind.FEED_RISK_HIGH: SlaLevel.HIGH,
    AgendaKind.PROCESS_RISK_LOW: SlaLevel.LOW,
    AgendaKind.PROCESS_RISK_HIGH: SlaLevel.HIGH,
}
"""The watches of deadlines in the agenda, and their levels."""
_WATCHES = {(kind.entity_kind, level): kind for kind, level in WATCHED.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchResult:
    """What a tick has done: how many deadlines it has warned of, and how many it has looked at."""

    warned: int = 0
    looked: int = 0
    is_complete: bool = True


def pause_before(due_at: datetime, as_of: datetime) -> timedelta:
    """Return the time to the next look at a deadline."""
    return max(SHORTEST_PAUSE, (due_at - as_of) / LOOKS)


@tick_step(TickStep.FORECASTS, otherwise=WatchResult())
def apply_forecasts(tick: Tick) -> WatchResult:
    """Watch the deadlines of a cluster whose entities have a `warn_at`, and warn of those that will probably be missed.

    Those of processes only while these are scheduled. Nothing is locked while forecasts are made. What a step
    has found is written in one transaction, so that the next tick continues an interrupted one. If nothing is due,
    nothing is written.
    """
    with tick.database.read() as connection:
        tick.timeline.refresh(connection, tick.as_of)
        if not is_applied(connection, tick.timeline):
            return WatchResult(is_complete=False)
        is_followed = Cursors(connection).get(_cursor(tick.cluster)) == tick.plan.digest
    if not is_followed:
        with tick.database.begin() as connection:
            _follow(connection, tick)
    _, is_walked = work_off(tick, _Walks())
    looks, is_complete = work_off(tick, _Looks())
    warned, looked = sum(each.warned for each in looks), sum(each.looked for each in looks)
    return WatchResult(warned=warned, looked=looked, is_complete=is_walked and is_complete)


def _follow(connection: Connection, tick: Tick) -> None:
    """Let the walks follow the plan: once for each plan, over the entities of the cluster that have a `warn_at`."""
    plan, watermarks = tick.plan, Watermarks(connection)
    for kind, mark in _KINDS.items():
        records = plan.feeds if kind is Kind.FEED else plan.processes
        wanted = {
            key
            for key in records
            if key[1] == tick.cluster and (sla := find_sla(plan, kind, *key)) is not None and sla.warn_at is not None
        }
        standing = {key: each for key, each in watermarks.all(mark).items() if key.cluster == tick.cluster}
        watermarks.remove(mark, [key for key in standing if key not in wanted])
        new = [key for key in wanted if key not in standing or standing[key].next_time is None]
        for name, _ in sorted(new):
            deadlines = open_deadlines(connection, tick.timeline, kind, name, tick.cluster, SlaLevel.HIGH)
            if deadlines is not None:
                first = deadlines.ceil(tick.as_of - deadlines.delay)
                watermarks.put([Watermark(kind=mark, entity=name, cluster=tick.cluster, next_index=0, next_time=first)])
    Cursors(connection).put(_cursor(tick.cluster), plan.digest)


def forget_walks(connection: Connection, cluster: str) -> None:
    """Let the walks of a cluster begin anew at the present, since a clock that was ahead has led them past it."""
    watermarks = Watermarks(connection)
    for mark in _KINDS.values():
        watermarks.remove(mark, [key for key in watermarks.all(mark) if key.cluster == cluster])
    Cursors(connection).put(_cursor(cluster), "")


def _cursor(cluster: str) -> str:
    return f"sla/watched/{cluster}"


class _Walks(Handler[Watermark, None]):
    """Watches the missing instances whose nominal times have come; a unit is a feed or process."""

    step = TickStep.FORECASTS
    at_once = ENTITIES_A_STEP

    def find_due(self, connection: Connection, tick: Tick, limit: int) -> list[Watermark]:
        watermarks = Watermarks(connection)
        due = watermarks.due(WatermarkKind.FEED_RISK, tick.as_of, limit, tick.cluster)
        due += watermarks.due(WatermarkKind.PROCESS_RISK, tick.as_of, limit, tick.cluster, only_scheduled=True)
        return due

    def unit_of(self, entry: Watermark) -> str:
        return entry.entity

    def handle(self, tick: Tick, entries: Sequence[Watermark]) -> list[None]:
        with tick.database.begin() as connection:
            watching = _Watching(connection=connection, tick=tick)
            Watermarks(connection).put([watching.walk(watermark) for watermark in entries])
        return []

    def put_off(self, tick: Tick, entries: Sequence[Watermark], pause: timedelta) -> list[None]:
        until = tick.as_of + max(SHORTEST_PAUSE, pause)
        with tick.database.begin() as connection:
            Watermarks(connection).put(
                replace(each, delay=until - each.next_time) for each in entries if each.next_time is not None
            )
        return []


class _Looks(Handler[Entry, WatchResult]):
    """Looks at watched deadlines; a unit is a feed or process."""

    step = TickStep.FORECASTS
    at_once = LOOKS_A_STEP

    def find_due(self, connection: Connection, tick: Tick, limit: int) -> list[Entry]:
        agenda = Agenda[Entry](connection)
        return agenda.due(tuple(WATCHED), tick.cluster, tick.as_of, limit)

    def unit_of(self, entry: Entry) -> str:
        return entry.name

    def handle(self, tick: Tick, entries: Sequence[Entry]) -> list[WatchResult]:
        with tick.database.read() as connection:
            tick.timeline.refresh(connection, tick.as_of)
            warnings, over, later = _Watching(connection=connection, tick=tick).look_at(entries)
        with tick.database.begin() as connection:
            lock_log(connection)
            warned = _Watching(connection=connection, tick=tick).warn(warnings)
            Agenda[Entry](connection).remove(over)
            Agenda[Entry](connection).put(later)
        return [WatchResult(warned=warned, looked=len(entries))]

    def put_off(self, tick: Tick, entries: Sequence[Entry], pause: timedelta) -> list[WatchResult]:
        due_at = tick.as_of + max(SHORTEST_PAUSE, pause)
        with tick.database.begin() as connection:
            Agenda[Entry](connection).put(each._replace(due_at=due_at) for each in entries)
        return [WatchResult(looked=len(entries))]


@dataclass(slots=True, kw_only=True)
class _Watching:
    """One step of a tick, in one transaction."""

    connection: Connection
    tick: Tick
    _deadlines: dict[tuple[Kind, str, SlaLevel], Deadlines | None] = field(default_factory=dict)

    def walk(self, watermark: Watermark) -> Watermark:
        """Watch what is not there at its nominal time; return where the walk stands then."""
        name, time = watermark.entity, watermark.next_time
        kind = Kind.FEED if watermark.kind is WatermarkKind.FEED_RISK else Kind.PROCESS
        levels = [found for level in SlaLevel if (found := self._find(kind, name, level)) is not None]
        times: list[datetime] = []
        while time is not None and time <= self.tick.as_of and levels and len(times) < INSTANCES_A_STEP:
            times.append(time)
            time = levels[-1].ceil(time + _MOMENT)
        watched = [(deadlines, each) for deadlines in levels for each in times]
        Agenda[Entry](self.connection).put(
            Entry(
                kind=_WATCHES[kind, deadlines.level],
                name=name,
                cluster=self.tick.cluster,
                nominal_time=missing,
                due_at=self._next_look(deadlines, missing),
                planned_at=self.tick.as_of,
            )
            for deadlines, missing in compress(watched, are_missing(self.connection, watched))
            if deadlines.due_at(missing) > self.tick.as_of
        )
        return Watermark(
            kind=watermark.kind,
            entity=name,
            cluster=self.tick.cluster,
            next_index=0,
            next_time=time if levels else None,
        )

    def look_at(self, due: Sequence[Entry]) -> tuple[list[Forecast], set[AgendaKey], list[Entry]]:
        """Return which watched deadlines to warn of, which to watch no longer, and which to look at later."""
        reader = ChainReader(connection=self.connection, timeline=self.tick.timeline, as_of=self.tick.as_of)
        watched = [(watch, deadlines) for watch in due if (deadlines := self._watched(watch)) is not None]
        asked = [(deadlines, watch.nominal_time) for watch, deadlines in watched]
        is_missing = are_missing(self.connection, asked)
        watched, asked = list(compress(watched, is_missing)), list(compress(asked, is_missing))
        forecasts = forecast(reader, asked)
        warnings: list[Forecast] = []
        over = {watch.key for watch in due}
        later: list[Entry] = []
        for (watch, deadlines), found in zip(watched, forecasts, strict=True):
            if deadlines.sla.warn_at is not None and found.is_at_risk(deadlines.sla.warn_at):
                warnings.append(found)
            else:
                due_at = self._next_look(deadlines, watch.nominal_time)
                later.append(watch._replace(due_at=due_at, planned_at=self.tick.as_of))
                over.remove(watch.key)
        return warnings, over, later

    def warn(self, found: Iterable[Forecast]) -> int:
        """Warn of what is still missing; return of how many."""
        of = [(each, self._find(each.deadline.kind, each.deadline.name, each.deadline.level)) for each in found]
        asked = [(each, deadlines, each.deadline.nominal_time) for each, deadlines in of if deadlines is not None]
        is_missing = are_missing(self.connection, [(deadlines, time) for _, deadlines, time in asked])
        warnings = [each for each, *_ in compress(asked, is_missing)]
        Outbox(self.connection).append_many(build_warnings(warnings, self.tick.as_of))
        return len(warnings)

    def _watched(self, watch: Entry) -> Deadlines | None:
        """Return the deadlines of what is watched; None if they are not to be watched any more."""
        deadlines, time = self._find(watch.kind.entity_kind, watch.name, WATCHED[watch.kind]), watch.nominal_time
        if deadlines is None or not deadlines.contains(time) or deadlines.due_at(time) <= self.tick.as_of:
            return None
        return deadlines

    def _next_look(self, deadlines: Deadlines, time: datetime) -> datetime:
        return self.tick.as_of + pause_before(deadlines.due_at(time), self.tick.as_of)

    def _find(self, kind: Kind, name: str, level: SlaLevel) -> Deadlines | None:
        """Return the deadlines of an entity that are watched."""
        key = (kind, name, level)
        if key not in self._deadlines:
            found = open_deadlines(self.connection, self.tick.timeline, kind, name, self.tick.cluster, level)
            self._deadlines[key] = None if found is None or found.sla.warn_at is None else found
        return self._deadlines[key]


def build_warnings(found: Iterable[Forecast], as_of: datetime) -> list[OutboxMessage]:
    """Return a message for each entity and level with deadlines that will probably be missed."""
    groups: dict[tuple[str, str, str, SlaLevel], list[Forecast]] = {}
    for each in found:
        of = each.deadline
        groups.setdefault((of.kind, of.name, of.cluster, of.level), []).append(each)
    messages = []
    for (kind, name, cluster, level), forecasts in sorted(groups.items(), key=lambda group: group[0]):
        listed = sorted(forecasts, key=lambda each: each.deadline.nominal_time)
        instances = [LateInstance(kind, name, cluster, each.deadline.nominal_time) for each in listed]
        messages.append(build_message(SlaEvent.AT_RISK, level, instances, listed[0].sentence, as_of))
    return messages
