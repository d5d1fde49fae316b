"""An outage of two minutes is one failure, two messages, and over within a minute of its end."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from dagster import DagsterInstance
from sqlalchemy import Connection

from feed_assets.context.bulkheads import TickFailures, TickStep
from feed_assets.errors import NoAnswerError
from feed_assets.instances.arrival import polling
from feed_assets.log.messages.outbox import Outbox
from feed_assets.log.messages.payloads import HealthPayload
from feed_assets.receivers import Topic
from feed_assets.storage.errors import StorageAwayError
from feed_assets.storage.local.store import LocalStore
from tests.orchestration.dagster_home import Home
from tests.orchestration.hand_ticked import LocationHarness
from tests.orchestration.small import ENTITIES, START, key, land
from tests.orchestration.test_poisons import arrived, checks

EVENING = START + timedelta(hours=20, seconds=1)
TICK = timedelta(seconds=15)
MINUTE = timedelta(minutes=1)
OTHER = """
    ---
    kind: feed
    name: others
    frequency: hours(1)
    late_arrival: {cut_off: hours(9)}
    locations: {data: "/others/${YEAR}-${MONTH}-${DAY}/${HOUR}"}
    clusters: {here: {type: source, validity: {start: 2026-01-01T00:00Z, end: 2026-01-02T00:00Z}}}
"""


class Storage:
    """The filesystem of the cluster, which can be away."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.asked = 0

    def look(self, store: LocalStore, paths: list[str], flag: str | None) -> object:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return _look(store, paths, flag)


_look = LocalStore.look


@pytest.fixture
def storage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Storage]:
    storage = Storage()
    monkeypatch.setattr(LocalStore, "look", lambda *args: storage.look(*args))
    return storage


def messages(harness: LocationHarness) -> list[HealthPayload]:
    with harness.runtime.database(harness.instance).read() as connection:
        found = [each.payload for each in Outbox(connection).read(0, 99, Topic.HEALTH)]
    return [each for each in found if isinstance(each, HealthPayload)]


def failing(harness: LocationHarness) -> list[tuple[TickStep, str]]:
    with harness.runtime.database(harness.instance).read() as connection:
        return [(each.step, each.subject) for each in TickFailures(connection).all()]


@pytest.mark.parametrize("kind", ["hangs", "refuses"])
def test_an_outage_of_two_minutes_is_told_twice_and_is_over_within_a_minute(
    tmp_path: Path, instance: DagsterInstance, storage: Storage, kind: str
) -> None:
    harness = LocationHarness(Home(folder=tmp_path), instance, ENTITIES + OTHER)
    address = f"file://{harness.home.data}"

    def ticks(start: datetime, end: datetime) -> Iterator[tuple[datetime, object]]:
        moment = start
        while moment < end:
            harness.at(moment)
            yield moment, harness.tick()
            moment += TICK

    for _ in ticks(EVENING, EVENING + 2 * TICK):
        pass
    before = storage.asked
    storage.error = (
        NoAnswerError(endpoint=address, seconds=20)
        if kind == "hangs"
        else StorageAwayError(store=address, path="", reason="connection refused", next_step="Start it.")
    )
    begun = EVENING + timedelta(hours=1)
    told = [check for _, result in ticks(begun, begun + 2 * MINUTE) for check in checks(result)]
    (red,) = told
    assert str(red.metadata["failures"].value).startswith(f"- storage of {address} fails since 2026-01-01T21:00:01Z: ")
    assert str(red.metadata["failures"].value).count("\n") == 0
    assert failing(harness) == [(TickStep.STORAGE, address)]
    assert storage.asked - before < 30
    land(harness.home.data, 19, 1)

    storage.error, back, seen = None, begun + 2 * MINUTE, {}
    for moment, result in ticks(back, back + MINUTE):
        seen |= dict.fromkeys(("green" for check in checks(result) if check.passed), moment)
        seen |= dict.fromkeys((name for name in arrived(result) if name == ("numbers", key(19))), moment)
    assert [moment - back < MINUTE for moment in seen.values()] == [True, True]
    assert failing(harness) == []

    red_message, green_message = messages(harness)
    assert (red_message.count, green_message.count) == (1, 0)
    assert "next try" not in red_message.failing[0]
    (recovered,) = green_message.recovered
    assert recovered == f"storage of {address} works again after 2 minutes: it failed from 2026-01-01T21:00:01Z on"


def test_after_a_long_outage_an_address_is_asked_each_minute(
    tmp_path: Path, instance: DagsterInstance, storage: Storage
) -> None:
    harness = LocationHarness(Home(folder=tmp_path), instance, ENTITIES)
    address = f"file://{harness.home.data}"
    storage.error = NoAnswerError(endpoint=address, seconds=20)
    for hours in range(1, 10):
        harness.at(EVENING + timedelta(hours=hours))
        harness.tick()
    storage.error = None
    land(harness.home.data, 3, 1)
    harness.at(EVENING + timedelta(hours=9, minutes=1))
    harness.tick()
    harness.at(EVENING + timedelta(hours=9, minutes=1, seconds=5))
    assert ("numbers", key(3)) in arrived(harness.tick())


def test_an_address_that_fails_is_on_record_before_what_it_obstructs(
    tmp_path: Path, instance: DagsterInstance, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness, known = LocationHarness(Home(folder=tmp_path), instance), list[list[tuple[TickStep, str]]]()
    record = polling.record_poll_results

    def record_results(connection: Connection, seen: Sequence[polling.PollResult]) -> int:
        known.append(failing(harness))
        return record(connection, seen)

    monkeypatch.setattr(polling, "record_poll_results", record_results)
    storage.error = NoAnswerError(endpoint=f"file://{harness.home.data}", seconds=20)
    harness.tick()
    assert known[0] == [(TickStep.STORAGE, f"file://{harness.home.data}")]
