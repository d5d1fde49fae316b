"""What a clean-up decides, and what it does to messages."""

from collections.abc import Collection, Mapping
from datetime import timedelta
from pathlib import Path

import pytest

from feed_assets.alerts.delivery.store import ReceiverState, ReceiverStates
from feed_assets.clock import TimeBudget
from feed_assets.context.tick import open_tick
from feed_assets.errors import SettingsError
from feed_assets.log.instances.attempts import RunAttempt
from feed_assets.log.messages.outbox import Outbox
from feed_assets.plan.edges import Key
from feed_assets.plan.records import Plan
from feed_assets.retention import cleanup
from feed_assets.retention.cleanup import (
    CapturedLogs,
    KeepingTimes,
    Leftover,
    RetentionRuns,
    apply_cleanup,
    apply_state_cleanup,
    begin_cleanup,
    decide_removable,
    find_unit,
)
from feed_assets.setting_sections import CleanupSettings
from feed_assets.settings import load_settings
from feed_assets.sql.database import Database
from feed_assets.timing.sequence import Unit
from tests.context.contexts import context_of, counting_harness
from tests.instances.harness import START, LifecycleHarness, at, feed, hours, process
from tests.log.samples import hour, message

TIMES = KeepingTimes.of(CleanupSettings())
DAY = timedelta(days=1)


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    frequencies = {"often": "minutes(30)", "hourly": "hours(4)", "daily": "days(1)", "monthly": "months(1)"}
    outputs = [feed(f"{name}-out", frequency) for name, frequency in frequencies.items()]
    processes = [
        process(name, frequency, outputs={f"{name}-out": "now(0,0)"}) for name, frequency in frequencies.items()
    ]
    return LifecycleHarness.of(tmp_path, *outputs, *processes).plan


def test_the_frequency_of_a_process_decides_how_long_its_logs_are_kept(plan: Plan) -> None:
    units = {name: find_unit(plan, (name, "primary")) for name in ("often", "hourly", "daily", "monthly", "gone")}
    assert units == {
        "often": Unit.MINUTES,
        "hourly": Unit.HOURS,
        "daily": Unit.DAYS,
        "monthly": Unit.MONTHS,
        "gone": Unit.MONTHS,
    }
    kept = {unit: START - TIMES.cutoff(unit, START) for unit in units.values()}
    assert kept == {Unit.MINUTES: DAY, Unit.HOURS: 3 * DAY, Unit.DAYS: 12 * DAY, Unit.MONTHS: 93 * DAY}


def test_a_run_goes_when_all_of_its_attempts_are_old_enough(plan: Plan) -> None:
    old, young, now = START, START + 9 * DAY, START + 10 * DAY
    runs = {
        "hourly": [RunAttempt("hourly", "primary", old)],
        "with a daily one": [RunAttempt("hourly", "primary", old), RunAttempt("daily", "primary", old)],
        "with a young one": [RunAttempt("hourly", "primary", old), RunAttempt("hourly", "primary", young)],
        "at work": [RunAttempt("often", "primary", old), RunAttempt("often", "primary", None)],
        "elsewhere": [RunAttempt("hourly", "backup", old)],
    }
    assert decide_removable(plan, runs, TIMES, now) == {"hourly": [("hourly", "primary")]}
    later = decide_removable(plan, runs, TIMES, START + 100 * DAY)
    assert sorted(later) == ["elsewhere", "hourly", "with a daily one", "with a young one"]


def test_a_clean_up_begins_once_a_day_whatever_the_clock_does(database: Database) -> None:
    begun = [START, START + DAY / 2, START + DAY, START, START - DAY]
    with database.begin() as connection:
        assert [begin_cleanup(connection, "here", each) for each in begun] == [True, False, True, True, True]
        assert begin_cleanup(connection, "there", START)


def test_a_dry_run_counts_for_a_moment_and_says_that_there_is_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Kept(CapturedLogs):
        def find(self, runs: Mapping[str, Collection[Key]]) -> list[str]:
            return list(runs)

        def find_retention(self, *_: object, **__: object) -> RetentionRuns:
            return RetentionRuns(run_ids=(), until=None, is_last=True)

        def remove(self, run_id: str) -> None: ...

    lifecycle = counting_harness(tmp_path)
    lifecycle.land("clicks", *hours(2))
    lifecycle.flag("clicks", *hours(2))
    lifecycle.launch(lifecycle.tick(at("01T04:30")), at("01T04:30"))
    tick = open_tick(context_of(lifecycle, at("01T04:30") + 100 * DAY), "primary")

    def amounts(*, dry_run: bool) -> list[str]:
        return [each.amount for each in apply_cleanup(tick, TIMES, Kept(), dry_run=dry_run)]

    counted = amounts(dry_run=True)
    assert (counted[0], int(counted[1]) > 0, counted[2:]) == ("0", True, ["0", "0", "0"])
    monkeypatch.setattr(cleanup, "SECONDS_A_LOOK", 0.0)
    assert amounts(dry_run=True) == ["0 or more"] * 5
    assert amounts(dry_run=False) == counted


def test_old_messages_go_when_they_were_told(database: Database) -> None:
    with database.begin() as connection:
        Outbox(connection).append_many([message(n) for n in range(4)])
        ReceiverStates(connection).add([ReceiverState(name="ops", cursor=2, seen_at=hour(5))])
    budget, late = TimeBudget.ample(), hour(0) + 13 * DAY
    would, done, again = (
        apply_state_cleanup(database, {}, TIMES, late, budget, dry_run=dry_run)[0] for dry_run in (True, False, False)
    )
    assert (would.count, done.count, done.limit, done.is_complete) == (2, 2, "days(12)", True)
    assert (again.leftover, again.count) == (Leftover.MESSAGES, 0)
    with database.read() as connection:
        assert [each.seq for each in Outbox(connection).read(0, 9)] == [3, 4]


@pytest.mark.parametrize("text", ["3 days", "days(0)", "days(-1)", "seconds(5)", ""])
def test_a_time_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(SettingsError, match=r"cleanup\.days': .* is not a time such as hours\(24\)"):
        load_settings({"cleanup": {"days": text}}, {}, tmp_path)
