from dataclasses import replace
from zoneinfo import ZoneInfo

import pytest

from feed_assets.log import watermarks as module
from feed_assets.log.records import Watermark, WatermarkKind
from feed_assets.log.watermarks import Watermarks, part_past
from feed_assets.sql.database import Database
from feed_assets.timing.dates import NEVER
from feed_assets.timing.sequence import InstanceSequence, parse_frequency
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


def test_a_past_that_is_left_is_due_by_its_own_time(database: Database) -> None:
    parted = replace(watermark("a", 9), past_time=hour(1), past_until=hour(8))
    done = replace(watermark("b", 3), past_until=hour(2))
    with database.begin() as connection:
        watermarks = Watermarks(connection)
        watermarks.put([parted, done, watermark("c", 1)])
        assert watermarks.due(FEED, hour(3), None, "primary", of_past=True) == [parted]
        assert watermarks.due(FEED, hour(0), None, "primary", of_past=True) == []
        assert watermarks.get(FEED, "b", "primary") == done


def test_the_newest_of_a_long_past_come_first_and_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NEWEST", 3)
    hourly = InstanceSequence(start=hour(0), frequency=parse_frequency("hours(1)"), timezone=ZoneInfo("UTC"))
    slow = replace(hourly, frequency=parse_frequency("hours(2)"))
    due = [(hourly, hour(0), hour(6)), (slow, hour(6), hour(11))]  # 0 1 2 3 4 5, 6 8 10

    assert part_past(watermark("a", 6), due) == watermark("a", 6)
    parted = part_past(watermark("a", 1), due)
    assert parted.ahead == ((hour(1), hour(6)), (hour(6), NEVER))
    assert [parted.is_ahead(hour(each)) for each in (0, 1, 5, 6)] == [False, True, True, True]
    later = replace(parted, next_time=hour(8), past_time=hour(2))
    assert part_past(later, due) == later  # a past is left: what falls due meanwhile comes in its order
    assert [later.next_towards(hour(each)) for each in (4, 7)] == [hour(2), hour(8)]
    assert part_past(replace(later, next_time=hour(4)), due).ahead == ((hour(2), hour(6)), (hour(6), NEVER))
    over = replace(later, next_time=None)
    assert (over.ahead, over.is_ahead(hour(9)), over.rejoined().next_time) == (((hour(2), hour(6)),), False, hour(2))
    assert replace(over, past_time=None).ahead == ()
