"""docs/commands/try.md: its example prints what stands there, by a real Spark, and touches nothing."""

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from feed_assets.context.operation import AttemptContext, open_context
from feed_assets.definitions.store import record_location
from feed_assets.instances.attempts.execution import InstanceRunner
from feed_assets.plan.location import load_location
from feed_assets.settings import load_settings
from feed_assets.sql.database import open_database
from tests.cli.project import must, shown
from tests.documents.markdown import ROOT, fences
from tests.projects import declare, enter, land
from tests.spark_session import spark

__all__ = ["spark"]
pytestmark = pytest.mark.spark

PAGE = ROOT / "docs/commands/try.md"
DAY = datetime(2026, 1, 1, tzinfo=UTC)
ORDERS = "product,amount,state\ntea,5.0,paid\ntea,2.5,cancelled\ncocoa,3.5,cancelled\ncoffee,4.0,paid\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> Path:
    """The project of the page, whose first day is published, and the changed one beside it."""
    folder, changed = tmp_path / "shop", tmp_path / "changed"
    (entities,), (sql,) = fences(PAGE, "yaml"), fences(PAGE, "sql")
    for each in (folder, changed):
        each.mkdir()
        declare(each, entities, variables={"DATA_ROOT": "${PROJECT_ROOT}/data"})
    (folder / "revenue.sql").write_text("select product, sum(amount) as total from orders group by product")
    (changed / "revenue.sql").write_text(sql)
    land(folder / "data/orders/2026-01-01", ORDERS, is_flagged=True)
    enter(folder, monkeypatch)
    settings = load_settings()
    database, location = open_database(str(settings.state)), load_location(settings)
    record_location(database, settings, location, DAY)
    context = open_context(settings, database)
    attempt = AttemptContext(
        database=database,
        stores=context.stores,
        clock=context.clock,
        real_clock=context.real_clock,
        plan=context.plan,
        run_id="run-1",
    )
    runner = InstanceRunner(context=attempt, root=folder, session=lambda: spark)
    runner.run(context.only_process("daily-revenue", None), DAY, lambda _: None)
    return folder


def files(folder: Path) -> dict[Path, bytes | None]:
    """All files and folders, but for the state and the record of commands, which has the command."""
    own = ("state.db", "actions.jsonl")
    found = (each for each in folder.parent.rglob("*") if not each.name.startswith(own))
    return {each: each.read_bytes() if each.is_file() else None for each in found}


def plainly(line: str) -> str:
    """A line whose cells have a tab between them, without the seconds."""
    return re.sub(r"\d+\.\d s;", "… s;", re.sub(" {2,}|\t+", "\t", line.rstrip()))


def test_the_example_prints_what_the_page_shows_and_touches_nothing(project: Path) -> None:
    before = files(project)
    (example,) = fences(PAGE, "text")
    command, *told = example.splitlines()
    printed = must(*command.split()[2:]).stdout.splitlines()
    assert list(map(plainly, printed)) == list(map(plainly, told))

    whole = shown("try", "daily-revenue", "2026-01-01", "--entities", "../changed/entities", "--rows", "0")
    assert (whole["outputs"][0]["difference"]["changed"], whole["outputs"][0]["difference"]["sample"]) == (1, [])
    same = shown("try", "daily-revenue", "2026-01-01")
    (output,) = same["outputs"]
    assert (output["is_same"], output["difference"]["sample"]) == (True, [])
    assert files(project) == before
