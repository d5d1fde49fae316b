"""When retention of a feed comes next."""

from datetime import UTC, datetime, timedelta
from typing import Any

from feed_assets.plan.records import RetentionRecord
from feed_assets.retention.rules.schedule import decide_next
from feed_assets.timing.dates import NEVER
from feed_assets.timing.sequence import parse_frequency

NOW = datetime(2013, 11, 11, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def policy(**fields: Any) -> RetentionRecord:
    cadence = fields.pop("cadence", "hours(6)")
    return RetentionRecord(limit=None, cadence=parse_frequency(cadence), trash=parse_frequency("days(7)"), **fields)


def test_turns_come_a_cadence_apart() -> None:
    assert decide_next(policy(), NOW, NOW + HOUR) == NOW + 6 * HOUR
    assert decide_next(policy(), NOW + HOUR, NOW) == NOW + 6 * HOUR


def test_one_turn_makes_up_for_all_that_were_missed() -> None:
    assert decide_next(policy(), NOW - 31 * HOUR, NOW) == NOW + 5 * HOUR


def test_where_retention_stops_its_last_turn_is_at_the_end() -> None:
    ending = policy(stops_at=NOW)
    assert decide_next(ending, NOW - 7 * HOUR, NOW - 7 * HOUR) == NOW - HOUR
    assert decide_next(ending, NOW - 5 * HOUR, NOW - HOUR) == NOW
    assert decide_next(ending, NOW, NOW) == NEVER
    assert decide_next(ending, NOW + HOUR, NOW + HOUR) == NEVER


def test_row_55_what_had_ended_before_has_one_turn() -> None:
    ended = policy(stops_at=NOW - 900 * HOUR)
    assert decide_next(ended, NOW, NOW) == NEVER  # behind the turn of a new feed, which comes at once


def test_a_cadence_beyond_the_calendar_never_comes_again_but_for_the_end() -> None:
    assert decide_next(policy(cadence="months(99000)"), NOW, NOW) == NEVER
    assert decide_next(policy(cadence="months(99000)", stops_at=NOW + HOUR), NOW, NOW) == NOW + HOUR
