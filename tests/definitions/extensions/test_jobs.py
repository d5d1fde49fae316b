"""A job is one change, and its entities change with it only."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from feed_assets.context.errors import JobOwnedError, PlanOutdatedError, VerbRefusedError
from feed_assets.context.safe_mode import set_safe_mode
from feed_assets.definitions.bundles.archive import export_bundle, read_archive
from feed_assets.definitions.bundles.importing import import_bundle
from feed_assets.definitions.extensions import jobs, registry
from feed_assets.definitions.extensions.recipes import Given
from feed_assets.definitions.verbs import changes, schedules
from feed_assets.definitions.verbs.cloning import clone
from feed_assets.definitions.verbs.context import EntityContext
from feed_assets.definitions.verbs.planning import PlannedChanges, apply_planned, plan_files
from feed_assets.definitions.verbs.renaming import rename
from feed_assets.definitions.verbs.verb_results import EntityVerb, VerbOutcome, VerbResult
from feed_assets.entities.common import Kind
from feed_assets.entities.errors import DefinitionsError
from feed_assets.entities.feed import Feed
from feed_assets.entities.process import Process
from feed_assets.issues import Severity
from feed_assets.json_form import render_document
from feed_assets.loading.entity_files import EntityFile
from feed_assets.log.audit import Audit
from feed_assets.log.definitions.records import ScheduleState
from tests.definitions.extensions.samples import FEEDS, TABLES, files_of, lay
from tests.definitions.verbs.harness import ALL, CLUSTER, EntityHarness, changed, file_of

FIVE = Given(values={"tables": TABLES})
NAMES = tuple(f"nightly-{each['name']}" for each in TABLES)
FILE = "entities/extension-jobs/nightly.yaml"


@pytest.fixture
def harness(tmp_path: Path) -> EntityHarness:
    """A project in which the recipe is registered."""
    harness = EntityHarness.at(tmp_path)
    (tmp_path / "empty.sql").write_text("select 1")
    changes.submit(harness.context(), [file_of(CLUSTER)])
    register(harness)
    return harness


def register(harness: EntityHarness, **files: str) -> VerbResult:
    return registry.register_extension(harness.context(), lay(harness.folder / "recipe", files_of(**files)))


def submit(
    harness: EntityHarness, given: Given = FIVE, name: str = "nightly", *, is_scheduled: bool = False
) -> VerbResult:
    result = jobs.submit_job(harness.context(), "shop-tables", name, given, is_scheduled=is_scheduled)
    assert isinstance(result, VerbResult)
    return result


def states(harness: EntityHarness) -> dict[str, set[ScheduleState]]:
    view, bundle = harness.context().schedules(), harness.context().load().bundle.bundle
    entities: list[Feed | Process] = [*bundle.feeds, *bundle.processes]
    return {each.name: {view.state(each.kind, each.name, on) for on in each.clusters} for each in entities}


def outcomes(result: VerbResult | PlannedChanges) -> dict[str, VerbOutcome]:
    assert isinstance(result, VerbResult)
    return {each.name: each.outcome for each in result.outcomes}


def declared(harness: EntityHarness) -> set[str]:
    return {name for kind in (Kind.FEED, Kind.PROCESS) for name in harness.declared(kind)}


def test_row_138_a_job_comes_changes_and_goes_as_its_plans_say(harness: EntityHarness) -> None:
    assert set(outcomes(submit(harness)).values()) == {VerbOutcome.SUBMITTED}
    assert declared(harness) == {*NAMES, "nightly-count"}
    assert set.union(*states(harness).values()) == {ScheduleState.SUBMITTED}
    others = Given(values={"tables": [*TABLES[1:], {"name": "a", "hours": 1}, {"name": "b", "hours": 1}]})
    planned = jobs.update_jobs(harness.context(dry_run=True), ["nightly"], others)
    assert isinstance(planned, PlannedChanges)
    lines = planned.lines[0].splitlines()
    assert [line.split("  (")[0] for line in lines if line[:1] in "+-~" and line] == [
        "+ feed 'nightly-a'",
        "+ feed 'nightly-b'",
        "- feed 'nightly-orders'",
    ]
    assert declared(harness) == {*NAMES, "nightly-count"}, "a dry run changes nothing"
    done = jobs.update_jobs(harness.context(), ["nightly"], others, digest=planned.digest[:8])
    assert {name: each for name, each in outcomes(done).items() if each is not VerbOutcome.UNCHANGED} == {
        "nightly-a": VerbOutcome.SUBMITTED,
        "nightly-b": VerbOutcome.SUBMITTED,
        "nightly-orders": VerbOutcome.DELETED,
    }
    with pytest.raises(PlanOutdatedError):
        jobs.delete_job(harness.context(), "nightly", digest=planned.digest)
    assert len(outcomes(jobs.delete_job(harness.context(), "nightly"))) == 6
    assert declared(harness) == set()
    assert not (harness.folder / FILE).exists()
    assert outcomes(jobs.delete_job(harness.context(), "nightly")) == {"nightly": VerbOutcome.MISSING}
    with harness.database.read() as connection:
        audited = [(each.action, each.target, each.author) for each in Audit(connection).newest(100)]
    assert [each for each in reversed(audited) if each[0].startswith("extension")] == [
        ("extension-registered", "extension 'shop-tables'", "ann"),
        *((f"extension-job-{verb}", "job 'nightly'", "ann") for verb in ("submit", "update", "delete")),
    ]


def test_the_entities_of_a_job_carry_the_tags_of_falcon(harness: EntityHarness) -> None:
    submit(harness)
    feed = harness.context().load().bundle.bundle.get_feed("nightly-orders")
    assert feed.tags == {"_falcon_extension_name": "shop-tables", "_falcon_extension_job": "nightly"}


def unchanged_file(context: EntityContext) -> EntityFile:
    return EntityFile(name="nightly.yaml", content=(context.settings.root / FILE).read_bytes())


def bare(context: EntityContext) -> EntityFile:
    """The documents of the job without the line that names it, edited."""
    text = unchanged_file(context).content.decode().partition("---\n")[2]
    return EntityFile(name="bare.yaml", content=text.replace("format: csv", "format: json").encode())


def import_edited(context: EntityContext) -> object:
    archive = read_archive(export_bundle(context, ["nightly-orders"]).content, "a.zip")
    texts = {name: text.replace(b"format: csv", b"format: json") for name, text in archive.texts.items()}
    return import_bundle(context, replace(archive, texts=texts), "a.zip")


DIRECT: dict[str, Callable[[EntityContext], object]] = {
    "delete": lambda context: changes.delete(context, None, ["nightly-orders"]),
    "update": lambda context: changes.update(context, [bare(context)]),
    "submit and schedule": lambda context: changes.submit(context, [unchanged_file(context)], and_schedule=True),
    "apply": lambda context: apply_planned(context, plan_files(context, [bare(context)])),
    "prune": lambda context: plan_files(context, [file_of(CLUSTER)], prune=True),
    "rename": lambda context: rename(context, None, "nightly-orders", "orders"),
    "clone": lambda context: clone(context, None, "nightly-orders", "orders"),
    "bundle": import_edited,
    "schedule": lambda context: schedules.change_work(context, EntityVerb.SCHEDULE, None, ["nightly-orders"]),
    "suspend": lambda context: schedules.change_work(context, EntityVerb.SUSPEND, None, ["nightly-orders"]),
    "resume": lambda context: schedules.change_work(context, EntityVerb.RESUME, None, ["nightly-orders"]),
    "touch": lambda context: schedules.touch(context, None, "nightly-count"),
}


@pytest.mark.parametrize("verb", DIRECT)
def test_a_direct_change_is_refused_and_names_the_job(harness: EntityHarness, verb: str) -> None:
    submit(harness)
    before = (harness.folder / FILE).read_text(), states(harness), declared(harness)
    with pytest.raises(JobOwnedError, match=r"it belongs to job 'nightly' .* extension job update nightly"):
        DIRECT[verb](harness.context())
    assert ((harness.folder / FILE).read_text(), states(harness), declared(harness)) == before


def test_the_file_of_a_job_does_not_bring_its_entities_elsewhere(harness: EntityHarness, tmp_path: Path) -> None:
    submit(harness)
    file = unchanged_file(harness.context())
    assert set(outcomes(changes.submit(harness.context(), [file])).values()) == {VerbOutcome.UNCHANGED}
    jobs.delete_job(harness.context(), "nightly")
    with pytest.raises(JobOwnedError):
        changes.submit(harness.context(), [file])


def test_what_a_job_reads_is_not_renamed_without_it(harness: EntityHarness) -> None:
    changes.submit(harness.context(), [file_of(*ALL[1:3])])
    reads = "workflow: {engine: sql, path: counting.sql}\n"
    reads += 'inputs: {clicks: {feed: clicks, start: "now(0,0)", end: "now(0,0)"}}\n'
    reads += 'outputs: {counts: {feed: counts, instance: "now(0,0)"}}\n'
    register(harness, feeds=FEEDS.replace("workflow: {engine: sql, path: empty.sql}\n", reads))
    submit(harness)
    with pytest.raises(JobOwnedError, match="process 'nightly-count': it belongs to job 'nightly'"):
        rename(harness.context(), None, "clicks", "taps")


@pytest.mark.parametrize(
    "edit",
    [
        ("format: csv", "format: json"),
        ("---", "---: {"),
        ('"made_by": "', '"made_by": "x'),
        ("# feed-assets job", "#"),
        ('"parameters"', '"parametres"'),
    ],
)
def test_an_edit_by_hand_is_refused_until_the_job_is_made_anew(harness: EntityHarness, edit: tuple[str, str]) -> None:
    submit(harness, is_scheduled=True)
    file = harness.folder / FILE
    file.write_text(file.read_text().replace(*edit, 1))
    loaded = harness.context().load().bundle
    found = {each.code: each for each in loaded.issues if each.severity is Severity.ERROR}
    assert found.keys() - {"yaml-syntax"} == {"job-edited"}
    assert "the file of job 'nightly' was edited by hand" in found["job-edited"].message
    assert declared(harness) == set()
    harness.context().record()
    assert all(each.version == 1 for each in harness.context().load().newest.values()), "what is recorded stays"
    json.dumps(render_document(jobs=jobs.list_jobs(harness.context())))
    if "made anew" in found["job-edited"].remedy:
        jobs.update_jobs(harness.context(), ["nightly"], None)
    else:
        assert "submit the job again" in found["job-edited"].remedy
        submit(harness)
    assert harness.context().load().bundle.issues == ()
    assert set.union(*states(harness).values()) == {ScheduleState.SCHEDULED}


def test_a_job_whose_file_was_removed_begins_anew(harness: EntityHarness) -> None:
    submit(harness, name="other")
    submit(harness, is_scheduled=True)
    (harness.folder / FILE).unlink()
    submit(harness)
    assert set.union(*states(harness).values()) == {ScheduleState.SUBMITTED}


def test_comments_and_line_ends_are_no_edit(harness: EntityHarness) -> None:
    submit(harness)
    file = harness.folder / FILE
    file.write_bytes(file.read_bytes().replace(b"format: csv", b"format:  csv  # as they come").replace(b"\n", b"\r\n"))
    assert harness.context().load().bundle.issues == ()


def test_a_job_is_made_as_a_whole_or_not_at_all(harness: EntityHarness) -> None:
    changes.submit(harness.context(), [file_of(changed(ALL[1], name="nightly-users"))])
    with pytest.raises(DefinitionsError, match="there is another feed 'nightly-users'"):
        submit(harness)
    broken = Given(values={"tables": [*TABLES[:2], {"name": "x", "hours": 0}]})
    with pytest.raises(DefinitionsError, match=r"feeds\.yaml:6: feed 'nightly-x': frequency"):
        submit(harness, broken)
    assert declared(harness) == {"nightly-users"}
    assert not (harness.folder / FILE).exists()


def test_the_same_job_again_changes_nothing_and_another_one_is_refused(harness: EntityHarness) -> None:
    submit(harness)
    assert set(outcomes(submit(harness)).values()) == {VerbOutcome.UNCHANGED}
    with pytest.raises(VerbRefusedError, match="it is there already, with other parameters"):
        submit(harness, Given(values={"tables": TABLES[:1]}))
    for name in ("2nightly", "a/b", ""):
        with pytest.raises(VerbRefusedError, match="no job can have this name"):
            submit(harness, name=name)


def test_parameters_stay_until_others_are_given(harness: EntityHarness) -> None:
    submit(harness)
    jobs.update_jobs(harness.context(), ["nightly"], Given(values={"parallel": "4"}))
    assert jobs.show_job(harness.context(), "nightly").job.parameters == {"tables": TABLES, "parallel": 4}
    jobs.update_jobs(harness.context(), ["nightly"], Given(values={"tables": TABLES[:1]}, is_whole=True))
    assert jobs.show_job(harness.context(), "nightly").job.parameters == {"tables": TABLES[:1]}
    assert declared(harness) == {"nightly-orders", "nightly-count"}


def test_all_jobs_follow_their_extension_as_one_change(harness: EntityHarness) -> None:
    submit(harness)
    submit(harness, Given(values={"tables": [{"name": "x", "hours": 1}]}), "weekly")
    result = register(harness, feeds=FEEDS.replace("format: csv", "format: json"))
    assert any("another version has made nightly, weekly" in each for each in result.lines)
    assert [each.current for each in jobs.list_jobs(harness.context())] == [False, False]
    done = jobs.update_all(harness.context(), "shop-tables")
    assert list(outcomes(done).values()).count(VerbOutcome.UPDATED) == 5
    assert [each.current for each in jobs.list_jobs(harness.context(), "shop-tables")] == [True, True]
    assert jobs.list_jobs(harness.context(), "directory-mirror") == ()
    with harness.database.read() as connection:
        plans = {
            each.details["digest"] for each in Audit(connection).newest(100) if each.action == "extension-job-update"
        }
    assert len(plans) == 1


def test_jobs_are_scheduled_suspended_and_resumed_and_new_entities_follow(harness: EntityHarness) -> None:
    submit(harness)
    with pytest.raises(VerbRefusedError, match="it is not scheduled"):
        jobs.change_job(harness.context(), "nightly", EntityVerb.SUSPEND)
    jobs.change_job(harness.context(), "nightly", EntityVerb.SCHEDULE)
    assert set.union(*states(harness).values()) == {ScheduleState.SCHEDULED}
    tables = [*TABLES, {"name": "new", "hours": 1}]
    jobs.update_jobs(harness.context(), ["nightly"], Given(values={"tables": tables}))
    assert states(harness)["nightly-new"] == {ScheduleState.SCHEDULED}
    jobs.change_job(harness.context(), "nightly", EntityVerb.SUSPEND)
    assert set.union(*states(harness).values()) == {ScheduleState.SUSPENDED}
    jobs.update_jobs(harness.context(), ["nightly"], Given(values={"tables": [*tables, {"name": "newer", "hours": 1}]}))
    assert states(harness)["nightly-newer"] == {ScheduleState.SUBMITTED}
    jobs.change_job(harness.context(), "nightly", EntityVerb.RESUME)
    assert set.union(*states(harness).values()) == {ScheduleState.SCHEDULED}


def test_an_update_that_is_killed_before_it_schedules_is_ended_by_the_next(
    harness: EntityHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(harness, is_scheduled=True)
    more = Given(values={"tables": [*TABLES, {"name": "new", "hours": 1}]})
    with monkeypatch.context() as patch:
        patch.setattr(jobs, "schedule_submitted", raise_interrupt)
        with pytest.raises(KeyboardInterrupt):
            jobs.update_jobs(harness.context(), ["nightly"], more)
    assert states(harness)["nightly-new"] == {ScheduleState.SUBMITTED}
    jobs.update_jobs(harness.context(), ["nightly"], None)
    assert states(harness)["nightly-new"] == {ScheduleState.SCHEDULED}


def raise_interrupt(*_: object) -> None:
    """The process ends here."""
    raise KeyboardInterrupt


def test_a_change_that_another_one_comes_before_is_planned_anew_unless_its_plan_was_seen(
    harness: EntityHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned, others = apply_planned, iter(["ann", "bob"])

    def come_before(*given: Any, **named: Any) -> VerbResult:
        if (other := next(others, None)) is not None:
            submit(harness, Given(values={"tables": TABLES[:1], "owner": other}), name=f"of-{other}")
        return planned(*given, **named)

    submit(harness)
    parameters = Given(values={"owner": "eve"})
    seen = jobs.update_jobs(replace(harness.context(), dry_run=True), ["nightly"], parameters)
    assert isinstance(seen, PlannedChanges)
    monkeypatch.setattr(jobs, "apply_planned", come_before)
    with pytest.raises(PlanOutdatedError):
        jobs.update_jobs(harness.context(), ["nightly"], parameters, digest=seen.digest)
    jobs.update_jobs(harness.context(), ["nightly"], parameters)
    assert harness.context().load().jobs["nightly"].job.parameters["owner"] == "eve"


def test_a_warning_names_no_renaming_which_a_job_refuses(harness: EntityHarness) -> None:
    submit(harness)
    register(harness, feeds=FEEDS.replace("name: ${param.job}-${item", "name: ${param.job}-all-${item"))
    planned = jobs.update_jobs(replace(harness.context(), dry_run=True), ["nightly"], None)
    assert isinstance(planned, PlannedChanges)
    hints = {each.remedy for each in planned.issues if each.code == "renamed-in-files"}
    assert "What a job has made is not renamed: let its extension call it 'nightly-orders' still." in hints


def test_row_140_an_extension_that_is_disabled_makes_nothing_and_its_jobs_can_go(harness: EntityHarness) -> None:
    submit(harness, is_scheduled=True)
    with pytest.raises(VerbRefusedError, match="it has made nightly"):
        registry.unregister_extension(harness.context(), "shop-tables")
    registry.enable_extension(harness.context(), "shop-tables", is_enabled=False)
    refused: list[Callable[[], object]] = [
        lambda: submit(harness, name="other"),
        lambda: jobs.update_jobs(harness.context(), ["nightly"], None),
        lambda: jobs.change_job(harness.context(), "nightly", EntityVerb.SCHEDULE),
    ]
    for act in refused:
        with pytest.raises(VerbRefusedError, match="it is disabled"):
            act()
    register(harness, feeds=FEEDS.replace("csv", "json"))
    assert not registry.find_extension(harness.context(), "shop-tables").is_enabled, "new code stays disabled"
    jobs.change_job(harness.context(), "nightly", EntityVerb.SUSPEND)
    jobs.delete_job(harness.context(), "nightly")
    registry.unregister_extension(harness.context(), "shop-tables")
    with pytest.raises(VerbRefusedError, match="Extensions are: database-export, database-import"):
        registry.find_extension(harness.context(), "shop-tables")
    with pytest.raises(VerbRefusedError, match="it goes with feed-assets"):
        registry.unregister_extension(harness.context(), "directory-mirror")


def test_row_139_registered_code_stays_as_it_was(harness: EntityHarness) -> None:
    (harness.folder / "recipe/entities/feeds.yaml").unlink()
    assert set(outcomes(submit(harness)).values()) == {VerbOutcome.SUBMITTED}
    assert registry.describe_extension(harness.context(), "shop-tables") == "# Tables of a shop"


def test_entities_name_the_version_of_the_cluster_that_is_declared(harness: EntityHarness) -> None:
    submit(harness)
    set_safe_mode(harness.database, is_on=True, author="ann", now=harness.now)
    other = changed(CLUSTER, properties={"a": "b"})
    changes.update(harness.context(), [file_of(other)])
    set_safe_mode(harness.database, is_on=False, author="ann", now=harness.now)
    (left,) = changes.update_cluster_dependents(harness.context(), "primary").outcomes
    assert "extension job update nightly" in left.notes[0]
    jobs.update_jobs(harness.context(), ["nightly"], None)
    bundle = harness.context().load().bundle.bundle
    assert {each.clusters["primary"].version for each in bundle.feeds} == {1}
    assert changes.update_cluster_dependents(harness.context(), "primary").outcomes[0].notes == ()


def test_a_job_needs_a_file_of_its_own(harness: EntityHarness) -> None:
    settings = harness.settings.model_copy(update={"entities": "all.yaml"})
    (harness.folder / "all.yaml").write_text("kind: cluster\nname: primary\nstorage: file:///tmp\n")
    other = replace(harness, settings=settings)
    with pytest.raises(VerbRefusedError, match="all definitions are in one file"):
        submit(other)


@pytest.mark.parametrize("text", ["a\u2028b", "a\x85b", "München\n---\nkind: feed", "\x07", "# feed-assets job: {}"])
def test_any_text_can_be_given(harness: EntityHarness, text: str) -> None:
    submit(harness, Given(values={"tables": TABLES[:1], "owner": text}))
    loaded = harness.context().load()
    assert loaded.bundle.issues == ()
    assert loaded.bundle.bundle.get_feed("nightly-orders").description == text
    assert loaded.jobs["nightly"].job.parameters["owner"] == text


def test_a_secret_stands_in_no_file(harness: EntityHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OWNER_OF_ALL", "s3cr3t-word")
    submit(harness, Given(values={"tables": TABLES[:1], "owner": "${env:OWNER_OF_ALL}"}))
    bundle = harness.context().load().bundle.bundle
    assert bundle.get_feed("nightly-orders").description == "s3cr3t-word"
    assert "s3cr3t-word" not in (harness.folder / FILE).read_text()
