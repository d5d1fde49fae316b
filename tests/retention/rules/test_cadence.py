"""When retention of a feed comes next."""

from datetime import UTC, datetime, timedelta
from typing import Any

from feed_assets.plan.records import RetentionRecord
from feed_assets.retention.rules.schedule import decide_next_retention
from feed_assets.timing.sequence import parse_frequency

NOW = datetime(2013, 11, 11, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def policy(**fields: Any) -> RetentionRecord:
    cadence = fields.pop("cadence", "hours(6)")
    return RetentionRecord(limit=None, cadence=parse_frequency(cadence), trash=parse_frequency("days(7)"), **fields)


def test_the_first_turn_comes_at_once_and_the_others_a_cadence_apart() -> None:
    assert decide_next_retention(policy(), None, NOW) == NOW
    assert decide_next_retention(policy(), NOW, NOW + HOUR) == NOW + 6 * HOUR


def test_a_turn_that_was_missed_is_due() -> None:
    assert decide_next_retention(policy(), NOW - 30 * HOUR, NOW) == NOW - 24 * HOUR


def test_where_retention_stops_its_last_turn_is_at_the_end() -> None:
    ending = policy(stops_at=NOW)
    assert decide_next_retention(ending, NOW - 7 * HOUR, NOW - HOUR) == NOW - HOUR
    assert decide_next_retention(ending, NOW - 5 * HOUR, NOW - HOUR) == NOW
    assert decide_next_retention(ending, NOW, NOW) is None
    assert decide_next_retention(ending, NOW + HOUR, NOW + HOUR) is None


def test_row_55_what_had_ended_before_has_one_turn() -> None:
    ended = policy(stops_at=NOW - 900 * HOUR)
    assert decide_next_retention(ended, None, NOW) == NOW
    assert decide_next_retention(ended, NOW, NOW) is None


def test_a_cadence_beyond_the_calendar_never_comes_again_but_for_the_end() -> None:
    assert decide_next_retention(policy(cadence="months(99000)"), NOW, NOW) is None
    assert decide_next_retention(policy(cadence="months(99000)", stops_at=NOW + HOUR), NOW, NOW) == NOW + HOUR
