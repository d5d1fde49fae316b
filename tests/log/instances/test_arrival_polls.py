"""When storage is polled again for missing instances."""

import pytest

from feed_assets.log.instances.arrival_polls import ArrivalPolls
from feed_assets.log.records import LackingFeed
from feed_assets.sql.database import Database
from tests.log.samples import arrival_poll, hour

pytestmark = pytest.mark.both_databases


def test_due_polls_are_those_of_a_cluster_the_longest_waiting_first(database: Database) -> None:
    with database.begin() as connection:
        polls = ArrivalPolls(connection)
        polls.put([arrival_poll(0, next_poll_at=hour(5)), arrival_poll(1, next_poll_at=hour(3))])
        polls.put([arrival_poll(2, next_poll_at=hour(6)), arrival_poll(3, cluster="backup", next_poll_at=hour(1))])
        due = polls.due("primary", hour(5), 10)
        assert [poll.nominal_time for poll in due] == [hour(1), hour(0)]
        assert polls.due("primary", hour(5), 1) == due[:1]


def test_what_is_to_be_polled_since_just_now_does_not_wait_for_a_long_past(database: Database) -> None:
    with database.begin() as connection:
        polls = ArrivalPolls(connection)
        polls.put([arrival_poll(n, next_poll_at=hour(n)) for n in range(9)])
        due = [poll.nominal_time for poll in polls.due("primary", hour(8), 4)]
        assert due == [hour(each) for each in (8, 7, 0, 1)]


def test_a_poll_is_replaced_and_found(database: Database) -> None:
    with database.begin() as connection:
        polls = ArrivalPolls(connection)
        polls.put([arrival_poll(0)])
        polls.put([arrival_poll(0, found="PARTIAL|1|1", next_poll_at=hour(9))])
        again = arrival_poll(0, found="PARTIAL|1|1", next_poll_at=hour(9))
        assert polls.find_many([again.key, arrival_poll(1).key]) == {again.key: again}


def test_only_polls_that_are_planned_are_moved(database: Database) -> None:
    with database.begin() as connection:
        polls = ArrivalPolls(connection)
        polls.put([arrival_poll(0)])
        polls.move([arrival_poll(0, polled_at=hour(2), next_poll_at=hour(4)), arrival_poll(1)])
        assert polls.due("primary", hour(99), 10) == [arrival_poll(0, polled_at=hour(2), next_poll_at=hour(4))]


def test_removed_polls_are_gone(database: Database) -> None:
    with database.begin() as connection:
        polls = ArrivalPolls(connection)
        polls.put([arrival_poll(0), arrival_poll(1)])
        polls.remove([arrival_poll(0).key, arrival_poll(7).key])
        assert [poll.nominal_time for poll in polls.due("primary", hour(99), 10)] == [hour(1)]


def test_feeds_with_instances_that_were_not_found_are_counted_and_forgotten(database: Database) -> None:
    with database.begin() as connection:
        polls = ArrivalPolls(connection)
        polls.put([arrival_poll(2, found="MISSING|0|0"), arrival_poll(1, found="EMPTY|0|1"), arrival_poll(0, found="")])
        polls.put(
            [arrival_poll(3, found="obstacle|x", obstacle="x"), arrival_poll(4, cluster="backup", found="MISSING|0|0")]
        )
        asked = {("clicks", "primary"), ("weather", "primary")}
        assert polls.lacking(asked) == [LackingFeed("clicks", "primary", 2, hour(1))]
        polls.forget([("clicks", "primary")])
        assert polls.lacking(asked) == []
        assert [*polls.find_many([arrival_poll(4, cluster="backup").key])]
