"""Reconcile the record with the runs: workers that died, requests that were lost, runs that were cancelled; and with a
clock that was set back: what is scheduled for later is planned again, and what only the wrong clock caused is undone.

For a launched instance Dagster's run is the truth. Callers pass its state as plain values. A run is only a means: what
it had not begun is READY when it ends, however it ends. A clock that is set forward has the effect of a stopped daemon
and needs no handling.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import assert_never

from sqlalchemy import Connection

from feed_assets.alerts.forecasting.forecasts import forget_walks
from feed_assets.command_lines import command_line
from feed_assets.context.operation import OperationContext
from feed_assets.context.tick import Tick
from feed_assets.entities.flow_names import declared_by
from feed_assets.instances.arrival.polling import LONGEST_PAUSE
from feed_assets.instances.gates.end_messages import Ended, tell_all_ends
from feed_assets.instances.late.lateness import decide_feed_check, decide_process_check, process_cut_off
from feed_assets.instances.late.store import LateCheck, LateChecks
from feed_assets.log.cursors import Cursors
from feed_assets.log.instances.arrival_polls import ArrivalPolls
from feed_assets.log.instances.attempts import Attempts
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.process_instances import ProcessInstances, UnstartedInstances
from feed_assets.log.leases import Leases, find_held
from feed_assets.log.records import (
    ArrivalPoll,
    Cause,
    ProcessChanges,
    ProcessInstance,
    ProcessInstanceStatus,
    ProcessKey,
    Watermark,
    WatermarkKind,
    describe_cause,
)
from feed_assets.log.run_names import is_command, is_dead_command, is_elsewhere
from feed_assets.log.watermarks import Watermarks
from feed_assets.plan.edges import Key
from feed_assets.plan.records import FeedRecord, ProcessRecord
from feed_assets.releases.timeline import BEGINNING, FOREVER, ReleaseTimeline, note_changed
from feed_assets.sql.database import Database, lock_log
from feed_assets.timing.dates import NEVER

REQUEST_PATIENCE = timedelta(seconds=60)
MOST_DEATHS = 10
"""So many workers in a row may die with an instance; what else has run it before does not count."""

_DIED = ProcessInstanceStatus.FAILED


class RunState(StrEnum):
    """The state of a run, as far as reconciliation needs it."""

    ALIVE = "alive"
    ENDED = "ended"
    CANCELED = "canceled"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """The instances to reconcile: those RUNNING, and those requested at least `REQUEST_PATIENCE` ago."""

    running: tuple[ProcessInstance, ...]
    requested: tuple[ProcessInstance, ...]


def find_launched(database: Database, cluster: str, real_now: datetime) -> Launched:
    """Return the instances of a cluster to reconcile; `real_now` is the real time."""
    with database.read() as connection:
        instances = ProcessInstances(connection)
        return Launched(
            running=tuple(instances.active_with_run(cluster)),
            requested=tuple(instances.requested_before(cluster, real_now - REQUEST_PATIENCE)),
        )


def find_commands(database: Database, launched: Launched, real_now: datetime) -> dict[str, RunState]:
    """Return the states of the commands that work on instances.

    A command is alive while it holds a lease on one of them, unless it was a process of this machine that has ended.
    Of a program elsewhere nobody knows it: it counts as alive until it says how it ended, or somebody kills the batch.
    """
    names = {(row.process, row.cluster, row.nominal_time): row.run_id or "" for row in launched.running}
    commands = {key: name for key, name in names.items() if is_command(name)}
    if not commands:
        return {}
    with database.read() as connection:
        keys = [(f"process/{process}", cluster, time) for process, cluster, time in commands]
        alive = {lease.holder for lease in find_held(connection, keys, real_now) if not is_dead_command(lease.holder)}
    return {
        name: RunState.ALIVE if name in alive or is_elsewhere(name) else RunState.ENDED for name in commands.values()
    }


def release_dead(database: Database, keys: Collection[tuple[str, str, datetime]], real_now: datetime) -> None:
    """Release the leases on some (entity, cluster, nominal time) of commands of this machine that have died."""
    with database.begin() as connection:
        held = find_held(connection, keys, real_now)
        for holder in sorted({lease.holder for lease in held if is_dead_command(lease.holder)}):
            Leases(database).release_all(connection, holder)


def decide_reconciled(
    instance: ProcessInstance, run: RunState, as_of: datetime
) -> tuple[ProcessInstanceStatus, ProcessChanges] | None:
    """Return the expected status and the changes of an instance, given the state of its run; None while the run may go
    on.

    A dead worker is replaced, until ten in a row have died. Who cancels a run kills what it works on; for an instance
    that had not begun it is as if the run had never been.
    """
    is_begun = instance.status is ProcessInstanceStatus.RUNNING
    deaths, cause, detail = instance.deaths + is_begun, instance.cause, instance.cause_detail
    match run:
        case RunState.ALIVE:
            return None
        case RunState.CANCELED if not is_begun:
            status = ProcessInstanceStatus.READY
        case RunState.CANCELED:
            status, deaths, cause, detail = ProcessInstanceStatus.KILLED, 0, Cause.RUN_CANCELLED, None
        case RunState.ENDED | RunState.UNKNOWN if deaths >= MOST_DEATHS:
            detail = f"its worker died {deaths} times in a row, and is not replaced any more"
            status, deaths, cause = ProcessInstanceStatus.FAILED, 0, Cause.WORKERS_LOST
        case RunState.ENDED | RunState.UNKNOWN:
            status, cause, detail = ProcessInstanceStatus.READY, Cause.RUN_LOST, None
        case _:
            assert_never(run)
    changes: ProcessChanges = {"status": status, "deaths": deaths, "cause": cause, "updated_at": as_of}
    changes["cause_detail"] = detail
    if status is ProcessInstanceStatus.READY:
        changes["request_key"] = changes["requested_at"] = None
    else:
        changes["ended_at"] = as_of
    return instance.status, changes


def suspend_command(process: str, cluster: str) -> str:
    """Return the command that stops a process or flow: cancelling its runs does not."""
    owner, name = declared_by(process)
    return command_line("entity", "suspend", owner.value, name, clusters=[cluster])


def apply_reconciliation(
    context: OperationContext,
    launched: Launched,
    by_run: Mapping[str, RunState],
    by_request: Mapping[str, RunState],
) -> Sequence[ProcessKey]:
    """Correct the record, and tell the ends of attempts; return the keys of the changed instances.

    Releases the leases of ended runs, so that nothing waits for their expiry. If such a worker is alive after all, it
    is fenced out. Leaves an instance alone that got another run or request since `launched` was read.
    """
    as_of = context.as_of
    states = [(instance, by_run.get(instance.run_id or "", RunState.UNKNOWN)) for instance in launched.running]
    states += [(item, by_request.get(item.request_key or "", RunState.UNKNOWN)) for item in launched.requested]
    decided = [
        (instance, *decision)
        for instance, state in states
        if (decision := decide_reconciled(instance, state, as_of)) is not None
    ]
    if not decided:
        return ()
    with context.database.begin() as connection:
        lock_log(connection)
        ended = sorted(run_id for run_id, state in by_run.items() if state is not RunState.ALIVE)
        Leases(context.database).release_all(connection, *ended)
        instances, attempts = ProcessInstances(connection), Attempts(connection)
        current = instances.get_many([instance.key for instance, _, _ in decided])
        changed = [
            (instance, changes)
            for instance, status, changes in decided
            if _launch_of(instance) == _launch_of(current[instance.key])
            and instances.transition(instance.key, {status}, **changes)
        ]
        told: list[Ended] = []
        for instance, changes in changed:
            end = ProcessInstanceStatus.KILLED if changes["status"] is ProcessInstanceStatus.KILLED else _DIED
            reason = describe_cause(changes["cause"], changes["cause_detail"])
            attempts.end(instance.key, end, as_of, reason)
            if instance.status is ProcessInstanceStatus.RUNNING:
                is_final = False if changes["status"] is ProcessInstanceStatus.READY else None
                told.append(Ended(row=instance, status=end, error=reason, is_final=is_final))
        tell_all_ends(connection, context.timeline, told, as_of)
        return tuple(instance.key for instance, _ in changed)


def _launch_of(instance: ProcessInstance) -> tuple[int, str | None, str | None]:
    return instance.attempt, instance.run_id, instance.request_key


CHECK_INTERVAL = timedelta(minutes=1)
"""Setbacks smaller than this go unnoticed; nothing is delayed by more than this."""

ROWS_AT_MOST = 100_000
"""Replan at most this many rows of each kind; further rows are only late."""

_CHANGED_BY_TICKS = (
    ProcessInstanceStatus.WAITING,
    ProcessInstanceStatus.READY,
    ProcessInstanceStatus.FAILED,
    ProcessInstanceStatus.TIMEDOUT,
    ProcessInstanceStatus.SKIPPED,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockSetback:
    """The size of a clock setback, and how many instances, polls and late checks it affected.

    `removed` counts the process instances that were created too early; they are removed and created again.
    """

    by: timedelta
    removed: int
    instances: int
    polls: int
    late_checks: int

    def render(self) -> str:
        """Describe the setback in a sentence for people."""
        return (
            f"the clock was set back by {self.by}: {self.removed} process instances are created again; "
            f"{self.instances} others, {self.polls} polls and {self.late_checks} late-data checks are rescheduled"
        )


def decide_poll(poll: ArrivalPoll, as_of: datetime) -> ArrivalPoll | None:
    """Replan a poll made in the future: for now, or for the nominal time if that is later; None if it stays."""
    if poll.polled_at <= as_of:
        return None
    return poll._replace(polled_at=as_of, next_poll_at=max(as_of, poll.nominal_time))


def is_premature(row: ProcessInstance, as_of: datetime) -> bool:
    """Return whether an instance was created in the future and no work on it has begun."""
    is_unstarted = row.attempt == 0 and row.request_key is None and row.status in _CHANGED_BY_TICKS
    return is_unstarted and row.materialized_at is not None and row.materialized_at > as_of


def decide_instance(row: ProcessInstance, as_of: datetime, real_now: datetime) -> ProcessChanges | None:
    """Return the changes to an instance that ticks updated in the future; None if there are none.

    The time that remained until a deadline, retry or notice at the last update remains from now on. The instance
    returns to WAITING if it timed out, or was superseded by a newer one, in the future only.
    """
    requested_at = row.requested_at
    if row.status is ProcessInstanceStatus.READY and requested_at is not None and requested_at > real_now:
        return {"requested_at": real_now, "updated_at": min(row.updated_at, as_of)}
    if row.updated_at <= as_of:
        return None
    advance = row.updated_at - as_of
    match row.status:
        case ProcessInstanceStatus.WAITING:
            return {
                "deadline_at": row.deadline_at and row.deadline_at - advance,
                "notice_at": row.notice_at and row.notice_at - advance,
                "updated_at": as_of,
            }
        case ProcessInstanceStatus.TIMEDOUT if row.deadline_at is not None and row.deadline_at > as_of:
            return _waiting_again(row, as_of)
        case ProcessInstanceStatus.SKIPPED if row.cause is Cause.SUPERSEDED:
            return _waiting_again(row, as_of)
        case ProcessInstanceStatus.FAILED | ProcessInstanceStatus.TIMEDOUT:
            retry_at = row.retry_at
            return {
                "retry_at": retry_at if retry_at in (None, NEVER) else retry_at - advance,
                "notice_at": row.notice_at and min(row.notice_at, as_of),
                "updated_at": as_of,
            }
        case _:
            return None


def _waiting_again(row: ProcessInstance, as_of: datetime) -> ProcessChanges:
    return {
        "status": ProcessInstanceStatus.WAITING,
        "ended_at": None,
        "retry_at": None,
        "cause": None,
        "cause_detail": None,
        "notice_at": row.notice_at and min(row.notice_at, as_of),
        "updated_at": as_of,
    }


def apply_clock(tick: Tick) -> ClockSetback | None:
    """Record the time of a cluster, and replan if the recorded time was later. Called at the beginning of a tick.

    If the clock was not set back, this costs one query, and one row a minute, and returns None.
    """
    with tick.database.read() as connection:
        last_time = _find_last_time(connection, tick.cluster)
    if last_time is not None and last_time <= tick.as_of < last_time + CHECK_INTERVAL:
        return None
    with tick.database.begin() as connection:
        last_time = _find_last_time(connection, tick.cluster)
        Cursors(connection).put(_cursor(tick.cluster), tick.as_of.isoformat())
        if last_time is None or last_time <= tick.as_of:
            return None
        _rejoin_pasts(connection, tick, WatermarkKind.FEED, tick.plan.feeds)
        _rejoin_pasts(connection, tick, WatermarkKind.PROCESS, tick.plan.processes)
        found = _find_changed_by_ticks(connection, tick.cluster)
        removed = _remove_premature(connection, tick.timeline, [row for row in found if is_premature(row, tick.as_of)])
        others = [row for row in found if row.key not in removed]
        return ClockSetback(
            by=last_time - tick.as_of,
            removed=len(removed),
            instances=_update(connection, others, tick.as_of, tick.real_now),
            polls=_move_polls(connection, tick.cluster, last_time, tick.as_of),
            late_checks=_move_agenda(connection, tick.timeline, tick.cluster, tick.as_of),
        )


def _cursor(cluster: str) -> str:
    return f"clock/{cluster}"


def find_last_times(connection: Connection, clusters: Iterable[str]) -> dict[str, datetime]:
    """Return the data's time at the last tick of clusters, to `CHECK_INTERVAL`; left out are those without a tick."""
    names = {_cursor(cluster): cluster for cluster in clusters}
    found = Cursors(connection).get_many(names)
    return {names[name]: datetime.fromisoformat(text) for name, text in found.items()}


def _find_last_time(connection: Connection, cluster: str) -> datetime | None:
    return find_last_times(connection, [cluster]).get(cluster)


def _find_changed_by_ticks(connection: Connection, cluster: str) -> list[ProcessInstance]:
    instances = ProcessInstances(connection)
    return [
        row
        for status in _CHANGED_BY_TICKS
        for row in instances.with_status(status, cluster=cluster, limit=ROWS_AT_MOST, newest_first=True)
    ]


def _rejoin_pasts(
    connection: Connection, tick: Tick, kind: WatermarkKind, records: Mapping[Key, FeedRecord | ProcessRecord]
) -> None:
    """Put watermarks in front of their pasts, which may reach into the future now; what is away keeps its past."""
    watermarks = Watermarks(connection)
    for each in watermarks.due(kind, NEVER, None, tick.cluster, of_past=True):
        if (record := records.get(each.key)) is not None:
            index = max(0, record.sequence.index_at_or_after(each.ahead[0][0]))
            watermarks.put([replace(each.rejoined(), next_index=index)])


def _remove_premature(
    connection: Connection, timeline: ReleaseTimeline, rows: Sequence[ProcessInstance]
) -> frozenset[ProcessKey]:
    """Remove premature instances and set the watermarks back to the first of them, so that they are created again in
    time.

    Instances without a current definition stay, and those of processes that are away: nothing creates them again.
    """
    instances, watermarks = ProcessInstances(connection), Watermarks(connection)
    watermarks_by_process: dict[Key, list[Watermark]] = defaultdict(list)
    for row in rows:
        active = timeline.find(connection, (row.process, row.cluster), row.nominal_time)
        if active is not None and (row.process, row.cluster) in timeline.plan.processes:
            watermarks_by_process[row.process, row.cluster].append(_watermark_at(row, active.record))
            # Only WAITING instances can be removed.
            instances.transition(row.key, {row.status}, status=ProcessInstanceStatus.WAITING, updated_at=row.updated_at)
    for (process, cluster), found in watermarks_by_process.items():
        UnstartedInstances(connection, process, cluster).forget(map(_next_time, found))
        standing = watermarks.get(WatermarkKind.PROCESS, process, cluster)
        watermarks.put([min([*found, *([standing] if standing else [])], key=_next_time)])
    return frozenset(
        ProcessKey(*key, _next_time(place)) for key, found in watermarks_by_process.items() for place in found
    )


def _watermark_at(row: ProcessInstance, record: ProcessRecord) -> Watermark:
    return Watermark(
        kind=WatermarkKind.PROCESS,
        entity=row.process,
        cluster=row.cluster,
        next_index=record.sequence.index(row.nominal_time),
        next_time=row.nominal_time,
        delay=record.delay,
    )


def _next_time(watermark: Watermark) -> datetime:
    return watermark.next_time or FOREVER


def _update(connection: Connection, rows: Sequence[ProcessInstance], as_of: datetime, real_now: datetime) -> int:
    instances = ProcessInstances(connection)
    again: set[Key] = set()
    count = 0
    for row in rows:
        changes = decide_instance(row, as_of, real_now)
        if changes is not None and instances.transition(row.key, {row.status}, **changes):
            count += 1
            if "status" in changes:
                again.add((row.process, row.cluster))
    note_changed(connection, sorted(again))
    return count


def _move_polls(connection: Connection, cluster: str, last_time: datetime, as_of: datetime) -> int:
    polls = ArrivalPolls(connection)
    planned = polls.due(cluster, last_time + CHECK_INTERVAL + LONGEST_PAUSE, ROWS_AT_MOST)
    moved = [found for poll in planned if (found := decide_poll(poll, as_of)) is not None]
    polls.move(moved)
    return len(moved)


def _move_agenda(connection: Connection, timeline: ReleaseTimeline, cluster: str, as_of: datetime) -> int:
    """Replan what is looked at again later, with the late checks that were dropped although their cut-off is in the
    future now.
    """
    checks = LateChecks(connection)
    moved = checks.replan_premature(cluster, as_of)
    forget_walks(connection, cluster)
    for key, process in timeline.plan.processes.items():
        if key[1] == cluster and process.late is not None:
            checks.add(_checks_of_process(connection, timeline, process, as_of))
    for key, feed in timeline.plan.feeds.items():
        if key[1] == cluster:
            checks.add(_checks_of_feed(connection, feed, as_of))
    return moved


def _checks_of_process(
    connection: Connection, timeline: ReleaseTimeline, process: ProcessRecord, as_of: datetime
) -> list[LateCheck]:
    """Return the checks of all SUCCEEDED instances that late data may still change."""
    sequence = process.sequence
    numbers = range(max(0, sequence.index_at_or_before(as_of)) + 1)
    first = bisect_right(
        numbers, as_of, key=lambda n: process_cut_off(timeline.plan, process, sequence.at(n)) or FOREVER
    )
    found = []
    for row in ProcessInstances(connection).find_between(*process.key, sequence.at(first), FOREVER):
        active = timeline.find(connection, process.key, row.nominal_time)
        if active is not None and row.status is ProcessInstanceStatus.SUCCEEDED:
            found.append(decide_process_check(active.plan, active.record, row.nominal_time, as_of))
    return [check for check in found if check is not None]


def _checks_of_feed(connection: Connection, feed: FeedRecord, as_of: datetime) -> list[LateCheck]:
    """Return the checks of all arrived instances that late data may still change."""
    if decide_feed_check(feed, as_of, as_of) is None:
        return []
    cut_off = as_of - BEGINNING if feed.late_cut_off is None else feed.late_cut_off.as_duration()
    since = as_of - min(cut_off, as_of - BEGINNING)
    times = FeedInstances(connection).available_times(*feed.key, since, FOREVER)
    found = (decide_feed_check(feed, time, as_of) for time in times)
    return [check for check in found if check is not None]
