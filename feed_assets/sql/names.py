"""Which columns name feeds and processes, and how; and another name written into all of them.

A column says so where it is defined: `Column("feed", Text, info=NAMES_FEED)`. A test lists the columns that name
nothing, so that none is forgotten.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from sqlalchemy import Column, Connection, String, bindparam, delete, exists, func, literal, select, type_coerce, update
from sqlalchemy import Text as PlainText

from feed_assets.entities.common import Kind
from feed_assets.entities.flow_names import Transfer, flow_name, transfer_name
from feed_assets.entities.maps import EMPTY
from feed_assets.sql.column_types import Entries, Payload
from feed_assets.sql.tables import load_tables

NAMES = "names"
"""The key of a column's `info` that has the rules by which its values get another name."""

Content: TypeAlias = Any
"""A value of JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Renaming:
    """Another name of a feed or process. A feed's transfers, and its flows from `clusters`, all that there ever were,
    go along.
    """

    kind: Kind
    old: str
    new: str
    clusters: tuple[str, ...] = ()

    def names(self, kind: str) -> Mapping[str, str]:
        """Return the new names, by the old ones, of what columns call feeds, or processes, flows and transfers.

        >>> Renaming(kind=Kind.FEED, old="a", new="b", clusters=("east",)).names(Kind.PROCESS)
        {'a@east': 'b@east', 'a.import': 'b.import', 'a.export': 'b.export'}
        """
        if kind == self.kind:
            return {self.old: self.new}
        if (self.kind, kind) == (Kind.FEED, Kind.PROCESS):
            flows = {flow_name(self.old, each): flow_name(self.new, each) for each in self.clusters}
            return flows | {transfer_name(self.old, each): transfer_name(self.new, each) for each in Transfer}
        return {}

    def replace(self, kind: str, content: Content) -> Content:
        """Return a content in which names stand as texts and keys, at any depth, with the new ones."""
        names = self.names(kind)
        match content:
            case str():
                return names.get(content, content)
            case list() | tuple():
                return [self.replace(kind, each) for each in content]
            case dict():
                return {names.get(key, key): self.replace(kind, each) for key, each in content.items()}
            case _:
                return content


Rule: TypeAlias = Callable[[Connection, Column[Any], Renaming], None]
"""Writes new names into a column."""
Info: TypeAlias = dict[Any, Any]
_KINDS = (Kind.FEED, Kind.PROCESS)


def names_in(kind: Kind, /, **where: Collection[str]) -> Rule:
    """Return the rule of a column of names of a kind, in the rows whose other columns have one of some values."""

    def write(connection: Connection, column: Column[Any], renaming: Renaming) -> None:
        for old, new in renaming.names(kind).items():
            _replace(connection, column, old, new, where)

    return write


def paths_in(kind: Kind, *prefixes: str) -> Rule:
    """Return the rule of a column of texts that have a name between a prefix and the end, or a `/` and anything."""

    def write(connection: Connection, column: Column[Any], renaming: Renaming) -> None:
        for prefix in prefixes:
            for old, new in renaming.names(kind).items():
                before, after = f"{prefix}{old}", f"{prefix}{new}"
                rest = func.substr(column, len(before) + 1, type_=String())
                _replace(connection, column, before, after)
                begins = func.substr(column, 1, len(before) + 1) == f"{before}/"
                connection.execute(update(column.table).where(begins).values({column.key: literal(after).concat(rest)}))

    return write


def tails_in(kind: Kind, *prefixes: str) -> Rule:
    """Return the rule of a column of texts that begin with a prefix, and have a name behind the last `/`."""

    def write(connection: Connection, column: Column[Any], renaming: Renaming) -> None:
        for text in connection.scalars(select(column)).all():
            head, _, name = text.rpartition("/")
            new = renaming.names(kind).get(name) if text.startswith(prefixes) else None
            if new is not None:
                _replace(connection, column, text, f"{head}/{new}")

    return write


def content_in(change: Callable[[Content, Renaming], Content]) -> Rule:
    """Return the rule of a column of JSON; `change` returns a content with the new names. Other texts stay."""

    def write(connection: Connection, column: Column[Any], renaming: Renaming) -> None:
        table, raw = column.table, type_coerce(column, PlainText)
        is_wrapped, keys = isinstance(column.type, Payload | Entries), list(table.primary_key)
        found = connection.execute(select(raw, *keys).where(raw.contains(renaming.old, autoescape=True))).all()
        renamed: list[dict[str, object]] = []
        for text, *key in found:
            try:
                document = json.loads(text)
            except ValueError:
                continue
            content = document[1] if is_wrapped else document
            new = change(content, renaming)
            if new != content:
                rendered = _render([document[0], new] if is_wrapped else new)
                renamed.append({"rendered": rendered, **{f"key_{place}": value for place, value in enumerate(key)}})
        if renamed:
            is_it = [each == bindparam(f"key_{place}", type_=each.type) for place, each in enumerate(keys)]
            changed = update(table).where(*is_it).values({column.key: bindparam("rendered", type_=PlainText)})
            connection.execute(changed, renamed)

    return write


def members_in(**kinds: Kind) -> Rule:
    """Return the rule of a column of JSON objects, or of lists of them, some of whose members have names."""

    def change(content: Content, renaming: Renaming) -> Content:
        if isinstance(content, list):
            return [change(each, renaming) for each in content]
        if not isinstance(content, dict):
            return content
        return {name: renaming.replace(kinds[name], each) if name in kinds else each for name, each in content.items()}

    return content_in(change)


def rename_everywhere(connection: Connection, renaming: Renaming) -> None:
    """Write the new name into every column that names what is renamed, by its rules."""
    for table in load_tables().sorted_tables:
        for column in table.columns:
            for rule in rules_of(column):
                rule(connection, column, renaming)


def rules_of(column: Column[Any]) -> tuple[Rule, ...]:
    """Return the rules of a column; none if it names no feed and no process."""
    rules: tuple[Rule, ...] = column.info.get(NAMES, ())
    return rules


def names(*rules: Rule) -> Info:
    """Return the `info` of a column with rules."""
    return {NAMES: rules}


def names_by(column: str, values: Iterable[Any], kind_of: Callable[[Any], Kind | None]) -> Info:
    """Return the `info` of a column of names whose kind follows from the value of another column; None is either."""
    listed = list(values)
    of_kinds = {kind: [each for each in listed if kind_of(each) in (kind, None)] for kind in _KINDS}
    return names(*(names_in(kind, **{column: each}) for kind, each in of_kinds.items()))


def _replace(
    connection: Connection, column: Column[Any], old: str, new: str, where: Mapping[str, Collection[str]] = EMPTY
) -> None:
    """Replace a value. A row that has the new one in its key gives way: nothing that was declared has had that name."""
    table, other = column.table, column.table.alias()
    conditions = [table.c[name].in_(sorted(values)) for name, values in where.items()]
    keys = [each.key for each in table.primary_key]
    if column.key in keys:
        is_beside = [other.c[key] == (old if key == column.key else table.c[key]) for key in keys]
        connection.execute(delete(table).where(column == new, *conditions, exists().where(*is_beside)))
    connection.execute(update(table).where(column == old, *conditions).values({column.key: new}))


_render = json.JSONEncoder(separators=(",", ":")).encode
NAMES_FEED = names(names_in(Kind.FEED))
NAMES_PROCESS = names(names_in(Kind.PROCESS))
NAMES_BY_KIND = names_by("kind", _KINDS, Kind)
"""Of a column of names whose kind is in the column `kind`."""
NAMES_PATH = names(*(paths_in(each, f"{each}/") for each in _KINDS))
"""Of a column of paths, such as `feed/clicks/column/user`."""
