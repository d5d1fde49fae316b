"""Parser of a feed's schema: names and types of Spark's DDL, without Spark."""

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from feed_assets.entities.errors import ColumnsError
from feed_assets.errors import find_similar

PLAIN_TYPES = (
    *("boolean", "tinyint", "byte", "smallint", "short", "int", "integer", "bigint", "long", "float", "real", "double"),
    *("decimal", "dec", "numeric", "string", "char", "character", "varchar", "binary", "date", "time", "timestamp"),
    *("timestamp_ntz", "timestamp_ltz", "interval", "void", "variant", "geometry", "geography"),
)
"""The names of Spark's types that hold no other types."""
_NESTED = ("array", "map", "struct")
_OF_OTHERS: Mapping[str, str] = MappingProxyType(
    {
        "str": "string",
        "text": "string",
        "bool": "boolean",
        "datetime": "timestamp",
        "int32": "int",
        "int64": "bigint",
        "float32": "float",
        "float64": "double",
        "number": "decimal",
        "list": "array<…>",
        "dict": "map<…, …>",
        "record": "struct<…>",
    }
)
"""Names of types elsewhere, and what they are in Spark."""

_SPARK_NAMES: Mapping[str, str] = MappingProxyType(
    {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint", "real": "float"}
)
"""Names of types that can be declared, and those under which Spark shows them."""

_CLOSES = {")": "(", ">": "<"}
_QUOTES = "`'\""
_TYPE = re.compile(r"(\w+)\s*")  # the beginning of decimal(10,2), array<int> NOT NULL
_COLUMN = re.compile(r"(?:`((?:[^`]|``)+)`|([^\s:`]+))(?:\s*:\s*|\s+)(\S.*)", re.DOTALL)  # a int; a: int; `a b` date
_COMMENTED = re.compile(r"(.*?)\s+COMMENT\s+(['\"])(.*)\2", re.DOTALL | re.IGNORECASE)  # date COMMENT 'y, m'
_NOT_NULL = re.compile(r"\s+NOT\s+NULL\s*$", re.IGNORECASE)  # date NOT NULL


def names_of_type(name: str) -> set[str]:
    """Return a plain type under all its names.

    >>> sorted(names_of_type("long")), names_of_type("string")
    (['bigint', 'long'], {'string'})
    """
    shown = _SPARK_NAMES.get(name, name)
    return {name, shown, *(other for other, spark in _SPARK_NAMES.items() if spark == shown)}


class ColumnFacts(NamedTuple):
    """The type of a column, as Spark shows it, and its comment."""

    type: str
    comment: str | None


def parse_columns(text: str) -> tuple[tuple[str, str], ...]:
    """Return the column names and types of a DDL text, in order; comments and constraints stay with the type.

    Raises:
        ColumnsError: a column has no type, or brackets or quotes do not match.

    >>> parse_columns("origin string, stops array<struct<a: int, b: decimal(10,2)>>, `a b` date COMMENT 'y, m'")
    (('origin', 'string'), ('stops', 'array<struct<a: int, b: decimal(10,2)>>'), ('a b', "date COMMENT 'y, m'"))
    """
    return tuple(_column(text, part.strip()) for part in _split(text))


def describe_column(kind: str) -> ColumnFacts:
    """Return what `parse_columns` found behind a column's name as type and comment.

    >>> describe_column("long"), describe_column("date COMMENT 'y, m'")
    (ColumnFacts(type='bigint', comment=None), ColumnFacts(type='date', comment='y, m'))
    """
    found = _COMMENTED.fullmatch(kind)
    text, comment = (found[1], found[3]) if found is not None else (kind, None)
    return ColumnFacts(_SPARK_NAMES.get(text.lower(), text), comment)


class Column(NamedTuple):
    """A column, or a field inside one: its `path` is made of the names that lead to it."""

    path: str
    name: str
    facts: ColumnFacts


def iter_columns(text: str) -> Iterator[Column]:
    """Yield the columns of a DDL text in order, each followed by the fields inside it.

    What is inside an array has the path of the array; keys and values of a map are its `key` and `value`.

    >>> [column.path for column in iter_columns("day date, stops array<struct<at: time, tags: map<string, int>>>")]
    ['day', 'stops', 'stops.at', 'stops.tags']
    """
    for name, kind in parse_columns(text):
        yield from _iter_column(name, name, kind)


def has_path(text: str, path: str) -> bool:
    """Return whether a DDL text has a column of this name, in any case, or of the first part if it may have fields.

    >>> [has_path("mean double, stops array<int>", path) for path in ("Mean", "mean.x", "stops.x")]
    [True, False, True]
    """
    kinds = {name.lower(): kind for name, kind in parse_columns(text)}
    root = path.lower().partition(".")[0]
    return path.lower() in kinds or (root in kinds and bool(parse_nested(kinds[root])[1]))


def parse_nested(kind: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return the name of a type, and the types in it with their names: fields of a struct, `items` of an array, `key`
    and `value` of a map; without constraints of columns.

    >>> parse_nested("map<string, array<int>>"), parse_nested("long NOT NULL COMMENT 'id'")
    (('map', (('key', 'string'), ('value', 'array<int>'))), ('bigint', ()))
    """
    text = _NOT_NULL.sub("", describe_column(kind).type).strip()
    found = _TYPE.match(text)
    name = found[1].lower() if found else ""
    held = _held(text[found.end() :]) if found and name in _NESTED else None
    match name:
        case "struct" if held:
            return name, parse_columns(held)
        case "array" if held:
            return name, (("items", held.strip()),)
        case "map" if held:
            return name, tuple((part, each.strip()) for part, each in zip(("key", "value"), _split(held), strict=False))
        case _:
            return _SPARK_NAMES.get(text.lower(), text), ()


def _iter_column(path: str, name: str, kind: str) -> Iterator[Column]:
    yield Column(path, name, describe_column(kind))
    yield from _iter_inner(path, kind)


def _iter_inner(path: str, kind: str) -> Iterator[Column]:
    name, parts = parse_nested(kind)
    for part, inner in parts:
        if name == "struct":
            yield from _iter_column(f"{path}.{part}", part, inner)
        else:
            yield from _iter_inner(path if name == "array" else f"{path}.{part}", inner)


def find_unknown_type(text: str) -> str | None:
    """Return the first part of a type that is no type of Spark; None if all are known. Spark checks their arguments.

    >>> find_unknown_type("array<struct<a: int, b: decimal(10,2)>> NOT NULL"), find_unknown_type("map<string, flaot>")
    (None, 'flaot')
    """
    found = _TYPE.match(text.strip())
    name = found[1].lower() if found else ""
    held = _held(text.strip()[found.end() :]) if found else None
    if found is None or (name in _NESTED) != (held is not None):
        return text.strip()
    match name:
        case "struct":
            inner = [kind for _, kind in parse_columns(held or "")] if held else []
        case "array" | "map":
            inner = _split(held or "")
        case _:
            return None if name in PLAIN_TYPES else found[1]
    return next((unknown for kind in inner if (unknown := find_unknown_type(kind)) is not None), None)


def _held(text: str) -> str | None:
    """Return what is between the first bracket and its end; None if the text begins with no `<`."""
    depth, quote = 0, ""
    for position, character in enumerate(text if text.startswith("<") else ""):
        if quote:
            quote = "" if character == quote else quote
        elif character in _QUOTES:
            quote = character
        elif character in "<>":
            depth += 1 if character == "<" else -1
            if depth == 0:
                return text[1:position]
    return None


def suggest_type(name: str) -> str | None:
    """Return the type of Spark that was probably meant.

    >>> suggest_type("flaot"), suggest_type("int64"), suggest_type("xyz")
    ('float', 'bigint', None)
    """
    close = find_similar(name.lower(), (*PLAIN_TYPES, *_NESTED), n=1)
    return _OF_OTHERS.get(name.lower()) or next(iter(close), None)


def _split(text: str) -> list[str]:
    """Split the text at commas outside brackets and quotes."""
    parts, start, opened, quote = [], 0, "", ""
    for position, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in _QUOTES:
            quote = character
        elif character in _CLOSES.values():
            opened += character
        elif character in _CLOSES:
            if not opened.endswith(_CLOSES[character]):
                raise _unmatched(text)
            opened = opened[:-1]
        elif character == "," and not opened:
            parts.append(text[start:position])
            start = position + 1
    if opened or quote:
        raise _unmatched(text)
    return [*parts, text[start:]]


def _unmatched(text: str) -> ColumnsError:
    return ColumnsError(text=text, reason="its brackets or quotes do not match")


def _column(text: str, part: str) -> tuple[str, str]:
    found = _COLUMN.fullmatch(part)
    if found is None:
        raise ColumnsError(text=text, reason=f"{part!r} is not a name and a type")
    quoted, plain, kind = found.groups()
    return quoted.replace("``", "`") if quoted else plain, kind
