"""What a clean-up decides, and what it does to messages."""

from datetime import timedelta
from pathlib import Path

import pytest

from feed_assets.alerts.delivery.store import ReceiverState, ReceiverStates
from feed_assets.clock import TimeBudget
from feed_assets.errors import SettingsError
from feed_assets.log.instances.attempts import RunAttempt
from feed_assets.log.messages.outbox import Outbox
from feed_assets.plan.records import Plan
from feed_assets.retention.cleanup import (
    KeepingTimes,
    apply_message_cleanup,
    begin_cleanup,
    decide_removable,
    find_unit,
)
from feed_assets.setting_sections import CleanupSettings
from feed_assets.settings import load_settings
from feed_assets.sql.database import Database
from feed_assets.timing.frequency import Unit
from tests.instances.harness import START, LifecycleHarness, feed, process
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


def test_old_messages_go_when_they_were_told(database: Database) -> None:
    with database.begin() as connection:
        Outbox(connection).append_many([message(n) for n in range(4)])
        ReceiverStates(connection).add([ReceiverState(name="ops", cursor=2, seen_at=hour(5))])
    budget, late = TimeBudget.ample(), hour(0) + 13 * DAY
    would = apply_message_cleanup(database, TIMES, late, budget, dry_run=True)
    done = apply_message_cleanup(database, TIMES, late, budget)
    assert (would.count, done.count, done.limit, done.is_complete) == (2, 2, "days(12)", True)
    assert apply_message_cleanup(database, TIMES, late, budget).count == 0
    with database.read() as connection:
        assert [each.seq for each in Outbox(connection).read(0, 9)] == [3, 4]


@pytest.mark.parametrize("text", ["3 days", "days(0)", "days(-1)", "seconds(5)", ""])
def test_a_time_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(SettingsError, match=r"cleanup\.days': .* is not a time such as hours\(24\)"):
        load_settings({"cleanup": {"days": text}}, {}, tmp_path)
