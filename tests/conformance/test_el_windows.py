"""Windows, consumers and producers against Falcon's and Oozie's tests and code."""

import re
import tempfile
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
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
from feed_assets.timing.sequence import InstanceSequence, parse_frequency
from feed_assets.timing.templates import parse_path_template
from feed_assets.timing.text import TextContext
from feed_assets.timing.windows import Window, parse_window
from feed_assets.validation.rules import validate_bundle
from tests.instances.harness import START, LifecycleHarness, feed, process
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
        return [render_datetime(feed.at(n)) for n in window_of(case).indices(nominal_time, feed)]

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
    feed = sequence_of(case["feed"])
    found = window_of(case).indices(parse_datetime(case["instance_time"]), feed)
    assert [render_datetime(feed.at(n)) for n in reversed(found)] == case["expected"]


def run_validation(case: Case) -> None:
    assert errors_of(case) == (set() if case["valid"] else {"window-range"})


def errors_of(case: Case) -> set[str]:
    """The codes of the errors of a process that reads a feed in a window."""
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
    issues = validate_bundle(Bundle(entities=entities), SourceMap())
    return {issue.code for issue in issues if issue.severity is Severity.ERROR}


def run_output_path(case: Case) -> None:
    feed = sequence_of({**case["feed"], "start": "2000-01-01T00:00Z"})
    n = output_index(parse_time_expression(case["output"]["instance"]), parse_datetime(case["instance_time"]), feed)
    assert n is not None
    assert parse_path_template(case["feed"]["path"]).in_zone(feed.timezone).render(feed.at(n)) == case["expected"]


def run_partition(case: Case) -> None:
    context = TextContext(
        nominal_time=parse_datetime("2009-09-02T10:00Z"),
        timezone=parse_timezone("UTC"),
        inputs={"clicks": tuple(case["resolved"])},
    )
    assert evaluate_function(f"dataIn('clicks', '{case['partition']}')", context).split(",") == case["expected"]


def own_expression(oozie: str, frequency: str, nominal_time: datetime) -> str:
    """What a user writes for an instance of Oozie's language, over a feed of that frequency."""
    function, *arguments = re.findall(r"[\w:-]+", oozie)
    if function not in _OWN:
        return oozie
    return _OWN[function](int(arguments[0]), parse_frequency(frequency).as_duration(), nominal_time)


_OWN: Mapping[str, Callable[[int, timedelta, datetime], str]] = {
    "current": lambda n, period, _: f"now(0,{n * (period // timedelta(minutes=1))})",
    "offset": lambda n, *_: f"now({n},0)",
    "endOfDays": lambda n, *_: f"today({24 * (n + 1)},0)",
    "endOfWeeks": lambda n, *_: f"currentWeek('SUN',{24 * 7 * (n + 1)},0)",
    "endOfMonths": lambda n, _, nominal_time: f"currentYear({nominal_time.month + n},0,0,0)",
}


def oozie_case(case: Case) -> Case:
    """A window in Oozie's language over a data set as one of a process that reads a feed."""
    dataset = case.get("dataset", {"initial_instance": "2000-01-01T00:00Z", "frequency": "hours(1)", "timezone": "UTC"})
    nominal_time = case.get("nominal_time", "2009-08-20T01:00Z")
    moment = parse_datetime(nominal_time)
    window = {end: own_expression(case[end], dataset["frequency"], moment) for end in ("start", "end")}
    feed = {**dataset, "start": dataset["initial_instance"], "end": "2099-01-01T00:00Z"}
    process = {"start": nominal_time, "end": "2099-01-01T00:00Z", "frequency": "days(1)", "timezone": "UTC"}
    return {"input": window, "feed": feed, "process": process, "instance_time": nominal_time}


def run_range_rule(case: Case) -> None:
    assert (not errors_of(oozie_case(case))) == case["valid"]


def run_input_range(case: Case) -> None:
    own = oozie_case(case)
    if isinstance(case["expected"], str):
        assert case["expected"].startswith("error")
        run_validation({**own, "valid": False})
    else:
        run_validation({**own, "valid": True})
        run_runtime_window({**own, "order": "newest_first", "expected": case["expected"]})


def run_optional_input(case: Case) -> None:
    """The paths that a job is told of an optional input, of which only some instances are there."""
    written, window, time = case["feed"], case["input"], parse_datetime(case["instance_time"])
    host = "hdfs://localhost:8020"
    clicks = Feed.model_validate(
        {
            "name": "clicks",
            "frequency": written["frequency"],
            "availability_flag": window["done_flag"] or None,
            "partitions": ["browser", "country"][: window["partition"].count("/") + 1],
            "locations": {"data": written["path"].removeprefix(host)},
            "clusters": {"primary": {"validity": {"start": time - timedelta(days=1)}}},
        }
    )
    reader = Process.model_validate(
        {
            "name": "p",
            "frequency": written["frequency"],
            "clusters": {"primary": {"validity": {"start": time}}},
            "inputs": {
                "clicks": {
                    "feed": "clicks",
                    "start": window["start"],
                    "end": window["end"],
                    "partition": window["partition"],
                    "optional": True,
                }
            },
            "workflow": {"path": "jobs:run"},
        }
    )
    with tempfile.TemporaryDirectory() as root:
        lifecycle = LifecycleHarness.of(Path(root), clicks, reader)
        for url in case["existing_paths"]:
            path = Path(root, "primary" + url.removeprefix(host))
            file = path if path.name.startswith("_") else path / "part-0.csv"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("data")
        lifecycle.arrive(time)
        told = lifecycle.properties_of("p", time, time)["clicks"]
        lifecycle.database.close()
    assert [url.replace(f"file://{root}/primary", host) for url in told.split(",")] == case["expected"]


def run_optional_state(case: Case) -> None:
    """What becomes of an instance some of whose inputs are optional."""
    count, optional = case["inputs"], case["optional"]
    names = [f"feed{n}" for n in range(count)]
    reader = process("p", inputs=dict.fromkeys(names, "now(0,0)"), optional=names[:optional])
    with tempfile.TemporaryDirectory() as root:
        lifecycle = LifecycleHarness.of(Path(root), *map(feed, names), reader)
        if case["data"] == "compulsory only":
            for name in names[optional:]:
                lifecycle.land(name, START)
        now = START + timedelta(minutes=1)
        lifecycle.launch(lifecycle.tick(now), now)
        (state,) = lifecycle.statuses("p").values()
        lifecycle.database.close()
    assert state == case["expected_instance_state"]


RUNNERS = {
    "process_inputs": run_inputs,
    "process_output": run_output,
    "feed_consumers": run_consumers,
    "feed_producer": run_producer,
    "runtime_window": run_runtime_window,
    "window_validation": run_validation,
    "output_path": run_output_path,
    "data_in_partition": run_partition,
    "range_rule": run_range_rule,
    "input_range": run_input_range,
    "optional_input": run_optional_input,
    "optional_input_state": run_optional_state,
}


def test_each_case_of_the_table_holds_or_is_listed_with_a_reason(case: Case, judge: Callable[[Case], None]) -> None:
    judge(case)


def test_the_list_of_differences_names_only_what_is_in_the_table(unknown_differences: set[str]) -> None:
    assert unknown_differences == set()
