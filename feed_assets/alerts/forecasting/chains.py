"""Read what a forecast counts: how late an instance is, what it waits for upstream, and how long earlier ones waited.

A forecast asks once for each feed and process of its chain, for at most 186 earlier instances of it, by their keys, and
goes on with two missing instances of each input: the oldest and the newest. The chain goes three processes up, and has
at most six branches at each. Many forecasts are made side by side: what all of them ask for next is read in a few
statements.
"""

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import reduce
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from sqlalchemy import Connection, and_, func, select

from feed_assets.alerts.deadlines.store import SlaMisses
from feed_assets.alerts.forecasting.outlooks import ENDLESS, FEWEST, MOST, RECENT, Outlook
from feed_assets.entities.common import Kind
from feed_assets.json_form import NominalTime
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.instances.tables import feed_instances, process_instances
from feed_assets.log.messages.levels import SlaLevel
from feed_assets.log.records import (
    ARRIVING,
    FeedInstanceStatus,
    FeedKey,
    ProcessInstance,
    ProcessInstanceStatus,
    ProcessKey,
)
from feed_assets.log.tables import feed_events
from feed_assets.plan.edges import Key
from feed_assets.plan.records import FeedRecord, Plan
from feed_assets.releases.timeline import ActiveRelease, ReleaseTimeline
from feed_assets.sql.rows import KEY_ROWS, TableStore, key_rows, render_rows, select_keys
from feed_assets.timing import dates
from feed_assets.timing.dates import render_datetime
from feed_assets.timing.sequence import InstanceSequence
from feed_assets.triggers.input_windows import InputState, closed_gates, read_states

_K = TypeVar("_K")
_V = TypeVar("_V")
_DAY = timedelta(days=1)
_WEEK = timedelta(days=7)
_HOUR = timedelta(hours=1)


class Group(StrEnum):
    """What the instances of a group have in common with the one that is forecast."""

    ALL = "all"
    HOUR = "hour"
    WEEKDAY = "weekday and hour"
    RECENT = "recent"


Groups: TypeAlias = dict[Group, tuple[datetime, ...]]
"""The nominal times of each group, newest first."""


def decide_groups(sequence: InstanceSequence, nominal_time: datetime, before: datetime) -> Groups:
    """Return the groups of an instance, of instances before a time: the last 60, as many at the same hour of the day,
    and of the same weekday and hour, in the time zone of the sequence. A group that the frequency makes equal to a
    wider one is left out. At most 60 days and 60 weeks are looked at.
    """
    indices = sequence.clip(range(max(0, sequence.index_at_or_after(before))))
    last = [sequence.at(index) for index in indices[-MOST:][::-1]]
    groups: Groups = {Group.ALL: tuple(last)}
    step = sequence.frequency.as_duration()
    if step < _DAY:
        groups[Group.HOUR] = tuple(_iter_same(sequence, nominal_time, before, _DAY))
    if step < _WEEK:
        groups[Group.WEEKDAY] = tuple(_iter_same(sequence, nominal_time, before, _WEEK))
    groups[Group.RECENT] = tuple(last[:RECENT])
    return groups


def _iter_same(
    sequence: InstanceSequence, nominal_time: datetime, before: datetime, step: timedelta
) -> Iterator[datetime]:
    """Yield the instances in the same hour of the wall clock, so many steps back, newest first."""
    zone = sequence.timezone
    wall = nominal_time.astimezone(zone).replace(minute=0, second=0, microsecond=0, tzinfo=None)
    found = 0
    for number in range(1, MOST + 1):
        hour = (wall - step * number).replace(tzinfo=zone)
        indices = sequence.indices_between(hour.astimezone(UTC), hour.astimezone(UTC) + _HOUR)
        for index in reversed(indices):
            time = sequence.at(index)
            if time < before and time.astimezone(zone).hour == wall.hour:  # else the clock leaps it
                yield time
                found += 1
            if found == MOST:
                return
        if hour < sequence.start:
            return


_E = feed_events.c
_F = feed_instances.c
_P = process_instances.c


class InstanceDuration(NamedTuple):
    """When an instance of a process was created, became ready, first began and first succeeded; None if it has not.

    `ready_at` is None too if a later attempt has overwritten it.
    """

    status: ProcessInstanceStatus
    created_at: datetime | None
    ready_at: datetime | None
    started_at: datetime | None
    succeeded_at: datetime | None


class InstanceDurations(TableStore):
    """The durations of instances as one transaction sees them."""

    def first_events(self, feeds: Collection[Key]) -> dict[Key, datetime]:
        """Return when the first event of each of some feeds on a cluster was recorded; those without any are left
        out.
        """
        wanted = key_rows(self._dialect, ("feed", "cluster"))
        is_of_feed = (_E.feed == wanted.c.feed, _E.cluster == wanted.c.cluster)
        first = select(_E.recorded_at).where(*is_of_feed).order_by(_E.seq).limit(1).correlate(wanted)
        statement = select(wanted.c.feed, wanted.c.cluster, first.scalar_subquery())
        found = self._connection.execute(statement, {KEY_ROWS: render_rows(feeds)}) if feeds else ()
        return {(feed, cluster): at for feed, cluster, at in found if at is not None}

    def arrivals(self, keys: Collection[tuple[str, str, datetime]]) -> dict[FeedKey, datetime]:
        """Return when instances of feeds first came, whatever became of them; left out if they never did.

        One that came without data came when that was recorded.
        """
        if not keys:
            return {}
        wanted = key_rows(self._dialect, FeedKey._fields)
        is_it = and_(*(_E[name] == wanted.c[name] for name in FeedKey._fields), _E.kind.in_(sorted(ARRIVING)))
        key = (_E.feed, _E.cluster, _E.nominal_time)
        came = select(*key, func.min(_E.recorded_at)).join_from(wanted, feed_events, is_it).group_by(*key)
        rows = self._connection.execute(came, {KEY_ROWS: render_rows(keys)})
        found = {FeedKey(*each): at for *each, at in rows}
        columns = (_F.feed, _F.cluster, _F.nominal_time, _F.updated_at)
        is_empty = _F.status == FeedInstanceStatus.EMPTY
        for *each, at in select_keys(self._connection, feed_instances, FeedKey._fields, columns, keys, is_empty):
            found.setdefault(FeedKey(*each), at)
        return found

    def of_processes(self, keys: Collection[tuple[str, str, datetime]]) -> dict[ProcessKey, InstanceDuration]:
        """Return the durations of instances of processes; those that were never created are left out."""
        attempted = SlaMisses(self._connection).starts(keys)
        columns = (_P.process, _P.cluster, _P.nominal_time, _P.status, _P.materialized_at, _P.ready_at)
        found = {}
        rows = select_keys(self._connection, process_instances, ProcessKey._fields, columns, keys)
        for process, cluster, time, status, created_at, ready_at in rows:
            each = ProcessKey(process, cluster, time)
            started_at, succeeded_at = attempted.get(each, (None, None))
            is_first = ready_at is not None and (started_at is None or ready_at <= started_at)
            found[each] = InstanceDuration(status, created_at, ready_at if is_first else None, started_at, succeeded_at)
        return found


_IN_WORDS = {
    Group.HOUR: "at the same hour",
    Group.WEEKDAY: "on the same weekday at the same hour",
    Group.RECENT: "among the last few",
}
_READY = frozenset({ProcessInstanceStatus.READY, ProcessInstanceStatus.SUSPENDED})
_NOT_READY = frozenset({ProcessInstanceStatus.WAITING, ProcessInstanceStatus.TIMEDOUT})


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """The lengths of earlier waits in seconds, by group; `ENDLESS` those that have not ended."""

    by_group: Mapping[Group, Sequence[float]]

    @property
    def count(self) -> int:
        """How many earlier ones there are."""
        return len(self.by_group[Group.ALL])

    def outlook(self, waited: timedelta | None) -> Outlook:
        """Return what is left of a wait; of one that has not begun, with None."""
        return Outlook.of_wait(self.by_group.values(), None if waited is None else waited.total_seconds())

    def stuck(self) -> Outlook:
        """Return the outlook of what does not go on by itself: as if none of the earlier ones had ended."""
        return Outlook.of_wait([[ENDLESS] * self.count], None)

    def compare(self, waited: timedelta, limit: timedelta) -> str:
        """Return how many waits were as long, and how many of them longer than a limit, in words."""
        late, most = waited.total_seconds(), limit.total_seconds()
        as_late = {group: [each for each in found if each > late] for group, found in self.by_group.items()}
        if not as_late[Group.ALL]:
            return f"none of the {self.count} earlier ones was as late as this one"
        missed = {group: sum(each > most for each in found) for group, found in as_late.items()}
        which = "that were as late as this one" if late > 0 else "earlier ones"
        parts = [
            f"{missed[group]} of {len(as_late[group])} {words}"
            for group, words in _IN_WORDS.items()
            if as_late.get(group)
        ]
        more = f", {', '.join(parts)}" if parts else ""
        return f"{missed[Group.ALL]} of the {len(as_late[Group.ALL])} {which} missed{more}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _ProcessWaits:
    """The waits of earlier instances of a process: for their inputs, in the queue, and for their work."""

    inputs: Waits
    queue: Waits
    work: Waits
    count: int


def arrival_waits(groups: Groups, since: datetime, arrivals: Mapping[datetime, datetime]) -> Waits:
    """Return how late earlier instances of a feed came, from when they did; those before `since` tell nothing."""
    return Waits(
        by_group={
            group: [
                max(0.0, (arrivals[time] - time).total_seconds()) if time in arrivals else ENDLESS
                for time in times
                if time >= since
            ]
            for group, times in groups.items()
        }
    )


def process_waits(groups: Groups, limit: timedelta, durations: Mapping[datetime, InstanceDuration]) -> _ProcessWaits:
    """Return the waits of earlier instances of a process.

    Skipped instances tell nothing, nor do those that were created after their own deadline: they catch up.
    """
    counted = {
        time: duration
        for time, duration in durations.items()
        if duration.status is not ProcessInstanceStatus.SKIPPED
        and duration.created_at is not None
        and duration.created_at <= time + limit
    }
    inputs: dict[Group, list[float]] = {}
    queue: dict[Group, list[float]] = {}
    work: dict[Group, list[float]] = {}
    for group, times in groups.items():
        found = [(time, counted[time]) for time in times if time in counted]
        inputs[group] = [each for time, duration in found if (each := _for_inputs(time, duration)) is not None]
        queue[group] = [each for _, duration in found if (each := _in_queue(duration)) is not None]
        work[group] = [each for _, duration in found if (each := _at_work(duration)) is not None]
    count = sum(time in counted for time in groups[Group.ALL])
    return _ProcessWaits(
        inputs=Waits(by_group=inputs), queue=Waits(by_group=queue), work=Waits(by_group=work), count=count
    )


def _for_inputs(time: datetime, duration: InstanceDuration) -> float | None:
    if duration.ready_at is not None:
        return max(0.0, (duration.ready_at - time).total_seconds())
    return ENDLESS if duration.started_at is None and duration.status in _NOT_READY else None


def _in_queue(duration: InstanceDuration) -> float | None:
    if duration.ready_at is None:
        return None
    if duration.started_at is not None:
        return (duration.started_at - duration.ready_at).total_seconds()
    return ENDLESS if duration.status in _READY else None


def _at_work(duration: InstanceDuration) -> float | None:
    if duration.started_at is None:
        return None
    return ENDLESS if duration.succeeded_at is None else (duration.succeeded_at - duration.started_at).total_seconds()


PROCESSES_UP = 3
"""How many processes up the chain goes."""
BRANCHES = 6
"""An instance that waits for more ends the chain: what it waits for is as late as earlier ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenDeadline:
    """A deadline of an instance of a feed or process on a cluster that is still to come."""

    kind: Kind
    name: str
    cluster: str
    nominal_time: NominalTime
    level: SlaLevel
    due_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """The expected remaining waits of an instance: the one that it is in, and those that follow. `earlier` instances
    were counted; `reason` says what was found. Without enough history there is no outlook.
    """

    now: Outlook | None
    following: Outlook | None = None
    earlier: int
    reason: str

    @property
    def outlook(self) -> Outlook | None:
        """When all waits have passed."""
        if self.now is None or self.following is None:
            return self.now
        return self.now.then(self.following)

    def share_after(self, seconds: float) -> float | None:
        """Return the share in which it takes longer than so many seconds."""
        if self.now is None or self.following is None:
            return None if self.now is None else self.now.share_after(seconds)
        return self.now.share_after_both(self.following, seconds)


def _too_few(earlier: int) -> Chain:
    return Chain(now=None, earlier=earlier, reason="not enough history")


_Reading: TypeAlias = Generator[None, None, _V]
"""Reads a value; at each `yield` it waits until what has been asked for is known."""


@dataclass(slots=True)
class _Known(Generic[_K, _V]):
    """What is known by key. `answer` reads all keys that have been asked for since, in a few statements."""

    read: Callable[[Collection[_K]], Mapping[_K, _V]]
    _known: dict[_K, _V | None] = field(default_factory=dict)
    _wanted: set[_K] = field(default_factory=set)

    def ask(self, keys: set[_K]) -> _Reading[dict[_K, _V]]:
        """Return what there is of some keys."""
        if new := keys - self._known.keys():
            self._wanted |= new
            yield
        return {key: value for key in keys if (value := self._known[key]) is not None}

    def answer(self) -> None:
        found = self.read(self._wanted)
        self._known.update((key, found.get(key)) for key in self._wanted)
        self._wanted.clear()


class ChainReader:
    """Reads chains in one transaction, as of a moment; what it has read it does not ask again."""

    def __init__(self, *, connection: Connection, timeline: ReleaseTimeline, as_of: datetime) -> None:
        self.connection, self.timeline, self.as_of = connection, timeline, as_of
        durations = InstanceDurations(connection)
        self._first_events = _Known(durations.first_events)
        self._arrivals = _Known(durations.arrivals)
        self._durations = _Known(durations.of_processes)
        self._rows = _Known(ProcessInstances(connection).get_many)
        self._states = _Known(lambda keys: read_states(self.connection, self.timeline, keys, self.as_of))
        self._feeds: dict[tuple[FeedKey, datetime, int], Chain | None] = {}  # None while it is being read
        self._processes: dict[tuple[ProcessKey, datetime, SlaLevel, int], Chain | None] = {}

    def read(self, deadlines: Sequence[OpenDeadline]) -> list[Chain]:
        """Return what the instance of each deadline waits for."""
        found: dict[OpenDeadline, Chain] = {}
        reading = [self._of_deadline(deadline, found) for deadline in deadlines]
        while reading := [each for each in reading if next(each, False) is None]:
            for known in (self._first_events, self._arrivals, self._durations, self._rows, self._states):
                known.answer()
        return [found[deadline] for deadline in deadlines]

    def _of_deadline(self, deadline: OpenDeadline, found: dict[OpenDeadline, Chain]) -> _Reading[None]:
        key, time, due_at = (deadline.name, deadline.cluster), deadline.nominal_time, deadline.due_at
        if deadline.kind is Kind.FEED:
            plan = self.timeline.plan
            found[deadline] = yield from self._of_feed(plan.feeds[key], plan, time, due_at, PROCESSES_UP)
        else:
            found[deadline] = yield from self._of_process(key, time, due_at, deadline.level, PROCESSES_UP)

    def _of_feed(self, record: FeedRecord, plan: Plan, time: datetime, due_at: datetime, up: int) -> _Reading[Chain]:
        """Return when an instance of a feed comes: with the process that makes it, else as late as earlier ones."""
        key = (FeedKey(*record.key, time), due_at, up)
        if key not in self._feeds:
            self._feeds[key] = None
            made = (yield from self._of_maker(record, plan, time, due_at, up)) if up else None
            self._feeds[key] = made or (yield from self._of_arrival(record, time, due_at))
        while (chain := self._feeds[key]) is None:
            yield
        return chain

    def _of_maker(
        self, record: FeedRecord, plan: Plan, time: datetime, due_at: datetime, up: int
    ) -> _Reading[Chain | None]:
        """Return when the process ends that makes an instance; None if it has ended, or none is known well enough."""
        for edge in record.outputs_of:
            if edge.quarantine_of is None and edge.process_key in plan.processes:
                for made_at in plan.writer_times(edge, time)[:1]:
                    chain = yield from self._of_process(edge.process_key, made_at, due_at, SlaLevel.HIGH, up - 1)
                    if chain.now is not None:
                        what = f"process {edge.process} {render_datetime(made_at)}"
                        return replace(chain, reason=f"{what} makes it, which {chain.reason}")
        return None

    def _of_arrival(self, record: FeedRecord, time: datetime, due_at: datetime) -> _Reading[Chain]:
        since = (yield from self._first_events.ask({record.key})).get(record.key)
        if since is None or not record.is_expected:
            return _too_few(0)
        limit, waited = due_at - time, self.as_of - time
        groups = decide_groups(record.sequence, time, self.as_of - limit)
        keys = {FeedKey(*record.key, each) for times in groups.values() for each in times}
        found = yield from self._arrivals.ask(keys)
        waits = arrival_waits(groups, since, {key.nominal_time: at for key, at in found.items()})
        if waits.count < FEWEST:
            return _too_few(waits.count)
        return Chain(now=waits.outlook(waited), earlier=waits.count, reason=waits.compare(waited, limit))

    def _of_process(self, key: Key, time: datetime, due_at: datetime, level: SlaLevel, up: int) -> _Reading[Chain]:
        """Return when an instance of a process first begins (LOW), or succeeds (HIGH)."""
        found = (ProcessKey(*key, time), due_at, level, up)
        if found not in self._processes:
            self._processes[found] = None
            self._processes[found] = yield from self._read_process(key, time, due_at, level, up)
        while (chain := self._processes[found]) is None:
            yield
        return chain

    def _read_process(self, key: Key, time: datetime, due_at: datetime, level: SlaLevel, up: int) -> _Reading[Chain]:
        active = self.timeline.find(self.connection, key, time)
        if active is None or not active.record.is_enumerated:
            return _too_few(0)
        limit = due_at - time
        groups = decide_groups(active.record.sequence, time, self.as_of - limit)
        instance = ProcessKey(*key, time)
        keys = {ProcessKey(*key, each) for times in groups.values() for each in times}
        durations = yield from self._durations.ask({*keys, instance})
        waits = process_waits(groups, limit, {each.nominal_time: duration for each, duration in durations.items()})
        if waits.count < FEWEST:
            return _too_few(waits.count)
        row = (yield from self._rows.ask({instance})).get(instance)
        started_at = durations[instance].started_at if instance in durations else None
        queue, work = waits.queue.outlook(None), waits.work.outlook(None)
        to_end = level is SlaLevel.HIGH
        if row is not None and _is_over(row):
            return Chain(now=waits.work.stuck(), earlier=waits.count, reason=f"is {row.status} and is not retried")
        if started_at is not None:
            left = waits.work.outlook(self.as_of - started_at)
            reason = f"has been at work for {_in_words(self.as_of - started_at)} and usually ends {_within(left)}"
            return Chain(now=left, earlier=waits.count, reason=reason)
        if row is not None and row.status is not ProcessInstanceStatus.WAITING and row.ready_at is not None:
            left = waits.queue.outlook(self.as_of - row.ready_at)
            reason = f"has been ready for {_in_words(self.as_of - row.ready_at)} and usually begins {_within(left)}"
            following = work if to_end else None
        else:
            left, reason = yield from self._for_inputs(active, time, due_at, waits.inputs, up)
            following = queue.then(work) if to_end else queue
        if to_end:
            reason += f"; then usually {_within(work, '')} of work"
        return Chain(now=left, following=following, earlier=waits.count, reason=reason)

    def _for_inputs(
        self, active: ActiveRelease, time: datetime, due_at: datetime, own: Waits, up: int
    ) -> _Reading[tuple[Outlook, str]]:
        """Return when the inputs of an instance are there, by those that are missing; by earlier instances if these say
        nothing.
        """
        record, plan = active.record, active.plan
        created = Outlook.certain(max(0.0, (time + record.delay - self.as_of).total_seconds()))
        instance = ProcessKey(*record.key, time)
        closed = closed_gates((yield from self._states.ask({instance}))[instance])
        feeds = {state.edge.feed_key: plan.feeds[state.edge.feed_key] for state in closed}
        wanted = [(state.edge.feed_key, time) for state in closed for time in _decisive(state)]
        further = up if len(wanted) <= BRANCHES else 0
        known: list[tuple[Key, datetime, Outlook]] = []
        for key, missing in wanted:
            chain = yield from self._of_feed(feeds[key], plan, missing, due_at, further)
            if chain.outlook is not None:
                known.append((key, missing, chain.outlook))
        if len(known) < len(wanted) or any(state.expected is None for state in closed):
            left = own.outlook(self.as_of - time)
            return left, f"waits for {_names(key for key, _ in feeds)}; its inputs are usually there {_within(left)}"
        if not known:
            return created, "has its inputs"
        budget = (due_at - self.as_of).total_seconds()
        (name, _), missing, last = max(known, key=lambda each: each[2].share_after(budget))
        reason = f"waits for {name} {render_datetime(missing)}, which usually comes {_within(last)}"
        return reduce(Outlook.or_later, (left for *_, left in known), created), reason


def _decisive(state: InputState) -> tuple[datetime, ...]:
    """Return the oldest and the newest of the missing instances that an input needs."""
    needed = len(state.missing) - (state.edge.missing_at_most or 0)
    if state.edge.at_least is not None:
        needed = state.edge.at_least - len(state.present)
    missing = state.missing[: max(needed, 0)]
    return missing if len(missing) <= 2 else (missing[0], missing[-1])


def _is_over(row: ProcessInstance) -> bool:
    """Return whether an instance has failed for good: nothing but a person lets it go on."""
    match row.status:
        case ProcessInstanceStatus.KILLED:
            return True
        case ProcessInstanceStatus.FAILED | ProcessInstanceStatus.TIMEDOUT:
            return row.retry_at == dates.NEVER
        case _:
            return False


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(set(names)))


def _within(left: Outlook, word: str = "in ") -> str:
    return "never" if left.median == ENDLESS else f"{word}{_in_words(timedelta(seconds=left.median))}"


def _in_words(duration: timedelta) -> str:
    return str(timedelta(seconds=round(duration.total_seconds())))
