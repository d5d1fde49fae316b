"""`python -m benchmarks`: measures, prints a table and writes JSON. Progress goes to stderr; the exit code is 1 if a
target is missed.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import assert_never

from rich.console import Console

from benchmarks.calendars import measure_calendar
from benchmarks.daily_runs import measure_runs
from benchmarks.deadlines import measure_deadlines
from benchmarks.definitions import measure_definitions
from benchmarks.deliveries import measure_deliveries
from benchmarks.explaining import measure_explaining
from benchmarks.imports import measure_imports
from benchmarks.inboxes import measure_inboxes
from benchmarks.keeping import measure_keeping
from benchmarks.lineage import measure_lineage
from benchmarks.loading import measure_loading
from benchmarks.millions import measure_millions
from benchmarks.probes import ProbeError, say
from benchmarks.replication import measure_replication
from benchmarks.report import Figure, Part, Scale, make_report
from benchmarks.retention import measure_retention
from benchmarks.rights import measure_rights
from benchmarks.searching import measure_searching
from benchmarks.starting import measure_starting
from benchmarks.ticks import measure_ticks
from benchmarks.triggers import measure_triggers
from benchmarks.windows import measure_windows

WIDTH = 170


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the selected benchmarks."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Speed against named peers.")
    parts = ",".join(Part)
    parser.add_argument(
        "--only",
        default=parts,
        help=f"parts, as in {parts}: {', '.join(part.name.lower() for part in Part)} (all)",
    )
    parser.add_argument(
        "--scale",
        type=Scale,
        choices=list(Scale),
        default=Scale.FULL,
        help="sizes; all but `full` show that it works, not how fast it is",
    )
    parser.add_argument("--json", type=Path, help="file for the report")
    parser.add_argument("--folder", type=Path, help="where to work, with 25 GB free (the system's temporary folder)")
    options = parser.parse_args(arguments)
    try:
        wanted = [Part(name.strip()) for name in options.only.split(",")]
    except ValueError as exc:
        parser.error(str(exc))
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="feed-assets-bench-", dir=options.folder) as folder:
        for part in wanted:
            try:
                for figure in _measure(part, Path(folder).resolve() / part, options.scale):
                    say(f"({part}) {figure}")
                    figures.append(figure)
            except ProbeError as exc:
                say(f"[red]({part}) failed:[/red] {exc}")
                return 2
    report = make_report(figures, options.scale)
    console = Console()
    report.print_table(console if console.is_terminal else Console(width=WIDTH))
    if options.json is not None:
        report.write_json(options.json)
    return 1 if report.missed and options.scale is Scale.FULL else 0


def _measure(part: Part, folder: Path, scale: Scale) -> Iterator[Figure]:
    measure: Callable[[Path, Scale], Iterator[Figure]]
    match part:
        case Part.LOADING:
            measure = measure_loading
        case Part.TICKS:
            measure = measure_ticks
        case Part.RUNS:
            measure = measure_runs
        case Part.WINDOWS:
            measure = measure_windows
        case Part.DEFINITIONS:
            measure = measure_definitions
        case Part.EXPLAINING:
            measure = measure_explaining
        case Part.RETENTION:
            measure = measure_retention
        case Part.REPLICATION:
            measure = measure_replication
        case Part.TRIGGERS:
            measure = measure_triggers
        case Part.SEARCHING:
            measure = measure_searching
        case Part.DEADLINES:
            measure = measure_deadlines
        case Part.DELIVERIES:
            measure = measure_deliveries
        case Part.INBOXES:
            measure = measure_inboxes
        case Part.STARTING:
            measure = measure_starting
        case Part.CALENDAR:
            measure = measure_calendar
        case Part.KEEPING:
            measure = measure_keeping
        case Part.MILLIONS:
            measure = measure_millions
        case Part.LINEAGE:
            measure = measure_lineage
        case Part.IMPORTS:
            measure = measure_imports
        case Part.RIGHTS:
            measure = measure_rights
        case _:
            assert_never(part)
    folder.mkdir()
    return measure(folder, scale)


if __name__ == "__main__":
    sys.exit(main())
