"""The clock is set back: what was planned by times that are to come again is planned anew, and what only a wrong clock
has done is taken back.

A clock that is set forward is like a daemon that stood still, and needs nothing.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sqlalchemy import Connection

from feed_assets.lifecycle.arrivals import LONGEST_PAUSE
from feed_assets.lifecycle.governance import BEGINNING, FOREVER, Governance
from feed_assets.lifecycle.late_checks import decide_feed_check, decide_process_check, process_cut_off
from feed_assets.lifecycle.readiness import SUPERSEDED
from feed_assets.lifecycle.redefinition import note_changed
from feed_assets.plan.records import FeedRecord, Key, ProcessRecord
from feed_assets.state.beginnings import Beginnings
from feed_assets.state.database import Database
from feed_assets.state.event_log import Cursors
from feed_assets.state.feed_instances import FeedInstances
from feed_assets.state.frontiers import Frontiers
from feed_assets.state.late_checks import LateCheck, LateChecks
from feed_assets.state.looks import Looks
from feed_assets.state.process_instances import ProcessInstances
from feed_assets.state.records import (
    Frontier,
    FrontierKind,
    PlannedLook,
    ProcessChanges,
    ProcessInstance,
    ProcessInstanceStatus,
    ProcessKey,
)
from feed_assets.timing.dates import NEVER

NOTED_EVERY = timedelta(minutes=1)
"""A clock that is set back by less is not noticed; nothing is later by more than that."""

AT_MOST = 100_000
"""Of each kind, so many are planned anew; more would only be late."""

_SEEN_BY_TICKS = (
    ProcessInstanceStatus.WAITING,
    ProcessInstanceStatus.READY,
    ProcessInstanceStatus.FAILED,
    ProcessInstanceStatus.TIMEDOUT,
    ProcessInstanceStatus.SKIPPED,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SetBack:
    """By how much a clock was set back, and how many instances, looks and late checks were concerned.

    `taken_back` are the process instances that had come into being too early, and do so again.
    """

    by: timedelta
    taken_back: int
    instances: int
    looks: int
    late_checks: int

    def render(self) -> str:
        """A sentence for people."""
        return (
            f"the clock was set back by {self.by}: {self.taken_back} process instances come into being again, "
            f"{self.instances} others, {self.looks} looks and {self.late_checks} checks for late data are planned anew"
        )


def decide_look(look: PlannedLook, as_of: datetime) -> PlannedLook | None:
    """A look that was planned at a time that is to come again: now, or when its instance comes."""
    if look.looked_at <= as_of:
        return None
    return look._replace(looked_at=as_of, next_look_at=max(as_of, look.nominal_time))


def decide_late_check(check: LateCheck, as_of: datetime) -> LateCheck | None:
    """A check that was planned at a time that is to come again: now."""
    if check.due_at is None or check.planned_at <= as_of:
        return None
    return replace(check, planned_at=as_of, due_at=as_of)


def is_premature(row: ProcessInstance, as_of: datetime) -> bool:
    """Whether an instance has come into being at a time that is to come again, and nothing was begun for it since."""
    is_unbegun = row.attempt == 0 and row.request_key is None and row.status in _SEEN_BY_TICKS
    return is_unbegun and row.materialized_at is not None and row.materialized_at > as_of


def decide_instance(row: ProcessInstance, as_of: datetime, wall: datetime) -> ProcessChanges | None:
    """What becomes of an instance that ticks have dealt with at times that are to come again; None if nothing does.

    What was left for a deadline, a retry or a telling when it was changed last is left of it from now on. It waits
    again where it is out of time, or overtaken by a newer one, by those times only.
    """
    requested_at = row.requested_at
    if row.status is ProcessInstanceStatus.READY and requested_at is not None and requested_at > wall:
        return {"requested_at": wall, "updated_at": min(row.updated_at, as_of)}
    if row.updated_at <= as_of:
        return None
    too_far = row.updated_at - as_of
    match row.status:
        case ProcessInstanceStatus.WAITING:
            return {
                "deadline_at": row.deadline_at and row.deadline_at - too_far,
                "tell_at": row.tell_at and row.tell_at - too_far,
                "updated_at": as_of,
            }
        case ProcessInstanceStatus.TIMEDOUT if row.deadline_at is not None and row.deadline_at > as_of:
            return _waiting_again(row, as_of)
        case ProcessInstanceStatus.SKIPPED if row.reason == SUPERSEDED:
            return _waiting_again(row, as_of)
        case ProcessInstanceStatus.FAILED | ProcessInstanceStatus.TIMEDOUT:
            retry_at = row.retry_at
            return {
                "retry_at": retry_at if retry_at in (None, NEVER) else retry_at - too_far,
                "tell_at": row.tell_at and min(row.tell_at, as_of),
                "updated_at": as_of,
            }
        case _:
            return None


def _waiting_again(row: ProcessInstance, as_of: datetime) -> ProcessChanges:
    return {
        "status": ProcessInstanceStatus.WAITING,
        "ended_at": None,
        "retry_at": None,
        "reason": None,
        "tell_at": row.tell_at and min(row.tell_at, as_of),
        "updated_at": as_of,
    }


def apply_clock(
    database: Database, governance: Governance, cluster: str, as_of: datetime, wall: datetime
) -> SetBack | None:
    """Note what time it is on a cluster; if it was later before, plan anew. At the beginning of a tick.

    Without that it costs one question, and once a minute a row. None if the clock was not set back.

    Args:
        database: the state.
        governance: has the plan, and is current.
        cluster: whose tick it is.
        as_of: the time of the data.
        wall: the time of day.
    """
    with database.read() as connection:
        noted = _noted(connection, cluster)
    if noted is not None and noted <= as_of < noted + NOTED_EVERY:
        return None
    with database.begin() as connection:
        noted = _noted(connection, cluster)
        Cursors(connection).put(_cursor(cluster), as_of.isoformat())
        if noted is None or noted <= as_of:
            return None
        found = _find_seen(connection, cluster)
        taken_back = _take_back(connection, governance, [row for row in found if is_premature(row, as_of)])
        others = [row for row in found if row.key not in taken_back]
        return SetBack(
            by=noted - as_of,
            taken_back=len(taken_back),
            instances=_change(connection, others, as_of, wall),
            looks=_move_looks(connection, cluster, noted, as_of),
            late_checks=_move_late_checks(connection, governance, cluster, as_of),
        )


def _cursor(cluster: str) -> str:
    return f"clock/{cluster}"


def _noted(connection: Connection, cluster: str) -> datetime | None:
    text = Cursors(connection).get(_cursor(cluster))
    return None if text is None else datetime.fromisoformat(text)


def _find_seen(connection: Connection, cluster: str) -> list[ProcessInstance]:
    instances = ProcessInstances(connection)
    return [
        row
        for status in _SEEN_BY_TICKS
        for row in instances.with_status(status, cluster=cluster, limit=AT_MOST, newest_first=True)
    ]


def _take_back(
    connection: Connection, governance: Governance, rows: Sequence[ProcessInstance]
) -> frozenset[ProcessKey]:
    """Let instances come into being again, in their own time: forget them, and walk on from the first of them.

    Those that no definition has any more stay.
    """
    instances, frontiers = ProcessInstances(connection), Frontiers(connection)
    places: dict[Key, list[Frontier]] = defaultdict(list)
    for row in rows:
        governed = governance.find(connection, (row.process, row.cluster), row.nominal_time)
        if governed is not None:
            places[row.process, row.cluster].append(_place(row, governed.record))
            # What waits is what can be forgotten.
            instances.transition(row.key, {row.status}, status=ProcessInstanceStatus.WAITING, updated_at=row.updated_at)
    for (process, cluster), found in places.items():
        Beginnings(connection, process, cluster).forget(map(_next_time, found))
        standing = frontiers.get(FrontierKind.PROCESS, process, cluster)
        frontiers.put([min([*found, *([standing] if standing else [])], key=_next_time)])
    return frozenset(ProcessKey(*key, _next_time(place)) for key, found in places.items() for place in found)


def _place(row: ProcessInstance, record: ProcessRecord) -> Frontier:
    return Frontier(
        kind=FrontierKind.PROCESS,
        entity=row.process,
        cluster=row.cluster,
        next_index=record.sequence.index(row.nominal_time),
        next_time=row.nominal_time,
        delay=record.delay,
    )


def _next_time(frontier: Frontier) -> datetime:
    return frontier.next_time or FOREVER


def _change(connection: Connection, rows: Sequence[ProcessInstance], as_of: datetime, wall: datetime) -> int:
    instances = ProcessInstances(connection)
    again: set[Key] = set()
    count = 0
    for row in rows:
        changes = decide_instance(row, as_of, wall)
        if changes is not None and instances.transition(row.key, {row.status}, **changes):
            count += 1
            if "status" in changes:
                again.add((row.process, row.cluster))
    note_changed(connection, sorted(again))
    return count


def _move_looks(connection: Connection, cluster: str, noted: datetime, as_of: datetime) -> int:
    looks = Looks(connection)
    planned = looks.due(cluster, noted + NOTED_EVERY + LONGEST_PAUSE, AT_MOST)
    moved = [found for look in planned if (found := decide_look(look, as_of)) is not None]
    looks.move(moved)
    return len(moved)


def _move_late_checks(connection: Connection, governance: Governance, cluster: str, as_of: datetime) -> int:
    """Also plan those again that were given up, because their cut-off is still to come."""
    checks = LateChecks(connection)
    moved = [
        found for check in checks.due(cluster, NEVER, AT_MOST) if (found := decide_late_check(check, as_of)) is not None
    ]
    checks.put(moved)
    for key, process in governance.plan.processes.items():
        if key[1] == cluster and process.late is not None:
            checks.add(_checks_of_process(connection, governance, process, as_of))
    for key, feed in governance.plan.feeds.items():
        if key[1] == cluster:
            checks.add(_checks_of_feed(connection, feed, as_of))
    return len(moved)


def _checks_of_process(
    connection: Connection, governance: Governance, process: ProcessRecord, as_of: datetime
) -> list[LateCheck]:
    """The checks of all instances that have succeeded and that late data may change."""
    sequence = process.sequence
    numbers = range(max(0, sequence.index_at_or_before(as_of)) + 1)
    first = bisect_right(
        numbers, as_of, key=lambda n: process_cut_off(governance.plan, process, sequence.at(n)) or FOREVER
    )
    found = []
    for row in ProcessInstances(connection).find_between(*process.key, sequence.at(first), FOREVER):
        governed = governance.find(connection, process.key, row.nominal_time)
        if governed is not None and row.status is ProcessInstanceStatus.SUCCEEDED:
            found.append(decide_process_check(governed.plan, governed.record, row.nominal_time, as_of))
    return [check for check in found if check is not None]


def _checks_of_feed(connection: Connection, feed: FeedRecord, as_of: datetime) -> list[LateCheck]:
    """The checks of all instances that have arrived and that late data may change."""
    if feed.late_cut_off is None or decide_feed_check(feed, as_of, as_of) is None:
        return []
    since = as_of - min(feed.late_cut_off.as_duration(), as_of - BEGINNING)
    times = FeedInstances(connection).available_times(*feed.key, since, FOREVER)
    found = (decide_feed_check(feed, time, as_of) for time in times)
    return [check for check in found if check is not None]
