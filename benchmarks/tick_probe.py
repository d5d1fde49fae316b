"""Measures ticks of the arrival sensor. Arguments: folder, pairs, hours of history, repeats, numbers of news."""

import json
import sys
from datetime import timedelta
from pathlib import Path

from benchmarks.tick_harness import TickHarness, tick_harness
from benchmarks.workload import pairs_of

UNTIL_QUIET = 200
BECOME_READY = 10


def main(folder: str, pairs: str, hours: str, repeats: str, *counts: str) -> None:
    """Print the seconds of each kind of tick, one list for each kind."""
    with tick_harness(Path(folder), pairs_of(int(pairs)), int(hours)) as harness:
        first, _ = harness.tick()
        assert harness.count_waiting() == 0  # the history is done
        result: dict[str, object] = {
            "first": first,
            "idle": [harness.tick()[0] for _ in range(3 * int(repeats))],
            "look": [_look(harness) for _ in range(int(repeats))],
        }
        ready = [[_ready(harness, waiting) for waiting in _waiting(harness)] for _ in range(3 * int(repeats))]
        result |= {f"ready/{waiting}": taken for waiting, *taken in zip(_waiting(harness), *ready, strict=True)}
        for count in map(int, counts):
            result[f"new/{count}"] = [_new(harness, count) for _ in range(int(repeats))]
        print(json.dumps(result))


def _look(harness: TickHarness) -> dict[str, float]:
    """Measure a tick in which every source has one due, missing instance, and every process one that waits for it."""
    (nominal_time,) = harness.advance(1)
    harness.tick()
    harness.location.set_clock(nominal_time + timedelta(minutes=40))
    assert harness.count_due_polls() == len(harness.pairs)
    seconds, result = harness.tick()
    assert (harness.count_due_polls(), result.asset_events, result.run_requests) == (0, [], [])
    assert harness.count_waiting() == len(harness.pairs)
    harness.settle()
    return {"tick": seconds}


def _waiting(harness: TickHarness) -> tuple[int, int]:
    """Return the numbers of waiting instances to measure in turn, so that other load on the machine affects both."""
    return BECOME_READY, len(harness.pairs)


def _ready(harness: TickHarness, waiting: int) -> dict[str, float]:
    """Measure notices of ten arrivals for ten waiting instances, among `waiting` instances, one of each process."""
    (nominal_time,) = harness.advance(1)
    harness.tick()
    harness.settle(still_waiting=harness.pairs[:waiting])
    for pair in harness.pairs[: waiting : waiting // BECOME_READY]:
        harness.location.give_notice(pair.source, nominal_time)
    seconds, result = harness.tick()
    assert len(result.asset_events) == len(result.run_requests or ()) == BECOME_READY
    assert harness.count_waiting() == waiting - BECOME_READY
    harness.settle()
    return {"tick": seconds}


def _new(harness: TickHarness, count: int) -> dict[str, float]:
    """Measure a tick after `count` arrivals, spread evenly over the sources."""
    due = harness.advance(-(-count // len(harness.pairs)))
    harness.land([(pair, nominal_time) for nominal_time in due for pair in harness.pairs][:count])
    seconds, result = harness.tick()
    total, ticks, told, requested = seconds, 1, len(result.asset_events), len(result.run_requests or ())
    while result.asset_events or result.run_requests:
        again, result = harness.tick()
        total, ticks = total + again, ticks + 1
        told, requested = told + len(result.asset_events), requested + len(result.run_requests or ())
        assert ticks < UNTIL_QUIET
    assert told == count, f"{told} of {count} arrivals were told"
    harness.settle()
    return {"tick": seconds, "all": total, "ticks": ticks, "requests": requested}


if __name__ == "__main__":
    main(*sys.argv[1:])
