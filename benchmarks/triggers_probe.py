"""Measures ticks of a location whose processes wait for signals, beside one whose processes run by time. Arguments:
folder, signals, events of each in the history, new events, repeats.
"""

import json
import sqlite3
import sys
from functools import partial
from itertools import cycle, islice
from pathlib import Path

from benchmarks.history import fill_signals, next_time
from benchmarks.signals import signals_of, write_signals
from benchmarks.tick_harness import STATE, TickedLocation, open_location, tick_harness
from benchmarks.workload import HOUR, pairs_of

TICKS = 10
"""Idle ticks of each location for one with news: they are short."""


def main(folder: str, count: str, history: str, new: str, repeats: str) -> None:
    """Print the seconds of idle ticks and of those with news, one list for each kind."""
    signals, hours = signals_of(int(count)), int(history)
    here, beside = Path(folder) / "triggered", Path(folder) / "timed"
    write_signals(here / "entities", signals, here / "data")
    # A pair has two events an hour: both logs are as long.
    with (
        open_location(here, next_time(hours), partial(fill_signals, hours=hours)) as triggered,
        tick_harness(beside, pairs_of(len(signals)), hours // 2) as timed,
    ):
        for location in (triggered, timed):
            location.tick()
        idle = [(triggered.tick()[0], timed.tick()[0]) for _ in range(TICKS * int(repeats))]
        news = [
            _news(triggered, list(islice(cycle(signals), int(new))), number) for number in range(1, int(repeats) + 1)
        ]
    triggers, times = zip(*idle, strict=True)
    print(json.dumps({"idle": triggers, "idle_without": times, "news": news}))


def _news(location: TickedLocation, signals: list[str], number: int) -> dict[str, float]:
    """Measure a tick after notices, and all ticks until Dagster was told everything."""
    location.set_clock(location.runtime.clock.now() + HOUR)
    for signal in signals:
        location.give_notice(signal)
    seconds, result = location.tick()
    total, ticks, told, requested = seconds, 1, len(result.asset_events), len(result.run_requests or ())
    while result.asset_events or result.run_requests:
        again, result = location.tick()
        total, ticks = total + again, ticks + 1
        told, requested = told + len(result.asset_events), requested + len(result.run_requests or ())
    consumers = len(set(signals))
    assert (told, requested) == (len(signals), consumers), (told, requested)
    with sqlite3.connect(location.folder / STATE) as connection:
        connection.execute("UPDATE fa_process_instances SET status = 'SUCCEEDED'")
        (batches,) = connection.execute("SELECT count(*) FROM fa_process_instances").fetchone()
    assert batches == number * consumers, batches
    return {"tick": seconds, "all": total, "ticks": ticks}


if __name__ == "__main__":
    main(*sys.argv[1:])
