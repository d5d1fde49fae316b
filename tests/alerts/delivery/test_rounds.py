"""Rounds against a real receiver: what is due is delivered, in order, whatever the receiver does."""

from datetime import timedelta
from itertools import groupby
from typing import Any

import pytest

from feed_assets.alerts.delivery.receivers import apply_receivers
from feed_assets.alerts.delivery.rounds import GIVE_UP_AFTER, deliver, find_due
from feed_assets.alerts.delivery.store import FORGOTTEN_AFTER, Deliveries, ReceiverStates
from feed_assets.clock import TimeBudget
from feed_assets.receivers import Channel, Topic
from feed_assets.sql.database import Database
from tests.alerts.delivery.samples import NOW, SetClock, begin, deliver_on, instance, message, tell, webhook
from tests.receivers import Post, Receiver

pytestmark = pytest.mark.both_databases


def keys(receiver: Receiver) -> list[str]:
    return [each["idempotency_key"] for each in receiver.taken]


def by_entity(documents: list[dict[str, Any]]) -> dict[str, list[int]]:
    """The numbers of messages of each entity, in the order in which they arrived."""
    ordered = sorted(documents, key=lambda each: each["payload"]["entityName"])
    return {
        name: [each["seq"] for each in found]
        for name, found in groupby(ordered, lambda each: each["payload"]["entityName"])
    }


def test_a_new_way_begins_with_the_next_message(database: Database, receiver: Receiver) -> None:
    clock, way = SetClock(), webhook(receiver.url)
    tell(database, message(n=0))
    begin(database, way, clock=clock)
    assert find_due(database, {way.name: way}, NOW) == []
    tell(database, message(n=1), message(n=2))
    assert find_due(database, {way.name: way}, NOW) == ["ops"]
    done = deliver_on(database, way, clock)
    assert (done.delivered, done.failed, done.dead, done.error) == (2, 0, 0, None)
    assert keys(receiver) == ["instance/daily/1", "instance/daily/2"]
    assert find_due(database, {way.name: way}, NOW) == []
    with database.read() as connection:
        assert ReceiverStates(connection).told_up_to() == 3


def test_a_way_gets_what_it_wants_and_is_moved_on_over_the_rest(database: Database, receiver: Receiver) -> None:
    clock, way = SetClock(), webhook(receiver.url, topics=frozenset({Topic.SLA}))
    begin(database, way, clock=clock)
    tell(database, *(message(n=n) for n in range(3)))
    assert find_due(database, {way.name: way}, NOW) == []
    with database.read() as connection:
        assert ReceiverStates(connection).all()["ops"].cursor == 3
    assert receiver.posts == []


def test_after_an_hour_away_all_messages_come_in_order_for_each_entity(database: Database, receiver: Receiver) -> None:
    clock, way = SetClock(), webhook(receiver.url)
    begin(database, way, clock=clock)
    receiver.die()
    sent = 0
    for minute in range(60):
        clock.at = NOW + timedelta(minutes=minute)
        tell(database, *(message(f"p{n % 5}", sent + n) for n in range(10)))
        sent += 10
        if find_due(database, {way.name: way}, clock.at):
            done = deliver_on(database, way, clock)
            assert done.is_away
            assert done.delivered == 0
            assert "nothing listens there" in (done.error or "")
    with database.read() as connection:
        state, counts = ReceiverStates(connection).all()["ops"], Deliveries(connection).counts()
    assert (state.tries, counts, state.down_since) == (6, {}, NOW)
    receiver.live()
    clock.advance(hours=1)
    assert deliver_on(database, way, clock).delivered == sent == 600
    assert by_entity(receiver.taken) == {f"p{n}": list(range(n + 1, 601, 5)) for n in range(5)}
    assert len(set(keys(receiver))) == 600


def test_a_message_that_is_not_taken_lets_only_its_entity_wait(database: Database, receiver: Receiver) -> None:
    clock, way = SetClock(), webhook(receiver.url)
    begin(database, way, clock=clock)

    def answer(post: Post) -> int:
        is_bad = post.document["idempotency_key"] == "instance/bad/1" and clock.at < NOW + timedelta(minutes=3)
        return 500 if is_bad else 200

    receiver.answer = answer
    for n in range(3):
        tell(database, message("bad", n), message("good", n))
    done = deliver_on(database, way, clock)
    assert (done.delivered, done.failed) == (4, 1)
    tell(database, message("bad", 3), message("good", 3))
    deliver_on(database, way, clock)
    assert by_entity(receiver.taken) == {"bad": [1], "good": [2, 4, 6, 8]}
    with database.read() as connection:
        assert Deliveries(connection).counts()["ops"].open == 3
        assert ReceiverStates(connection).told_up_to() == 2
    clock.advance(minutes=1)
    assert deliver_on(database, way, clock).failed == 1
    clock.advance(minutes=1)
    assert find_due(database, {way.name: way}, clock.at) == []
    clock.advance(minutes=1)
    assert find_due(database, {way.name: way}, clock.at) == ["ops"]
    deliver_on(database, way, clock)
    assert by_entity(receiver.taken) == {"bad": [1, 3, 5, 7], "good": [2, 4, 6, 8]}


@pytest.mark.parametrize(("status", "is_dead"), [(404, True), (400, True), (408, False), (500, False)])
def test_what_a_receiver_never_takes_is_a_dead_letter_at_once(
    database: Database, receiver: Receiver, status: int, is_dead: bool
) -> None:
    clock, way = SetClock(), webhook(receiver.url)
    begin(database, way, clock=clock)
    receiver.answer = lambda _: status
    tell(database, message())
    done = deliver_on(database, way, clock)
    assert (done.dead, done.failed) == ((1, 0) if is_dead else (0, 1))
    assert f"it answers {status}" in (done.error or "")
    with database.read() as connection:
        assert len(Deliveries(connection).dead(["ops"])) == int(is_dead)


@pytest.mark.parametrize("status", [429, 503])
def test_a_receiver_that_asks_for_patience_is_left_alone(database: Database, receiver: Receiver, status: int) -> None:
    clock, way = SetClock(), webhook(receiver.url)
    begin(database, way, clock=clock)
    receiver.answer = lambda _: status
    tell(database, *(message(f"p{n}") for n in range(50)))
    assert deliver_on(database, way, clock).is_away
    assert len(receiver.posts) <= 8
    assert find_due(database, {way.name: way}, clock.at) == []


def test_after_a_day_a_message_is_a_dead_letter_that_can_be_sent_again(database: Database, receiver: Receiver) -> None:
    clock, way = SetClock(), webhook(receiver.url)
    begin(database, way, clock=clock)
    tell(database, *(message(f"p{n}", n) for n in range(3)))
    receiver.die()
    while clock.at < NOW + GIVE_UP_AFTER:
        assert deliver_on(database, way, clock).dead == 0
        clock.advance(hours=1)
    assert deliver_on(database, way, clock).dead == 3
    receiver.live()
    clock.advance(hours=1)
    assert deliver_on(database, way, clock).delivered == 0
    with database.begin() as connection:
        dead = Deliveries(connection).dead()
        assert Deliveries(connection).revive("ops", [each.seq for each in dead], clock.at) == 3
    assert deliver_on(database, way, clock).delivered == 3
    assert len(keys(receiver)) == 3


def test_a_worker_that_dies_before_it_marks_sends_again_with_the_same_keys(
    database: Database, receiver: Receiver
) -> None:
    clock, way = SetClock(), webhook(receiver.url)
    begin(database, way, clock=clock)
    tell(database, *(message(n=n) for n in range(3)))

    class Killed(BaseException):
        pass

    class DyingClock(SetClock):
        def now(self) -> Any:
            if receiver.posts:  # sent, and not marked
                raise Killed
            return clock.at

    with pytest.raises(Killed):
        deliver(database, way, DyingClock(), TimeBudget.ample(), "a worker that dies")
    assert deliver_on(database, way, clock).delivered == 3
    assert keys(receiver) == [f"instance/daily/{n}" for n in (0, 1, 2)] * 2


def test_one_worker_delivers_on_a_way_until_it_falls_silent(database: Database, receiver: Receiver) -> None:
    clock, way = SetClock(), webhook(receiver.url)
    begin(database, way, clock=clock)
    tell(database, message())
    with database.begin() as connection:
        assert ReceiverStates(connection).claim("ops", "another", NOW, NOW + timedelta(minutes=2)) is not None
    assert deliver_on(database, way, clock).is_busy
    clock.advance(minutes=3)
    assert deliver_on(database, way, clock).delivered == 1


def test_a_way_that_nobody_declares_for_a_day_begins_anew(database: Database, receiver: Receiver) -> None:
    clock, way = SetClock(), webhook(receiver.url)
    begin(database, way, clock=clock)
    tell(database, message(n=0))
    clock.advance(hours=23)
    begin(database, way, clock=clock)
    assert find_due(database, {way.name: way}, clock.at) == ["ops"]
    clock.at += FORGOTTEN_AFTER + timedelta(hours=1)
    apply_receivers(database, {}, clock.at)
    with database.read() as connection:
        assert ReceiverStates(connection).all() == {}
        assert ReceiverStates(connection).told_up_to() is None
    begin(database, way, clock=clock)
    assert find_due(database, {way.name: way}, clock.at) == []


def test_an_entity_tells_nobody_of_each_evicted_path(database: Database, receiver: Receiver) -> None:
    from feed_assets.entities.common import Notification, Occasion
    from feed_assets.log.messages.payloads import InstanceOperation

    record = Notification(type=Channel.WEBHOOK, to=("operators",), on=(Occasion.SUCCESS,))
    clock = SetClock()
    way = webhook(receiver.url, is_chosen_only=True, chosen={("process", "daily"): record})
    begin(database, way, clock=clock)
    tell(database, message(n=0, operation=InstanceOperation.DELETE), message(n=1), message("other", 2))
    assert deliver_on(database, way, clock).delivered == 1
    assert keys(receiver) == ["instance/daily/1"]
    assert instance().subject == ("process", "daily")
