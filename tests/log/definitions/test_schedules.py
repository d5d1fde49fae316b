from datetime import timedelta

import pytest
from sqlalchemy import Connection

from feed_assets.log.definitions.records import Schedule, ScheduleState
from feed_assets.log.definitions.schedules import Schedules
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import EntityKey, ProcessInstanceStatus, Watermark, WatermarkKind
from feed_assets.log.watermarks import Watermarks
from feed_assets.sql.database import IS_EXPLICIT, Database
from tests.log.samples import hour, process_instance

pytestmark = pytest.mark.both_databases


SUBMITTED, SCHEDULED, SUSPENDED = ScheduleState
NAMES = ("scheduled", "submitted", "suspended", "without")
SEEN = {SCHEDULED: ["scheduled", "without"], SUBMITTED: ["scheduled"]}


def schedule(name: str, state: ScheduleState, cluster: str = "primary", kind: str = "process") -> Schedule:
    return Schedule(kind=kind, name=name, cluster=cluster, state=state, changed_at=hour(0), author="ann")


def put_all(connection: Connection) -> None:
    """A process in each state, each scheduled otherwise elsewhere and as a feed."""
    rows = [schedule(name, ScheduleState(name.upper())) for name in NAMES if name != "without"]
    others = [schedule(name, SUSPENDED, "backup") for name in NAMES]
    feeds = [schedule(name, SUSPENDED, kind="feed") for name in NAMES]
    Schedules(connection).put([*rows, *others, *feeds])


def test_schedules_are_put_found_and_removed(database: Database) -> None:
    with database.begin() as connection:
        schedules = Schedules(connection)
        schedules.put([schedule("a", SUBMITTED), schedule("a", SCHEDULED, "backup")])
        schedules.put([schedule("a", SUSPENDED)])
        assert {cluster: row.state for cluster, row in schedules.of("process", "a").items()} == {
            "primary": SUSPENDED,
            "backup": SCHEDULED,
        }
        schedules.remove([("process", "a", "backup"), ("process", "nobody", "primary")])
        assert schedules.all() == {("process", "a", "primary"): schedule("a", SUSPENDED)}


def test_watermarks_of_scheduled_processes_are_due(database: Database) -> None:
    rows = [
        Watermark(kind=WatermarkKind.PROCESS, entity=name, cluster="primary", next_index=0, next_time=hour(0))
        for name in NAMES
    ]
    with database.begin() as connection:
        put_all(connection)
        watermarks = Watermarks(connection)
        watermarks.put(rows)
        for without_row, names in SEEN.items():
            connection.info[IS_EXPLICIT] = without_row is SUBMITTED
            due = watermarks.due(WatermarkKind.PROCESS, hour(1), 9, cluster="primary", only_scheduled=True)
            assert [watermark.entity for watermark in due] == names
        assert len(watermarks.due(WatermarkKind.PROCESS, hour(1), 9)) == 4
        assert watermarks.all(WatermarkKind.PROCESS)[EntityKey("without", "primary")] == rows[3]
        assert watermarks.all(WatermarkKind.FEED) == {}


def test_instances_of_scheduled_processes_run_out_of_time_and_are_launched(database: Database) -> None:
    waiting = [process_instance(process=name, deadline_at=hour(1)) for name in NAMES]
    ready = [process_instance(1, ProcessInstanceStatus.READY, process=name) for name in NAMES]
    with database.begin() as connection:
        put_all(connection)
        instances = ProcessInstances(connection)
        instances.add_waiting([*waiting, *ready])
        for without_row, names in SEEN.items():
            connection.info[IS_EXPLICIT] = without_row is SUBMITTED
            late = instances.deadlines_passed("primary", hour(2), 9)
            assert [row.process for row in late] == names
            asked = instances.unrequested("primary", 9)
            assert sorted(key.process for key in asked) == names
            assert instances.has_unrequested("primary")


def test_nothing_is_unrequested_where_all_is_suspended(database: Database) -> None:
    with database.begin() as connection:
        Schedules(connection).put([schedule("daily", SUSPENDED)])
        instances = ProcessInstances(connection)
        instances.add_waiting([process_instance(0, ProcessInstanceStatus.READY)])
        assert not instances.has_unrequested("primary")
        assert instances.unrequested("primary", 9) == []


def test_deadlines_are_put_off_for_what_waits(database: Database) -> None:
    rows = [
        process_instance(0, deadline_at=hour(3)),
        process_instance(1),
        process_instance(2, ProcessInstanceStatus.READY, deadline_at=hour(3)),
        process_instance(0, process="other", deadline_at=hour(3)),
    ]
    with database.begin() as connection:
        instances = ProcessInstances(connection)
        instances.add_waiting(rows)
        assert instances.postpone_deadlines("daily", "primary", timedelta(hours=1.5), hour(9)) == 1
        found = instances.get_many([row.key for row in rows])
        assert [found[row.key].deadline_at for row in rows] == [hour(4.5), None, hour(3), hour(3)]
        assert found[rows[0].key].updated_at == hour(9)


def test_what_has_not_ended_is_found_and_counted(database: Database) -> None:
    rows = [process_instance(n, status) for n, status in enumerate(ProcessInstanceStatus)]
    with database.begin() as connection:
        instances = ProcessInstances(connection)
        instances.add_waiting(rows)
        assert [row.status.value for row in instances.unended("daily", "primary")] == [
            "WAITING",
            "READY",
            "RUNNING",
            "SUSPENDED",
        ]
        assert instances.unended_counts() == {EntityKey("daily", "primary"): 4}
        assert instances.unended("daily", "backup") == []
        newest = instances.newest("daily", "primary", hour(1), hour(4), 2)
        assert [row.nominal_time for row in newest] == [hour(4), hour(3)]
