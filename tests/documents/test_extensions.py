"""docs/extensions.md: its recipe is registered, its job comes, changes and goes; its tables are those of the code."""

from pathlib import Path

import pytest
import yaml

from feed_assets.definitions.extensions.records import BUILD, ENTITIES, README, RECIPE, ParameterType, RecipeParameter
from feed_assets.definitions.extensions.store import GROUP
from tests.cli.project import prepare
from tests.documents.markdown import ROOT, codes, fences, plain, tables_of
from tests.documents.shell import Shell, whole_commands_of
from tests.projects import enter

DOCUMENT = "docs/extensions.md"


def test_the_recipe_of_the_page_makes_its_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(tmp_path)
    recipe, entities, parameters = fences(ROOT / DOCUMENT, "yml")
    files = {
        "shop-tables/extension.yaml": recipe,
        "shop-tables/entities/tables.yaml": entities,
        "shop.yaml": parameters,
        "entities/cluster.yaml": "kind: cluster\nname: primary\nstorage: file://${PROJECT_ROOT}/data\n",
        "sql/count.sql": "select 1",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    enter(tmp_path, monkeypatch)
    shell = Shell(monkeypatch=monkeypatch, elsewhere={"feed-assets mirror new"})  # named without its options
    shell.run_page(DOCUMENT)
    planned, done = (shell.answers[line] for line in shell.answers if "owner=bob" in line)
    assert "0 added, 3 changed, 0 removed" in planned
    assert done.count("description: ") == 3
    assert not (tmp_path / "entities/extension-jobs/shop.yaml").exists()
    assert yaml.safe_load(recipe)["name"] == "shop-tables"
    for line in whole_commands_of(DOCUMENT):
        shell.run(line)


def test_the_tables_are_those_of_the_code() -> None:
    parts, keys = (tables_of(DOCUMENT)[place] for place in (0, 1))
    assert {plain(row[0]).strip("*") for row in parts.rows} == {RECIPE, README, ENTITIES, BUILD}
    assert {plain(row[0]) for row in keys.rows} == set(RecipeParameter.model_fields)
    assert set(codes(keys.rows[0][2])) == set(ParameterType)
    assert f'"{GROUP}"' in (ROOT / DOCUMENT).read_text("utf-8")
