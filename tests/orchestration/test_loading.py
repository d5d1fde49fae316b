import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
ENTITIES = """
kind: cluster
name: primary
storage: file:///data/primary
---
kind: feed
name: clicks
frequency: hours(1)
format: csv
locations: {data: "/clicks/${YEAR}/${MONTH}/${DAY}/${HOUR}"}
clusters: {primary: {validity: {start: 2013-11-01T00:00Z}}}
"""
LOAD = """
import json, sys
from dagster._core.definitions.definitions_load_context import DefinitionsLoadContext, DefinitionsLoadType
DefinitionsLoadContext.set(DefinitionsLoadContext(load_type=DefinitionsLoadType.RECONSTRUCTION))
from feed_assets import build_definitions
build_definitions().get_repository_def()
print(json.dumps(sorted(sys.modules)))
"""
"""Loads a location as a run does."""

DOOR = """
import json, sys
import feed_assets
for name in feed_assets.__all__:
    home = feed_assets._HOMES.get(name, "")
    if "orchestration" not in home and home != "feed_assets.engines.port":
        getattr(feed_assets, name)
import feed_assets.testing
print(json.dumps(sorted(sys.modules)))
"""


def modules_after_loading(project: Path, program: str = LOAD) -> set[str]:
    environ = {"DAGSTER_HOME": str(project), "FEED_ASSETS_ENTITIES": str(project / "entities"), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        cwd=project,
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_a_location_whose_plan_is_cached_is_loaded_without_what_parses_runs_and_keeps_records(tmp_path: Path) -> None:
    (tmp_path / "entities").mkdir()
    (tmp_path / "entities" / "all.yaml").write_text(ENTITIES)
    assert {"feed_assets.plan.compile", "feed_assets.validation.rules"} <= modules_after_loading(tmp_path)
    loaded = modules_after_loading(tmp_path)
    ours = {name.split(".")[1] for name in loaded if name.startswith("feed_assets.")}
    assert not loaded & {"pyspark", "dagster_pyspark", "py4j", "pandas"}
    assert not ours & {"validation", "definitions", "sql", "storage", "context", "instances", "releases", "log"}
    assert not loaded & {"sqlalchemy", "lark", "feed_assets.plan.compile", "feed_assets.loading.bundles"}


def test_the_door_and_the_test_kit_load_neither_dagster_nor_pyspark_nor_pytest(tmp_path: Path) -> None:
    loaded = modules_after_loading(tmp_path, DOOR)
    assert "feed_assets.entities.feed" in loaded
    assert not loaded & {"dagster", "dagster_shared", "pyspark", "py4j", "pandas", "pytest", "click"}
