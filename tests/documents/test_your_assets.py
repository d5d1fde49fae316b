"""The project of docs/your-assets.md: its files are written as they stand there, and run."""

import re
import sys
from pathlib import Path

import pytest
from dagster import AssetKey, DagsterInstance, Definitions

from feed_assets.orchestration.user_assets.values import Form
from tests.documents.markdown import ROOT, codes, tables_of
from tests.orchestration.dagster_home import Home, materialized, open_dagster, wait_until

PAGE = ROOT / "docs" / "your-assets.md"
FILE = re.compile(r"^`([\w./]+)`:\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)  # `count.sql`: ```sql … ```
DAY = "2026-01-03"

pytestmark = pytest.mark.filterwarnings("ignore::dagster.BetaWarning")


def write_project(folder: Path) -> None:
    for name, content in FILE.findall(PAGE.read_text("utf-8")):
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


@pytest.mark.daemon
@pytest.mark.spark
def test_a_daemon_takes_the_orders_of_an_asset_to_the_report_of_another(tmp_path: Path) -> None:
    home = Home(folder=tmp_path)
    home.prepare("", "")
    (tmp_path / "entities" / "all.yaml").unlink()
    write_project(tmp_path)

    def dagster(name: str) -> None:
        done = home.run("asset", "materialize", "-f", "definitions.py", "--select", f"team/{name}", "--partition", DAY)
        assert done.returncode == 0, done.stderr

    dagster("orders")
    with home.instance() as instance, home.daemon():
        wait_until(lambda: DAY in materialized(instance, "primary", "counts"), home.log)
        assert materialized(instance, "primary", "orders") == {DAY}
        dagster("raw")
        dagster("report")
        assert best(instance) == "ann"


def best(instance: DagsterInstance) -> object:
    event = instance.get_latest_materialization_event(AssetKey(["team", "report"]))
    assert event is not None
    assert event.asset_materialization is not None
    return event.asset_materialization.metadata["best"].value
