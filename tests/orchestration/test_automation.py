"""An automation condition and a sensor of ours ask for the same instances: each is made once."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path
from threading import Barrier

import pytest
from dagster import AssetKey, DagsterInstance
from pyspark.sql import SparkSession

from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import ProcessInstanceStatus
from feed_assets.orchestration import names
from feed_assets.orchestration.runs.remaining import Remaining
from feed_assets.releases.timeline import ReleaseTimeline
from feed_assets.testing.projects import failure_of
from tests.orchestration.dagster_home import Home
from tests.orchestration.hand_ticked import LocationHarness
from tests.orchestration.in_process import Materializer, materializer
from tests.orchestration.small import ENTITIES, START, key, land

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:.* is currently in beta"),  # definitions silence it, but not in two threads
]

AUTOMATED = {names.TAG_AUTOMATED: "true"}
HOURS = 3
LAST = START + timedelta(hours=HOURS - 1)


@pytest.fixture(params=[1, 2], ids=["one at a time", "two at once"])
def harness(request: pytest.FixtureRequest, tmp_path: Path, instance: DagsterInstance) -> LocationHarness:
    """The small declaration, whose pool lets one run work, or two at once."""
    entities = ENTITIES.replace("timeout: months(60)", f"parallel: {request.param}\n    timeout: months(60)")
    made = LocationHarness(Home(folder=tmp_path), instance, entities)
    for hour in range(HOURS):
        land(made.home.data, hour, hour)
    return made


@pytest.fixture
def made(harness: LocationHarness, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[Materializer]:
    with materializer(harness.home, harness.instance, spark, monkeypatch) as made:
        yield made


def attempts(harness: LocationHarness) -> list[tuple[ProcessInstanceStatus, int]]:
    with harness.runtime.database(harness.instance).read() as connection:
        rows = ProcessInstances(connection).find_between("summing", "here", START, LAST)
    return [(row.status, row.attempt) for row in rows]


def publications(harness: LocationHarness) -> list[str]:
    found = harness.instance.fetch_materializations(AssetKey(["here", "sums"]), limit=100).records
    return sorted(event.partition_key or "" for event in found)


def test_a_condition_and_a_sensor_that_ask_at_the_same_moment_get_each_instance_once(
    harness: LocationHarness, made: Materializer
) -> None:
    asked = [*(harness.tick().run_requests or ())]
    runs: list[tuple[str, str | None, dict[str, str]]] = [(key(0), key(HOURS - 1), AUTOMATED)]
    for each in asked:
        tags = dict(each.tags)
        runs.append((each.partition_key or tags[names.RANGE_START], tags.get(names.RANGE_END), tags))
    start = Barrier(len(runs))

    def work(first: str, last: str | None, tags: dict[str, str]) -> str:
        start.wait()
        return failure_of(made.run(first, last, tags))

    with ThreadPoolExecutor(len(runs)) as pool:
        told = [run.result() for run in [pool.submit(work, *run) for run in runs]]
    assert attempts(harness) == [(ProcessInstanceStatus.SUCCEEDED, 1)] * HOURS
    assert publications(harness) == [key(hour) for hour in range(HOURS)]
    assert all("LeaseHeldError" in text for text in told if text), told


@pytest.mark.parametrize("harness", [2], ids=["two at once"], indirect=True)
def test_what_another_run_makes_after_a_run_has_looked_is_not_made_again(
    harness: LocationHarness, made: Materializer, monkeypatch: pytest.MonkeyPatch
) -> None:
    (request, *_) = harness.tick().run_requests or ()
    first = request.partition_key or dict(request.tags)[names.RANGE_START]
    last = dict(request.tags).get(names.RANGE_END)
    looked: list[datetime] = []
    is_needed = Remaining.is_needed

    def overtaken(remaining: Remaining, timeline: ReleaseTimeline, nominal_time: datetime) -> bool:
        needed = is_needed(remaining, timeline, nominal_time)
        if not looked:
            looked.append(nominal_time)
            with ThreadPoolExecutor(1) as pool:  # Dagster knows one run in a thread
                assert failure_of(pool.submit(made.run, key(0), key(HOURS - 1), AUTOMATED).result()) == ""
        return needed

    monkeypatch.setattr(Remaining, "is_needed", overtaken)
    assert failure_of(made.run(first, last, dict(request.tags))) == ""
    assert looked
    assert attempts(harness) == [(ProcessInstanceStatus.SUCCEEDED, 1)] * HOURS
