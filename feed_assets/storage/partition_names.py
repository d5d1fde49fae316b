"""How Hive spells a partition: `key=value/key=value`, with what no file name should hold written as `%3A`.

A path below a table names a partition by the values themselves; what the metastore calls it is made here.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from feed_assets.storage.errors import TableRefusedError
from feed_assets.storage.paths import parse_path

# What Hive's FileUtils.escapePathName escapes: "a:b" is "a%3Ab".
_ESCAPED = re.compile(r"""[\x01-\x1f\x7f"#%'*/:=?\\{\[\]^]""")
_INTEGER = re.compile(r"[+-]?[0-9]+")  # 05
_INTEGER_TYPES = frozenset({"tinyint", "smallint", "int", "integer", "bigint"})

Keys = Sequence[tuple[str, str]]
"""The partition keys of a table in their order, each with its type in Hive's words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSpec:
    """One partition: its values in the order of the table's keys, and its name, both as Hive itself would spell them.

    `others` are further spellings of the values that the metastore may have.
    """

    values: tuple[str, ...]
    name: str
    others: tuple[tuple[str, ...], ...] = ()

    @property
    def spellings(self) -> tuple[tuple[str, ...], ...]:
        """All of them, Hive's own first."""
        return (self.values, *self.others)


def parse_partition(store: str, path: str, keys: Keys) -> PartitionSpec:
    """The partition that a path below a table names; its keys may stand in any order.

    A key of an integer type has two spellings: Hive writes the month of November as `month=11`, that of May as
    `month=5`, and an older program perhaps `month=05`.

    Raises:
        PathRefusedError: the path is none of a store.
        TableRefusedError: it is not `key=value/key=value` with exactly the keys of the table.

    >>> keys = [("ds", "string"), ("hour", "int")]
    >>> spec = parse_partition("thrift://host:9083/web/clicks", "hour=05/ds=2013-11-03 05:00", keys)
    >>> spec.name, spec.others
    ('ds=2013-11-03 05%3A00/hour=5', (('2013-11-03 05:00', '05'),))
    """
    given = parse_values(store, path, keys)
    if lacking := [key for key, _ in keys if key.lower() not in given]:
        raise _refused(store, path, f"it says nothing of the partition key {' and of '.join(map(repr, lacking))}", keys)
    written = tuple(given[key.lower()] for key, _ in keys)
    plain = tuple(_plain(value, kind) for value, (_, kind) in zip(written, keys, strict=True))
    others = () if written == plain else (written,)
    return PartitionSpec(values=plain, name=render_partition(plain, keys), others=others)


def parse_values(store: str, path: str, keys: Keys) -> dict[str, str]:
    """The values that a path gives to some of the keys, by the keys in lower case. Raises as `parse_partition`."""
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
    """The values in a name that the metastore gave, by their keys.

    >>> parse_partition_name("ds=2013-11-03 05%3A00/region=eu")
    {'ds': '2013-11-03 05:00', 'region': 'eu'}
    """
    parts = (part.partition("=") for part in name.split("/"))
    return {unquote(key): unquote(value) for key, _, value in parts}


def render_partition(values: Sequence[str], keys: Keys) -> str:
    """The name of a partition in Hive's words.

    >>> render_partition(["2013-11-03T05:00", "eu"], [("ds", "string"), ("region", "string")])
    'ds=2013-11-03T05%3A00/region=eu'
    """
    return "/".join(f"{_escape(key.lower())}={_escape(value)}" for value, (key, _) in zip(values, keys, strict=True))


def spellings(values: Mapping[str, str], keys: Keys) -> list[dict[str, str]]:
    """The values of a partition as a path may say them: as they are, and numbers below ten with two digits.

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
    """Whether two texts are one value of a key of a type.

    >>> is_same_value("05", "5", "int"), is_same_value("05", "5", "string")
    (True, False)
    """
    return _plain(one, kind) == _plain(other, kind)


def is_integer(kind: str) -> bool:
    """Whether values of a type have several spellings."""
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
