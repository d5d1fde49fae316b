"""docs/metadata.md says what metadata are: its tables, commands and documents, and CDAP's requirements and stories."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from feed_assets import open_metadata
from feed_assets.entities.metadata import LONGEST_NAME, LONGEST_VALUE, MOST_BYTES, Origin
from tests.catalog.project import prepare
from tests.catalog.test_descriptions import ALL, described
from tests.cli.project import run
from tests.documents.markdown import ROOT, Table, codes, fences, plain, tables_of

PAGE = "docs/metadata.md"
TEXT = " ".join((ROOT / PAGE).read_text("utf-8").split())


def table(section: str) -> Table:
    (found,) = [each for each in tables_of(PAGE) if each.section == section]
    return found


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (settings,) = fences(ROOT / PAGE, "yml")
    prepare(tmp_path, monkeypatch, f"sqlite:///{tmp_path}/state.db", settings)
    return tmp_path


def done(*words: str) -> str:
    result = run(*words)
    assert result.exit_code == 0, result.output
    return result.stdout


def said(path: str, *words: str) -> list[list[str]]:
    """The rows of `metadata get`: scope, kind, name, value, origin, author."""
    lines = done("metadata", "get", path, *words, "--output", "csv").splitlines()
    return [line.split(",") for line in lines[1:]]


def test_what_the_system_says_is_in_the_table_and_nothing_else() -> None:
    produced = {(each.target.kind, name) for each in described(*ALL).values() for name in each.system}
    recorded = {"version", "creation-time", "created-by", "update-time", "updated-by"}
    kinds = {"cluster", "datasource", "feed", "process", "column"}
    groups = {"all": kinds, "all but columns": kinds - {"column"}}
    documented = {
        (kind, name)
        for names, of, _ in table("The system").rows
        for name in codes(names)
        for kind in groups.get(of, set(of.split(", ")))
    }
    assert {name for _, name in documented} >= recorded
    assert {name for _, name in produced} | recorded == {name for _, name in documented}
    assert produced <= documented
    tags = {tag for each in described(*ALL).values() for tag in each.system_tags}
    assert tags == {"external", "replicated", "table", "signal", "batch"}
    assert all(f"`{tag}`" in TEXT for tag in tags)


def test_origins_and_limits_are_those_of_the_code() -> None:
    assert [plain(row[0]) for row in table("Scopes and origins").rows] == list(Origin)
    rules = " ".join(rule for _, rule in table("Rules").rows)
    assert all(limit in rules for limit in (f"1 to {LONGEST_NAME} letters", f"{LONGEST_VALUE:,}", f"{MOST_BYTES:,}"))


def test_the_document_is_imported_once(project: Path) -> None:
    (document,) = fences(ROOT / PAGE, "json")
    (project / "words.json").write_text(document)
    assert "added steward=ann checked public" in done("metadata", "import", "words.json", "--dry-run")
    assert [row for row in said("feed/flights") if row[4] == "person"] == []
    assert "added steward=ann checked public" in done("metadata", "import", "words.json")
    again = json.loads(done("metadata", "import", "words.json", "--output", "json"))
    assert [each["additions"] or each["deletions"] for each in again["entities"]] == [{}] * 4


def iter_requirements() -> Iterator[tuple[str, str, str]]:
    for number, _, command, shows in table("CDAP's requirements").rows:
        yield number, plain(command), shows


@pytest.mark.usefixtures("project")
def test_each_requirement_of_cdap_is_shown_by_a_command() -> None:
    assert [number for number, _, _ in iter_requirements()] == [f"R{number}" for number in range(1, 16)]
    with open_metadata(author="nightly-check") as metadata:
        metadata.put("feed/flights", {"checked": "yes"})
    for number, command, shows in sorted(iter_requirements(), key=lambda each: each[0] != "R4"):
        answer = done(*shlex.split(command)[1:])
        assert [code for code in codes(shows) if code not in answer] == [], number


def test_the_stories_of_cdap_one_after_the_other(project: Path) -> None:
    user = said("feed/flights", "--scope", "user")  # U1: tagged when it was deployed
    assert user == [["USER", "property", "owner", "ops", "definition", "ann"]]
    done("metadata", "tag", "feed/flights", "reviewed")  # U2: tagged afterwards, and seen at once
    assert ["USER", "tag", "reviewed", "", "person", "ann"] in said("feed/flights")
    system = said("feed/flights", "--scope", "system")  # U3: two lists
    assert {row[0] for row in system} == {"SYSTEM"}
    everything = json.loads(done("metadata", "get", "feed/flights", "--output", "json"))  # U5: all in one call
    assert len(everything["metadata"]) == len(system) + len(user) + 1
    for query in ("reviewed", "owner:ops", "frequency:days*", "departures"):  # U7: found by any of it
        assert "feed/flights" in done("search", query), query
    for query in ("dep_delay", "dep_delay:double", "schema:tail"):  # U8: and by its columns
        assert "feed/flights" in done("search", query), query
    names = {row[2] for row in said("cluster/here", "--scope", "system")}  # U10: the settings choose
    assert "storage" in names
    assert "spark" not in names
    assert said("feed/flights/column/dep_delay") == []
    (project / "feed_assets.yaml").write_text(f"state: sqlite:///{project}/state.db\n")
    done("apply")
    assert said("feed/flights/column/dep_delay") != []
