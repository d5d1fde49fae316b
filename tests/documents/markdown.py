"""Tables and blocks of the documents, as the tests read them."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = tuple(sorted((ROOT / "docs").rglob("*.md")))
NONE = "–"

_SEPARATOR = re.compile(r"\|(?:-+\|)+")  # |---|---|
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)  # ```yaml … ```


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of a document: where it stands, its header, and the text of its cells without backticks."""

    document: str
    section: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def column(self) -> dict[str, tuple[str, ...]]:
        return {name: tuple(row[position] for row in self.rows) for position, name in enumerate(self.header)}


def tables_of(name: str) -> list[Table]:
    tables: list[Table] = []
    section = ""
    lines = (ROOT / name).read_text("utf-8").splitlines()
    for number, line in enumerate(lines):
        if line.startswith("#"):
            section = line.lstrip("# ")
        if _SEPARATOR.fullmatch(line):
            header = cells_of(lines[number - 1])
            rows = []
            for row in lines[number + 1 :]:
                if not row.startswith("|"):
                    break
                rows.append(cells_of(row))
                assert len(rows[-1]) == len(header), f"{name}: {row}"
            tables.append(Table(document=name, section=section, header=header, rows=tuple(rows)))
    return tables


def cells_of(line: str) -> tuple[str, ...]:
    return tuple(cell.strip() for cell in line.strip().strip("|").split("|"))


def plain(cell: str) -> str:
    """The text of a cell that is one piece of code."""
    return cell[1:-1] if cell.startswith("`") and cell.endswith("`") and cell.count("`") == 2 else cell


def codes(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def fences(document: Path, language: str) -> list[str]:
    return [body for kind, body in FENCE.findall(document.read_text("utf-8")) if kind == language]
