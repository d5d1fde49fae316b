"""docs/your-code.md: its program loads, merges, and does what the page says."""

import warnings
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster import AssetKey, AssetMaterialization, DagsterInstance
from dagster._core.definitions.sensor_definition import SensorResult

from feed_assets.orchestration.sensors.building import IN_PROCESS, in_one_process
from tests.documents.markdown import ROOT, fences
from tests.orchestration.dagster_home import open_dagster

PAGE = ROOT / "docs/your-code.md"
ORDERS, REVENUE, REPORT = AssetKey(["shop", "orders"]), AssetKey(["shop", "revenue"]), AssetKey("report")

pytestmark = [pytest.mark.filterwarnings("ignore:.* is currently in (beta|preview)")]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """The names of the page's program after it has run."""
    folder = tmp_path_factory.mktemp("shop")
    (entities,) = fences(PAGE, "yaml")
    (folder / "entities").mkdir()
    (folder / "entities" / "shop.yaml").write_text(entities)
    (folder / "feed_assets.yaml").write_text(f"variables: {{DATA_ROOT: {folder}}}\n")
    names: dict[str, object] = {"__file__": str(folder / "definitions.py"), "__name__": "definitions"}
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as environment:
        warnings.simplefilter("ignore", dg.BetaWarning)
        environment.delenv("FEED_ASSETS_ENTITIES", raising=False)
        for body in fences(PAGE, "python"):
            exec(compile(body, str(PAGE), "exec", dont_inherit=True), names)
    return names


@pytest.fixture(scope="module")
def defs(program: dict[str, object]) -> dg.Definitions:
    found = program["defs"]
    assert isinstance(found, dg.Definitions)
    dg.Definitions.validate_loadable(found)
    return found


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[DagsterInstance]:
    with open_dagster(tmp_path / "instance") as made:
        yield made


def test_everything_is_in_one_graph_and_named_by_the_translator(defs: dg.Definitions) -> None:
    graph = defs.resolve_asset_graph()
    assert graph.get(REVENUE).parent_keys == {ORDERS}
    assert graph.get(REPORT).parent_keys == {REVENUE}
    node = graph.get(ORDERS)
    assert (node.group_name, node.owners) == ("shop", ["team:shop"])
    assert {"tier": "gold", "domain": "sales"}.items() <= node.tags.items()
    assert node.freshness_policy is not None
    assert {"arrival_primary", "default_automation_condition_sensor"} <= {
        sensor.name for sensor in defs.get_repository_def().sensor_defs
    }


def test_a_condition_on_an_asset_below_sees_what_is_published(defs: dg.Definitions, instance: DagsterInstance) -> None:
    day = defs.resolve_asset_graph().get(REPORT).partitions_def.get_last_partition_key()  # type: ignore[union-attr]
    asked = dg.evaluate_automation_conditions(defs=defs, instance=instance)
    instance.report_runless_asset_event(AssetMaterialization(REVENUE, partition=day))
    asked = dg.evaluate_automation_conditions(defs=defs, instance=instance, cursor=asked.cursor)
    assert asked.get_requested_partitions(REPORT) == {day}


def test_a_check_of_ones_own_runs_on_a_feed_from_outside(defs: dg.Definitions, instance: DagsterInstance) -> None:
    job = defs.resolve_job_def("order_checks").with_executor_def(dg.in_process_executor)
    for arrived, newest in (([], "none"), (["2026-01-02", "2026-01-03"], "2026-01-03")):
        for day in arrived:
            instance.report_runless_asset_event(AssetMaterialization(ORDERS, partition=day))
        (evaluation,) = job.execute_in_process(instance=instance).get_asset_check_evaluations()
        assert (evaluation.passed, evaluation.metadata["newest"].value) == (bool(arrived), newest)


def test_the_executor_is_the_projects_and_requested_runs_work_in_one_process_where_they_can(
    defs: dg.Definitions,
) -> None:
    asked = SensorResult(run_requests=[dg.RunRequest(run_key="a", asset_selection=[REVENUE])])
    assert defs.executor is None
    (request,) = in_one_process(asked, defs.get_repository_def()).run_requests or ()
    assert request.run_config == IN_PROCESS
    other = dg.Definitions.merge(defs, dg.Definitions(executor=dg.in_process_executor))
    (request,) = in_one_process(asked, other.get_repository_def()).run_requests or ()
    assert not request.run_config


def test_what_both_have_is_refused_by_name(defs: dg.Definitions) -> None:
    @dg.sensor(name="arrival_primary", target="report")
    def clash() -> None: ...

    with pytest.raises(dg.DagsterInvalidDefinitionError, match="arrival_primary"):
        dg.Definitions.merge(defs, dg.Definitions(sensors=[clash])).get_repository_def()
    with pytest.raises(dg.DagsterInvariantViolationError, match="spark_primary"):
        dg.Definitions.merge(defs, dg.Definitions(resources={"spark_primary": object()}))
    with pytest.raises(dg.DagsterInvalidDefinitionError, match="revenue"):
        dg.Definitions.merge(defs, dg.Definitions(assets=[dg.AssetSpec(REVENUE)])).get_repository_def()
