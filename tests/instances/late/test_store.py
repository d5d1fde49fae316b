"""When late data are looked for."""

from datetime import timedelta

import pytest

from feed_assets.instances.late.store import BEHIND_AFTER, BehindCopies, LateChecks
from feed_assets.log.agenda import AgendaKind
from feed_assets.sql.database import Database
from tests.log.samples import hour, late_check

pytestmark = pytest.mark.both_databases


def test_a_check_is_replaced_found_and_removed(database: Database) -> None:
    moved = late_check(0, due_at=hour(9), checks=2, changed=("clicks", "views"))
    with database.begin() as connection:
        checks = LateChecks(connection)
        checks.put([late_check(0), late_check(0, kind=AgendaKind.LATE_FEED)])
        checks.put([moved])
        assert checks.get(*moved.key) == moved
        assert checks.get_many([moved.key, late_check(1).key]) == {moved.key: moved}
        assert checks.lock_many([moved.key, late_check(1).key]) == {moved.key: moved}
        checks.remove([moved.key, late_check(7).key])
        assert checks.get(*moved.key) is None
        assert checks.get(*late_check(0, kind=AgendaKind.LATE_FEED).key) == late_check(0, kind=AgendaKind.LATE_FEED)


def test_the_delay_of_a_check_is_counted_from_when_it_was_planned() -> None:
    assert late_check(0, planned_at=hour(1), due_at=hour(3)).delay == timedelta(hours=2)
    assert late_check(0, due_at=None).delay == timedelta(0)


def test_behind_are_flows_whose_updates_are_open_for_a_while(database: Database) -> None:
    with database.begin() as connection:
        checks = LateChecks(connection)
        flow = {"kind": AgendaKind.UPDATE, "name": "clicks@primary", "cluster": "backup"}
        checks.put([late_check(0, **flow, planned_at=hour(1)), late_check(1, **flow, planned_at=hour(1))])
        checks.put([late_check(2, **flow, planned_at=hour(3)), late_check(0, kind=AgendaKind.UPDATE), late_check(0)])
        assert checks.behind(hour(1)) == []
        assert checks.behind(hour(1) + BEHIND_AFTER) == [BehindCopies("clicks@primary", "backup", 2, hour(0))]
