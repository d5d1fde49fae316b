"""An instance is tried with a real Spark: what is told is what the work has made, and nothing is touched."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest
from pyspark.sql import SparkSession
from sqlalchemy import select

from feed_assets.engines.errors import WorkflowFailedError
from feed_assets.entities.feed import Feed
from feed_assets.entities.process import Process
from feed_assets.instances.attempts import trying
from feed_assets.instances.attempts.trying import Tried
from feed_assets.instances.errors import InputsMissingError, TryRefusedError
from feed_assets.settings import load_settings
from feed_assets.sql.tables import load_tables
from feed_assets.timing.dates import render_datetime
from tests.instances.attempts.test_spark_run import runner
from tests.instances.harness import START, LifecycleHarness, at, feed, process, validity
from tests.spark_session import spark

__all__ = ["spark"]
pytestmark = pytest.mark.spark

NOON, TIME = at("01T12:00"), at("01T01:00")
LATER = datetime.now(UTC) + timedelta(days=8)
JOB = """
from pyspark.sql import functions as F
print("imported")
def scores(clicks, context):
    context.metadata.put("feed/scores", tags=["tried"])
    context.fact("rows-read", clicks.count())
    context.event("scores", payload={"by": "ann"})
    return clicks.groupBy("user").agg(FUNCTION.cast("double").alias("score"))
"""
HOURLY = {"frequency": "hours(1)"}
BATCHES = {"trigger": {"when": "clicks"}}
SCORES = {
    "schema": "user string, score double",
    "quality": {"unique": ["user"], "rules": {"low": "score < 100"}, "quarantine": "bad-scores", "threshold": 50},
}


@pytest.fixture
def lifecycle(tmp_path: Path) -> LifecycleHarness:
    """A process that has run for one instance."""
    made = LifecycleHarness.of(
        tmp_path,
        feed("clicks", schema="user string, n int", flag="_SUCCESS"),
        feed("scores", **SCORES),
        feed("bad-scores", schema="user string, score double, broken_rules string"),
        process(
            "score",
            inputs={"clicks": "now(0,0)"},
            outputs={"scores": "now(0,0)"},
            workflow={"path": "jobs.py:scores"},
        ),
    )
    write(tmp_path, 'F.sum("n")')
    made.land("clicks", TIME, text="user,n\nann,1\nann,2\nbob,5\ncy,7\n")
    made.flag("clicks", TIME)
    return made


def write(folder: Path, function: str) -> None:
    """The code of the process."""
    (folder / "jobs.py").write_text(JOB.replace("FUNCTION", function))


def attempt(lifecycle: LifecycleHarness, spark: SparkSession, name: str) -> None:
    runner(lifecycle, spark, "run-1").run(lifecycle.process(name), TIME, lambda _: None)


def try_(lifecycle: LifecycleHarness, name: str, time: datetime = TIME, **how: Any) -> Tried:
    context = lifecycle.context(NOON, settings=load_settings(environ={}, start=lifecycle.root))
    steps: list[str] = []
    given = {"rows": 9, "keep": False, **how}
    found = trying.try_instance(
        context, name, render_datetime(time), progress=lambda each, *_: steps.append(each), **given
    )
    assert steps == ["looking at inputs", "at work", "comparing"]
    return found


def everything(lifecycle: LifecycleHarness) -> dict[str, object]:
    """All rows of the state, and all files and folders: of storage but for its empty locks, and of the project."""
    with lifecycle.database.read() as connection:
        rows = {
            name: sorted(map(repr, connection.execute(select(each)))) for name, each in load_tables().tables.items()
        }
    files = [Path(folder, name) for folder, names, below in os.walk(lifecycle.root) for name in (*names, *below)]
    digests = {
        str(file): hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""
        for file in files
        if not file.name.startswith("state.db") and not {file.name, file.parent.name} & {".feed-assets", "locks"}
    }
    return {**rows, **digests}


@contextmanager
def untouched(lifecycle: LifecycleHarness) -> Iterator[None]:
    """Require that the block changes nothing."""
    before = everything(lifecycle)
    yield
    assert everything(lifecycle) == before


def test_the_difference_is_that_by_hand_and_nothing_is_touched(
    lifecycle: LifecycleHarness, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    attempt(lifecycle, spark, "score")
    capsys.readouterr()
    write(lifecycle.root, 'F.sum(F.when(F.col("user") == "bob", F.lit(500)).otherwise(F.col("n")) * 2)')
    with untouched(lifecycle):
        tried = try_(lifecycle, "score")

    scores, quarantine = tried.outputs
    assert capsys.readouterr().out == ""
    assert (dict(tried.inputs), tried.has_failed, scores.rows, scores.is_same) == ({"clicks": 1}, False, 2, False)
    assert scores.quality == "2 of 3 rows are good (66.666 %), 50 % must be; broken: low 1"
    assert dict(scores.message) == {"by": "ann"}
    assert tried.said["facts"] == {"rows-read": 4}
    assert tried.said["metadata"]["feed/scores"]["tags"] == ["tried"]
    assert scores.difference is not None
    assert (scores.difference.keys, scores.difference.old_rows) == (("user",), 3)
    assert [(each.kind.value, each.new, each.old) for each in scores.difference.sample] == [
        ("only old", None, {"user": "bob", "score": "5.0"}),
        ("changed", {"user": "ann", "score": "6.0"}, {"user": "ann", "score": "3.0"}),
        ("changed", {"user": "cy", "score": "14.0"}, {"user": "cy", "score": "7.0"}),
    ]
    assert quarantine.difference is not None
    assert (quarantine.feed, quarantine.rows, quarantine.difference.only_new) == ("bad-scores", 1, 1)


def test_what_is_published_and_cannot_be_read_is_said_with_the_columns_of_what_was_made(
    lifecycle: LifecycleHarness, spark: SparkSession
) -> None:
    written = feed("scores").model_dump(mode="json", exclude_unset=True) | {"format": "parquet"}
    work = {"workflow": {"path": "jobs.py:scores"}, "outputs": {"scores": "now(0,0)"}}
    clicks = feed("clicks", schema="user string, n int", flag="_SUCCESS")
    lifecycle.declare(clicks, Feed.model_validate(written), process("score", inputs={"clicks": "now(0,0)"}, **work))
    attempt(lifecycle, spark, "score")
    (file,) = lifecycle.folder("scores", TIME).glob("*.parquet")
    file.write_bytes(b"no Parquet")
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    for reason in ("FAILED_READ_FILE", "does not exist"):
        with untouched(lifecycle):
            (scores,) = try_(lifecycle, "score").outputs
        assert (scores.is_good, scores.is_same, scores.rows) == (True, False, 3)
        assert scores.note.startswith("it cannot be compared with what is published: ")
        assert (reason in scores.note, "\tat " in scores.note) == (True, False), scores.note
        assert [each.column for each in scores.columns] == ["user", "score"]
        rmtree(file.parent, ignore_errors=True)


def test_what_is_kept_goes_with_the_sweep_of_stagings_as_what_a_killed_trial_leaves(
    lifecycle: LifecycleHarness, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    with untouched(lifecycle):
        try_(lifecycle, "score")
    write(lifecycle.root, 'F.sum(F.col("n") * 1000)')
    with untouched(lifecycle):
        tried = try_(lifecycle, "score", keep=True)
        assert (tried.has_failed, tried.outputs[0].rows, tried.outputs[1].rows) == (True, 0, 3)
        assert [Path(str(each.url).removeprefix("file://")).is_dir() for each in tried.outputs] == [True, True]
        assert len(tried.notes) == 2
        assert lifecycle.store().sweep_staging(LATER) == 2
    write(lifecycle.root, 'F.raise_error("no")')
    for keep in (False, True):
        with untouched(lifecycle), pytest.raises(WorkflowFailedError):
            try_(lifecycle, "score", keep=keep)
    monkeypatch.setattr(trying, "compare_columns", lambda *_: os.kill(os.getpid(), 2))
    write(lifecycle.root, 'F.sum("n")')
    with untouched(lifecycle), pytest.raises(KeyboardInterrupt):
        try_(lifecycle, "score")


def test_an_instance_to_come_is_tried_with_what_storage_has_and_the_record_lacks(
    lifecycle: LifecycleHarness, spark: SparkSession
) -> None:
    time = at("02T12:00")
    with pytest.raises(InputsMissingError, match=r"clicks lacks file://.*feed-assets why score 2013-11-02T12:00Z"):
        try_(lifecycle, "score", time)
    lifecycle.land("clicks", time, text="user,n\nann,1\n")
    with pytest.raises(InputsMissingError, match=r"clicks lacks file://"):  # without its flag it is not whole
        try_(lifecycle, "score", time)
    lifecycle.flag("clicks", time)
    with untouched(lifecycle):
        try_(lifecycle, "score", time)
    attempt(lifecycle, spark, "score")
    for file in lifecycle.folder("clicks", TIME).iterdir():
        file.unlink()
    with untouched(lifecycle), pytest.raises(InputsMissingError, match="Storage has lost file://"):
        try_(lifecycle, "score")


def test_steps_leave_no_frames_and_an_output_can_be_left_out(
    lifecycle: LifecycleHarness, spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "steps.py").write_text(
        "def first(clicks):\n    return clicks\ndef second(first):\n    return {'scores': first.limit(1)}\n"
    )
    lifecycle.declare(
        feed("clicks", schema="user string, n int", flag="_SUCCESS"),
        feed("scores"),
        feed("others"),
        process(
            "steps",
            inputs={"clicks": "now(0,0)"},
            outputs={"scores": "now(0,0)", "others": "now(0,0)"},
            optional=["others"],
            workflow={
                "steps": {
                    "first": {"path": "steps.py:first"},
                    "second": {"path": "steps.py:second", "after": ["first"]},
                }
            },
        ),
    )
    attempt(lifecycle, spark, "steps")

    with untouched(lifecycle):
        scores, others = try_(lifecycle, "steps").outputs
    assert (scores.is_same, others.note, others.rows) == (True, "the work has left it out", None)


@pytest.mark.parametrize(
    ("declared", "reason"),
    [
        ({**HOURLY, "outputs": {}}, "it has no output"),
        ({**BATCHES, "workflow": {"engine": "external"}}, "its work runs elsewhere"),
        (BATCHES, "no batch of this time has been cut"),
        (
            {
                **HOURLY,
                "outputs": {},
                "workflow": {
                    "engine": "directory-mirror",
                    "mirror": {"source": {"directory": "/a"}, "target": {"directory": "/b"}},
                },
            },
            "a mirror writes straight to its target",
        ),
    ],
)
def test_what_has_effects_elsewhere_is_refused(tmp_path: Path, declared: dict[str, Any], reason: str) -> None:
    odd = {
        "name": "odd",
        "clusters": {"primary": validity(START, None)},
        "outputs": {"scores": {"feed": "scores", "instance": "now(0,0)"}},
        "workflow": {"path": "jobs.py:scores"},
    }
    scores = feed("scores", instances="on-schedule" if "frequency" in declared else "as-they-come")
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks"), scores, Process.model_validate(odd | declared))
    with pytest.raises(TryRefusedError, match=reason):
        try_(lifecycle, "odd")
