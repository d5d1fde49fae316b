import pytest

from feed_assets.log.records import Watermark, WatermarkKind
from feed_assets.log.watermarks import Watermarks
from feed_assets.sql.database import Database
from tests.log.samples import hour

pytestmark = pytest.mark.both_databases


FEED, PROCESS = WatermarkKind.FEED, WatermarkKind.PROCESS


def watermark(entity: str, n: int | None, kind: WatermarkKind = FEED, cluster: str = "primary") -> Watermark:
    next_time = None if n is None else hour(n)
    return Watermark(kind=kind, entity=entity, cluster=cluster, next_index=n or 0, next_time=next_time)


def test_a_watermark_is_due_from_the_time_of_its_next_instance_on(database: Database) -> None:
    rows = [watermark("a", 3), watermark("b", 2), watermark("c", 4), watermark("d", None)]
    others = [watermark("a", 1, PROCESS), watermark("a", 1, cluster="backup")]
    with database.begin() as connection:
        watermarks = Watermarks(connection)
        watermarks.put(rows + others)
        assert watermarks.due(FEED, hour(3), 9) == [others[1], rows[1], rows[0]]
        assert watermarks.due(FEED, hour(3), 9, cluster="primary") == [rows[1], rows[0]]
        assert watermarks.due(FEED, hour(3), 1, cluster="primary") == [rows[1]]
        assert watermarks.due(PROCESS, hour(0), 9) == []


def test_put_moves_a_watermark(database: Database) -> None:
    with database.begin() as connection:
        watermarks = Watermarks(connection)
        watermarks.put([watermark("a", 1)])
        watermarks.put([watermark("a", 2), watermark("a", None)])
        watermarks.put([])
        assert watermarks.get(FEED, "a", "primary") == watermark("a", None)
        assert watermarks.get(PROCESS, "a", "primary") is None


def test_entities_without_a_watermark_are_found_in_the_order_asked(database: Database) -> None:
    with database.begin() as connection:
        watermarks = Watermarks(connection)
        watermarks.put([watermark("a", 1), watermark("b", 1, PROCESS)])
        keys = [("c", "primary"), ("b", "primary"), ("a", "primary"), ("a", "backup")]
        assert watermarks.missing(FEED, keys) == [keys[0], keys[1], keys[3]]
        assert watermarks.missing(FEED, []) == []


def test_a_removed_watermark_is_missing_again(database: Database) -> None:
    with database.begin() as connection:
        watermarks = Watermarks(connection)
        watermarks.put([watermark("a", 1), watermark("a", 1, PROCESS), watermark("b", 1)])
        watermarks.remove(FEED, [("a", "primary"), ("unknown", "primary")])
        assert watermarks.missing(FEED, [("a", "primary"), ("b", "primary")]) == [("a", "primary")]
        assert watermarks.get(PROCESS, "a", "primary") is not None
