"""A translator decides how feeds and processes look in Dagster, and its keys hold everywhere."""

import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import dagster as dg
import pytest
from dagster import AssetKey, AssetObservation, AssetSpec, DagsterInstance
from pyspark.sql import SparkSession

from feed_assets import (
    FeedAssetsTranslator,
    FeedAssetsTranslatorData,
    build_assets,
    build_definitions,
    get_asset_key,
)
from feed_assets.context.operation import OperationContext, resolve_subject
from feed_assets.entities.bundle import AnyEntity
from feed_assets.entities.common import Kind
from feed_assets.entities.errors import DefinitionsError
from feed_assets.explain.explanations import explain_process_instances
from feed_assets.log.records import ProcessKey
from feed_assets.masking import remember_unnamed
from feed_assets.orchestration.location.asset_places import find_places
from feed_assets.orchestration.location.reloading import follow_definitions
from feed_assets.orchestration.sensors.overdue_notices import build_observations
from feed_assets.plan.location import load_location
from feed_assets.settings import load_settings
from feed_assets.testing.projects import GivenSpark
from tests.orchestration.dagster_home import Home
from tests.orchestration.hand_ticked import NOON, LocationHarness
from tests.orchestration.small import START, key, land
from tests.orchestration.test_definitions import cluster, feed, output, process, window


class Lake(FeedAssetsTranslator):
    """All below one prefix, with what a team adds."""

    def get_asset_spec(self, data: FeedAssetsTranslatorData) -> AssetSpec:
        spec = super().get_asset_spec(data)
        return spec.replace_attributes(
            key=AssetKey(["lake", data.kind, data.name]),
            group_name="lake",
            description=f"{data.name} of {data.cluster}",
            automation_condition=dg.AutomationCondition.eager() if data.engine else None,
        ).merge_attributes(tags={"tier": "gold"}, owners=["team:lake"], kinds={"lake"}, metadata={"url": data.url})


SUMS = AssetKey(["lake", "feed", "sums"])
NUMBERS = AssetKey(["lake", "feed", "numbers"])


def declared(*more: AnyEntity) -> list[AnyEntity]:
    yesterday = process("late", window("a", "today(0,0)", "today(0,0)"), output("c", "yesterday(0,0)"))
    own = process("p", window("a", "today(0,0)", "today(0,0)"), output("b"))
    return [cluster(), feed("a", description="What arrives."), feed("b"), feed("c"), own, yesterday, *more]


def built(translator: FeedAssetsTranslator) -> dg.Definitions:
    definitions = build_definitions(declared(), settings=load_settings(environ={}), translator=translator)
    dg.Definitions.validate_loadable(definitions)
    return definitions


def test_a_translator_changes_what_dagster_shows_and_edges_follow() -> None:
    definitions = built(Lake())
    graph = definitions.resolve_asset_graph()
    arrived, made, own = (AssetKey(["lake", *key]) for key in (("feed", "a"), ("feed", "b"), ("process", "late")))
    assert graph.get(made).parent_keys == graph.get(own).parent_keys == {arrived}
    assert graph.get(AssetKey(["lake", "feed", "c"])).parent_keys == {own}
    node = graph.get(made)
    assert (node.group_name, node.description, node.owners) == ("lake", "b of here", ["team:lake"])
    assert {"lake", "csv", "spark", "python"} == node.kinds
    assert node.tags["tier"] == "gold"
    assert node.automation_condition is not None
    assert node.metadata["url"] == "memory://shop/b/${YEAR}/${MONTH}/${DAY}"
    assert (node.metadata["feed_assets/feed"], node.metadata["feed_assets/made_by"]) == ("b", "p")


def test_the_asset_of_a_feed_or_process_is_found_by_its_name() -> None:
    for found in (built(Lake()), build_assets(declared(), settings=load_settings(environ={}), translator=Lake())):
        assert get_asset_key(found, "a", "here") == AssetKey(["lake", "feed", "a"])
        assert get_asset_key(found, "late", "here", kind="process") == AssetKey(["lake", "process", "late"])
    plain = built(FeedAssetsTranslator())
    assert get_asset_key(plain, "late", "here", kind="process") == AssetKey(["here", "late"])
    for wrong, hint in (
        (("p", "here", "process"), "Its assets are the feeds that it writes; ask for feed 'b'."),
        (("a", "there", "feed"), "It is on here."),
        (("lat", "here", "process"), "Did you mean 'late'?"),
        (("zzz", "here", "feed"), "feed-assets validate"),
    ):
        with pytest.raises(DefinitionsError, match="it has no asset") as refusal:
            get_asset_key(plain, *wrong[:2], kind=wrong[2])
        assert hint in str(refusal.value)


def test_assets_alone_bring_their_resources_and_can_be_materialized_by_other_definitions() -> None:
    assets = build_assets(declared(), settings=load_settings(environ={}))
    definitions = dg.Definitions(assets=assets, executor=dg.in_process_executor)
    dg.Definitions.validate_loadable(definitions)
    assert not definitions.sensors
    replaced = build_assets(declared(), settings=load_settings(environ={}), resources={"spark_here": object()})
    dg.Definitions.validate_loadable(dg.Definitions(assets=replaced))


def test_a_subclass_can_be_tried_on_data_of_ones_own() -> None:
    data = FeedAssetsTranslatorData(
        kind="feed",
        name="clicks",
        cluster="here",
        frequency="days(1)",
        timezone="UTC",
        asset_key=AssetKey(["here", "clicks"]),
        format="csv",
    )
    assert Lake().get_asset_spec(data).key == AssetKey(["lake", "feed", "clicks"])


class Partitioned(FeedAssetsTranslator):
    def get_asset_spec(self, data: FeedAssetsTranslatorData) -> AssetSpec:
        return super().get_asset_spec(data).replace_attributes(partitions_def=None)


class Dependent(FeedAssetsTranslator):
    def get_asset_spec(self, data: FeedAssetsTranslatorData) -> AssetSpec:
        return super().get_asset_spec(data).merge_attributes(deps=["mine"])


class Forgetful(FeedAssetsTranslator):
    def get_asset_spec(self, data: FeedAssetsTranslatorData) -> AssetSpec:
        super().get_asset_spec(data)
        return None  # type: ignore[return-value]


class Failing(FeedAssetsTranslator):
    def get_asset_spec(self, data: FeedAssetsTranslatorData) -> AssetSpec:
        raise KeyError(data.tags["team"])


class Flat(FeedAssetsTranslator):
    def get_asset_spec(self, data: FeedAssetsTranslatorData) -> AssetSpec:
        return super().get_asset_spec(data).replace_attributes(key=AssetKey("one"))


@pytest.mark.parametrize(
    ("translator", "told"),
    [
        (Partitioned(), "feed 'a' on cluster 'here': the translator Partitioned changes the partitions, which are the"),
        (Dependent(), "feed 'a' on cluster 'here': the translator Dependent adds dependencies, which follow from the"),
        (Forgetful(), "feed 'a' on cluster 'here': the translator Forgetful returns NoneType. Return an AssetSpec"),
        (Failing(), "feed 'a' on cluster 'here': the translator Failing raises KeyError: 'team'. Correct the"),
        (Flat(), "asset key one: feed 'a' on cluster 'here' and feed 'b' on cluster 'here' both have it. Let the"),
    ],
)
def test_what_follows_from_the_entities_is_not_the_translators(translator: FeedAssetsTranslator, told: str) -> None:
    with pytest.raises(DefinitionsError) as refusal:
        built(translator)
    assert str(refusal.value).startswith(told)


def test_what_a_translator_takes_away_that_names_the_entity_is_restored() -> None:
    class Bare(FeedAssetsTranslator):
        def get_asset_spec(self, data: FeedAssetsTranslatorData) -> AssetSpec:
            return AssetSpec(data.asset_key, partitions_def=data.partitions_def)

    assert get_asset_key(built(Bare()), "a", "here") == AssetKey(["here", "a"])


def test_sensors_events_and_observations_use_the_keys_of_the_translator(
    tmp_path: Path, instance: DagsterInstance
) -> None:
    harness = LocationHarness(Home(folder=tmp_path), instance, translator=Lake())
    land(harness.home.data, 0, 1)
    result = harness.tick()
    assert [each.asset_selection for each in result.run_requests or ()] == [[SUMS]]
    told_of = {each.asset_key for each in result.asset_events if isinstance(each, dg.AssetMaterialization)}
    assert told_of == {NUMBERS}
    database = harness.runtime.database(instance)
    context = OperationContext(
        timeline=harness.runtime.timeline(),
        database=database,
        stores=harness.runtime.stores,
        as_of=NOON,
        clock=harness.runtime.clock,
        real_clock=harness.runtime.clock,
    )
    shown = [
        find_places(
            replace(context, webserver="http://dagster.example/"), resolve_subject(context, name, at, kind=kind)
        )
        for name, kind in (("numbers", Kind.FEED), ("summing", Kind.PROCESS))
        for at in (None, START, NOON + timedelta(hours=1))
    ]
    assert [each.asset for (each,) in shown] == ["lake/feed/numbers"] * 3 + ["lake/feed/sums"] * 3
    numbers, sums = ("http://dagster.example/assets/lake/feed/" + each for each in ("numbers", "sums"))
    at_first = f"?view=partitions&partition={key(0).replace(':', '%3A')}"
    assert [each.url for (each,) in shown] == [numbers, numbers + at_first, numbers, sums, sums + at_first, sums]
    waiting = ProcessKey("summing", "here", START)
    with context.read() as connection:
        (explained,) = explain_process_instances(context, connection, [waiting]).values()
    told = [*build_observations(harness.layout, explained)]
    assert [(each.asset_key, each.partition) for each in told] == [(SUMS, key(0))]
    assert all(isinstance(each, AssetObservation) for each in told)


def test_definitions_that_the_translator_refuses_keep_the_previous_ones(
    tmp_path: Path, instance: DagsterInstance, caplog: pytest.LogCaptureFixture
) -> None:
    class Known(FeedAssetsTranslator):
        def get_asset_spec(self, data: FeedAssetsTranslatorData) -> AssetSpec:
            keys = {"numbers": "n", "sums": "s"}
            return super().get_asset_spec(data).replace_attributes(key=keys[data.name])

    harness = LocationHarness(Home(folder=tmp_path), instance, translator=Known())
    harness.tick()
    file = harness.home.folder / "entities" / "all.yaml"
    file.write_text(file.read_text().replace("name: sums", "name: totals").replace("feed: sums", "feed: totals"))
    runtime, database = harness.runtime, harness.runtime.database(instance)
    runtime.reload = lambda: load_location(harness.settings)
    runtime.revision = -1
    active = follow_definitions(runtime, harness.layout, database)
    assert ("sums", "here") in active.plan.feeds
    assert active.layout.feed_asset(("sums", "here"))[0] == AssetKey("s")
    assert "feed 'totals' on cluster 'here': the translator" in caplog.text


def test_data_tell_no_secrets() -> None:
    seen: list[FeedAssetsTranslatorData] = []

    class Watching(FeedAssetsTranslator):
        def get_asset_spec(self, data: FeedAssetsTranslatorData) -> AssetSpec:
            seen.append(data)
            return super().get_asset_spec(data)

    remember_unnamed("hunter2secret")
    leaky = feed(
        "d", description="hunter2secret", tags={"x": "hunter2secret"}, path="/hunter2secret/${YEAR}/${MONTH}/${DAY}"
    )
    build_definitions([cluster(), leaky], settings=load_settings(environ={}), translator=Watching())
    assert "hunter2secret" not in repr(seen)


@pytest.mark.spark
def test_a_run_reports_by_the_translators_key_and_a_users_check_follows_in_the_same_run(
    tmp_path: Path, instance: DagsterInstance, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = LocationHarness(Home(folder=tmp_path), instance)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "jobs_of_test", raising=False)
    land(harness.home.data, 0, 1, 2)
    resources = {"spark_here": GivenSpark(spark)}
    feeds = build_definitions(settings=harness.settings, resources=resources, translator=Lake(), executor=None)

    @dg.asset_check(asset=get_asset_key(feeds, "sums", "here"), blocking=True)
    def sums_are_there(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        there = context.instance.get_materialized_partitions(SUMS)
        return dg.AssetCheckResult(passed=context.partition_key in there)

    made = dg.Definitions.merge(feeds, dg.Definitions(asset_checks=[sums_are_there]))
    result = made.resolve_implicit_global_asset_job_def().execute_in_process(
        asset_selection=[SUMS], partition_key=key(0), instance=instance
    )
    assert instance.get_materialized_partitions(SUMS) == {key(0)}
    (evaluation,) = result.get_asset_check_evaluations()
    assert (evaluation.asset_key, evaluation.passed) == (SUMS, True)
    sys.modules.pop("jobs_of_test", None)
