"""Tables without partition keys, as one place each."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from feed_assets.storage.errors import ForeignContentError, StorageError, TableRefusedError
from feed_assets.storage.records import Availability, Outcome
from feed_assets.storage.table.metastore import Table
from feed_assets.timing.templates import WHOLE_TABLE
from tests.storage.harnesses import REPLACING, FencedOut, allow, publish, read_all, stage
from tests.storage.shops import Shop, open_shop
from tests.storage.table.test_table_store import Deaf
from tests.tables import Catalog

pytestmark = [pytest.mark.server, pytest.mark.spark]

FUTURE = datetime.now(UTC) + timedelta(days=1)


@pytest.fixture
def countries(catalog: Catalog, tmp_path: Path) -> Shop:
    return open_shop(catalog, tmp_path / "countries", [])


def location(shop: Shop) -> Path:
    table = shop.catalog.find_table("default", shop.table.name)
    assert table is not None
    return Path(table.location.removeprefix("file:"))


def write(shop: Shop, text: str) -> None:
    """Overwrite the table's file, as others do."""
    location(shop).mkdir(exist_ok=True)
    (location(shop) / "000000_0").write_text(text)


def test_a_table_is_there_when_it_has_rows(countries: Shop) -> None:
    (empty,) = countries.store.look([WHOLE_TABLE], None)
    write(countries, "DE\n")
    (full,) = countries.store.look([WHOLE_TABLE], None)
    assert (empty.availability, full.availability) == (Availability.EMPTY, Availability.AVAILABLE)
    assert (full.bytes, full.files) == (3, 1)
    assert countries.store.url(WHOLE_TABLE) == countries.store.root_url
    assert list(countries.store.walk("", 1, lambda _, names: names)) == [WHOLE_TABLE]


def test_other_content_has_another_digest(countries: Shop) -> None:
    digests = []
    for text in ("DE\n", "FR\n", "DE\n"):
        write(countries, text)
        digests.append(countries.store.scan(WHOLE_TABLE, None, None, FUTURE).digest)
    assert digests[0] == digests[2] != digests[1]


def test_a_publication_is_one_call_to_the_metastore(countries: Shop) -> None:
    folder = location(countries)
    publish(countries.store, WHOLE_TABLE, {"part-0": b"DE"})
    first = location(countries)
    staging = stage(countries.store, WHOLE_TABLE, {"part-0": b"FR"}, "run-2")
    seen = []

    def guard() -> None:
        seen.append((location(countries), (first / "part-0").read_bytes()))

    countries.store.publish(staging, flag=None, guard=guard, extra={})
    assert set(seen) == {(first, b"DE")}
    assert (location(countries) / "part-0").read_bytes() == b"FR"
    assert location(countries).is_relative_to(folder)
    assert not first.exists()
    assert read_all(countries.store, WHOLE_TABLE) == {"part-0": b"FR"}
    assert countries.store.published_manifest(WHOLE_TABLE) is not None


def test_what_others_wrote_is_refused_or_stays_where_it_was(countries: Shop) -> None:
    write(countries, "theirs")
    theirs = location(countries) / "000000_0"
    with pytest.raises(ForeignContentError, match="000000_0"):
        publish(countries.store, WHOLE_TABLE, {"part-0": b"ours"})
    assert (location(countries), theirs.read_text()) == (theirs.parent, "theirs")
    publish(countries.store, WHOLE_TABLE, {"part-0": b"ours"}, clearing=REPLACING)
    assert read_all(countries.store, WHOLE_TABLE) == {"part-0": b"ours"}
    publish(countries.store, WHOLE_TABLE, {"part-0": b"newer"}, token="run-2")
    assert (read_all(countries.store, WHOLE_TABLE), theirs.read_text()) == ({"part-0": b"newer"}, "theirs")


def test_what_others_add_to_our_version_goes_to_the_trash(countries: Shop) -> None:
    publish(countries.store, WHOLE_TABLE, {"part-0": b"ours"})
    (location(countries) / "000000_0").write_text("theirs")
    place = countries.store.place(WHOLE_TABLE)
    publish(countries.store, WHOLE_TABLE, {"part-0": b"newer"}, token="run-2", clearing=REPLACING)
    assert list(place.store.trash().contents(REPLACING.sweep)) == [f"{place.path}/000000_0"]


def test_statistics_and_the_path_of_spark_follow_the_location(catalog: Catalog, tmp_path: Path) -> None:
    said = {"numRows": "7", "spark.sql.statistics.numRows": "7", "note": "kept"}
    shop = open_shop(catalog, tmp_path / "native", [], parameters=said, serde={"path": f"file:{tmp_path}/native"})
    publish(shop.store, WHOLE_TABLE, {"part-0": b"DE"})
    described = catalog.find_table("default", shop.table.name).described  # type: ignore[union-attr]
    assert described.sd.serdeInfo.parameters["path"] == described.sd.location == f"file:{location(shop)}"
    assert described.parameters["note"] == "kept"
    assert {"numRows", "spark.sql.statistics.numRows"}.isdisjoint(described.parameters)


def test_managed_tables_are_written_like_external_ones(catalog: Catalog, tmp_path: Path) -> None:
    shop = open_shop(catalog, tmp_path / "managed", [], kind="MANAGED_TABLE")
    publish(shop.store, WHOLE_TABLE, {"part-0": b"DE"})
    publish(shop.store, WHOLE_TABLE, {"part-0": b"FR"}, token="run-2")
    assert read_all(shop.store, WHOLE_TABLE) == {"part-0": b"FR"}


def test_after_a_crash_the_old_content_stands_and_a_repeat_or_a_sweep_converges(
    metastore_port: int, tmp_path: Path
) -> None:
    deaf = Deaf(metastore_port)
    shop = open_shop(deaf, tmp_path / "shop", [])
    publish(shop.store, WHOLE_TABLE, {"part-0": b"old"})
    staging = stage(shop.store, WHOLE_TABLE, {"part-0": b"new"}, "run-2")
    deaf.failures = 1
    with pytest.raises(StorageError, match="broke off"):
        shop.store.publish(staging, flag=None, guard=allow, extra={})
    assert read_all(shop.store, WHOLE_TABLE) == {"part-0": b"old"}
    shop.store.publish(staging, flag=None, guard=allow, extra={})
    assert read_all(shop.store, WHOLE_TABLE) == {"part-0": b"new"}
    deaf.failures = 1
    with pytest.raises(StorageError, match="broke off"):
        publish(shop.store, WHOLE_TABLE, {"part-0": b"newer"}, token="run-3")
    assert shop.store.sweep_staging(datetime.now(UTC) - timedelta(days=1)) == 0
    assert shop.store.sweep_staging(FUTURE) == 1
    assert [each.name for each in location(shop).parent.iterdir()] == ["run-2"]


def test_a_publisher_that_is_fenced_out_leaves_nothing(countries: Shop) -> None:
    publish(countries.store, WHOLE_TABLE, {"part-0": b"old"})
    guards = iter((allow, _fence))
    with pytest.raises(FencedOut):
        countries.store.publish(
            stage(countries.store, WHOLE_TABLE, {"part-0": b"new"}, "run-2"),
            flag=None,
            guard=lambda: next(guards)(),
            extra={},
        )
    assert read_all(countries.store, WHOLE_TABLE) == {"part-0": b"old"}
    assert [each.name for each in location(countries).parent.iterdir()] == ["run-1"]


def _fence() -> None:
    raise FencedOut


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"kind": "VIRTUAL_VIEW"}, "it is a view"),
        ({"parameters": {"transactional": "true"}}, "Hive keeps transactions of it"),
        ({"buckets": 4}, "its rows are in 4 buckets"),
    ],
)
def test_a_table_that_others_must_write_is_not_written(
    metastore_port: int, tmp_path: Path, more: dict[str, object], reason: str
) -> None:
    class Told(Catalog):
        """Derby's metastore makes neither views of files nor transactions, so the table only says so."""

        def find_table(self, database: str, name: str) -> Table | None:
            found = super().find_table(database, name)
            for field, value in more.items():
                if found is not None:
                    object.__setattr__(found, field, value)
            return found

    shop = open_shop(Told(metastore_port), tmp_path / "shop", [])
    with pytest.raises(TableRefusedError, match=reason):
        shop.store.stage(WHOLE_TABLE, "run-1")


def test_keys_that_the_table_has_not_and_keys_that_the_feed_lacks_are_told_with_the_form(
    countries: Shop, shop: Shop
) -> None:
    (look,) = shop.store.look([WHOLE_TABLE], None)
    form = rf"catalog:default:{shop.table.name}#ds=…;region=…"
    assert form in (look.obstacle or "")
    with pytest.raises(TableRefusedError, match=f"Write table: {form}"):
        shop.store.manifest(WHOLE_TABLE)
    (look,) = countries.store.look(["ds=2013-11-03"], None)
    assert "it has no partitions" in (look.obstacle or "")
    with pytest.raises(TableRefusedError, match="instances: current"):
        countries.store.manifest("ds=2013-11-03")


def test_retention_removes_no_whole_table(countries: Shop) -> None:
    publish(countries.store, WHOLE_TABLE, {"part-0": b"DE"})
    (moved,) = countries.store.trash().put("sweep-1", [WHOLE_TABLE])
    assert moved.outcome is Outcome.REFUSED
    assert read_all(countries.store, WHOLE_TABLE) == {"part-0": b"DE"}


def test_a_former_version_is_kept_in_the_trash_and_read_there(countries: Shop) -> None:
    publish(countries.store, WHOLE_TABLE, {"part-0": b"old"})
    trash = countries.store.trash()
    assert trash.keep("sweep-1", WHOLE_TABLE).outcome is Outcome.MOVED
    publish(countries.store, WHOLE_TABLE, {"part-0": b"new"}, token="run-2")
    assert trash.keep("sweep-1", WHOLE_TABLE).outcome is Outcome.ALREADY
    assert list(trash.contents("sweep-1")) == [WHOLE_TABLE]
    with trash.reading("sweep-1", WHOLE_TABLE) as (_, chunks):
        assert b"".join(chunks("part-0")) == b"old"
    assert trash.purge("sweep-1").is_complete
    assert (trash.sweeps(), read_all(countries.store, WHOLE_TABLE)) == ([], {"part-0": b"new"})
