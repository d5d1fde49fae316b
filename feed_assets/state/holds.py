"""Named protections of instances against retention. They fail closed: one that cannot be read holds everything."""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, func, insert, select, type_coerce, update
from sqlalchemy.types import NullType

from feed_assets.state.column_types import from_micros
from feed_assets.state.database import lock_definitions
from feed_assets.state.retention_schema import holds
from feed_assets.state.sweep_records import Hold

HOLD_VERSION = 1

_T = holds.c
_NAMES = tuple(column.name for column in holds.columns)
# As the database has them: a value that does not fit its column must not keep the other holds from being read.
_RAW = tuple(type_coerce(column, NullType()).label(column.name) for column in holds.columns)
_TEXTS = frozenset({"name", "reason", "author"})
_OPTIONAL_TEXTS = frozenset({"feed", "cluster", "released_by"})
_OPTIONAL_TIMES = frozenset({"first_time", "last_time", "expires_at", "released_at"})
_EARLIEST = from_micros(0)


class Holds:
    """The holds as one transaction sees them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, new: Iterable[Hold]) -> list[Hold]:
        """Store holds; returns them with their numbers, which grow by one and never come again."""
        lock_definitions(self._connection)
        last = self._connection.scalar(select(func.max(_T.number))) or 0
        rows = [_to_row(hold, number) for number, hold in enumerate(new, last + 1)]
        if not rows:
            return []
        self._connection.execute(insert(holds), rows)
        return self._select(_T.number > last)

    def active(self, as_of: datetime) -> list[Hold]:
        """The holds that protect something at `as_of`, oldest first; also those that cannot be read."""
        unreleased = self._select(_T.released_at.is_(None))
        return [hold for hold in unreleased if hold.is_active(as_of)]

    def find_for(self, feed: str, cluster: str, first: datetime, last: datetime, as_of: datetime) -> list[Hold]:
        """The holds that protect at `as_of` an instance of a feed from `first` to `last`, both inclusive."""
        return [hold for hold in self.active(as_of) if _touches(hold, feed, cluster, first, last)]

    def of_name(self, name: str) -> list[Hold]:
        """The holds of a name, whatever has become of them, oldest first."""
        return self._select(_T.name == name)

    def newest(self, limit: int | None = None) -> list[Hold]:
        """At most `limit` holds, whatever has become of them, newest first; for people who look."""
        found = self._connection.execute(select(*_RAW).order_by(_T.number.desc()).limit(limit))
        return [_from_row(row) for row in found]

    def release(
        self, name: str, released_at: datetime, released_by: str, *, numbers: Collection[int] | None = None
    ) -> int:
        """Give up the holds of a name, or some of them; how many had not been released yet."""
        released = update(holds).where(_T.name == name, _T.released_at.is_(None))
        if numbers is not None:
            released = released.where(_T.number.in_(sorted(numbers)))
        return self._connection.execute(released.values(released_at=released_at, released_by=released_by)).rowcount

    def _select(self, is_wanted: Any) -> list[Hold]:
        found = self._connection.execute(select(*_RAW).where(is_wanted).order_by(_T.number))
        return [_from_row(row) for row in found]


def _touches(hold: Hold, feed: str, cluster: str, first: datetime, last: datetime) -> bool:
    return (
        hold.feed in (None, feed)
        and hold.cluster in (None, cluster)
        and (hold.first is None or hold.first <= last)
        and (hold.last is None or first <= hold.last)
    )


def _to_row(hold: Hold, number: int) -> dict[str, object]:
    return {
        "number": number,
        "version": HOLD_VERSION,
        "name": hold.name,
        "feed": hold.feed,
        "cluster": hold.cluster,
        "first_time": hold.first,
        "last_time": hold.last,
        "reason": hold.reason,
        "author": hold.author,
        "created_at": hold.created_at,
        "expires_at": hold.expires_at,
        "released_at": hold.released_at,
        "released_by": hold.released_by,
    }


def _from_row(row: Sequence[Any]) -> Hold:
    values: dict[str, Any] = dict(zip(_NAMES, row, strict=True))
    if not _is_readable(values):
        return _unreadable(values)
    times = {name: None if values[name] is None else from_micros(values[name]) for name in _OPTIONAL_TIMES}
    return Hold(
        name=values["name"],
        feed=values["feed"],
        cluster=values["cluster"],
        first=times["first_time"],
        last=times["last_time"],
        reason=values["reason"],
        author=values["author"],
        created_at=from_micros(values["created_at"]),
        expires_at=times["expires_at"],
        released_at=times["released_at"],
        released_by=values["released_by"],
        number=values["number"],
    )


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
        reason=f"hold {values['number']} cannot be read by this release, so it counts as holding everything",
        author=str(values["author"]),
        created_at=from_micros(values["created_at"]) if _is_time(values["created_at"]) else _EARLIEST,
        released_at=from_micros(released_at) if _is_time(released_at) else None,
        number=values["number"],
        is_readable=False,
    )
