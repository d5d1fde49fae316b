"""What is special of instances that are partitions of a table; `test_instance_store` tests the contract itself."""

import itertools
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from benchmarks.table_ticks import count_sockets
from feed_assets.storage.errors import StorageError, StoreUnknownError, TableRefusedError
from feed_assets.storage.records import Availability
from feed_assets.storage.registry import open_store
from feed_assets.storage.table.metastore import Partition, Table
from feed_assets.storage.table.partitions import TablePartitions
from feed_assets.storage.table.store import TableStore
from tests.servers import free_port
from tests.storage.harnesses import REPLACING, FencedOut, allow, publish, read_all, stage
from tests.storage.shops import Shop, open_shop
from tests.storage.table_harness import open_local
from tests.tables import Catalog

pytestmark = [pytest.mark.server, pytest.mark.spark]

DAY = "ds=2013-11-03/region=eu"
OTHER = "ds=2013-11-03/region=us"
FUTURE = datetime.now(UTC) + timedelta(days=1)


def test_row_12_a_partition_is_there_with_nothing_in_it(shop: Shop) -> None:
    (before,) = shop.store.look([DAY], None)
    shop.catalog.add_partition(shop.table, ["2013-11-03", "eu"], f"{shop.table.location}/ds=2013-11-03/region=eu")
    (look,) = shop.store.look([DAY], None)
    assert before.availability is Availability.MISSING
    assert (look.availability, look.bytes, look.files) == (Availability.AVAILABLE, 0, 0)
    assert look.modified_at is not None
    assert shop.store.look([DAY], "_SUCCESS")[0].availability is Availability.PARTIAL


def test_a_partition_whose_directory_is_gone_is_there_and_holds_nothing(shop: Shop, tmp_path: Path) -> None:
    shop.add(tmp_path / "raw", "2013-11-03", "eu")
    (tmp_path / "raw/part-0").unlink()
    (tmp_path / "raw").rmdir()
    assert shop.store.look([DAY], None)[0].availability is Availability.AVAILABLE
    assert shop.store.look([DAY], "_SUCCESS")[0].availability is Availability.PARTIAL
    scans = [shop.store.scan(DAY, flag, None, FUTURE).availability for flag in (None, "_SUCCESS")]
    assert scans == [Availability.AVAILABLE, Availability.PARTIAL]


def test_the_flag_is_looked_for_where_the_partition_lies(shop: Shop, tmp_path: Path) -> None:
    shop.add(tmp_path / "raw", "2013-11-03", "eu")
    assert shop.store.look([DAY], "_SUCCESS")[0].availability is Availability.PARTIAL
    (tmp_path / "raw/_SUCCESS").touch()
    assert shop.store.look([DAY], "_SUCCESS")[0].availability is Availability.AVAILABLE


def test_many_looks_are_few_questions(shop: Shop) -> None:
    for day in range(1, 4):
        shop.catalog.add_partition(shop.table, [f"2013-11-0{day}", "eu"], f"{shop.table.location}/{day}")
    shop.catalog.asked = 0
    looks = shop.store.look(
        [f"region=eu/ds=2013-{month:02}-{day:02}" for month in range(1, 13) for day in range(29)], None
    )
    assert [look.path for look in looks if look.availability is Availability.AVAILABLE] == [
        f"region=eu/ds=2013-11-0{day}" for day in range(1, 4)
    ]
    assert shop.catalog.asked == 2


def test_a_table_is_described_once_for_many_looks_and_again_when_it_is_gone(shop: Shop, tmp_path: Path) -> None:
    shop.add(tmp_path / "raw", "2013-11-03", "eu")
    shop.store.look([DAY], None)
    shop.catalog.asked = 0
    assert [shop.store.look([DAY], None)[0].availability for _ in range(3)] == [Availability.AVAILABLE] * 3
    assert shop.catalog.asked == 3
    shop.catalog.drop_table(shop.table)
    with pytest.raises(TableRefusedError, match="there is no table"):
        shop.store.look([DAY], None)


def test_all_tables_of_an_address_share_eight_connections(shop: Shop, metastore_port: int) -> None:
    address = ",".join([f"127.0.0.1:{metastore_port}"] * 3)  # as no other test names it
    stores = [open_store(f"thrift://{address}/default/{shop.table.name}", {"storage": str(n)}) for n in range(40)]
    before = count_sockets(metastore_port)
    with ThreadPoolExecutor(40) as pool:
        looks = list(pool.map(lambda store: store.look([DAY], None)[0], stores))
    assert {look.availability for look in looks} == {Availability.MISSING}
    assert 1 <= count_sockets(metastore_port) - before <= 8


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("dt=2013-11-03/region=eu", "the table has no partition key 'dt'"),
        ("ds=2013-11-03", "it lacks the partition key 'region'"),
        ("2013/11/03", "'2013' is not the value of one partition key"),
        ("ds=1/ds=2/region=eu", "'ds=2' is not the value of one partition key"),
    ],
)
def test_a_path_names_all_keys_of_the_table_and_no_others(shop: Shop, path: str, reason: str) -> None:
    (look,) = shop.store.look([path], None)
    assert look.obstacle is not None
    assert reason in look.obstacle
    with pytest.raises(TableRefusedError, match=reason) as caught:
        shop.store.manifest(path)
    assert "#ds=…;region=… at the feed" in str(caught.value)
    with pytest.raises(TableRefusedError, match=reason):
        shop.store.stage(path, "run-1")


def test_a_number_is_one_value_however_it_is_spelled(catalog: Catalog, tmp_path: Path) -> None:
    shop = open_shop(catalog, tmp_path / "shop", [("year", "int"), ("month", "int"), ("note", "string")])
    shop.catalog.add_partition(shop.table, ["2013", "05", "05"], f"{shop.table.location}/old")
    shop.catalog.add_partition(shop.table, ["2013", "6", "06"], f"{shop.table.location}/new")
    paths = ["year=2013/month=05/note=05", "year=2013/month=06/note=06", "year=2013/month=05/note=5"]
    looks = shop.store.look(paths, None)
    assert [look.availability.value for look in looks] == ["AVAILABLE", "AVAILABLE", "MISSING"]
    publish(shop.store, paths[0], {"x": b"1"})
    publish(shop.store, paths[2], {"x": b"2"})
    assert sorted(shop.catalog.partition_names(shop.table, {})) == [
        "year=2013/month=05/note=05",
        "year=2013/month=5/note=5",
        "year=2013/month=6/note=06",
    ]


def test_row_27_a_publication_changes_one_partition_and_no_other(shop: Shop, tmp_path: Path) -> None:
    shop.add(tmp_path / "shop/ds=2013-11-03/region=us", "2013-11-03", "us")
    before = shop.partition("2013-11-03", "us").described
    publish(shop.store, DAY, {"part-0": b"first"})
    publish(shop.store, DAY, {"part-0": b"second"}, token="run-2")
    assert read_all(shop.store, DAY) == {"part-0": b"second"}
    assert read_all(shop.store, OTHER) == {"part-0": b"old"}
    assert shop.partition("2013-11-03", "us").described == before
    assert shop.partition("2013-11-03", "eu").described.sd.serdeInfo == shop.table.described.sd.serdeInfo
    folder = shop.location("2013-11-03", "eu").parent
    assert [each.name for each in folder.iterdir()] == ["run-2"]


def test_content_that_others_wrote_is_replaced_and_goes_to_the_trash(shop: Shop, tmp_path: Path) -> None:
    shop.add(tmp_path / "shop/ds=2013-11-03/region=eu", "2013-11-03", "eu")
    publish(shop.store, DAY, {"part-0": b"new"}, clearing=REPLACING)
    assert read_all(shop.store, DAY) == {"part-0": b"new"}
    assert list(shop.store.trash().contents(REPLACING.sweep)) == [DAY]


def test_what_lies_outside_of_the_table_is_replaced_and_goes_to_the_trash_there(shop: Shop, tmp_path: Path) -> None:
    shop.add(tmp_path / "raw/clicks", "2013-11-03", "eu")
    shop.add(tmp_path / "shop/imported", "2013-11-03", "us")
    publish(shop.store, DAY, {"part-0": b"new"}, clearing=REPLACING)
    publish(shop.store, OTHER, {"part-0": b"new"}, clearing=REPLACING)
    assert read_all(shop.store, DAY) == read_all(shop.store, OTHER) == {"part-0": b"new"}
    assert set(shop.store.trash().contents(REPLACING.sweep)) == {DAY, OTHER}


def test_publications_at_once_follow_one_another_and_leave_one_content(shop: Shop) -> None:
    def work(number: int) -> None:
        publish(shop.store, DAY, {"part-0": b"%d" % number, "part-1": b"%d" % number}, token=f"run-{number}")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(12)))
    found = read_all(shop.store, DAY)
    assert len(found) == 2
    assert len(set(found.values())) == 1
    assert len(list(shop.location("2013-11-03", "eu").parent.iterdir())) == 1


def test_readers_see_the_old_content_or_the_new_one_by_one_call(shop: Shop) -> None:
    publish(shop.store, DAY, {"part-0": b"old"})
    old = shop.location("2013-11-03", "eu")
    staging = stage(shop.store, DAY, {"part-0": b"new"}, "run-2")
    seen = []

    def guard() -> None:
        seen.append((shop.location("2013-11-03", "eu"), (old / "part-0").read_bytes()))

    shop.store.publish(staging, flag=None, guard=guard, extra={})
    assert set(seen) == {(old, b"old")}
    assert not old.exists()


def test_statistics_of_the_old_content_are_forgotten(shop: Shop) -> None:
    publish(shop.store, DAY, {"part-0": b"old"})
    said = {"COLUMN_STATS_ACCURATE": '{"BASIC_STATS":"true"}', "numRows": "7", "spark.sql.statistics.numRows": "7"}
    shop.catalog.put_parameters(shop.table, shop.partition("2013-11-03", "eu"), {**said, "note": "kept"})
    publish(shop.store, DAY, {"part-0": b"new"}, token="run-2")
    parameters = shop.partition("2013-11-03", "eu").described.parameters
    assert parameters["note"] == "kept"
    assert said.keys().isdisjoint(parameters)


class Deaf(Catalog):
    """A metastore that breaks off when it should change a partition, as often as it is told."""

    failures = 0

    def alter_partition(self, table: Table, partition: Partition, location: str, description: str = "") -> bool:
        if self.failures:
            self.failures -= 1
            raise StorageError(store="", path="", reason="it broke off", next_step="")
        return super().alter_partition(table, partition, location, description)


def test_after_a_crash_before_the_metastore_knows_the_old_content_stands_and_a_repeat_converges(
    metastore_port: int, tmp_path: Path
) -> None:
    deaf = Deaf(metastore_port)
    shop = open_shop(deaf, tmp_path / "shop")
    publish(shop.store, DAY, {"part-0": b"old"})
    deaf.failures = 1
    staging = stage(shop.store, DAY, {"part-0": b"new"}, "run-2")
    with pytest.raises(StorageError, match="broke off"):
        shop.store.publish(staging, flag=None, guard=allow, extra={})
    shop.store.discard(staging)
    assert shop.store.recover(DAY) is False
    assert read_all(shop.store, DAY) == {"part-0": b"old"}
    shop.store.publish(staging, flag=None, guard=allow, extra={})
    assert read_all(shop.store, DAY) == {"part-0": b"new"}
    publish(shop.store, DAY, {"part-0": b"newer"}, token="run-3")
    assert read_all(shop.store, DAY) == {"part-0": b"newer"}


def test_prepared_content_that_no_partition_shows_is_swept_when_it_is_old(metastore_port: int, tmp_path: Path) -> None:
    deaf = Deaf(metastore_port)
    shop = open_shop(deaf, tmp_path / "shop")
    publish(shop.store, DAY, {"part-0": b"old"})
    deaf.failures = 1
    with pytest.raises(StorageError, match="broke off"):
        publish(shop.store, DAY, {"part-0": b"new"}, token="run-2")
    orphan = shop.location("2013-11-03", "eu").parent / "run-2"
    assert shop.store.sweep_staging(datetime.now(UTC) - timedelta(days=1)) == 0
    assert orphan.exists()
    assert shop.store.sweep_staging(FUTURE) == 1
    assert not orphan.exists()
    assert read_all(shop.store, DAY) == {"part-0": b"old"}


def test_a_publisher_that_is_fenced_out_at_the_last_moment_leaves_nothing(shop: Shop) -> None:
    publish(shop.store, DAY, {"part-0": b"old"})
    asked = itertools.count()

    def guard() -> None:
        if next(asked):
            raise FencedOut

    with pytest.raises(FencedOut):
        shop.store.publish(stage(shop.store, DAY, {"part-0": b"new"}, "run-2"), flag=None, guard=guard, extra={})
    assert read_all(shop.store, DAY) == {"part-0": b"old"}
    assert [each.name for each in shop.location("2013-11-03", "eu").parent.iterdir()] == ["run-1"]


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"kind": "MANAGED_TABLE", "parameters": {"transactional": "true"}}, "Hive keeps transactions of it"),
        ({"buckets": 4}, "its rows are in 4 buckets"),
    ],
)
def test_a_table_that_others_must_write_is_read_and_not_written(
    metastore_port: int, tmp_path: Path, more: dict[str, Any], reason: str
) -> None:
    class Told(Catalog):
        """Derby's metastore has no transactions, so the table only says that it has."""

        def find_table(self, database: str, name: str) -> Table | None:
            found = super().find_table(database, name)
            if found is not None and more.get("parameters"):
                object.__setattr__(found, "parameters", more["parameters"])
            return found

    made = {name: value for name, value in more.items() if name == "buckets"}
    shop = open_shop(Told(metastore_port), tmp_path / "shop", **made)
    assert shop.store.look([DAY], None)[0].availability is Availability.MISSING
    with pytest.raises(TableRefusedError, match=reason):
        shop.store.stage(DAY, "run-1")


def test_a_table_that_is_not_there_or_has_no_partitions_is_told(catalog: Catalog, tmp_path: Path) -> None:
    store = TableStore(TablePartitions(catalog, "default", "nowhere", "thrift://127.0.0.1/default/nowhere", open_local))
    with pytest.raises(TableRefusedError, match=r"there is no table default\.nowhere"):
        store.check_root()
    (look,) = open_shop(catalog, tmp_path / "plain", []).store.look([DAY], None)
    assert "it has no partitions" in (look.obstacle or "")
    with pytest.raises(TableRefusedError, match="there is no table"):
        store.look([DAY], None)


def test_the_second_metastore_is_asked_when_the_first_is_down(
    metastore_port: int, catalog: Catalog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shop = open_shop(catalog, tmp_path / "shop")
    publish(shop.store, DAY, {"x": b"1"})
    hosts = f"127.0.0.1:{free_port()},127.0.0.1:{metastore_port}"
    store = open_store(f"thrift://{hosts}/default/{shop.table.name}", {"storage": "file:///data"})
    assert store.look([DAY], None)[0].availability is Availability.AVAILABLE
    assert store.url(f"/{DAY}/") == f"thrift://{hosts}/default/{shop.table.name}/{DAY}"
    deaf = open_store(f"thrift://127.0.0.1:{free_port()}/default/{shop.table.name}", {})
    with pytest.raises(StorageError, match="the metastore: it does not answer at"):
        deaf.look([DAY], None)
    assert caplog.text == ""  # what Thrift logs is in the error


def test_a_connection_that_has_died_is_opened_again(metastore_port: int, tmp_path: Path) -> None:
    shop = open_shop(Catalog(metastore_port), tmp_path / "shop")
    publish(shop.store, DAY, {"x": b"1"})
    for connection in shop.catalog._connections._idle:
        connection.close()
    assert shop.store.look([DAY], None)[0].availability is Availability.AVAILABLE


@pytest.mark.parametrize(
    ("url", "options", "reason"),
    [
        ("thrift://host:9083/web", {}, "it names no table"),
        ("thrift://host/web/clicks", {}, "'host' is not a host and port"),
        ("thrift://host:9083/web/clicks", {"key": "k"}, "the storage option 'key' cannot be used"),
    ],
)
def test_an_address_that_is_no_table_is_refused(url: str, options: dict[str, object], reason: str) -> None:
    with pytest.raises(StoreUnknownError, match=reason):
        open_store(url, options)


def test_the_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "feed_assets.storage.table.metastore", None)
    with pytest.raises(StoreUnknownError, match=r'pip install "feed-assets\[hive\]"'):
        open_store("thrift://host:9083/web/clicks", {})
