"""Read arrival, ready, start and success times of past instances, choose those that an instance is compared with
(groups, each narrower than the one before), and tell from their waits one that has not ended.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from sqlalchemy import and_, func, select

from feed_assets.alerts.deadlines.store import SlaMisses
from feed_assets.alerts.forecasting.outlooks import ENDLESS, FEWEST, MOST, RECENT, Outlook
from feed_assets.log.instances.tables import feed_instances, process_instances
from feed_assets.log.records import ARRIVING, FeedInstanceStatus, FeedKey, ProcessInstanceStatus, ProcessKey
from feed_assets.log.tables import feed_events
from feed_assets.sql.rows import KEY_ROWS, TableStore, key_rows, render_rows, select_keyed, select_keys
from feed_assets.timing.sequence import InstanceSequence

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
    last = [sequence.at(index) for index in _last_indices(sequence, before)]
    groups: Groups = {Group.ALL: tuple(last)}
    step = sequence.frequency.as_duration()
    if step < _DAY:
        groups[Group.HOUR] = tuple(_iter_same(sequence, nominal_time, before, _DAY))
    if step < _WEEK:
        groups[Group.WEEKDAY] = tuple(_iter_same(sequence, nominal_time, before, _WEEK))
    groups[Group.RECENT] = tuple(last[:RECENT])
    return groups


def _last_indices(sequence: InstanceSequence, before: datetime) -> range:
    """Return the last indices before a time, newest first."""
    indices = sequence.clip(range(max(0, sequence.index_at_or_after(before))))
    return indices[-MOST:][::-1]


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

    def first_event_at(self, feed: str, cluster: str) -> datetime | None:
        """Return when the first event of a feed on a cluster was recorded; None without any."""
        is_of_feed = (_E.feed == feed, _E.cluster == cluster)
        return self._connection.scalar(select(_E.recorded_at).where(*is_of_feed).order_by(_E.seq).limit(1))

    def arrivals(self, keys: Collection[tuple[str, str, datetime]]) -> dict[FeedKey, datetime]:
        """Return when instances of feeds first came, whatever became of them; left out if they never did.

        One that came without data came when that was recorded.
        """
        if not keys:
            return {}
        parameters = {KEY_ROWS: render_rows(keys)}
        wanted = key_rows(self._dialect, FeedKey._fields)
        is_it = and_(*(_E[name] == wanted.c[name] for name in FeedKey._fields), _E.kind.in_(sorted(ARRIVING)))
        key = (_E.feed, _E.cluster, _E.nominal_time)
        came = select(*key, func.min(_E.recorded_at)).join_from(wanted, feed_events, is_it).group_by(*key)
        found = {FeedKey(*each): at for *each, at in self._connection.execute(came, parameters)}
        columns = (_F.feed, _F.cluster, _F.nominal_time, _F.updated_at)
        empty = select_keyed(self._dialect, feed_instances, FeedKey._fields, columns)
        for *each, at in self._connection.execute(empty.where(_F.status == FeedInstanceStatus.EMPTY), parameters):
            found.setdefault(FeedKey(*each), at)
        return found

    def of_processes(self, keys: Collection[tuple[str, str, datetime]]) -> dict[ProcessKey, InstanceDuration]:
        """Return the durations of instances of processes; those that were never created are left out."""
        if not keys:
            return {}
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

    @property
    def is_enough(self) -> bool:
        """Whether there is enough history."""
        return self.count >= FEWEST

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
class ProcessWaits:
    """The waits of earlier instances of a process: for their inputs, in the queue, and for their work."""

    inputs: Waits
    queue: Waits
    work: Waits
    count: int

    @property
    def is_enough(self) -> bool:
        """Whether there is enough history."""
        return self.count >= FEWEST


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


def process_waits(groups: Groups, limit: timedelta, durations: Mapping[datetime, InstanceDuration]) -> ProcessWaits:
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
    return ProcessWaits(
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
