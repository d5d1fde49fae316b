"""(b) One tick over 1,000 hourly feeds with a year of history, each read by one process; against Dagster's `eager()`.
Our tick finds arrivals, opens gates, requests runs and reports to Dagster. The peer's evaluation decides what to run
about arrivals that were reported before.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.probes import run_probe, say
from benchmarks.report import Figure, Part, Scale, faster, slower
from benchmarks.tick_probe import BECOME_READY

YEAR = 8_760
TENTH = YEAR // 10
NEWS = (100, 3_500)
AT_LEAST = 50
IDLE_SECONDS = 0.050
LOOK_SECONDS = 0.250
FLATNESS = 1.5
BYSTANDERS = 2.0
PAST_TICKS = 5
PAST_SECONDS = 5.0
EAGER = "Dagster's evaluate_automation_conditions, eager()"


def measure_ticks(folder: Path, scale: Scale) -> Iterator[Figure]:
    """Measure idle and polling ticks at a year and at a tenth of it, and ticks with news against the peer's
    evaluation.
    """
    pairs, repeats = scale.choose((1_000, 5), (200, 2), (2 * BECOME_READY, 1))
    hours = scale.choose(YEAR, TENTH, TENTH // 10)
    news = tuple(count * pairs // 1_000 for count in scale.choose(NEWS, NEWS, NEWS[-1:]))
    year = _ours(folder, pairs, hours, repeats, news)
    tenth = _ours(folder, pairs, hours // 10, repeats, news)
    yield from _absolute(year, tenth, pairs)
    yield _past(folder)
    yield from _bystanders(year, pairs)
    yield from _against_same_size(pairs, hours // 10, tenth, news)
    yield from _against_year(folder, max(pairs // 10, BECOME_READY), hours, repeats, news[-1] // 10, year)


def _ours(folder: Path, pairs: int, hours: int, repeats: int, news: tuple[int, ...]) -> dict[str, Any]:
    say(f"ticks: {pairs:,} feeds and processes, {hours:,} hours of history ({4 * pairs * hours:,} rows and more)")
    harness = folder / f"state-{pairs}-{hours}"
    result = run_probe("tick_probe", harness, pairs, hours, repeats, *news)
    shutil.rmtree(harness)
    return {"hours": hours, "pairs": pairs, **result}


def _theirs(pairs: int, hours: int, new: int) -> dict[str, Any]:
    say(f"ticks: the peer with {pairs:,} feeds, {hours:,} hours of history, {new:,} new; takes minutes")
    return run_probe("tick_peer", pairs, hours, new)


def _of(ours: dict[str, Any], kind: str, value: str = "tick") -> float:
    numbers: list[float] = [each[value] if isinstance(each, dict) else each for each in ours[kind]]
    return median(numbers)


def _absolute(year: dict[str, Any], tenth: dict[str, Any], pairs: int) -> Iterator[Figure]:
    peer = f"the same with a tenth of the history ({tenth['hours']:,} hours)"
    for kind, name, limit in (
        ("idle", "idle tick, nothing to look at", IDLE_SECONDS),
        ("look", f"tick that looks at {pairs:,} missing instances in local storage", LOOK_SECONDS),
    ):
        ours, small = _of(year, kind), _of(tenth, kind)
        yield Figure(
            part=Part.TICKS,
            name=f"{name}; {year['hours']:,} hours of history",
            ours=ours,
            unit="s",
            peer=peer,
            theirs=small,
            ratio=ours / small,
            target=f"at most {limit * 1000:g} ms",
            is_met=ours <= limit,
        )
    yield Figure(
        part=Part.TICKS,
        name="growth of the idle and looking tick with ten times the history",
        ours=_of(year, "look"),
        unit="s",
        peer=peer,
        theirs=_of(tenth, "look"),
        ratio=max(_of(year, kind) / _of(tenth, kind) for kind in ("idle", "look")),
        target=f"at most {FLATNESS:g}x",
        is_met=all(_of(year, kind) / _of(tenth, kind) <= FLATNESS for kind in ("idle", "look")),
    )


def _past(folder: Path) -> Figure:
    """Return the figure that shows that a long past costs a tick little, and keeps nothing of today from coming."""
    say("ticks: a feed every five minutes since 2015")
    found = run_probe("past_probe", folder / "past", PAST_TICKS)
    return Figure(
        part=Part.TICKS,
        name=f"slowest of the first {PAST_TICKS} ticks over a feed every five minutes since 2015 and its reader",
        ours=max(found["seconds"]),
        unit="s",
        target=f"at most {PAST_SECONDS:g} s, and what is due now is there after the first",
        is_met=max(found["seconds"]) <= PAST_SECONDS and not found["lacking"],
    )


def _bystanders(year: dict[str, Any], pairs: int) -> Iterator[Figure]:
    """Yield the figures that show that a tick costs what has changed, not what waits."""
    yield slower(
        Part.TICKS,
        f"tick in which {BECOME_READY} instances become ready while {pairs:,} wait; {year['hours']:,} hours of history",
        _of(year, f"ready/{pairs}"),
        f"the same while {BECOME_READY} wait",
        _of(year, f"ready/{BECOME_READY}"),
        at_most=BYSTANDERS,
        note="told of by notices; that instances that are missing are looked for costs besides",
    )


def _against_same_size(pairs: int, hours: int, ours: dict[str, Any], news: tuple[int, ...]) -> Iterator[Figure]:
    for new in news:
        theirs = _theirs(pairs, hours, new)
        if new == news[0]:
            yield faster(
                Part.TICKS,
                f"idle tick; {pairs:,} feeds, {hours:,} hours of history",
                _of(ours, "idle"),
                EAGER,
                theirs["idle"],
            )
        yield faster(
            Part.TICKS,
            f"tick with {new:,} new instances; {pairs:,} feeds, {hours:,} hours of history",
            _of(ours, f"new/{new}"),
            EAGER,
            theirs["tick"],
            note="a tenth of the year, because filling the peer's event log takes long",
        )
        yield faster(
            Part.TICKS,
            f"all {_of(ours, f'new/{new}', 'ticks'):.0f} ticks until {new:,} new instances are told and requested",
            _of(ours, f"new/{new}", "all"),
            EAGER + " (one evaluation)",
            theirs["tick"],
        )


def _against_year(
    folder: Path, pairs: int, hours: int, repeats: int, new: int, full: dict[str, Any]
) -> Iterator[Figure]:
    small = _ours(folder, pairs, hours, repeats, (new,))
    theirs = _theirs(pairs, hours, new)
    yield faster(
        Part.TICKS,
        f"tick with {new:,} new instances; {pairs:,} feeds, {hours:,} hours of history",
        _of(small, f"new/{new}"),
        EAGER,
        theirs["tick"],
    )
    yield faster(
        Part.TICKS,
        f"tick with {10 * new:,} new instances; {10 * pairs:,} feeds, {hours:,} hours of history",
        _of(full, f"new/{10 * new}"),
        EAGER + ", ten times what it takes for a tenth of the assets",
        10 * theirs["tick"],
        at_least=AT_LEAST,
        note="the peer's time grows in proportion to its assets; at full size it would take an hour with its filling",
    )
