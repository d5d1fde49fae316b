"""(i) One tick in which 3,500 events have come for 1,000 processes of which each takes two feeds, with a million events
in the log; against Dagster's `any_deps_updated()`. Our tick reads the log, cuts batches, requests runs and reports to
Dagster; the peer's evaluation decides what to run.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from benchmarks.probes import run_probe, say
from benchmarks.report import Figure, Part, Scale, faster, slower

AT_LEAST = 50
IDLE_AT_MOST = 1.2
PEER = "Dagster's evaluate_automation_conditions, any_deps_updated()"


def measure_triggers(folder: Path, scale: Scale) -> Iterator[Figure]:
    """Measure ticks with news and without, and the peer's evaluation over the same graph with the same history."""
    signals, history, new, repeats = scale.choose((1_000, 1_000, 3_500, 5), (100, 100, 350, 2), (5, 4, 12, 1))
    size = f"{signals:,} processes of two feeds each, {signals * history:,} events in the log"
    say(f"triggers: {size}")
    ours = run_probe("triggers_probe", folder / "state", signals, history, new, repeats)
    shutil.rmtree(folder / "state")
    tick, every, ticks = (median(each[kind] for each in ours["news"]) for kind in ("tick", "all", "ticks"))
    yield slower(
        Part.TRIGGERS,
        f"idle tick; {size}",
        median(ours["idle"]),
        "that of a location whose processes run by time",
        median(ours["idle_without"]),
        at_most=IDLE_AT_MOST,
    )
    say("triggers: the peer; takes minutes")
    theirs = run_probe("triggers_peer", signals, history, new)
    evaluation, blind = theirs["partitions"]["tick"], theirs["blind"]["tick"]
    news = f"tick with {new:,} new events; {size}"
    yield faster(Part.TRIGGERS, news, tick, PEER, evaluation, at_least=AT_LEAST)
    yield faster(
        Part.TRIGGERS,
        f"all {ticks:.0f} ticks until {new:,} new events are told and requested",
        every,
        f"{PEER} (one evaluation)",
        evaluation,
    )
    yield faster(
        Part.TRIGGERS,
        news,
        tick,
        f"{PEER}, without partitions and history",
        blind,
        note="the peer then knows that something has come, and not what",
    )
