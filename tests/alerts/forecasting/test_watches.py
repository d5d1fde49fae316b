"""Who is warned of a probable miss, when, and how often."""

from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from feed_assets.alerts.forecasting.forecasts import (
    INSTANCES_A_STEP,
    WATCHED,
    WatchResult,
    apply_forecasts,
    pause_before,
)
from feed_assets.instances.gates.reconciliation import apply_clock
from feed_assets.log.agenda import Agenda, Entry
from feed_assets.log.definitions.records import ScheduleState
from tests.alerts.deadlines.looks import look, schedule, told
from tests.alerts.forecasting.past import DAY, HOUR, MINUTE, came, days, ran
from tests.instances.harness import PLENTY, START, LifecycleHarness, counted_statements, feed, process

SLA = {"low": "hours(2)", "high": "hours(4)", "warn_at": 0.8}
DONE = {"should_end_in": "hours(3)", "warn_at": 0.8}
TODAY = START + 30 * DAY
SCHEDULED, SUSPENDED = ScheduleState.SCHEDULED, ScheduleState.SUSPENDED


def watch(lifecycle: LifecycleHarness, as_of: datetime, seconds: float = PLENTY) -> WatchResult:
    lifecycle.now = max(lifecycle.now, as_of)
    return apply_forecasts(lifecycle.open_tick(as_of, seconds=seconds))


def watched(lifecycle: LifecycleHarness) -> list[str]:
    """The watched deadlines: `feed clicks 01T00 low`."""
    with lifecycle.database.read() as connection:
        found = Agenda[Entry](connection).due(tuple(WATCHED), "primary", START + 9_000 * DAY, 1_000)
    return sorted(
        f"{each.kind.entity_kind} {each.name} {each.nominal_time:%dT%H} {WATCHED[each.kind]}" for each in found
    )


@pytest.fixture
def lifecycle(tmp_path: Path, state_url: str) -> LifecycleHarness:
    """Clicks come each day within half an hour, or on one day in three after three; they are counted. Plain things have
    an SLA and no `warn_at`. The walks begin in front of today.
    """
    made = LifecycleHarness.of(
        tmp_path,
        feed("clicks", "days(1)", sla=SLA),
        feed("plain", "days(1)", sla={"low": "hours(2)", "high": "hours(4)"}),
        feed("counts", "days(1)"),
        process("count", "days(1)", inputs={"clicks": "now(0,0)"}, outputs={"counts": "now(0,0)"}, sla=DONE),
        state=state_url,
    )
    late = {time: 3 * HOUR if n % 3 == 0 else 30 * MINUTE for n, time in enumerate(days(0, 30))}
    came(made, "clicks", late)
    for time, delay in late.items():
        ran(made, "count", time, delay, delay + 5 * MINUTE, delay + 25 * MINUTE)
    assert watch(made, TODAY - HOUR) == WatchResult()
    return made


def test_a_probable_miss_is_told_once_before_the_deadline(lifecycle: LifecycleHarness) -> None:
    assert watch(lifecycle, TODAY + MINUTE) == WatchResult()
    assert watched(lifecycle) == ["feed clicks 01T00 high", "feed clicks 01T00 low", "process count 01T00 high"]
    assert watch(lifecycle, TODAY + 20 * MINUTE).warned == 0
    result = watch(lifecycle, TODAY + HOUR)
    assert result.warned == 2
    low, count = told(lifecycle)
    assert low.startswith("at risk low feed clicks: 01T00 (it will miss this deadline with a probability of 96%: 9 of ")
    assert count.startswith("at risk high process count: 01T00 (it will miss this deadline with a probability of 9")
    assert watched(lifecycle) == ["feed clicks 01T00 high"]
    for minutes in range(61, 300):
        watch(lifecycle, TODAY + minutes * MINUTE)
    assert told(lifecycle) == [low, count]
    assert watched(lifecycle) == []


def test_a_restart_and_a_clock_that_goes_back_warn_of_nothing_twice(lifecycle: LifecycleHarness) -> None:
    for hours in (0, 1, 0, 1):
        lifecycle.use(lifecycle.plan)
        watch(lifecycle, TODAY + hours * HOUR + MINUTE)
    assert len(told(lifecycle)) == 2


def test_a_clock_that_was_ahead_for_a_tick_keeps_no_deadline_from_being_watched(lifecycle: LifecycleHarness) -> None:
    def look_at(moment: datetime) -> int:
        apply_clock(lifecycle.open_tick(moment))
        return watch(lifecycle, moment).warned

    look_at(TODAY - HOUR)
    look_at(TODAY + 60 * DAY)
    assert sum(look_at(TODAY + minutes * MINUTE) for minutes in (1, 20, 60)) == 2


def test_the_alert_of_a_miss_follows_its_warning(lifecycle: LifecycleHarness) -> None:
    for moment in (TODAY - HOUR, TODAY + MINUTE, TODAY + HOUR, TODAY + 121 * MINUTE):
        watch(lifecycle, moment)
        look(lifecycle, moment)
    assert [line[:26] for line in told(lifecycle) if "feed clicks:" in line] == [
        "at risk low feed clicks: 0",
        "missed low feed clicks: 01",
    ]


def test_what_comes_in_time_is_not_warned_of_and_costs_no_forecast(lifecycle: LifecycleHarness) -> None:
    watch(lifecycle, TODAY + MINUTE)
    came(lifecycle, "clicks", {TODAY: 10 * MINUTE})
    ran(lifecycle, "count", TODAY, 10 * MINUTE, 11 * MINUTE, 12 * MINUTE)
    with counted_statements() as statements:
        assert watch(lifecycle, TODAY + HOUR) == WatchResult(looked=3)
    assert not [text for text in statements if "fa_feed_events" in text], "no history"
    assert (told(lifecycle), watched(lifecycle)) == ([], [])


def test_without_anything_due_a_tick_writes_nothing(lifecycle: LifecycleHarness) -> None:
    watch(lifecycle, TODAY + MINUTE)
    with counted_statements() as statements:
        assert watch(lifecycle, TODAY + 2 * MINUTE) == WatchResult()
    assert not [text for text in statements if text.startswith(("INSERT", "UPDATE", "DELETE"))]
    assert len(statements) <= 9


def test_a_suspended_process_is_not_warned_of(lifecycle: LifecycleHarness) -> None:
    watch(lifecycle, TODAY + MINUTE)
    schedule(lifecycle, "count", SUSPENDED, "30T23")
    watch(lifecycle, TODAY + HOUR)
    assert [line[:22] for line in told(lifecycle)] == ["at risk low feed click"]
    schedule(lifecycle, "count", SCHEDULED, "30T23:30")
    watch(lifecycle, TODAY + HOUR + MINUTE)
    assert [line[:22] for line in told(lifecycle)] == ["at risk low feed click", "at risk high process c"]


def test_an_sla_that_does_not_warn_any_more_is_watched_no_longer(lifecycle: LifecycleHarness) -> None:
    watch(lifecycle, TODAY + MINUTE)
    lifecycle.declare(
        feed("clicks", "days(1)", sla={**SLA, "warn_at": None}),
        feed("counts", "days(1)"),
        process("count", "days(1)", inputs={"clicks": "now(0,0)"}, outputs={"counts": "now(0,0)"}),
    )
    assert watch(lifecycle, TODAY + HOUR) == WatchResult(looked=3)
    assert (told(lifecycle), watched(lifecycle)) == ([], [])


def test_one_that_warns_from_now_on_begins_with_the_deadlines_to_come(tmp_path: Path, state_url: str) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks", "minutes(1)", sla=SLA), state=state_url)
    now = TODAY
    watch(lifecycle, now)
    within = [line for line in watched(lifecycle) if line.endswith("high")]
    assert len(within) == 240, "those of the last four hours, and this one: at its deadline nothing is to come any more"


def test_a_spent_budget_ends_the_tick_and_the_next_one_goes_on(tmp_path: Path, state_url: str) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks", "minutes(1)", sla=SLA), state=state_url)
    assert not watch(lifecycle, TODAY, seconds=0).is_complete
    assert len(watched(lifecycle)) <= 2 * INSTANCES_A_STEP
    assert watch(lifecycle, TODAY).is_complete
    assert len(watched(lifecycle)) == 240 + 120


def test_looks_come_closer_and_closer() -> None:
    due_at, looks = TODAY + 3 * HOUR, [TODAY]
    while looks[-1] < due_at:
        looks.append(looks[-1] + pause_before(due_at, looks[-1]))
    pauses = [after - before for before, after in pairwise(looks)]
    assert pauses == sorted(pauses, reverse=True)
    assert min(pauses) == timedelta(minutes=1)
    assert len(pauses) == 32
