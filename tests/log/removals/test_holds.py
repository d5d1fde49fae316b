"""Holds: what they protect, until when, and that a broken one protects everything."""

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import text

from feed_assets.log.removals.holds import Holds
from feed_assets.log.removals.records import Hold
from feed_assets.sql.database import Database
from tests.log.samples import hold, hour

pytestmark = pytest.mark.both_databases


HOURS = st.integers(0, 4)
ENDS = st.none() | HOURS


def at(n: int | None) -> datetime | None:
    return None if n is None else hour(n)


def test_holds_come_back_as_they_were_with_numbers(database: Database) -> None:
    with database.begin() as connection:
        holds = Holds(connection)
        first = holds.add([hold("audit"), hold("audit", feed="views", cluster="backup", first=hour(1), last=hour(2))])
        second = holds.add([hold("legal", expires_at=hour(9), reason="ä")])
        assert holds.add([]) == []
    assert [(each.number, each.name) for each in first + second] == [(1, "audit"), (2, "audit"), (3, "legal")]
    with database.read() as connection:
        assert Holds(connection).active(hour(0)) == first + second
        assert Holds(connection).of_name("audit") == first
        assert Holds(connection).newest(2) == [second[0], first[1]]


def test_a_lost_hold_is_added_once_and_never_after_its_release(database: Database) -> None:
    with database.begin() as connection:
        holds = Holds(connection)
        (known, released) = holds.add([hold("audit"), hold("legal")])
        holds.release("legal", hour(3), "bob")
        found = [known.as_placed(), released.as_placed(), hold("audit", feed="views"), hold("audit", feed="views")]
        assert [(each.number, each.feed) for each in holds.add_lost(found)] == [(3, "views")]
        assert holds.add_lost(found) == []


def test_a_hold_protects_until_it_expires_or_is_released(database: Database) -> None:
    with database.begin() as connection:
        holds = Holds(connection)
        holds.add([hold("audit"), hold("audit", feed="views"), hold("short", expires_at=hour(2))])
        assert [each.number for each in holds.active(hour(1))] == [1, 2, 3]
        assert [each.number for each in holds.active(hour(2))] == [1, 2]
        assert holds.release("audit", hour(4), "eve") == 2
        assert [each.number for each in holds.active(hour(1))] == [3]
        assert holds.release("audit", hour(5), "bob") == 0
        assert [(each.released_at, each.released_by) for each in holds.of_name("audit")] == [(hour(4), "eve")] * 2
        assert holds.add([hold("again")])[0].number == 4


@given(
    st.sampled_from([None, "clicks", "views"]), st.sampled_from([None, "primary", "backup"]), ENDS, ENDS, HOURS, HOURS
)
def test_a_span_is_held_if_and_only_if_an_instance_of_it_is(
    feed: str | None, cluster: str | None, first: int | None, last: int | None, begin: int, end: int
) -> None:
    given_hold = hold(feed=feed, cluster=cluster, first=at(first), last=at(last))
    held = [n for n in range(begin, end + 1) if given_hold.covers("clicks", "primary", hour(n))]
    assert held == [
        n
        for n in range(begin, end + 1)
        if feed != "views" and cluster != "backup" and (first is None or n >= first) and (last is None or n <= last)
    ]


@pytest.mark.parametrize(
    ("first", "last", "is_held"),
    [(None, None, True), (2, None, True), (3, None, False), (None, 1, True), (None, 0, False), (1, 2, True)],
)
def test_the_holds_of_a_span_are_those_that_touch_it(
    database: Database, first: int | None, last: int | None, is_held: bool
) -> None:
    with database.begin() as connection:
        holds = Holds(connection)
        (added,) = holds.add([hold(first=at(first), last=at(last))])
        span = ("primary", hour(1), hour(2), hour(0))
        assert holds.find_for("clicks", *span) == ([added] if is_held else [])
        assert holds.find_for("views", *span) == []


def is_everything(found: Hold) -> bool:
    return not found.is_readable and found.covers("any", "where", hour(0)) and found.is_active(hour(999_999))


@pytest.mark.parametrize("damage", ["version = 2", "version = 2, expires_at = 1", "created_at = 9223372036854775807"])
def test_a_hold_that_cannot_be_read_holds_everything(database: Database, damage: str) -> None:
    with database.begin() as connection:
        holds = Holds(connection)
        holds.add([hold("audit"), hold("other")])
        connection.execute(text(f"UPDATE fa_holds SET {damage} WHERE number = 1"))
        broken, other = holds.active(hour(5))
        assert is_everything(broken)
        assert "hold 1 cannot be read" in broken.reason
        assert other.is_readable
        assert holds.find_for("views", "backup", hour(1), hour(2), hour(5)) == [broken]
        assert holds.release("audit", hour(6), "bob") == 1
        assert holds.active(hour(6)) == [other]
        assert [each.is_readable for each in holds.of_name("audit")] == [False]


@pytest.mark.parametrize("damage", ["feed = x'00'", "first_time = 'soon'", "expires_at = 'never'", "created_at = 'x'"])
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_sqlite_may_hold_anything_in_a_column(database: Database, damage: str) -> None:
    with database.begin() as connection:
        holds = Holds(connection)
        holds.add([hold("audit")])
        connection.execute(text(f"UPDATE fa_holds SET {damage}"))
        (broken,) = holds.active(hour(5))
        assert is_everything(broken)
