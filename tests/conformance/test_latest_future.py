"""The functions `latest` and `future` against Oozie's tests and code."""

from collections.abc import Callable
from typing import Any

import pytest

from feed_assets.timing.dates import parse_datetime, parse_timezone, render_datetime
from feed_assets.timing.errors import WindowError
from feed_assets.timing.sequence import InstanceSequence, parse_frequency
from feed_assets.timing.windows import parse_window

Case = dict[str, Any]
TABLE = "latest_future.json"
ANY_TIME = "2024-01-01T00:00Z"


class Record:
    """An availability record over a set of times; those that are no instances are left out."""

    def __init__(self, feed: InstanceSequence, existing: list[str]) -> None:
        moments = map(parse_datetime, existing)
        self.available = sorted(feed.index(moment) for moment in moments if feed.contains(moment))

    def latest_available(self, not_after_index: int, count: int) -> list[int]:
        return [n for n in reversed(self.available) if n <= not_after_index][:count]

    def available_between(self, first: int, last: int) -> list[int]:
        return [n for n in self.available if first <= n <= last]


def run(case: Case) -> None:
    limit = f",{case['limit']}" if "limit" in case else ""
    texts = [f"{case['kind']}({case[end]}{limit})" for end in ("start", "end")]
    if case["expected"] == "error":
        with pytest.raises(WindowError):
            parse_window(*texts)
        return
    dataset = case["dataset"]
    feed = InstanceSequence(
        start=parse_datetime(dataset["initial_instance"]),
        frequency=parse_frequency(dataset["frequency"]),
        timezone=parse_timezone(dataset["timezone"]),
    )
    as_of = parse_datetime(case.get("actual_time", ANY_TIME))
    nominal_time = parse_datetime(case.get("nominal_time", ANY_TIME))
    found = parse_window(*texts).resolve_data_driven(nominal_time, feed, Record(feed, case["existing"]), as_of)
    if case["expected"] is None:
        assert found is None
        return
    assert found is not None
    ordered = found if case["order"] == "oldest first" else found[::-1]
    assert [render_datetime(feed.at(n)) for n in ordered] == case["expected"]


RUNNERS = {"latest": run, "future": run}


def test_each_case_of_the_table_holds_or_is_listed_with_a_reason(case: Case, judge: Callable[[Case], None]) -> None:
    judge(case)


def test_the_list_of_differences_names_only_what_is_in_the_table(unknown_differences: set[str]) -> None:
    assert unknown_differences == set()
