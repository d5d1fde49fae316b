from datetime import timedelta, timezone

import pytest

from feed_assets.log.instances.arrival_polls import ArrivalPolls
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.records import FeedInstanceStatus, FeedKey, FeedSpan
from feed_assets.sql.database import Database
from tests.log.samples import arrival_poll, feed_instance, hour

pytestmark = pytest.mark.both_databases


MISSING, PARTIAL, EMPTY, AVAILABLE, EVICTED = FeedInstanceStatus


def test_an_instance_comes_back_as_it_was_put(database: Database) -> None:
    full = feed_instance(
        3,
        manifest_digest="sha256:abc",
        bytes=2**40,
        files=12,
        available_at=hour(4) + timedelta(microseconds=1),
        event_seq=17,
        fence=9,
    )
    bare = feed_instance(4, MISSING)
    with database.begin() as connection:
        FeedInstances(connection).put([full, bare])
    with database.read() as connection:
        instances = FeedInstances(connection)
        assert instances.get("clicks", "primary", hour(3)) == full
        assert instances.get("clicks", "primary", hour(4)) == bare
        assert instances.get("clicks", "backup", hour(3)) is None
        assert instances.get_many([full.key, bare.key, FeedKey("x", "y", hour(0))]) == {full.key: full, bare.key: bare}
        assert instances.get_many([]) == {}


def test_a_time_of_another_zone_is_the_same_instance(database: Database) -> None:
    local = hour(3).astimezone(timezone(timedelta(hours=-5)))
    with database.begin() as connection:
        instances = FeedInstances(connection)
        instances.put([feed_instance(3)])
        assert instances.get("clicks", "primary", local) == feed_instance(3)
        assert instances.available_times_many([("clicks", "primary", local, local)])[
            FeedSpan("clicks", "primary", local, local)
        ] == [hour(3)]


def test_times_before_1970_and_far_ahead_are_kept(database: Database) -> None:
    with database.begin() as connection:
        instances = FeedInstances(connection)
        instances.put([feed_instance(-24 * 365 * 100), feed_instance(24 * 365 * 1000)])
        assert instances.available_times("clicks", "primary", hour(-24 * 365 * 200), hour(24 * 365 * 2000)) == [
            hour(-24 * 365 * 100),
            hour(24 * 365 * 1000),
        ]


def test_put_replaces_and_the_last_of_two_rows_counts(database: Database) -> None:
    with database.begin() as connection:
        instances = FeedInstances(connection)
        instances.put([feed_instance(0, MISSING)])
        instances.put([feed_instance(0, PARTIAL), feed_instance(0, bytes=5)])
        assert instances.find_between("clicks", "primary", hour(0), hour(9)) == [feed_instance(0, bytes=5)]


def test_a_span_is_inclusive_at_both_ends_and_in_order(database: Database) -> None:
    with database.begin() as connection:
        instances = FeedInstances(connection)
        instances.put([feed_instance(n, MISSING if n == 4 else AVAILABLE) for n in (6, 5, 4, 3, 2, 1)])
        instances.put([feed_instance(3, feed="other"), feed_instance(3, cluster="backup")])
        assert [row.nominal_time for row in instances.find_between("clicks", "primary", hour(2), hour(5))] == [
            hour(2),
            hour(3),
            hour(4),
            hour(5),
        ]
        assert instances.available_times("clicks", "primary", hour(2), hour(5)) == [hour(2), hour(3), hour(5)]
        assert instances.latest_available("clicks", "primary", hour(4), 2) == [hour(3), hour(2)]


def test_many_spans_are_answered_at_once(database: Database) -> None:
    spans = [
        FeedSpan("clicks", "primary", hour(1), hour(3)),
        FeedSpan("clicks", "primary", hour(3), hour(3)),
        FeedSpan("clicks", "backup", hour(0), hour(9)),
        FeedSpan("views", "primary", hour(0), hour(9)),
    ]
    with database.begin() as connection:
        instances = FeedInstances(connection)
        instances.put([feed_instance(n, EMPTY if n == 2 else AVAILABLE) for n in range(5)])
        instances.put([feed_instance(7, cluster="backup")])
        assert instances.available_times_many([*spans, spans[0]]) == {
            spans[0]: [hour(1), hour(3)],
            spans[1]: [hour(3)],
            spans[2]: [hour(7)],
            spans[3]: [],
        }
        assert instances.available_times_many([]) == {}


def test_only_what_is_available_or_evicted_is_settled(database: Database) -> None:
    with database.begin() as connection:
        instances = FeedInstances(connection)
        rows = [
            feed_instance(0, MISSING),
            feed_instance(1, AVAILABLE),
            feed_instance(2, EVICTED),
            feed_instance(4, PARTIAL),
        ]
        instances.put(rows)
        keys = [feed_instance(n).key for n in range(5)]
        assert instances.find_settled(keys) == {keys[1], keys[2]}
        assert instances.find_settled([]) == set()


def test_settled_instances_are_polled_no_more(database: Database) -> None:
    with database.begin() as connection:
        instances, polls = FeedInstances(connection), ArrivalPolls(connection)
        polls.put([arrival_poll(n) for n in range(3)])
        instances.put([feed_instance(0, AVAILABLE), feed_instance(1, EVICTED), feed_instance(2, MISSING)])
        assert polls.due("primary", hour(99), 10) == [arrival_poll(2)]
