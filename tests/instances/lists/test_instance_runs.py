from pathlib import Path

import pytest

from feed_assets.context.consolidation import Result
from feed_assets.context.operation import resolve_subject
from feed_assets.instances.lists.runs import find_logs, find_params
from tests.context.contexts import WEBSERVER, about, context_of, counting_harness, query_of
from tests.instances.harness import START, LifecycleHarness, at, feed, process


def test_row_115_logs_lead_to_the_run_of_an_attempt_and_its_steps(tmp_path: Path, state_url: str) -> None:
    lifecycle = counting_harness(tmp_path, state_url)
    lifecycle.land("clicks", START)
    lifecycle.flag("clicks", START)
    for number, minute in ((1, "10"), (2, "20")):
        lifecycle.run("count", START, at(f"01T00:{minute}"), f"run-{number}")
    context = context_of(lifecycle, at("01T00:30"))
    query = query_of(context, "count")

    (newest,) = find_logs(context, query).instances
    assert (newest.attempt, newest.log) == (2, f"{WEBSERVER}/runs/run-2")
    assert [(each.name, each.status, each.log) for each in newest.actions] == [
        ("count", "SUCCEEDED", f"{WEBSERVER}/runs/run-2"),
        ("count/counts", "PRODUCED", f"{WEBSERVER}/runs/run-2"),
    ]
    (first,) = find_logs(context, query, attempt=1).instances
    assert (first.run_id, [each.ended_at for each in first.actions]) == ("run-1", [at("01T00:10")] * 2)
    assert find_logs(context, query, attempt=3).instances == ()


def test_row_115_without_a_webserver_a_log_is_the_id_of_a_run(tmp_path: Path) -> None:
    lifecycle = counting_harness(tmp_path)
    lifecycle.tick(at("01T00:10"))
    context = context_of(lifecycle, at("01T00:30"), webserver=None)
    (waiting,) = find_logs(context, query_of(context, "count")).instances
    assert (waiting.run_id, waiting.log, waiting.actions) == (None, None, ())


def test_row_116_params_are_what_the_work_was_told(tmp_path: Path, state_url: str) -> None:
    counting = process(
        "count",
        inputs={"clicks": "now(-1,0) now(0,0)"},
        outputs={"counts": "now(0,0)"},
        properties={"region": "${YEAR}-${cluster.colo}"},
        workflow={"engine": "spark-submit", "path": "app.py", "args": ["--day", "${DAY}"]},
    )
    clicks = feed("clicks", start=at("2013-10-31"))
    lifecycle = LifecycleHarness.of(tmp_path, clicks, feed("counts"), counting, state=state_url)
    lifecycle.land("clicks", START, at("01T01:00"))
    told = lifecycle.properties_of("count", at("01T01:00"), at("01T01:10"))
    context = context_of(lifecycle, at("01T02:00"))

    found = find_params(context, resolve_subject(context, "count", at("01T01:00")))

    (params,) = found.items
    assert params.status == "SUCCEEDED"
    assert params.properties["region"] == "2013-primary-colo"
    assert params.arguments == ("--day", "01")
    staged = {"counts", "feedInstancePaths"}
    assert {name: text for name, text in params.properties.items() if name not in staged} == {
        name: text for name, text in told.items() if name not in staged
    }
    assert params.properties["counts"] == context.feed_url(lifecycle.feed("counts"), at("01T01:00"))


def test_row_116_an_instance_that_waits_has_no_params(tmp_path: Path) -> None:
    lifecycle = counting_harness(tmp_path)
    lifecycle.tick(at("01T00:10"))
    (params,) = about(find_params, context_of(lifecycle, at("01T00:30")), "count", START).items
    assert (params.status, params.properties) == ("WAITING", {})


@pytest.mark.parametrize("time", ["01T00:30", "2013-10-01"])
def test_a_time_that_is_no_instance_is_refused(tmp_path: Path, time: str) -> None:
    found = about(find_params, context_of(counting_harness(tmp_path), at("01T00:30")), "count", at(time))
    assert found.result is Result.FAILED
    assert "Instances are every hours(1) from 2013-11-01T00:00Z" in found.message
