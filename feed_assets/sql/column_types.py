"""Column types of the state database.

Times are microseconds since 1970 in a 64-bit integer: exact, fast, and the same in SQLite and PostgreSQL. Stored JSON
has a version.
"""

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID
from zlib import compress, decompress

import sqlalchemy
from sqlalchemy import BigInteger, Dialect, LargeBinary, TypeDecorator
from sqlalchemy.types import TypeEngine

from feed_assets.masking import encodable
from feed_assets.sql.errors import StateError

JSON_VERSION = 1

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_DIGITS = re.compile(r"((?:[0-9a-f]{2}){8,}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|)\Z")  # sha256:1c5a…
_LONG = {"sha256:": b"\xfe", "look:": b"\xfd", "run:": b"\xfc"}
_MARKS = {b"\0": "", b"\xff": ""} | {mark: text for text, mark in _LONG.items()}
_UUIDS = (b"\xff", _LONG["run:"])
_MARK = re.compile(rb"([\0\xfc-\xff])")  # none of these is in text
_escape = json.JSONEncoder().encode
_parse_json = json.JSONDecoder().decode
_render_json = json.JSONEncoder(separators=(",", ":")).encode


def to_micros(moment: datetime) -> int:
    """Return an aware time as microseconds since 1970.

    >>> to_micros(datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))
    1000000
    """
    return (moment - _EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    """Return the UTC time of a number of microseconds since 1970.

    >>> from_micros(1000000)
    datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.timezone.utc)
    """
    return _EPOCH + timedelta(microseconds=micros)


class UtcDateTime(TypeDecorator[datetime]):
    """An aware time as microseconds since 1970; times without a zone are rejected."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, _dialect: Dialect) -> int | None:
        return None if value is None else (value - _EPOCH) // _MICROSECOND

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], datetime | None]:  # noqa: ARG002
        """Replaces `process_result_value`, which costs one more function call for each value of each row."""
        return _from_column


def _from_column(value: int | None) -> datetime | None:
    return None if value is None else _EPOCH + timedelta(microseconds=value)


class Choice(TypeDecorator[StrEnum]):
    """A member of a string enum, stored as its text, or as the first `letters` of it, which no other one has."""

    impl = sqlalchemy.Text
    cache_ok = True

    def __init__(self, members: type[StrEnum], letters: int | None = None) -> None:
        super().__init__()
        self.members = members
        self.letters = letters

    def process_bind_param(self, value: StrEnum | str | None, _dialect: Dialect) -> str | None:
        return None if value is None else str(value)[: self.letters]

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], StrEnum | None]:  # noqa: ARG002
        """Replaces `process_result_value`, as for times."""
        members = {member.value[: self.letters]: member for member in self.members}
        return lambda value: None if value is None else members[value]


class AnyText(TypeDecorator[str]):
    """Text that may have what databases refuse: NUL, and lone surrogates, which stand for bytes of paths that are not
    text. Stored with the escapes of JSON.
    """

    impl = sqlalchemy.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, _dialect: Dialect) -> str | None:
        return None if value is None else _escape(value)[1:-1]

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], str | None]:  # noqa: ARG002
        """Replaces `process_result_value`, as for times."""
        return lambda value: json.loads(f'"{value}"') if value and "\\" in value else value


class Text(TypeDecorator[str]):
    """Any text, whoever wrote it: what databases refuse, NUL and lone surrogates, becomes escapes, and stays that.

    The type of every column of text that is not `AnyText`.
    """

    impl = sqlalchemy.Text
    cache_ok = True

    def bind_processor(self, dialect: Dialect) -> Callable[[Any], str | None]:  # noqa: ARG002
        """Replaces `process_bind_param`, which costs one more function call for each value of each row."""
        return lambda value: None if value is None else encodable(value)


class Digest(TypeDecorator[str]):
    """Text that ends with many hexadecimal digits, as `sha256:1c5a…`, or with a UUID, as the names of runs: they are
    stored as bytes behind a NUL or 255, or behind another byte that stands for what is often before them.
    """

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: str | None, _dialect: Dialect) -> bytes | None:
        if value is None:
            return None
        text, digits, _ = _DIGITS.split(encodable(value), 1)
        is_uuid = "-" in digits
        mark = _LONG.get(text, b"") if digits else b""
        if not mark or (mark in _UUIDS) != is_uuid:
            mark = text.encode() + (b"" if not digits else b"\xff" if is_uuid else b"\0")
        return mark + bytes.fromhex(digits.replace("-", ""))

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], str | None]:  # noqa: ARG002
        """Replaces `process_result_value`, as for times."""
        return digest_from_column


def digest_from_column(value: bytes | memoryview | None) -> str | None:
    """Return the text of a value of a column `Digest`."""
    if value is None:
        return None
    text, *found = _MARK.split(value, 1)
    mark, digits = found or (b"\0", b"")
    return text.decode() + _MARKS[mark] + (str(UUID(bytes=digits)) if mark in _UUIDS else digits.hex())


class Payload(TypeDecorator[Mapping[str, object]]):
    """JSON values by name, stored as `[version,{…}]`; an empty mapping is stored as NULL."""

    impl = sqlalchemy.Text
    cache_ok = True

    def process_bind_param(self, value: Mapping[str, object] | None, _dialect: Dialect) -> str | None:
        return _render_json([JSON_VERSION, dict(value)]) if value else None

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Mapping[str, object]]:  # noqa: ARG002
        """Replaces `process_result_value`, as for times."""
        return lambda value: {} if value is None else read_json(value)


class Entries(TypeDecorator[tuple[Any, ...]]):
    """A tuple, stored as `[version,[…]]`; an empty tuple is stored as NULL."""

    impl: type[TypeEngine[Any]] = sqlalchemy.Text
    cache_ok = True

    def __init__(self, write: Callable[[Any], object], read: Callable[[Any], object]) -> None:
        super().__init__()
        self.write = write
        self.read = read

    def process_bind_param(self, value: tuple[Any, ...] | None, _dialect: Dialect) -> str | bytes | None:
        return _render_json([JSON_VERSION, [self.write(each) for each in value]]) if value else None

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], tuple[Any, ...]]:  # noqa: ARG002
        """Replaces `process_result_value`, as for times."""
        read = self.read
        return lambda value: () if value is None else tuple(map(read, read_json(value)))


class PackedEntries(Entries):
    """As `Entries`, compressed: for long tuples whose entries are alike."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: tuple[Any, ...] | None, dialect: Dialect) -> bytes | None:
        text = super().process_bind_param(value, dialect)
        return compress(text.encode()) if isinstance(text, str) else None

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], tuple[Any, ...]]:
        """Replaces `process_result_value`, as for times."""
        read = super().result_processor(dialect, coltype)
        return lambda value: read(None if value is None else decompress(value).decode())


def read_json(value: str) -> Any:
    """Return what a column of JSON has, without the version."""
    version, document = _parse_json(value)
    if version > JSON_VERSION:
        raise newer_content(version)
    return document


def newer_content(version: int) -> StateError:
    """Return the error about stored content of a version that this release does not know."""
    return StateError(
        reason=f"a row has content of version {version}, but this release reads up to {JSON_VERSION}",
        next_step="Upgrade feed-assets here to the release that wrote it.",
    )
