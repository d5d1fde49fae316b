"""Feeds that users' own assets produce: a materialization is an arrival, in the log, in the graph and in `why`."""

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
from dagster import AssetKey, AssetMaterialization, DagsterInstance, SensorResult
from dagster._core.definitions.assets.graph.asset_graph import AssetGraph

from feed_assets import Feed, build_definitions
from feed_assets.context.operation import open_context, resolve_subject
from feed_assets.explain.explanations import explain
from feed_assets.instances.late.store import LATE_DATA, LateChecks
from feed_assets.log.cursors import Cursors
from feed_assets.log.events import EventLog
from feed_assets.log.records import FeedEvent, FeedEventKind
from feed_assets.orchestration.errors import AssetClashError, ProducerError
from feed_assets.orchestration.user_assets import materializations
from feed_assets.orchestration.user_assets.materializations import ReaderPosition
from feed_assets.settings import load_settings
from tests.orchestration.dagster_home import Home
from tests.orchestration.hand_ticked import LocationHarness
from tests.orchestration.small import ENTITIES, START, key, land
from tests.orchestration.test_definitions import built, cluster, feed, mapping, output, process, window

ORDERS = AssetKey(["team", "orders"])
PRODUCED = ENTITIES.replace("{type: source, validity", "{produced_by: {asset: [team, orders]}, validity", 1)
AGES = timedelta(days=3650)
HOURLY = dg.HourlyPartitionsDefinition("2026-01-01-00:00")


@pytest.fixture
def harness(tmp_path: Path, instance: DagsterInstance) -> LocationHarness:
    """Numbers are made by the asset team/orders."""
    return LocationHarness(Home(folder=tmp_path), instance, PRODUCED)


def materialize(instance: DagsterInstance, *hours: int, asset: AssetKey = ORDERS, **metadata: object) -> None:
    for hour in hours:
        event = AssetMaterialization(asset, partition=key(hour), metadata=metadata, tags={"dagster/data_version": "v1"})
        instance.report_runless_asset_event(event)


def events(harness: LocationHarness) -> list[FeedEvent]:
    with harness.runtime.database(harness.instance).read() as connection:
        return list(EventLog(connection).read(0, 100))


def said(result: SensorResult) -> str:
    reason = result.skip_reason
    return reason.skip_message or "" if reason is not None else ""


def why(harness: LocationHarness, hour: int) -> str:
    context = open_context(harness.settings, harness.runtime.database(harness.instance))
    (found,) = explain(context, resolve_subject(context, "numbers", START + timedelta(hours=hour))).items
    return found.render()


def test_a_materialization_is_the_arrival_of_its_instance_and_what_waits_runs(
    harness: LocationHarness, instance: DagsterInstance
) -> None:
    land(harness.home.data, 1, 5)
    land(harness.home.data, 2, 6)
    assert not harness.tick().run_requests
    assert events(harness) == [], "nobody has said that they are there"
    materialize(instance, 1, **{"dagster/row_count": 1})
    result = harness.tick()
    assert [request.partition_key for request in result.run_requests or ()] == [key(1)]
    (event,) = events(harness)
    assert (event.kind, event.origin, event.nominal_time) == (
        FeedEventKind.ARRIVED,
        "asset:team/orders",
        START + timedelta(hours=1),
    )
    assert (event.payload["rows"], event.payload["data_version"]) == (1, "v1")
    (told,) = [each for each in result.asset_events if isinstance(each, AssetMaterialization)]
    assert (told.asset_key, told.partition) == (AssetKey(["here", "numbers"]), key(1))
    assert told.metadata["dagster/partition_row_count"].value == 1
    harness.tick()
    assert len(events(harness)) == 1


def test_what_was_materialized_before_the_feed_was_declared_has_arrived_too(
    harness: LocationHarness, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(materializations, "OVERLAP", 0)
    monkeypatch.setattr(materializations, "EVENTS_A_TICK", 2)
    for hour in range(5):
        land(harness.home.data, hour, hour)
    materialize(instance, *range(5))
    for _ in range(3):
        harness.tick()
    assert len(events(harness)) == 5


def test_a_report_of_the_feed_by_hand_is_contradicted_and_no_news_of_its_asset(
    harness: LocationHarness, instance: DagsterInstance
) -> None:
    harness.tick()
    materialize(instance, 1, asset=AssetKey(["here", "numbers"]))
    assert "without data" not in said(harness.tick())
    (told,) = instance.fetch_observations(AssetKey(["here", "numbers"]), limit=5).records
    assert told.asset_observation is not None
    assert "asset team/orders has not been materialized for it" in str(told.asset_observation.description)


def test_a_tick_reads_nothing_again_and_no_storage(harness: LocationHarness, instance: DagsterInstance) -> None:
    land(harness.home.data, 1, 5)
    materialize(instance, 1)
    harness.tick()
    with harness.runtime.database(instance).read() as connection:
        text = Cursors(connection).get("materializations/here")
    assert text is not None
    position = ReaderPosition.parse(text)
    assert position.behind == {}
    assert len(position.seen) == 1
    assert said(harness.tick()).startswith("nothing new")


def test_a_materialization_without_data_is_no_arrival_until_they_are_there(
    harness: LocationHarness, instance: DagsterInstance
) -> None:
    assert "asset team/orders has not been materialized for it" in why(harness, 1)
    remedy = """$ dagster asset materialize --select 'key:"team/orders"' --partition 2026-01-01-01:00"""
    assert remedy in why(harness, 1)
    materialize(instance, 1)
    assert "materialized without data: 1 instance of feed numbers on here, the oldest 2026-01-01T01:00Z" in said(
        harness.tick()
    )
    assert events(harness) == []
    assert "asset team/orders was materialized, but file://" in why(harness, 1)
    land(harness.home.data, 1, 5)
    harness.at(START + timedelta(days=3))
    assert "materialized without data" not in said(harness.tick())
    assert [event.nominal_time for event in events(harness)] == [START + timedelta(hours=1)]


def test_a_partition_without_an_instance_is_named(harness: LocationHarness, instance: DagsterInstance) -> None:
    land(harness.home.data, 1, 5)
    instance.report_runless_asset_event(AssetMaterialization(ORDERS, partition="2027-01-01-00:00"))
    instance.report_runless_asset_event(AssetMaterialization(ORDERS))
    materialize(instance, 1)
    result = harness.tick()
    (check,) = [each for each in result.asset_events if isinstance(each, dg.AssetCheckEvaluation)]
    failures = str(check.metadata["failures"].value)
    assert "was materialized for 2027-01-01-00:00, no partition, which feed 'numbers' has no instances for" in failures
    assert len(events(harness)) == 1, "the others arrive"


def graph_of(partitions: dg.PartitionsDefinition[str] | None, name: str = "orders") -> AssetGraph:
    @dg.asset(key=["team", name], partitions_def=partitions)
    def orders() -> None: ...

    return dg.Definitions([orders]).resolve_asset_graph()


@pytest.mark.parametrize(
    ("graph", "reason"),
    [
        (graph_of(dg.DailyPartitionsDefinition("2026-01-01")), "its partition keys have the form %Y-%m-%d in UTC"),
        (graph_of(None), "it has no partitions"),
        (graph_of(HOURLY, "orderz"), "this code location has no such asset, and it has never been materialized"),
    ],
)
def test_an_asset_that_does_not_fit_is_named_and_followed_once_it_does(
    graph: AssetGraph, reason: str, harness: LocationHarness, instance: DagsterInstance
) -> None:
    land(harness.home.data, 1, 5)
    result = harness.tick(graph)
    assert reason in said(result)
    assert "materializations fails since" in why(harness, 1)
    materialize(instance, 1)
    harness.at(START + timedelta(days=1))
    harness.tick(graph_of(HOURLY))
    assert len(events(harness)) == 1


def test_a_later_materialization_is_late_data_at_once(tmp_path: Path, instance: DagsterInstance) -> None:
    late = PRODUCED.replace("    format: csv", "    late_arrival: {cut_off: days(2)}\n    format: csv", 1)
    harness = LocationHarness(Home(folder=tmp_path), instance, late)
    land(harness.home.data, 1, 5)
    materialize(instance, 1)
    harness.tick()
    with harness.runtime.database(instance).begin() as connection:
        (check,) = LateChecks(connection).due(LATE_DATA, "here", datetime.max.replace(tzinfo=START.tzinfo), 9)
        LateChecks(connection).put([replace(check, due_at=START + timedelta(days=2))])
    materialize(instance, 1)
    harness.tick()
    with harness.runtime.database(instance).read() as connection:
        assert len(LateChecks(connection).due(LATE_DATA, "here", harness.runtime.clock.now(), 9)) == 1


def test_an_instance_that_is_made_ahead_arrives_at_its_time(
    harness: LocationHarness, instance: DagsterInstance
) -> None:
    land(harness.home.data, 20, 5)
    materialize(instance, 20)
    harness.tick()
    assert events(harness) == []
    harness.at(START + timedelta(hours=20, minutes=1))
    harness.tick()
    assert len(events(harness)) == 1


def test_the_asset_of_the_feeds_own_key_is_the_feed_and_hears_no_echo(
    tmp_path: Path, instance: DagsterInstance
) -> None:
    harness = LocationHarness(Home(folder=tmp_path), instance, PRODUCED.replace("[team, orders]", "[here, numbers]"))
    land(harness.home.data, 1, 5)
    materialize(instance, 1, asset=AssetKey(["here", "numbers"]))
    result = harness.tick()
    assert len(events(harness)) == 1
    assert not [each for each in result.asset_events if isinstance(each, AssetMaterialization)]


def produced(name: str, asset: list[str]) -> Feed:
    validity = {"start": "2026-01-01T00:00Z", "end": "2026-03-01T00:00Z"}
    return feed(name, clusters={"here": {"validity": validity, "produced_by": {"asset": asset}}})


def test_a_users_asset_stands_above_the_feed_with_its_partitions() -> None:
    graph = built(produced("a", ["team", "orders"])).resolve_asset_graph()
    assert graph.get(AssetKey(["here", "a"])).parent_keys == {ORDERS}
    found = mapping(built(produced("a", ["team", "orders"])), ["here", "a"], ["team", "orders"])
    assert isinstance(found, dg.TimeWindowPartitionMapping)
    assert (found.start_offset, found.end_offset) == (0, 0)


def test_assets_beside_the_location_are_checked_and_may_be_a_feed() -> None:
    def location(asset: list[str], partitions: dg.PartitionsDefinition[str], key: list[str]) -> dg.Definitions:
        @dg.asset(key=key, partitions_def=partitions)
        def orders() -> None: ...

        entities = [
            cluster(),
            produced("a", asset),
            feed("b"),
            process("p", window("a", "today(0,0)", "today(0,0)"), output("b")),
        ]
        return build_definitions(entities, settings=load_settings(environ={}), assets=[orders])

    daily = dg.DailyPartitionsDefinition("2026-01-01", end_offset=1)
    definitions = location(["here", "a"], daily, ["here", "a"])
    dg.Definitions.validate_loadable(definitions)
    assert definitions.resolve_asset_graph().get(AssetKey(["here", "a"])).is_materializable
    dg.Definitions.validate_loadable(location(["team", "orders"], daily, ["team", "orders"]))
    with pytest.raises(
        ProducerError, match=r"asset team/orders, which produces feed 'a': its partition keys have the form"
    ):
        location(["team", "orders"], HOURLY, ["team", "orders"])
    with pytest.raises(
        AssetClashError, match=r"two assets have the key here/b: the asset of feed 'b' and one of yours"
    ):
        location(["team", "orders"], daily, ["here", "b"])


def test_a_dependency_on_a_feed_that_is_not_there_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """Dagster makes an asset of every key of `deps`; it refuses only inputs. Keys beside the clusters are not ours."""

    @dg.asset(deps=[["here", "rates"], ["here", "ratez"], ["team", "orders"], ["here", "mine"], ["here", "x", "y"]])
    def report() -> None: ...

    @dg.asset(key=["here", "mine"])
    def mine() -> None: ...

    build_definitions([cluster(), feed("rates")], settings=load_settings(environ={}), assets=[report, mine])
    told = [each.getMessage() for each in caplog.records if "dependency" in each.getMessage()]
    assert told == [
        "a dependency of asset report: feed 'ratez' on cluster 'here': it has no asset. Did you mean 'rates'?"
    ]


@dg.asset(key=ORDERS, partitions_def=HOURLY)
def orders() -> None:
    """Make the orders."""


@dg.asset_check(asset=ORDERS, blocking=True)
def has_ids(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
    """Whether all orders have a number."""
    passed = context.run.tags.get("is_good") == "yes"
    return dg.AssetCheckResult(passed=passed, description="3 orders have none")


def make_orders(instance: DagsterInstance, hour: int, **tags: str) -> None:
    dg.materialize([orders, has_ids], instance=instance, partition_key=key(hour), tags=tags, raise_on_error=False)


def test_a_blocking_check_that_failed_stops_who_reads_the_feed(
    harness: LocationHarness, instance: DagsterInstance
) -> None:
    for hour in (1, 2):
        land(harness.home.data, hour, 5)
    make_orders(instance, 1)
    make_orders(instance, 2, is_good="yes")
    assert [request.partition_key for request in harness.tick().run_requests or ()] == [key(2)]
    assert "blocking check 'has_ids' has failed: 3 orders have none" in why(harness, 1)
    assert [event.nominal_time for event in events(harness)] == [START + timedelta(hours=2)]
    assert not harness.tick().run_requests
    make_orders(instance, 1, is_good="yes")
    harness.tick()
    assert "is AVAILABLE" in why(harness, 1)
    make_orders(instance, 2)
    harness.tick()
    assert "is PARTIAL" in why(harness, 2)


def test_a_materialization_is_no_arrival_while_its_checks_are_still_to_come(
    harness: LocationHarness, instance: DagsterInstance
) -> None:
    land(harness.home.data, 1, 5)
    seen = []

    @dg.asset_check(asset=ORDERS, blocking=True)
    def looks(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        seen.append(harness.tick().run_requests)
        return dg.AssetCheckResult(passed=True)

    dg.materialize([orders, looks], instance=instance, partition_key=key(1))
    assert seen == [[]] or seen == [None]
    assert [request.partition_key for request in harness.tick().run_requests or ()] == [key(1)]


def test_checks_that_do_not_end_are_told_and_awaited_for_a_day(
    harness: LocationHarness, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    land(harness.home.data, 1, 5)
    land(harness.home.data, 2, 6)
    looks = []  # Dagster's times are those of today, and the ticks of the first of January

    @dg.asset_check(asset=ORDERS, blocking=True)
    def hangs(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        materialize(instance, 2)
        monkeypatch.setattr(materializations, "CHECKS_TOLD_AFTER", -AGES)
        looks.append((harness.tick().run_requests, why(harness, 1)))
        monkeypatch.setattr(materializations, "CHECKS_AWAITED", -AGES)
        looks.append((harness.tick().run_requests, why(harness, 1)))
        return dg.AssetCheckResult(passed=True)

    run = dg.materialize([orders, hangs], instance=instance, partition_key=key(1)).run_id
    (waiting, told), (begun, refused) = looks
    assert not waiting
    assert f"run {run} has materialized asset team/orders, and its checks have not ended" in told
    assert [request.partition_key for request in begun or ()] == [key(2)]
    assert f"the checks of run {run} have not ended in" in refused
