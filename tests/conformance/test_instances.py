"""Instance sequences and calendar steps against Falcon's and Oozie's tests and code."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from feed_assets.timing.dates import parse_datetime, parse_timezone, render_datetime
from feed_assets.timing.errors import FrequencyError
from feed_assets.timing.expressions import parse_time_expression
from feed_assets.timing.sequence import InstanceSequence, parse_frequency
from tests.conformance.conftest import load_differences, load_table

Case = dict[str, Any]
TABLE = "instances.json"
MINUTE = timedelta(minutes=1)
UNITS = {"MINUTE": "minutes(1)", "HOUR": "hours(1)", "DAY": "days(1)", "MONTH": "months(1)", "YEAR": "months(12)"}
CALL = re.compile(r"\w+\(([^,]+?)(?:,\s*\"(\w+)\")?\)")  # current(-1), offset(7, "HOUR")


def sequence_of(case: Case, start: str = "start") -> InstanceSequence:
    return InstanceSequence(
        start=parse_datetime(case[start]),
        frequency=parse_frequency(case["frequency"]),
        timezone=parse_timezone(case["timezone"]),
        end=parse_datetime(case["end"]) if "end" in case else None,
    )


def dataset_of(case: Case) -> InstanceSequence:
    dataset = case["dataset"]
    if "end_of_duration" in dataset:
        raise LookupError("no entity has a frequency that snaps to the end of a day or month")
    unit, count = dataset["unit"], dataset["frequency"]
    text = f"months({12 * count})" if unit == "YEAR" else f"{unit.lower()}s({count})"
    return InstanceSequence(
        start=parse_datetime(dataset["initial_instance"]),
        frequency=parse_frequency(text),
        timezone=parse_timezone(dataset["timezone"]),
    )


def arguments_of(case: Case) -> tuple[int, str]:
    found = CALL.fullmatch(case["expr"])
    assert found is not None
    if not re.fullmatch(r"-?[0-9]+", found.group(1)):
        raise FrequencyError(text=case["expr"], reason="the offset is not a whole number")
    return int(found.group(1)), found.group(2) or ""


def run_next(case: Case) -> None:
    found = sequence_of(case).ceil(parse_datetime(case["reference"]))
    assert found is not None
    assert render_datetime(found) == case["expected"]


def run_previous(case: Case) -> None:
    sequence = sequence_of(case)
    n = sequence.index_at_or_before(parse_datetime(case["reference"]))
    assert render_datetime(sequence.at(n)) == case["expected"]


def run_number(case: Case) -> None:
    sequence, moment = sequence_of(case), parse_datetime(case["instance"])
    number = -1 if moment < sequence.start else sequence.index_at_or_after(moment) + 1
    assert number == case["expected"]


def run_step(case: Case) -> None:
    assert render_datetime(sequence_of(case, "instance").at(case["count"])) == case["expected"]


def run_between(case: Case) -> None:
    first, last = (parse_datetime(case["range"][end]) for end in ("start", "end"))
    found = [render_datetime(moment) for moment in sequence_of(case).between(first, last + MINUTE)]
    assert found == case["expected"]
    assert len(found) == case["expected_count"]


def run_materialized(case: Case) -> None:
    sequence = sequence_of(case)
    assert sequence.size == case["expected_count"]
    assert [render_datetime(sequence.at(n)) for n in range(case["expected_count"])] == case["expected"]


def run_next_nominal_time(case: Case) -> None:
    sequence, moment = sequence_of(case), parse_datetime(case["nominal_time"])
    assert sequence.index(moment) + 1 == case["action_number"]
    following = sequence.ceil(moment + MINUTE)
    assert (None if following is None else render_datetime(following)) == case["expected"]


def run_current(case: Case) -> None:
    dataset = dataset_of(case)
    offset, _ = arguments_of(case)
    n = dataset.index_at_or_before(parse_datetime(case["nominal_time"])) + offset
    assert ("" if n < 0 else render_datetime(dataset.at(n))) == case["expected"]


def run_offset(case: Case) -> None:
    if case["expected"] == "error":
        with pytest.raises(FrequencyError):
            arguments_of(case)
        return
    dataset = dataset_of(case)
    offset, unit = arguments_of(case)
    current = dataset.at(dataset.index_at_or_before(parse_datetime(case["nominal_time"])))
    steps = InstanceSequence(start=current, frequency=parse_frequency(UNITS[unit]), timezone=dataset.timezone)
    found = dataset.index_at_or_before(steps.at(offset))
    assert ("" if found < 0 else render_datetime(dataset.at(found))) == case["expected"]


def run_hours_in_day(case: Case) -> None:
    dataset = dataset_of(case)
    offset, _ = arguments_of(case)
    moment = dataset.at(dataset.index_at_or_before(parse_datetime(case["nominal_time"])) + offset)
    midnight, next_midnight = (
        parse_time_expression(text).evaluate(moment, dataset.timezone) for text in ("today(0,0)", "tomorrow(0,0)")
    )
    assert str((next_midnight - midnight) // timedelta(hours=1)) == case["expected"]


def run_absolute_range(case: Case) -> None:
    dataset = dataset_of(case)
    first, offset = re.findall(r'"([^"]+)"', case["expr"])
    last = dataset.index_at_or_before(parse_datetime(case["nominal_time"])) + int(offset)
    found = range(dataset.index(parse_datetime(first)), last + 1)
    assert [render_datetime(dataset.at(n)) for n in reversed(found)] == case["expected"]


RUNNERS = {
    "next_instance_on_or_after": run_next,
    "previous_instance_on_or_before": run_previous,
    "instance_sequence": run_number,
    "add_frequency": run_step,
    "instances_between": run_between,
    "materialized_times": run_materialized,
    "next_nominal_time": run_next_nominal_time,
    "dataset_current": run_current,
    "dataset_offset": run_offset,
    "dataset_hoursInDay": run_hours_in_day,
    "dataset_absoluteRange": run_absolute_range,
}


def test_where_falcon_drifts_the_value_computed_from_the_origin_holds() -> None:
    drifting = [case for case in load_table(TABLE) if "expected_from_origin" in case]
    assert drifting
    for case in drifting:
        RUNNERS[case["kind"]]({**case, "expected": case["expected_from_origin"]})
        assert case["id"] in load_differences(TABLE)["cases"]


def test_each_case_of_the_table_holds_or_is_listed_with_a_reason(case: Case, judge: Callable[[Case], None]) -> None:
    judge(case)


def test_the_list_of_differences_names_only_what_is_in_the_table(unknown_differences: set[str]) -> None:
    assert unknown_differences == set()
