"""docs/definitions.md says what the store of definitions does: its words, its places and its table of Falcon's rows."""

from pathlib import Path

import pytest

from feed_assets.definitions import store
from feed_assets.definitions.errors import DefinitionsChangedError
from feed_assets.log.definitions.records import DefinitionAction
from tests.databases import open_migrated
from tests.definitions import test_store
from tests.definitions.harness import NOW, DefinitionsHarness, put, remove
from tests.documents.markdown import ROOT, tables_of

PAGE = (ROOT / "docs/definitions.md").read_text("utf-8")


@pytest.fixture
def harness(tmp_path: Path) -> DefinitionsHarness:
    database = open_migrated(f"sqlite:///{tmp_path}/state.db")
    return DefinitionsHarness(database=database, location=str(tmp_path / "entities"))


def test_the_words_of_the_record_are_those_of_the_code() -> None:
    for word in (*DefinitionAction, store.FOLDER_ORIGIN, store.UNKNOWN_AUTHOR):
        assert f"`{word}`" in PAGE
    assert "`changed while the change was being made`" in PAGE
    assert "changed while the change was being made" in str(DefinitionsChangedError(location="x", files=("a",)))


def test_a_new_entity_stands_where_the_page_says(harness: DefinitionsHarness) -> None:
    harness.change(put("clicks"))
    assert "`<kind>/<name>.yaml`" in PAGE
    assert list(harness.files()) == ["feed/clicks.yaml"]


def test_versions_are_numbered_as_the_page_says(harness: DefinitionsHarness) -> None:
    for edit in (put("a"), put("a", comment="other"), remove("a"), put("a")):
        harness.change(edit)
    assert [(each.version, each.action.value) for each in harness.history("a")] == [
        (1, "SUBMITTED"),
        (2, "DELETED"),
        (3, "SUBMITTED"),
    ]


def test_each_row_of_falcon_has_its_test() -> None:
    (rows,) = [table for table in tables_of("docs/definitions.md") if table.section == "Falcon's config store"]
    tested = [name for name in dir(test_store) if name.startswith("test_row_")]
    assert tuple(name.split("_")[2] for name in tested) == rows.column["row"]


def test_the_store_that_the_page_describes_has_nothing_to_hide(harness: DefinitionsHarness) -> None:
    harness.change(put("a"))
    assert harness.problems() == []
    assert [version.recorded_at for version in harness.history("a")] == [NOW]
