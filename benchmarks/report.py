"""The report of a benchmark: figures with those of their peers, as a table and as JSON."""

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
from typing import TypeVar, assert_never

from rich.console import Console
from rich.table import Table

VERSION = 2
T = TypeVar("T")
_PACKAGES = ("dagster", "pyspark", "SQLAlchemy", "pydantic")


class Scale(StrEnum):
    """The size of the measured workload: as promised, smaller for a quick check, or tiny for tests."""

    FULL = "full"
    QUICK = "quick"
    TINY = "tiny"

    def choose(self, full: T, quick: T, tiny: T) -> T:
        """Return the value for this scale."""
        match self:
            case Scale.FULL:
                return full
            case Scale.QUICK:
                return quick
            case Scale.TINY:
                return tiny
            case _:
                assert_never(self)


class Part(StrEnum):
    """The parts of the benchmark."""

    LOADING = "a"
    TICKS = "b"
    RUNS = "c"
    WINDOWS = "d"
    DEFINITIONS = "e"
    EXPLAINING = "f"
    RETENTION = "g"
    REPLICATION = "h"
    TRIGGERS = "i"
    SEARCHING = "j"
    DEADLINES = "k"
    DELIVERIES = "l"
    INBOXES = "m"
    STARTING = "n"
    KEEPING = "o"
    MILLIONS = "p"
    LINEAGE = "q"
    CALENDAR = "r"
    IMPORTS = "s"
    RIGHTS = "t"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured value beside its peer's, both medians of one run on one machine. `ratio` is theirs / ours if more is
    better and ours / theirs if less is; None without a peer. `is_met` is None without a target.
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
    """Compare seconds with a peer's seconds: the ratio is how many times longer we take."""
    figure = Figure(part=part, name=name, ours=ours, unit="s", peer=peer, theirs=theirs, ratio=ours / theirs, note=note)
    if at_most is None:
        return figure
    return replace(figure, target=f"at most {at_most:g}x", is_met=ours / theirs <= at_most)


def faster(
    part: Part, name: str, ours: float, peer: str, theirs: float, *, at_least: float | None = None, note: str = ""
) -> Figure:
    """Compare seconds with a peer's seconds: the ratio is how many times faster we are."""
    figure = Figure(part=part, name=name, ours=ours, unit="s", peer=peer, theirs=theirs, ratio=theirs / ours, note=note)
    if at_least is None:
        return figure
    return replace(figure, target=f"at least {at_least:g}x faster", is_met=theirs / ours >= at_least)


def within(part: Part, name: str, ours: float, *, at_most: float | None = None, note: str = "") -> Figure:
    """Compare seconds with a limit, or with nothing."""
    figure = Figure(part=part, name=name, ours=ours, unit="s", note=note)
    return figure if at_most is None else replace(figure, target=f"at most {at_most:g} s", is_met=ours <= at_most)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All figures of one run, with the versions and the machine."""

    figures: tuple[Figure, ...]
    scale: Scale
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
        """Write the report as a JSON file, `version` 2."""
        figures = [{**asdict(figure), "part": figure.part.value} for figure in self.figures]
        document = {"version": VERSION, **asdict(self), "figures": figures}
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(document, indent=2) + "\n")

    def print_table(self, console: Console) -> None:
        """Print the figures as a table, with the versions and the machine."""
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


def make_report(figures: Sequence[Figure], scale: Scale) -> Report:
    """Make the report of figures that were just measured."""
    return Report(figures=tuple(figures), scale=scale, measured_at=datetime.now(UTC).isoformat(timespec="seconds"))


def _shown(value: float, unit: str) -> str:
    """Return a value in the most readable unit.

    >>> _shown(0.0042, "s"), _shown(12.5, "s"), _shown(61234.0, "/s")
    ('4.2 ms', '12.50 s', '61,234/s')
    """
    if unit == "s":
        return f"{value * 1000:.1f} ms" if value < 1 else f"{value:,.2f} s"
    return f"{value:,.0f}{unit}"
