"""Windows, consumers and producers against Falcon's and Oozie's tests and code."""

from collections.abc import Callable
from typing import Any

import pytest

from feed_assets.entities.bundle import Bundle
from feed_assets.entities.cluster import Cluster
from feed_assets.entities.feed import Feed
from feed_assets.entities.process import Process
from feed_assets.issues import Severity, SourceMap
from feed_assets.timing.dates import parse_datetime, parse_timezone, render_datetime
from feed_assets.timing.errors import InstanceError
from feed_assets.timing.expressions import parse_time_expression
from feed_assets.timing.frequency import parse_frequency
from feed_assets.timing.sequence import InstanceSequence
from feed_assets.timing.templates import parse_path_template
from feed_assets.timing.text import TextContext
from feed_assets.timing.windows import Window, parse_window
from feed_assets.validation.rules import validate_bundle
from tests.timing.functions import evaluate_function
from tests.timing.outputs import output_index, producers

Case = dict[str, Any]
TABLE = "el_windows.json"


def sequence_of(entity: dict[str, str]) -> InstanceSequence:
    return InstanceSequence(
        start=parse_datetime(entity["start"]),
        frequency=parse_frequency(entity["frequency"]),
        timezone=parse_timezone(entity["timezone"]),
        end=parse_datetime(entity["end"]) if "end" in entity else None,
    )


def window_of(case: Case) -> Window:
    return parse_window(case["input"]["start"], case["input"]["end"])


def expect(case: Case, answer: Callable[[], object]) -> None:
    if case["expected"] == "error":
        with pytest.raises(InstanceError):
            answer()
    else:
        assert answer() == case["expected"]


def run_inputs(case: Case) -> None:
    feed, process = sequence_of(case["feed"]), sequence_of(case["process"])

    def answer() -> list[str]:
        nominal_time = process.at(process.index(parse_datetime(case["instance_time"])))
        return [render_datetime(moment) for moment in window_of(case).instances(nominal_time, feed)]

    expect(case, answer)


def run_output(case: Case) -> None:
    feed, process = sequence_of(case["feed"]), sequence_of(case["process"])

    def answer() -> str | None:
        nominal_time = process.at(process.index(parse_datetime(case["instance_time"])))
        n = output_index(parse_time_expression(case["output"]["instance"]), nominal_time, feed)
        return None if n is None else render_datetime(feed.at(n))

    expect(case, answer)


def run_consumers(case: Case) -> None:
    feed, process = sequence_of(case["feed"]), sequence_of(case["process"])

    def answer() -> list[str]:
        n = feed.index(parse_datetime(case["feed_instance"]))
        return [render_datetime(process.at(m)) for m in window_of(case).consumers(n, feed, process)]

    expect(case, answer)


def run_producer(case: Case) -> None:
    feed = sequence_of(case["feed"])

    def answer() -> str | None:
        n = feed.index(parse_datetime(case["feed_instance"]))
        if "process" not in case:
            return None
        process = sequence_of(case["process"])
        found = producers(parse_time_expression(case["output"]["instance"]), n, feed, process)
        return render_datetime(process.at(found[0])) if found else None

    expect(case, answer)


def run_runtime_window(case: Case) -> None:
    assert case["order"] == "newest_first"
    found = window_of(case).instances(parse_datetime(case["instance_time"]), sequence_of(case["feed"]))
    assert [render_datetime(moment) for moment in reversed(found)] == case["expected"]


def run_validation(case: Case) -> None:
    written, whole = case["process"], case["feed"]
    feed = {
        "name": "clicks",
        "frequency": whole["frequency"],
        "timezone": whole["timezone"],
        "locations": {"data": "/clicks/${YEAR}-${MONTH}-${DAY}-${HOUR}-${MINUTE}"},
        "clusters": {"primary": {"validity": {"start": whole["start"], "end": whole["end"]}}},
    }
    process = {
        "name": "p",
        "frequency": written["frequency"],
        "timezone": written["timezone"],
        "clusters": {"primary": {"validity": {"start": written["start"], "end": written["end"]}}},
        "inputs": {"clicks": {"feed": "clicks", **case["input"]}},
        "workflow": {"path": "jobs:run"},
    }
    entities = (
        Cluster(name="primary", storage="memory://x"),
        Feed.model_validate(feed),
        Process.model_validate(process),
    )
    issues = validate_bundle(Bundle(entities=entities), SourceMap(), parse_datetime(written["start"]))
    errors = {issue.code for issue in issues if issue.severity is Severity.ERROR}
    assert errors == (set() if case["valid"] else {"window-range"})


def run_output_path(case: Case) -> None:
    feed = sequence_of({**case["feed"], "start": "2000-01-01T00:00Z"})
    n = output_index(parse_time_expression(case["output"]["instance"]), parse_datetime(case["instance_time"]), feed)
    assert n is not None
    assert parse_path_template(case["feed"]["path"]).render(feed.at(n), feed.timezone) == case["expected"]


def run_partition(case: Case) -> None:
    context = TextContext(
        nominal_time=parse_datetime("2009-09-02T10:00Z"),
        timezone=parse_timezone("UTC"),
        inputs={"clicks": tuple(case["resolved"])},
    )
    assert evaluate_function(f"dataIn('clicks', '{case['partition']}')", context).split(",") == case["expected"]


RUNNERS = {
    "process_inputs": run_inputs,
    "process_output": run_output,
    "feed_consumers": run_consumers,
    "feed_producer": run_producer,
    "runtime_window": run_runtime_window,
    "window_validation": run_validation,
    "output_path": run_output_path,
    "data_in_partition": run_partition,
}


def test_each_case_of_the_table_holds_or_is_listed_with_a_reason(case: Case, judge: Callable[[Case], None]) -> None:
    judge(case)


def test_the_list_of_differences_names_only_what_is_in_the_table(unknown_differences: set[str]) -> None:
    assert unknown_differences == set()
