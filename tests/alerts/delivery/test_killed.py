"""Workers that are killed at any moment: nothing is left out, repeats have one key, and entities keep their order."""

import random
import time
from datetime import timedelta

import pytest

from feed_assets.alerts.delivery import rounds
from feed_assets.alerts.delivery.rounds import deliver
from feed_assets.clock import SystemClock, TimeBudget
from feed_assets.sql.database import Database, open_database
from tests.alerts.delivery.samples import begin, message, tell, webhook
from tests.drills import drill_seed, sized
from tests.processes import PROCESSES
from tests.receivers import Receiver

pytestmark = pytest.mark.both_databases


ENTITIES = 7
MESSAGES = sized(60, 700)
KILLS = sized(2, 50)
HELD = timedelta(seconds=0.3)


def deliver_for_ever(database_url: str, url: str, number: int) -> None:
    """What a worker does until it is killed; a message at a time, so that a kill can come between any two steps."""
    rounds.HELD_FOR, rounds.MESSAGES_A_STEP = HELD, 5
    database, clock = open_database(database_url), SystemClock()
    while True:
        deliver(database, webhook(url), clock, TimeBudget.ample(), f"worker {number}")
        time.sleep(0.01)


@pytest.mark.sample
@pytest.mark.server
def test_after_kills_at_any_moment_every_message_has_arrived_in_order(
    database: Database, database_url: str, receiver: Receiver
) -> None:
    moments = random.Random(drill_seed())
    begin(database, webhook(receiver.url), clock=SystemClock())
    receiver.answer = lambda _: (time.sleep(0.01), 200)[1]
    told = 0
    for number in range(KILLS + 1):
        worker = PROCESSES.Process(target=deliver_for_ever, args=(database_url, receiver.url, number), daemon=True)
        worker.start()
        share = MESSAGES // (KILLS + 1)
        tell(database, *(message(f"p{n % ENTITIES}", n) for n in range(told, told + share)))
        told += share
        if number < KILLS:
            so_far = len(receiver.posts)
            wait_until(lambda so_far=so_far: len(receiver.posts) > so_far)
            time.sleep(moments.random() * 0.1)
        else:
            wait_until(lambda all_=told: len({each["idempotency_key"] for each in receiver.taken}) == all_)
        worker.kill()
        worker.join()
    first: dict[str, list[int]] = {}
    seen = set()
    for document in list(receiver.taken):
        if document["idempotency_key"] not in seen:
            seen.add(document["idempotency_key"])
            first.setdefault(document["payload"]["entityName"], []).append(document["seq"])
    assert len(seen) == told
    assert all(found == sorted(found) for found in first.values())


def wait_until(is_so: object, seconds: float = 60) -> None:
    """Wait for something that another process does."""
    assert callable(is_so)
    for _ in range(int(seconds * 100)):
        if is_so():
            return
        time.sleep(0.01)
    pytest.fail("it does not happen")
