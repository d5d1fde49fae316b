"""Projects of `feed_assets.testing`: what their runs say, and what they refuse."""

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from feed_assets import Cluster, Context, Feed, process
from feed_assets.entities.errors import DefinitionsError
from feed_assets.settings import load_settings
from feed_assets.testing import ProjectRun, open_project
from tests.context.contexts import listed
from tests.spark_session import spark

__all__ = ["spark"]

pytestmark = [pytest.mark.filterwarnings("ignore:.* is currently in (beta|preview)")]

ON = {"here": {"validity": {"start": "2026-01-01T00:00Z"}}}
HERE = Cluster(name="here", storage="s3://never-asked")
APPROVAL = Feed.model_validate({"name": "approval", "signal": True, "clusters": ON})


@process(clusters=ON, trigger={"when": "approval", "from": "earliest"})
def release(context: Context) -> None:
    """Release what is approved."""
    (event,) = context.events["approval"]
    if event.payload.get("by") != "ann":
        raise ValueError("only ann approves")


@pytest.mark.spark
def test_a_batch_runs_in_a_project_and_a_failure_says_why(tmp_path: Path, spark: SparkSession) -> None:
    settings = load_settings({}, environ={}, start=tmp_path)
    with open_project(
        "2026-01-02T06:00Z", entities=[HERE, APPROVAL, release], settings=settings, spark=spark
    ) as project:
        assert project.run() == []
        project.notify("approval", payload={"by": "ann"})
        assert [(run.process, run.partitions, run.succeeded) for run in project.run()] == [
            ("release", ("2026-01-02-06:00:00",), True)
        ]
        project.set_clock("2026-01-02T07:00Z")
        project.notify("approval", payload={"by": "bob"})
        (run,) = project.run()
        assert isinstance(run, ProjectRun)
        assert not run.succeeded
        assert "only ann approves" in (run.error or "")
        assert project.status("release", "2026-01-02T07:00:00Z") == "FAILED"
        assert "only ann approves" in project.why("release", "2026-01-02T07:00:00Z")


LOG = Feed.model_validate(
    {
        "name": "log",
        "instances": "as-they-come",
        "format": "json",
        "clusters": ON,
        "locations": {"data": "/log/${YEAR}${MONTH}${DAY}${HOUR}${MINUTE}${SECOND}"},
    }
)


APPENDED = {"log": {"feed": "log", "instance": "now(0,0)"}}


@process(clusters=ON, trigger={"when": "approval", "from": "earliest"}, outputs=APPENDED)
def note() -> DataFrame:
    """Note what was approved."""
    return SparkSession.active().range(1)


@process(clusters=ON, trigger={"when": "approval", "from": "earliest"}, outputs=APPENDED)
def note_too() -> DataFrame:
    """Note it once more."""
    return SparkSession.active().range(2)


@pytest.mark.spark
def test_two_processes_append_to_one_feed(tmp_path: Path, spark: SparkSession) -> None:
    settings = load_settings({}, environ={}, start=tmp_path)
    entities = [HERE, APPROVAL, LOG, note, note_too]
    with open_project("2026-01-02T06:00Z", entities=entities, settings=settings, spark=spark) as project:
        project.notify("approval")
        assert sorted((run.process, run.succeeded) for run in project.run()) == [("note", True), ("note-too", True)]
        times = ("2026-01-02T06:00:00Z", "2026-01-02T06:00:01Z")
        assert sorted(project.load("log", time).count() for time in times) == [1, 2]
        project.set_clock("2026-01-02T07:00Z")
        rows = listed(project._context(), "log").instances
        assert {row.remark for row in rows} == {"written by process 'note'", "written by process 'note-too'"}


def test_what_lies_outside_of_the_storages_is_refused(tmp_path: Path) -> None:
    prices = {"name": "prices", "frequency": "days(1)", "clusters": ON}
    elsewhere = Feed.model_validate({**prices, "locations": {"data": "s3://other/prices/${YEAR}${MONTH}${DAY}"}})
    settings = load_settings({}, environ={}, start=tmp_path)
    with (
        pytest.raises(DefinitionsError, match="feed 'prices' in s3://other"),
        open_project("2026-01-02T06:00Z", entities=[HERE, elsewhere], settings=settings),
    ):
        pass
