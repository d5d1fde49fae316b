"""When the retention of feeds comes next."""

import pytest

from feed_assets.retention.rules.store import RetentionSchedule
from feed_assets.sql.database import Database
from tests.log.samples import hour, scheduled_retention

pytestmark = pytest.mark.both_databases


def test_due_entries_are_those_of_a_cluster_the_longest_waiting_first(database: Database) -> None:
    with database.begin() as connection:
        schedule = RetentionSchedule(connection)
        schedule.put(
            [
                scheduled_retention(3),
                scheduled_retention(1, feed="views"),
                scheduled_retention(4, feed="orders"),
                scheduled_retention(0, cluster="backup"),
            ]
        )
        assert [each.feed for each in schedule.due("primary", hour(3), 9)] == ["views", "clicks"]
        assert [each.feed for each in schedule.due("primary", hour(3), 1)] == ["views"]
        assert schedule.due("primary", hour(0), 9) == []


def test_an_entry_is_replaced_found_and_removed(database: Database) -> None:
    moved = scheduled_retention(9, last_at=hour(3), policy_digest="sha256:q")
    with database.begin() as connection:
        schedule = RetentionSchedule(connection)
        schedule.put(
            [scheduled_retention(3), scheduled_retention(4, feed="views"), scheduled_retention(cluster="backup")]
        )
        schedule.put([moved])
        schedule.put([])
        assert schedule.of_cluster("primary") == {"clicks": moved, "views": scheduled_retention(4, feed="views")}
        assert schedule.find_many([("clicks", "primary"), ("orders", "primary")]) == {("clicks", "primary"): moved}
        assert schedule.find_many([]) == {}
        schedule.remove([("clicks", "primary"), ("orders", "primary")])
        assert list(schedule.of_cluster("primary")) == ["views"]
        assert list(schedule.of_cluster("backup")) == ["clicks"]
