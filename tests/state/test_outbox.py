"""Messages on their way outside."""

from dataclasses import replace

from feed_assets.state.database import Database
from feed_assets.state.outbox import Outbox
from tests.state.samples import hour, message
from tests.state.workers import Team, tell_all


def test_messages_are_numbered_in_order_and_come_back_as_they_were(database: Database) -> None:
    with database.begin() as connection:
        outbox = Outbox(connection)
        assert outbox.last_seq() == 0
        assert outbox.append_many([message(2), message(0, payload={}), message(1, topic="ä")]) == 3
        assert outbox.append_many([]) == 0
        assert outbox.read(0, 9) == [
            message(2, seq=1),
            message(0, payload={}, seq=2),
            message(1, topic="ä", seq=3),
        ]
        assert [each.seq for each in outbox.read(1, 1)] == [2]
        assert outbox.last_seq() == 3


def test_a_repeat_of_a_message_is_not_added_again(database: Database) -> None:
    with database.begin() as connection:
        outbox = Outbox(connection)
        assert outbox.append_many([message(0), message(1), message(0, topic="later")]) == 2
        outbox.mark_sent([1], hour(1))
        assert outbox.append_many([message(1), message(2), message(0)]) == 1
        assert [(each.seq, each.topic, each.idempotency_key) for each in outbox.read(0, 9)] == [
            (1, "evictions", message(0).idempotency_key),
            (2, "evictions", message(1).idempotency_key),
            (3, "evictions", message(2).idempotency_key),
        ]


def test_what_was_not_sent_is_found_by_topic_oldest_first(database: Database) -> None:
    with database.begin() as connection:
        outbox = Outbox(connection)
        outbox.append_many([message(n, topic=("evictions", "alerts")[n % 2]) for n in range(5)])
        assert [each.seq for each in outbox.unsent(2)] == [1, 2]
        outbox.mark_sent([1, 4], hour(7))
        outbox.mark_sent([1, 99], hour(8))
        assert [each.seq for each in outbox.unsent(9)] == [2, 3, 5]
        assert [each.seq for each in outbox.unsent(9, "alerts")] == [2]
        assert outbox.read(0, 1) == [replace(message(0), seq=1, sent_at=hour(7))]


def test_numbers_are_in_the_order_of_the_commits_whoever_writes(database: Database, database_url: str) -> None:
    counts = Team(tell_all, database_url, 3).results()
    with database.read() as connection:
        found = Outbox(connection).read(0, 999)
    assert [each.seq for each in found] == list(range(1, 61))
    assert sum(counts) == len({each.idempotency_key for each in found}) == 60


def test_old_messages_that_were_told_are_removed_and_their_numbers_never_come_again(database: Database) -> None:
    with database.begin() as connection:
        outbox = Outbox(connection)
        assert outbox.told_up_to() is None
        outbox.append_many([message(n) for n in range(6)])
        outbox.mark_sent([1, 2, 3, 5, 6], hour(9))
        assert outbox.told_up_to() == 3
        assert outbox.count_old(hour(2), None, 9) == 2
        assert outbox.remove_old(hour(2), None, 1) == 1
        assert outbox.remove_old(hour(9), outbox.told_up_to(), 9) == 2
        assert [each.seq for each in outbox.read(0, 9)] == [4, 5, 6]
        assert outbox.remove_old(hour(99), None, 9) == 2
        assert outbox.remove_old(hour(99), None, 9) == 0
        outbox.append_many([message(7)])
        assert [each.seq for each in outbox.read(0, 9)] == [6, 7]
