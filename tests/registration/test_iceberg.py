"""Instances at locations as files of an Iceberg table of a SQL catalog, read back by DuckDB and by Spark."""

import itertools
import sys
from datetime import date, datetime, timedelta
from pathlib import Path

import duckdb
import duckdb_ext
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DateType, LongType, NestedField
from pyspark.sql import SparkSession

from feed_assets.clock import FrozenClock
from feed_assets.context.bulkheads import Bulkheads
from feed_assets.definitions.store import record_declared
from feed_assets.engines.data.lakes import read_rows
from feed_assets.engines.port import TableName, TablePartition
from feed_assets.entities.cluster import Cluster
from feed_assets.entities.feed import Feed
from feed_assets.instances.arrival.polling import apply_arrivals
from feed_assets.instances.arrival.recording import Announcement, apply_announcements
from feed_assets.log.agenda import AgendaKind
from feed_assets.log.records import FeedInstanceStatus
from feed_assets.log.removals.records import ItemOutcome
from feed_assets.plan.location import declare_location
from feed_assets.registration.registering import Registrations
from feed_assets.registration.ticks import apply_registrations
from feed_assets.registration.verifying import RegistrationQuery, repair_registrations, verify_registrations
from feed_assets.settings import Settings
from feed_assets.storage.errors import InstanceNotFoundError
from feed_assets.storage.lake_rows import rows_of
from feed_assets.timing.dates import NEVER
from tests.instances.harness import LifecycleHarness, at
from tests.retention.harness import RetentionHarness
from tests.spark_session import spark

__all__ = ["spark"]
START, NEXT = at("01"), at("02")
EXTENSIONS = Path(duckdb_ext.__path__[0]) / "extensions"
EVERYTHING = RegistrationQuery(feed="sales", cluster=None, start=None, end=None)


class Lake:
    """A feed of Parquet files with a table in a SQL catalog, and what moves it."""

    def __init__(self, root: Path, **more: object) -> None:
        self.table = "catalog:web:sales#day=${YEAR}-${MONTH}-${DAY}"
        address, warehouse = f"sqlite:///{root}/catalog.db", (root / "warehouse").as_uri()
        self.catalog = SqlCatalog("default", uri=address, warehouse=warehouse)
        self.catalog.create_namespace("web")
        self.cluster = Cluster.model_validate(
            {
                "name": "primary",
                "storage": f"file://{root}/primary",
                "catalog": f"iceberg+{address}",
                "catalog_options": {"warehouse": warehouse},
            }
        )
        self.lifecycle = LifecycleHarness.of(root)
        self.declare(**more)
        self.retention = RetentionHarness(lifecycle=self.lifecycle)
        self._numbers = itertools.count()

    def declare(self, **more: object) -> None:
        feed = Feed.model_validate(
            {
                "name": "sales",
                "frequency": "days(1)",
                "schema": "day date, amount long",
                "locations": {"data": "/sales/${YEAR}/${MONTH}/${DAY}"},
                "clusters": {"primary": {"validity": {"start": START}, "retention": {"limit": "days(2)"}}},
                "late_arrival": {"cut_off": "hours(12)"},
                "catalog_table": self.table,
            }
            | more
        )
        location = declare_location([self.cluster, feed])
        record_declared(self.lifecycle.database, location.declared or (), START, Settings())
        self.lifecycle.use(location.plan)

    def land(self, time: datetime, *amounts: int, **columns: list[object]) -> None:
        """A file of an instance, as another program writes it."""
        folder = self.lifecycle.folder("sales", time)
        folder.mkdir(parents=True, exist_ok=True)
        made = {"day": [time.date()] * len(amounts), "amount": list(amounts)} | columns
        table = pa.table({name: values for name, values in made.items() if values})
        pq.write_table(table, folder / f"part-{next(self._numbers)}.parquet")

    def rows(self, table: str = "sales") -> list[tuple[date, int]]:
        """What DuckDB reads of a table."""
        with duckdb.connect(config={"extension_directory": str(EXTENSIONS)}) as connection:
            connection.execute("LOAD avro; LOAD iceberg")
            metadata = self.catalog.load_table(f"web.{table}").metadata_location
            return connection.execute(f"SELECT day, amount FROM iceberg_scan('{metadata}') ORDER BY ALL").fetchall()

    def commits(self) -> int:
        return len(self.catalog.load_table("web.sales").metadata.snapshots)

    def planned(self) -> list[str | None]:
        with self.lifecycle.database.read() as connection:
            found = Registrations(connection).due([AgendaKind.REGISTRATION], "primary", NEVER, 100)
        return [each.reason for each in found]

    def verify(self) -> list[str]:
        return [each.reason for each in verify_registrations(self.lifecycle.context(at("04")), EVERYTHING).differences]

    def arrive(self, as_of: datetime) -> str:
        """A tick of which a failure is confined; why the last registration failed."""
        bulkheads = Bulkheads("primary", FrozenClock(as_of))
        apply_arrivals(self.lifecycle.open_tick(as_of, bulkheads=bulkheads))
        apply_registrations(self.lifecycle.open_tick(as_of, bulkheads=bulkheads))
        return "".join(filter(None, self.planned()))


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def test_row_154_files_are_rows_of_the_table_while_the_instance_is_there(lake: Lake) -> None:
    lake.land(START, 1, 2)
    lake.land(NEXT, 3)
    lake.retention.arrive(NEXT + timedelta(hours=1))
    first = [(date(2013, 11, 1), 1), (date(2013, 11, 1), 2), (date(2013, 11, 2), 3)]
    assert (lake.rows(), lake.commits(), lake.planned(), lake.verify()) == (first, 1, [], [])

    lake.retention.now = at("03T12")
    sweep = lake.retention.sweep_now("sales")
    assert lake.retention.outcomes(sweep) == {ItemOutcome.EVICTED: 1}
    assert (lake.rows(), lake.verify()) == ([(date(2013, 11, 2), 3)], [])
    lake.retention.undo(sweep)
    assert (lake.rows(), lake.verify()) == (first, [])
    commits = lake.commits()
    lake.lifecycle.tick(at("03T13"))
    assert (lake.rows(), lake.commits(), lake.planned()) == (first, commits, [])


@pytest.mark.drill
@pytest.mark.spark
def test_spark_reads_the_table_by_a_feed_that_is_the_table(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark.sparkContext, "pythonExec", sys.executable)
    lake.land(START, 1, 2)
    lake.land(NEXT, 3)
    lake.lifecycle.tick(NEXT + timedelta(hours=1))
    reader = Feed.model_validate(
        {
            "name": "reader",
            "frequency": "days(1)",
            "table": lake.table,
            "clusters": {"primary": {"validity": {"start": START}}},
        }
    )
    record = declare_location([lake.cluster, reader]).plan.feeds["reader", "primary"]
    rows = rows_of(record.store)
    assert rows is not None
    name = TableName(catalog="", database="web", name="sales", rows=rows)

    def read(*days: str) -> list[tuple[date, int]]:
        partitions = [TablePartition(table=name, values=(("day", day),)) for day in days]
        return sorted(tuple(row) for row in read_rows(spark, rows, partitions).collect())

    assert read("2013-11-01") == [(date(2013, 11, 1), 1), (date(2013, 11, 1), 2)]
    assert read("2013-11-01", "2013-11-02") == lake.rows()
    lake.retention.now = at("03T12")
    lake.retention.sweep_now("sales")
    with pytest.raises(InstanceNotFoundError):
        read("2013-11-01")
    assert read("2013-11-02") == lake.rows()


def test_other_content_is_one_commit_and_what_differs_is_named_and_repaired(lake: Lake) -> None:
    lake.land(START, 1)
    lake.land(NEXT, 3)
    lake.lifecycle.tick(NEXT)
    for file in lake.lifecycle.folder("sales", START).iterdir():
        file.unlink()
    lake.land(START, 10, 20)
    assert lake.verify() == ["the table has other files of it"]
    commits = lake.commits()
    repaired = repair_registrations(lake.lifecycle.context(at("04")).by("ann"), EVERYTHING)
    assert (repaired.has_failed, lake.commits()) == (False, commits + 1)
    assert lake.rows() == [(date(2013, 11, 1), 10), (date(2013, 11, 1), 20), (date(2013, 11, 2), 3)]

    lake.catalog.load_table("web.sales").delete("day = '2013-11-02'")
    assert lake.verify() == ["it is AVAILABLE, and no partition of the table"]
    repair_registrations(lake.lifecycle.context(at("04")).by("ann"), EVERYTHING)
    assert (len(lake.rows()), lake.verify()) == (3, [])


def test_files_that_the_table_cannot_have_are_refused(lake: Lake) -> None:
    def numbered(time: datetime, *numbers: int) -> pa.Table:
        rows = pa.table({"day": [time.date()], "amount": [1]})
        fields = [rows.field(at).with_metadata({"PARQUET:field_id": str(each)}) for at, each in enumerate(numbers)]
        return rows.cast(pa.schema(fields))

    def write(time: datetime, table: pa.Table, name: str = "a.parquet", **options: bool) -> None:
        folder = lake.lifecycle.folder("sales", time)
        folder.mkdir(parents=True)
        pq.write_table(table, folder / name, **options)

    days = [at(f"{day:02}") for day in range(1, 11)]
    lake.land(days[0], 1, day=[])
    lake.land(days[1], 2, day=[date(2013, 11, 5)])
    lake.land(days[2], 3, 4, day=[days[2].date(), None])
    write(days[3], numbered(days[3], 11, 12))
    write(days[4], pa.table({"day": [days[4].date()], "amount": ["five"]}))
    write(
        days[5],
        pa.table({"day": [days[5].date()], "amount": [days[5]]}),
        use_deprecated_int96_timestamps=True,
    )
    write(days[6], pa.table({"day": [days[6].date()], "amount": [7], "n": [7]}))
    write(days[7], pa.table({"day": [days[7].date()], "amount": [8]}), write_statistics=False)
    lake.land(days[8], 9)
    (lake.lifecycle.folder("sales", days[8]) / "b").symlink_to("/dev/null")
    write(days[9], numbered(days[9], 1, 2), "good.parquet")
    reasons = lake.arrive(days[9])
    for reason in (
        "lacks the column 'day', by which the table is partitioned",
        "has rows of day=2013-11-05, not of 2013-11-02",
        "1 of its rows have no 'day'",
        "ids of another table",
        "2: amount: optional string (the table has 2: amount: optional long)",
        "spark.sql.parquet.outputTimestampType: TIMESTAMP_MICROS",
        "the table has no n;",
        "has no statistics of 'day'",
        "a symbolic link leads out of the storage root",
    ):
        assert reason in reasons
    assert lake.rows() == [(date(2013, 11, 10), 1)]

    folder = lake.lifecycle.folder("sales", days[9])
    (folder / "good.parquet").unlink()
    lake.land(days[9], 11, day=[None])
    repair_registrations(lake.lifecycle.context(at("11")).by("ann"), EVERYTHING)
    assert lake.rows() == []  # it would have a file that is gone


def test_what_the_checks_of_its_producer_refuse_is_no_partition_any_more(lake: Lake) -> None:
    lake.land(START, 1)
    lake.lifecycle.tick(START + timedelta(hours=1))
    lake.land(START, 2)
    refused = Announcement(
        record=lake.lifecycle.feed("sales"), nominal_time=START, origin="run:1", refused="the check 'rows' has failed"
    )
    tick = lake.lifecycle.open_tick(START + timedelta(hours=2))
    apply_announcements(tick, [refused], ("reader", "1"))
    apply_registrations(tick)
    assert lake.lifecycle.feed_statuses("sales")[START] is FeedInstanceStatus.PARTIAL
    assert lake.rows() == []


def test_a_table_with_rows_of_others_is_refused(lake: Lake) -> None:
    schema = Schema(NestedField(1, "day", DateType()), NestedField(2, "amount", LongType()))
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "day"))
    rows = pa.table({"day": [date(2012, 1, 1)], "amount": [7]})
    lake.catalog.create_table("web.sales", schema, partition_spec=spec).append(rows)
    lake.land(START, 1)
    assert "others fill the table web.sales: its file" in lake.arrive(NEXT)
    assert lake.rows() == [(date(2012, 1, 1), 7)]


def test_a_table_that_a_feed_had_has_nothing_of_it_when_its_files_go(lake: Lake) -> None:
    lake.land(START, 1)
    lake.land(NEXT, 2)
    lake.lifecycle.tick(NEXT)
    lake.declare(catalog_table=lake.table.replace(":sales", ":other"))
    lake.lifecycle.tick(NEXT)
    assert [len(lake.rows(name)) for name in ("sales", "other")] == [0, 2]
    lake.declare(catalog_table=None)
    lake.lifecycle.tick(NEXT)
    assert (lake.rows("other"), lake.planned()) == ([], [])


def test_late_data_are_registered_in_place_of_what_was_there(lake: Lake) -> None:
    lake.land(START, 1)
    lake.lifecycle.tick(START + timedelta(hours=1))
    lake.lifecycle.look_for_late(START + timedelta(hours=1))
    lake.land(START, 2)
    lake.lifecycle.look_for_late(START + timedelta(hours=8))
    lake.lifecycle.tick(START + timedelta(hours=8))
    assert lake.rows() == [(date(2013, 11, 1), 1), (date(2013, 11, 1), 2)]
    (each,) = [event for event in lake.lifecycle.events("sales") if event.kind.value == "CHANGED"]
    assert each.nominal_time == START


def test_the_package_that_is_missing_is_named(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "feed_assets.registration.iceberg", None)
    lake.land(START, 1)
    assert 'pip install "feed-assets[iceberg]"' in lake.arrive(NEXT)


def test_rows_that_are_to_be_judged_are_not_registered(tmp_path: Path) -> None:
    lake = Lake(tmp_path, quality={"min_rows": 1})
    lake.land(START, 1)
    assert lake.arrive(START + timedelta(hours=1)) == ""
    assert lake.lifecycle.feed_statuses("sales")[START] is FeedInstanceStatus.PARTIAL
    assert (lake.planned(), lake.catalog.list_tables("web")) == ([], [])


def test_many_registrations_are_told_by_few_manifests(lake: Lake) -> None:
    for day in range(11):
        lake.land(START + timedelta(days=day), day)
        lake.lifecycle.tick(START + timedelta(days=day, hours=1))
    table = lake.catalog.load_table("web.sales")
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert (lake.commits(), len(lake.rows())) == (11, 11)
    assert len(snapshot.manifests(table.io)) == 2
