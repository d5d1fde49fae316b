"""Store what the columns of outputs were made of: once for each different set, which events of productions name.

A set names feeds, not inputs, so that it can be read without the definition of the process.
"""

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from feed_assets.catalog.tables import column_sets
from feed_assets.entities.content.column_lineage import ColumnLineage, ColumnSource, SourceKind
from feed_assets.entities.maps import EMPTY
from feed_assets.masking import mask
from feed_assets.plan.edges import OutputEdge
from feed_assets.plan.records import ProcessRecord
from feed_assets.sql.rows import TableStore, build_insert_if_absent, select_keys

NOT_TOLD = "the work does not tell what its columns are made of"
"""Why what is made of what is unknown where nobody has looked."""

_TIMES = re.compile(r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d(?:\.\d+)?)?)?Z?")  # 2013-11-02 05:00:00


class FeedColumn(NamedTuple):
    """A column of a feed that went into an output, how, and the expression's text if it is more than the column."""

    feed: str
    column: str
    kind: SourceKind
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnSet:
    """What each column of an output was made of; the fields are those of `ColumnLineage`, with feeds instead of inputs.

    If something is `unknown`, `columns` are those that the definition declares.
    """

    columns: Mapping[str, tuple[FeedColumn, ...]] = EMPTY
    indirect: tuple[FeedColumn, ...] = ()
    beyond: tuple[str, ...] = ()
    unknown: str | None = None

    @property
    def content(self) -> dict[str, object]:
        """The set as JSON: the same for equal sets."""
        found = {
            "columns": {name: _render(self.columns[name]) for name in sorted(self.columns)},
            "indirect": _render(self.indirect),
            "beyond": sorted(self.beyond),
            "unknown": self.unknown,
        }
        return {name: value for name, value in found.items() if value}

    @property
    def digest(self) -> str:
        """The name of the set."""
        return hashlib.sha256(json.dumps(self.content, sort_keys=True).encode()).hexdigest()[:32]


class ColumnSets(TableStore):
    """The sets as one transaction sees them. None is ever changed."""

    def add(self, found: ColumnSet) -> None:
        """Record a set unless it is known."""
        row = {"digest": found.digest, "content": found.content}
        self._connection.execute(build_insert_if_absent(self._dialect, column_sets), row)

    def find(self, digests: Collection[str]) -> dict[str, ColumnSet]:
        """Return the sets with some digests in one statement."""
        columns, keys = (column_sets.c.digest, column_sets.c.content), [(each,) for each in sorted(set(digests))]
        found = select_keys(self._connection, column_sets, ("digest",), columns, keys)
        return {digest: _load(content) for digest, content in found}


def find_column_set(process: ProcessRecord, edge: OutputEdge, read: ColumnLineage | None) -> ColumnSet | None:
    """Return what the columns of an output were made of: those that are declared as declared, the others as the work
    has `read` them. None if nothing is said of either.
    """
    if read is None and not edge.column_lineage:
        return None
    found = read or ColumnLineage(unknown=NOT_TOLD)
    declared = {name.lower() for name in edge.column_lineage}
    columns = {name: sources for name, sources in found.columns.items() if name.lower() not in declared}
    feeds = {each.name: each.feed for each in process.inputs}

    def of_feeds(sources: Iterable[ColumnSource]) -> tuple[FeedColumn, ...]:
        plain = {text: "" for each in sources for text in (each.column, f"{each.input}.{each.column}")}
        texts = ((each, plain.get(each.text, _TIMES.sub("<time>", mask(each.text)))) for each in sources)
        named = {FeedColumn(feeds.get(each.input, each.input), each.column, each.kind, text) for each, text in texts}
        return tuple(sorted(named))

    return ColumnSet(
        columns={name: of_feeds(sources) for name, sources in {**columns, **edge.column_lineage}.items()},
        indirect=of_feeds(found.indirect),
        beyond=tuple(map(mask, found.beyond)),
        unknown=None if found.unknown is None else mask(found.unknown),
    )


def _render(sources: Iterable[FeedColumn]) -> list[dict[str, str]]:
    return [{name: str(value) for name, value in each._asdict().items() if value} for each in sorted(sources)]


def _load(content: Mapping[str, Any]) -> ColumnSet:
    def sources(listed: Iterable[Mapping[str, str]]) -> tuple[FeedColumn, ...]:
        kinds = ((each, SourceKind(each["kind"])) for each in listed)
        return tuple(FeedColumn(each["feed"], each["column"], kind, each.get("text", "")) for each, kind in kinds)

    columns = {name: sources(listed) for name, listed in content.get("columns", {}).items()}
    indirect, beyond = sources(content.get("indirect", ())), tuple(content.get("beyond", ()))
    return ColumnSet(columns=columns, indirect=indirect, beyond=beyond, unknown=content.get("unknown"))
