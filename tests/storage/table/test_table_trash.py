"""Taking partitions of tables away, and putting them back."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from feed_assets.storage.errors import StorageError
from feed_assets.storage.local.store import LocalStore
from feed_assets.storage.records import Outcome
from feed_assets.storage.table.metastore import Partition, Table
from feed_assets.timing.templates import parse_path_template
from tests.storage.harnesses import publish, read_all
from tests.storage.shops import Shop, open_shop
from tests.tables import Catalog
from tests.transfer.archives import archive as archive_to
from tests.transfer.archives import bring_back, receive

pytestmark = [pytest.mark.server, pytest.mark.spark]

DAYS = [f"ds=2013-11-0{day}/region=eu" for day in range(1, 6)]
MOVED, ALREADY, VANISHED = Outcome.MOVED, Outcome.ALREADY, Outcome.VANISHED


def outcomes(moved: Sequence[object]) -> list[Outcome]:
    return [each.outcome for each in moved]  # type: ignore[attr-defined]


def everything(_below: str, names: Sequence[str]) -> Sequence[str]:
    return names


def fill(shop: Shop) -> None:
    """Five days: the first as Hive has it, the second elsewhere, the others published."""
    shop.add(shop.folder / DAYS[0], "2013-11-01", "eu", text="1")
    shop.add(shop.folder.parent / "raw/two", "2013-11-02", "eu", text="2")
    for number, day in enumerate(DAYS[2:], 3):
        publish(shop.store, day, {"part-0": b"%d" % number}, token=f"run-{number}")


def contents(shop: Shop) -> list[bytes | None]:
    looks = shop.store.look(DAYS, None)
    return [read_all(shop.store, look.path)["part-0"] if look.files else None for look in looks]


def test_row_54_partitions_older_than_a_cut_off_are_found_by_their_names(shop: Shop) -> None:
    fill(shop)
    shop.catalog.add_partition(shop.table, ["latest", "eu"], f"{shop.table.location}/x")
    shop.catalog.add_partition(shop.table, ["2013-11-01", "us"], f"{shop.table.location}/y")
    template = parse_path_template("ds=${YEAR}-${MONTH}-${DAY}/region=eu")
    cutoff = datetime(2013, 11, 3, tzinfo=UTC)
    found = {path: template.parse(path) for path in shop.store.walk("", 2, everything)}
    assert sorted(path for path, time in found.items() if time is not None and time < cutoff) == DAYS[:2]
    asked = shop.catalog.asked
    us = list(shop.store.walk("region=us", 1, everything))
    assert (us, shop.catalog.asked - asked) == (["region=us/ds=2013-11-01"], 2)


def test_a_walk_shows_the_keys_in_any_order_and_numbers_in_both_spellings(catalog: Catalog, tmp_path: Path) -> None:
    shop = open_shop(catalog, tmp_path / "shop", [("year", "int"), ("month", "int"), ("region", "string")])
    for month in ("5", "11"):
        shop.catalog.add_partition(shop.table, ["2013", month, "eu"], f"{shop.table.location}/{month}")
    seen: dict[str, set[str]] = {}

    def choose(below: str, names: Sequence[str]) -> Sequence[str]:
        seen[below] = set(names)
        wanted = ("region=eu", "year=2013", "month=05", "month=11")[below.count("/") + bool(below) :][:3]
        return [name for name in names if name in wanted]

    found = set(shop.store.walk("", 3, choose))
    assert {"region=eu/year=2013/month=05", "region=eu/year=2013/month=11"} <= found
    assert seen[""] == {"year=2013", "month=5", "month=05", "month=11", "region=eu"}
    looks = shop.store.look(sorted(found), None)
    assert {look.availability.value for look in looks} == {"AVAILABLE"}
    assert list(shop.store.walk("", 2, everything)) == []


def test_row_54_partitions_are_dropped_with_their_data_and_external_ones_too(shop: Shop) -> None:
    fill(shop)
    places = [shop.location(f"2013-11-0{day}", "eu") for day in range(1, 6)]
    trash = shop.store.trash()
    trash.describe("sweep-1", {"why": "old"})
    assert outcomes(trash.put("sweep-1", DAYS[:3])) == [MOVED] * 3
    assert contents(shop) == [None, None, None, b"4", b"5"]
    assert sorted(shop.catalog.partition_names(shop.table, {})) == DAYS[3:]
    assert [place.exists() for place in places] == [False, False, False, True, True]
    assert outcomes(trash.put("sweep-1", [*DAYS[:3], "ds=2000-01-01/region=eu"])) == [*[ALREADY] * 3, VANISHED]
    assert sorted(trash.contents("sweep-1")) == DAYS[:3]
    assert trash.sweeps() == ["sweep-1"]
    assert trash.find_description("sweep-1") == {"why": "old"}
    trash.remove_empty_parents("", DAYS[:3])
    assert not (shop.folder / "ds=2013-11-01").exists()


def test_row_54_what_was_dropped_comes_back_as_it_was(shop: Shop) -> None:
    fill(shop)
    said = {"note": "kept", "numRows": "1"}
    shop.catalog.put_parameters(shop.table, shop.partition("2013-11-01", "eu"), said)
    before = [shop.partition(f"2013-11-0{day}", "eu") for day in range(1, 4)]
    trash = shop.store.trash()
    trash.put("sweep-1", DAYS[:3])
    assert outcomes(trash.restore("sweep-1", DAYS[:4])) == [MOVED, MOVED, MOVED, Outcome.LOST]
    after = [shop.partition(f"2013-11-0{day}", "eu") for day in range(1, 4)]
    assert [each.location for each in after] == [each.location for each in before]
    assert after[0].described.parameters.items() >= said.items()
    assert contents(shop) == [b"1", b"2", b"3", b"4", b"5"]
    assert outcomes(trash.restore("sweep-1", DAYS[:1])) == [Outcome.LOST]


def test_row_54_what_was_purged_is_gone(shop: Shop) -> None:
    fill(shop)
    trash = shop.store.trash()
    trash.put("sweep-1", DAYS[:2])
    trash.put("sweep-1", DAYS[2:3])
    purged = trash.purge("sweep-1")
    assert purged.is_complete
    assert purged.files >= 3
    assert trash.sweeps() == []
    assert outcomes(trash.restore("sweep-1", DAYS[:3])) == [Outcome.LOST] * 3
    assert contents(shop) == [None, None, None, b"4", b"5"]
    left = [item.name for item in shop.folder.parent.rglob("part-0")]
    assert len(left) == 2


def test_what_came_since_is_left_alone(shop: Shop) -> None:
    fill(shop)
    trash = shop.store.trash()
    trash.put("sweep-1", DAYS[2:3])
    publish(shop.store, DAYS[2], {"part-0": b"new"}, token="run-9")
    assert outcomes(trash.put("sweep-1", DAYS[2:3])) == [Outcome.CHANGED]
    assert outcomes(trash.restore("sweep-1", DAYS[2:3])) == [Outcome.OCCUPIED]
    assert contents(shop)[2] == b"new"


@pytest.mark.parametrize("path", ["ds=2013-11-01", "2013", "ds=2013-11-01/region=eu/x=1", "../x"])
def test_a_path_that_names_no_partition_is_refused_and_the_others_are_not(shop: Shop, path: str) -> None:
    fill(shop)
    trash = shop.store.trash()
    assert outcomes(trash.put("sweep-1", [path, DAYS[0]])) == [Outcome.REFUSED, MOVED]
    (measure,) = shop.store.measure([path])
    assert measure.obstacle
    assert not measure.exists


class Breaking(Catalog):
    """A metastore that breaks off when partitions should be dropped or put back, as often as it is told."""

    failures = 0

    def drop_partitions(self, table: Table, partitions: Sequence[Partition]) -> None:
        super().drop_partitions(table, partitions)
        self._fail()

    def put_back(self, packed: str) -> bool:
        self._fail()
        return super().put_back(packed)

    def _fail(self) -> None:
        if self.failures:
            self.failures -= 1
            raise StorageError(store="", path="", reason="it broke off", next_step="")


def test_taking_away_and_putting_back_go_on_where_they_broke_off(metastore_port: int, tmp_path: Path) -> None:
    breaking = Breaking(metastore_port)
    shop = open_shop(breaking, tmp_path / "shop")
    fill(shop)
    trash = shop.store.trash()
    breaking.failures = 1
    with pytest.raises(StorageError, match="broke off"):
        trash.put("sweep-1", DAYS[:3])
    assert contents(shop)[:3] == [None, None, None]
    assert outcomes(trash.put("sweep-1", DAYS[:3])) == [MOVED] * 3
    breaking.failures = 1
    with pytest.raises(StorageError, match="broke off"):
        trash.restore("sweep-1", DAYS[:3])
    assert set(outcomes(trash.restore("sweep-1", DAYS[:3]))) == {MOVED}
    assert contents(shop) == [b"1", b"2", b"3", b"4", b"5"]


def test_a_link_in_the_place_of_a_partition_is_not_taken_away(shop: Shop, tmp_path: Path) -> None:
    fill(shop)
    place = shop.location("2013-11-03", "eu")
    place.rename(tmp_path / "kept")
    place.symlink_to(tmp_path / "kept")
    assert outcomes(shop.store.trash().put("sweep-1", DAYS[2:3])) == [Outcome.REFUSED]
    assert DAYS[2] in shop.catalog.partition_names(shop.table, {})
    assert (tmp_path / "kept/part-0").exists()


def test_measures_tell_of_all_files_and_of_another_directory(shop: Shop) -> None:
    fill(shop)
    before = shop.store.measure([*DAYS, "ds=2000-01-01/region=eu"])
    assert [(each.exists, each.files) for each in before] == [
        (True, 1),
        (True, 1),
        (True, 3),
        (True, 3),
        (True, 3),
        (False, 0),
    ]
    assert shop.store.measure(DAYS) == before[:5]
    assert shop.store.all_files(DAYS[2]) == (".feed-assets.manifest.json", "_SUCCESS", "part-0")
    publish(shop.store, DAYS[2], {"part-0": b"3"}, token="run-9")
    assert shop.store.measure(DAYS[2:3])[0].fingerprint != before[2].fingerprint


def test_a_partition_is_archived_and_brought_back(shop: Shop, tmp_path: Path) -> None:
    fill(shop)
    archive = LocalStore(tmp_path / "archive")
    trash = shop.store.trash()
    assert archive_to(shop.store, DAYS[2], archive, "2013/11/03", "sweep-1").outcome is MOVED
    assert read_all(archive, "2013/11/03") == {"part-0": b"3"}
    assert contents(shop)[2] is None
    trash.purge("sweep-1")
    assert bring_back(shop.store, DAYS[2], archive, "2013/11/03", "sweep-1").outcome is MOVED
    assert contents(shop)[2] == b"3"
    assert replace(receive(shop.store, archive, "2013/11/03", DAYS[2]), reason=None).outcome is ALREADY
    assert receive(shop.store, archive, "2013/11/03", DAYS[3]).outcome is Outcome.OCCUPIED
    assert receive(shop.store, archive, "2013/11/03", "ds=1").outcome is Outcome.REFUSED
