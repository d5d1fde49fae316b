"""Expression functions against Falcon's and Oozie's tests and code."""

from collections.abc import Callable
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from feed_assets.timing.dates import parse_datetime, parse_timezone, render_datetime
from feed_assets.timing.errors import ExpressionError
from feed_assets.timing.expressions import parse_time_expression
from feed_assets.timing.sequence import InstanceSequence, parse_frequency
from feed_assets.timing.text import TextContext
from tests.timing.functions import evaluate_function
from tests.timing.outputs import output_index

Case = dict[str, Any]
TABLE = "el.json"
UTC_ZONE = ZoneInfo("UTC")
ANY_TIME = "2015-01-01T00:00Z"


def evaluate(text: str, instance_time: str, zone: ZoneInfo) -> str:
    return render_datetime(parse_time_expression(text).evaluate(parse_datetime(instance_time), zone))


def run_expression(case: Case) -> None:
    zone = parse_timezone(case["timezone"])
    assert evaluate(case["expr"], case["instance_time"], zone) == case["expected"]
    if "expected_validation" in case:
        assert evaluate(case["expr"], case["instance_time"], UTC_ZONE) == case["expected_validation"]


def run_function(case: Case) -> None:
    context = TextContext(
        nominal_time=parse_datetime(case.get("instance_time", ANY_TIME)), timezone=parse_timezone(case["timezone"])
    )
    assert evaluate_function(case["expr"], context) == case["expected"]


def run_feed_instance(case: Case) -> None:
    feed = InstanceSequence(
        start=parse_datetime(case["feed"]["start"]),
        frequency=parse_frequency(case["feed"]["frequency"]),
        timezone=parse_timezone(case["feed"]["timezone"]),
    )
    n = output_index(parse_time_expression(case["expr"]), parse_datetime(case["instance_time"]), feed)
    assert ("" if n is None else render_datetime(feed.at(n))) == case["expected"]


def run_error(case: Case) -> None:
    context = TextContext(nominal_time=parse_datetime(case["instance_time"]), timezone=parse_timezone(case["timezone"]))
    with pytest.raises(ExpressionError):
        parse_time_expression(case["expr"])
    with pytest.raises(ExpressionError):
        evaluate_function(case["expr"], context)


def run_width_of_a_window(case: Case) -> None:
    zone = parse_timezone(case["timezone"])
    for end in ("start", "end"):
        assert evaluate(case["window"][end], case["instance_time"], zone) == case["expected"][end]


RUNNERS = {
    "el": run_expression,
    "el_function": run_function,
    "el_feed_instance": run_feed_instance,
    "el_error": run_error,
    "doc_contradiction": run_width_of_a_window,
}


def test_each_case_of_the_table_holds_or_is_listed_with_a_reason(case: Case, judge: Callable[[Case], None]) -> None:
    judge(case)


def test_the_list_of_differences_names_only_what_is_in_the_table(unknown_differences: set[str]) -> None:
    assert unknown_differences == set()
