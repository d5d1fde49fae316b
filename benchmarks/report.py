"""What a benchmark says: figures with the peer they were measured against, as a table and as JSON."""

import importlib.metadata
import json
import os
import platform
import sqlite3
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from rich.console import Console
from rich.table import Table

VERSION = 1
_PACKAGES = ("dagster", "pyspark", "SQLAlchemy", "pydantic")


class Part(StrEnum):
    """The things that are measured."""

    LOADING = "a"
    TICKS = "b"
    RUNS = "c"
    WINDOWS = "d"
    DEFINITIONS = "e"
    EXPLAINING = "f"
    RETENTION = "g"
    REPLICATION = "h"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured value beside its peer's, both medians of one run on one machine.

    `ratio` is theirs / ours where more is better and ours / theirs where less is; None without a peer. `is_met` is None
    where nothing was promised.
    """

    part: Part
    name: str
    ours: float
    unit: str
    peer: str = ""
    theirs: float | None = None
    ratio: float | None = None
    target: str = ""
    is_met: bool | None = None
    note: str = ""

    def __str__(self) -> str:
        """The figure as a line of text."""
        text = f"{self.name}: {_shown(self.ours, self.unit)}"
        if self.theirs is not None:
            text += f"; {self.peer}: {_shown(self.theirs, self.unit)}; ratio {self.ratio:,.2f}"
        return f"{text} ({self.target}: {'met' if self.is_met else 'missed'})" if self.target else text


def slower(
    part: Part, name: str, ours: float, peer: str, theirs: float, *, at_most: float | None = None, note: str = ""
) -> Figure:
    """Seconds against a peer's seconds: how many times as long we take."""
    figure = Figure(part=part, name=name, ours=ours, unit="s", peer=peer, theirs=theirs, ratio=ours / theirs, note=note)
    if at_most is None:
        return figure
    return replace(figure, target=f"at most {at_most:g}x", is_met=ours / theirs <= at_most)


def faster(
    part: Part, name: str, ours: float, peer: str, theirs: float, *, at_least: float | None = None, note: str = ""
) -> Figure:
    """Seconds against a peer's seconds: how many times as fast we are."""
    figure = Figure(part=part, name=name, ours=ours, unit="s", peer=peer, theirs=theirs, ratio=theirs / ours, note=note)
    if at_least is None:
        return figure
    return replace(figure, target=f"at least {at_least:g}x faster", is_met=theirs / ours >= at_least)


def within(part: Part, name: str, ours: float, *, at_most: float | None = None, note: str = "") -> Figure:
    """Seconds against a limit, or against nothing."""
    figure = Figure(part=part, name=name, ours=ours, unit="s", note=note)
    return figure if at_most is None else replace(figure, target=f"at most {at_most:g} s", is_met=ours <= at_most)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All figures of one run, with what they depend on."""

    figures: tuple[Figure, ...]
    quick: bool
    measured_at: str
    cores: int = field(default_factory=lambda: os.cpu_count() or 1)
    load: float = field(default_factory=lambda: os.getloadavg()[0])
    python: str = field(default_factory=platform.python_version)
    sqlite: str = sqlite3.sqlite_version
    system: str = field(default_factory=platform.platform)
    packages: dict[str, str] = field(
        default_factory=lambda: {name: importlib.metadata.version(name) for name in _PACKAGES}
    )

    @property
    def missed(self) -> tuple[Figure, ...]:
        """The figures that miss their target."""
        return tuple(figure for figure in self.figures if figure.is_met is False)

    def write_json(self, file: Path) -> None:
        """The report as a JSON file, `version` 1."""
        figures = [{**asdict(figure), "part": figure.part.value} for figure in self.figures]
        document = {"version": VERSION, **asdict(self), "figures": figures}
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(document, indent=2) + "\n")

    def print_table(self, console: Console) -> None:
        """The figures as a table, and what they depend on."""
        table = Table("", "measured", "ours", "peer", "peer's", "ratio", "target", "met", title="Benchmarks")
        for figure in self.figures:
            table.add_row(
                figure.part.value,
                figure.name + (f"\n[dim]{figure.note}[/dim]" if figure.note else ""),
                _shown(figure.ours, figure.unit),
                figure.peer,
                "" if figure.theirs is None else _shown(figure.theirs, figure.unit),
                "" if figure.ratio is None else f"{figure.ratio:,.2f}",
                figure.target,
                {None: "", True: "yes", False: "[red]no[/red]"}[figure.is_met],
            )
        console.print(table)
        versions = ", ".join(f"{name} {version}" for name, version in self.packages.items())
        console.print(
            f"{self.cores} cores, load {self.load:.1f}, Python {self.python}, SQLite {self.sqlite}, {versions}"
        )


def make_report(figures: Sequence[Figure], *, quick: bool) -> Report:
    """A report of figures that have just been measured."""
    return Report(figures=tuple(figures), quick=quick, measured_at=datetime.now(UTC).isoformat(timespec="seconds"))


def _shown(value: float, unit: str) -> str:
    """A value in the unit that reads best.

    >>> _shown(0.0042, "s"), _shown(12.5, "s"), _shown(61234.0, "/s")
    ('4.2 ms', '12.50 s', '61,234/s')
    """
    if unit == "s":
        return f"{value * 1000:.1f} ms" if value < 1 else f"{value:,.2f} s"
    return f"{value:,.0f}{unit}"
