"""The project of docs/your-assets.md: its files are written as they stand there, and run."""

import re
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from dagster import AssetKey, DagsterInstance, Definitions
from dagster.components.testing import create_defs_folder_sandbox

from feed_assets import FeedAssetsComponent
from feed_assets.orchestration.user_assets.values import Form
from tests.documents.markdown import ROOT, codes, tables_of
from tests.orchestration.dagster_home import Home, materialized, open_dagster, wait_until

PAGE = ROOT / "docs" / "your-assets.md"
FILE = re.compile(r"^`([\w./]+)`:\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)  # `count.sql`: ```sql … ```
DAY = "2026-01-03"

pytestmark = [
    pytest.mark.filterwarnings("ignore::dagster.BetaWarning"),
    pytest.mark.filterwarnings("ignore:`parse_obj_as` is deprecated"),
]


def write_project(folder: Path) -> None:
    for name, content in FILE.findall(PAGE.read_text("utf-8").partition("## With dbt")[0]):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)


def test_the_forms_are_those_that_the_page_names() -> None:
    (table,) = [each for each in tables_of("docs/your-assets.md") if each.header[1] == "`as_=`"]
    assert [code for row in table.rows for code in codes(row[1])] == [form.value for form in Form]


def test_the_assets_of_the_page_make_a_feed_and_read_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_project(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "definitions", raising=False)
    from definitions import defs  # type: ignore[attr-defined]

    sys.modules.pop("definitions")
    assert isinstance(defs, Definitions)
    graph = defs.resolve_asset_graph()
    assert graph.get(AssetKey(["primary", "orders"])).parent_keys == {AssetKey(["team", "orders"])}
    with open_dagster(tmp_path / "instance") as instance:
        made = materialize(defs, instance, "orders")
        assert made["dagster/row_count"] == 3
        assert sorted(each.name for each in (tmp_path / "data" / "orders" / DAY).iterdir()) == ["orders.csv"]
        assert materialize(defs, instance, "raw")["total"] == 13, "without a tick in between"


def materialize(defs: Definitions, instance: DagsterInstance, name: str) -> dict[str, object]:
    result = defs.resolve_implicit_global_asset_job_def().execute_in_process(
        asset_selection=[AssetKey(["team", name])], partition_key=DAY, instance=instance
    )
    (event,) = result.get_asset_materialization_events()
    return {key: value.value for key, value in event.materialization.metadata.items()}


@pytest.mark.drill
@pytest.mark.daemon
@pytest.mark.spark
def test_a_daemon_takes_the_orders_of_an_asset_to_the_report_of_another(tmp_path: Path) -> None:
    home = Home(folder=tmp_path)
    home.prepare("", "")
    (tmp_path / "entities" / "all.yaml").unlink()
    write_project(tmp_path)

    def dagster(*names: str) -> None:
        select = " or ".join(f'key:"team/{name}"' for name in names)
        done = home.run("asset", "materialize", "-f", "definitions.py", "--select", select, "--partition", DAY)
        assert done.returncode == 0, done.stderr

    dagster("orders")
    with home.instance() as instance, home.daemon():
        wait_until(lambda: DAY in materialized(instance, "primary", "counts"), home.log)
        assert materialized(instance, "primary", "orders") == {DAY}
        dagster("raw", "report")
        assert best(instance) == "ann"


def best(instance: DagsterInstance) -> object:
    event = instance.get_latest_materialization_event(AssetKey(["team", "report"]))
    assert event is not None
    assert event.asset_materialization is not None
    return event.asset_materialization.metadata["best"].value


def test_with_dbt_the_feeds_are_below_one_model_and_above_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = dict(FILE.findall(PAGE.read_text("utf-8")))
    shown = {name: yaml.safe_load(text) for name, text in files.items() if name.endswith("/defs.yaml")}
    monkeypatch.setenv("DATA_ROOT", str(tmp_path))
    with create_defs_folder_sandbox() as sandbox:
        contents = shown["defs/feeds/defs.yaml"]
        folder = sandbox.scaffold_component(component_cls=FeedAssetsComponent, defs_yaml_contents=contents)
        for example in (folder / "entities").iterdir():
            example.unlink()
        (folder / "entities" / "shop.yaml").write_text(with_orders_of_dbt(files))
        (sandbox.project_root / "count.sql").write_text(files["count.sql"])
        with sandbox.load_component_and_build_defs(defs_path=folder) as (_, defs):
            graph = defs.resolve_asset_graph()
    (source,) = yaml.safe_load(files["dbt/models/sources.yml"])["sources"]
    below = AssetKey(source["tables"][0]["meta"]["dagster"]["asset_key"])
    assert graph.get(AssetKey(["primary", "orders"])).parent_keys == {AssetKey("orders")}
    assert graph.get(below).parent_keys == {AssetKey(["primary", "orders"])}
    begins = shown["defs/warehouse/defs.yaml"]["attributes"]["translation"]["partitions_def"]
    partitions = graph.get(below).partitions_def
    assert partitions is not None
    assert partitions.get_first_partition_key() == begins["start_date"]


def with_orders_of_dbt(files: Mapping[str, str]) -> str:
    """The entities of the page, with the feed `orders` as its section about dbt has it."""
    kept = [text for text in files["entities/shop.yaml"].split("---\n") if "name: orders\n" not in text]
    return "---\n".join([*kept, files["defs/feeds/entities/orders.yaml"]])
