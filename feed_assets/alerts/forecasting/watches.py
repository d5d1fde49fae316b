"""Warn of deadlines that will probably be missed: once an instance and level, when it is as probable as `sla.warn_at`.

A walk along the nominal times of each feed and process with `warn_at` watches what is not there at its nominal time. A
deadline has a row from then until the instance comes, the warning is told, or it is missed. It is looked at after an
eighth of the time that is left, at least a minute. So a tick costs a query, the instances that have come due since the
last one, and a forecast for each missing one that is looked at; entities without `warn_at` cost nothing. A warning is
written and its watch removed in one transaction, so that a restart does not repeat it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from sqlalchemy import Connection

from feed_assets.alerts.deadlines.due_times import Deadlines, find_sla, open_deadlines
from feed_assets.alerts.deadlines.messages import build_payload
from feed_assets.alerts.deadlines.records import LateInstance
from feed_assets.alerts.forecasting.chains import ChainReader
from feed_assets.alerts.forecasting.forecasts import Forecast, find_missing, forecast
from feed_assets.context.handlers import Handler, work_off
from feed_assets.context.tick import Tick, tick_step
from feed_assets.context.tick_failures import TickStep
from feed_assets.entities.common import Kind
from feed_assets.log.agenda import Agenda, AgendaKey, AgendaKind, Entry
from feed_assets.log.cursors import Cursors
from feed_assets.log.messages.levels import SlaLevel
from feed_assets.log.messages.outbox import Outbox
from feed_assets.log.messages.payloads import SlaEvent
from feed_assets.log.messages.records import OutboxMessage
from feed_assets.log.records import Watermark, WatermarkKind
from feed_assets.log.watermarks import Watermarks
from feed_assets.releases.timeline import is_applied
from feed_assets.sql.locks import lock_log
from feed_assets.timing.dates import render_datetime

ENTITIES_A_STEP = 100
INSTANCES_A_STEP = 100
LOOKS_A_STEP = 100
LOOKS = 8
SHORTEST_PAUSE = timedelta(minutes=1)

_MOMENT = timedelta(microseconds=1)
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
    warned, looked = sum(len(each.warnings) for each in looks), sum(map(len, looks))
    return WatchResult(warned=warned, looked=looked, is_complete=is_walked and is_complete)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What looks have found: deadlines to warn of, those to be watched no longer, and those to be looked at later."""

    warnings: tuple[Forecast, ...] = ()
    over: tuple[AgendaKey, ...] = ()
    later: tuple[Entry, ...] = ()

    def __len__(self) -> int:
        """The number of deadlines that were looked at."""
        return len(self.over) + len(self.later)


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
        due += watermarks.due(WatermarkKind.PROCESS_RISK, tick.as_of, limit, tick.cluster, without_row=tick.without_row)
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


class _Looks(Handler[Entry, "_Found"]):
    """Looks at watched deadlines; a unit is a feed or process."""

    step = TickStep.FORECASTS
    at_once = LOOKS_A_STEP

    def find_due(self, connection: Connection, tick: Tick, limit: int) -> list[Entry]:
        agenda = Agenda[Entry](connection)
        return agenda.due(tuple(WATCHED), tick.cluster, tick.as_of, limit, without_row=tick.without_row)

    def unit_of(self, entry: Entry) -> str:
        return entry.name

    def handle(self, tick: Tick, entries: Sequence[Entry]) -> list["_Found"]:
        with tick.database.read() as connection:
            tick.timeline.refresh(connection, tick.as_of)
            found = _Watching(connection=connection, tick=tick).look_at(entries)
        with tick.database.begin() as connection:
            lock_log(connection)
            return [_Watching(connection=connection, tick=tick).write(found)]

    def put_off(self, tick: Tick, entries: Sequence[Entry], pause: timedelta) -> list["_Found"]:
        due_at = tick.as_of + max(SHORTEST_PAUSE, pause)
        later = tuple(each._replace(due_at=due_at) for each in entries)
        with tick.database.begin() as connection:
            Agenda[Entry](connection).put(later)
        return [_Found(later=later)]


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
        Agenda[Entry](self.connection).put(
            Entry(
                kind=_WATCHES[kind, deadlines.level],
                name=name,
                cluster=self.tick.cluster,
                nominal_time=missing,
                due_at=self._next_look(deadlines, missing),
                planned_at=self.tick.as_of,
            )
            for deadlines in levels
            for missing in find_missing(self.connection, deadlines, times)
            if deadlines.due_at(missing) > self.tick.as_of
        )
        return Watermark(
            kind=watermark.kind,
            entity=name,
            cluster=self.tick.cluster,
            next_index=0,
            next_time=time if levels else None,
        )

    def look_at(self, due: Sequence[Entry]) -> _Found:
        """Look at watched deadlines."""
        reader = ChainReader(connection=self.connection, timeline=self.tick.timeline, as_of=self.tick.as_of)
        watched = [(watch, deadlines) for watch in due if (deadlines := self._watched(watch)) is not None]
        forecasts = forecast(reader, [(deadlines, watch.nominal_time) for watch, deadlines in watched])
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
        return _Found(warnings=tuple(warnings), over=tuple(over), later=tuple(later))

    def write(self, found: _Found) -> _Found:
        """Write what was found, and warn of what is still missing; return it with these warnings alone."""
        warnings = tuple(each for each in found.warnings if self._is_missing(each))
        watches = Agenda[Entry](self.connection)
        watches.remove(found.over)
        watches.put(found.later)
        Outbox(self.connection).append_many(build_warnings(warnings, self.tick.as_of))
        return replace(found, warnings=warnings)

    def _is_missing(self, found: Forecast) -> bool:
        of = found.deadline
        deadlines = self._find(of.kind, of.name, of.level)
        return deadlines is not None and bool(find_missing(self.connection, deadlines, [of.nominal_time]))

    def _watched(self, watch: Entry) -> Deadlines | None:
        """Return the deadlines of what is watched; None if nothing is to be watched any more."""
        deadlines, time = self._find(watch.kind.entity_kind, watch.name, WATCHED[watch.kind]), watch.nominal_time
        if deadlines is None or not deadlines.contains(time) or deadlines.due_at(time) <= self.tick.as_of:
            return None
        return deadlines if find_missing(self.connection, deadlines, [time]) else None

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
    return [_warning(sorted(groups[key], key=lambda each: each.deadline.nominal_time), as_of) for key in sorted(groups)]


def _warning(found: list[Forecast], as_of: datetime) -> OutboxMessage:
    first, times = found[0].deadline, [each.deadline.nominal_time for each in found]
    instance = LateInstance(first.kind.value, first.name, first.cluster, first.nominal_time)
    place = (first.kind.value, first.name, first.cluster, first.level.value, render_datetime(first.nominal_time))
    return OutboxMessage(
        recorded_at=as_of,
        payload=build_payload(SlaEvent.AT_RISK, first.level, instance, times, found[0].sentence),
        idempotency_key="/".join(("sla", SlaEvent.AT_RISK.value, *place)),
    )
