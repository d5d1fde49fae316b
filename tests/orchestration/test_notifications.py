"""The sensor that delivers messages: what it says, whom it tells, and that a receiver that is away holds up no tick."""

from datetime import timedelta
from pathlib import Path

from dagster import DagsterInstance

from feed_assets.orchestration.sensors.building import run_notify_tick
from feed_assets.receivers import ReceiverSettings, Topic
from tests.instances.harness import FileEngine, no_session
from tests.orchestration.dagster_home import Home
from tests.orchestration.hand_ticked import NOON, LocationHarness
from tests.orchestration.small import START, land
from tests.orchestration.test_late_data import run
from tests.receivers import Receiver, _one_receiver, receiver

__all__ = ["FileEngine", "_one_receiver", "no_session", "receiver"]


def notified(folder: Path, instance: DagsterInstance, **urls: str) -> LocationHarness:
    """The small declaration with receivers of what its instances do."""
    harness = LocationHarness(Home(folder=folder), instance)
    notify = {name: ReceiverSettings(url=url, topics=(Topic.INSTANCE,)) for name, url in urls.items()}
    harness.settings = harness.settings.model_copy(update={"notify": notify})
    harness.reopen()
    return harness


def say(harness: LocationHarness) -> str:
    return run_notify_tick(harness.runtime, harness.layout, harness.instance).skip_message


def test_the_sensor_tells_who_answers_and_leaves_alone_who_does_not(
    tmp_path: Path, instance: DagsterInstance, receiver: Receiver
) -> None:
    harness = notified(tmp_path, instance, ops=receiver.url, away="http://127.0.0.1:9/none")
    assert say(harness) == "nothing to deliver"
    land(harness.home.data, 3, 1)
    harness.tick()
    run(harness)
    assert say(harness) == (
        "away: the receiver is away (127.0.0.1:9: nothing listens there: start it, or correct host and port); "
        "ops: 1 delivered"
    )
    (told,) = receiver.taken
    assert (told["payload"]["entityName"], told["payload"]["status"]) == ("summing", "SUCCEEDED")
    assert told["user_topic"] == "FALCON.summing"
    assert say(harness) == "nothing to deliver"
    harness.at(NOON + timedelta(minutes=1))
    assert say(harness).startswith("away: the receiver is away")
    assert len(receiver.posts) == 1
    assert START < NOON


def test_ticks_leave_the_ways_alone_on_which_another_one_delivers(tmp_path: Path, instance: DagsterInstance) -> None:
    harness = notified(tmp_path, instance)
    with harness.runtime.alone("notify"):
        assert say(harness) == "an earlier tick is still at work"
    assert say(harness) == "no receiver is declared"
