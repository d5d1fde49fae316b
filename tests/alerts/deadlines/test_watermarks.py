"""As of when deadlines are judged: not after the time up to which arrivals were looked for."""

from datetime import timedelta
from pathlib import Path

from feed_assets.alerts.deadlines.checks import LONGEST_WAIT, find_present, note_looked
from feed_assets.context.heartbeat import NOTED_EVERY
from feed_assets.sql.database import Database
from tests.databases import open_migrated
from tests.instances.harness import START, at

REAL = at("20")


def opened(tmp_path: Path) -> Database:
    return open_migrated(f"sqlite:///{tmp_path / 'state.db'}")


def test_deadlines_are_judged_up_to_the_time_until_which_arrivals_were_looked_for(tmp_path: Path) -> None:
    database = opened(tmp_path)
    note_looked(database, "primary", at("01T05"))
    assert find_present(database, "primary", at("01T05:01"), REAL) == at("01T05")
    assert find_present(database, "primary", at("01T04:30"), REAL) == at("01T04:30")  # the clock went back
    note_looked(database, "primary", at("01T05") + NOTED_EVERY / 2)
    assert find_present(database, "primary", at("01T05:01"), REAL) == at("01T05")  # a row now and then
    note_looked(database, "primary", at("01T05:02"))
    assert find_present(database, "primary", at("01T05:02"), REAL) == at("01T05:02")


def test_after_a_stop_deadlines_wait_for_arrivals_but_not_for_ever(tmp_path: Path) -> None:
    database = opened(tmp_path)
    note_looked(database, "primary", at("01T05"))
    for minutes in (0, 5, 10):
        present = find_present(database, "primary", at("03T00"), REAL + timedelta(minutes=minutes))
        assert present == at("01T05")
    assert find_present(database, "primary", at("03T00"), REAL + LONGEST_WAIT + timedelta(seconds=1)) == at("03T00")


def test_arrivals_that_are_looked_for_however_far_behind_begin_the_wait_anew(tmp_path: Path) -> None:
    database = opened(tmp_path)
    for day in (1, 2, 3):
        note_looked(database, "primary", at(f"0{day}"))
        real_now = REAL + day * LONGEST_WAIT
        assert find_present(database, "primary", at(f"0{day}T12"), real_now) == at(f"0{day}")


def test_where_nobody_has_ever_looked_for_arrivals_nothing_is_judged_at_first(tmp_path: Path) -> None:
    database = opened(tmp_path)
    assert find_present(database, "primary", START, REAL).year == 1
    assert find_present(database, "primary", START, REAL + 2 * LONGEST_WAIT) == START
