"""Partitions of Iceberg tables copied to the table of another catalog: data files as they are, shown by one commit."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType

from feed_assets.entities.copies.options import Existing
from feed_assets.entities.maps import FrozenMap
from feed_assets.plan.copy_records import CopyOptions, StoreAddress
from feed_assets.storage.errors import ForeignContentError, TableRefusedError
from feed_assets.storage.iceberg import store
from feed_assets.storage.iceberg.commits import commit_change
from feed_assets.storage.pool import StorePool
from feed_assets.storage.records import Availability, Clearing, Guard
from feed_assets.timing.templates import WHOLE_TABLE
from feed_assets.transfer.auditing import audit_copy
from feed_assets.transfer.copying import copy_many
from feed_assets.transfer.plans import Side
from feed_assets.transfer.requests import Copied, CopyRequest, CopyStatus
from tests.lakes import PLAIN, Lake, append, compact, delete_rows, rows_of
from tests.object_servers import BUCKET
from tests.storage.harnesses import FencedOut, allow
from tests.transfer.sides import LATER

EU, US = "region=eu", "region=us"


@dataclass(slots=True)
class Lakes:
    """The table web.clicks of one catalog, and one of the same name, perhaps not there yet, of another catalog."""

    folder: Path
    storage: str = ""
    options: Mapping[str, object] = field(default_factory=dict)
    columns: str = "refuse"
    stores: StorePool = field(default_factory=StorePool)
    lakes: dict[str, Lake] = field(init=False)

    def __post_init__(self) -> None:
        for name in ("east", "west"):
            (self.folder / name).mkdir(exist_ok=True)
        target = Lake(self.folder / "west", self.storage, self.options)
        self.lakes = {"east": Lake(self.folder / "east"), "west": target}

    def make(self, cluster: str = "east", *numbers: int, region: str = "eu", **more: Any) -> Table:
        table = self.lakes[cluster].make("clicks", **more)
        for number in numbers:
            append(table, {"region": region, "n": number})
        return table

    def table(self, cluster: str = "west") -> Table:
        return self.lakes[cluster].table("clicks")

    def rows(self, cluster: str = "west") -> list[int]:
        return self.lakes[cluster].rows("clicks")

    def side(self, cluster: str, path: str = EU) -> Side:
        lake = self.lakes[cluster]
        options: dict[str, object] = {"storage": lake.storage, "storage_options": FrozenMap(lake.options)}
        options |= {"catalog": lake.address, "catalog_options": FrozenMap(lake.catalog_options)}
        options |= {"columns": self.columns, "is_received": True} if cluster == "west" else {}
        return Side(store=StoreAddress(url=f"{lake.address}/web/clicks", options=FrozenMap(options)), path=path)

    def copy(self, path: str = EU, guard: Guard = allow, clearing: Clearing | None = None, **options: Any) -> Copied:
        distrusted = options.pop("distrusted", frozenset())
        sides = self.side("east", path), self.side("west", path)
        request = CopyRequest(
            source=sides[0], target=sides[1], guard=guard, clearing=clearing, distrusted=distrusted, extra={"run": "7"}
        )
        (outcome,) = copy_many(self.stores, [request], CopyOptions(**options), LATER)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


@pytest.fixture
def lakes(tmp_path: Path) -> Lakes:
    return Lakes(tmp_path)


def live_files(table: Table) -> list[Path]:
    return [Path(task.file.file_path.removeprefix("file://")) for task in table.scan().plan_files()]


def test_row_67_a_partition_is_copied_and_the_missing_table_is_made_with_the_ids_of_its_source(lakes: Lakes) -> None:
    source = lakes.make()
    with source.update_schema() as update:  # ids that no catalog would give
        update.delete_column("day").add_column("more", StringType())
    append(source, {"region": "eu", "n": 1}, {"region": "eu", "n": 2})
    append(source, {"region": "us", "n": 3})
    assert lakes.stores.get(lakes.side("west").store).look([EU], None)[0].availability is Availability.MISSING
    copied = lakes.copy()
    assert (copied.status, copied.files) == (CopyStatus.COPIED, 1)
    made = lakes.table()
    assert [(each.field_id, each.name) for each in made.schema().fields] == [
        (1, "at"), (2, "region"), (3, "n"), (5, "more")
    ]  # fmt: skip
    assert [(each.source_id, each.field_id, each.name) for each in made.spec().fields] == [(2, 1000, "region")]
    assert lakes.rows() == [1, 2]
    snapshot = made.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert copied.publication is not None
    assert snapshot.summary["feed-assets.digest"] == copied.publication.digest
    assert (snapshot.summary["feed-assets.run"], snapshot.summary["feed-assets.partition"]) == ("7", EU)
    (task,) = made.scan(row_filter="n = 1").plan_files()
    assert task.file.record_count == 2
    assert list(made.scan(row_filter="n > 2").plan_files()) == []
    assert lakes.copy().status is CopyStatus.UNCHANGED


def test_late_rows_are_copied_and_a_compaction_is_not_and_a_rewritten_partition_replaces_the_copy(lakes: Lakes) -> None:
    source = lakes.make("east", 1)
    lakes.copy()
    first = lakes.table().metadata.current_snapshot_id
    append(source, {"region": "eu", "n": 2})
    late = lakes.copy()
    assert (late.files, late.kept, lakes.rows()) == (1, 1, [1, 2])
    compact(source, "region == 'eu'")
    assert lakes.copy().status is CopyStatus.UNCHANGED
    source.refresh().delete("region == 'eu'")
    append(source, {"region": "eu", "n": 3})
    copied = lakes.copy()
    assert (copied.files, copied.kept, len(copied.removed), lakes.rows()) == (1, 0, 2, [3])
    assert [each.parent_snapshot_id for each in lakes.table().snapshots()][:2] == [None, first]
    assert len(lakes.table().snapshots()) == 3


def test_deleted_rows_are_refused_until_they_are_compacted(lakes: Lakes) -> None:
    source = lakes.make()
    append(source, {"region": "eu", "n": 1}, {"region": "eu", "n": 2})
    append(source, {"region": "us", "n": 5})
    (task,) = source.refresh().scan(row_filter="region == 'eu'").plan_files()
    delete_rows(source, task.file, [0])
    with pytest.raises(TableRefusedError, match="delete rows of others"):
        lakes.copy()
    assert lakes.copy(US).files == 1
    compact(source, "region == 'eu'")
    assert (lakes.copy().files, lakes.rows()) == (1, [2, 5])
    assert lakes.copy().status is CopyStatus.UNCHANGED


def test_columns_that_the_source_has_renamed_or_dropped_are_read_by_their_ids(lakes: Lakes) -> None:
    source = lakes.make()
    file = Path(source.location().removeprefix("file://")) / "with-ids.parquet"
    ids = [("region", pa.string(), 2), ("n", pa.int32(), 3), ("day", pa.date32(), 4)]
    fields = [pa.field(name, kind, metadata={"PARQUET:field_id": str(number)}) for name, kind, number in ids]
    rows = [{"region": "eu", "n": 1, "day": None}]
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema=pa.schema(fields)), file)
    source.append(pa.Table.from_pylist(rows, schema=source.schema().as_arrow()))
    with source.update_schema() as update:
        update.rename_column("n", "m").delete_column("at")
    with source.update_schema() as update:
        update.add_column("n", StringType())
    source.append(pa.Table.from_pylist([{"region": "eu", "m": 2, "n": "x"}], schema=source.schema().as_arrow()))
    lakes.copy()
    assert sorted(lakes.table().scan().to_arrow().column("m").to_pylist()) == [1, 2]
    assert set(lakes.table().scan().to_arrow().column("n").to_pylist()) == {None, "x"}
    assert [each.name for each in lakes.table().schema().fields] == ["region", "m", "day", "n"]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ([(1, "at", "timestamptz"), (2, "region", "string"), (3, "n", "long"), (4, "day", "date")], "3: n int there"),
        ([(1, "at", "timestamptz"), (2, "region", "string"), (3, "n", "int")], r"day \(only there\)"),
        (
            [(1, "at", "timestamptz"), (2, "region", "string"), (3, "day", "date"), (4, "n", "int")],
            "3: n int there, day",
        ),
    ],
)
def test_tables_with_other_columns_or_ids_are_refused_by_name(
    lakes: Lakes, fields: list[tuple[int, str, str]], reason: str
) -> None:
    lakes.make("east", 1)
    schema = Schema(*[NestedField(number, name, kind) for number, name, kind in fields])
    lakes.make("west", schema=schema)
    with pytest.raises(TableRefusedError, match=reason):
        lakes.copy()


def test_another_spec_and_a_missing_namespace_are_refused(lakes: Lakes) -> None:
    lakes.make("east", 1)
    catalog = lakes.lakes["west"].catalog.open()
    catalog.drop_namespace("web")
    with pytest.raises(TableRefusedError, match="there is no namespace web"):
        lakes.copy()
    catalog.create_namespace("web")
    lakes.make("west", spec=PLAIN)
    with pytest.raises(TableRefusedError, match="its partition spec is not that of the source"):
        lakes.copy()
    catalog.drop_table("web.clicks")
    del lakes.lakes["west"].catalog_options["warehouse"]
    with pytest.raises(TableRefusedError, match="the table of the copies cannot be made: No default path is set"):
        lakes.copy()


def test_columns_that_the_source_has_dropped_or_renamed_in_files_without_ids_are_no_obstacle(lakes: Lakes) -> None:
    source = lakes.make()
    with source.update_schema() as update:
        update.add_column("last", StringType())
    append(source, {"region": "eu", "n": 1, "last": "a"})
    ids = pa.Table.from_pylist([{"region": "eu", "n": 2, "last": "b"}], schema=source.schema().as_arrow())
    source.append(ids)
    with source.update_schema() as update:
        update.delete_column("last").rename_column("n", "m")
    append(source, {"region": "eu", "m": 3})
    assert lakes.copy().files == 3
    target = lakes.table()
    assert sorted(target.scan().to_arrow().column("m").to_pylist()) == [1, 2, 3]
    assert target.schema().column_names == source.schema().column_names
    with target.update_schema() as update:
        update.add_column("own", StringType())
    assert set(target.scan().to_arrow().column("own").to_pylist()) == {None}
    lakes.columns = "add"
    with source.update_schema() as update:
        update.add_column("more", StringType())
    append(source, {"region": "eu", "m": 4})
    with pytest.raises(TableRefusedError, match=r"6: more string there, own string here"):
        lakes.copy()


def test_an_id_that_the_target_has_had_for_another_column_is_refused(lakes: Lakes) -> None:
    source, target = lakes.make("east", 1), lakes.make("west")
    lakes.columns = "add"
    with target.update_schema() as update:
        update.add_column("more", LongType())
    append(target, {"region": "us", "n": 2, "more": 7})
    with target.update_schema() as update:
        update.delete_column("more")
    with source.update_schema() as update:
        update.add_column("more", StringType())
    with pytest.raises(TableRefusedError, match=r"more \(only there, its id 5 was more long here\)"):
        lakes.copy()


@pytest.mark.parametrize("columns", ["add", "ignore"])
def test_a_new_column_of_the_source_is_added_or_ignored_and_its_id_is_never_that_of_another(
    lakes: Lakes, columns: str
) -> None:
    source = lakes.make("east", 1)
    lakes.columns = columns
    lakes.copy()
    with source.update_schema() as update:
        update.add_column("more", LongType())
    append(source, {"region": "eu", "n": 2, "more": 7})
    lakes.copy()
    assert lakes.rows() == [1, 2]
    target = lakes.table()
    assert ("more" in target.schema().column_names) == (columns == "add")
    with target.update_schema() as update:
        update.add_column("other", LongType())
    assert target.schema().find_field("other").field_id == 6
    assert set(target.scan().to_arrow().column("other").to_pylist()) == {None}
    if columns == "ignore":
        with source.update_schema() as update:
            update.add_column("else", LongType())
        with pytest.raises(TableRefusedError, match="6: else long there, other long here"):
            lakes.copy()


def test_rows_that_others_have_put_into_the_place_are_refused_or_go_to_the_trash(lakes: Lakes) -> None:
    lakes.make("east", 1)
    lakes.make("west", 9)
    with pytest.raises(ForeignContentError):
        lakes.copy(clearing=Clearing(sweep="s-1"))
    assert lakes.rows() == [9]
    lakes.copy(clearing=Clearing(sweep="s-1", existing=Existing.REPLACE))
    assert lakes.rows() == [1]
    trash = lakes.stores.get(lakes.side("west").store).trash()
    assert list(trash.contents("s-1")) == [EU]


def test_a_guard_is_asked_right_before_the_commit_and_leaves_nothing_if_it_forbids(lakes: Lakes) -> None:
    source = lakes.make("east", 1)
    lakes.copy()
    append(source, {"region": "eu", "n": 2})
    asked = 0

    def forbid() -> None:
        nonlocal asked
        asked += 1
        if asked == 2:
            raise FencedOut

    with pytest.raises(FencedOut):
        lakes.copy(guard=forbid)
    versions = Path(lakes.table().location().removeprefix("file://")) / "data/feed-assets" / EU
    assert (lakes.rows(), len(list(versions.iterdir()))) == ([1], 1)
    assert (lakes.copy().kept, lakes.rows()) == (1, [1, 2])


def test_an_audit_finds_a_flipped_byte_and_the_next_copy_repairs_it(lakes: Lakes) -> None:
    lakes.make("east", 1, 2)
    lakes.copy()
    sides = lakes.side("east"), lakes.side("west")
    damaged = live_files(lakes.table())[0]
    content = bytearray(damaged.read_bytes())
    content[10] ^= 1
    damaged.write_bytes(content)
    assert audit_copy(lakes.stores, *sides, CopyOptions(), LATER).rotten == ()
    audit = audit_copy(lakes.stores, *sides, CopyOptions(), LATER, deep=True)
    assert (audit.rotten, audit.lost, audit.extra) == ((damaged.name,), (), ())
    assert lakes.copy(distrusted=audit.distrusted).files == 1
    assert lakes.rows() == [1, 2]
    gone, short = live_files(lakes.table())
    gone.unlink()
    short.write_bytes(short.read_bytes()[:100])
    audit = audit_copy(lakes.stores, *sides, CopyOptions(), LATER)
    assert (audit.lost, audit.rotten) == ((gone.name,), (short.name,))
    assert lakes.copy(distrusted=audit.distrusted).files == 2
    append(lakes.table(), {"region": "eu", "n": 9})
    assert len(audit_copy(lakes.stores, *sides, CopyOptions(), LATER).extra) == 1


def test_an_evicted_copy_comes_back_and_is_copied_again_when_it_is_purged(lakes: Lakes) -> None:
    lakes.make("east", 1)
    lakes.copy()
    trash = lakes.stores.get(lakes.side("west").store).trash()
    trash.put("sweep", [EU])
    assert lakes.rows() == []
    trash.restore("sweep", [EU])
    assert (lakes.rows(), lakes.copy().status) == ([1], CopyStatus.UNCHANGED)
    trash.put("again", [EU])
    trash.purge("again")
    assert (lakes.copy().status, lakes.rows()) == (CopyStatus.COPIED, [1])


def test_a_whole_table_is_copied_and_its_next_version_replaces_it(lakes: Lakes) -> None:
    source = lakes.make("east", 1, spec=PLAIN)
    assert (lakes.copy(WHOLE_TABLE).files, lakes.rows()) == (1, [1])
    append(source, {"region": "us", "n": 2})
    assert (lakes.copy(WHOLE_TABLE).kept, lakes.rows()) == (1, [1, 2])
    compact(source, "n > 0")
    assert lakes.copy(WHOLE_TABLE).status is CopyStatus.UNCHANGED
    source.refresh().delete("n > 0")
    assert (len(lakes.copy(WHOLE_TABLE).removed), lakes.rows()) == (2, [])
    assert lakes.copy(WHOLE_TABLE).status is CopyStatus.UNCHANGED


def test_many_partitions_are_copied_at_once_and_their_commits_do_not_overtake_each_other(
    lakes: Lakes, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, made = lakes.make(), list[bool]()
    names = [f"r{number}" for number in range(8)]
    source.append(rows_of(source, *({"region": name, "n": 1} for name in names)))

    def commit(*args: Any) -> bool:
        made.append(commit_change(*args))
        return made[-1]

    monkeypatch.setattr(store, "commit_change", commit)
    pairs = [(lakes.side("east", f"region={name}"), lakes.side("west", f"region={name}")) for name in names]
    requests = [CopyRequest(source=one, target=other, guard=allow, extra={}) for one, other in pairs]
    outcomes = copy_many(lakes.stores, requests, CopyOptions(), LATER)
    assert [each.status for each in outcomes if isinstance(each, Copied)] == [CopyStatus.COPIED] * 8
    assert made == [True] * 8


def test_a_copy_without_files_is_no_partition(lakes: Lakes) -> None:
    lakes.make("east", 1)
    with pytest.raises(TableRefusedError, match="a partition without files is none"):
        lakes.copy(exclude=("**",), allow_empty=True)


def test_a_file_whose_head_is_damaged_is_named(lakes: Lakes) -> None:
    (file,) = live_files(lakes.make("east", 1))
    content = bytearray(file.read_bytes())
    content[-20] ^= 255
    file.write_bytes(content)
    with pytest.raises(TableRefusedError, match=f"the file {file.name} .* it is no Parquet file.* at its source"):
        lakes.copy()


@pytest.mark.drill
@pytest.mark.server
def test_a_copy_on_s3_is_replaced_and_keeps_what_stands(tmp_path: Path, s3_options: dict[str, object]) -> None:
    lakes = Lakes(tmp_path, f"s3://{BUCKET}/{tmp_path.name}", s3_options)
    source = lakes.make("east", 1, 2)
    assert (lakes.copy().files, lakes.rows()) == (2, [1, 2])
    append(source, {"region": "eu", "n": 3})
    assert (lakes.copy().kept, lakes.rows()) == (2, [1, 2, 3])
    assert lakes.copy().status is CopyStatus.UNCHANGED
    sides = lakes.side("east"), lakes.side("west")
    assert audit_copy(lakes.stores, *sides, CopyOptions(), LATER, deep=True).distrusted == frozenset()
