"""Printing of results: tables, CSV or JSON, from the same rows and results."""

import csv
import io
import json
import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from textwrap import wrap
from types import MappingProxyType
from typing import Any

import click

from feed_assets.cli.door import find_door, find_width
from feed_assets.cli.progress import status_line
from feed_assets.errors import WrongUsageError
from feed_assets.json_form import render_document, render_words
from feed_assets.masking import mask
from feed_assets.timing.dates import render_datetime

_COLOURS = {
    "green": ("SUCCEEDED", "AVAILABLE", "COMPLETED", "DONE", "IN SYNC", "REPAIRED", "RESTORED"),
    "cyan": ("RUNNING", "SCHEDULED"),
    "yellow": ("WAITING", "READY", "SUSPENDED", "PARTIAL", "EMPTY", "ASKING", "BEHIND", "UNKNOWN"),
    "red": ("FAILED", "KILLED", "TIMEDOUT", "MISSING", "ROTTEN", "EXTRA", "OCCUPIED", "LOST", "REFUSED"),
}
_COLOUR_OF = {state: colour for colour, states in _COLOURS.items() for state in states}
_COMMANDS = re.compile(r"\r(?!\n)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""What a terminal obeys instead of showing it: control characters, and marks that turn the direction of letters."""
_COMMANDS_BUT_COLOURS = re.compile(rf"(?!\x1b\[(?:3[1236]|0)m)(?:{_COMMANDS.pattern})")
_BLANKS = str.maketrans("\t\r\n", "   ")
_STEP = 1024
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")


class Output(StrEnum):
    """The forms of a result: a table for people, CSV for spreadsheets, JSON for programs."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


def say(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print a text without secrets, on standard output or on standard error. A terminal shows all of it as it is."""
    echo(shown(text), err=err, nl=nl)


def shown(text: str) -> str:
    r"""Return a text without secrets, in which what a terminal would obey is an escape.

    >>> shown("\x1b]0;title\x07 \u202etxt")
    '\\x1b]0;title\\x07 \\u202etxt'
    """
    return escape(mask(text))


def escape(text: str, *, keeps_colours: bool = False) -> str:
    r"""Return a text in which what a terminal would obey is an escape, but for our colours if they are kept.

    >>> escape("\x1b[31mFAILED\x1b[0m\x1b[2J", keeps_colours=True)
    '\x1b[31mFAILED\x1b[0m\\x1b[2J'
    """
    commands = _COMMANDS_BUT_COLOURS if keeps_colours else _COMMANDS
    return commands.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print a text that is fit to be shown, and may have our colours. Nothing else here prints."""
    if (door := find_door()) is not None:
        (door.screen.err if err else door.screen.out).append(f"{text}\n" if nl else text)
        return
    status_line.hush()
    click.echo(text, err=err, nl=nl)


def confirm(question: str) -> None:
    """Ask a person on standard error; abort the command unless the answer is yes. A request has to say it at once.

    Raises:
        WrongUsageError: nobody can be asked, as a request is answered.
    """
    if find_door() is not None:
        raise WrongUsageError(
            f"{question.splitlines()[-1]} A server cannot ask: give yes=true, or the digest of the plan."
        )
    with status_line.paused():
        click.confirm(shown(question), abort=True, err=True)


def print_json(result: object = None, /, **members: object) -> None:
    """Print a result, or members by name, as a JSON document (see `render_document`)."""
    text = json.dumps(render_document(result, **members), indent=2, ensure_ascii=False)
    echo(_COMMANDS.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def print_table(
    header: Sequence[str],
    rows: Iterable[Sequence[object]],
    output: str = Output.TABLE,
    *,
    spare: Collection[str] = (),
) -> None:
    """Print rows on standard output: as CSV; or as a table on a terminal, and elsewhere as lines with tabs between the
    cells. The first line has the names of the columns. On narrow terminals `spare` columns are left out.
    """
    values = [(*row, *[None] * (len(header) - len(row))) for row in rows]
    cells = [["" if cell is None else shown(str(cell)) for cell in row] for row in values]
    if output == Output.CSV:
        stream = io.StringIO()
        csv.writer(stream, lineterminator="\n").writerows([header, *cells])
        say(stream.getvalue(), nl=False)
        return
    width = find_width()
    if width is None:
        for row in (header, *cells):
            say("\t".join(cell.translate(_BLANKS) for cell in row))
        return
    layout = lay_out(
        header,
        cells,
        width=width,
        spare=spare,
        numbers=[at for at, column in enumerate(zip(*values, strict=True)) if all(map(_is_number, column))],
        paint=paint_state if has_colours() else str,
    )
    for line in layout.lines:
        echo(line)
    if cells and layout.left_out:
        say(f"left out for want of room: {', '.join(layout.left_out)}; --output csv has all columns", err=True)


def print_records(columns: str, records: Iterable[Any], output: str, *, spare: Collection[str] = ()) -> None:
    """Print a row for each record, as `read_cells` returns them."""
    header, rows = read_cells(columns, records)
    print_table(header, rows, output, spare=spare)


def read_cells(columns: str, records: Iterable[Any]) -> tuple[list[str], Sequence[Sequence[object]]]:
    """Return the names of columns and a row for each record. A column is an attribute of it, maybe by another name and
    in a form, one of `_FORMS` or of `format`: `batch, since=mark.since, level=level:upper, miss=share:.1%`; a word if
    it is None: `feed|every`. A tuple is a row as it is.
    """
    named = [column.partition("=") for column in columns.split(", ")]
    paths = [(path or name).partition(":") for name, _, path in named]
    rows = [
        record if type(record) is tuple else [_cell(record, path, form) for path, _, form in paths]
        for record in records
    ]
    return [re.split("[:|]", name)[0] for name, _, _ in named], rows


def render_lag(lag: timedelta) -> str:
    """Return a lag for people.

    >>> render_lag(timedelta(0)), render_lag(timedelta(days=1, hours=2)), render_lag(timedelta(minutes=90))
    ('none', '1 d 2 h', '1 h 30 min')
    """
    minutes = int(lag.total_seconds()) // 60
    parts = ((minutes // 1440, "d"), (minutes // 60 % 24, "h"), (minutes % 60, "min"))
    return " ".join(f"{count} {unit}" for count, unit in parts if count) or "none"


def render_size(size: int) -> str:
    """Return a size for people.

    >>> render_size(0), render_size(1536), render_size(5 * 1024**3)
    ('0 bytes', '1.5 KiB', '5.0 GiB')
    """
    value = float(size)
    for unit in _UNITS:
        if value < _STEP or unit == _UNITS[-1]:
            return f"{size} bytes" if unit == _UNITS[0] else f"{value:.1f} {unit}"
        value /= _STEP
    raise AssertionError(size)


_FORMS: Mapping[str, Callable[[Any], object]] = MappingProxyType(
    {
        "yes": lambda is_so: "yes" if is_so else "no",
        "upper": lambda text: text.upper(),
        "seconds": lambda moment: f"{moment:%Y-%m-%dT%H:%M:%SZ}",
        "duration": lambda seconds: f"{seconds // 3600}:{seconds % 3600 // 60:02}",
        "commas": ",".join,
        "few": lambda names: ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else ""),
        "count": len,
        "sum": sum,
        "total": lambda counts: sum(counts.values()),
        "numbered": lambda counts: ", ".join(f"{name} {count}" for name, count in counts.items()),
        "counts": lambda counts: ", ".join(f"{count} {name}" for name, count in counts.items()),
        "lag": render_lag,
        "digest": lambda digest: digest.partition(":")[2][:12],
        "size": render_size,
        "pairs": render_words,
        "json": lambda value: json.dumps(value, ensure_ascii=False),
    }
)


def _cell(value: object, path: str, form: str) -> object:
    names, _, instead = path.partition("|")
    for name in names.split("."):
        if type(value) is tuple:
            value = tuple(getattr(each, name) for each in value)
        else:
            value = None if value is None else getattr(value, name)
    if value is None:
        return instead
    if form:
        return _FORMS[form](value) if form in _FORMS else format(value, form)
    if isinstance(value, datetime):
        return render_datetime(value)
    if isinstance(value, Mapping):
        return json.dumps(value) if value else None
    return ", ".join(map(str, value)) if isinstance(value, tuple) else value


def colour_of(state: str) -> str:
    """Return the colour of a state; empty of any other text."""
    return _COLOUR_OF.get(state.upper(), "")


def paint_state(state: str) -> str:
    """Return a state in its colour, and any other text as it is."""
    colour = colour_of(state)
    return click.style(state, fg=colour) if colour else state


def say_state(state: str) -> None:
    """Print a state, in its colour on a terminal; any other text as it is."""
    echo(paint_state(shown(state)) if has_colours() else shown(state))


def has_colours() -> bool:
    if (door := find_door()) is not None:
        return door.screen.has_colours
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _is_number(value: object) -> bool:
    return value is None or isinstance(value, int | float)


GAP = 2
INDENT = 4
NARROWEST = 24
"""The least width in which the last column is folded beside the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The lines of a table, and the names of the columns that are left out."""

    lines: tuple[str, ...]
    left_out: tuple[str, ...] = ()


def lay_out(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    width: int,
    spare: Collection[str] = (),
    numbers: Collection[int] = (),
    paint: Callable[[str], str] = str,
) -> Layout:
    """Lay out rows in `width` characters. Columns without a value in any row are omitted.

    Args:
        header: the names of the columns, the most important first.
        rows: their cells.
        width: of the terminal.
        spare: columns that are shown only where there is room beside the others.
        numbers: the places of columns that are aligned to the right.
        paint: colours a cell.

    >>> table = lay_out(["name", "state", "reason"], [["clicks", "FAILED", "a column is missing"]], width=20)
    >>> print(*table.lines, sep="|")
    name    state|clicks  FAILED|    reason: a column|      is missing
    """
    shown = [place for place in range(len(header)) if not rows or any(row[place] for row in rows)]
    widths = {place: max(len(header[place]), *(len(row[place]) for row in rows), 0) for place in shown}
    beside, below, left_out = list(shown), list[int](), list[str]()
    if _total(widths, shown) > width:
        beside, below = _divide([place for place in shown if header[place] not in spare], widths, rows, width)
        for place in (place for place in shown if header[place] in spare):
            if _total(widths, [*beside, place]) <= width:
                beside = sorted([*beside, place])
            else:
                left_out.append(header[place])

    def line(cells: Sequence[str], paint: Callable[[str], str]) -> str:
        padded = []
        for place, cell in zip(beside, cells, strict=True):
            blank = " " * (widths[place] - len(cell))
            padded.append(blank + paint(cell) if place in numbers else paint(cell) + blank)
        return (" " * GAP).join(padded).rstrip()

    lines = [line([header[place] for place in beside], str)]
    for row in rows:
        columns = [wrap(row[at], widths[at], break_long_words=False, break_on_hyphens=False) for at in beside]
        for number in range(max(1, *map(len, columns))):
            lines.append(line([column[number] if number < len(column) else "" for column in columns], paint))
        lines += _fold([f"{header[place]}: {row[place]}" for place in below if row[place]], width)
    return Layout(lines=tuple(lines), left_out=tuple(left_out))


def _total(widths: dict[int, int], places: Collection[int]) -> int:
    return sum(widths[place] + GAP for place in places) - GAP


def _divide(
    shown: Sequence[int], widths: dict[int, int], rows: Sequence[Sequence[str]], width: int
) -> tuple[list[int], list[int]]:
    """Return the columns that stand beside one another, and those below; the last one may be folded to fit."""
    beside: list[int] = []
    below: list[int] = []
    for place in shown:
        room = width - _total(widths, beside) - GAP if beside else width
        if widths[place] <= room or not beside:
            beside.append(place)
        elif place == shown[-1] and not below and max(NARROWEST, *map(_longest_word(place), rows)) <= room:
            widths[place] = room
            beside.append(place)
        else:
            below.append(place)
    return beside, below


def _longest_word(place: int) -> Callable[[Sequence[str]], int]:
    return lambda row: max(map(len, row[place].split()), default=0)


def _fold(texts: Sequence[str], width: int) -> Iterator[str]:
    """Yield lines with the texts, several in a line if they fit."""
    line = ""
    for text in texts:
        if line and len(line) + GAP + len(text) <= width:
            line += " " * GAP + text
            continue
        if line:
            yield line
        indent = " " * INDENT
        *full, line = wrap(
            text,
            width,
            initial_indent=indent,
            subsequent_indent=indent + " " * GAP,
            break_long_words=False,
            break_on_hyphens=False,
        )
        yield from full
    if line:
        yield line
