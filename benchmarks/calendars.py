"""(r) The calendar page of a year of an hourly feed, by HTTP, against what Dagster is asked for the
statuses of the partitions of an asset of the same hours.
"""

from collections.abc import Iterator
from pathlib import Path

from benchmarks.probes import run_probe, say
from benchmarks.report import Figure, Part, Scale, faster, within

AT_LEAST, P95 = 10, 0.15


def measure_calendar(folder: Path, scale: Scale) -> Iterator[Figure]:
    """Measure the page of a year, and Dagster's question."""
    hours, repeats = scale.choose((8_760, 40), (2_000, 10), (48, 2))
    say(f"calendar: {hours:,} partitions are recorded in Dagster; takes minutes")
    found = run_probe("calendars_probe", folder / "hours", hours, repeats)
    name = f"the calendar of {hours:,} hours with {found['holes']:,} holes, by HTTP"
    keys, statuses = "the webserver's GraphQL for the keys and statuses of its partitions", "for the statuses alone"
    yield faster(Part.CALENDAR, name, found["ours"], keys, found["theirs"], at_least=AT_LEAST)
    yield faster(Part.CALENDAR, name, found["ours"], f"the webserver's GraphQL {statuses}", found["ranges"])
    yield within(Part.CALENDAR, f"{name}, p95 of {repeats}", found["p95"], at_most=P95)
