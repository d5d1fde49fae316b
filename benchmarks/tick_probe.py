"""Measures ticks of the arrival sensor. Arguments: folder, pairs, hours of history, repeats, numbers of news."""

import json
import sys
from datetime import timedelta
from pathlib import Path

from benchmarks.tick_bed import TickBed, tick_bed
from benchmarks.workload import pairs_of

UNTIL_QUIET = 200
BECOME_READY = 10


def main(folder: str, pairs: str, hours: str, repeats: str, *counts: str) -> None:
    """Print the seconds of each kind of tick, one list a kind."""
    with tick_bed(Path(folder), pairs_of(int(pairs)), int(hours)) as bed:
        first, _ = bed.tick()
        result: dict[str, object] = {
            "first": first,
            "idle": [bed.tick()[0] for _ in range(3 * int(repeats))],
            "look": [_look(bed) for _ in range(int(repeats))],
        }
        ready = [[_ready(bed, waiting) for waiting in _waiting(bed)] for _ in range(3 * int(repeats))]
        result |= {f"ready/{waiting}": taken for waiting, *taken in zip(_waiting(bed), *ready, strict=True)}
        for count in map(int, counts):
            result[f"new/{count}"] = [_new(bed, count) for _ in range(int(repeats))]
        print(json.dumps(result))


def _look(bed: TickBed) -> dict[str, float]:
    """Every source has one instance that is due and missing, and every process one that waits for it."""
    (nominal_time,) = bed.advance(1)
    bed.tick()
    bed.set_clock(nominal_time + timedelta(minutes=40))
    seconds, result = bed.tick()
    assert result.skip_reason is not None
    assert f"{len(bed.pairs)} looks, 0 arrivals" in (result.skip_reason.skip_message or "")
    bed.settle()
    return {"tick": seconds}


def _waiting(bed: TickBed) -> tuple[int, int]:
    """How many instances wait, in turn, so that whatever else the machine does slows down both."""
    return BECOME_READY, len(bed.pairs)


def _ready(bed: TickBed, waiting: int) -> dict[str, float]:
    """Notice is given of ten arrivals that ten instances waited for; so many wait altogether, one of a process."""
    (nominal_time,) = bed.advance(1)
    bed.tick()
    bed.settle(still_waiting=bed.pairs[:waiting])
    bed.give_notice([(pair, nominal_time) for pair in bed.pairs[: waiting : waiting // BECOME_READY]])
    seconds, result = bed.tick()
    assert len(result.asset_events) == len(result.run_requests or ()) == BECOME_READY
    assert bed.count_waiting() == waiting - BECOME_READY
    bed.settle()
    return {"tick": seconds}


def _new(bed: TickBed, count: int) -> dict[str, float]:
    """`count` instances have arrived since the last tick, the same number for each source as far as it goes."""
    due = bed.advance(-(-count // len(bed.pairs)))
    bed.land([(pair, nominal_time) for nominal_time in due for pair in bed.pairs][:count])
    seconds, result = bed.tick()
    total, ticks, told, requested = seconds, 1, len(result.asset_events), len(result.run_requests or ())
    while result.asset_events or result.run_requests:
        again, result = bed.tick()
        total, ticks = total + again, ticks + 1
        told, requested = told + len(result.asset_events), requested + len(result.run_requests or ())
        assert ticks < UNTIL_QUIET
    assert told == count, f"{told} of {count} arrivals were told"
    bed.settle()
    return {"tick": seconds, "all": total, "ticks": ticks, "requests": requested}


if __name__ == "__main__":
    main(*sys.argv[1:])
