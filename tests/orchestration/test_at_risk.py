"""The sensor for deadlines warns of what will probably be late."""

from datetime import timedelta
from pathlib import Path

from dagster import DagsterInstance

from feed_assets.instances.arrival.recording import record_arrival
from feed_assets.instances.gates.plan_changes import apply_plan
from feed_assets.log.messages.outbox import Outbox
from feed_assets.log.messages.payloads import SlaPayload
from feed_assets.log.records import FeedEventKind, NewFeedEvent
from feed_assets.orchestration.sensors.deadlines import run_sla_tick
from feed_assets.receivers import Topic
from tests.orchestration.dagster_home import Home
from tests.orchestration.hand_ticked import LocationHarness
from tests.orchestration.small import ENTITIES, START

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
WARNING = ENTITIES.replace(
    "    name: numbers\n", "    name: numbers\n    sla: {low: hours(2), high: hours(9), warn_at: 0.7}\n"
).replace("end: 2026-01-02", "end: 2026-01-09")


def look(harness: LocationHarness, after: timedelta, *, arrivals: bool = True) -> str:
    """Tick the sensors at a time; return what the one for deadlines says."""
    harness.at(START + after)
    if arrivals:
        harness.tick()
    return run_sla_tick(harness.runtime, harness.layout, "here", harness.instance).skip_message or ""


def test_a_probable_miss_is_told_in_the_tick_that_finds_it(tmp_path: Path, instance: DagsterInstance) -> None:
    harness = LocationHarness(Home(folder=tmp_path), instance, WARNING)
    look(harness, 30 * MINUTE)
    database = harness.runtime.database(instance)
    with database.begin() as connection:
        for n in range(30):  # one hour in three is three hours late
            time = START + n * HOUR
            came = NewFeedEvent(
                feed="numbers",
                cluster="here",
                nominal_time=time,
                kind=FeedEventKind.ARRIVED,
                origin="a test",
                recorded_at=time + (10 * MINUTE if n % 3 else 3 * HOUR),
            )
            record_arrival(connection, came)
    assert look(harness, 30 * HOUR + MINUTE) == "10 late meanwhile"
    assert look(harness, 31 * HOUR, arrivals=False).startswith("no deadline has passed; arrivals have been looked for")
    assert look(harness, 31 * HOUR) == "1 at risk"
    assert look(harness, 31 * HOUR + MINUTE) == "no deadline has passed"
    with database.read() as connection:
        (message,) = Outbox(connection).read(0, 9, Topic.SLA)
    assert isinstance(message.payload, SlaPayload)
    assert message.payload.instances == ("2026-01-02T06:00Z",)
    assert message.payload.level == "warning"


def test_before_arrivals_have_been_looked_for_nothing_is_judged(tmp_path: Path, instance: DagsterInstance) -> None:
    """Else the deadlines would be those of all of history."""
    harness = LocationHarness(Home(folder=tmp_path), instance, WARNING)
    harness.at(START + 30 * HOUR)
    database = harness.runtime.database(instance)
    apply_plan(database, harness.runtime.timeline(), START + 30 * HOUR)
    assert look(harness, 30 * HOUR, arrivals=False).startswith("arrivals have not been looked for yet")
    assert "missed" not in look(harness, 30 * HOUR + MINUTE)
