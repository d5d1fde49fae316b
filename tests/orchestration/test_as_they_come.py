"""Feeds whose instances come as they come, as a tick sees them: notices, signals, assets of others, copies."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from textwrap import dedent
from typing import cast

import dagster as dg
import pytest
from dagster import AssetKey, AssetMaterialization, DagsterInstance, SensorResult

from feed_assets import build_definitions
from feed_assets.context.operation import OperationContext, resolve_subject
from feed_assets.context.safe_mode import set_safe_mode
from feed_assets.explain.explanations import explain
from feed_assets.instances.arrival.arrival_notices import Notice, NoticeOutcome, record_notice
from feed_assets.instances.lists.feed_listings import list_feed
from feed_assets.instances.lists.polled_ranges import poll_range
from feed_assets.instances.lists.queries import list_instances
from feed_assets.log.events import EventLog
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import FeedEvent, FeedEventKind, FeedInstanceStatus, ProcessInstanceStatus
from feed_assets.orchestration.location.reloading import build_context
from feed_assets.retention.rules.protections import ProtectionKind, ProtectionQuery, find_protections
from feed_assets.triggers.input_windows import input_states
from tests.context.contexts import about, query_of
from tests.orchestration.dagster_home import Home
from tests.orchestration.hand_ticked import NOON, LocationHarness

ENTITIES = """
    kind: cluster
    name: here
    storage: file://${DATA_ROOT}
    spark: {master: "local[1]"}
    ---
    kind: cluster
    name: there
    storage: file://${DATA_ROOT}/there
    spark: {master: "local[1]"}
    ---
    kind: feed
    name: orders
    instances: as-they-come
    format: csv
    locations: {data: "/orders/${YEAR}-${MONTH}-${DAY}/${HOUR}${MINUTE}${SECOND}"}
    clusters:
      here: {type: source, validity: {start: 2026-01-01T00:00Z}}
      there: {type: target, validity: {start: 2026-01-01T00:00Z}}
    ---
    {kind: feed, name: approval, signal: true, clusters: {here: {validity: {start: 2026-01-01T00:00Z}}}}
    ---
    {kind: feed, name: rates, asset: [team, rates], clusters: {here: {validity: {start: 2026-01-01T00:00Z}}}}
"""


@pytest.fixture
def harness(tmp_path: Path, instance: DagsterInstance) -> LocationHarness:
    return LocationHarness(Home(folder=tmp_path), instance, ENTITIES)


def notify(harness: LocationHarness, feed: str, at: datetime | None = None, **fields: object) -> NoticeOutcome:
    notice = Notice(feed=feed, nominal_time=at, cluster="here", **fields)  # type: ignore[arg-type]
    return record_notice(context_of(harness).by("ann"), notice).outcome


def context_of(harness: LocationHarness) -> OperationContext:
    database, timeline = harness.runtime.database(harness.instance), harness.runtime.timeline(harness.location)
    return build_context(harness.runtime, timeline, database, harness.runtime.clock.now())


def land(harness: LocationHarness, *seconds: int) -> None:
    """Put a file into instances of the minute before."""
    for second in seconds:
        folder = harness.home.data / "orders" / "2026-01-01" / f"1204{second:02}"
        folder.mkdir(parents=True)
        (folder / "part.csv").write_text("n\n1\n")


def events(harness: LocationHarness) -> list[FeedEvent]:
    with harness.runtime.database(harness.instance).read() as connection:
        return EventLog(connection).read(0, 100)


def materialized(result: SensorResult) -> list[tuple[str, str | None]]:
    found = [event for event in result.asset_events if isinstance(event, AssetMaterialization)]
    return [(event.asset_key.to_user_string(), event.partition) for event in found]


def added(result: SensorResult) -> list[str]:
    requests = result.dynamic_partitions_requests or []
    return [key for request in requests for key in cast("list[str]", request.partition_keys)]


def test_a_notice_brings_an_instance_to_the_second_with_its_partition(harness: LocationHarness) -> None:
    assert materialized(harness.tick()) == []
    at = NOON + timedelta(seconds=-7)
    folder = harness.home.data / "orders" / "2026-01-01" / "120453"
    folder.mkdir(parents=True)
    (folder / "part.csv").write_text("n\n1\n")
    assert notify(harness, "orders", at) is NoticeOutcome.RECORDED
    result = harness.tick()
    assert materialized(result) == [("here/orders", "2026-01-01-12:04:53")]
    assert added(result) == ["2026-01-01-12:04:53"]
    assert materialized(harness.tick()) == []


def test_the_path_tells_the_time_and_other_content_is_an_event_only_if_it_is_other(harness: LocationHarness) -> None:
    folder = harness.home.data / "orders" / "2026-01-01" / "120453"
    folder.mkdir(parents=True)
    (folder / "part.csv").write_text("n\n1\n")
    assert notify(harness, "orders", path=str(folder)) is NoticeOutcome.RECORDED
    assert notify(harness, "orders", path="/orders/2026-01-01/120453") is NoticeOutcome.KNOWN
    assert notify(harness, "orders", path=str(folder), is_again=True) is NoticeOutcome.KNOWN
    (folder / "part.csv").write_text("n\n1\n2\n")
    assert notify(harness, "orders", path=str(folder), is_again=True) is NoticeOutcome.CHANGED
    assert [event.kind for event in events(harness)] == [FeedEventKind.ARRIVED, FeedEventKind.CHANGED]


def test_each_signal_is_an_event_of_its_second(harness: LocationHarness) -> None:
    for number in range(3):
        notify(harness, "approval", payload={"number": number}, marking=f"m{number}")
    found = events(harness)
    assert [event.nominal_time for event in found] == [NOON] * 3
    assert [(event.kind, event.payload, event.marking) for event in found] == [
        (FeedEventKind.SIGNALLED, {"message": {"number": number}}, f"m{number}") for number in range(3)
    ]
    result = harness.tick()
    assert [partition for _, partition in materialized(result)] == ["2026-01-01-12:05:00"] * 3
    assert added(result) == ["2026-01-01-12:05:00"]


def test_a_signal_of_a_known_time_is_another_event_only_if_it_is_said(harness: LocationHarness) -> None:
    at = NOON - timedelta(hours=1)
    outcomes = [notify(harness, "approval", at, payload={"n": 1}), notify(harness, "approval", at, payload={"n": 2})]
    outcomes.append(notify(harness, "approval", at, payload={"n": 2}, is_again=True))
    assert outcomes == [NoticeOutcome.RECORDED, NoticeOutcome.KNOWN, NoticeOutcome.CHANGED]
    assert [event.nominal_time for event in events(harness)] == [at, at]


def test_each_materialization_of_somebodys_asset_is_an_event_once(harness: LocationHarness) -> None:
    harness.at(datetime.now(UTC))
    harness.instance.report_runless_asset_event(AssetMaterialization(["team", "rates"], metadata={"old": 1}))
    harness.tick()
    assert events(harness) == []  # what was made before the feed was declared is no news
    for _ in range(2):
        harness.instance.report_runless_asset_event(AssetMaterialization(["team", "rates"]))
    harness.tick()
    harness.tick()
    assert [(event.feed, event.origin) for event in events(harness)] == [("rates", "asset:team/rates")] * 2


def test_a_copy_of_what_comes_as_it_comes_is_made_by_the_event_and_not_by_time(harness: LocationHarness) -> None:
    folder = harness.home.data / "orders" / "2026-01-01" / "120453"
    folder.mkdir(parents=True)
    (folder / "part.csv").write_text("n\n1\n")
    notify(harness, "orders", path=str(folder))
    harness.tick(cluster="there")
    with harness.runtime.database(harness.instance).read() as connection:
        rows = ProcessInstances(connection).find_between("orders@here", "there", NOON - timedelta(days=1), NOON)
    assert [(row.nominal_time, row.status) for row in rows] == [
        (NOON - timedelta(seconds=7), ProcessInstanceStatus.READY)
    ]


BATCHES = (
    ENTITIES
    + """
    ---
    kind: feed
    name: loaded
    instances: as-they-come
    locations: {data: "/loaded/${YEAR}-${MONTH}-${DAY}/${HOUR}${MINUTE}${SECOND}"}
    clusters: {here: {validity: {start: 2026-01-01T00:00Z}, retention: {limit: days(30)}}}
    ---
    kind: process
    name: load
    clusters: {here: {validity: {start: 2026-01-01T00:00Z}}}
    trigger: {when: {all: [orders, approval]}}
    inputs: {orders: {feed: orders, take: new}}
    outputs: {loaded: {feed: loaded, instance: "now(0,0)"}}
    workflow: {engine: python, path: "jobs_of_test:load"}
"""
)


def test_a_batch_runs_for_what_has_come_when_its_condition_holds(tmp_path: Path, instance: DagsterInstance) -> None:
    harness = LocationHarness(Home(folder=tmp_path), instance, BATCHES)
    harness.tick()
    for second in (51, 52):
        folder = harness.home.data / "orders" / "2026-01-01" / f"1204{second}"
        folder.mkdir(parents=True)
        (folder / "part.csv").write_text("n\n1\n")
        notify(harness, "orders", path=str(folder))
    assert not harness.tick().run_requests
    notify(harness, "approval")
    result = harness.tick()
    (request,) = result.run_requests or []
    assert request.partition_key == "2026-01-01-12:05:00"
    assert request.tags["feed_assets/batch"] == "2026-01-01T12:05Z"
    assert "2026-01-01-12:05:00" in added(result)
    with harness.runtime.database(harness.instance).read() as connection:
        plan = harness.location.plan
        (state,) = input_states(connection, plan, plan.processes["load", "here"], [NOON], NOON)[NOON]
    assert state.present == (NOON - timedelta(seconds=9), NOON - timedelta(seconds=8))
    assert not harness.tick().run_requests


def test_what_a_look_at_a_watched_location_finds_takes_part_in_triggers(
    tmp_path: Path, instance: DagsterInstance
) -> None:
    watched = BATCHES.replace("name: orders\n", "name: orders\n    watch: minutes(1)\n", 1)
    harness = LocationHarness(Home(folder=tmp_path), instance, watched)
    harness.tick()
    land(harness, 51)
    notify(harness, "approval")
    assert not harness.tick().run_requests
    harness.at(NOON + timedelta(minutes=1))
    result = harness.tick()
    assert ("here/orders", "2026-01-01-12:04:51") in materialized(result)
    assert [request.partition_key for request in result.run_requests or []] == ["2026-01-01-12:06:00"]
    (why, _) = about(explain, context_of(harness), "orders", NOON - timedelta(seconds=1)).items
    assert "nobody has given notice of it, and no look at" in why.render()
    assert "has found it: there is one every minutes(1)" in why.render()


def test_a_notice_of_a_range_records_what_stands_there_and_expects_nothing_else(harness: LocationHarness) -> None:
    land(harness, 51, 52)
    (polled,) = poll_range(
        context_of(harness).by("ann"), "orders", NOON - timedelta(days=1), NOON, cluster="here"
    ).ranges
    assert (polled.arrived, polled.known, polled.absent) == (2, 0, ())
    with harness.runtime.database(harness.instance).read() as connection:
        rows = FeedInstances(connection).find_between(
            "orders", "here", NOON - timedelta(days=1), NOON + timedelta(days=1)
        )
    assert [row.status for row in rows] == [FeedInstanceStatus.AVAILABLE] * 2


def test_what_is_queued_is_kept_by_retention_also_while_the_consumer_is_not_declared(
    tmp_path: Path, instance: DagsterInstance
) -> None:
    harness = LocationHarness(Home(folder=tmp_path), instance, BATCHES)
    harness.tick()
    folder = harness.home.data / "orders" / "2026-01-01" / "120451"
    folder.mkdir(parents=True)
    (folder / "part.csv").write_text("n\n1\n")
    notify(harness, "orders", path=str(folder))
    harness.tick()
    at = NOON - timedelta(seconds=9)

    def queued() -> dict[datetime, list[str]]:
        timeline = harness.runtime.timeline(harness.location)
        record, query = timeline.plan.feeds["orders", "here"], ProtectionQuery(as_of=NOON, real_now=NOON, holder=None)
        with harness.runtime.database(harness.instance).begin() as connection:
            found = find_protections(connection, timeline, record, [at, NOON], query)
        kept = {time: [each.reason for each in found[time] if each.kind is ProtectionKind.QUEUED] for time in found}
        return {time: reasons for time, reasons in kept.items() if reasons}

    assert queued() == {at: ["process 'load' has not processed it yet"]}
    without = BATCHES.partition("---\n    kind: process")[0]
    (harness.home.folder / "entities" / "all.yaml").write_text(dedent(without))
    harness.reopen()
    harness.tick()
    assert queued() == {at: ["process 'load', which is not declared at present, has not processed it yet"]}


def test_dagster_loads_a_location_with_what_comes_as_it_comes(tmp_path: Path, instance: DagsterInstance) -> None:
    harness = LocationHarness(Home(folder=tmp_path), instance, BATCHES)
    graph = build_definitions(settings=harness.settings).resolve_asset_graph()
    kinds = {key.path[-1]: graph.get(key).kinds for key in graph.get_all_asset_keys() if key.path[0] == "here"}
    assert kinds == {
        "orders": {"feed", "csv"},
        "approval": {"feed", "signal"},
        "rates": {"feed", "signal"},
        "loaded": {"batch", "parquet", "python", "spark"},
    }


@pytest.mark.filterwarnings("ignore:.* is currently in beta")
def test_a_condition_of_users_below_a_batch_asks_for_what_the_batch_has_made(
    tmp_path: Path, instance: DagsterInstance
) -> None:
    harness = LocationHarness(Home(folder=tmp_path), instance, BATCHES)
    loaded = AssetKey(["here", "loaded"])
    ours = build_definitions(settings=harness.settings)
    partitions = ours.resolve_asset_graph().get(loaded).partitions_def
    assert isinstance(partitions, dg.DynamicPartitionsDefinition)

    @dg.asset(deps=[loaded], partitions_def=partitions, automation_condition=dg.AutomationCondition.eager())
    def report() -> None: ...

    defs = dg.Definitions.merge(ours, dg.Definitions(assets=[report]))
    asked = dg.evaluate_automation_conditions(defs=defs, instance=instance)
    assert asked.total_requested == 0
    batch = "2026-01-01-12:05:00"
    instance.add_dynamic_partitions(str(partitions.name), [batch])
    instance.report_runless_asset_event(AssetMaterialization(loaded, partition=batch))
    asked = dg.evaluate_automation_conditions(defs=defs, instance=instance, cursor=asked.cursor)
    assert asked.get_requested_partitions(AssetKey("report")) == {batch}
    assert asked.get_requested_partitions(loaded) == set()
    again = dg.evaluate_automation_conditions(defs=defs, instance=instance, cursor=asked.cursor)
    assert again.total_requested == 0


def test_a_quiet_tick_says_what_the_longest_queue_lacks(tmp_path: Path, instance: DagsterInstance) -> None:
    harness = LocationHarness(Home(folder=tmp_path), instance, BATCHES)
    harness.tick()
    notify(harness, "approval")
    harness.tick()
    said = harness.tick().skip_reason
    assert said is not None
    assert said.skip_message is not None
    assert "process load on here has 1 pending event: 1 of 2; orders lacks an event" in said.skip_message


def test_a_list_of_what_comes_as_it_comes_begins_with_the_newest_however_old(harness: LocationHarness) -> None:
    for hours in (3, 2, 1):
        notify(harness, "approval", NOON - timedelta(hours=hours))
    database = harness.runtime.database(harness.instance)
    context = build_context(harness.runtime, harness.runtime.timeline(harness.location), database, NOON)
    times = [
        each.nominal_time for each in list_feed(context, resolve_subject(context, "approval"), results=2).instances
    ]
    assert times == [NOON - timedelta(hours=2), NOON - timedelta(hours=1)]
    assert list_feed(context, resolve_subject(context, "approval"), results=2, look=True).instances
    (why,) = explain(context, resolve_subject(context, "approval", NOON - timedelta(minutes=1))).items
    assert "nobody has given notice of it" in why.render()
    query = query_of(context, "approval", results=2)
    assert [row.nominal_time for row in list_instances(context, query).instances] == times[::-1]


def test_what_is_taken_from_an_inbox_takes_part_in_triggers_but_not_in_safe_mode(
    tmp_path: Path, instance: DagsterInstance
) -> None:
    with_inbox = BATCHES.replace("name: orders\n", "name: orders\n    inbox: {directory: /in}\n", 1)
    harness = LocationHarness(Home(folder=tmp_path), instance, with_inbox)
    harness.tick()
    put(harness, "a.csv"), put(harness, "b.csv")
    notify(harness, "approval")
    switch_safe_mode(harness, on=True)
    harness.at(NOON + timedelta(minutes=1))
    assert [asset for asset, _ in materialized(harness.tick())] == ["here/approval"]
    switch_safe_mode(harness, on=False)
    harness.at(NOON + timedelta(minutes=2))
    result = harness.tick()
    assert ("here/orders", "2026-01-01-12:07:00") in materialized(result)
    assert [request.partition_key for request in result.run_requests or []] == ["2026-01-01-12:07:00"]
    assert list((harness.home.data / "in").iterdir()) == []
    (why, *_) = about(explain, context_of(harness), "orders", NOON - timedelta(seconds=1)).items
    assert "nobody has given notice of it, and nothing was taken from" in why.render()


def put(harness: LocationHarness, name: str) -> None:
    """Put a file into the inbox that was written long ago."""
    file = harness.home.data / "in" / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"n\n{name}\n")
    os.utime(file, (0, 0))


def switch_safe_mode(harness: LocationHarness, *, on: bool) -> None:
    set_safe_mode(context_of(harness).database, is_on=on, author="ann", now=NOON)
