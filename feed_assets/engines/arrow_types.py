"""Translate Spark's column types to Arrow's without a JVM."""

import re
from typing import TYPE_CHECKING

from feed_assets.entities.columns import parse_columns
from feed_assets.entities.errors import ColumnsError

if TYPE_CHECKING:
    import pyarrow as pa

_SUFFIX = re.compile(r"\s+(NOT\s+NULL|COMMENT\s.*)$", re.IGNORECASE | re.DOTALL)  # int NOT NULL COMMENT 'minutes'
_DECIMAL = re.compile(r"(?:decimal|dec|numeric)(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?")  # decimal(10, 2)
_NESTED = re.compile(r"(array|map|struct)\s*<(.*)>", re.IGNORECASE | re.DOTALL)  # array<struct<a: int>>
_TEXT = re.compile(r"(?:var)?char\(\s*\d+\s*\)")  # varchar(10)
_NAMES = {
    "tinyint": "int8",
    "byte": "int8",
    "smallint": "int16",
    "short": "int16",
    "int": "int32",
    "integer": "int32",
    "bigint": "int64",
    "long": "int64",
    "float": "float32",
    "real": "float32",
    "double": "float64",
    "boolean": "bool_",
    "string": "string",
    "binary": "binary",
    "date": "date32",
}


def parse_arrow_schema(columns: str) -> "pa.Schema":
    """Return the Arrow schema of columns in Spark's DDL. A timestamp is one in UTC, of microseconds.

    Raises:
        ValueError: a type is unknown here, or the text is no list of columns.

    >>> parse_arrow_schema("origin string, delay double NOT NULL, at timestamp").field("at").type
    TimestampType(timestamp[us, tz=UTC])
    """
    import pyarrow as pa

    try:
        return pa.schema([pa.field(name, _type(kind)) for name, kind in parse_columns(columns)])
    except ColumnsError as exc:
        raise ValueError(str(exc)) from exc


def _type(text: str) -> "pa.DataType":
    import pyarrow as pa

    text = text.strip()
    while (shorter := _SUFFIX.sub("", text)) != text:
        text = shorter
    if nested := _NESTED.fullmatch(text):
        return _nested(nested[1].lower(), nested[2])
    name = text.lower()
    if found := _DECIMAL.fullmatch(name):
        return pa.decimal128(int(found[1] or 10), int(found[2] or 0))
    if name in ("timestamp", "timestamp_ltz"):
        return pa.timestamp("us", "UTC")
    if name == "timestamp_ntz":
        return pa.timestamp("us")
    if _TEXT.fullmatch(name):
        return pa.string()
    if name not in _NAMES:
        raise ValueError(f"{text!r} is a type that only Spark reads")
    kind: pa.DataType = getattr(pa, _NAMES[name])()
    return kind


def _nested(kind: str, inner: str) -> "pa.DataType":
    import pyarrow as pa

    if kind == "array":
        return pa.list_(_type(inner))
    if kind == "map":
        key, value = (part for _, part in parse_columns(f"k {inner.replace(',', ', v ', 1)}"))
        return pa.map_(_type(key), _type(value))
    return pa.struct([pa.field(name, _type(part)) for name, part in parse_columns(inner)])
