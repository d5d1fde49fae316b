"""Remove what old runs have left behind: their captured logs, messages that everybody has been told, and what the state
has of long ago and nobody asks for: the paths of ended sweeps, the audit, and of an instance that was evicted its
events, and the attempts that published nothing that is there.

How long something is kept depends on the frequency of the process. Runs, materializations and instances stay: only what
a run has printed goes, and much later what `history` names. Each attempt is read once for each unit, in the order of
ends: the cost follows what has ended since, not history. The log is followed with a position of its own, never past a
reader: each event is looked at once. A step is one transaction; after one that was broken off the next goes on.

Differs from Falcon: the logs of a process whose instances come as they come are kept like those of daily ones.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import takewhile
from typing import assert_never

from sqlalchemy import Connection

from feed_assets.alerts.delivery.store import ReceiverStates
from feed_assets.clock import TimeBudget
from feed_assets.context.audit_chain import remove_old
from feed_assets.context.tick import Tick
from feed_assets.errors import SettingsError
from feed_assets.log.audit import Audit
from feed_assets.log.cursors import Cursors
from feed_assets.log.events import EventLog
from feed_assets.log.instances.attempts import Attempts, EndedAttempt, RunAttempt
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.messages.outbox import Outbox
from feed_assets.log.records import FeedEvent, FeedEventKind, FeedInstanceStatus, FeedKey
from feed_assets.log.removals.chunks import find_old_chunks, remove_chunks
from feed_assets.log.removals.store import Sweeps
from feed_assets.log.run_names import is_command
from feed_assets.masking import get_logger
from feed_assets.plan.edges import Key
from feed_assets.plan.records import Plan
from feed_assets.retention.rules.clock_witness import find_clock_obstacle
from feed_assets.setting_sections import NO_SECRET, AuditSettings, CleanupSettings
from feed_assets.sql.database import Database, lock_log
from feed_assets.timing.sequence import Frequency, Unit, parse_frequency
from feed_assets.triggers.apply_triggers import routed_cursor
from feed_assets.triggers.queue.inputs import TriggerInputs

EVENTS_A_STEP = 2_000
_POSITION = "cleanup/events"


def is_history_due(connection: Connection, before: datetime, as_of: datetime) -> bool:
    """Return whether something is older than a time; a few queries."""
    first = EventLog(connection).heads(_history_position(connection), 1, as_of)
    is_old = bool(first) and first[0].recorded_at < before
    return is_old or bool(find_old_chunks(connection, before, 1) or Audit(connection).find_old_end(before, as_of, 1))


def find_readers(connection: Connection, told: Mapping[str, int]) -> dict[str, int]:
    """Return how far each cluster, in the plan or not, has read the log: by gates and queues, and Dagster's `told`."""
    found = dict(told)
    for prefix in ("readiness/", routed_cursor("")):
        for cluster, seq in Cursors(connection).with_prefix(prefix).items():
            if "/" not in cluster:
                found[cluster] = min(int(seq), found.get(cluster, int(seq)))
    return found


def count_evicted(connection: Connection, before: datetime, as_of: datetime) -> int:
    """Return how many evictions before a time the next clean-ups will look at."""
    return EventLog(connection).count_kind(FeedEventKind.EVICTED, _history_position(connection), before, as_of)


def remove_past(
    connection: Connection, readers: Mapping[str, int], before: datetime, as_of: datetime
) -> tuple[int, bool]:
    """Remove events and attempts of instances that were evicted before a time and are still; return of how many, and
    whether all were looked at.

    Stays: the last attempt, the last that published and those of whose outputs an event stays; events with an
    idempotency key of others, those of feeds that queues read, of clusters without a reader, and at which a reader is;
    and whatever has a trash or is in an archive. `readers` are how far each cluster has read the log, in which it may
    read events of others; none behind the last is looked at.
    """
    lock_log(connection)
    log, after = EventLog(connection), _history_position(connection)
    heads = log.heads(after, EVENTS_A_STEP, as_of)
    read = min(readers.values(), default=log.last_seq())
    passed = list(takewhile(lambda each: each.recorded_at < before and each.seq <= read, heads))
    ends = log.of_numbers(each.seq for each in passed if each.kind is FeedEventKind.EVICTED).values()
    gone = _find_gone(connection, [each for each in ends if each.cluster in readers])
    events, positions = log.for_instances(gone), {log.last_seq(), *readers.values()}
    old = [
        event
        for key, found in events.items()
        for event in found
        if event.seq <= gone[key]
        and event.seq not in positions
        and (event.kind is FeedEventKind.RESTORED or not event.idempotency_key)
    ]
    log.remove(event.seq for event in old)
    Attempts(connection).remove_past(old)
    if passed:
        Cursors(connection).put(_POSITION, str(passed[-1].seq))
    return len({event.key for event in old}), len(passed) < EVENTS_A_STEP


def _find_gone(connection: Connection, ends: Collection[FeedEvent]) -> dict[FeedKey, int]:
    """Return the instances whose data are gone for good, by evictions after which nothing came, with their numbers."""
    last = {event.key: event for event in ends if event.is_of_data and "archive" not in event.payload}
    rows = FeedInstances(connection).get_many(last)
    sweeps = Sweeps(connection).find_many({str(event.payload.get("sweep")) for event in last.values()})
    queued = TriggerInputs(connection).feeds()
    return {
        key: event.seq
        for key, event in last.items()
        if (row := rows.get(key)) is not None
        and (row.status, row.event_seq) == (FeedInstanceStatus.EVICTED, event.seq)
        and key[:2] not in queued
        and ((sweep := sweeps.get(str(event.payload.get("sweep")))) is None or not sweep.has_trash)
    }


def _history_position(connection: Connection) -> int:
    return int(Cursors(connection).get(_POSITION) or 0)


_logger = get_logger(__name__)

PERIOD = timedelta(days=1)
"""The time between two clean-ups of a cluster by its schedule."""
ATTEMPTS_A_STEP = 500
MESSAGES_A_STEP = 5_000
CHUNKS_A_STEP = 5
MOST_COUNTED = 1_000_000
"""How many parts of sweeps, and how many entries of the audit, a dry run counts."""
SECONDS_A_LOOK = 0.2
"""So long a dry run looks for the logs of each unit: Dagster is asked run by run."""
UNITS = (Unit.MINUTES, Unit.HOURS, Unit.DAYS, Unit.MONTHS)
"""The units that have a limit of their own."""

OnProgress = Callable[[str, int, int], None]


class Leftover(StrEnum):
    """What is removed."""

    CAPTURED_LOGS = "captured logs"
    RETENTION_LOGS = "captured logs of retention"
    MESSAGES = "messages"
    SWEEP_ITEMS = "paths of ended sweeps"
    AUDIT = "audit"
    EVENTS = "events and attempts of evicted instances"


COUNTED = {
    Leftover.MESSAGES: "message",
    Leftover.SWEEP_ITEMS: "path",
    Leftover.AUDIT: "entry",
    Leftover.EVENTS: "instance",
}
"""What is counted of each; of the others, runs."""


class CapturedLogs(ABC):
    """What runs have printed, as Dagster keeps it."""

    @abstractmethod
    def find(self, runs: Mapping[str, Collection[Key]]) -> list[str]:
        """Return those of some runs that have ended, have captured logs, and consist of the given processes alone."""

    @abstractmethod
    def find_retention(self, cluster: str, after: datetime | None, before: datetime, limit: int) -> "RetentionRuns":
        """Return at most `limit` ended runs of a cluster's retention job that were created between two moments of real
        time, with captured logs, the oldest first.
        """

    @abstractmethod
    def remove(self, run_id: str) -> None:
        """Remove the captured logs of a run, and nothing else; do nothing if there are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRuns:
    """Runs of a retention job with captured logs, and until when runs were looked at; None if there were none."""

    run_ids: tuple[str, ...]
    until: datetime | None
    is_last: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanedUp:
    """What was removed, or would be: `count` of what ended before `before`; see `COUNTED`.

    `unit` is that of the processes, `limit` how long it is kept. `cluster` is None for what belongs to none. If it is
    not `is_complete`, the next clean-up goes on.
    """

    leftover: Leftover
    cluster: str | None = None
    unit: Unit | None = None
    limit: str
    before: datetime
    count: int
    is_complete: bool = True

    @property
    def amount(self) -> str:
        """How much, for people."""
        return f"{self.count}" if self.is_complete else f"{self.count} or more"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepingTimes:
    """How long the logs of processes are kept, by the unit of their frequency."""

    by_unit: Mapping[Unit, Frequency]
    history: Frequency

    @classmethod
    def of(cls, settings: CleanupSettings) -> "KeepingTimes":
        """Return the times that the settings say."""
        texts = (settings.minutes, settings.hours, settings.days, settings.months)
        by_unit = {unit: parse_frequency(text) for unit, text in zip(UNITS, texts, strict=True)}
        return cls(by_unit=by_unit, history=parse_frequency(settings.history))

    def cutoff(self, unit: Unit, as_of: datetime) -> datetime:
        """Return the moment before which something has ended that goes now; a month has 31 days."""
        return as_of - self.by_unit[unit].as_duration()


def find_unit(plan: Plan, key: Key) -> Unit:
    """Return the unit that decides how long the logs of a process are kept; one that is gone counts as monthly."""
    record = plan.processes.get(key)
    if record is None:
        return Unit.MONTHS
    if not record.is_enumerated:
        return Unit.DAYS
    match record.sequence.frequency.unit:
        case Unit.SECONDS | Unit.MINUTES:
            return Unit.MINUTES
        case (Unit.HOURS | Unit.DAYS | Unit.MONTHS) as unit:
            return unit
        case unit:
            assert_never(unit)


def decide_removable(
    plan: Plan, runs: Mapping[str, Sequence[RunAttempt]], times: KeepingTimes, as_of: datetime
) -> dict[str, list[Key]]:
    """Return the runs all of whose attempts ended long enough ago, with their processes."""

    def is_old(attempt: RunAttempt) -> bool:
        unit = find_unit(plan, (attempt.process, attempt.cluster))
        return attempt.ended_at is not None and attempt.ended_at <= times.cutoff(unit, as_of)

    return {
        run_id: [(attempt.process, attempt.cluster) for attempt in attempts]
        for run_id, attempts in runs.items()
        if all(map(is_old, attempts))
    }


def is_cleanup_due(connection: Connection, cluster: str, times: KeepingTimes, as_of: datetime) -> bool:
    """Return whether the last clean-up was a day ago, and something has become old enough since; a few queries."""
    if _was_begun(connection, cluster, as_of):
        return False
    return is_history_due(connection, as_of - times.history.as_duration(), as_of) or any(
        Attempts(connection).ended(cluster, _position(connection, cluster, unit), times.cutoff(unit, as_of), limit=1)
        for unit in UNITS
    )


def begin_cleanup(connection: Connection, cluster: str, as_of: datetime) -> bool:
    """Note that the clean-up of a day begins; return False if one has begun less than a day ago."""
    if _was_begun(connection, cluster, as_of):
        return False
    Cursors(connection).put(f"cleanup/{cluster}", as_of.isoformat())
    return True


def apply_cleanup(
    tick: Tick,
    times: KeepingTimes,
    logs: CapturedLogs,
    *,
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
) -> list[CleanedUp]:
    """Remove what a cluster's old runs have left, until the budget is spent; return what was removed, by unit.

    A repeat goes on where this ended, whatever happens. With `dry_run`, nothing is removed, and no more is counted than
    a moment allows.

    Raises:
        Exception: whatever the manager of captured logs raises; what was removed before is not tried again.
    """
    cleanup = _Cleanup(tick, times, logs, on_progress, _dry_run=dry_run)
    return [*map(cleanup.clean_processes, UNITS), cleanup.clean_retention()]


def apply_state_cleanup(
    database: Database,
    told: Mapping[str, int],
    times: KeepingTimes,
    as_of: datetime,
    budget: TimeBudget,
    *,
    audit: AuditSettings = NO_SECRET,
    dry_run: bool = False,
) -> list[CleanedUp]:
    """Remove the messages that everybody was told, once they are as old as the logs of daily processes become; and by a
    believed clock what is older than `history` and nobody needs. `told` is how far Dagster was told. `audit` has the
    secrets that chain the audit; while they cannot be read, its rows stay.
    """
    before, daily = as_of - times.history.as_duration(), times.cutoff(Unit.DAYS, as_of)

    def remove_messages(connection: Connection) -> tuple[int, bool]:
        removed = Outbox(connection).remove_old(daily, ReceiverStates(connection).told_up_to(), MESSAGES_A_STEP)
        return removed, removed < MESSAGES_A_STEP

    def remove_items(connection: Connection) -> tuple[int, bool]:
        chunks = find_old_chunks(connection, before, CHUNKS_A_STEP)
        remove_chunks(connection, chunks)
        return sum(chunks.values()), len(chunks) < CHUNKS_A_STEP

    def remove_audit(connection: Connection, at_most: int = MESSAGES_A_STEP) -> tuple[int, bool]:
        try:
            removed = remove_old(connection, audit, before, as_of, at_most, dry_run=dry_run)
        except SettingsError as exc:
            _logger.warning("no row of the audit is removed: %s", exc)
            return 0, True
        return removed, removed < at_most

    steps: dict[Leftover, tuple[Callable[[Connection], int], Callable[[Connection], tuple[int, bool]]]] = {
        Leftover.MESSAGES: (lambda c: Outbox(c).count_old(daily, ReceiverStates(c).told_up_to()), remove_messages),
        Leftover.SWEEP_ITEMS: (lambda c: sum(find_old_chunks(c, before, MOST_COUNTED).values()), remove_items),
        Leftover.AUDIT: (lambda c: remove_audit(c, MOST_COUNTED)[0], remove_audit),
        Leftover.EVENTS: (
            lambda c: count_evicted(c, before, as_of),
            lambda c: remove_past(c, find_readers(c, told), before, as_of),
        ),
    }
    with database.read() as connection:
        obstacle = find_clock_obstacle(connection, as_of)
    if obstacle is not None:
        _logger.warning("nothing of long ago is removed: %s", obstacle)
    done = []
    for each, (count_all, remove) in steps.items():
        count, is_complete, is_message = 0, False, each is Leftover.MESSAGES
        is_believed = is_message or obstacle is None
        if dry_run and is_believed:
            with database.read() as connection:
                count, is_complete = count_all(connection), True
        while is_believed and not is_complete and not budget.is_spent:
            with database.begin() as connection:
                removed, is_complete = remove(connection)
            count += removed
        kept, end = (times.by_unit[Unit.DAYS], daily) if is_message else (times.history, before)
        done.append(CleanedUp(leftover=each, limit=kept.render(), before=end, count=count, is_complete=is_complete))
    return done


@dataclass(frozen=True, slots=True)
class _Cleanup:
    """The clean-up of one cluster."""

    _tick: Tick
    _times: KeepingTimes
    _logs: CapturedLogs
    _on_progress: OnProgress | None
    _dry_run: bool
    _counted: set[str] = field(default_factory=set)

    def clean_processes(self, unit: Unit) -> CleanedUp:
        """Remove the captured logs of the runs of processes with a frequency in this unit."""
        before, is_complete = self._times.cutoff(unit, self._tick.as_of), False
        with self._tick.database.read() as connection:
            position = _position(connection, self._tick.cluster, unit)
        count, budget = 0, self._open_budget()
        while not is_complete and not budget.is_spent:
            with self._tick.database.read() as connection:
                ended = Attempts(connection).ended(self._tick.cluster, position, before, ATTEMPTS_A_STEP)
                runs = Attempts(connection).of_runs(self._runs_of(ended, unit))
            count += self._remove(
                self._logs.find(decide_removable(self._tick.plan, runs, self._times, self._tick.as_of))
            )
            is_complete = len(ended) < ATTEMPTS_A_STEP
            if ended:
                position = ended[-1]
                self._put(_cursor(self._tick.cluster, unit), _render(position))
        return self._cleaned(Leftover.CAPTURED_LOGS, unit, before, count, is_complete=is_complete)

    def clean_retention(self) -> CleanedUp:
        """Remove the captured logs of the runs of the retention job, which are kept like those of daily processes."""
        name, before = f"cleanup/{self._tick.cluster}/retention", self._times.cutoff(Unit.DAYS, self._tick.real_now)
        with self._tick.database.read() as connection:
            text = Cursors(connection).get(name)
        after, count, is_complete = None if text is None else datetime.fromisoformat(text), 0, False
        budget = self._open_budget()
        while not is_complete and not budget.is_spent:
            found = self._logs.find_retention(self._tick.cluster, after, before, ATTEMPTS_A_STEP)
            count, is_complete = count + self._remove(found.run_ids), found.is_last
            if found.until is not None:
                after = found.until
                self._put(name, after.isoformat())
        return self._cleaned(Leftover.RETENTION_LOGS, Unit.DAYS, before, count, is_complete=is_complete)

    def _open_budget(self) -> TimeBudget:
        return TimeBudget(SECONDS_A_LOOK) if self._dry_run else self._tick.budget

    def _runs_of(self, ended: Iterable[EndedAttempt], unit: Unit) -> set[str]:
        return {
            each.run_id
            for each in ended
            if each.run_id is not None
            and not is_command(each.run_id)
            and find_unit(self._tick.plan, (each.process, self._tick.cluster)) is unit
        }

    def _remove(self, run_ids: Collection[str]) -> int:
        new = [run_id for run_id in run_ids if run_id not in self._counted]
        for number, run_id in enumerate(new, 1):
            if not self._dry_run:
                self._logs.remove(run_id)
            self._counted.add(run_id)
            if self._on_progress is not None:
                self._on_progress(f"captured logs on {self._tick.cluster}", number, len(new))
        return len(new)

    def _put(self, name: str, value: str) -> None:
        if not self._dry_run:
            with self._tick.database.begin() as connection:
                Cursors(connection).put(name, value)

    def _cleaned(self, leftover: Leftover, unit: Unit, before: datetime, count: int, *, is_complete: bool) -> CleanedUp:
        return CleanedUp(
            leftover=leftover,
            cluster=self._tick.cluster,
            unit=unit,
            limit=self._times.by_unit[unit].render(),
            before=before,
            count=count,
            is_complete=is_complete,
        )


def _was_begun(connection: Connection, cluster: str, as_of: datetime) -> bool:
    last = Cursors(connection).get(f"cleanup/{cluster}")
    return last is not None and abs(as_of - datetime.fromisoformat(last)) < PERIOD


def _cursor(cluster: str, unit: Unit) -> str:
    return f"cleanup/{cluster}/{unit.value}"


def _position(connection: Connection, cluster: str, unit: Unit) -> EndedAttempt | None:
    text = Cursors(connection).get(_cursor(cluster, unit))
    if text is None:
        return None
    ended_at, process, nominal_time, attempt = json.loads(text)
    return EndedAttempt(datetime.fromisoformat(ended_at), process, datetime.fromisoformat(nominal_time), attempt, None)


def _render(attempt: EndedAttempt) -> str:
    return json.dumps(
        [attempt.ended_at.isoformat(), attempt.process, attempt.nominal_time.isoformat(), attempt.attempt]
    )
