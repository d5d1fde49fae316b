"""What other programs are told of the ends of instances. Rows are features of Falcon."""

from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from feed_assets.alerts.delivery.words import write_subject
from feed_assets.entities.feed import Feed
from feed_assets.instances.attempts.attempts import begin_attempt
from feed_assets.instances.gates.actions import InstanceAction, apply_action
from feed_assets.instances.gates.end_messages import Ended, keys_of_end, tell_ends
from feed_assets.instances.gates.reconciliation import RunState, apply_reconciliation, find_launched
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.messages.outbox import Outbox
from feed_assets.log.messages.payloads import InstancePayload
from feed_assets.log.messages.records import OutboxMessage, render_payload
from feed_assets.log.records import ProcessInstanceStatus
from feed_assets.receivers import Topic
from tests.instances.gates import test_imports
from tests.instances.gates.test_retries import counting, failing, run_due
from tests.instances.harness import START, LifecycleHarness, at, feed, hours, process
from tests.replication.test_flows import harness_of, pass_time, replicated
from tests.retention.harness import RetentionHarness, kept_feed

LINE = ("cluster", "entityName", "operation", "feedNames", "feedInstancePaths", "status", "runId", "final")


def told(lifecycle: LifecycleHarness, topic: Topic = Topic.INSTANCE) -> list[OutboxMessage]:
    with lifecycle.database.read() as connection:
        return Outbox(connection).read(0, 1_000, topic)


def lines(lifecycle: LifecycleHarness) -> list[tuple[object, ...]]:
    return [tuple(render_payload(each.payload)[key] for key in LINE) for each in told(lifecycle)]


def test_row_146_a_run_with_two_outputs_tells_one_message_a_path_in_the_keys_of_falcon(tmp_path: Path) -> None:
    work = process(
        "daily",
        inputs={"clicks": "now(0,0)"},
        outputs={"counts": "now(0,0)", "users": "now(0,0)"},
        acl={"owner": "ann"},
    )
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks"), feed("counts"), feed("users"), work)
    lifecycle.land("clicks", START)
    lifecycle.tick(START)
    lifecycle.run("daily", START, START + timedelta(minutes=5), "run-7")
    first, second = told(lifecycle)
    assert render_payload(first.payload) == {
        "cluster": "primary",
        "entityName": "daily",
        "entityType": "process",
        "nominalTime": "2013-11-01-00-00",
        "operation": "GENERATE",
        "feedNames": "counts",
        "feedInstancePaths": f"file://{lifecycle.folder('counts', START)}",
        "workflowId": "run-7",
        "workflowUser": "ann",
        "runId": "1",
        "status": "SUCCEEDED",
        "timeStamp": "2013-11-01-00-05",
        "logDir": "NONE",
        "final": True,
    }
    assert render_payload(second.payload)["feedInstancePaths"] == f"file://{lifecycle.folder('users', START)}"
    assert [each.user_topic for each in (first, second)] == ["FALCON.daily"] * 2


def test_row_146_a_copy_to_two_targets_names_target_and_source(tmp_path: Path) -> None:
    lifecycle = harness_of(tmp_path, replicated(targets={"backup": {}, "other": {}}))
    lifecycle.land("clicks", START)
    pass_time(lifecycle, at("01T00:05"), "backup", "other")
    assert lines(lifecycle) == [
        (f"{name},primary", "clicks", "REPLICATE", "clicks", url, "SUCCEEDED", "1", True)
        for name in ("backup", "other")
        for url in [f"file://{lifecycle.folder('clicks', START, name)}"]
    ]


def test_row_146_an_import_says_so(tmp_path: Path) -> None:
    lifecycle = test_imports.harness_of(tmp_path)
    lifecycle.launch(lifecycle.tick(at("01T00:10")), at("01T00:10"))
    url = f"file://{lifecycle.folder('orders', START)}"
    assert lines(lifecycle) == [("primary", "orders", "IMPORT", "orders", url, "SUCCEEDED", "1", True)]
    (message,) = told(lifecycle)
    assert write_subject(message) == "feed orders: instance 2013-11-01T00:00Z on primary: import succeeded"


def test_row_146_an_export_names_its_feed_and_the_table(tmp_path: Path) -> None:
    orders = feed("orders").model_dump(mode="json", by_alias=True, exclude_defaults=True)
    target = {"name": "shop", "table": "public.orders", "load": {"type": "insert"}}
    orders["clusters"]["primary"]["export"] = {"target": target}
    lifecycle = LifecycleHarness.of(tmp_path, test_imports.SHOP, Feed.model_validate(orders))
    lifecycle.land("orders", START)
    lifecycle.tick(at("01T00:10"))
    lifecycle.run("orders.export", START, at("01T00:10"))
    assert lines(lifecycle) == [
        ("primary", "orders", "EXPORT", "orders", "datasource/shop/public.orders", "SUCCEEDED", "1", True)
    ]


def test_row_146_each_evicted_path_is_a_delete(tmp_path: Path) -> None:
    harness = RetentionHarness.of(tmp_path)
    harness.land("clicks", *hours(50))
    harness.arrive(at("04"))
    sweep = harness.sweep_now()
    found = [each.payload for each in told(harness.lifecycle)]
    assert len(found) == len(harness.messages()) == 24
    assert all(isinstance(each, InstancePayload) for each in found)
    assert {render_payload(each)["operation"] for each in found} == {"DELETE"}
    assert {render_payload(each)["workflowId"] for each in found} == {sweep.sweep_id}
    paths = [f"{each.store}/{each.path}" for each in harness.messages()]
    assert [render_payload(each)["feedInstancePaths"] for each in found] == paths


def test_a_sweep_that_asks_tells_each_of_its_feeds(tmp_path: Path) -> None:
    harness = RetentionHarness.of(tmp_path, kept_feed(sweep_limits={"instances": 5}))
    harness.land("clicks", *hours(50))
    harness.arrive(at("04"))
    sweep = harness.planned()
    (asking,) = told(harness.lifecycle, Topic.SWEEP)
    said = render_payload(asking.payload)
    assert (said["sweep"], said["feed"], said["instances"]) == (sweep.sweep_id, "clicks", 24)
    assert said["reason"] == "; ".join(each.sentence for each in sweep.obstacles) != ""


@pytest.mark.parametrize(("value", "topic"), [("true", "FALCON.count"), ("false", None), (" False ", None)])
def test_row_147_a_property_leaves_the_user_topic_out(tmp_path: Path, value: str, topic: str | None) -> None:
    work = process("count", outputs={"counts": "now(0,0)"}, properties={"userJMSNotificationEnabled": value})
    lifecycle = LifecycleHarness.of(tmp_path, feed("counts"), work)
    lifecycle.tick(START)
    lifecycle.run("count", START, START)
    assert [each.user_topic for each in told(lifecycle)] == [topic]


def test_row_30_a_process_without_outputs_is_told_with_none(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, process("count"))
    lifecycle.tick(START)
    lifecycle.run("count", START, START)
    assert lines(lifecycle) == [("primary", "count", "GENERATE", "NONE", "NONE", "SUCCEEDED", "1", True)]


def test_row_79_used_up_retries_are_told_once(tmp_path: Path) -> None:
    lifecycle = counting(tmp_path, policy="periodic", attempts=1)
    failing(lifecycle, 9)
    for minute in (0, 1, 10, 11, 30):
        run_due(lifecycle, START + timedelta(minutes=minute))
    ends = [(line[5], line[6], line[7]) for line in lines(lifecycle)]
    assert ends == [("FAILED", "1", False), ("FAILED", "2", True)]
    (exhausted,) = told(lifecycle, Topic.RETRY)
    said = render_payload(exhausted.payload)
    assert (said["entity"], said["attempts"], said["nominal_time"]) == ("count", 2, START.isoformat())
    assert "no luck" in str(said["error"])


def end_of(lifecycle: LifecycleHarness) -> Mapping[str, object]:
    (message,) = told(lifecycle)
    return render_payload(message.payload)


def test_a_time_out_a_kill_and_a_lost_worker_are_told(tmp_path: Path) -> None:
    work = process("count", inputs={"clicks": "now(0,0)"}, outputs={"counts": "now(0,0)"}, timeout="hours(1)")
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks"), feed("counts"), work)
    lifecycle.tick(START)
    lifecycle.tick(START + timedelta(minutes=61))
    timed_out = end_of(lifecycle)
    assert (timed_out["status"], timed_out["runId"], timed_out["final"]) == ("FAILED", "0", True)
    assert timed_out["error"] == "its mandatory inputs did not all become available in time"

    record = lifecycle.process("count")
    for status in (RunState.ENDED, RunState.CANCELED):
        with lifecycle.database.begin() as connection:
            begin_attempt(connection, record, START, "run-1", START)
        launched = find_launched(lifecycle.database, "primary", START)
        apply_reconciliation(lifecycle.context(START), launched, {"run-1": status}, {})
    with lifecycle.database.begin() as connection:
        begin_attempt(connection, record, START, "run-2", START)
    key = ("count", "primary", START)
    apply_action(lifecycle.context(START).by("ann"), InstanceAction.KILL, [key])
    ends = [(line[5], line[6], line[7]) for line in lines(lifecycle)[1:]]
    assert ends == [("FAILED", "1", False), ("FAILED", "2", True), ("FAILED", "3", True)]
    assert render_payload(told(lifecycle)[-1].payload)["error"] == "killed by ann"


def test_a_lost_worker_of_an_instance_before_its_release_is_told_as_it_is_declared(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(
        tmp_path, feed("counts"), process("count", "days(1)", outputs={"counts": "now(0,0)"})
    )
    lifecycle.tick(at("02T02:00"))
    lifecycle.declare(feed("counts"), process("count", outputs={"counts": "now(0,0)"}))
    time, now = at("01T04:00"), at("02T06:00")
    lifecycle.tick(now)
    with lifecycle.database.begin() as connection:
        begin_attempt(connection, lifecycle.process("count"), time, "run-1", now)
    launched = find_launched(lifecycle.database, "primary", now)
    apply_reconciliation(lifecycle.context(now), launched, {"run-1": RunState.ENDED}, {})
    url = f"file://{lifecycle.folder('counts', time)}"
    assert lines(lifecycle) == [("primary", "count", "GENERATE", "counts", url, "FAILED", "1", False)]


def test_time_outs_of_one_look_are_one_message_that_why_finds(tmp_path: Path) -> None:
    work = process("count", inputs={"clicks": "now(0,0)"}, outputs={"counts": "now(0,0)"}, frequency="minutes(5)")
    lifecycle = LifecycleHarness.of(
        tmp_path, feed("clicks", frequency="minutes(5)"), feed("counts", frequency="minutes(5)"), work
    )
    for moment in (START, at("02"), at("05"), at("05T00:05")):  # an outage of three days
        lifecycle.tick(moment)
    found = [render_payload(each.payload) for each in told(lifecycle)]
    assert [(each.get("count"), each.get("oldest"), each.get("newest")) for each in found] == [
        (None, None, None),
        (288, "2013-11-01-00-05", "2013-11-02-00-00"),
    ]
    assert {each["error"] for each in found} == {"its mandatory inputs did not all become available in time"}
    with lifecycle.database.read() as connection:
        row = ProcessInstances(connection).get("count", "primary", at("02"))
        keys = Outbox(connection).find_keys(keys_of_end(lifecycle.process("count"), row))
    assert [each.idempotency_key for each in told(lifecycle) if each.seq in keys.values()] == list(keys) != []


def test_ends_that_are_tried_again_and_ends_that_are_not_are_two_messages(tmp_path: Path) -> None:
    work = process("count", outputs={"counts": "now(0,0)"}, frequency="minutes(5)")
    lifecycle = LifecycleHarness.of(tmp_path, feed("counts", frequency="minutes(5)"), work)
    lifecycle.tick(START + timedelta(minutes=15))
    rows = list(lifecycle.instances("count").values())
    status = ProcessInstanceStatus.FAILED
    ended = [Ended(row=row, status=status, error="lost", is_final=number < 2) for number, row in enumerate(rows)]
    with lifecycle.database.begin() as connection:
        tell_ends(connection, lifecycle.plan, lifecycle.process("count"), ended, START)
    found = [render_payload(each.payload) for each in told(lifecycle)]
    assert [(each["count"], each["final"]) for each in found] == [(2, True), (2, False)]


def test_used_up_retries_of_one_look_are_one_message(tmp_path: Path) -> None:
    retry = {"policy": "periodic", "delay": "minutes(10)", "attempts": 1}
    work = process("count", outputs={"counts": "now(0,0)"}, end=START + timedelta(hours=2), retry=retry)
    lifecycle = LifecycleHarness.of(tmp_path, feed("counts"), work)
    failing(lifecycle, 9)
    for minute in (60, 70, 80):
        run_due(lifecycle, START + timedelta(minutes=minute))
    (exhausted,) = told(lifecycle, Topic.RETRY)
    said = render_payload(exhausted.payload)
    assert (said["count"], said["oldest"]) == (2, START.isoformat())


def test_what_a_tick_finds_of_a_feed_is_one_message_of_its_arrival(tmp_path: Path) -> None:
    lifecycle = counting_clicks(tmp_path)
    lifecycle.land("clicks", *hours(3))
    lifecycle.tick(at("01T02:30"))
    lifecycle.tick(at("01T02:40"))
    (arrived,) = told(lifecycle, Topic.ARRIVAL)
    assert render_payload(arrived.payload) == {
        "kind": "feed",
        "entity": "clicks",
        "cluster": "primary",
        "count": 3,
        "oldest": START.isoformat(),
        "newest": at("01T02").isoformat(),
    }


def test_a_tick_that_breaks_off_behind_its_arrivals_tells_them_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lifecycle = counting_clicks(tmp_path)
    lifecycle.land("clicks", START)

    def fail(*_: object) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as broken, suppress(RuntimeError):
        broken.setattr("feed_assets.instances.gates.readiness.note_updates", fail)
        lifecycle.tick(START)
    lifecycle.tick(START)
    assert len(told(lifecycle, Topic.ARRIVAL)) == 1


def counting_clicks(tmp_path: Path) -> LifecycleHarness:
    work = process("count", inputs={"clicks": "now(0,0)"}, outputs={"counts": "now(0,0)"})
    return LifecycleHarness.of(tmp_path, feed("clicks"), feed("counts"), work)


def test_an_end_that_is_not_recorded_is_not_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lifecycle = counting(tmp_path)
    lifecycle.tick(START)

    def fail(*_: object) -> None:
        raise RuntimeError("the transaction breaks off")

    monkeypatch.setattr("feed_assets.instances.attempts.attempts.plan_late_check", fail)
    with suppress(RuntimeError):
        lifecycle.run("count", START, START)
    assert [line[5] for line in lines(lifecycle)] == []
