"""(k) One tick of the sensor for deadlines over 1,000 hourly feeds with a year of instances and nothing new, on SQLite;
against Dagster's `build_time_partition_freshness_checks` on as many assets. The peer judges the newest partition of
each asset. Our tick knows of every instance that is late.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from benchmarks.probes import run_probe, say
from benchmarks.report import Figure, Part, Scale, faster, within

AT_LEAST = 10
PEER = "Dagster's build_time_partition_freshness_checks, executed"


def measure_deadlines(folder: Path, scale: Scale) -> Iterator[Figure]:
    """Measure ticks without news, ticks in which a deadline of each feed passes, and the peer's checks."""
    feeds, hours, known, repeats = scale.choose((1_000, 8_760, 24, 15), (100, 1_000, 24, 5), (5, 30, 5, 2))
    size = f"{feeds:,} hourly feeds, {feeds * hours:,} instances"
    say(f"deadlines: {size}; takes minutes")
    ours = run_probe("deadlines_probe", folder / "state", feeds, hours, repeats)
    shutil.rmtree(folder / "state")
    say("deadlines: the peer; takes minutes")
    theirs = run_probe("deadlines_peer", feeds, known)
    idle = f"tick with nothing new; {size}"
    note = f"the peer's assets have {known} instances each; the process of its run has already begun"
    yield faster(Part.DEADLINES, idle, median(ours["idle"]), PEER, theirs["executed"], at_least=AT_LEAST, note=note)
    due = f"tick in which a deadline of each feed passes; {size}"
    yield faster(Part.DEADLINES, due, median(ours["due"]), PEER, theirs["executed"])
    yield within(
        Part.DEADLINES,
        f"tick with nothing new beside {ours['late']:,} late instances; {size}",
        median(ours["beside_late"]),
        note="each late instance is looked up",
    )
