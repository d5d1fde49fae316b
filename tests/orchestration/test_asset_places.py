"""Where Dagster shows an instance, as ticks note it, is where it is."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from textwrap import dedent

import dagster as dg
import pytest
from dagster import DagsterInstance

from feed_assets.context.operation import OperationContext, resolve_subject
from feed_assets.entities.common import Kind
from feed_assets.instances.arrival.arrival_notices import Notice, record_notice
from feed_assets.log.cursors import Cursors
from feed_assets.orchestration.graph.translator import FeedAssetsTranslator, FeedAssetsTranslatorData
from feed_assets.orchestration.location.asset_places import ShownAsset, find_places
from feed_assets.orchestration.location.reloading import build_context
from tests.orchestration.dagster_home import Home
from tests.orchestration.hand_ticked import NOON, LocationHarness
from tests.orchestration.small import CLUSTER

FEEDS = {
    "hourly": "frequency: hours(1)",
    "quarters": "frequency: minutes(15)",
    "odd": "frequency: minutes(7)",
    "daily": "frequency: days(1), timezone: Europe/Berlin",
    "monthly": "frequency: months(1), timezone: Asia/Kolkata",
    "second": "frequency: days(2), timezone: America/New_York",
}
VALID = "clusters: {here: {validity: {start: 2025-10-01T04:30Z}}}"
PATH = "${YEAR}-${MONTH}-${DAY}/${HOUR}${MINUTE}"
DECLARED = dedent(CLUSTER) + "".join(
    f"---\n{{kind: feed, name: {each}, {timing}, locations: {{data: '/{each}/{PATH}'}}, {VALID}}}\n"
    for each, timing in {**FEEDS, "approval": "signal: true"}.items()
).replace("locations: {data: '/approval/" + PATH + "'}, ", "")
Find = Callable[..., tuple[ShownAsset, ...]]


def context_of(harness: LocationHarness) -> OperationContext:
    database = harness.runtime.database(harness.instance)
    return build_context(harness.runtime, harness.runtime.timeline(harness.location), database, NOON)


def find_in(harness: LocationHarness) -> Find:
    context = replace(context_of(harness), webserver="http://dagster.example/")
    return lambda name, at=None: find_places(context, resolve_subject(context, name, at, kind=Kind.FEED))


@pytest.fixture
def harness(tmp_path: Path, instance: DagsterInstance) -> LocationHarness:
    return LocationHarness(Home(folder=tmp_path), instance, DECLARED)


def test_the_partition_of_an_instance_is_one_that_dagster_has(harness: LocationHarness) -> None:
    assert find_in(harness)("hourly") == ()
    harness.tick()
    find = find_in(harness)
    for name in FEEDS:
        record = harness.layout.plan.feeds[name, "here"]
        times = record.sequence
        newest = times.index_at_or_before(NOON)
        for at in map(times.at, {0, 1, newest // 2, newest - 1, newest}):
            (shown,), ((asset, key),) = find(name, at), harness.layout.find_partitions(Kind.FEED, record.key, at)
            assert (shown.asset, shown.partition) == ("/".join(asset.path), key)
            definition = harness.layout.grids[record.key].definition()
            if isinstance(definition, dg.TimeWindowPartitionsDefinition):
                assert key in definition.get_partition_keys(current_time=NOON)
        for at in (times.at(newest + 1), times.at(1) + timedelta(seconds=1), times.at(-1)):
            assert [(each.partition, each.url) for each in find(name, at)] == [
                (None, f"http://dagster.example/assets/here/{name}")
            ]


def test_of_what_comes_as_it_comes_there_is_a_partition_once_it_has_come(harness: LocationHarness) -> None:
    harness.tick()
    at = NOON - timedelta(seconds=7)
    assert [each.partition for each in find_in(harness)("approval", at)] == [None]
    record_notice(context_of(harness).by("ann"), Notice(feed="approval", nominal_time=at, cluster="here"))
    harness.tick()
    (shown,) = find_in(harness)("approval", at)
    grid = harness.layout.grids["approval", "here"]
    assert shown.partition == grid.key(at)


def test_what_dagster_has_loaded_anew_is_noted_anew(harness: LocationHarness) -> None:
    named = defaultdict(lambda: "lake-2.x", hourly="50%/a")

    class Renamed(FeedAssetsTranslator):
        def get_asset_spec(self, data: FeedAssetsTranslatorData) -> dg.AssetSpec:
            return super().get_asset_spec(data).replace_attributes(key=dg.AssetKey([named[data.name], data.name]))

    def noted() -> dict[str, str]:
        with harness.runtime.database(harness.instance).read() as connection:
            return Cursors(connection).with_prefix("assets/")

    harness.tick()
    assert set(noted()) == {f"here/feed/{name}" for name in (*FEEDS, "approval")}
    harness.translator = Renamed()
    (harness.home.folder / "entities" / "all.yaml").write_text(DECLARED.partition("---\n{kind: feed, name: second")[0])
    harness.reopen()
    harness.tick()
    found = {name: [(each.asset, each.url) for each in find_in(harness)(name)] for name in ("daily", "hourly")}
    assert found == {
        "daily": [("lake-2.x/daily", "http://dagster.example/assets/lake-2.x/daily")],
        "hourly": [("50%/a/hourly", None)],
    }
    assert set(noted()) == {f"here/feed/{name}" for name in FEEDS if name != "second"}
