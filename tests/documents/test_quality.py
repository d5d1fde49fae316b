"""docs/quality.md: its declaration is valid, a command prints what stands there, and names are those of the code."""

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from feed_assets.catalog.run_metadata import QUALITY, Facts
from feed_assets.definitions.checks.code_trials import RULE_CODE
from feed_assets.engines.port import Judged
from feed_assets.entities.common import Kind
from feed_assets.entities.content.quality import BROKEN_RULES, Quality
from feed_assets.entities.workflow import WorkflowEngine
from feed_assets.explain.explanations import explain_instance
from feed_assets.instances.attempts.verdicts import Verdict
from feed_assets.log.records import ProcessKey
from feed_assets.orchestration import names
from feed_assets.orchestration.runs.feed_checks import QUALITY_CHECK
from feed_assets.settings import load_settings
from feed_assets.sql.database import open_database
from feed_assets.testing import open_project
from feed_assets.testing.projects import Project
from tests.cli.project import run
from tests.commands import words_of
from tests.documents.markdown import ROOT, Table, codes, fences, plain, tables_of
from tests.projects import declare, enter
from tests.spark_session import spark

__all__ = ["spark"]

DOCUMENT = "docs/quality.md"
PAGE = " ".join((ROOT / DOCUMENT).read_text("utf-8").split())
DAY = datetime(2026, 1, 2, tzinfo=UTC)
FOUND = Verdict(
    output="readings",
    feed_key=("readings", "primary"),
    nominal_time=DAY,
    quality=Quality(rules={"plausible": "true", "has-station": "true"}, unique=("id",), threshold=95),
    judged=Judged(rows=1000, bad=100, broken={"plausible": 81, "has-station": 20, "unique": 0}),
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
    *_, example = fences(ROOT / DOCUMENT, "text")
    command, *shown = example.splitlines()
    assert run(*command.split()[2:]).stdout.splitlines() == shown[:-1]
    assert run(*shown[-1].split()[2:]).exit_code == 0


def why(project: Project, time: datetime, feed: str = "orders") -> list[str]:
    context = project._context()
    with context.read() as connection:
        return explain_instance(context, connection, Kind.FEED, feed, "primary", time).render().splitlines()


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore:.* is currently in (beta|preview)")
def test_what_comes_from_outside_is_held_back_as_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    enter(tmp_path, monkeypatch)
    _, dated, by_inbox = fences(ROOT / DOCUMENT, "yaml")
    declared = "---".join([dated, by_inbox.partition("---")[2]])
    declare(tmp_path, declared, variables={"DATA_ROOT": f"{tmp_path}/data"})
    assert run("validate", "--strict").exit_code == 0
    settings = load_settings(start=tmp_path)
    with open_project("2026-01-01T00:00Z", folder=tmp_path, settings=settings, spark=spark) as opened:
        opened.put("customers", "2026-01-01T00:00Z", {"all.csv": "id\n1\n2\n"})
        opened.put("orders", "2026-01-01T00:00Z", {"a.csv": "id,customer,amount\n1,1,5\n2,2,6\n"})
        opened.run()
        opened.set_clock("2026-01-02T00:00Z")
        place = opened.put("orders", "2026-01-02T00:00Z", {"a.csv": "id,customer,amount\n,1,5\n2,2,6\n"})
        delivered = place.parents[1] / "in" / "deliveries" / "a.csv"
        delivered.parent.mkdir(parents=True)
        delivered.write_text("id,amount\n,5\n2,6\n")
        os.utime(delivered, (DAY.timestamp() - 60,) * 2)
        opened.run()
        example, held, _ = fences(ROOT / DOCUMENT, "text")
        _, *shown, accepting = example.splitlines()
        assert why(opened, DAY) == shown
        assert why(opened, DAY, "deliveries") == held.splitlines()[1:]
        opened.notify("orders", "2026-01-02T00:00Z", accept=words_of(accepting.removeprefix("$ "))[-1])
        headline, _, found, *_ = why(opened, DAY)
        assert headline == "feed orders on primary at 2026-01-02T00:00Z is AVAILABLE"
        assert found.endswith("broken: has-id 1; accepted by test: known gap on Sunday")


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
