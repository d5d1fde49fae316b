"""Store named protections of instances against retention. Fails closed: an unreadable hold covers everything."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import func, insert, select, type_coerce, update
from sqlalchemy.types import NullType

from feed_assets.log.removals.records import Hold
from feed_assets.log.removals.tables import holds
from feed_assets.sql.column_types import from_micros
from feed_assets.sql.database import lock_definitions
from feed_assets.sql.rows import RowMapper, TableStore

HOLD_VERSION = 1

_T = holds.c
_ROWS = RowMapper(holds, Hold)
_NAMES = tuple(column.key for column in holds.columns)
# Raw values: an invalid value in one hold must not prevent the other holds from being read.
_RAW = tuple(type_coerce(column, NullType()).label(column.key) for column in holds.columns)
_TEXTS = frozenset({"name", "reason", "author"})
_OPTIONAL_TEXTS = frozenset({"feed", "cluster", "released_by"})
_OPTIONAL_TIMES = frozenset({"first", "last", "expires_at", "released_at"})
_EARLIEST = from_micros(0)


class Holds(TableStore):
    """The holds as one transaction sees them."""

    def add(self, new: Iterable[Hold]) -> list[Hold]:
        """Store holds; return them with their numbers, which grow by one and are never reused."""
        lock_definitions(self._connection)
        last = self._connection.scalar(select(func.max(_T.number))) or 0
        rows = [
            _ROWS.values(hold) | {"number": number, "version": HOLD_VERSION}
            for number, hold in enumerate(new, last + 1)
        ]
        if not rows:
            return []
        self._connection.execute(insert(holds), rows)
        return self._select(_T.number > last)

    def add_lost(self, found: Iterable[Hold]) -> list[Hold]:
        """Store those holds that are not stored, released or not, and return them with their numbers."""
        lock_definitions(self._connection)
        known = {hold.as_placed() for hold in self.newest()}
        return self.add(hold for hold in dict.fromkeys(found) if hold not in known)

    def active(self, as_of: datetime) -> list[Hold]:
        """Return the holds that are active at `as_of`, oldest first; also unreadable ones."""
        unreleased = self._select(_T.released_at.is_(None))
        return [hold for hold in unreleased if hold.is_active(as_of)]

    def find_for(self, feed: str, cluster: str, first: datetime, last: datetime, as_of: datetime) -> list[Hold]:
        """Return the active holds at `as_of` on a feed's instances from `first` to `last`, both inclusive."""
        return [hold for hold in self.active(as_of) if hold.covers(feed, cluster, first, last)]

    def of_name(self, name: str) -> list[Hold]:
        """Return all holds with a name, active or not, oldest first."""
        return self._select(_T.name == name)

    def newest(self, limit: int | None = None) -> list[Hold]:
        """Return at most `limit` holds, active or not, newest first; for people."""
        found = self._connection.execute(select(*_RAW).order_by(_T.number.desc()).limit(limit))
        return [_from_row(row) for row in found]

    def release(self, name: str, released_at: datetime, released_by: str) -> int:
        """Release the holds of a name; return how many had not been released yet."""
        released = update(holds).where(_T.name == name, _T.released_at.is_(None))
        return self._connection.execute(released.values(released_at=released_at, released_by=released_by)).rowcount

    def _select(self, is_match: Any) -> list[Hold]:
        found = self._connection.execute(select(*_RAW).where(is_match).order_by(_T.number))
        return [_from_row(row) for row in found]


def _from_row(row: Sequence[Any]) -> Hold:
    values: dict[str, Any] = dict(zip(_NAMES, row, strict=True))
    if not _is_readable(values):
        return _unreadable(values)
    del values["version"]
    times = {name: from_micros(values[name]) for name in (*_OPTIONAL_TIMES, "created_at") if values[name] is not None}
    return Hold(**values | times)


def _is_readable(values: dict[str, Any]) -> bool:
    return (
        values["version"] == HOLD_VERSION
        and all(isinstance(values[name], str) for name in _TEXTS)
        and all(isinstance(values[name], str | None) for name in _OPTIONAL_TEXTS)
        and all(values[name] is None or _is_time(values[name]) for name in _OPTIONAL_TIMES)
        and _is_time(values["created_at"])
    )


def _is_time(value: object) -> bool:
    if not isinstance(value, int):
        return False
    try:
        from_micros(value)
    except OverflowError:
        return False
    return True


def _unreadable(values: dict[str, Any]) -> Hold:
    released_at = values["released_at"]
    return Hold(
        name=str(values["name"]),
        feed=None,
        reason=f"hold {values['number']} cannot be read by this release, so it protects everything",
        author=str(values["author"]),
        created_at=from_micros(values["created_at"]) if _is_time(values["created_at"]) else _EARLIEST,
        released_at=from_micros(released_at) if _is_time(released_at) else None,
        number=values["number"],
        is_readable=False,
    )
