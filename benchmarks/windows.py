"""(d) The number of windows resolved in a second on one core; against walking the instances and Dagster's mapping."""

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from zoneinfo import ZoneInfo

from dagster import DailyPartitionsDefinition, HourlyPartitionsDefinition, TimeWindowPartitionMapping

from benchmarks.probes import say
from benchmarks.report import Figure, Part, Scale
from feed_assets.timing.sequence import InstanceSequence, parse_frequency
from feed_assets.timing.windows import Window, parse_window

AT_LEAST = 50_000
YEAR_HOURS = 8_760
START = datetime(2025, 1, 1, 5, tzinfo=UTC)
HOUR = timedelta(hours=1)
NEW_YORK = ZoneInfo("America/New_York")
ZONES = (ZoneInfo("UTC"), NEW_YORK)
WINDOWS = (("now(-2,0)", "now(0,0)"), ("today(0,0)", "tomorrow(0,-60)"), ("currentMonth(0,0,0)", "now(0,0)"))


def measure_windows(_folder: Path, scale: Scale) -> Iterator[Figure]:
    """Measure each window over hourly and daily feeds in UTC and New York, at every hour of a year."""
    repeats = scale.choose(9, 3, 1)
    hours = [START + n * HOUR for n in range(scale.choose(YEAR_HOURS, YEAR_HOURS, 240))]
    sample = hours[:: len(hours) // scale.choose(60, 20, 5)]
    for start, end in WINDOWS:
        say(f"windows: {start} to {end}")
        for zone in ZONES:
            for frequency in ("hours(1)", "days(1)"):
                feed = InstanceSequence(
                    start=START if zone is NEW_YORK else START - 5 * HOUR,
                    frequency=parse_frequency(frequency),
                    timezone=zone,
                    end=START + timedelta(days=800),
                )
                window = parse_window(start, end, zone)
                _check(window, feed, sample)
                ours = _rate(lambda w=window, f=feed: [w.indices(t, f) for t in hours], len(hours), repeats)  # type: ignore[misc]
                theirs = _rate(lambda w=window, f=feed: [walk(w, t, f) for t in sample], len(sample), 1)  # type: ignore[misc]
                yield _figure(f"{start} to {end} over {frequency} in {zone.key}", ours, "walking the instances", theirs)
    yield _against_dagster(hours, repeats)


def walk(window: Window, nominal_time: datetime, feed: InstanceSequence) -> list[int]:
    """Resolve a window naively: evaluate both ends, then walk the instances from the first, as Falcon does."""
    first = window.start.evaluate(nominal_time, feed.timezone)
    last = window.end.evaluate(nominal_time, feed.timezone)
    found: list[int] = []
    n, instance = 0, feed.at(0)
    while instance <= last and (feed.size is None or n < feed.size):
        following = feed.at(n + 1)
        if following > first:
            found.append(n)
        n, instance = n + 1, following
    return found


def _check(window: Window, feed: InstanceSequence, times: Sequence[datetime]) -> None:
    for nominal_time in times:
        assert list(window.indices(nominal_time, feed)) == walk(window, nominal_time, feed), (window, nominal_time)


def _rate(work: Callable[[], object], size: int, repeats: int) -> float:
    seconds = []
    for _ in range(repeats):
        begun = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begun)
    return size / median(seconds)


def _figure(name: str, ours: float, peer: str, theirs: float) -> Figure:
    return Figure(
        part=Part.WINDOWS,
        name=name,
        ours=ours,
        unit="/s",
        peer=peer,
        theirs=theirs,
        ratio=ours / theirs,
        target=f"at least {AT_LEAST:,}/s",
        is_met=ours >= AT_LEAST,
    )


def _against_dagster(hours: Sequence[datetime], repeats: int) -> Figure:
    """Measure the 24 hours of a day, the only one of these windows that Dagster's mapping can express."""
    days = hours[::24][:300]
    feed = InstanceSequence(start=START - 5 * HOUR, frequency=parse_frequency("hours(1)"), timezone=ZoneInfo("UTC"))
    window = parse_window("today(0,0)", "tomorrow(0,-60)", ZoneInfo("UTC"))
    upstream = HourlyPartitionsDefinition(start_date="2025-01-01-00:00", end_date="2027-01-01-00:00")
    downstream = DailyPartitionsDefinition(start_date="2025-01-01", end_date="2027-01-01")
    mapping = TimeWindowPartitionMapping()

    def theirs(day: datetime) -> int:
        subset = downstream.subset_with_partition_keys([day.strftime("%Y-%m-%d")])
        mapped = mapping.get_upstream_mapped_partitions_result_for_partitions(subset, downstream, upstream)
        return len(mapped.partitions_subset)

    assert theirs(days[1]) == len(window.indices(days[1], feed)) == 24
    return _figure(
        "today(0,0) to tomorrow(0,-60) over hours(1) in UTC, per day",
        _rate(lambda: [window.indices(day, feed) for day in days], len(days), repeats),
        "Dagster's TimeWindowPartitionMapping",
        _rate(lambda: [theirs(day) for day in days], len(days), repeats),
    )
