"""docs/quality.md: its declaration is valid, a command prints what stands there, and names are those of the code."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from feed_assets.catalog.run_metadata import QUALITY, Facts
from feed_assets.definitions.checks.code_trials import RULE_CODE
from feed_assets.entities.content.quality import BROKEN_RULES, Quality
from feed_assets.entities.workflow import WorkflowEngine
from feed_assets.instances.attempts.verdicts import Verdict
from feed_assets.log.records import ProcessKey
from feed_assets.orchestration import names
from feed_assets.orchestration.runs.feed_checks import QUALITY_CHECK
from feed_assets.sql.database import open_database
from tests.cli.project import run
from tests.documents.markdown import ROOT, Table, codes, fences, plain, tables_of
from tests.projects import declare, enter

DOCUMENT = "docs/quality.md"
PAGE = " ".join((ROOT / DOCUMENT).read_text("utf-8").split())
DAY = datetime(2026, 1, 2, tzinfo=UTC)
FOUND = Verdict(
    output="readings",
    feed_key=("readings", "primary"),
    nominal_time=DAY,
    quality=Quality(rules={"plausible": "true", "has-station": "true"}, unique=("id",), threshold=95),
    rows=1000,
    bad=100,
    broken={"plausible": 81, "has-station": 20, "unique": 0},
)


def table(header: str) -> Table:
    (found,) = [table for table in tables_of(DOCUMENT) if table.header[0] == header]
    return found


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    enter(tmp_path, monkeypatch)
    declare(tmp_path, fences(ROOT / DOCUMENT, "yaml")[0], variables={"DATA_ROOT": f"{tmp_path}/data"})
    (tmp_path / "read.sql").write_text("SELECT 1 AS id, 'a' AS station, 0.5D AS temp")
    return tmp_path


def test_the_declaration_is_in_order_and_the_command_prints_what_the_page_shows(project: Path) -> None:
    result = run("validate", "--strict")
    assert result.exit_code == 0, result.output
    recorded = datetime(2026, 1, 3, 0, 5, tzinfo=UTC)
    with open_database(f"sqlite:///{project}/state.db").begin() as connection:
        Facts(connection).add(ProcessKey("read", "primary", DAY), 1, "quality/readings", FOUND.facts, recorded)
    (example,) = fences(ROOT / DOCUMENT, "text")
    command, *shown = example.splitlines()
    assert run(*command.split()[2:]).stdout.splitlines() == shown[:-1]
    assert run(*shown[-1].split()[2:]).exit_code == 0


def test_fields_engines_and_facts_are_those_of_the_code() -> None:
    assert [plain(row[0]) for row in table("field").rows] == list(Quality.model_fields)
    engines = {engine for row in table("engine").rows for engine in codes(row[0])}
    assert engines == set(WorkflowEngine) - {
        WorkflowEngine.DIRECTORY_MIRROR,
        WorkflowEngine.OOZIE,
        WorkflowEngine.PIG,
    }
    facts = [name for name in FOUND.facts if not name.startswith("rule.")]
    for text in (
        *facts,
        f"{QUALITY}readings",
        "rule.NAME",
        BROKEN_RULES,
        RULE_CODE,
        QUALITY_CHECK,
        f"{names.META_QUALITY}…",
    ):
        assert f"`{text}`" in PAGE
