"""What is published of rows that are held to a quality; the engine of these tests needs no Spark to tell them apart."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from feed_assets.catalog.run_metadata import Facts
from feed_assets.engines.port import Engine, Judged, OutputReport, OutputTarget, Work, WorkReport
from feed_assets.instances.attempts.execution import InstanceRunner
from feed_assets.instances.attempts.verdicts import Verdict
from feed_assets.instances.errors import QualityError
from feed_assets.log.records import ProcessInstanceStatus, ProcessKey
from tests.databases import create_schema
from tests.instances.harness import START, LifecycleHarness, at, feed, no_session, process

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOON = at("01T12:00")
SUCCEEDED, FAILED = ProcessInstanceStatus.SUCCEEDED, ProcessInstanceStatus.FAILED


class JudgingEngine(Engine):
    """Writes rows by output: each breaks the rules that are listed for it."""

    def __init__(self, rows: Mapping[str, Mapping[str, str]]) -> None:
        self._rows = rows

    def run(self, work: Work, session: "Callable[[], SparkSession]") -> WorkReport:  # noqa: ARG002 - it needs none
        return WorkReport(outputs=tuple(_write(target, self._rows[target.name]) for target in work.outputs))


def _write(target: OutputTarget, rows: Mapping[str, str]) -> OutputReport:
    if target.quality is None:
        _put(target, "", rows)
        return OutputReport(name=target.name, rows=len(rows))
    bad = {row: broken for row, broken in rows.items() if broken}
    good = [row for row in rows if row not in bad]
    _put(target, "judged/good", good)
    _put(target, "judged/bad", bad)
    if target.quarantine is not None:
        _put(target.quarantine, "", [f"{row},{broken}" for row, broken in bad.items()])
    is_warning = target.quality.on_fail == "warn"
    judged = Judged(
        rows=len(rows),
        bad=len(bad),
        broken={name: sum(name in broken for broken in bad.values()) for name in target.quality.rules},
        kept=("judged",) if is_warning else ("judged/good",),
        quarantine=OutputReport(name=target.quarantine.name, rows=len(bad)) if target.quarantine else None,
    )
    return OutputReport(name=target.name, rows=len(rows) if is_warning else len(good), judged=judged)


def _put(target: OutputTarget, below: str, rows: Any) -> None:
    folder = Path(urlsplit(target.url).path, below)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "part-0.csv").write_text("".join(f"{row}\n" for row in rows))


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.server)])
def state(request: pytest.FixtureRequest) -> str | None:
    return create_schema(request.getfixturevalue("postgres_url")) if request.param == "postgresql" else None


def declare(tmp_path: Path, state: str | None = None, **quality: object) -> LifecycleHarness:
    """Readings of a process, of which a report is made."""
    demanded = {"rules": {"warm": "temp > 0", "named": "name > ''"}, "threshold": 75, "quarantine": "rejects"} | quality
    return LifecycleHarness.of(
        tmp_path,
        feed("readings", quality={name: each for name, each in demanded.items() if each is not None}),
        feed("rejects"),
        feed("report"),
        process("read", outputs={"readings": "now(0,0)"}),
        process("reporting", inputs={"readings": "now(0,0)"}, outputs={"report": "now(0,0)"}),
        **({"state": state} if state else {}),
    )


def read(lifecycle: LifecycleHarness, rows: Mapping[str, str], run_id: str = "run-1", **more: Any) -> list[Verdict]:
    """Run the process on rows; return what was found about them."""
    found: list[Verdict] = []
    runner: InstanceRunner = replace(
        lifecycle.runner(NOON, run_id),
        session=no_session,
        engines=lambda _: JudgingEngine({"readings": rows, **more}),
        on_verdict=found.append,
    )
    with suppress(QualityError):
        runner.run(lifecycle.process("read"), START, lambda _: None)
    return found


def files_of(lifecycle: LifecycleHarness, name: str) -> dict[str, str]:
    folder = lifecycle.folder(name, START)
    return {file.name: file.read_text() for file in sorted(folder.glob("*part*"))} if folder.is_dir() else {}


def test_good_rows_are_published_and_bad_ones_go_to_the_quarantine(tmp_path: Path, state: str | None) -> None:
    lifecycle = declare(tmp_path, state)
    (verdict,) = read(lifecycle, {"1": "", "2": "", "3": "", "4": "warm"})
    assert lifecycle.statuses("read") == {START: SUCCEEDED}
    assert files_of(lifecycle, "readings") == {"part-0.csv": "1\n2\n3\n"}
    assert files_of(lifecycle, "rejects") == {"part-0.csv": "4,warm\n"}
    assert verdict.has_passed
    (event,) = lifecycle.events("readings")
    assert event.payload["rows"] == 3
    with lifecycle.database.read() as connection:
        facts = Facts(connection).of(ProcessKey("read", "primary", START))
    assert {fact.category for fact in facts} == {"quality/readings"}
    assert {fact.name: fact.value for fact in facts} == {
        "records.count": "4",
        "good.records.count": "3",
        "rejected.records.count": "1",
        "good.records.percent": "75",
        "good.records.threshold": "75",
        "did.dq.pass": "true",
        "rule.warm": "1",
        "rule.named": "0",
    }
    assert lifecycle.staged() == []


def test_too_many_bad_rows_keep_the_instance_from_readers_and_are_seen_in_the_quarantine(
    tmp_path: Path, state: str | None
) -> None:
    lifecycle = declare(tmp_path, state)
    lifecycle.tick(NOON)
    (verdict,) = read(lifecycle, {"1": "", "2": "named", "3": "", "4": "warm,named"})
    assert not verdict.has_passed
    row = lifecycle.instances("read")[START]
    assert row.status is FAILED
    assert "2 of 4 rows are good (50 %), 75 % must be; broken: warm 1, named 2" in (row.cause_detail or "")
    assert "feed-assets quality show readings 2013-11-01T00:00Z --cluster primary" in (row.cause_detail or "")
    assert lifecycle.events("readings") == []
    assert files_of(lifecycle, "readings") == {}
    assert files_of(lifecycle, "rejects") == {"part-0.csv": "2,named\n4,warm,named\n"}
    assert [event.payload["output"] for event in lifecycle.events("rejects")] == ["readings@quarantine"]
    assert START not in [time for each in lifecycle.tick(NOON) for time in each.nominal_times if _reports(each)]
    assert lifecycle.staged() == []


def _reports(request: Any) -> bool:
    return bool(request.process.process == "reporting")


def test_what_was_published_before_stays_and_a_better_attempt_empties_the_quarantine(tmp_path: Path) -> None:
    lifecycle = declare(tmp_path)
    read(lifecycle, {"1": "", "2": "", "3": "", "4": "warm"})
    read(lifecycle, {"5": "named"}, "run-2")
    assert files_of(lifecycle, "readings") == {"part-0.csv": "1\n2\n3\n"}
    assert files_of(lifecycle, "rejects") == {"part-0.csv": "5,named\n"}
    read(lifecycle, {"6": ""}, "run-3")
    assert files_of(lifecycle, "readings") == {"part-0.csv": "6\n"}
    assert files_of(lifecycle, "rejects") == {"part-0.csv": ""}


def test_a_feed_that_only_warns_gets_all_rows(tmp_path: Path) -> None:
    lifecycle = declare(tmp_path, on_fail="warn")
    (verdict,) = read(lifecycle, {"1": "", "2": "named", "3": "warm"})
    assert (verdict.has_passed, verdict.is_published) == (False, True)
    assert lifecycle.statuses("read") == {START: SUCCEEDED}
    assert files_of(lifecycle, "readings") == {"1-part-0.csv": "1\n", "part-0.csv": "2\n3\n"}
    assert files_of(lifecycle, "rejects") == {"part-0.csv": "2,named\n3,warm\n"}


def test_without_a_quarantine_bad_rows_are_only_counted(tmp_path: Path) -> None:
    lifecycle = declare(tmp_path, quarantine=None)
    (verdict,) = read(lifecycle, {"1": "", "2": "", "3": "", "4": "warm"})
    assert dict(verdict.judged.broken) == {"warm": 1, "named": 0}
    assert files_of(lifecycle, "readings") == {"part-0.csv": "1\n2\n3\n"}
    assert lifecycle.events("rejects") == []


def test_one_bad_output_keeps_back_all_outputs_of_the_process(tmp_path: Path) -> None:
    lifecycle = declare(tmp_path)
    lifecycle.declare(
        feed("readings", quality={"rules": {"warm": "temp > 0"}, "quarantine": "rejects"}),
        feed("rejects"),
        feed("index"),
        process("read", outputs={"index": "now(0,0)", "readings": "now(0,0)"}),
    )
    read(lifecycle, {"1": "warm"}, index={"1": ""})
    assert (lifecycle.events("index"), files_of(lifecycle, "index")) == ([], {})
    assert len(lifecycle.events("rejects")) == 1


def test_a_share_below_the_threshold_never_reads_like_it(tmp_path: Path) -> None:
    lifecycle = declare(tmp_path, threshold=100)
    (verdict,) = read(lifecycle, {"1": "", "2": "", "3": "warm"})
    assert f"{verdict.percent:f}" == "66.666"
    many = replace(verdict, judged=replace(verdict.judged, rows=10_000_000, bad=1))
    assert many.summary == "9,999,999 of 10,000,000 rows are good (99.999 %), 100 % must be; broken: warm 1"


def test_rows_that_are_good_do_not_contradict_the_condition_that_fails(tmp_path: Path) -> None:
    lifecycle = declare(tmp_path)
    (verdict,) = read(lifecycle, {"1": ""})
    judged = replace(verdict.judged, conditions={"volume": "it is 1, and must be at least 2"})
    assert replace(verdict, judged=judged).summary == (
        "volume: it is 1, and must be at least 2; 1 of 1 row is good (100 %)"
    )
    many = replace(verdict, judged=replace(judged, rows=10, bad=9))
    assert many.summary.endswith("% must be; volume: it is 1, and must be at least 2")


def test_a_share_and_a_threshold_of_many_digits_read_as_they_are(tmp_path: Path) -> None:
    lifecycle = declare(tmp_path, threshold=99.99999)
    (verdict,) = read(lifecycle, {"1": ""})
    missed = replace(verdict, judged=replace(verdict.judged, rows=1_000_000, bad=1))
    assert (missed.has_passed, missed.summary.partition(" are ")[2]) == (False, "good (99.9999 %), 99.99999 % must be")
    passed = replace(verdict, judged=replace(verdict.judged, rows=10_000_000, bad=1))
    assert (passed.has_passed, passed.summary.partition(" are ")[2]) == (True, "good (99.99999 %), 99.99999 % must be")
    assert passed.facts["good.records.threshold"] == "99.99999"
