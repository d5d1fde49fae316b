"""Why instances are not done, as the arrival sensor tells Dagster: on partitions, once, and in its skip message."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from dagster import AssetKey, AssetRecordsFilter, DagsterInstance, SensorResult

from feed_assets.context.errors import InstanceQueryError
from feed_assets.context.heartbeat import find_silence
from feed_assets.explain import explanations
from feed_assets.explain.explanations import explain
from feed_assets.explain.records import Explanation
from feed_assets.instances.gates.actions import InstanceAction, apply_action
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import Cause, ProcessInstance, ProcessInstanceStatus, ProcessKey
from feed_assets.orchestration.location.reloading import build_context
from feed_assets.orchestration.location.runtime import open_runtime, state_url
from feed_assets.orchestration.sensors import overdue_notices
from feed_assets.orchestration.sensors.overdue_notices import EXPLAINED_A_TICK
from feed_assets.orchestration.sensors.ticks import run_tick
from tests.cli.project import run
from tests.context.contexts import about
from tests.orchestration.dagster_home import Home, materialized
from tests.orchestration.hand_ticked import LocationHarness
from tests.orchestration.small import ENTITIES, START, key, land

HOUR = timedelta(hours=1)
SUMS = AssetKey(["here", "sums"])
RETRY = "timeout: hours(2)\n    retry: {policy: final, delay: minutes(1), attempts: 1, on_timeout: false}"


def told(harness: LocationHarness, asset: AssetKey = SUMS) -> list[tuple[str, str, str]]:
    """Partition, status and text of what Dagster was told, the oldest first."""
    records = harness.instance.fetch_observations(AssetRecordsFilter(asset_key=asset), limit=1_000).records
    found = []
    for record in reversed(records):
        observation = record.asset_observation
        assert observation is not None
        assert observation.partition is not None
        values: dict[str, Any] = {name: value.value for name, value in observation.metadata.items()}
        found.append((observation.partition, values["feed_assets/status"], values["feed_assets/why"]))
    return found


def message(result: SensorResult) -> str:
    assert result.skip_reason is not None
    return result.skip_reason.skip_message or ""


def tick_at(harness: LocationHarness, hours: float) -> SensorResult:
    harness.at(START + hours * HOUR)
    return harness.tick()


def only(harness: LocationHarness, hour: int) -> None:
    """Let every hour until `hour` arrive, and begin to wait for that one alone."""
    for other in range(hour):
        land(harness.home.data, other, 1)
    tick_at(harness, hour + 0.1)
    assert harness.counts()[ProcessInstanceStatus.WAITING] == 1


def test_what_has_waited_half_its_frequency_is_told_of_once(harness: LocationHarness) -> None:
    only(harness, 4)
    tick_at(harness, 4.5)
    assert told(harness) == []
    tick_at(harness, 4.61)
    ((partition, status, text),) = told(harness)
    assert (partition, status) == (key(4), "WAITING")
    assert text.splitlines()[0] == "process summing on here at 2026-01-01T04:00Z is WAITING"
    assert "numbers/2026-01-01/04 did not exist at " in text
    tick_at(harness, 4.62)
    assert len(told(harness)) == 1
    assert materialized(harness.instance, "here", "sums") == set()


def test_the_text_is_what_the_command_says_in_words_and_in_json(
    harness: LocationHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    tick_at(harness, 0.1)
    tick_at(harness, 1.11)
    ((_, _, text),) = told(harness)
    database = harness.runtime.database(harness.instance)
    timeline = harness.runtime.timeline()
    found = about(
        explain, build_context(harness.runtime, timeline, database, harness.runtime.clock.now()), "summing", START
    )
    assert re.sub(r"\n\n( *)`(.*)`", r"\n\1$ \2", text) == found.items[0].render()
    text = found.items[0].render()
    monkeypatch.chdir(harness.home.folder)
    for name, value in {
        "FEED_ASSETS_ENTITIES": "entities",
        "FEED_ASSETS_VARIABLES__DATA_ROOT": str(harness.home.data),
        "FEED_ASSETS_STATE": state_url(harness.instance),
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("feed_assets.context.operation.open_clock", lambda _: harness.runtime.clock)
    monkeypatch.setattr("feed_assets.context.operation.SystemClock", lambda: harness.runtime.clock)
    asked = ("why", "summing", "2026-01-01T00:00Z", "--output")
    assert run(*asked, "text", "--all").stdout.startswith(text + "\n")
    (in_json,) = json.loads(run(*asked, "json").stdout)["instances"]
    assert list(lines(in_json)) == text.splitlines()


def lines(explanation: dict[str, Any], depth: int = 0) -> Iterator[str]:
    """The text that a JSON explanation stands for."""
    mark = "- " if depth else ""
    kind, name, cluster = explanation["kind"], explanation["name"], explanation["cluster"]
    yield f"{'  ' * depth}{mark}{kind} {name} on {cluster} at {explanation['nominal_time']} is {explanation['status']}"
    for reason in explanation["reasons"]:
        yield f"{'  ' * (depth + 1)}- {reason['text']}{':' if reason['causes'] else ''}"
        if reason["command"]:
            yield f"{'  ' * (depth + 1)}  $ {reason['command']}"
        for cause in reason["causes"]:
            yield from lines(cause, depth + 2)


def test_it_is_told_again_when_something_else_keeps_it_and_it_has_waited_twice_as_long(
    harness: LocationHarness,
) -> None:
    only(harness, 4)
    tick_at(harness, 4.61)
    land(harness.home.data, 4, 1)
    (harness.home.data / "numbers/2026-01-01/04/_SUCCESS").unlink()
    tick_at(harness, 5)
    assert len(told(harness)) == 1
    tick_at(harness, 5.2)
    texts = [text for partition, _, text in told(harness) if partition == key(4)]
    assert ["lacked its flag" in text for text in texts] == [False, True]
    tick_at(harness, 6.5)
    assert len([text for partition, _, text in told(harness) if partition == key(4)]) == 2


def test_a_tick_tells_of_a_few_and_the_next_one_of_the_others(harness: LocationHarness) -> None:
    tick_at(harness, 23.5)
    counts = []
    for minutes in range(3):
        tick_at(harness, 24.5 + minutes / 60)
        counts.append(len(told(harness)))
    assert counts == [EXPLAINED_A_TICK, 24, 24]


def test_a_restart_tells_nothing_again(harness: LocationHarness) -> None:
    only(harness, 4)
    tick_at(harness, 5.11)
    harness.runtime = open_runtime(harness.runtime.settings, harness.location)
    harness.at(START + 5.12 * HOUR)
    run_tick(harness.runtime, harness.layout, "here", harness.instance, None)
    assert len(told(harness)) == 1


def test_what_times_out_is_told_of_at_once(tmp_path: Path, instance: DagsterInstance) -> None:
    harness = LocationHarness(
        Home(folder=tmp_path), instance, ENTITIES.replace("timeout: months(60)", "timeout: minutes(30)")
    )
    only(harness, 4)
    tick_at(harness, 4.7)
    ((partition, status, text),) = told(harness)
    assert (partition, status) == (key(4), "TIMEDOUT")
    assert "its mandatory inputs did not all become available in time" in text
    tick_at(harness, 4.8)
    tick_at(harness, 9)
    assert [status for partition, status, _ in told(harness) if partition == key(4)] == ["TIMEDOUT"]


def test_what_a_person_kills_and_what_is_passed_over_is_told_of_at_once(
    tmp_path: Path, instance: DagsterInstance
) -> None:
    """Dagster shows neither: no run of them has ended."""
    harness = LocationHarness(
        Home(folder=tmp_path), instance, ENTITIES.replace("name: summing", "name: summing\n    order: LAST_ONLY")
    )
    only(harness, 4)
    killed = ProcessKey("summing", "here", START + 4 * HOUR)
    apply_action(harness.open_tick("here").by("ann"), InstanceAction.KILL, [killed])
    tick_at(harness, 4.11)
    assert {(partition, status) for partition, status, _ in told(harness)} == {
        *((key(hour), "SKIPPED") for hour in range(4)),
        (key(4), "KILLED"),
    }
    (record,) = [
        each.asset_observation
        for each in harness.instance.fetch_observations(AssetRecordsFilter(asset_key=SUMS), limit=1_000).records
        if each.partition_key == key(4)
    ]
    assert record is not None
    assert record.description is not None
    assert record.description.endswith("is KILLED: it ended at 2026-01-01T04:06:00Z: killed by ann")
    why = record.metadata["feed_assets/why"].value
    again = "feed-assets instance rerun summing --instance 2026-01-01T04:00Z --clusters here"
    assert str(why).endswith(f"\n\n    `{again}`")
    tick_at(harness, 4.12)
    assert len(told(harness)) == 5


def test_what_has_used_up_its_retries_is_told_of(tmp_path: Path, instance: DagsterInstance) -> None:
    harness = LocationHarness(Home(folder=tmp_path), instance, ENTITIES.replace("timeout: months(60)", RETRY))
    only(harness, 4)
    fail(harness, 4)
    tick_at(harness, 4.2)
    assert told(harness) == []
    fail(harness, 4)
    tick_at(harness, 4.3)
    ((partition, status, text),) = told(harness)
    assert (partition, status) == (key(4), "FAILED")
    assert "no luck; all 1 retries have been made" in text


def test_an_error_names_the_instances_without_retries_as_ranges(
    tmp_path: Path, instance: DagsterInstance, caplog: pytest.LogCaptureFixture
) -> None:
    harness = LocationHarness(Home(folder=tmp_path), instance, ENTITIES.replace("timeout: months(60)", RETRY))
    tick_at(harness, 4.1)
    for moment in (4.2, 4.3):
        fail(harness, 2)
        fail(harness, 3)
        tick_at(harness, moment)
    when = "2026-01-01T02:00Z to 2026-01-01T03:00Z"
    assert f"process 'summing' on here: all retries of instances {when} have failed" in caplog.messages


def test_what_failed_without_a_retry_policy_is_told_of(harness: LocationHarness) -> None:
    only(harness, 4)
    fail(harness, 4)
    tick_at(harness, 4.2)
    assert [(partition, status) for partition, status, _ in told(harness)] == [(key(4), "FAILED")]


def fail(harness: LocationHarness, hour: int) -> None:
    """What a run leaves that fails."""
    time = START + hour * HOUR
    with harness.runtime.database(harness.instance).begin() as connection:
        assert ProcessInstances(connection).transition(
            ProcessKey("summing", "here", time),
            set(ProcessInstanceStatus),
            status=ProcessInstanceStatus.FAILED,
            notice_at=None,
            retry_at=None,
            ended_at=harness.runtime.clock.now(),
            updated_at=harness.runtime.clock.now(),
            cause=Cause.FAILURE,
            cause_detail="no luck",
        )


def test_a_process_without_outputs_is_told_of_on_its_own_asset(tmp_path: Path, instance: DagsterInstance) -> None:
    harness = LocationHarness(Home(folder=tmp_path), instance, ENTITIES.replace("outputs: {sums:", "# {sums:"))
    only(harness, 4)
    tick_at(harness, 5.11)
    assert [partition for partition, _, _ in told(harness, AssetKey(["here", "summing"]))] == [key(4)]
    assert told(harness) == []


def test_a_quiet_tick_names_the_oldest_that_waits_and_its_root_cause(harness: LocationHarness) -> None:
    for hour in (0, 1, 2):
        land(harness.home.data, hour, 1)
    busy = harness.tick()
    assert busy.run_requests
    quiet = harness.tick()
    numbers = harness.home.data / "numbers/2026-01-01/03"
    told = "; oldest waiting instance: summing 2026-01-01T03:00Z for numbers 2026-01-01T03:00Z: "
    assert f"{told}file://{numbers} did not exist at " in message(quiet)


def test_a_tick_that_begins_is_heard_of(harness: LocationHarness) -> None:
    database = harness.runtime.database(harness.instance)
    context = build_context(harness.runtime, harness.runtime.timeline(), database, START)
    assert find_silence(context, ["here"]) is not None
    harness.tick()
    assert find_silence(context, ["here"]) is None


def test_a_tick_with_nothing_that_waits_names_nothing(harness: LocationHarness) -> None:
    for hour in range(13):
        land(harness.home.data, hour, 1)
    harness.tick()
    assert "waits" not in message(harness.tick())


def test_what_is_not_declared_any_more_is_passed_over_once(harness: LocationHarness) -> None:
    gone = ProcessInstance(
        process="gone",
        cluster="here",
        nominal_time=START,
        status=ProcessInstanceStatus.WAITING,
        updated_at=START,
        notice_at=START,
    )
    with harness.runtime.database(harness.instance).begin() as connection:
        ProcessInstances(connection).add_waiting([gone])
    assert "waits" not in message(tick_at(harness, -1))
    tick_at(harness, 0.1)
    with harness.runtime.database(harness.instance).read() as connection:
        assert ProcessInstances(connection).get(*gone.key) == replace(gone, notice_at=None)
    assert told(harness) == []


def test_what_is_no_instance_upstream_keeps_nothing_else_from_being_told(
    harness: LocationHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    explain = overdue_notices.explain_process_instances

    def without_second(context: Any, connection: Any, keys: Sequence[ProcessKey]) -> dict[ProcessKey, Explanation]:
        if START + HOUR in {each.nominal_time for each in keys}:
            raise InstanceQueryError(subject="clicks", reason="it is no instance", next_step="")
        return explain(context, connection, keys)

    monkeypatch.setattr(overdue_notices, "explain_process_instances", without_second)
    tick_at(harness, 2.1)
    tick_at(harness, 3.2)
    assert [partition for partition, _, _ in told(harness)] == [key(0), key(2)]


def test_a_mistake_in_an_explanation_keeps_no_run_from_being_asked_for(
    harness: LocationHarness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tick_at(harness, 0.1)

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(explanations, "find_blockers", broken)
    land(harness.home.data, 1, 1)
    assert tick_at(harness, 1.11).run_requests
    assert "notices of summing failed" in caplog.text
    monkeypatch.undo()
    tick_at(harness, 1.12)
    assert [partition for partition, _, _ in told(harness)] == [key(0)]
