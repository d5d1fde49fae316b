"""Names of partitions in Hive's spelling: `key=value/key=value`, with special characters escaped (`:` is `%3A`).

A path below a table names a partition by its unescaped values. This module converts such paths to Hive's names.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from feed_assets.storage.errors import TableRefusedError
from feed_assets.storage.paths import parse_path

# The characters that Hive's FileUtils.escapePathName escapes: "a:b" is "a%3Ab".
_ESCAPED = re.compile(r"""[\x01-\x1f\x7f"#%'*/:=?\\{\[\]^]""")
_INTEGER = re.compile(r"[+-]?[0-9]+")  # 05
_INTEGER_TYPES = frozenset({"tinyint", "smallint", "int", "integer", "bigint"})

_UNPARTITIONED = "it has no partitions that the metastore knows"
_PARTITION_IT = (
    "Use a table that is PARTITIONED BY the keys that the feed names, or write table: catalog:database:table, without "
    "keys, at a feed with instances: current."
)

Keys = Sequence[tuple[str, str]]
"""The partition keys of a table in their order, each with the name of its Hive type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSpec:
    """One partition: its values in the order of the table's keys, and its name, both in Hive's own spelling.

    `others` are other spellings of the values that the metastore may have.
    """

    values: tuple[str, ...]
    name: str
    others: tuple[tuple[str, ...], ...] = ()

    @property
    def spellings(self) -> tuple[tuple[str, ...], ...]:
        """All spellings of the values, Hive's own first."""
        return (self.values, *self.others)


def parse_partition(store: str, path: str, keys: Keys) -> PartitionSpec:
    """Parse a path below a table into its partition; the keys may come in any order.

    A key of an integer type can have two spellings: Hive writes May as `month=5`, other programs perhaps as `month=05`.

    Raises:
        PathRefusedError: the path is invalid in any store.
        TableRefusedError: the path is not `key=value/key=value` with exactly the keys of the table.

    >>> keys = [("ds", "string"), ("hour", "int")]
    >>> spec = parse_partition("thrift://host:9083/web/clicks", "hour=05/ds=2013-11-03 05:00", keys)
    >>> spec.name, spec.others
    ('ds=2013-11-03 05%3A00/hour=5', (('2013-11-03 05:00', '05'),))
    """
    if not keys:
        raise TableRefusedError(store=store, path=path, reason=_UNPARTITIONED, next_step=_PARTITION_IT)
    given = parse_values(store, path, keys)
    if lacking := [key for key, _ in keys if key.lower() not in given]:
        raise _refused(store, path, f"it lacks the partition key {' and of '.join(map(repr, lacking))}", keys)
    written = tuple(given[key.lower()] for key, _ in keys)
    plain = tuple(_plain(value, kind) for value, (_, kind) in zip(written, keys, strict=True))
    others = () if written == plain else (written,)
    return PartitionSpec(values=plain, name=render_partition(plain, keys), others=others)


def parse_values(store: str, path: str, keys: Keys) -> dict[str, str]:
    """Parse a path with some of the keys; return values by lower-case key. Raises the errors of `parse_partition`."""
    known = {key.lower() for key, _ in keys}
    given: dict[str, str] = {}
    for part in parse_path(store, path).split("/"):
        key, _, value = part.partition("=")
        if not key or not value or key.lower() in given:
            raise _refused(store, path, f"{part!r} is not the value of one partition key", keys)
        if key.lower() not in known:
            raise _refused(store, path, f"the table has no partition key {key!r}", keys)
        given[key.lower()] = value
    return given


def parse_partition_name(name: str) -> dict[str, str]:
    """Parse a partition name of the metastore; return the values by key.

    >>> parse_partition_name("ds=2013-11-03 05%3A00/region=eu")
    {'ds': '2013-11-03 05:00', 'region': 'eu'}
    """
    parts = (part.partition("=") for part in name.split("/"))
    return {unquote(key): unquote(value) for key, _, value in parts}


def render_partition(values: Sequence[str], keys: Keys) -> str:
    """Render the name of a partition in Hive's spelling.

    >>> render_partition(["2013-11-03T05:00", "eu"], [("ds", "string"), ("region", "string")])
    'ds=2013-11-03T05%3A00/region=eu'
    """
    return "/".join(f"{_escape(key.lower())}={_escape(value)}" for value, (key, _) in zip(values, keys, strict=True))


def spellings(values: Mapping[str, str], keys: Keys) -> list[dict[str, str]]:
    """Return the spellings of values in paths: unchanged, and with numbers below ten in two digits.

    >>> spellings({"ds": "2013", "hour": "5"}, [("ds", "string"), ("hour", "int")])
    [{'ds': '2013', 'hour': '5'}, {'ds': '2013', 'hour': '05'}]
    """
    types = {key.lower(): kind for key, kind in keys}
    padded = {
        key: value.zfill(2) if is_integer(types.get(key, "")) and value.isdigit() else value
        for key, value in values.items()
    }
    return [dict(values)] if padded == values else [dict(values), padded]


def is_same_value(one: str, other: str, kind: str) -> bool:
    """Return whether two texts are the same value of a key of this type.

    >>> is_same_value("05", "5", "int"), is_same_value("05", "5", "string")
    (True, False)
    """
    return _plain(one, kind) == _plain(other, kind)


def is_integer(kind: str) -> bool:
    """Return whether a type is an integer type; its values have several spellings."""
    return kind.lower() in _INTEGER_TYPES


def _refused(store: str, path: str, reason: str, keys: Keys) -> TableRefusedError:
    return TableRefusedError(
        store=store,
        path=path,
        reason=reason,
        next_step=f"Write table: catalog:database:table#{';'.join(f'{key}=…' for key, _ in keys)} at the feed.",
    )


def _plain(value: str, kind: str) -> str:
    return str(int(value)) if is_integer(kind) and _INTEGER.fullmatch(value) else value


def _escape(text: str) -> str:
    return _ESCAPED.sub(lambda found: f"%{ord(found.group()):02X}", text)
