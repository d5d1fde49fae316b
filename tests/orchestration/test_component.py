import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import dagster as dg
import pytest
import yaml
from dagster import AssetKey
from dagster.components.testing import create_defs_folder_sandbox

from feed_assets import FeedAssetsComponent
from feed_assets.entities.errors import DefinitionsError
from feed_assets.errors import SettingsError
from tests.documents.markdown import ROOT, fences

pytestmark = [  # what Dagster itself does with a defs.yaml
    pytest.mark.filterwarnings("ignore:`parse_obj_as` is deprecated"),
    pytest.mark.filterwarnings("ignore:.* is currently in beta"),
]

ENTITIES = """\
kind: cluster
name: primary
storage: file://${DATA_ROOT}
---
kind: feed
name: clicks
frequency: hours(1)
locations: {data: "/clicks/${YEAR}/${MONTH}/${DAY}/${HOUR}"}
clusters: {primary: {validity: {start: 2013-11-01T00:00Z}}}
"""


def component_yaml(attributes: Mapping[str, object]) -> dict[str, object]:
    return {"type": "feed_assets.FeedAssetsComponent", "attributes": dict(attributes)}


def load(attributes: Mapping[str, object], text: str = ENTITIES, settings: str | None = None) -> dg.Definitions:
    """The definitions of a project with one component whose entities stand beside its defs.yaml."""
    with create_defs_folder_sandbox() as sandbox:
        if settings is not None:
            (sandbox.project_root / "feed_assets.yaml").write_text(settings)
        folder = sandbox.scaffold_component(
            component_cls=FeedAssetsComponent, defs_yaml_contents=component_yaml(attributes)
        )
        for example in (folder / "entities").iterdir():
            example.unlink()
        (folder / "entities" / "clicks.yaml").write_text(text)
        with sandbox.load_component_and_build_defs(defs_path=folder) as (component, definitions):
            assert isinstance(component, FeedAssetsComponent)
            return definitions


def test_a_defs_yaml_declares_what_its_entities_folder_holds(tmp_path: Path) -> None:
    definitions = load({"entities": "./entities", "variables": {"DATA_ROOT": str(tmp_path)}})
    keys = definitions.resolve_all_asset_keys()
    assert AssetKey(["primary", "clicks"]) in keys
    assert "arrival_primary" in {sensor.name for sensor in definitions.sensors or ()}


def test_a_scaffolded_component_is_that_of_the_readme_and_loads_with_its_example() -> None:
    (shown,) = fences(ROOT / "docs" / "tour.md", "yml")
    with create_defs_folder_sandbox() as sandbox:
        folder = sandbox.scaffold_component(component_cls=FeedAssetsComponent)
        written = yaml.safe_load((folder / "defs.yaml").read_text())
        assert written["attributes"] == yaml.safe_load(shown)["attributes"]
        with sandbox.load_component_and_build_defs(defs_path=folder) as (_, definitions):
            assert AssetKey(["primary", "daily-revenue"]) in definitions.resolve_all_asset_keys()
        assert len(list((sandbox.project_root / "data" / "orders").glob("*/_SUCCESS"))) == 3


def test_settings_are_found_at_the_root_of_the_project(tmp_path: Path) -> None:
    definitions = load({"entities": "entities"}, settings=f"variables: {{DATA_ROOT: {tmp_path}}}\n")
    assert AssetKey(["primary", "clicks"]) in definitions.resolve_all_asset_keys()


def test_values_of_the_environment_can_be_templates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE", str(tmp_path))
    definitions = load({"entities": "entities", "variables": {"DATA_ROOT": "{{ env.LAKE }}"}})
    assert AssetKey(["primary", "clicks"]) in definitions.resolve_all_asset_keys()


def test_a_strict_component_refuses_a_wrong_entity_and_says_where(tmp_path: Path) -> None:
    wrong = ENTITIES.replace("hours(1)", "weeks(1)")
    attributes = {"entities": "entities", "variables": {"DATA_ROOT": str(tmp_path)}}
    assert AssetKey(["primary", "clicks"]) not in load(attributes, wrong).resolve_all_asset_keys()
    with pytest.raises(Exception) as refusal:
        load({**attributes, "strict": True}, wrong)
    assert isinstance(refusal.value.__cause__, DefinitionsError)
    assert "clicks.yaml:7: feed 'clicks': frequency" in str(refusal.value.__cause__)


def test_an_attribute_that_there_is_not_is_refused() -> None:
    with pytest.raises(Exception) as refusal:
        load({"entitles": "entities"})
    assert "entitles" in str(refusal.value.__cause__)


def test_a_wrong_setting_names_the_places_that_were_tried() -> None:
    with pytest.raises(Exception) as refusal:
        load({"entities": "entities"}, settings="strict: perhaps\n")
    assert isinstance(refusal.value.__cause__, SettingsError)
    assert "feed_assets.yaml" in str(refusal.value.__cause__)


def test_a_whole_project_loads_from_its_defs_folder(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[tool.dg]\ndirectory_type = "project"\n[tool.dg.project]\nroot_module = "lake"\n'
    )
    folder = tmp_path / "src" / "lake" / "defs" / "feeds"
    (folder / "entities").mkdir(parents=True)
    (tmp_path / "src" / "lake" / "__init__.py").touch()
    (tmp_path / "src" / "lake" / "defs" / "__init__.py").touch()
    (folder / "entities" / "clicks.yaml").write_text(ENTITIES)
    (folder / "defs.yaml").write_text(
        "type: feed_assets.FeedAssetsComponent\nattributes:\n  entities: ./entities\n"
        f"  variables: {{DATA_ROOT: {tmp_path}}}\n"
    )
    (tmp_path / "src" / "lake" / "definitions.py").write_text(
        "from pathlib import Path\nimport dagster as dg\n\n"
        "defs = dg.load_from_defs_folder(path_within_project=Path(__file__).parent)\n"
    )
    program = (
        "import lake.definitions as it; print(sorted(key.to_user_string() for key in it.defs.resolve_all_asset_keys()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path / "src",
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "['feed_assets/definitions', 'primary/clicks']"


def test_a_translation_names_and_describes_the_assets_by_templates(tmp_path: Path) -> None:
    attributes = {
        "entities": "entities",
        "variables": {"DATA_ROOT": str(tmp_path)},
        "translation": {
            "key": "lake/{{ data.cluster }}/{{ data.name }}",
            "group_name": "raw",
            "tags": {"engine": "{{ data.engine or 'none' }}"},
            "description": "{{ data.name }} every {{ data.frequency }} at {{ data.url }}",
        },
    }
    graph = load(attributes).resolve_asset_graph()
    node = graph.get(AssetKey(["lake", "primary", "clicks"]))
    assert (node.group_name, node.tags["engine"], node.kinds) == ("raw", "none", {"feed", "parquet"})
    assert (
        node.description == f"clicks every hours(1) at file://{tmp_path}/clicks/${{YEAR}}/${{MONTH}}/${{DAY}}/${{HOUR}}"
    )


def test_the_executor_is_the_one_of_the_project(tmp_path: Path) -> None:
    assert load({"entities": "entities", "variables": {"DATA_ROOT": str(tmp_path)}}).executor is None
