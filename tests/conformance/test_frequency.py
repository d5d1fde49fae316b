"""Frequency and date syntax against Falcon's tests and code."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from feed_assets.timing.dates import parse_datetime, render_datetime
from feed_assets.timing.errors import DateTimeError, FrequencyError
from feed_assets.timing.sequence import Frequency, InstanceSequence, parse_frequency
from feed_assets.timing.text import TextContext
from tests.instances.harness import process
from tests.timing.functions import evaluate_function

Case = dict[str, Any]
TABLE = "frequency.json"
CONTEXT = TextContext(nominal_time=datetime(2015, 1, 1, tzinfo=UTC), timezone=ZoneInfo("UTC"))
MILLISECOND = timedelta(milliseconds=1)


def run_parse(case: Case) -> None:
    if case["parsed"] is None:
        with pytest.raises(FrequencyError):
            parse_frequency(case["text"])
        return
    frequency = parse_frequency(case["text"])
    assert (frequency.unit, frequency.count) == (case["parsed"]["unit"], case["parsed"]["count"])
    assert frequency.render() == case["text"]


def run_equality(case: Case) -> None:
    assert (parse_frequency(case["a"]) == parse_frequency(case["b"])) is case["expected"]


def run_function_duration(case: Case) -> None:
    assert evaluate_function(case["text"], CONTEXT) == str(case["expected"])


def run_frequency_duration(case: Case) -> None:
    assert parse_frequency(case["text"]).as_duration() // MILLISECOND == case["expected"]


def run_comparison(case: Case) -> None:
    a, b = (parse_frequency(case[name]).as_duration() for name in "ab")
    assert (a > b) - (a < b) == case["expected"]


def run_date(case: Case) -> None:
    if case.get("valid", case.get("valid_in_schema")):
        assert render_datetime(parse_datetime(case["text"])) == case["text"]
        return
    with pytest.raises(DateTimeError):
        parse_datetime(case["text"])


def parse_oozie(text: str) -> Frequency:
    """A frequency of Oozie as Falcon's: `coord:days(3)` is days(3)."""
    return parse_frequency(text.removeprefix("coord:"))


def run_oozie_frequency(case: Case) -> None:
    frequency, expected = parse_oozie(case["expr"]), case["expected"]
    assert (frequency.count, frequency.unit.upper()) == (expected["value"], f"{expected['unit']}S")


def run_timeout(case: Case) -> None:
    record = process("p", timeout=parse_oozie(case["expr"]).render())
    assert record.timeout is not None
    assert record.timeout.as_duration() // timedelta(minutes=1) == case["expected"]


def run_max_frequency(case: Case) -> None:
    try:
        process("p", parse_oozie(case["minutes_or_expr"]).render())
    except FrequencyError:
        assert not case["accepted"]
    else:
        assert case["accepted"]


def run_native_frequency(case: Case) -> None:
    """The length of the first period of a sequence: months are those of the calendar."""
    start = datetime(2015, 1, 1, tzinfo=UTC) if case["reference"] == "any" else parse_datetime(case["reference"])
    sequence = InstanceSequence(start=start, frequency=parse_frequency(case["frequency"]), timezone=ZoneInfo("UTC"))
    assert (sequence.at(1) - sequence.at(0)) // MILLISECOND == case["expected"]


RUNNERS = {
    "parse": run_parse,
    "equality": run_equality,
    "duration_ms": run_function_duration,
    "calendar_duration_ms": run_frequency_duration,
    "compare_duration": run_comparison,
    "date": run_date,
    "schema_date": run_date,
    "oozie_frequency_el": run_oozie_frequency,
    "timeout_minutes": run_timeout,
    "max_frequency_check": run_max_frequency,
    "native_frequency_ms": run_native_frequency,
}


def test_each_case_of_the_table_holds_or_is_listed_with_a_reason(case: Case, judge: Callable[[Case], None]) -> None:
    judge(case)


def test_the_list_of_differences_names_only_what_is_in_the_table(unknown_differences: set[str]) -> None:
    assert unknown_differences == set()
