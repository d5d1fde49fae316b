"""Parts of even size of a table, by the real extremes of one of its columns."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from math import floor

from feed_assets.engines.databases.connections import DatabaseConnection
from feed_assets.engines.databases.dialects import Value
from feed_assets.engines.errors import ServiceError

SPLIT, ALL = "feed_assets_split", "1 = 1"
"""The column that splits, as it is called where it is read, and the condition of a single part."""


def find_parts(connection: DatabaseConnection, split_by: str | None, parts: int, source: str) -> list[str]:
    """Return the conditions of parts of even size, by the real minimum and maximum of the column that splits.

    Raises:
        ServiceError: its values are neither numbers nor times.
    """
    if split_by is None or parts == 1:
        return [ALL]
    column = connection.dialect.quoted(split_by)
    ((low, high),) = connection.query(f"SELECT min({column}), max({column}) FROM ({source}) meant")
    if low is None or high is None:
        return [ALL]
    if isinstance(low, str | bytes | bool) or isinstance(high, str | bytes | bool):
        raise ServiceError(
            service=f"the database {connection.address.url}",
            reason=f"its column {split_by} splits nothing: it has neither numbers nor times",
            next_step="Name another column as --split-by, or write --num-mappers: 1.",
        )
    return parts_between(SPLIT, low, high, parts, connection.address.type)


def parts_between(column: str, low: Value, high: Value, parts: int, kind: str) -> list[str]:
    """Return conditions that hold for one part of all rows each; nulls are in the first.

    >>> parts_between("id", 1, 9, 2, "postgres")
    ['id < 5 OR id IS NULL', 'id >= 5']
    >>> parts_between("day", date(2024, 1, 1), date(2024, 1, 1), 4, "mysql")
    ['1 = 1']
    """
    cuts = dict.fromkeys(cut for number in range(1, parts) if (cut := _cut(low, high, number, parts)) != low)
    literals = [literal(cut, kind) for cut in cuts]
    if not literals:
        return [ALL]
    between = pairwise(literals)
    first, last = f"{column} < {literals[0]} OR {column} IS NULL", f"{column} >= {literals[-1]}"
    return [first, *(f"{column} >= {one} AND {column} < {other}" for one, other in between), last]


def _cut(low: Value, high: Value, number: int, parts: int) -> Value:
    match low, high:
        case datetime(), datetime():
            return low + timedelta(microseconds=(high - low) // timedelta(microseconds=1) * number // parts)
        case date(), date():
            return low + timedelta(days=(high - low).days * number // parts)
        case int(), int():
            return low + (high - low) * number // parts
        case ((int() | float() | Decimal()), (int() | float() | Decimal())):
            lowest, highest = Decimal(str(low)), Decimal(str(high))
            return lowest + floor((highest - lowest) * number / parts * 1_000_000) / Decimal(1_000_000)
        case _:
            raise TypeError(f"{low!r} and {high!r} are no extremes of one column")


def literal(value: Value, kind: str) -> str:
    """Return a number or time as text of SQL, the same in every session.

    >>> literal(datetime(2024, 3, 31, 0, 30, tzinfo=UTC), "postgres")
    "TIMESTAMP WITH TIME ZONE '2024-03-31 00:30:00+00:00'"
    >>> literal(date(2024, 3, 31), "mysql"), literal(7, "mysql")
    ("DATE '2024-03-31'", '7')
    """
    match value:
        case datetime(tzinfo=None):
            return f"TIMESTAMP '{value.isoformat(' ')}'"
        case datetime() if kind == "mysql":  # whose sessions are in UTC
            return f"TIMESTAMP '{value.astimezone(UTC).replace(tzinfo=None).isoformat(' ')}'"
        case datetime():
            return f"TIMESTAMP WITH TIME ZONE '{value.astimezone(UTC).isoformat(' ')}'"
        case date():
            return f"DATE '{value.isoformat()}'"
        case Decimal():
            return f"{value:f}"
        case int() | float():
            return str(value)
        case _:
            raise TypeError(f"{value!r} is neither a number nor a time")
