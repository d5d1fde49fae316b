"""Feeds in Iceberg tables: what is there, publications beside others, removals with undo, late rows, whole tables."""

import itertools
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import IntegerType, NestedField, StringType

from feed_assets.entities.copies.options import Existing
from feed_assets.storage.errors import (
    ForeignContentError,
    InstanceChangingError,
    StorageError,
    TableRefusedError,
)
from feed_assets.storage.port import InstanceStore
from feed_assets.storage.records import Availability, Clearing, Guard, Manifest, Outcome
from tests.databases import create_schema
from tests.drills import drill, sized
from tests.lakes import BY_DAY, BY_REGION, PLAIN, SCHEMA, Lake, append, compact, delete_rows, write
from tests.object_servers import BUCKET
from tests.processes import PROCESSES

NOW = datetime(2026, 1, 2, tzinfo=UTC)
EU, US = "region=eu", "region=us"
_numbers = itertools.count()


KINDS = ["local", drill("s3"), drill("postgresql"), drill("thrift"), drill("rest")]
ON_S3 = pytest.mark.parametrize(
    "lake", ["local", pytest.param("s3", marks=pytest.mark.server), *KINDS[2:]], indirect=True
)
"""Marks what `make test` sees on S3, too."""
HERE = pytest.mark.parametrize("lake", ["local"], indirect=True)


@pytest.fixture(params=KINDS)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    """A catalog in SQLite with files here or on S3, or one of another kind."""
    name = f"lake_{next(_numbers)}"
    match request.param:
        case "s3":
            return Lake(tmp_path, f"s3://{BUCKET}/{tmp_path.name}", request.getfixturevalue("s3_options"))
        case "postgresql":
            url = create_schema(request.getfixturevalue("postgres_url")).replace("+psycopg2", "")
            return Lake(tmp_path, address=f"iceberg+{url}")
        case "thrift":
            address = f"iceberg+thrift://127.0.0.1:{request.getfixturevalue('locking_metastore_port')}"
            return Lake(tmp_path, address=address, database=name, **{"hive.hive2-compatible": "true"})
        case "rest":
            address = f"iceberg+http://127.0.0.1:{request.getfixturevalue('rest_catalog_port')}"
            return Lake(tmp_path, address=address, database=name)
    return Lake(tmp_path)


def publish(
    lake: Lake, path: str, *numbers: int, token: str, guard: Guard = lambda: None, **how: Any
) -> tuple[InstanceStore, Manifest]:
    """Publish rows with these numbers as the partition of a path, and the digest of what was published."""
    store, table = lake.store("clicks", columns=how.pop("columns", "refuse")), lake.table("clicks")
    staging = store.stage(path, token)
    values = dict(part.split("=") for part in path.split("/") if "=" in part)
    day = values.get("at_day")
    at = {"at": datetime.fromisoformat(f"{day}T05:00+00:00")} if day else {}
    rows = [{**at, "region": values.get("region"), "n": number} for number in numbers]
    write(staging.local_path, table, *rows, name=how.pop("name", "part-0.parquet"))
    extra = {"process": "counting", "run": "7", "fence": "3"}
    return store, store.publish(staging, flag=None, guard=guard, extra=extra, **how)


def digest(store: InstanceStore, path: str) -> str:
    scan = store.scan(path, None, None, NOW)
    assert scan.read == 0
    return scan.digest


def test_a_publication_is_one_commit_with_its_digest_and_replaces_its_partition_only(lake: Lake) -> None:
    lake.make("clicks")
    store, first = publish(lake, EU, 1, 2, token="a")
    publish(lake, US, 3, token="b")
    looks = store.look([EU, US, "region=asia"], None)
    assert [look.availability for look in looks] == [Availability.AVAILABLE] * 2 + [Availability.MISSING]
    assert digest(store, EU) == first.digest
    snapshot = lake.table("clicks").current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    told = {name: snapshot.summary[f"feed-assets.{name}"] for name in ("process", "run", "fence", "digest")}
    assert told == {"process": "counting", "run": "7", "fence": "3", "digest": digest(store, US)}

    _, second = publish(lake, EU, 4, token="c")

    assert lake.rows("clicks") == [3, 4]
    assert store.published_manifest(EU) == second
    assert digest(store, EU) == second.digest != first.digest
    _, again = publish(lake, EU, 1, 2, token="d")
    assert again.digest == first.digest == digest(store, EU)
    assert sorted(store.walk("", 1, lambda _, names: names)) == [EU, US]


def test_partitions_are_spelled_as_iceberg_does_and_what_is_none_is_refused(lake: Lake) -> None:
    lake.make("clicks", BY_DAY)
    store, _ = publish(lake, "region=eu/at_day=2026-01-31", 1, token="a")
    assert list(store.walk("", 2, lambda _, names: names))[:1] == ["at_day=2026-01-31/region=eu"]
    (wrong,) = store.look(["region=eu/at_day=2026-02-31"], None)
    assert wrong.obstacle == "'2026-02-31' is no value of its partition field 'at_day', day of a timestamptz"
    (lacking,) = store.look(["region=eu"], None)
    assert lacking.obstacle == "it lacks the partition key 'at_day'"
    staging = store.stage("region=eu/at_day=2026-02-01", "b")
    write(staging.local_path, lake.table("clicks"), {"at": datetime(2026, 2, 2, tzinfo=UTC), "region": "eu", "n": 1})
    with pytest.raises(TableRefusedError, match="it has rows of another partition"):
        store.publish(staging, flag=None, guard=lambda: None, extra={})
    lake.make("buckets", PartitionSpec(PartitionField(2, 1000, BucketTransform(4), "region_bucket")))
    with pytest.raises(TableRefusedError, match=r"'region_bucket' is bucket\[4\] of a string\. Instances are"):
        lake.store("buckets").look(["region_bucket=1"], None)


def test_an_instance_without_rows_is_there(lake: Lake) -> None:
    lake.make("clicks")
    store, _ = publish(lake, EU, token="a")
    assert [look.availability for look in store.look([EU], None)] == [Availability.AVAILABLE]
    assert lake.rows("clicks") == []


def test_a_commit_is_repeated_beside_another_partition_and_refused_on_its_own(lake: Lake) -> None:
    table = lake.make("clicks")
    asked = []

    def others(region: str) -> Guard:
        def guard() -> None:
            asked.append(region)
            if len(asked) == 3:  # of the folder, of the place, and before the commit
                append(table, {"region": region, "n": 9})

        return guard

    publish(lake, EU, 1, token="a", guard=others("us"))
    assert (lake.rows("clicks"), len(asked)) == ([1, 9], 4)
    asked.clear()
    with pytest.raises(InstanceChangingError, match="others have written into its partition meanwhile"):
        publish(lake, EU, 2, token="b", guard=others("eu"))
    assert lake.rows("clicks") == [1, 9, 9]


def _publish_elsewhere(folder: Path, storage: str, options: dict[str, object], region: str) -> None:
    lake = Lake(folder, storage, options)
    for number in range(3):
        publish(lake, f"region={region}", number, token=f"{region}-{number}")


@pytest.mark.server
def test_two_processes_write_two_partitions_at_once(tmp_path: Path, s3_options: dict[str, object]) -> None:
    storage = f"s3://{BUCKET}/{tmp_path.name}"
    Lake(tmp_path, storage, s3_options).make("clicks")
    others = [
        PROCESSES.Process(target=_publish_elsewhere, args=(tmp_path, storage, s3_options, region))
        for region in ("eu", "us")
    ]
    for other in others:
        other.start()
    for other in others:
        other.join()
    assert [other.exitcode for other in others] == [0, 0]
    assert Lake(tmp_path, storage, s3_options).rows("clicks") == [2, 2]


@HERE
def test_a_guard_that_raises_leaves_the_old_rows_and_no_file(lake: Lake) -> None:
    lake.make("clicks")
    publish(lake, EU, 1, token="a")
    asked = []

    def guard() -> None:
        asked.append(1)
        if len(asked) == 3:
            raise RuntimeError("the lease is lost")

    with pytest.raises(RuntimeError, match="the lease is lost"):
        publish(lake, EU, 2, token="b", guard=guard)
    assert lake.rows("clicks") == [1]
    root = Path(lake.table("clicks").location().removeprefix("file://"))
    assert [path.parent.name for path in root.glob("data/feed-assets/**/*.parquet")] == ["a"]


@ON_S3
@pytest.mark.sample
def test_evicted_partitions_are_back_after_snapshots_have_expired(lake: Lake) -> None:
    table = lake.make("clicks")
    evicted = sized(4, 10)
    paths = [f"region=r{number}" for number in range(evicted + 2)]
    for number, path in enumerate(paths):
        publish(lake, path, number, token=f"t{number}")
    append(table, {"region": "r3", "n": 33}, {"region": "r3", "n": 44})
    (file,) = [task.file for task in table.refresh().scan(row_filter="n == 44").plan_files()]
    delete_rows(table, file, [1])
    rows = lake.rows("clicks")
    store = lake.store("clicks")
    trash, commits = store.trash(), len(table.refresh().history())
    trash.describe("sweep-1", {"by": "test"})

    moved = trash.put("sweep-1", [*paths[:evicted], "region=never"])

    assert [each.outcome for each in moved] == [Outcome.MOVED] * evicted + [Outcome.VANISHED]
    assert (lake.rows("clicks"), len(table.refresh().history())) == ([evicted, evicted + 1], commits + 1)
    assert sorted(trash.contents("sweep-1")) == sorted(paths[:evicted])
    assert [each.outcome for each in trash.put("sweep-1", paths[:1])] == [Outcome.ALREADY]
    publish(lake, paths[1], 101, token="again")
    table.refresh().maintenance.expire_snapshots().older_than(datetime.now(UTC) + timedelta(days=1)).commit()

    back = trash.restore("sweep-1", paths[:evicted])

    outcomes = [Outcome.MOVED, Outcome.OCCUPIED, *[Outcome.MOVED] * (evicted - 2)]
    assert [each.outcome for each in back] == outcomes
    assert lake.rows("clicks") == sorted({*rows, 101} - {1})
    assert 44 not in lake.rows("clicks")
    assert (list(trash.contents("sweep-1")), trash.sweeps()) == ([paths[1]], ["sweep-1"])
    assert trash.purge("sweep-1").is_complete
    assert (list(table.refresh().refs()), trash.sweeps()) == (["main"], [])
    assert [each.outcome for each in trash.restore("sweep-1", paths[:2])] == [Outcome.LOST, Outcome.LOST]


@ON_S3
def test_a_compaction_changes_nothing_and_appended_or_deleted_rows_do(lake: Lake) -> None:
    table = lake.make("clicks")
    store, _ = publish(lake, US, 1, 2, token="a")
    append(table, {"region": "us", "n": 3})
    read = digest(store, US)

    compact(table, "region == 'us'")
    assert digest(store, US) == read
    publish(lake, EU, 5, token="b")
    compact(table, "region == 'us'")
    assert digest(store, US) == read

    append(table, {"region": "us", "n": 6})
    later = digest(store, US)
    assert later != read
    (file,) = [
        task.file for task in table.refresh().scan(row_filter="n == 6").plan_files() if task.file.record_count == 1
    ]
    delete_rows(table, file, [0])
    assert digest(store, US) not in (read, later)
    assert lake.rows("clicks") == [1, 2, 3, 5]


def test_foreign_rows_are_refused_or_go_to_the_trash_with_the_partition(lake: Lake) -> None:
    append(lake.make("clicks"), {"region": "us", "n": 3})
    with pytest.raises(ForeignContentError, match="it is foreign content: 1 files"):
        publish(lake, US, 1, token="a")
    publish(lake, US, 1, token="b", clearing=Clearing(sweep="cleared", existing=Existing.REPLACE))
    assert lake.rows("clicks") == [1]
    assert list(lake.store("clicks").trash().contents("cleared")) == [US]


def test_a_whole_table_has_snapshots_as_versions(lake: Lake) -> None:
    table = lake.make("clicks", PLAIN)
    store = lake.store("clicks")
    assert [look.availability for look in store.look(["whole-table"], None)] == [Availability.EMPTY]
    append(table, {"n": 1})
    first = digest(store, "whole-table")
    append(table, {"n": 2})
    assert digest(store, "whole-table") != first
    how = Clearing(sweep="cleared", existing=Existing.REPLACE)
    _, own = publish(lake, "whole-table", 7, token="a", clearing=how)
    assert (lake.rows("clicks"), digest(store, "whole-table")) == ([7], own.digest)
    kept = store.trash().keep("version-1", "whole-table")
    publish(lake, "whole-table", 8, token="b")
    assert (kept.outcome, lake.rows("clicks")) == (Outcome.MOVED, [8])
    store.trash().put("version-2", ["whole-table"])
    assert [each.outcome for each in store.trash().restore("version-1", ["whole-table"])] == [Outcome.MOVED]
    assert lake.rows("clicks") == [7]
    lake.make("parted")
    with pytest.raises(TableRefusedError, match="it has partitions by region, and is only read as a whole"):
        lake.store("parted").stage("whole-table", "c")


def test_columns_of_files_are_added_or_refused(lake: Lake) -> None:
    lake.make("clicks")
    publish(lake, EU, 1, token="a")
    with lake.table("clicks").update_schema() as update:
        update.add_column("extra", StringType())
    wide = lake.table("clicks")
    with lake.table("clicks").update_schema() as update:
        update.delete_column("extra")
    store = lake.store("clicks")
    staging = store.stage(US, "b")
    write(staging.local_path, wide, {"region": "us", "n": 2, "extra": "x"})
    with pytest.raises(TableRefusedError, match="the table has no extra"):
        store.publish(staging, flag=None, guard=lambda: None, extra={})
    store = lake.store("clicks", columns="add")
    staging = store.stage(US, "c")
    write(staging.local_path, wide, {"region": "us", "n": 2, "extra": "x"})
    store.publish(staging, flag=None, guard=lambda: None, extra={})
    assert sorted(lake.table("clicks").scan().to_arrow().column("extra").to_pylist(), key=str) == [None, "x"]


@HERE
def test_what_an_interrupted_publication_has_left_is_swept(lake: Lake) -> None:
    lake.make("clicks")
    publish(lake, EU, 1, token="a")
    asked = []

    def guard() -> None:
        asked.append(1)
        if len(asked) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        publish(lake, EU, 2, token="b", guard=guard)
    root = Path(lake.table("clicks").location().removeprefix("file://"))
    left = root / "data/feed-assets/region=eu"
    assert sorted(path.name for path in left.iterdir()) == ["a", "b"]
    store = lake.store("clicks")
    assert store.sweep_staging(datetime(2000, 1, 1, tzinfo=UTC)) == 0
    with lake.table("clicks").update_spec() as update:
        update.rename_field("region", "area").add_identity("day")
    assert store.sweep_staging(datetime.now(UTC) + timedelta(days=1)) >= 1
    assert [path.name for path in left.iterdir()] == ["a"]
    assert lake.rows("clicks") == [1]


def test_few_partitions_are_listed_without_reading_the_manifests_of_others(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyiceberg.manifest import ManifestFile

    lake.make("clicks")
    for number in range(12):
        publish(lake, f"region=r{number:02}", number, token=f"t{number}")
    read: list[str] = []
    plain = ManifestFile.fetch_manifest_entry

    def counted(self: ManifestFile, *args: Any, **more: Any) -> Any:
        read.append(self.manifest_path)
        return plain(self, *args, **more)

    monkeypatch.setattr(ManifestFile, "fetch_manifest_entry", counted)
    looks = lake.store("clicks").look(["region=r03", "region=r09"], None)
    assert [look.files for look in looks] == [1, 1]
    assert len(read) == 2


def test_a_table_of_an_earlier_spec_says_what_to_do(lake: Lake) -> None:
    table = lake.make("clicks")
    publish(lake, EU, 1, token="a")
    with table.refresh().update_spec() as update:
        update.add_identity("day")
    with pytest.raises(StorageError, match="it has files of another partition spec"):
        lake.store("clicks").look(["region=eu/day=2026-01-01"], None)


LONG, WORD = {"n": pa.array([1], pa.int64())}, {"n": ["x"]}
NUMBER = {"n": pa.array([1], pa.int32())}
NULLS = {"region": ["eu", None], "n": pa.array([1, 2], pa.int32())}
OLD_TIME = {"at": pa.array([NOW], pa.timestamp("ns", "UTC"))}
OF_ANOTHER = pa.schema([pa.field("n", pa.int32(), metadata={"PARQUET:field_id": "1"})])


@HERE
@pytest.mark.parametrize(
    ("content", "reason", "columns"),
    [
        ({"region": ["us"]}, "rows of another partition", "refuse"),
        (NULLS, "rows of another partition, which have no region", "refuse"),
        ({"region": ["eu"], **LONG}, "3: n: optional long", "refuse"),
        ({"region": ["eu"], **WORD}, "3: n: optional string", "add"),
        ({"region": ["eu"], **OLD_TIME}, "TIMESTAMP_MICROS", "refuse"),
        (pa.table({"n": NUMBER["n"]}, OF_ANOTHER), "ids of another table", "refuse"),
        ({"region": ["eu"], "more": pa.nulls(1, pa.duration("s"))}, "cannot be added", "add"),
    ],
)
def test_files_that_readers_would_misread_are_refused(lake: Lake, content: Any, reason: str, columns: str) -> None:
    table = lake.make("clicks")
    with table.transaction() as transaction:  # what the table keeps of its columns is not what we look at
        transaction.set_properties({"write.metadata.metrics.default": "none"})
    publish(lake, EU, 1, token="a")
    store = lake.store("clicks", columns=columns)
    staging = store.stage(EU, "b")
    staging.local_path.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(content), staging.local_path / "part-0.parquet")
    with pytest.raises(TableRefusedError, match=reason):
        store.publish(staging, flag=None, guard=lambda: None, extra={})
    assert lake.rows("clicks") == [1]


@HERE
def test_nulls_and_files_without_statistics_are_refused_where_they_count(lake: Lake) -> None:
    strict = Schema(NestedField(1, "region", StringType()), NestedField(2, "n", IntegerType(), required=True))
    lake.make("clicks", PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "region")), strict)
    store = lake.store("clicks")
    refusals = []
    for number, (content, how) in enumerate(
        [
            ({"region": ["eu"], "n": pa.nulls(1, pa.int32())}, {}),
            ({"region": ["eu"]}, {}),
            ({"region": ["us"], **NUMBER}, {"write_statistics": ["n"]}),
            ({"region": ["eu"], **NUMBER}, {}),
        ]
    ):
        staging = store.stage(EU, f"t{number}")
        staging.local_path.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(content), staging.local_path / "part-0.parquet", **how)
        try:
            store.publish(staging, flag=None, guard=lambda: None, extra={})
        except TableRefusedError as exc:
            refusals.append(exc.reason.partition(": ")[2])
    assert refusals == [
        "its column n may have nulls (the table has 2: n: required int)",
        "it has no n (the table has 2: n: required int)",
        "it has no statistics of region, by which the table is partitioned",
    ]
    assert lake.rows("clicks") == [1]


@HERE
def test_a_partition_without_files_is_not_published(lake: Lake) -> None:
    lake.make("clicks")
    store, _ = publish(lake, EU, 1, token="a")
    staging = store.stage(EU, "b")
    staging.local_path.mkdir(parents=True, exist_ok=True)
    (staging.local_path / "_SUCCESS").touch()
    with pytest.raises(TableRefusedError, match="a partition without files is none"):
        store.publish(staging, flag=None, guard=lambda: None, extra={})
    assert lake.rows("clicks") == [1]


@HERE
def test_a_commit_that_is_made_and_answered_as_refused_is_made(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a proxy answers that has asked a REST catalog twice."""
    lake.make("clicks")
    commit = Table._do_commit

    def twice(self: Table, *args: Any, **more: Any) -> None:
        commit(self, *args, **more)
        raise CommitFailedException("409")

    monkeypatch.setattr(Table, "_do_commit", twice)
    store, manifest = publish(lake, EU, 1, token="a")
    monkeypatch.undo()
    assert lake.rows("clicks") == [1]
    assert digest(store, EU) == manifest.digest


@HERE
def test_a_table_of_version_1_has_its_partitions(lake: Lake) -> None:
    names = (lake.database, "clicks")
    table = lake.catalog.open().create_table(
        names, SCHEMA, partition_spec=BY_REGION, properties={"format-version": "1"}
    )
    with table.update_spec() as update:
        update.add_field("n", IdentityTransform(), "number")
    with table.update_spec() as update:  # which leaves a field without a value
        update.remove_field("number")
    store, _ = publish(lake, EU, 1, token="a")
    trash = store.trash()
    assert [look.availability for look in store.look([EU], None)] == [Availability.AVAILABLE]
    assert [moved.outcome for moved in trash.put("sweep-1", [EU])] == [Outcome.MOVED]
    assert lake.rows("clicks") == []
    assert [moved.outcome for moved in trash.restore("sweep-1", [EU])] == [Outcome.MOVED]
    assert lake.rows("clicks") == [1]
