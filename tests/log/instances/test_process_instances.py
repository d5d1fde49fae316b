from dataclasses import replace

import pytest

from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import Cause, ProcessInstanceStatus, ProcessKey
from feed_assets.sql.database import Database
from feed_assets.sql.errors import StateError
from tests.log.samples import count_by_status, hour, process_instance
from tests.log.workers import Team, request_one, run_waiting

pytestmark = pytest.mark.both_databases


WAITING, READY, RUNNING, SUSPENDED, SUCCEEDED, FAILED, KILLED, TIMEDOUT, SKIPPED = ProcessInstanceStatus


def test_an_instance_comes_back_as_it_was_added(database: Database) -> None:
    full = process_instance(
        1,
        RUNNING,
        attempt=2,
        run_id="run",
        request_key="request",
        requested_at=hour(2),
        materialized_at=hour(1),
        ready_at=hour(2),
        deadline_at=hour(3),
        started_at=hour(4),
        ended_at=hour(5),
        cause=Cause.RETRY,
        cause_detail="because",
        definition_digest="sha256:2",
    )
    with database.begin() as connection:
        assert ProcessInstances(connection).add_waiting([full, process_instance(2)]) == 2
    with database.read() as connection:
        instances = ProcessInstances(connection)
        assert instances.get("daily", "primary", hour(1)) == full
        assert instances.get("daily", "primary", hour(3)) is None
        assert instances.find_between("daily", "primary", hour(1), hour(2)) == [full, process_instance(2)]


def test_an_instance_is_added_once_and_then_left_alone(database: Database) -> None:
    with database.begin() as connection:
        instances = ProcessInstances(connection)
        assert instances.add_waiting([process_instance(0), process_instance(1)]) == 2
        instances.transition(process_instance(0).key, {WAITING}, status=READY, updated_at=hour(1))
        assert instances.add_waiting([process_instance(0), process_instance(1), process_instance(2)]) == 1
        assert instances.add_waiting([]) == 0
        assert count_by_status(connection, "daily", "primary") == {READY: 1, WAITING: 2}


def test_a_transition_changes_what_is_given_clears_what_is_none_and_leaves_the_rest(database: Database) -> None:
    row = process_instance(0, READY, request_key="a", requested_at=hour(1), deadline_at=hour(9))
    with database.begin() as connection:
        instances = ProcessInstances(connection)
        instances.add_waiting([row])
        assert instances.transition(
            row.key, {READY, WAITING}, status=RUNNING, run_id="run", request_key=None, updated_at=hour(2)
        )
        assert instances.get(*row.key) == replace(
            row, status=RUNNING, run_id="run", request_key=None, updated_at=hour(2)
        )


def test_a_transition_from_another_status_or_of_no_instance_changes_nothing(database: Database) -> None:
    row = process_instance(0, SUCCEEDED)
    with database.begin() as connection:
        instances = ProcessInstances(connection)
        instances.add_waiting([row])
        assert not instances.transition(row.key, {WAITING, READY}, status=RUNNING, updated_at=hour(2))
        assert not instances.transition(row.key, frozenset(), status=RUNNING, updated_at=hour(2))
        assert not instances.transition(process_instance(5).key, {WAITING}, status=READY, updated_at=hour(2))
        assert instances.get(*row.key) == row


def test_many_move_together_and_only_those_that_may_are_counted(database: Database) -> None:
    rows = [process_instance(n, SUSPENDED if n == 2 else WAITING) for n in range(5)]
    with database.begin() as connection:
        instances = ProcessInstances(connection)
        instances.add_waiting(rows)
        keys = [row.key for row in rows[:4]] + [ProcessKey("other", "primary", hour(0))]
        assert instances.transition_many(keys, {WAITING}, status=READY, updated_at=hour(9)) == 3
        assert instances.transition_many([], {WAITING}, status=READY, updated_at=hour(9)) == 0
        assert count_by_status(connection, "daily", "primary") == {READY: 3, SUSPENDED: 1, WAITING: 1}


def test_where_many_stand_is_told_without_their_rows(database: Database) -> None:
    rows = [replace(process_instance(n, RUNNING if n else WAITING), attempt=n) for n in range(3)]
    with database.begin() as connection:
        instances = ProcessInstances(connection)
        instances.add_waiting(rows)
        assert instances.get_progress([]) == {}
        assert instances.get_progress([*(row.key for row in rows[1:]), process_instance(9).key]) == {
            row.key: (row.status, row.attempt) for row in rows[1:]
        }


def test_of_workers_that_race_for_an_instance_one_wins(database: Database, database_url: str) -> None:
    with database.begin() as connection:
        ProcessInstances(connection).add_waiting([process_instance(n) for n in range(50)])
    wins = Team(run_waiting, database_url, 3).results()
    assert [sum(won) for won in zip(*wins, strict=True)] == [1] * 50
    with database.read() as connection:
        rows = ProcessInstances(connection).active_with_run("primary")
    assert [wins[int((row.run_id or "")[-1])][n] for n, row in enumerate(rows)] == [True] * 50


def test_of_two_that_look_for_something_to_launch_no_two_take_the_same(database: Database, database_url: str) -> None:
    with database.begin() as connection:
        ProcessInstances(connection).add_waiting([process_instance(n, READY) for n in range(40)])
    taken = [time for times in Team(request_one, database_url, 3).results() for time in times]
    assert sorted(taken) == [hour(n).isoformat() for n in range(40)]


def test_instances_are_found_by_status_in_either_order(database: Database) -> None:
    with database.begin() as connection:
        instances = ProcessInstances(connection)
        instances.add_waiting(
            [
                process_instance(2),
                process_instance(1),
                process_instance(3, FAILED),
                process_instance(0, process="other"),
                process_instance(4, cluster="backup"),
            ]
        )
        everything = instances.with_status(WAITING, limit=9)
        assert [row.nominal_time for row in everything] == [hour(0), hour(1), hour(2), hour(4)]
        assert instances.with_status(WAITING, limit=2, newest_first=True) == [everything[3], everything[2]]
        assert instances.with_status(WAITING, "daily", limit=9) == everything[1:]
        assert instances.with_status(WAITING, cluster="primary", limit=9) == everything[:3]
        assert instances.with_status(WAITING, "daily", "backup", limit=9) == [everything[3]]


def test_instances_with_some_statuses_are_found_in_spans_of_several_processes(database: Database) -> None:
    with database.begin() as connection:
        instances = ProcessInstances(connection)
        instances.add_waiting([process_instance(n, READY if n == 1 else WAITING) for n in range(6)])
        instances.add_waiting([process_instance(n, process="other") for n in range(6)])
        spans = {
            ("daily", "primary"): [(hour(0), hour(2)), (hour(2), hour(3))],
            ("other", "primary"): [(hour(4), None)],
            ("daily", "backup"): [(hour(0), None)],
        }
        others = {("other", "primary"): [hour(4), hour(5)]}
        assert instances.times_in(spans, {WAITING}) == {("daily", "primary"): [hour(0), hour(2), hour(3)], **others}
        both = {("daily", "primary"): [hour(n) for n in range(4)], **others}
        assert instances.times_in(spans, {WAITING, READY}) == both
        assert instances.times_in({}, {WAITING}) == {}


def test_deadlines_count_for_waiting_instances_only(database: Database) -> None:
    with database.begin() as connection:
        instances = ProcessInstances(connection)
        instances.add_waiting(
            [
                process_instance(0, deadline_at=hour(3)),
                process_instance(1, deadline_at=hour(2)),
                process_instance(2, deadline_at=hour(4)),
                process_instance(3),
                process_instance(4, READY, deadline_at=hour(1)),
                process_instance(5, cluster="backup", deadline_at=hour(1)),
            ]
        )
        passed = instances.deadlines_passed("primary", hour(3), 9)
        assert [row.nominal_time for row in passed] == [hour(1), hour(0)]
        assert [row.nominal_time for row in instances.deadlines_passed("backup", hour(3), 9)] == [hour(5)]
        assert instances.deadlines_passed("primary", hour(3), 1) == passed[:1]


def test_what_was_asked_for_is_no_longer_unrequested(database: Database) -> None:
    rows = [process_instance(n, READY) for n in range(3)]
    with database.begin() as connection:
        instances = ProcessInstances(connection)
        assert not instances.has_unrequested("primary")
        instances.add_waiting(rows)
        assert instances.has_unrequested("primary")
        assert not instances.has_unrequested("backup")
        instances.transition(rows[1].key, {READY}, request_key="a", requested_at=hour(5), updated_at=hour(5))
        assert instances.unrequested("primary", 9) == [rows[0].key, rows[2].key]
        assert instances.unrequested("primary", 1) == [rows[0].key]
        assert instances.requested_before("primary", hour(4)) == []
        assert [row.key for row in instances.requested_before("primary", hour(5))] == [rows[1].key]


def test_runs_in_flight_are_counted_not_instances(database: Database) -> None:
    with database.begin() as connection:
        instances = ProcessInstances(connection)
        instances.add_waiting(
            [
                process_instance(0, RUNNING, request_key="a", run_id="run a"),
                process_instance(1, READY, request_key="a"),
                process_instance(2, READY, request_key="b"),
                process_instance(3, READY),
                process_instance(4, RUNNING, run_id="run by hand"),
                process_instance(5, SUCCEEDED, request_key="c", run_id="run c"),
                process_instance(6, SUSPENDED, request_key="d", run_id="run d"),
                process_instance(0, READY, process="other"),
            ]
        )
        assert instances.in_flight([("daily", "primary"), ("other", "primary")]) == {("daily", "primary"): 3}
        assert instances.in_flight([]) == {}


def test_active_instances_are_those_that_know_their_run(database: Database) -> None:
    with database.begin() as connection:
        instances = ProcessInstances(connection)
        instances.add_waiting(
            [
                process_instance(2, RUNNING, run_id="b"),
                process_instance(1, RUNNING, run_id="a"),
                process_instance(3, RUNNING),
                process_instance(4, FAILED, run_id="c"),
                process_instance(5, RUNNING, run_id="d", cluster="backup"),
            ]
        )
        assert [row.run_id for row in instances.active_with_run("backup")] == ["d"]
        assert [row.run_id for row in instances.active_with_run("primary")] == ["a", "b"]


def test_content_of_a_later_version_is_refused(database: Database) -> None:
    with database.begin() as connection:
        ProcessInstances(connection).add_waiting([process_instance(0)])
        connection.exec_driver_sql("UPDATE fa_process_instances SET overrides = '[2,{}]'")
    with database.read() as connection, pytest.raises(StateError, match="content of version 2"):
        ProcessInstances(connection).get("daily", "primary", hour(0))
