"""What people are to be told of process instances."""

from datetime import timedelta

import pytest

from feed_assets.log.definitions.records import Schedule, ScheduleState
from feed_assets.log.definitions.schedules import Schedules
from feed_assets.log.instances.overdue_notices import OverdueNotice, OverdueNotices
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import ProcessInstance, ProcessInstanceStatus
from feed_assets.sql.database import Database
from tests.log.samples import hour, process_instance

pytestmark = pytest.mark.both_databases


WAITING, READY, FAILED, TIMEDOUT, KILLED, SKIPPED = (
    ProcessInstanceStatus.WAITING,
    ProcessInstanceStatus.READY,
    ProcessInstanceStatus.FAILED,
    ProcessInstanceStatus.TIMEDOUT,
    ProcessInstanceStatus.KILLED,
    ProcessInstanceStatus.SKIPPED,
)


def put(database: Database, *rows: ProcessInstance) -> None:
    with database.begin() as connection:
        ProcessInstances(connection).add_waiting(rows)


def due(database: Database, at: float, limit: int = 9) -> list[int]:
    with database.read() as connection:
        found = OverdueNotices(connection).due("primary", hour(at), limit)
    return [int((row.nominal_time - hour(0)) / timedelta(hours=1)) for row in found]


def test_what_is_due_is_of_a_cluster_and_of_those_that_are_not_done(database: Database) -> None:
    put(
        database,
        process_instance(0, notice_at=hour(5)),
        process_instance(1, FAILED, notice_at=hour(3)),
        process_instance(2, TIMEDOUT, notice_at=hour(4)),
        process_instance(3, READY, notice_at=hour(1)),
        process_instance(4),
        process_instance(5, notice_at=hour(7)),
        process_instance(6, notice_at=hour(1), cluster="backup"),
        process_instance(8, KILLED, notice_at=hour(4.5)),
        process_instance(9, SKIPPED, notice_at=hour(4.6)),
    )
    assert due(database, 5) == [1, 2, 8, 9, 0]
    assert due(database, 5, 1) == [1]
    assert due(database, 2) == []


def test_what_is_not_scheduled_is_left_alone(database: Database) -> None:
    put(database, process_instance(0, notice_at=hour(1)))
    row = Schedule(
        kind="process",
        name="daily",
        cluster="primary",
        state=ScheduleState.SUSPENDED,
        changed_at=hour(0),
        author="a test",
    )
    with database.begin() as connection:
        Schedules(connection).put([row])
    assert due(database, 9) == []
    with database.read() as connection:
        assert OverdueNotices(connection).oldest_waiting("primary") is None


def test_what_was_told_is_remembered_unless_somebody_has_set_another_time(database: Database) -> None:
    put(database, process_instance(0, notice_at=hour(1)), process_instance(1, notice_at=hour(1)))
    with database.begin() as connection:
        rows = OverdueNotices(connection).due("primary", hour(1), 9)
        ProcessInstances(connection).transition(rows[1].key, {WAITING}, notice_at=hour(2), updated_at=hour(1))
        OverdueNotices(connection).mark([OverdueNotice(instance=row, digest="a", next_at=None) for row in rows])
    assert due(database, 2) == [1]
    with database.read() as connection:
        found = ProcessInstances(connection).get_many([row.key for row in rows])
    assert [row.notice_digest for _, row in sorted(found.items())] == ["a", None]
    assert [row.updated_at for _, row in sorted(found.items())] == [hour(0), hour(1)]


def test_the_oldest_that_waits_is_that_of_the_earliest_nominal_time(database: Database) -> None:
    put(
        database,
        process_instance(0, cluster="backup"),
        process_instance(1, READY),
        process_instance(3),
        process_instance(2, process="weekly"),
    )
    with database.read() as connection:
        oldest = OverdueNotices(connection).oldest_waiting("primary")
        assert oldest is not None
        assert oldest.key == ("weekly", "primary", hour(2))
        assert OverdueNotices(connection).oldest_waiting("nowhere") is None
