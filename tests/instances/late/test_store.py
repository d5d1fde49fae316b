"""When late data are looked for."""

from datetime import timedelta

import pytest

from feed_assets.instances.late.store import BEHIND_AFTER, UPDATE, BehindCopies, LateChecks
from feed_assets.sql.database import Database
from tests.log.samples import hour, late_check

pytestmark = pytest.mark.both_databases


def test_due_checks_are_those_of_a_cluster_the_longest_waiting_first(database: Database) -> None:
    with database.begin() as connection:
        checks = LateChecks(connection)
        checks.put([late_check(0, due_at=hour(5)), late_check(1, due_at=hour(3)), late_check(2, due_at=hour(6))])
        checks.put([late_check(3, due_at=None, changed=("clicks",)), late_check(4, cluster="backup", due_at=hour(1))])
        due = checks.due("primary", hour(5), 10)
        assert [check.nominal_time for check in due] == [hour(1), hour(0)]
        assert checks.due("primary", hour(5), 1) == due[:1]


def test_a_check_is_replaced_found_and_removed(database: Database) -> None:
    moved = late_check(0, due_at=hour(9), checks=2, changed=("clicks", "views"))
    with database.begin() as connection:
        checks = LateChecks(connection)
        checks.put([late_check(0), late_check(0, kind="feed")])
        checks.put([moved])
        assert checks.get(*moved.key) == moved
        assert checks.get_many([moved.key, late_check(1).key]) == {moved.key: moved}
        assert checks.lock_many([moved.key, late_check(1).key]) == {moved.key: moved}
        checks.remove([moved.key, late_check(7).key])
        assert checks.get(*moved.key) is None
        assert checks.get(*late_check(0, kind="feed").key) == late_check(0, kind="feed")


def test_a_check_is_added_only_where_there_is_none(database: Database) -> None:
    with database.begin() as connection:
        checks = LateChecks(connection)
        checks.put([late_check(0)])
        checks.add([late_check(0, checks=5), late_check(1, checks=5)])
        assert [check.checks for check in checks.due("primary", hour(99), 9)] == [0, 5]


def test_the_delay_of_a_check_is_counted_from_when_it_was_planned() -> None:
    assert late_check(0, planned_at=hour(1), due_at=hour(3)).delay == timedelta(hours=2)
    assert late_check(0, due_at=None).delay == timedelta(0)


def test_behind_are_flows_whose_updates_are_open_for_a_while(database: Database) -> None:
    with database.begin() as connection:
        checks = LateChecks(connection)
        flow = {"kind": UPDATE, "name": "clicks@primary", "cluster": "backup"}
        checks.put([late_check(0, **flow, planned_at=hour(1)), late_check(1, **flow, planned_at=hour(1))])
        checks.put([late_check(2, **flow, planned_at=hour(3)), late_check(0, kind=UPDATE), late_check(0)])
        assert checks.behind(hour(1)) == []
        assert checks.behind(hour(1) + BEHIND_AFTER) == [BehindCopies("clicks@primary", "backup", 2, hour(0))]
