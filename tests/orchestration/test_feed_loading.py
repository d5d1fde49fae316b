"""Users' assets read feeds: by a function and by the IO manager, on partitions and ranges, without Java and with it."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import pyarrow as pa
import pytest
from dagster import AssetExecutionContext, AssetKey, DagsterInstance, PartitionKeyRange
from pyspark.sql import SparkSession
from upath import UPath

import feed_assets
from feed_assets import InstanceNotThereError, load_instance, locate_instance
from feed_assets.context.errors import InstanceQueryError
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.records import FeedInstance, FeedInstanceStatus
from feed_assets.orchestration.definitions import build_assets, build_definitions, build_io_manager
from feed_assets.orchestration.errors import PartitionKeyError
from feed_assets.testing.projects import failure_of
from tests.orchestration.dagster_home import Home
from tests.orchestration.hand_ticked import LocationHarness
from tests.orchestration.small import START, key, land

pytestmark = pytest.mark.filterwarnings("ignore::dagster.BetaWarning")

HOURLY = dg.HourlyPartitionsDefinition("2026-01-01-00:00", end_date="2026-01-02-00:00")
NUMBERS = AssetKey(["here", "numbers"])


@pytest.fixture
def home(harness: LocationHarness) -> Home:
    """Three hours of numbers have landed; no tick has seen them."""
    for hour in range(3):
        land(harness.home.data, hour, hour, 10 + hour)
    return harness.home


@pytest.fixture
def feeds(harness: LocationHarness, home: Home) -> dg.Definitions:
    return build_definitions(settings=harness.settings)


def run(feeds: dg.Definitions, instance: DagsterInstance, asset: Any, *hours: int, **resources: Any) -> Any:
    """A run of a user's asset for an hour, for a range of them, or without a partition, as a worker does it."""
    given = dg.Definitions(assets=[asset], resources=resources)
    merged = dg.Definitions.merge(feeds, given)
    first, last = (key(hours[0]), key(hours[-1])) if hours else (None, None)
    tags = (
        {}
        if len(hours) < 2
        else {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}
    )
    return merged.resolve_implicit_global_asset_job_def().execute_in_process(
        asset_selection=[asset.key],
        partition_key=first if len(hours) < 2 else None,
        tags=tags,
        instance=instance,
        raise_on_error=False,
    )


def test_the_io_manager_loads_what_the_parameter_is(feeds: dg.Definitions, instance: DagsterInstance) -> None:
    def annotated(kind: Any) -> Any:
        def report(numbers: kind) -> dg.MaterializeResult[None]:  # type: ignore[valid-type]
            return dg.MaterializeResult(metadata={"saw": show(numbers)})

        return dg.asset(
            partitions_def=HOURLY,
            backfill_policy=dg.BackfillPolicy.single_run(),
            ins={"numbers": dg.AssetIn(NUMBERS, input_manager_key="feed_io_manager")},
        )(report)

    def saw(result: Any) -> str:
        assert result.success, failure_of(result)
        (event,) = result.get_asset_materialization_events()[:1]
        return str(event.materialization.metadata["saw"].value)

    assert saw(run(feeds, instance, annotated(pd.DataFrame), 1)) == "pandas [1, 11]"
    assert saw(run(feeds, instance, annotated(pa.Table), 1)) == "arrow [1, 11]"
    assert saw(run(feeds, instance, annotated(pd.DataFrame), 0, 2)) == "pandas [0, 10, 1, 11, 2, 12]"
    assert saw(run(feeds, instance, annotated(Path), 1)).endswith("/numbers/2026-01-01/01 path")
    assert saw(run(feeds, instance, annotated(str), 1)).startswith("file://")


def test_an_asset_without_partitions_loads_the_instances_that_it_names(
    feeds: dg.Definitions, instance: DagsterInstance
) -> None:
    @dg.asset(deps=[NUMBERS])
    def report(context: AssetExecutionContext) -> dg.MaterializeResult[None]:
        read = load_instance(context, "numbers", [key(0), key(2)], as_="pandas")
        return dg.MaterializeResult(metadata={"saw": show(read)})

    result = run(feeds, instance, report)
    assert result.success, failure_of(result)
    (event,) = result.get_asset_materialization_events()
    assert (event.materialization.metadata["saw"].value, event.partition) == ("pandas [0, 10, 2, 12]", None)


def show(value: Any) -> str:
    match value:
        case pd.DataFrame():
            return f"pandas {value['n'].tolist()}"
        case pa.Table():
            return f"arrow {value['n'].to_pylist()}"
        case Path():
            return f"{value} path"
        case _:
            return str(value)


def test_an_asset_with_deps_loads_its_mapped_partition(feeds: dg.Definitions, instance: DagsterInstance) -> None:
    before = dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)
    seen: list[list[int]] = []

    @dg.asset(partitions_def=HOURLY, deps=[dg.AssetDep(NUMBERS, partition_mapping=before)])
    def report(context: AssetExecutionContext) -> None:
        seen.append(load_instance(context, "numbers", as_="pandas")["n"].tolist())
        seen.append(load_instance(context, "numbers", key(2), as_="arrow")["n"].to_pylist())

    result = run(feeds, instance, report, 1)
    assert result.success, failure_of(result)
    assert seen == [[0, 10], [2, 12]]


def test_a_notebook_loads_by_definitions_or_by_the_settings(
    feeds: dg.Definitions, harness: LocationHarness, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DagsterInstance, "get", lambda: instance)
    assert load_instance(feeds, "numbers", key(1), as_="pandas")["n"].tolist() == [1, 11]
    hours = PartitionKeyRange(key(0), key(2))
    assert load_instance(feeds, "numbers", hours, as_="arrow").schema == pa.schema([("n", pa.int32())])
    assert len(load_instance(feeds, "numbers", [START, "2026-01-01T02:00Z"], as_="paths")) == 2
    path = load_instance(feeds, "numbers", START, as_="path")
    assert isinstance(path, UPath)
    assert (path / "part.csv").read_text() == "n\n0\n10\n"
    assert locate_instance(feeds, "sums", START) == harness.home.data / "sums" / "2026-01-01" / "00"
    monkeypatch.chdir(harness.home.folder)
    monkeypatch.setenv("FEED_ASSETS_VARIABLES__DATA_ROOT", str(harness.home.data))
    assert feed_assets.load_instance(None, "numbers", key(1), as_="pandas")["n"].tolist() == [1, 11]


def test_what_cannot_be_loaded_is_said(
    feeds: dg.Definitions, harness: LocationHarness, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DagsterInstance, "get", lambda: instance)
    harness.runtime.database(instance)

    def refused(hour: int, feed: str = "numbers") -> InstanceNotThereError:
        with pytest.raises(InstanceNotThereError) as caught:
            load_instance(feeds, feed, key(hour))
        return caught.value

    harness.tick()
    missing = refused(5)
    assert missing.status is FeedInstanceStatus.MISSING
    assert "numbers/2026-01-01/05 did not exist" in str(missing)
    assert "tells: feed-assets why numbers 2026-01-01T05:00Z --kind feed --cluster here" in str(missing)
    (harness.home.data / "numbers" / "2026-01-01" / "06").mkdir()
    harness.at(START + timedelta(days=3))
    harness.tick()
    partial = refused(6)
    assert partial.status is FeedInstanceStatus.PARTIAL
    assert "lacked its flag _SUCCESS" in str(partial)
    (harness.home.data / "numbers" / "2026-01-01" / "01" / "_SUCCESS").unlink()
    assert "it has arrived, but" in str(refused(1))
    with harness.runtime.database(instance).begin() as connection:
        time = START + timedelta(hours=2)
        evicted = FeedInstanceStatus.EVICTED
        FeedInstances(connection).put(
            [FeedInstance(feed="numbers", cluster="here", nominal_time=time, status=evicted, updated_at=START)]
        )
    assert refused(2).status is evicted
    assert "it has not been produced" in str(refused(0, "sums"))
    with pytest.raises(PartitionKeyError, match="partition '2027-01-01-00:00' is not an instance of"):
        load_instance(feeds, "numbers", "2027-01-01-00:00")
    with pytest.raises(InstanceQueryError, match="nothing says which instance is meant"):
        load_instance(feeds, "numbers")
    with pytest.raises(InstanceQueryError, match="2 instances have no single path"):
        load_instance(feeds, "numbers", [key(0), START], as_="path")


def test_an_asset_that_returns_a_feed_is_told_what_to_do(feeds: dg.Definitions, instance: DagsterInstance) -> None:
    @dg.asset(partitions_def=HOURLY, io_manager_key="feed_io_manager")
    def made() -> int:
        return 1

    result = run(feeds, instance, made, 1)
    assert "the IO manager of feeds only reads. Write the data to the path of" in failure_of(result)
    assert "name the asset at the feed: produced_by: {asset: [made]}" in failure_of(result)


def test_an_asset_beside_assets_alone_reads_a_feed_by_an_io_manager_of_its_own(
    harness: LocationHarness, home: Home, instance: DagsterInstance
) -> None:
    @dg.asset(
        partitions_def=HOURLY,
        ins={"numbers": dg.AssetIn(NUMBERS, input_manager_key="feed_io_manager")},
    )
    def report(numbers: pd.DataFrame) -> dg.MaterializeResult[None]:
        return dg.MaterializeResult(metadata={"saw": show(numbers)})

    manager = build_io_manager(settings=harness.settings)
    beside = dg.Definitions(
        assets=build_assets(settings=harness.settings),
        resources={"feed_io_manager": manager},
        executor=dg.in_process_executor,
    )
    result = run(beside, instance, report, 1)
    assert result.success, failure_of(result)
    (event,) = result.get_asset_materialization_events()
    assert event.materialization.metadata["saw"].value == "pandas [1, 11]"


@pytest.mark.spark
def test_where_there_is_a_session_spark_reads(
    feeds: dg.Definitions, instance: DagsterInstance, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DagsterInstance, "get", lambda: instance)
    frame = load_instance(feeds, "numbers", PartitionKeyRange(key(0), key(1)))
    assert sorted(row["n"] for row in frame.collect()) == [0, 1, 10, 11]
    assert sorted(load_instance(feeds, "numbers", key(2), as_="pandas")["n"]) == [2, 12]
