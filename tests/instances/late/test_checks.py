"""When late data are looked for."""

from datetime import UTC, datetime, timedelta

import pytest

from feed_assets.entities.process import RetryPolicy
from feed_assets.instances.late.lateness import cut_off_at, next_check
from feed_assets.timing.dates import NEVER

NOMINAL = datetime(2024, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def checks(policy: str, cut_off: timedelta, after: timedelta = timedelta(0)) -> list[float]:
    """Hours after the nominal time of all checks of an instance that succeeded `after` its nominal time."""
    made: list[float] = []
    moment = NOMINAL + after
    end = NOMINAL + cut_off
    while (check := next_check(RetryPolicy(policy), HOUR, NOMINAL, end, moment)) is not None:
        made.append((check - NOMINAL) / HOUR)
        if check >= end:
            break
        moment = check
    return made


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("periodic", [1, 2, 3, 3.5]), ("exp-backoff", [1, 3, 3.5]), ("final", [3.5])],
)
def test_rows_69_70_71_checks_come_by_policy_and_the_last_at_the_cut_off(policy: str, expected: list[float]) -> None:
    assert checks(policy, 3.5 * HOUR) == expected


def test_checks_are_counted_from_the_nominal_time_however_late_the_instance_succeeded() -> None:
    assert checks("periodic", 5 * HOUR, 2.5 * HOUR) == [3, 4, 5]
    assert checks("exp-backoff", 20 * HOUR, 3 * HOUR) == [7, 15, 20]


def test_row_72_after_the_cut_off_there_is_no_check() -> None:
    assert checks("periodic", 2 * HOUR, 3 * HOUR) == []
    assert checks("final", 2 * HOUR, 3 * HOUR) == []


def test_a_huge_cut_off_means_for_ever() -> None:
    assert cut_off_at(NOMINAL, timedelta(days=10_000_000)) == NEVER
