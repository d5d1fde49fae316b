from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from feed_assets.context.errors import PlanOutdatedError, SafeModeError
from feed_assets.context.safe_mode import set_safe_mode
from feed_assets.definitions.commands import apply
from feed_assets.definitions.edits import Edit, Put, Remove
from feed_assets.definitions.verbs import planning
from feed_assets.definitions.verbs.context import EntityContext, open_entity_context
from feed_assets.definitions.verbs.planning import (
    PlannedChanges,
    apply_planned,
    plan_edits,
    plan_files,
    plan_folder,
    require_digest,
)
from feed_assets.definitions.verbs.verb_results import VerbResult
from feed_assets.loading.entity_files import read_entity_files
from feed_assets.log.audit import Audit
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import ProcessInstance, ProcessInstanceStatus
from feed_assets.plan.release_fingerprint import Step
from feed_assets.plan.rendering import render_difference
from feed_assets.settings import load_settings
from feed_assets.sql.database import Database
from tests.definitions.verbs.test_planning import ALL, CLICKS, CLUSTER, COUNTS, NOW, PROCESS, database, folder
from tests.drills import sampled

__all__ = ["database", "folder"]

START = datetime(2013, 11, 1, tzinfo=NOW.tzinfo)
Open = Callable[[str], EntityContext]

CHANGES = {
    "soft": [PROCESS + "tags: {owner: ops}\n"],
    "parallel": [PROCESS + "parallel: 3\n"],
    "frequency": [PROCESS.replace("hours(1)", "hours(2)")],
    "time zone": [PROCESS + "timezone: Asia/Tokyo\n"],
    "window": [PROCESS.replace('end: "now(0,0)"', 'end: "now(0,30)"')],
    "late data begin": [
        PROCESS + "late_process: {policy: final, delay: hours(1), inputs: [clicks]}\n",
        CLICKS + "late_arrival: {cut_off: hours(6)}\n",
    ],
    "later start": [PROCESS.replace("start: 2013-11-01T00:00Z", "start: 2013-11-02T00:00Z")],
    "an end": [PROCESS.replace("start: 2013-11-01T00:00Z", "start: 2013-11-01T00:00Z, end: 2013-12-01T00:00Z")],
    "an end within three minutes": [
        PROCESS.replace("start: 2013-11-01T00:00Z", "start: 2013-11-01T00:00Z, end: 2013-11-03T00:32Z")
        + "order: LIFO\n"
    ],
    "flag of a feed": [CLICKS + "availability_flag: _DONE\n"],
    "place of a feed": [COUNTS.replace("/counts/", "/amounts/")],
    "schema of a feed": [CLICKS + 'schema: "id string"\n'],
    "retention of a feed": [CLICKS.replace("days(90)", "days(60)")],
}


@pytest.fixture(params=["from-now", "always"])
def context(request: pytest.FixtureRequest, tmp_path: Path, folder: Path, database: Database) -> EntityContext:
    overrides = {"entities": str(folder), "variables": {"DATA_ROOT": str(tmp_path)}}
    settings = load_settings({**overrides, "definition_changes": request.param}, {}, tmp_path)
    (tmp_path / "jobs.py").write_text("def count(clicks): ...\n")
    context = open_entity_context(settings, database, author="ann", now=NOW, skip_checks=True)
    apply_planned(context, plan_folder(context))
    return context


def put_instances(context: EntityContext, begun: int, waiting: int) -> None:
    """Process instances from the start on: some that have ended, and some that wait."""
    row = ProcessInstance(
        process="count",
        cluster="primary",
        nominal_time=START,
        status=ProcessInstanceStatus.WAITING,
        updated_at=START,
    )
    rows = [replace(row, nominal_time=START + timedelta(hours=n)) for n in range(begun + waiting)]
    with context.database.begin() as connection:
        instances = ProcessInstances(connection)
        instances.add_waiting(rows)
        instances.transition_many(
            [each.key for each in rows[:begun]],
            {ProcessInstanceStatus.WAITING},
            status=ProcessInstanceStatus.SUCCEEDED,
            updated_at=START,
        )


@pytest.mark.parametrize("begun", sampled([0, 3], 3))
@pytest.mark.parametrize("change", CHANGES)
def test_releases_go_on_as_the_plan_has_said(context: EntityContext, change: str, begun: int) -> None:
    put_instances(context, begun, 2)
    planned = plan_edits(context, [Put(text=text) for text in CHANGES[change]])
    assert planned.errors == ()
    said = {
        process.key: (process.step, process.effective_from)
        for process in planned.difference.processes
        if process.step is not Step.IN_PLACE
    }
    result = apply_planned(context, planned)
    done = {
        release.key: (release.step, release.effective_from)  # type: ignore[attr-defined]
        for release in result.releases
        if release.step is not Step.IN_PLACE  # type: ignore[attr-defined]
    }
    assert said == done
    assert plan_edits(context, planned.edits).difference.is_empty


def test_row_104_a_changed_workflow_file_is_a_change_of_the_plan(
    context: EntityContext, folder: Path, tmp_path: Path
) -> None:
    query = tmp_path / "count.sql"
    query.write_text("select 1")
    (folder / "count.yaml").write_text(PROCESS.replace('path: "jobs:count"', "engine: sql, path: count.sql"))
    apply_planned(context, plan_folder(context))
    put_instances(context, 1, 0)
    assert plan_folder(context).difference.is_empty
    query.write_text("select 2")
    planned = plan_folder(context)
    assert plan_edits(context, [Put(text=CLICKS)]).difference == planned.difference
    assert render_difference(planned.difference).startswith("Consequences:\n  process 'count' on primary: ")
    assert "(touched by file 'count.sql')" in render_difference(planned.difference)
    query.write_text("select 3")
    assert plan_folder(context).digest != planned.digest
    revision = context.load().revision
    set_safe_mode(context.database, is_on=True, author="root", now=NOW)
    with pytest.raises(SafeModeError):
        apply_planned(context, plan_folder(context))
    set_safe_mode(context.database, is_on=False, author="root", now=NOW)
    (release,) = apply_planned(context, plan_folder(context)).releases
    (process,) = planned.difference.processes
    assert process.step is release.step  # type: ignore[attr-defined]
    assert process.effective_from == release.effective_from  # type: ignore[attr-defined]
    assert context.load().revision > revision
    with context.database.read() as connection:
        (entry,) = Audit(connection).newest(1)
    assert (entry.target, entry.details["files"]) == ("process 'count'", ["count.sql"])
    assert plan_folder(context).difference.is_empty


def test_an_earlier_start_adds_to_the_release_that_there_is(context: EntityContext) -> None:
    apply_planned(context, plan_edits(context, [Put(text=CHANGES["later start"][0])]))
    put_instances(context, 3, 0)
    planned = plan_edits(context, [Put(text=PROCESS)])
    (process,) = planned.difference.processes
    (release,) = apply_planned(context, planned).releases
    assert process.step is release.step  # type: ignore[attr-defined]
    assert process.effective_from == release.effective_from  # type: ignore[attr-defined]
    if context.settings.definition_changes == "from-now":
        assert (process.step, process.effective_from) == (Step.EXTENDED, START)


def test_a_change_that_was_planned_for_another_world_is_not_made(context: EntityContext, folder: Path) -> None:
    planned = plan_edits(context, [Put(text=CHANGES["frequency"][0])])
    (folder / "clicks.yaml").write_text(CLICKS + "description: edited\n")
    with pytest.raises(PlanOutdatedError):
        apply_planned(context, planned)
    of_folder = plan_folder(context)
    (folder / "clicks.yaml").write_text(CLICKS + "description: edited again\n")
    with pytest.raises(PlanOutdatedError):
        apply_planned(context, of_folder)
    with pytest.raises(PlanOutdatedError):
        require_digest(of_folder.digest, planned.digest)


def test_a_change_that_nobody_asked_to_see_waits_for_those_that_come_before_it(
    context: EntityContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slower.yaml").write_text(CHANGES["frequency"][0])
    files, others = read_entity_files(tmp_path / "slower.yaml"), ["parallel", "window"]

    def come_before(context: EntityContext, planned: PlannedChanges, **options: bool) -> VerbResult:
        if others:
            apply_planned(context, plan_edits(context, [Put(text=CLICKS + f"description: {others.pop()}\n")]))
        return apply_planned(context, planned, **options)

    def refuse(_: str) -> None:
        raise AssertionError

    monkeypatch.setattr(planning, "apply_planned", come_before)
    with pytest.raises(PlanOutdatedError):
        apply(context, files=files, digest=plan_files(context, files, prune=False).digest, confirm=refuse)
    assert others == ["parallel"]
    (outcome,) = apply(context, files=files, yes=True, confirm=refuse).outcomes  # type: ignore[union-attr]
    assert (outcome.name, others) == ("count", [])
    bundle = context.load().bundle.bundle
    assert [str(each.frequency) for each in bundle.processes] == ["hours(2)"]
    assert "parallel" in str([each.description for each in bundle.feeds])


def test_every_entity_that_is_applied_is_audited(context: EntityContext) -> None:
    with context.database.read() as connection:
        before = len(Audit(connection).newest(100))
    edits: list[Edit] = [Put(text=CHANGES["parallel"][0]), Remove(key=("cluster", "nowhere"))]
    apply_planned(context, plan_edits(context, edits))
    with context.database.read() as connection:
        entries = Audit(connection).newest(100)
    assert len(entries) == before + 1
    assert (entries[0].action, entries[0].target, entries[0].author) == ("apply", "process 'count'", "ann")


def test_the_samples_are_those_of_planning() -> None:
    assert set(ALL.values()) == {CLUSTER, CLICKS, COUNTS, PROCESS}
