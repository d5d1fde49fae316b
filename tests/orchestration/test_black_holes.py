"""Services that accept and never answer: a tick waits for each of them once, and its other feeds go on."""

import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from threading import Thread

import pytest
from dagster import DagsterInstance, RunRequest, SensorResult

from feed_assets.clock import FrozenClock, Stopwatch
from feed_assets.context.bulkheads import TickFailures, TickStep
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import ProcessInstanceStatus, ProcessKey
from feed_assets.patience import Patience
from tests.orchestration.dagster_home import Home
from tests.orchestration.hand_ticked import NOON, LocationHarness
from tests.orchestration.small import ENTITIES, START, key, land
from tests.orchestration.test_poisons import arrived, assert_told, checks
from tests.orchestration.test_retention import evicted, execute, look
from tests.servers import free_port

SECONDS = 1.0
VALID = "validity: {start: 2026-01-01T00:00Z, end: 2026-01-02T00:00Z}"


@pytest.fixture
def hole() -> Iterator[int]:
    """The port of a server that accepts and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


def with_ten_feeds(data: Path, port: int) -> str:
    """The cluster is on S3 at the given port, with ten feeds in as many buckets; the usual feeds are in a folder."""
    options = f'{{endpoint_url: "http://127.0.0.1:{port}", key: a, secret: "${{env:PATH}}"}}'
    storage = f'storage: "s3://bucket"\n    storage_options: {options}'
    usual = ENTITIES.replace("storage: file://${DATA_ROOT}", storage)
    for name in ("numbers", "sums"):
        usual = usual.replace(f'"/{name}/', f'"file://{data}/{name}/')
    return usual + "".join(
        f"""
    ---
    kind: feed
    name: swallowed-{number}
    frequency: hours(1)
    locations: {{data: "s3://bucket-{number}/${{YEAR}}-${{MONTH}}-${{DAY}}/${{HOUR}}"}}
    clusters: {{here: {{type: source, {VALID}}}}}
"""
        for number in range(10)
    )


WITH_BUCKET = """
    kind: feed
    name: swallowed
    frequency: hours(1)
    locations: {data: "s3://bucket/${YEAR}-${MONTH}-${DAY}/${HOUR}"}
    clusters: {here: {type: source, validity: {start: 2026-01-01T00:00Z, end: 2026-01-02T00:00Z}}}
"""
WITH_METASTORE = """
    ---
    kind: feed
    name: swallowed
    frequency: hours(1)
    table: "catalog:web:clicks#ds=${YEAR}-${MONTH}-${DAY};hour=${HOUR}"
    clusters: {here: {type: source, validity: {start: 2026-01-01T00:00Z, end: 2026-01-02T00:00Z}}}
"""


def failing(harness: LocationHarness) -> list[tuple[TickStep, str]]:
    with harness.runtime.database(harness.instance).read() as connection:
        return [(each.step, each.subject) for each in TickFailures(connection).all()]


def tries(harness: LocationHarness) -> int:
    """How often storage has been asked in vain."""
    with harness.runtime.database(harness.instance).read() as connection:
        (failure,) = TickFailures(connection).all()
    return failure.failures


def test_a_retention_run_leaves_out_the_feed_on_an_address_that_never_answers(
    tmp_path: Path, instance: DagsterInstance, hole: int
) -> None:
    keeping = "end: 2026-01-02T00:00Z}, retention: {limit: hours(6)}}}"
    entities = "---".join([*with_ten_feeds(tmp_path / "data", hole).split("---")[:2], WITH_BUCKET])
    harness = LocationHarness(Home(folder=tmp_path), instance, entities.replace("end: 2026-01-02T00:00Z}}}", keeping))
    harness.runtime.settings = harness.runtime.settings.model_copy(update={"tick_patience": SECONDS})
    for hour in range(10):
        land(harness.home.data, hour, hour)
    harness.tick()
    assert isinstance(look(harness), RunRequest)
    watch = Stopwatch()
    assert execute(harness).success
    assert watch.seconds < 60 * SECONDS
    assert evicted(harness) == list(range(7))
    with harness.runtime.database(harness.instance).read() as connection:
        told = {each.subject: each.reason for each in TickFailures(connection).all() if each.step is TickStep.RETENTION}
    assert list(told) == ["swallowed"]
    assert told["swallowed"].startswith(f"http://127.0.0.1:{hole}: it has not answered within 1 seconds.")


def tick(harness: LocationHarness, hour: int) -> tuple[float, SensorResult]:
    """A tick in which an hour of the good feed arrives, and its seconds."""
    land(harness.home.data, hour, 1)
    harness.runtime.clock = FrozenClock(NOON + timedelta(hours=hour))  # the real clock stands
    watch = Stopwatch()
    result = harness.tick()
    seconds = watch.seconds
    assert ("numbers", key(hour)) in arrived(result)
    assert key(hour) in [request.partition_key for request in result.run_requests or ()]
    return seconds, result


def patient_harness(tmp_path: Path, instance: DagsterInstance, entities: str) -> LocationHarness:
    several = entities.replace("timeout: months(60)", "timeout: months(60)\n    parallel: 3")
    harness = LocationHarness(Home(folder=tmp_path), instance, several)
    harness.runtime.patience = Patience(SECONDS)
    return harness


def test_ten_feeds_on_an_address_that_never_answers_take_one_time_out(
    tmp_path: Path, instance: DagsterInstance, hole: int
) -> None:
    harness = patient_harness(tmp_path, instance, with_ten_feeds(tmp_path / "data", hole))
    seconds, told = tick(harness, 3)
    assert SECONDS <= seconds < 10 * SECONDS, "not one time-out for each"
    assert (TickStep.STORAGE, f"http://127.0.0.1:{hole}") in failing(harness)
    assert_told(told, f"storage of http://127.0.0.1:{hole}", "has not answered within 1 seconds")

    _, told = tick(harness, 4)  # its next try is not due
    assert not checks(told)
    assert tries(harness) == 1


def test_a_metastore_that_never_answers_is_waited_for_once(
    tmp_path: Path, instance: DagsterInstance, hole: int
) -> None:
    storage = f"storage: file://${{DATA_ROOT}}\n    catalog: thrift://127.0.0.1:{hole}"
    harness = patient_harness(
        tmp_path, instance, ENTITIES.replace("storage: file://${DATA_ROOT}", storage) + WITH_METASTORE
    )
    seconds, told = tick(harness, 3)
    assert SECONDS <= seconds < 30 * SECONDS
    assert_told(told, f"storage of thrift://127.0.0.1:{hole}", "has not answered within 1 seconds")
    tick(harness, 4)
    assert tries(harness) == 1


def start_of_run_that_died(harness: LocationHarness, hour: int) -> None:
    """An instance that is recorded as RUNNING, whose run Dagster does not know any more."""
    with harness.runtime.database(harness.instance).begin() as connection:
        died = ProcessKey("summing", "here", START + timedelta(hours=hour))
        running = {"status": ProcessInstanceStatus.RUNNING, "attempt": 1, "run_id": "5f0c5b5e-died"}
        assert ProcessInstances(connection).transition(died, {ProcessInstanceStatus.READY}, **running)


def refuse(listening: socket.socket) -> None:
    """Accept and hang up."""
    with suppress(OSError):
        while True:
            listening.accept()[0].close()


@pytest.mark.parametrize("server", ["away", "refusing", "silent"])
def test_a_connect_server_that_is_gone_keeps_nothing_from_being_looked_at_and_requested(
    tmp_path: Path, instance: DagsterInstance, hole: int, server: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as refusing:
        port = {"away": free_port(), "refusing": refusing.getsockname()[1], "silent": hole}[server]
        Thread(target=refuse, args=(refusing,), daemon=True).start()
        remote = f'spark: {{remote: "sc://127.0.0.1:{port}"}}'
        entities = re.sub("spark: {master.*", remote, ENTITIES)
        harness = patient_harness(tmp_path, instance, entities)
        tick(harness, 3)
        start_of_run_that_died(harness, 3)
        seconds, told = tick(harness, 4)
        assert seconds < 30 * SECONDS
        assert failing(harness) == [(TickStep.SPARK, f"sc://127.0.0.1:{port}")]
        assert_told(told, f"Spark of sc://127.0.0.1:{port} fails")
        refusing.shutdown(socket.SHUT_RDWR)
