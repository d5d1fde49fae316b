"""A week of four hourly feeds with an SLA, of which 200 instances come only at its end: the process that is killed.

`python -m tests.alerts.deadlines.week FOLDER STATE SEED` ticks until the week is over. Where it is stands in a file,
so that a process that follows goes on there; now and then it begins some hours later, as after a stop.
"""

import random
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

from feed_assets.alerts.deadlines.checks import apply_deadlines
from tests.alerts.deadlines.looks import no_causes
from tests.instances.harness import START, LifecycleHarness, feed

FEEDS = ("clicks", "views", "orders", "visits")
HOURS = 7 * 24
LATE = 200
SLA = {"low": "hours(2)", "high": "hours(5)", "since": START}
STEP = timedelta(minutes=20)
END = START + timedelta(days=9)
LANDING = timedelta(minutes=70)
AT_LAST = START + timedelta(days=8, hours=12)


def late_instances() -> frozenset[tuple[str, int]]:
    """The feeds and hours that come only after the week: always the same."""
    every = [(name, hour) for name in FEEDS for hour in range(HOURS)]
    return frozenset(random.Random(25).sample(every, LATE))


def open_week(folder: Path, state: str) -> LifecycleHarness:
    """The declared feeds; the same each time."""
    feeds = [feed(name, end=START + timedelta(hours=HOURS), sla=SLA) for name in FEEDS]
    return LifecycleHarness.of(folder, *feeds, state=state)


def land_until(lifecycle: LifecycleHarness, since: datetime, until: datetime) -> None:
    """Let come what comes in a span of time."""
    late = late_instances()
    for name in FEEDS:
        for hour in range(HOURS):
            nominal = START + timedelta(hours=hour)
            comes_at = AT_LAST if (name, hour) in late else nominal + LANDING
            if since < comes_at <= until and not lifecycle.folder(name, nominal).exists():
                lifecycle.land(name, nominal)


def tick(lifecycle: LifecycleHarness, now: datetime) -> None:
    """A tick of the sensor of arrivals, and one of that for deadlines."""
    lifecycle.arrive(now)
    apply_deadlines(lifecycle.open_tick(now), no_causes)


def main(arguments: Sequence[str]) -> None:
    """Go on with the week."""
    folder, state, dice = Path(arguments[0]), arguments[1], random.Random(int(arguments[2]))
    lifecycle, place = open_week(folder, state), folder / "now"
    now = datetime.fromisoformat(place.read_text()) if place.exists() else START
    last = now - STEP
    now += dice.choice([timedelta(0), timedelta(0), timedelta(hours=1), timedelta(hours=3)])
    while now <= END:
        land_until(lifecycle, last - timedelta(hours=4), now)
        tick(lifecycle, now)
        last, now = now, now + STEP
        (folder / "next").write_text(now.isoformat())
        (folder / "next").replace(place)
    (folder / "over").touch()


if __name__ == "__main__":
    main(sys.argv[1:])
