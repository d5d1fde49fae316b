"""What Dagster is told of the quality of instances: a check with one evaluation for each partition and attempt."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from feed_assets import build_definitions
from feed_assets.settings import load_settings
from tests.orchestration.dagster_home import Home
from tests.orchestration.in_process import Materializer, materializer
from tests.orchestration.small import ENTITIES, key, land
from tests.orchestration.test_definitions import VALIDITY, built, cluster, feed, mapping, output, process

JOBS = """
def summing(numbers):
    return numbers.withColumnRenamed("n", "total")
"""
QUALITY = (
    '    schema: "total bigint"\n    quality: {rules: {positive: "total > 0"}, threshold: 95, quarantine: rejects}\n'
)
REJECTS = """
    ---
    kind: feed
    name: rejects
    frequency: hours(1)
    format: json
    locations: {data: "/rejects/${YEAR}-${MONTH}-${DAY}/${HOUR}"}
    clusters: {here: {validity: {start: 2026-01-01T00:00Z, end: 2026-01-02T00:00Z}}}
"""
SUMS, BAD_ROWS = dg.AssetKey(["here", "sums"]), dg.AssetKey(["here", "rejects"])


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(folder=tmp_path)
    made.prepare(ENTITIES.replace('    schema: "total bigint"\n', QUALITY) + REJECTS, JOBS)
    return made


@pytest.fixture
def made(home: Home, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[Materializer]:
    with home.instance() as instance, materializer(home, instance, spark, monkeypatch) as made:
        yield made


def evaluations(done: dg.ExecuteInProcessResult) -> dict[str | None, tuple[bool, str | None]]:
    return {each.partition: (each.passed, each.description) for each in done.get_asset_check_evaluations()}


@pytest.mark.spark
def test_each_partition_has_its_evaluation_and_too_many_bad_rows_are_not_published(
    home: Home, made: Materializer
) -> None:
    land(home.data, 0, *range(-29, 971))
    land(home.data, 1, *range(-59, 941))
    done = made.run(key(0), key(1))
    assert not done.success
    assert evaluations(done) == {
        key(0): (True, "970 of 1,000 rows are good (97 %), 95 % must be; broken: positive 30"),
        key(1): (False, "940 of 1,000 rows are good (94 %), 95 % must be; broken: positive 60"),
    }
    assert made.instance.get_materialized_partitions(SUMS) == {key(0)}
    assert made.instance.get_materialized_partitions(BAD_ROWS) == {key(0), key(1)}
    (told,) = made.instance.fetch_materializations(SUMS, limit=1).records
    assert told.asset_materialization is not None
    metadata = told.asset_materialization.metadata
    assert (metadata["feed_assets/rows"].value, metadata["quality/rule.positive"].value) == (970, 30)

    land(home.data, 1, *range(1, 11))
    again = made.run(key(1))
    assert again.success
    assert evaluations(again) == {key(1): (True, "10 of 10 rows are good (100 %), 95 % must be")}
    assert made.instance.get_materialized_partitions(SUMS) == {key(0), key(1)}


HELD = {"quality": {"rules": {"positive": "n > 0"}, "quarantine": "rejects"}}


def test_a_quarantine_is_an_asset_below_the_feed_and_no_run_has_to_select_it() -> None:
    made = process("summing", {}, output("sums"))
    definitions = built(feed("sums", **HELD), feed("rejects", schema=None), made)
    graph = definitions.resolve_asset_graph()
    assert graph.get(BAD_ROWS).parent_keys == {SUMS}
    assert not graph.get(BAD_ROWS).is_executable
    found = mapping(definitions, BAD_ROWS.path, SUMS.path)
    assert isinstance(found, dg.TimeWindowPartitionMapping)
    assert (found.start_offset, found.end_offset) == (0, 0)
    described = "- **Quality**: `n > 0` (positive); 100 % of the rows; bad rows go to rejects"
    assert described in (graph.get(SUMS).description or "").splitlines()
    assert graph.get(SUMS).execution_set_entity_keys == {SUMS, dg.AssetCheckKey(SUMS, "quality")}


def test_a_quarantine_is_below_a_process_that_is_an_asset_of_its_own() -> None:
    made = process("summing", {}, output("sums", "yesterday(0,0)"))
    graph = built(feed("sums", **HELD), feed("rejects", schema=None), made).resolve_asset_graph()
    assert graph.get(BAD_ROWS).parent_keys == graph.get(SUMS).parent_keys == {dg.AssetKey(["here", "summing"])}


def test_a_replica_has_no_check_of_its_quality_as_nothing_looks_at_its_rows_again() -> None:
    copied = {"here": {"type": "source", "validity": VALIDITY}, "there": {"type": "target", "validity": VALIDITY}}
    held = feed("sums", quality={"rules": {"positive": "n > 0"}}, clusters=copied)
    entities = [cluster(), cluster("there", "memory://other"), held, process("summing", {}, output("sums"))]
    graph = build_definitions(entities, settings=load_settings(environ={})).resolve_asset_graph()
    keys = {key.asset_key.path[0] for key in graph.asset_check_keys if key.name == "quality"}
    assert keys == {"here"}
