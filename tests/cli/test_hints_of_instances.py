"""The commands that notices, sweeps, copies and runs offer, pasted where they were read."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from feed_assets.catalog.run_metadata import Facts
from feed_assets.context.operation import open_context
from feed_assets.engines.port import Judged
from feed_assets.entities.content.quality import Quality
from feed_assets.instances.attempts.verdicts import Verdict, find_refusal
from feed_assets.instances.late.quality_checks import QualityChecks
from feed_assets.log.records import ProcessInstanceStatus, ProcessKey
from feed_assets.log.removals.store import Sweeps
from feed_assets.releases.store import load_pinned_work
from feed_assets.retention.errors import SweepRefusedError
from feed_assets.retention.sweeps.sweep_context import require_sweep
from feed_assets.settings import load_settings
from feed_assets.transfer.errors import RemovalLimitError
from tests.cli.pasting import (
    AT,
    TIME,
    Pasting,
    begin,
    counted,
    declare,
    expired,
    land,
    of,
    paste,
    replicated,
    status_of,
)
from tests.cli.project import must, ok, refused, run
from tests.commands import words_of
from tests.databases import open_migrated
from tests.definitions.verbs.harness import CLICKS, CLUSTER
from tests.instances.harness import START
from tests.replication import project as replication_project
from tests.retention.project import daily_sweep, planned
from tests.retention.sweeps import test_mirror_runs as mirror_runs

__all__ = ["counted", "expired", "paste", "replicated"]


@of("retention.sweeps.sweeping.ChunkWorker._describe: retention undo")
def test_the_trash_says_how_it_is_undone(expired: Path, paste: Pasting) -> None:
    ok(run("retention", "run", planned("clicks")))
    (document,) = [file for file in expired.glob("data/.feed-assets/trash/*/*.json") if "undo" in file.read_text()]
    paste(json.loads(document.read_text())["undo"], "retention undo")
    assert (expired / "data/clicks/2013-11-03/04").exists()


@of("instances.lists.lifecycles.find_work: retention list")
def test_retention_is_shown_by_its_sweeps(expired: Path, paste: Pasting) -> None:
    span = ("--start", TIME, "--end", "2013-11-03T06:00Z")
    said = refused(run("instance", "kill", "clicks", *span, "--lifecycle", "eviction"))
    sweep = planned("clicks")
    assert sweep in paste(said, "retention list").stdout


@of("instances.errors.InputsMissingError.__init__: why")
def test_what_is_tried_and_lacks_its_inputs_leads_to_why(counted: Path, paste: Pasting) -> None:
    said = refused(run("try", "counting", TIME))
    assert not list(counted.glob("data/.feed-assets/staging/*"))
    assert "input clicks lacks 1 of 1 instances" in paste(said, "why counting").stdout


@of("instances.arrival.arrival_notices._check_notice: instance rerun")
def test_what_a_process_writes_is_run_again(counted: Path, paste: Pasting) -> None:
    begin(counted, ProcessInstanceStatus.SUCCEEDED)
    paste(refused(run("feed", "notify", "counts", TIME)), "instance rerun counting")
    assert status_of() == "WAITING"


@of("instances.errors.QualityError.__init__: quality show")
def test_rows_that_are_not_good_enough_are_shown(counted: Path, paste: Pasting) -> None:
    quality = Quality(rules={"known": "n > 0"}, threshold=95, quarantine="rejects")
    found = Verdict(
        output="counts",
        feed_key=("counts", "primary"),
        nominal_time=AT,
        quality=quality,
        judged=Judged(rows=1000, bad=60, broken={"known": 60}),
    )
    with open_migrated(f"sqlite:///{counted}/state.db").begin() as connection:
        Facts(connection).add(ProcessKey("counting", "primary", AT), 1, "quality/counts", found.facts, AT)
    said = str(find_refusal("counting", "primary", AT, {"counts": found}))
    assert "94 %), 95 % must be; broken: known 60. Nothing is published but the bad rows, in feed 'rejects'." in said
    assert "rule known: broken by 60" in paste(said, "quality show").stdout


@of("instances.arrival.arrival_notices._notify: feed notify")
def test_a_notice_names_its_cluster_or_trusts_its_sender(counted: Path, paste: Pasting) -> None:
    other = {**CLUSTER, "name": "other", "storage": f"file://{counted}/other"}
    on = CLICKS["clusters"]["primary"]  # type: ignore[index]
    declare(counted, CLUSTER, other, {**CLICKS, "clusters": {"primary": on, "other": on}})
    chosen = paste_notice(paste, "--key", "4711")
    assert "--cluster other --key 4711" in chosen
    trusted = refused(run(*words_of(chosen)))
    assert "on other at 2013-11-03T05:00Z" in paste(trusted, "feed notify").stdout
    assert "--key 4711 --trust" in paste.done[-1]


@of("explain.sentences._held_back: feed notify")
def test_what_its_rows_hold_back_is_accepted(counted: Path, paste: Pasting) -> None:
    declare(counted, CLUSTER, {**CLICKS, "quality": {"rules": {"named": "page IS NOT NULL"}}})
    land(counted)
    assert "available once its rows are judged" in ok(run("feed", "notify", "clicks", TIME))
    with open_migrated(f"sqlite:///{counted}/state.db").begin() as connection:
        checks = QualityChecks(connection)
        (check,) = checks.newest("clicks", "primary", 1)
        checks.put([replace(check, due_at=None, summary="0 of 1 row are good", facts={"records.count": "1"})])
    said = ok(run("why", "clicks", TIME))
    assert "its rows are not good enough: 0 of 1 row are good" in said
    assert "accepted as it is" in paste(said, "feed notify").stdout
    assert "accepted by" in ok(run("why", "clicks", TIME, "--all"))


def paste_notice(paste: Pasting, *options: str) -> str:
    """Paste the command that chooses a cluster, for data that are not there; returns it."""
    said = refused(run("feed", "notify", "clicks", TIME, *options))
    paste(said, "feed notify", code=1)
    return paste.done[-1]


@of("instances.arrival.arrival_notices._find_known: why")
def test_what_was_evicted_and_is_announced_leads_to_its_sweep(expired: Path, paste: Pasting) -> None:
    ok(run("retention", "run", planned("clicks")))
    assert "retention undo" in paste(refused(run("feed", "notify", "clicks", TIME)), "why clicks").stdout


@of("retention.running._find_times: retention undo")
def test_an_ambiguous_day_is_undone_for_one_feed(expired: Path, paste: Pasting) -> None:
    sweep = daily_sweep(expired)
    said = refused(run("retention", "undo", sweep, "--instance", "2013-11-02"))
    paste(said, "retention undo")
    assert (expired / "data/daily/clicks/2013-11-02").exists()


@of("instances.attempts.attempts.offer_approval: mirror plan")
def test_what_a_mirror_would_remove_is_shown_and_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, paste: Pasting
) -> None:
    process = mirror_runs.mirror(removed_files="remove")
    lifecycle = mirror_runs.harness_of(tmp_path, process)
    mirror_runs.write(tmp_path, {str(number): "x" for number in range(10)})
    lifecycle.tick(mirror_runs.NOON)
    mirror_runs.run(lifecycle, START, mirror_runs.NOON)
    shutil.rmtree(tmp_path / "primary/models")
    mirror_runs.write(tmp_path, {"0": "x"})
    lifecycle.tick(mirror_runs.NOON + mirror_runs.DAY)
    with pytest.raises(RemovalLimitError):
        mirror_runs.run(lifecycle, START + mirror_runs.DAY, mirror_runs.NOON + mirror_runs.DAY)
    (tmp_path / "entities").mkdir()
    clusters = [{**CLUSTER, "name": name, "storage": f"file://{tmp_path}/{name}"} for name in ("primary", "backup")]
    declare(tmp_path, *clusters, {"kind": "process", **process.model_dump(mode="json", exclude_unset=True)})
    (tmp_path / "feed_assets.yaml").write_text(f"state: sqlite:///{tmp_path}/state.db\n")
    monkeypatch.chdir(tmp_path)
    said = ok(run("why", "models", "2013-11-02T00:00Z"))
    assert "remove\t\t9\t" in paste(said, "mirror plan models --cluster primary", code=1).stdout
    (allowing,) = [line for line in said.splitlines() if "To allow it: " in line]
    paste(allowing, "instance rerun models")
    mirror_runs.run(lifecycle, START + mirror_runs.DAY, mirror_runs.NOON + mirror_runs.DAY)
    assert mirror_runs.read(tmp_path) == {"0": "x"}


@of(
    "replication.repairing._require_unsuspended: entity resume",
    "replication.repairing._plan: instance resume",
)
def test_what_suspends_copies_is_resumed(replicated: Path, paste: Pasting) -> None:
    ok(run("replication", "repair", "clicks"))
    shutil.rmtree(replication_project.instance(replicated, 0))
    ok(run("entity", "suspend", "feed", "clicks"))
    paste(refused(run("replication", "repair", "clicks")), "entity resume feed clicks --clusters west")
    ok(run("instance", "rerun", "clicks", "--instance", "2013-11-01T00:00Z"))
    ok(run("instance", "suspend", "clicks", "--instance", "2013-11-01T00:00Z"))
    left = must("replication", "repair", "clicks", code=1)
    paste(left.stdout, "instance resume clicks@east")
    ok(run("replication", "repair", "clicks"))
    assert replication_project.instance(replicated, 0).exists()


def occupy(project: Path) -> Path:
    """Let something foreign stand in the place of the first copy."""
    place = replication_project.instance(project, 0)
    place.mkdir(parents=True)
    (place / "theirs.csv").write_text("theirs")
    return place


@of("instances.attempts.attempts.offer_approval: instance rerun")
def test_foreign_content_is_adopted_once(replicated: Path, paste: Pasting) -> None:
    place = occupy(replicated)
    assert run("replication", "repair", "clicks").exit_code == 1
    said = ok(run("why", "clicks@east", "2013-11-01T00:00Z"))
    (allowing,) = [line for line in said.splitlines() if "To allow it: " in line]
    paste(allowing, "instance rerun clicks@east")
    ok(run("replication", "repair", "clicks"))
    assert (place / "part.csv").exists()


@of("storage.records.Displaced.describe: retention undo")
def test_the_trash_of_a_publication_says_how_it_is_undone(replicated: Path, paste: Pasting) -> None:
    declared = {**replication_project.REPLICATED, "existing": "replace"}
    declare(replicated, replication_project.EAST, replication_project.WEST, declared)
    place = occupy(replicated)
    ok(run("replication", "repair", "clicks"))
    assert not (place / "theirs.csv").exists()
    (document,) = [file for file in replicated.glob("west/.feed-assets/trash/*/*.json") if "undo" in file.read_text()]
    shutil.rmtree(place)
    paste(json.loads(document.read_text())["undo"], "retention undo")
    assert (place / "theirs.csv").exists()


@of("releases.store._remedy: entity touch", "releases.store._remedy: instance rerun")
def test_an_instance_runs_again_with_the_present_code(
    counted: Path, paste: Pasting, caplog: pytest.LogCaptureFixture
) -> None:
    begin(counted, ProcessInstanceStatus.SUCCEEDED)
    ok(run("entity", "touch", "process", "counting", "--effective-from", "2013-11-03T04:00Z"))
    (counted / "counting.sql").write_text("select 7 as n from clicks")

    def load() -> str:
        caplog.clear()
        context = open_context(load_settings(), open_migrated(f"sqlite:///{counted}/state.db"))
        with context.database.read() as connection:
            context.timeline.refresh_one(connection, ("counting", "primary"))
            active = context.timeline.find_or_declared(connection, ("counting", "primary"), AT)
            assert active is not None
            load_pinned_work(connection, active.record, AT, counted)
        return " ".join(each.getMessage() for each in caplog.records if each.name.endswith("releases.store"))

    said = load()
    paste(said, "entity touch")
    paste(said, "instance rerun")
    assert (status_of(), load()) == ("WAITING", "")


@of(
    "retention.sweeps.sweeping._require_runnable: retention show",
    "retention.running._refused: retention show",
    "retention.running.find_sweep: retention list",
)
def test_an_unfitting_or_unknown_sweep_is_shown(expired: Path, paste: Pasting) -> None:
    sweep = planned("clicks")
    assert "PLANNED" in paste(refused(run("retention", "approve", sweep)), f"retention show {sweep}").stdout
    assert sweep in paste(refused(run("retention", "show", "other")), "retention list").stdout
    asking = planned("views")
    assert "ASKING" in paste(refused(run("retention", "run", asking)), f"retention show {asking}").stdout


@of("retention.sweeps.sweep_context.require_sweep: retention list")
def test_a_run_of_an_unknown_sweep_leads_to_the_list(expired: Path, paste: Pasting) -> None:
    with (
        open_migrated(f"sqlite:///{expired}/state.db").read() as connection,
        pytest.raises(SweepRefusedError) as refusal,
    ):
        require_sweep(Sweeps(connection), "20131103-000000-aaaaaa")
    paste(str(refusal.value), "retention list")
