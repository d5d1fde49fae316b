"""Partitions of tables copied to the table of another catalog: description and files, shown by one call."""

import itertools
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from feed_assets.entities.copies.options import Existing, RemovedFiles
from feed_assets.entities.maps import FrozenMap
from feed_assets.plan.copy_records import CopyOptions, StoreAddress
from feed_assets.storage.errors import ForeignContentError, TableRefusedError
from feed_assets.storage.pool import StorePool
from feed_assets.storage.port import InstanceStore
from feed_assets.storage.records import Clearing
from feed_assets.storage.registry import open_store
from feed_assets.storage.table.metastore import Metastore, Partition, Table
from feed_assets.storage.table.partitions import TablePartitions
from feed_assets.storage.table.store import TableStore
from feed_assets.timing.templates import WHOLE_TABLE
from feed_assets.transfer.auditing import audit_copy
from feed_assets.transfer.copying import copy_many
from feed_assets.transfer.plans import Side
from feed_assets.transfer.requests import Copied, CopyRequest, CopyStatus
from tests.storage.harnesses import FencedOut, allow, publish, read_all
from tests.tables import COLUMNS, KEYS, Catalog
from tests.transfer.sides import FLAG, LATER

pytestmark = [pytest.mark.server, pytest.mark.spark]

ACID = {"kind": "MANAGED_TABLE", "parameters": {"transactional": "true"}, "format": "orc", "buckets": 2}
DAY = "ds=2013-11-03/region=eu"
VALUES = ("2013-11-03", "eu")
_numbers = itertools.count()


@dataclass(slots=True)
class Tables:
    """A table of the database `<name>_east`, and one of the same name, perhaps not there yet, of `<name>_west`, in the
    metastores at two ports, or at one.
    """

    folder: Path
    name: str
    ports: Mapping[str, int]
    columns: str = "refuse"
    stores: StorePool = field(default_factory=StorePool)
    catalogs: dict[str, Catalog] = field(init=False)

    def __post_init__(self) -> None:
        self.catalogs = {cluster: Catalog(port) for cluster, port in self.ports.items()}

    @property
    def catalog(self) -> Catalog:
        """The metastore of the source."""
        return self.catalogs["east"]

    def make(self, cluster: str = "east", **more: Any) -> Table:
        keys = more.pop("keys", KEYS)
        place = self.folder / cluster / "clicks"
        return self.catalogs[cluster].make_table(f"{self.name}_{cluster}", "clicks", place, keys, **more)

    def table(self, cluster: str = "west") -> Table:
        found = self.catalogs[cluster].find_table(f"{self.name}_{cluster}", "clicks")
        assert found is not None
        return found

    def partition(self, *values: str, cluster: str = "west") -> Partition | None:
        return self.catalogs[cluster].partition(self.table(cluster), *values)

    def add(self, files: Mapping[str, bytes], *values: str, cluster: str = "east") -> Path:
        """A partition, or new files of one, as others make them."""
        table = self.table(cluster)
        folder = Path(table.location.removeprefix("file:")) / table.render(values)
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            (folder / name).write_bytes(data)
        self.catalogs[cluster].add_partition(table, values, f"file:{folder}")
        return folder

    def side(self, cluster: str, path: str = DAY) -> Side:
        url = f"thrift://127.0.0.1:{self.ports[cluster]}/{self.name}_{cluster}/clicks"
        more = {"columns": self.columns} if cluster == "west" else {}
        options: FrozenMap[str, object] = FrozenMap({"storage": f"file://{self.folder / cluster}", **more})
        return Side(store=StoreAddress(url=url, options=options), path=path, flag=FLAG if cluster == "west" else None)

    def copy(
        self,
        path: str = DAY,
        guard: Any = allow,
        clearing: Clearing | None = None,
        distrusted: frozenset[str] = frozenset(),
        **options: Any,
    ) -> Copied:
        sides = self.side("east", path), self.side("west", path)
        request = CopyRequest(source=sides[0], target=sides[1], guard=guard, clearing=clearing, distrusted=distrusted)
        (outcome,) = copy_many(self.stores, [request], CopyOptions(**options), LATER)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def read(self, cluster: str = "west", path: str = DAY) -> dict[str, bytes]:
        return read_all(self.stores.get(self.side(cluster).store), path)


@pytest.fixture
def tables(metastore_port: int, tmp_path: Path) -> Tables:
    return make_tables(tmp_path, metastore_port, metastore_port)


def make_tables(folder: Path, *ports: int) -> Tables:
    """The databases, without tables."""
    name = f"copied_{os.getpid()}_{next(_numbers)}"
    made = Tables(folder=folder, name=name, ports=dict(zip(("east", "west"), ports, strict=True)))
    for cluster, catalog in made.catalogs.items():
        catalog.make_database(f"{name}_{cluster}", folder / cluster / "warehouse")
    return made


def test_row_67_a_partition_is_copied_and_the_missing_table_is_made_from_the_description_of_its_source(
    tables: Tables,
) -> None:
    columns = [("user", "string"), ("price", "decimal(10,2)")]
    said = {"note": "kept", "numRows": "7", "transient_lastDdlTime": "12"}
    tables.make(columns=columns, format="parquet", parameters=said, serde={"field.delim": ";"})
    tables.add({"000000_0": b"one", "000001_0": b"two"}, *VALUES)
    copied = tables.copy()
    assert (copied.status, copied.files, copied.bytes) == (CopyStatus.COPIED, 2, 6)
    made, source = tables.table(), tables.table("east")
    assert (made.columns, made.keys, made.kind) == (tuple(columns), tuple(KEYS), "EXTERNAL_TABLE")
    assert made.described.sd.serdeInfo == source.described.sd.serdeInfo
    assert made.described.sd.inputFormat == source.described.sd.inputFormat
    assert (made.parameters["note"], "numRows" in made.parameters) == ("kept", False)
    assert made.location == f"file:{tables.folder}/west/warehouse/clicks"
    assert tables.read() == {"000000_0": b"one", "000001_0": b"two"}
    assert tables.copy().status is CopyStatus.UNCHANGED


def test_each_partition_keeps_its_own_format_and_a_rerun_replaces_the_copy(tables: Tables) -> None:
    tables.make()
    folder = tables.add({"a": b"a", "gone": b"g"}, *VALUES)
    partition = tables.partition(*VALUES, cluster="east")
    assert partition is not None
    partition.described.sd.inputFormat = "org.apache.hadoop.hive.ql.io.RCFileInputFormat"
    tables.catalog.put_parameters(tables.table("east"), partition, {"note": "old", "numRows": "1"})
    tables.copy()
    first = tables.partition(*VALUES)
    assert first is not None
    assert first.described.sd.inputFormat.endswith("RCFileInputFormat")
    assert (first.described.parameters["note"], "numRows" in first.described.parameters) == ("old", False)
    (folder / "gone").unlink()
    (folder / "b").write_bytes(b"b")
    copied = tables.copy(removed_files=RemovedFiles.REMOVE)
    assert (copied.files, copied.kept, copied.removed) == (1, 1, ("gone",))
    second = tables.partition(*VALUES)
    assert second is not None
    assert second.location != first.location
    assert tables.read() == {"a": b"a", "b": b"b"}
    assert not Path(first.location.removeprefix("file:")).exists()
    assert tables.catalog.partition_names(tables.table(), {}) == ["ds=2013-11-03/region=eu"]


def test_another_description_of_the_same_files_is_copied(tables: Tables) -> None:
    tables.make()
    publish(tables.stores.get(tables.side("east").store), DAY, {"a": b"a"}, flag=None)
    tables.copy()
    partition = tables.partition(*VALUES, cluster="east")
    assert partition is not None
    tables.catalog.put_parameters(tables.table("east"), partition, {"skip.header.line.count": "1"})
    copied = tables.copy(quick=False)
    assert (copied.status, copied.files, copied.kept) == (CopyStatus.COPIED, 0, 1)
    there = tables.partition(*VALUES)
    assert there is not None
    assert there.described.parameters["skip.header.line.count"] == "1"
    assert tables.copy(quick=False).status is CopyStatus.UNCHANGED


@pytest.mark.parametrize(
    ("cluster", "more", "reason"),
    [
        ("east", {"kind": "VIRTUAL_VIEW"}, "the source .*clicks is not copied: it is a view"),
        ("east", ACID, "the source .* transactions"),
        ("east", {"buckets": 4}, "the source .* in 4 buckets"),
        ("east", {"parameters": {"table_type": "ICEBERG"}}, "the source .* a table of Iceberg"),
        ("west", {"buckets": 4}, "the target .* in 4 buckets"),
        ("west", {"columns": [*COLUMNS, ("more", "int")]}, r"its columns .*: more \(none there, int here\)"),
        ("west", {"columns": [("text", "int")]}, r"its columns .*: text \(string there, int here\)"),
        ("west", {"keys": [*KEYS, ("hour", "int")]}, r"its partition keys .*: hour \(none there, int here\)"),
    ],
)
def test_what_is_no_plain_table_or_has_other_columns_is_refused_by_name(
    tables: Tables, cluster: str, more: dict[str, Any], reason: str
) -> None:
    tables.make("east", **(more if cluster == "east" else {}))
    if cluster == "west":
        tables.make("west", **more)
    with pytest.raises(TableRefusedError, match=reason):
        tables.copy()
    assert cluster == "west" or tables.catalog.find_table(f"{tables.name}_west", "clicks") is None


def test_columns_that_only_one_of_the_tables_has_are_ignored_where_the_feed_says_so(tables: Tables) -> None:
    tables.make(columns=[*COLUMNS, ("more", "int")], format="parquet")
    tables.make("west", columns=[*COLUMNS, ("other", "int")], format="parquet")
    tables.add({"a": b"a"}, *VALUES)
    tables.columns = "ignore"
    assert tables.copy().files == 1
    there = tables.partition(*VALUES)
    assert there is not None
    assert [each.name for each in there.described.sd.cols] == ["text", "more"]
    assert tables.table().columns == (*COLUMNS, ("other", "int"))


@pytest.mark.parametrize(("columns", "others"), [("refuse", ("more", "text")), ("ignore", ("text", "other"))])
def test_columns_that_readers_would_take_for_others_are_refused(
    tables: Tables, columns: str, others: tuple[str, ...]
) -> None:
    tables.make(columns=[("text", "string"), ("more", "string")])
    tables.make("west", columns=[(name, "string") for name in others])
    tables.add({"a": b"a"}, *VALUES)
    tables.columns = columns
    with pytest.raises(TableRefusedError, match=r"in another order .*: text, more there"):
        tables.copy()


def test_a_partition_that_others_have_made_is_refused_adopted_where_it_is_equal_or_replaced(tables: Tables) -> None:
    for cluster in ("east", "west"):
        tables.make(cluster)
    tables.add({"a": b"a", "b": b"b"}, *VALUES)
    tables.add({"a": b"a", "theirs": b"theirs"}, *VALUES, cluster="west")
    with pytest.raises(ForeignContentError, match="theirs"):
        tables.copy(clearing=Clearing(sweep="s-1"))
    assert tables.read() == {"a": b"a", "theirs": b"theirs"}
    tables.copy(clearing=Clearing(sweep="s-1", existing=Existing.REPLACE), removed_files=RemovedFiles.REMOVE)
    assert tables.read() == {"a": b"a", "b": b"b"}
    store = tables.stores.get(tables.side("west").store)
    assert list(store.trash().contents("s-1")) == [DAY]


def test_a_guard_that_forbids_leaves_the_former_copy_and_nothing_else(tables: Tables) -> None:
    tables.make()
    folder = tables.add({"a": b"a"}, *VALUES)
    tables.copy()
    (folder / "b").write_bytes(b"b")

    def forbid() -> None:
        raise FencedOut

    with pytest.raises(FencedOut):
        tables.copy(guard=forbid)
    assert tables.read() == {"a": b"a"}
    versions = tables.folder / "west/warehouse/clicks/_feed-assets" / DAY
    assert len(list(versions.iterdir())) == 1
    assert tables.copy().kept == 1
    assert tables.read() == {"a": b"a", "b": b"b"}


def test_a_partition_without_a_directory_is_an_empty_copy(tables: Tables) -> None:
    table = tables.make()
    tables.catalog.add_partition(table, VALUES, f"{table.location}/nowhere")
    assert (tables.copy().files, tables.read()) == (0, {})
    assert tables.partition(*VALUES) is not None


def test_an_audit_finds_a_flipped_byte_and_the_next_copy_repairs_it(tables: Tables) -> None:
    tables.make()
    tables.add({"a": b"aaaa", "b": b"bbbb"}, *VALUES)
    tables.copy()
    there = tables.partition(*VALUES)
    assert there is not None
    (Path(there.location.removeprefix("file:")) / "a").write_bytes(b"aaxa")
    sides = tables.side("east"), tables.side("west")
    assert audit_copy(tables.stores, *sides, CopyOptions(), LATER).rotten == ()
    audit = audit_copy(tables.stores, *sides, CopyOptions(), LATER, deep=True)
    assert (audit.rotten, audit.lost, audit.extra) == (("a",), (), ())
    assert tables.copy(distrusted=audit.distrusted).files == 1
    assert tables.read() == {"a": b"aaaa", "b": b"bbbb"}


def test_a_whole_table_is_copied_and_its_next_version_replaces_it(tables: Tables) -> None:
    table = tables.make(keys=())
    folder = Path(table.location.removeprefix("file:"))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "a").write_bytes(b"a")
    assert tables.copy(WHOLE_TABLE).files == 1
    assert tables.read(path=WHOLE_TABLE) == {"a": b"a"}
    (folder / "b").write_bytes(b"b")
    assert (tables.copy(WHOLE_TABLE).files, tables.read(path=WHOLE_TABLE)) == (1, {"a": b"a", "b": b"b"})
    assert tables.copy(WHOLE_TABLE).status is CopyStatus.UNCHANGED


def test_a_copy_in_objects_adopts_what_stands(tables: Tables) -> None:
    """This metastore knows no object storage, so what is at a location of the target is in memory."""

    def opened(url: str, options: Mapping[str, object]) -> InstanceStore:
        if "_east/" in url:
            return open_store(url, options)
        _, database, table = url.rsplit("/", 2)
        metastore = Metastore([("127.0.0.1", tables.ports["west"])], url)
        return TableStore(
            TablePartitions(metastore, database, table, url, lambda each: open_store(f"memory:/{each[7:]}", {}))
        )

    tables.stores = StorePool(opened)
    tables.make()
    tables.make("west")
    folder = tables.add({"a": b"a", "b": b"b"}, *VALUES)
    tables.copy()
    (folder / "c").write_bytes(b"c")
    assert (tables.copy().kept, tables.read()) == (2, {"a": b"a", "b": b"b", "c": b"c"})
