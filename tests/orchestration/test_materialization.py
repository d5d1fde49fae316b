"""Runs of Dagster: each instance of a range is published, recorded and shown by itself."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from textwrap import dedent

import pytest
from dagster import AssetKey, DagsterEventType, DagsterRunStatus, EventLogEntry
from pyspark.sql import SparkSession
from sqlalchemy.exc import OperationalError

from feed_assets.errors import MOST_CHARACTERS
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import Cause, FeedKey, ProcessInstance, ProcessInstanceStatus
from feed_assets.orchestration.runs import remaining
from feed_assets.testing.projects import failure_of
from feed_assets.timing.dates import render_datetime
from tests.log.samples import count_by_status
from tests.orchestration.dagster_home import Home, materialized, sqlite_state
from tests.orchestration.in_process import Materializer, materializer
from tests.orchestration.small import ENTITIES, JOBS, START, key, land, total


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(folder=tmp_path)
    made.prepare(ENTITIES, JOBS)
    (tmp_path / "feed_assets.yaml").write_text("server: {url: 'https://feeds.example.org'}\n")
    return made


@pytest.fixture
def made(home: Home, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[Materializer]:
    with home.instance() as instance, materializer(home, instance, spark, monkeypatch) as made:
        yield made


@pytest.mark.spark
def test_one_failing_instance_of_a_range_takes_no_other_along(home: Home, made: Materializer) -> None:
    land(home.data, 0, 1, 2)
    land(home.data, 1, 5)
    land(home.data, 2, 3, 4)
    (home.folder / "jobs_of_test.py").write_text(
        "from pyspark.sql import functions as f\n"
        "def summing(numbers, context):\n"
        "    if context.nominal_time.hour == 1:\n"
        "        raise RuntimeError('unlucky hour')\n"
        "    return numbers.agg(f.sum('n').alias('total'))\n"
    )
    done = made.run(key(0), key(2))
    assert not done.success
    assert "unlucky hour" in failure_of(done)
    assert "The other 2 are published." in failure_of(done)
    assert materialized(made.instance, "here", "sums") == {key(0), key(2)}
    events = made.instance.fetch_materializations(AssetKey(["here", "sums"]), limit=10).records
    assert sorted(event.partition_key or "" for event in events) == [key(0), key(2)]
    (run,) = made.instance.get_runs()
    assert run.status is DagsterRunStatus.FAILURE
    told = events[0].asset_materialization
    assert told is not None
    metadata = told.metadata
    assert metadata["dagster/partition_row_count"].value == 1
    assert metadata["feed_assets/inputs"].value == {"numbers": 1}
    assert str(metadata["dagster/uri"].value).startswith("file://")
    assert str(metadata["feed_assets/page"].value).startswith("https://feeds.example.org/ui/feed/sums/at/2026-01-01T0")
    assert (told.tags or {})["dagster/data_version"].startswith("sha256:")
    assert [total(home.data, hour) for hour in (0, 2)] == [3, 7]
    assert not (home.data / "sums" / "2026-01-01" / "01").exists()
    with sqlite_state(home).read() as connection:
        counts = count_by_status(connection, "summing", "here")
    assert counts == {ProcessInstanceStatus.SUCCEEDED: 2, ProcessInstanceStatus.FAILED: 1}


@pytest.mark.spark
def test_a_run_that_does_again_what_has_failed_keeps_what_has_succeeded_from_the_same_inputs(
    home: Home, made: Materializer
) -> None:
    for hour in range(4):
        land(home.data, hour, hour)
    job = (
        "from pyspark.sql import functions as f\n"
        "def summing(numbers, context):\n"
        "    assert context.nominal_time.hour != BAD, 'unlucky hour'\n"
        "    return numbers.agg(f.sum('n').alias('total'))\n"
    )
    (home.folder / "jobs_of_test.py").write_text(job.replace("BAD", "1"))
    assert made.run(key(0)).success
    first = made.run(key(0), key(3))
    assert not first.success
    land(home.data, 3, 30)
    with sqlite_state(home).begin() as connection:  # as a poll does that sees it
        instances = FeedInstances(connection)
        (row,) = instances.get_many([FeedKey("numbers", "here", START + timedelta(hours=3))]).values()
        instances.put([replace(row, manifest_digest="sha256:other")])
    (home.folder / "jobs_of_test.py").write_text(job.replace("BAD", "99"))
    sys.modules.pop("jobs_of_test", None)

    again = made.run(key(0), key(3), {"dagster/is_resume_retry": "true", "dagster/root_run_id": first.run_id})

    assert again.success
    assert [event.partition for event in again.asset_materializations_for_node("here__summing")] == [key(1), key(3)]
    assert [total(home.data, hour) for hour in range(4)] == [0, 1, 2, 30]
    said = [entry.user_message for entry in made.instance.all_logs(again.run_id)]
    kept = f"run {first.run_id} has made it, and its inputs and its release are the same"
    hours = [render_datetime(START + timedelta(hours=hour)) for hour in range(3)]
    assert [f"{hour} is kept: {kept}. 'Re-execute all' makes it anew" in said for hour in hours] == [
        True,
        False,
        True,
    ]
    all_again = made.run(key(0), key(1), {"dagster/root_run_id": first.run_id})
    assert len(all_again.asset_materializations_for_node("here__summing")) == 2


POISONS = """
import os, sys
from pyspark.sql import functions as f

class Speechless(Exception):
    def __str__(self):
        raise RuntimeError("speechless")

class Deadly(Exception):
    def __str__(self):
        sys.exit(1)

def summing(numbers, context):
    hour = context.nominal_time.hour
    if hour == 1:
        sys.exit(0)
    if hour == 2:
        raise KeyboardInterrupt
    if hour == 3:
        raise BaseException("base")
    if hour == 4:
        raise ValueError("long " * 2_000_000)
    if hour == 5:
        return 7
    if hour == 6:
        raise Speechless
    if hour == 7:
        raise GeneratorExit
    if hour == 8:
        raise Deadly
    return numbers.agg(f.sum("n").alias("total"))
"""


@pytest.mark.spark
def test_whatever_a_workflow_raises_or_returns_ends_its_own_instance(home: Home, made: Materializer) -> None:
    for hour in range(10):
        land(home.data, hour, hour)
    (home.folder / "jobs_of_test.py").write_text(POISONS)
    state = sqlite_state(home)
    state.migrate()
    died = ProcessInstance(
        process="summing",
        cluster="here",
        nominal_time=START,
        status=ProcessInstanceStatus.READY,
        updated_at=START,
        attempt=1,
        cause=Cause.RUN_LOST,
    )
    with state.begin() as connection:
        ProcessInstances(connection).add_waiting([died])
    done = made.run(key(0), key(9))
    assert not done.success
    assert "The other 2 are published." in failure_of(done)
    events = made.instance.fetch_materializations(AssetKey(["here", "sums"]), limit=10, ascending=True).records
    assert [event.partition_key for event in events] == [key(9), key(0)]  # what may end the process is done last
    with sqlite_state(home).read() as connection:
        instances = ProcessInstances(connection)
        assert count_by_status(connection, "summing", "here") == {
            ProcessInstanceStatus.SUCCEEDED: 2,
            ProcessInstanceStatus.FAILED: 8,
        }
        found = instances.find_between("summing", "here", START, START + timedelta(hours=9))
    reasons = {row.nominal_time.hour: row.reason or "" for row in found}
    wanted = ("SystemExit: 0", "KeyboardInterrupt", "BaseException: base", "ValueError: long long", "a builtins.int")
    for hour, reason in enumerate(wanted, start=1):
        assert reason in reasons[hour]
    assert "Deadly: its text cannot be read, because reading it raises SystemExit" in reasons[8]
    assert len(reasons[4]) <= MOST_CHARACTERS


@pytest.mark.spark
def test_a_run_gives_way_to_what_runs_again_and_ends_well(
    home: Home, made: Materializer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remaining, "SHORTEST_REST", 0.0)
    for hour in range(4):
        land(home.data, hour, hour)
    state, times = sqlite_state(home), [START + timedelta(hours=hour) for hour in range(4)]
    state.migrate()
    ready = ProcessInstance(
        process="summing", cluster="here", nominal_time=START, status=ProcessInstanceStatus.READY, updated_at=START
    )
    requested = [replace(ready, nominal_time=time, request_key="r", requested_at=START) for time in times[:3]]
    failed = replace(ready, nominal_time=times[3], attempt=1, cause=Cause.RETRY, ready_at=times[1])
    with state.begin() as connection:
        ProcessInstances(connection).add_waiting([*requested, failed])
    assert made.run(key(0), key(2), {"feed_assets/request": "r"}).success
    assert materialized(made.instance, "here", "sums") == {key(0)}
    with state.read() as connection:
        rows = ProcessInstances(connection).find_between("summing", "here", times[1], times[3])
    assert {(row.status, row.request_key) for row in rows} == {(ProcessInstanceStatus.READY, None)}
    (run,) = made.instance.get_runs()
    assert run.status is DagsterRunStatus.SUCCESS
    said = [entry.user_message for entry in made.instance.all_logs(run.run_id)]
    assert (
        "2026-01-01T03:00Z is ready, and has run before: it goes first (FIFO). 2 instances of this run "
        "(2026-01-01T01:00Z to 2026-01-01T02:00Z) are READY again"
    ) in said


@pytest.mark.spark
def test_a_storage_of_dagster_that_is_away_fails_no_work(
    home: Home, made: Materializer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line of the log that cannot be kept is no matter; a publication that cannot be told is repeated."""
    for hour in (0, 1):
        land(home.data, hour, hour)
    storage = type(made.instance.event_log_storage)
    store = storage.store_event
    refused = [key(1)]

    def away(self: object, event: EventLogEntry) -> None:
        told = event.dagster_event
        is_line = told is None or "Exception while writing" in (told.message or "")
        is_publication = told is not None and told.event_type is DagsterEventType.ASSET_MATERIALIZATION
        if is_line or (is_publication and told.partition in refused):
            raise OperationalError("INSERT", {}, Exception("server closed the connection"))
        store(self, event)  # type: ignore[arg-type]

    monkeypatch.setattr(storage, "store_event", away)
    done = made.run(key(0), key(1))
    assert "a publication could not be reported" in failure_of(done)
    assert materialized(made.instance, "here", "sums") == {key(0)}
    with sqlite_state(home).read() as connection:
        found = ProcessInstances(connection).find_between("summing", "here", START, START + timedelta(hours=1))
    assert [row.status for row in found] == [ProcessInstanceStatus.SUCCEEDED, ProcessInstanceStatus.RUNNING]
    assert [total(home.data, hour) for hour in (0, 1)] == [0, 1]
    refused.clear()
    assert made.run(key(1)).success


@pytest.mark.spark
def test_a_run_by_hand_without_its_inputs_says_what_is_missing(home: Home, made: Materializer) -> None:
    land(home.data, 4, 1)
    done = made.run(key(4), key(5))
    assert not done.success
    lacks = f"numbers lacks file://{home.data}/numbers/2026-01-01/05 (external: others deliver it). Nothing was begun:"
    assert lacks in failure_of(done)
    assert "The other 1 are published." in failure_of(done)
    with sqlite_state(home).read() as connection:
        counts = count_by_status(connection, "summing", "here")
    assert counts == {ProcessInstanceStatus.SUCCEEDED: 1}


@pytest.mark.spark
def test_a_partition_may_be_made_again_and_is_replaced_as_a_whole(home: Home, made: Materializer) -> None:
    land(home.data, 0, 1, 2)
    assert made.run(key(0)).success
    assert total(home.data, 0) == 3
    land(home.data, 0, 10, 20)
    assert made.run(key(0)).success
    assert total(home.data, 0) == 30


@pytest.mark.daemon
def test_the_location_validates(home: Home) -> None:
    done = home.run("definitions", "validate", "-w", "workspace.yaml")
    assert done.returncode == 0, done.stderr


_SUMS = 'sums: {feed: sums, instance: "now(0,0)"}'
_STRAYS = 'strays: {feed: strays, instance: "now(0,0)", optional: true}'
STRAYS = (
    ENTITIES.replace(_SUMS, f"{_SUMS}, {_STRAYS}")
    + """
    ---
    kind: feed
    name: strays
    frequency: hours(1)
    format: csv
    locations: {data: "/strays/${YEAR}-${MONTH}-${DAY}/${HOUR}"}
    clusters: {here: {validity: {start: 2026-01-01T00:00Z, end: 2026-01-02T00:00Z}}}
    ---
    kind: process
    name: telling
    frequency: hours(1)
    clusters: {here: {validity: {start: 2026-01-01T00:00Z, end: 2026-01-02T00:00Z}}}
    inputs: {strays: {feed: strays, start: "now(0,0)", end: "now(0,0)"}}
    workflow: {engine: python, path: "jobs_of_test:telling"}
"""
)

KEEPING = """
    from pyspark.sql import functions as f

    def summing(numbers):
        sums = numbers.agg(f.sum("n").alias("total"))
        strays = numbers.where("n < 0")
        return {"sums": sums, "strays": None if strays.isEmpty() else strays}

    def telling(strays):
        strays.show()
"""


@pytest.mark.spark
def test_af_64_no_materialization_of_an_output_left_out_and_what_reads_it_is_skipped(
    home: Home, made: Materializer
) -> None:
    (home.folder / "entities" / "all.yaml").write_text(dedent(STRAYS))
    (home.folder / "jobs_of_test.py").write_text(dedent(KEEPING))
    land(home.data, 0, 1)
    land(home.data, 1, -1)
    land(home.data, 2, 1)
    assets = ("sums", "strays", "telling")

    done = made.run(key(0), assets=assets)

    assert done.success
    steps = {event.step_key for event in done.all_events if event.is_step_skipped}
    assert steps == {"here__telling"}
    assert materialized(made.instance, "here", "strays") == set()
    assert made.run(key(1), key(2), assets=("sums", "strays")).success
    assert materialized(made.instance, "here", "sums") == {key(0), key(1), key(2)}
    assert materialized(made.instance, "here", "strays") == {key(1)}
