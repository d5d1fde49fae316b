"""How values are stored in columns. Times are microseconds since 1970 in a 64-bit integer: exact, fast, and the same in
SQLite and PostgreSQL. What is stored as JSON has a version.
"""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import BigInteger, Dialect, Text, TypeDecorator

from feed_assets.state.errors import StateError
from feed_assets.state.records import FrozenInput

JSON_VERSION = 1

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_render_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def to_micros(moment: datetime) -> int:
    """Microseconds since 1970 of an aware time.

    >>> to_micros(datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))
    1000000
    """
    return (moment - _EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    """The UTC time of a number of microseconds since 1970.

    >>> from_micros(1000000)
    datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.timezone.utc)
    """
    return _EPOCH + timedelta(microseconds=micros)


class UtcDateTime(TypeDecorator[datetime]):
    """An aware time as microseconds since 1970; a time without a zone is refused."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, _dialect: Dialect) -> int | None:
        return None if value is None else (value - _EPOCH) // _MICROSECOND

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], datetime | None]:  # noqa: ARG002
        """Instead of `process_result_value`, which is called from another function for every value of every row."""
        return _from_column


def _from_column(value: int | None) -> datetime | None:
    return None if value is None else _EPOCH + timedelta(microseconds=value)


class Payload(TypeDecorator[Mapping[str, object]]):
    """JSON values by name, stored with a version; nothing is stored for an empty mapping."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Mapping[str, object] | None, _dialect: Dialect) -> str | None:
        return _render_json({"version": JSON_VERSION, "payload": dict(value)}) if value else None

    def process_result_value(self, value: str | None, _dialect: Dialect) -> Mapping[str, object]:
        if value is None:
            return {}
        payload: Mapping[str, object] = _from_json(value)["payload"]
        return payload


class FrozenInputs(TypeDecorator[tuple[FrozenInput, ...]]):
    """A frozen input list as JSON with a version; nothing is stored for an empty list."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: tuple[FrozenInput, ...] | None, _dialect: Dialect) -> str | None:
        if not value:
            return None
        inputs = [
            {
                "name": entry.name,
                "feed": entry.feed,
                "nominal_times": [to_micros(moment) for moment in entry.nominal_times],
                "digests": list(entry.digests),
            }
            for entry in value
        ]
        return _render_json({"version": JSON_VERSION, "inputs": inputs})

    def process_result_value(self, value: str | None, _dialect: Dialect) -> tuple[FrozenInput, ...]:
        if value is None:
            return ()
        return tuple(
            FrozenInput(
                name=entry["name"],
                feed=entry["feed"],
                nominal_times=tuple(from_micros(micros) for micros in entry["nominal_times"]),
                digests=tuple(entry["digests"]),
            )
            for entry in _from_json(value)["inputs"]
        )


def _from_json(value: str) -> Any:
    document = json.loads(value)
    if document["version"] > JSON_VERSION:
        raise StateError(
            reason=f"a row has content of version {document['version']}, and this release reads up to {JSON_VERSION}",
            next_step="Upgrade feed-assets here to the release that wrote it.",
        )
    return document
