"""The layout of tables on a terminal. Words are never cut: what does not fit beside the other columns is left out if it
is spare, and else stands below its row.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from textwrap import wrap

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
