"""Runs of the real thing: each instance of a range is published, recorded and shown by itself."""

from pathlib import Path

import pytest
from dagster import AssetKey, DagsterRunStatus

from feed_assets.state.process_instances import ProcessInstances
from feed_assets.state.records import ProcessInstanceStatus
from tests.orchestration.dagster_home import Home, materialized, sqlite_state
from tests.orchestration.small import ENTITIES, JOBS, key, land, total

pytestmark = pytest.mark.spark

SELECT = ("asset", "materialize", "-f", "definitions.py", "--select", "here/sums")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(folder=tmp_path)
    made.prepare(ENTITIES, JOBS)
    return made


def test_one_failing_instance_of_a_range_takes_no_other_along(home: Home) -> None:
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
    done = home.run(*SELECT, "--partition-range", f"{key(0)}...{key(2)}")
    assert done.returncode == 1
    assert "unlucky hour" in done.stderr
    assert "The other 2 are published." in done.stderr
    with home.instance() as instance:
        assert materialized(instance, "here", "sums") == {key(0), key(2)}
        events = instance.fetch_materializations(AssetKey(["here", "sums"]), limit=10).records
        assert sorted(event.partition_key or "" for event in events) == [key(0), key(2)]
        (run,) = instance.get_runs()
        assert run.status is DagsterRunStatus.FAILURE
        told = events[0].asset_materialization
        assert told is not None
        metadata = told.metadata
        assert metadata["dagster/partition_row_count"].value == 1
        assert metadata["feed_assets/inputs"].value == {"numbers": 1}
        assert str(metadata["dagster/uri"].value).startswith("file://")
        assert (told.tags or {})["dagster/data_version"].startswith("sha256:")
    assert [total(home.data, hour) for hour in (0, 2)] == [3, 7]
    assert not (home.data / "sums" / "2026-01-01" / "01").exists()
    with sqlite_state(home).read() as connection:
        counts = ProcessInstances(connection).counts("summing", "here")
    assert counts == {ProcessInstanceStatus.SUCCEEDED: 2, ProcessInstanceStatus.FAILED: 1}


def test_a_run_by_hand_without_its_inputs_says_what_is_missing(home: Home) -> None:
    done = home.run(*SELECT, "--partition", key(5))
    assert done.returncode == 1
    assert f"numbers lacks file://{home.data}/numbers/2026-01-01/05. Land the data" in done.stderr


def test_a_partition_may_be_made_again_and_is_replaced_as_a_whole(home: Home) -> None:
    land(home.data, 0, 1, 2)
    assert home.run(*SELECT, "--partition", key(0)).returncode == 0
    assert total(home.data, 0) == 3
    land(home.data, 0, 10, 20)
    assert home.run(*SELECT, "--partition", key(0)).returncode == 0
    assert total(home.data, 0) == 30


def test_the_location_validates(home: Home) -> None:
    done = home.run("definitions", "validate", "-w", "workspace.yaml")
    assert done.returncode == 0, done.stderr
