"""Feeds that are tables, through the whole life of their instances, on a real metastore and without Spark."""

import itertools
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from feed_assets.context.operation import resolve_subject
from feed_assets.definitions.store import record_declared
from feed_assets.engines.port import Work
from feed_assets.entities.cluster import Cluster
from feed_assets.entities.feed import Feed
from feed_assets.instances.lists.feed_listings import list_feed
from feed_assets.log.records import FeedInstanceStatus, ProcessInstanceStatus
from feed_assets.log.removals.records import ItemOutcome
from feed_assets.plan.location import declare_location
from feed_assets.settings import Settings
from tests.context.contexts import context_of
from tests.instances.harness import START, LifecycleHarness, at, process, validity
from tests.retention.harness import RetentionHarness
from tests.storage.harnesses import read_file
from tests.tables import Catalog

pytestmark = [pytest.mark.server, pytest.mark.spark]

ONE = at("01T01:00")
CLICKS = "catalog:{database}:clicks#ds=${{YEAR}}-${{MONTH}}-${{DAY}};hour=${{HOUR}}"
SUMS = "catalog:{database}:sums#region=${{cluster.colo}};at=${{YEAR}}-${{MONTH}}-${{DAY}}T${{HOUR}}:${{MINUTE}}"
_numbers = itertools.count()
AVAILABLE, MISSING = FeedInstanceStatus.AVAILABLE, FeedInstanceStatus.MISSING
SUCCEEDED = ProcessInstanceStatus.SUCCEEDED


@pytest.fixture
def database(metastore_port: int, tmp_path: Path) -> str:
    """A database with the tables `clicks` and `sums`."""
    name, folder = f"lifecycle_{next(_numbers)}", tmp_path / "warehouse"
    catalog = Catalog(metastore_port)
    catalog.make_database(name, folder)
    catalog.make_table(name, "clicks", folder / "clicks", [("ds", "string"), ("hour", "int")])
    catalog.make_table(name, "sums", folder / "sums", [("at", "string"), ("region", "string")])
    return name


@pytest.fixture
def lifecycle(database: str, metastore_port: int, tmp_path: Path) -> LifecycleHarness:
    made = LifecycleHarness.of(tmp_path)
    cluster = Cluster(
        name="primary", colo="eu", storage=f"file://{tmp_path}/primary", catalog=f"thrift://127.0.0.1:{metastore_port}"
    )
    tables = [
        Feed(
            name=name,
            frequency="hours(1)",
            table=table.format(database=database),
            late_arrival={"cut_off": "hours(6)"},
            clusters={"primary": {**validity(START, None), "retention": {"limit": "days(2)"}}},
        )
        for name, table in (("clicks", CLICKS), ("sums", SUMS))
    ]
    counting = process("count", inputs={"clicks": "now(-1,0) now(0,0)"}, outputs={"sums": "now(0,0)"}, start=ONE)
    location = declare_location([cluster, *tables, counting])
    record_declared(made.database, location.declared or (), START, Settings())
    made.use(location.plan)
    return made


def add(lifecycle: LifecycleHarness, catalog: Catalog, *times: datetime) -> None:
    """Partitions of clicks with one file each, as another program makes them."""
    table = catalog.find_table(lifecycle.feed("clicks").table.database, "clicks")  # type: ignore[union-attr]
    assert table is not None
    for time in times:
        folder = raw(lifecycle, time)
        folder.mkdir(parents=True)
        (folder / "part-0").write_text("data")
        assert catalog.add_partition(table, [f"{time:%Y-%m-%d}", str(time.hour)], f"file:{folder}")


def raw(lifecycle: LifecycleHarness, time: datetime) -> Path:
    return lifecycle.root / f"raw/{time:%Y%m%d%H}"


def read(lifecycle: LifecycleHarness, name: str, time: datetime) -> dict[str, bytes]:
    record = lifecycle.feed(name)
    store, path = lifecycle.stores.get(record.store), record.path(time)
    found = {}
    for file in [entry.path for entry in store.manifest(path).entries]:
        found[file] = read_file(store, path, file)
    return found


def test_row_27_an_instance_waits_for_partitions_and_becomes_one(
    lifecycle: LifecycleHarness, metastore_port: int
) -> None:
    catalog = Catalog(metastore_port)
    assert lifecycle.tick(ONE + timedelta(minutes=5)) == []
    add(lifecycle, catalog, START)
    assert lifecycle.tick(ONE + timedelta(minutes=10)) == []
    add(lifecycle, catalog, ONE)
    listed = list_feed(
        context_of(lifecycle, ONE + timedelta(hours=1)),
        resolve_subject(context_of(lifecycle, ONE + timedelta(hours=1)), "clicks"),
        start=START,
        look=True,
    ).instances
    assert [(each.status, each.bytes) for each in listed] == [(AVAILABLE, 4), (AVAILABLE, 4), (MISSING, None)]
    requests = lifecycle.tick(ONE + timedelta(minutes=20))
    assert [request.nominal_times for request in requests] == [(ONE,)]
    seen: list[Work] = []

    def job(work: Work) -> Mapping[str, str]:
        seen.append(work)
        return {"sums": "first"}

    lifecycle.job = job
    assert lifecycle.launch(requests, ONE + timedelta(minutes=21)) == [ONE]
    assert read(lifecycle, "sums", ONE) == {"part-0.csv": b"first"}
    assert lifecycle.statuses("count") == {ONE: SUCCEEDED}
    assert lifecycle.feed_statuses("sums") == {ONE: AVAILABLE}
    (work,) = seen
    assert [[each.partition and each.partition.values for each in data.instances] for data in work.inputs] == [
        [(("ds", "2013-11-01"), ("hour", "01")), (("ds", "2013-11-01"), ("hour", "00"))]
    ]
    assert work.catalog == f"thrift://127.0.0.1:{metastore_port}"


def test_row_27_a_job_is_told_database_table_and_partitions(lifecycle: LifecycleHarness, metastore_port: int) -> None:
    add(lifecycle, Catalog(metastore_port), START, ONE)
    given = lifecycle.properties_of("count", ONE, ONE + timedelta(hours=1))
    catalog, database = f"thrift://127.0.0.1:{metastore_port}", lifecycle.feed("clicks").table.database  # type: ignore[union-attr]
    hive = "(ds='2013-11-01' AND hour='01') OR (ds='2013-11-01' AND hour='00')"
    about_input = {
        "falcon_clicks_storage_type": "TABLE",
        "falcon_clicks_catalog_url": catalog,
        "falcon_clicks_database": database,
        "falcon_clicks_table": "clicks",
        "falcon_clicks_partition_filter_hive": hive,
        "falcon_clicks_partition_filter_java": hive,
        "falcon_clicks_partition_filter_pig": hive.replace("=", "=="),
        "falcon_clicks_filter": hive,
        "clicks_filter": hive,
    }
    plain = "region=eu,at=2013-11-01T01:00"
    about_output = {
        "falcon_sums_storage_type": "TABLE",
        "falcon_sums_catalog_url": catalog,
        "falcon_sums_database": database,
        "falcon_sums_table": "sums",
        "falcon_sums_dataout_partitions": plain,
        "falcon_sums_partitions_java": plain,
        "falcon_sums_partitions_pig": plain,
        "falcon_sums_partitions_hive": "region='eu',at='2013-11-01T01:00'",
        "falcon_sums_dated_partition_value_region": "eu",
        "falcon_sums_dated_partition_value_at": "2013-11-01T01:00",
    }
    found = {name: text for name, text in given.items() if name.startswith("falcon_") or name.endswith("_filter")}
    assert found == about_input | about_output
    assert given["falconInputFeedStorageTypes"] == "TABLE"
    root = f"{catalog}/{database}/clicks/ds=2013-11-01"
    assert given["clicks"] == given["falconInPaths"] == f"{root}/hour=01,{root}/hour=00"


def test_a_second_run_replaces_the_partition_and_a_failed_one_leaves_it(
    lifecycle: LifecycleHarness, metastore_port: int
) -> None:
    add(lifecycle, Catalog(metastore_port), START, ONE)
    for text in ("one", "two"):
        lifecycle.job = lambda _, text=text: {"sums": text}
        lifecycle.run("count", ONE, ONE + timedelta(hours=1), lifecycle.run_id())
        assert read(lifecycle, "sums", ONE) == {"part-0.csv": text.encode()}

    def fail(_: Work) -> Mapping[str, str]:
        raise RuntimeError("not today")

    lifecycle.job = fail
    with pytest.raises(RuntimeError, match="not today"):
        lifecycle.run("count", ONE, ONE + timedelta(hours=1), lifecycle.run_id())
    assert read(lifecycle, "sums", ONE) == {"part-0.csv": b"two"}


def test_late_data_of_a_partition_are_found(lifecycle: LifecycleHarness, metastore_port: int) -> None:
    add(lifecycle, Catalog(metastore_port), START, ONE)
    lifecycle.tick(ONE + timedelta(minutes=5))
    for hours in (1, 2):
        lifecycle.look_for_late(ONE + timedelta(hours=hours))
        (raw(lifecycle, ONE) / "part-1").write_text("late")
    lifecycle.look_for_late(START + timedelta(hours=8))
    changed = [event for event in lifecycle.events("clicks") if event.kind.value == "CHANGED"]
    assert [event.payload["path"] for event in changed] == ["ds=2013-11-01/hour=01"]


def test_row_54_expired_partitions_are_dropped_with_their_data_and_come_back(
    lifecycle: LifecycleHarness, metastore_port: int
) -> None:
    catalog = Catalog(metastore_port)
    old, young = [START, ONE], [at("03T22:00"), at("03T23:00")]
    add(lifecycle, catalog, *old, *young)
    harness = RetentionHarness(lifecycle=lifecycle)
    harness.arrive(at("04"))
    lifecycle.run("count", ONE, at("04"))

    sweep = harness.sweep_now("clicks")

    assert {path: result.outcome for path, result in harness.results(sweep).items()} == {
        "ds=2013-11-01/hour=00": ItemOutcome.EVICTED,
        "ds=2013-11-01/hour=01": ItemOutcome.EVICTED,
    }
    table = catalog.find_table(lifecycle.feed("clicks").table.database, "clicks")  # type: ignore[union-attr]
    assert table is not None
    assert sorted(catalog.partition_names(table, {})) == ["ds=2013-11-03/hour=22", "ds=2013-11-03/hour=23"]
    assert [raw(lifecycle, time).exists() for time in (*old, *young)] == [False, False, True, True]
    evicted = FeedInstanceStatus.EVICTED
    assert lifecycle.times_of_feed("clicks", evicted) == old
    assert lifecycle.times_of_feed("clicks", AVAILABLE) == young

    assert harness.undo(sweep).restored == 2

    assert len(catalog.partition_names(table, {})) == 4
    assert read(lifecycle, "clicks", ONE) == {"part-0": b"data"}
    assert lifecycle.times_of_feed("clicks", AVAILABLE) == [*old, *young]
