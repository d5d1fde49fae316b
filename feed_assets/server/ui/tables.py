"""Tables of pages: what operations find, with links to the pages of what a cell names."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any

from feed_assets.cli.derived import iter_lines, notes_of, rows_of
from feed_assets.cli.render import colour_of, read_cells
from feed_assets.context.consolidation import PAGE
from feed_assets.entities.common import Kind
from feed_assets.operation import Operation
from feed_assets.operation_list import find_operation
from feed_assets.server.answers import as_requests
from feed_assets.server.calls import list_parameters
from feed_assets.server.ui.addresses import (
    address_of,
    described_address,
    entity_address,
    instance_address,
    is_link,
    question_address,
    version_address,
)
from feed_assets.server.ui.records import Asked
from feed_assets.timing.dates import parse_datetime
from feed_assets.timing.errors import DateTimeError

_SUBJECTS = MappingProxyType({"feed": Kind.FEED, "process": Kind.PROCESS, "cluster": Kind.CLUSTER})
_TARGET = re.compile(rf"({'|'.join(Kind)}) '([^']+)'")
_MORE = 5
_ELSEWHERE = re.compile(r"; --[a-z-]+(?: and --[a-z-]+)? (?:shows? more|asks storage)$")  # as in "; --limit shows more"
_Given = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell: its text, the page of what it names, if any, and a colour if it is a state."""

    text: str
    href: str = ""
    colour: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """What an operation has found: a table, or lines of text; and what is said besides."""

    header: Sequence[str] = ()
    rows: Sequence[Sequence[Cell]] = ()
    text: str = ""
    notes: Sequence[str] = ()
    pages: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """What other pages of it are called, and the parameters that they change."""


def labels_of(operation: Operation) -> Mapping[str, str]:
    """Return what the fields of the form of an operation are called, by the names of its parameters."""
    return {name: name.replace("_", " ") for name in list_parameters(operation)}


def as_fields(text: str, operation: Operation) -> str:
    """Return a text in which parameters are called as the form of an operation calls them."""
    return as_requests(text, operation, labels_of(operation))


def make_table(operation: Operation, result: Any, given: _Given) -> Table:
    """Return what an operation, asked with some parameters, has found."""
    notes = tuple(as_fields(_ELSEWHERE.sub("", each), operation) for each in notes_of(operation, result))
    if isinstance(result, str) or not operation.table:
        text = result if isinstance(result, str) else "\n".join(iter_lines(operation, result, operation.text))
        return Table(text=text, notes=notes)
    records = tuple(rows_of(operation, result))
    header, rows = read_cells(getattr(result, "shown_columns", operation.table), records)
    cells = [_make_row(header, row, record, given) for row, record in zip(rows, records, strict=True)]
    shown = [at for at in range(len(header)) if any(row[at].text for row in cells)]
    return Table(
        header=[header[at] for at in shown],
        rows=[[row[at] for at in shown] for row in cells],
        notes=notes,
        pages=_find_pages(operation, result, len(records), given),
    )


def _find_pages(operation: Operation, result: Any, rows: int, given: _Given) -> Mapping[str, Mapping[str, int]]:
    """Return what leads to the pages before and behind this one; of what has no pages, to more of it."""
    names, shown = list_parameters(operation), getattr(result, "listed", rows)
    offset, size = int(given.get("offset") or 0), int(given.get("num_results") or given.get("limit") or PAGE)
    has_more = getattr(result, "has_more", getattr(result, "total", 0) > offset + shown)
    asks = next((each for each in ("limit", "num_results") if each in names), "")
    before = {"Before": {"offset": max(offset - size, 0)}} if offset else {}
    if has_more and shown and "offset" in names:
        return before | {"Further": {"offset": offset + shown}}
    return before | ({"More": {asks: _MORE * (shown or size)}} if has_more and asks else {})


def _make_row(header: Sequence[str], row: Sequence[object], record: Any, given: _Given) -> list[Cell]:
    texts = {name: "" if value is None else str(value) for name, value in zip(header, row, strict=False)}
    cells = []
    for name in header:
        text, find = texts.get(name, ""), _LINKS.get(name)
        href = find(text, texts, record, given) if find is not None and text else text if is_link(text) else ""
        cells.append(Cell(text, href, colour_of(text)))
    return cells


def _link_subject(text: str, row: _Given, record: Any, given: _Given) -> str:
    kind, name = _subject_of(row, record, given)
    return entity_address(kind, name) if kind and name == text else ""


def _link_target(text: str, *_: object) -> str:
    """Return the address of what the audit calls `feed 'clicks'`."""
    found = _TARGET.fullmatch(text)
    return entity_address(found[1], found[2]) if found else ""


def _link_instance(text: str, row: _Given, record: Any, given: _Given) -> str:
    kind, name = _subject_of(row, record, given)
    try:
        parse_datetime(text, seconds=True)
    except DateTimeError:
        return ""
    return instance_address(kind, name, text) if kind in (Kind.FEED, Kind.PROCESS) else ""


def _subject_of(row: _Given, record: Any, given: _Given) -> tuple[str, str]:
    """Return the kind and name that a row is of: of its own cells, of its record, or of what was asked for."""
    for found in (row, given):
        for of in (Kind.FEED, Kind.PROCESS):
            if isinstance(name := found.get(of), str) and name:
                return of, name
    name = row.get("name") or given.get("name") or getattr(record, "name", "")
    kind = row.get("kind") or getattr(record, "kind", "") or given.get("kind") or ""
    return str(kind), str(name)


def _link_batch(text: str, row: _Given, _: Any, given: _Given) -> str:
    process = row.get("process") or given.get("process")
    return question_address("batch show", process=process, instance=text) if process else ""


def _link_version(text: str, _: _Given, record: Any, __: _Given) -> str:
    version = getattr(record, "row", record)
    return version_address(version.kind, version.name, text) if hasattr(version, "kind") else ""


def _link_one(kind: Kind, text: str, _: _Given, record: Any, __: _Given) -> str:
    """Return the address of one of a kind: not of several, nor of "every", of which the record names none."""
    return entity_address(kind, text) if "," not in text and getattr(record, kind, text) is not None else ""


_LINKS: Mapping[str, Callable[[str, _Given, Any, _Given], str]] = MappingProxyType(
    {
        "entity": lambda text, *_: described_address(text),
        "target": _link_target,
        "name": _link_subject,
        **{word: partial(_link_one, kind) for word, kind in _SUBJECTS.items()},
        "instance": _link_instance,
        "oldest": _link_instance,
        "batch": _link_batch,
        "run": lambda text, *_: address_of("run", text),
        "version": _link_version,
        "sweep": lambda text, *_: question_address("retention show", plan=text),
        "plan": lambda text, *_: question_address("retention show", plan=text),
    }
)
"""Where a cell leads to, by the name of its column: a function of its text, the row, its record and what was asked."""


def ask_table(asked: Asked, name: str, given: _Given) -> Table:
    """Ask an operation, and return what it has found."""
    return make_table(find_operation(name), asked.ask(name, **given), given)


def find_table(asked: Asked, name: str, given: _Given) -> Table | None:
    """Return what an operation has found; None if it has nothing to say of what it is asked about."""
    found = asked.find(name, **given)
    return None if found is None else make_table(find_operation(name), found, given)
