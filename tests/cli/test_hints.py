"""Every command that the program offers is pasted where it was read: it runs, and ends what it promises to end.

`of` names the places of the code whose commands a test pastes. Each place has a test, so that a hint cannot be added
that nobody has run.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import pytest
import yaml

from feed_assets.entities.common import Kind
from feed_assets.lifecycle.errors import ReleaseError, SweepRefusedError
from feed_assets.lifecycle.releases.pinning import load_pinned_work
from feed_assets.lifecycle.retention.sweep_context import require_sweep
from feed_assets.operations.context import open_context
from feed_assets.operations.errors import InstanceNotThereError
from feed_assets.operations.explaining.records import Explanation, Reason, ReasonCode
from feed_assets.operations.restores import record_restore
from feed_assets.orchestration.errors import NoAssetError
from feed_assets.orchestration.sensors.overdue_notices import MOST_LINES, render_most
from feed_assets.settings import load_settings
from feed_assets.state.process_instances import ProcessInstances
from feed_assets.state.records import ProcessInstance, ProcessInstanceStatus
from feed_assets.state.sweeps import Sweeps
from tests.cli import replication_project, retention_project
from tests.cli.pasting import Pasting
from tests.cli.project import prepare, run
from tests.cli.retention_project import ok, planned, refused
from tests.commands import Offer, examples_in_code, offered_in_code, require_command, words_of, written_by_hand
from tests.databases import open_migrated
from tests.operations.harness import CLICKS, CLUSTER, COUNTING, NOON

TIME = "2013-11-03T05:00Z"
AT = datetime(2013, 11, 3, 5, tzinfo=UTC)

_Test = TypeVar("_Test", bound=Callable[..., None])
CLAIMED: dict[str, tuple[str, ...]] = {}
ELSEWHERE = {
    "engines.sql_code.<module>: validate": "Spark reads the statements: tests/operations/test_code_trials.py",
}
"""Places whose commands are not pasted here, and what runs them."""


def of(*places: str) -> Callable[[_Test], _Test]:
    """Name the places of the code whose commands a test pastes."""

    def claim(test: _Test) -> _Test:
        CLAIMED[test.__name__] = places
        return test

    return claim


def test_every_command_that_the_code_offers_is_pasted_by_a_test() -> None:
    claimed = {place for places in CLAIMED.values() for place in places}
    assert claimed | ELSEWHERE.keys() == offered_in_code()


def test_no_command_is_written_by_hand() -> None:
    assert written_by_hand() == []


def test_the_examples_of_the_help_are_commands() -> None:
    for _, example in examples_in_code():
        require_command(words_of(example))


@pytest.fixture
def paste(request: pytest.FixtureRequest, offers: list[Offer]) -> Iterator[Pasting]:
    """Commands are pasted; what the test claims was offered in it, and pasted."""
    pasting = Pasting()
    yield pasting
    for place in CLAIMED[request.function.__name__]:
        function, _, verb = place.rpartition(": ")
        texts = [each.command for each in offers if each.function == place]
        if function.endswith("<module>"):
            texts = [text for text in pasting.done if f"{text} ".startswith(f"feed-assets {verb} ")]
        assert set(texts) & set(pasting.done), f"{place}: {texts or 'nothing'} was offered, {pasting.done} pasted"


@pytest.fixture
def counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Clicks are counted; nothing has arrived, and no tick has been."""
    prepare(tmp_path)
    (tmp_path / "all.yaml").rename(tmp_path / "entities/all.yaml")
    retention_project.set_clock(tmp_path, retention_project.NOON)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEED_ASSETS_AUTHOR", "ann")
    return tmp_path


expired = pytest.fixture(name="expired")(retention_project.project.__wrapped__)
replicated = pytest.fixture(name="replicated")(replication_project.project.__wrapped__)


def declare(project: Path, *documents: object) -> None:
    (project / "entities/all.yaml").write_text(yaml.safe_dump_all(documents))


def begin(project: Path, status: ProcessInstanceStatus, process: str = "counting", cluster: str = "primary") -> None:
    """Let the instance of 3 November, 5 o'clock, be in a status."""
    row = ProcessInstance(process=process, cluster=cluster, nominal_time=AT, status=status, updated_at=NOON)
    with open_migrated(f"sqlite:///{project}/state.db").begin() as connection:
        instances = ProcessInstances(connection)
        instances.add_waiting([row])
        instances.transition_many([row.key], set(ProcessInstanceStatus), status=status, updated_at=NOON)


def status_of(name: str = "counting", time: str = TIME) -> str:
    """What `why` says of an instance in its first line."""
    return ok(run("why", name, time)).splitlines()[0].rpartition(" is ")[2]


def schedule_by_hand(project: Path) -> None:
    with (project / "feed_assets.yaml").open("a") as file:
        file.write("schedule: explicit\n")


def look(project: Path) -> None:
    """Let the clicks of 5 o'clock be looked for in storage."""
    run("feed", "notify", "clicks", "--start", TIME, "--end", "2013-11-03T06:00Z")


def land(project: Path, feed: str = "clicks") -> None:
    folder = project / f"data/{feed}/2013-11-03/05"
    folder.mkdir(parents=True)
    (folder / "part.csv").write_text("1")


@of("operations.explaining.explanations._plain: entity schedule")
def test_what_is_not_scheduled_is_scheduled(counted: Path, paste: Pasting) -> None:
    schedule_by_hand(counted)
    paste(ok(run("why", "counting", TIME)), "entity schedule process counting --clusters primary")
    assert "its process is not scheduled" not in ok(run("why", "counting", TIME, "--all"))


@of("operations.explaining.explanations._plain: entity resume")
def test_what_is_suspended_is_resumed(counted: Path, paste: Pasting) -> None:
    ok(run("entity", "suspend", "process", "counting"))
    paste(ok(run("why", "counting", TIME)), "entity resume process counting --clusters primary")
    assert "its process is suspended" not in ok(run("why", "counting", TIME, "--all"))


@of("operations.explaining.explanations._plain: entity resume")
def test_copies_are_resumed_by_their_feed(replicated: Path, paste: Pasting) -> None:
    ok(run("entity", "suspend", "feed", "clicks"))
    said = ok(run("why", "clicks@east", "2013-11-01T00:00Z", "--all"))
    paste(said, "entity resume feed clicks --clusters west")
    assert "its feed is suspended" not in ok(run("why", "clicks@east", "2013-11-01T00:00Z", "--all"))


@of(
    "operations.explaining.explanations._plain: instance resume",
    "operations.explaining.sentences._ended: instance rerun",
)
def test_an_instance_is_resumed_and_run_again(counted: Path, paste: Pasting) -> None:
    begin(counted, ProcessInstanceStatus.SUSPENDED)
    paste(ok(run("why", "counting", TIME)), "instance resume")
    assert status_of() == "WAITING"
    begin(counted, ProcessInstanceStatus.FAILED)
    paste(ok(run("why", "counting", TIME)), "instance rerun")
    assert status_of() == "WAITING"


@of("operations.explaining.sentences._absence: feed notify")
def test_what_has_arrived_after_all_is_told(counted: Path, paste: Pasting) -> None:
    look(counted)
    said = ok(run("why", "clicks", TIME))
    land(counted)
    paste(said, "feed notify")
    assert status_of("clicks") == "AVAILABLE"


@of("operations.explaining.sentences._not_materialized: feed notify")
def test_what_an_asset_has_made_unseen_is_told(counted: Path, paste: Pasting) -> None:
    made = {**CLICKS["clusters"]["primary"], "produced_by": {"asset": ["team", "clicks"]}}  # type: ignore[index]
    declare(counted, CLUSTER, {**CLICKS, "clusters": {"primary": made}})
    said = ok(run("why", "clicks", TIME))
    land(counted)
    paste(said, "feed notify")
    assert status_of("clicks") == "AVAILABLE"


@of("operations.explaining.sentences._obstruction: validate")
def test_what_cannot_be_polled_is_examined(expired: Path, paste: Pasting) -> None:
    place = expired / "data/clicks/2013-11-03/05"
    shutil.rmtree(place)
    place.symlink_to(place)
    look(expired)
    paste(ok(run("why", "clicks", TIME)), "validate --live")


@of("operations.explaining.retention._whereabouts: retention undo")
def test_what_was_evicted_comes_back(expired: Path, paste: Pasting) -> None:
    ok(run("retention", "run", planned("clicks")))
    assert not (expired / "data/clicks/2013-11-03/05").exists()
    paste(ok(run("why", "clicks", TIME)), "retention undo")
    assert (expired / "data/clicks/2013-11-03/05/part.csv").exists()
    assert not (expired / "data/clicks/2013-11-03/04").exists()


@of("lifecycle.retention.chunk_removal.ChunkWorker._describe: retention undo")
def test_the_trash_says_how_it_is_undone(expired: Path, paste: Pasting) -> None:
    ok(run("retention", "run", planned("clicks")))
    (document,) = [file for file in expired.glob("data/.feed-assets/trash/*/*.json") if "undo" in file.read_text()]
    paste(json.loads(document.read_text())["undo"], "retention undo")
    assert (expired / "data/clicks/2013-11-03/04").exists()


@of(
    "operations.explaining.explanations.<module>: admin safemode",
    "operations.safe_mode.require_mode: admin safemode",
)
def test_safe_mode_is_switched_off_and_on(counted: Path, paste: Pasting) -> None:
    ok(run("admin", "safemode", "on"))
    paste(ok(run("why", "counting", TIME)), "admin safemode off")
    assert "safe mode" not in ok(run("why", "counting", TIME))
    ok(run("admin", "safemode", "on"))
    paste(refused(run("entity", "schedule", "process", "counting")), "admin safemode off")
    (counted / "cluster.yaml").write_text(yaml.safe_dump({**CLUSTER, "storage": f"file://{counted}/elsewhere"}))
    (counted / "elsewhere").mkdir()
    paste(refused(run("entity", "update", "cluster.yaml")), "admin safemode on")
    ok(run("entity", "update", "cluster.yaml"))


@of("operations.explaining.explanations.<module>: state rebuild", "operations.restores.<module>: state rebuild")
def test_a_restored_state_is_rebuilt(counted: Path, paste: Pasting) -> None:
    with open_migrated(f"sqlite:///{counted}/state.db").begin() as connection:
        record_restore(connection)
    said = ok(run("why", "counting", TIME))
    assert "until `feed-assets state rebuild` has recorded" in said
    paste(said, "state rebuild")
    assert "the state was restored" not in ok(run("why", "counting", TIME))


@of("operations.explaining.explanations._named: why")
def test_what_is_too_far_upstream_is_asked_for(counted: Path, paste: Pasting) -> None:
    feeds = [
        {**CLICKS, "name": f"f{n}", "locations": {"data": f"/f{n}/${{YEAR}}-${{MONTH}}-${{DAY}}-${{HOUR}}"}}
        for n in range(34)
    ]
    window = {"start": "now(0,0)", "end": "now(0,0)"}
    steps = [
        {
            **COUNTING,
            "name": f"p{n}",
            "inputs": {"input": {"feed": f"f{n}", **window}},
            "outputs": {"output": {"feed": f"f{n + 1}", "instance": "now(0,0)"}},
        }
        for n in range(33)
    ]
    declare(counted, CLUSTER, *feeds, *steps)
    assert "process p6 " in paste(ok(run("why", "p32", TIME, "--all")), "why p7").stdout


@of("operations.errors.VersionNotFoundError.__init__: entity history")
def test_an_unknown_version_leads_to_the_history(counted: Path, paste: Pasting) -> None:
    ok(run("apply", "--yes"))
    said = refused(run("entity", "blame", "process", "counting", "colour"))
    assert "SUBMITTED" in paste(said, "entity history process counting").stdout


@of("operations.entities.reading.show_definition: entity history")
def test_an_unknown_definition_leads_to_the_history(counted: Path, paste: Pasting) -> None:
    said = refused(run("entity", "definition", "process", "counting", "--version", "9"))
    assert "SUBMITTED" in paste(said, "entity history process counting").stdout


@of("operations.errors.EntityExistsError.__init__: apply")
def test_what_is_declared_differently_is_changed(counted: Path, paste: Pasting) -> None:
    ok(run("apply", "--yes"))
    file = counted / "it's new.yaml"
    file.write_text(yaml.safe_dump({**COUNTING, "parallel": 7}))
    paste(refused(run("entity", "submit", str(file))), "apply")
    assert "parallel: 7" in ok(run("entity", "definition", "process", "counting"))


@of("operations.errors.NotScheduledError.__init__: entity schedule")
def test_what_cannot_be_suspended_is_scheduled_first(counted: Path, paste: Pasting) -> None:
    schedule_by_hand(counted)
    paste(refused(run("entity", "suspend", "process", "counting")), "entity schedule process counting")
    ok(run("entity", "suspend", "process", "counting"))


@of(
    "operations.errors.FolderNotEmptyError.__init__: init",
    "operations.scaffolding.projects.NewProject.render: validate",
)
def test_a_folder_that_is_not_empty_gets_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, paste: Pasting
) -> None:
    folder = tmp_path / "web shop & more"
    folder.mkdir()
    (folder / "README.md").write_text("mine")
    made = paste(refused(run("init", str(folder), "--name", "shop")), "init").stdout
    assert (folder / "README.md").read_text() == "mine"
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    paste(made, "validate")


@of("operations.instances.lifecycles.find_work: retention list")
def test_retention_is_shown_by_its_sweeps(expired: Path, paste: Pasting) -> None:
    span = ("--start", TIME, "--end", "2013-11-03T06:00Z")
    said = refused(run("instance", "kill", "clicks", *span, "--lifecycle", "eviction"))
    sweep = planned("clicks")
    assert sweep in paste(said, "retention list").stdout


@of("operations.instances.arrival_notices._check_notice: instance rerun")
def test_what_a_process_writes_is_run_again(counted: Path, paste: Pasting) -> None:
    begin(counted, ProcessInstanceStatus.SUCCEEDED)
    paste(refused(run("feed", "notify", "counts", TIME)), "instance rerun counting")
    assert status_of() == "WAITING"


@of(
    "operations.replication.repairing._require_unsuspended: entity resume",
    "operations.replication.repairing._plan: instance resume",
)
def test_what_suspends_copies_is_resumed(replicated: Path, paste: Pasting) -> None:
    ok(run("replication", "repair", "clicks"))
    shutil.rmtree(replication_project.instance(replicated, 0))
    ok(run("entity", "suspend", "feed", "clicks"))
    paste(refused(run("replication", "repair", "clicks")), "entity resume feed clicks --clusters west")
    ok(run("instance", "rerun", "clicks", "--instance", "2013-11-01T00:00Z"))
    ok(run("instance", "suspend", "clicks", "--instance", "2013-11-01T00:00Z"))
    left = run("replication", "repair", "clicks")
    assert left.exit_code == 1
    paste(left.stdout, "instance resume clicks@east")
    ok(run("replication", "repair", "clicks"))
    assert replication_project.instance(replicated, 0).exists()


def occupy(project: Path) -> Path:
    """Let something foreign stand in the place of the first copy."""
    place = replication_project.instance(project, 0)
    place.mkdir(parents=True)
    (place / "theirs.csv").write_text("theirs")
    return place


@of("lifecycle.instances.attempts.offer_approval: instance rerun")
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


@of("lifecycle.errors.ReleaseError.__init__: entity definition")
def test_a_release_that_cannot_be_made_leads_to_the_declaration(counted: Path, paste: Pasting) -> None:
    said = str(ReleaseError(process="counting", cluster="primary", reason="its validity has no instance left"))
    assert "name: counting" in paste(said, "entity definition process counting").stdout


@of("lifecycle.releases.pinning._remedy: entity touch", "lifecycle.releases.pinning._remedy: instance rerun")
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
        return caplog.text.replace("\n", " ")

    said = load()
    paste(said, "entity touch")
    paste(said, "instance rerun")
    assert (status_of(), load()) == ("WAITING", "")


@of("definitions.errors.MassDeletionError.__init__: apply")
def test_a_mass_deletion_is_confirmed(counted: Path, paste: Pasting) -> None:
    ok(run("apply", "--yes"))
    declare(counted, CLUSTER)
    paste(refused(run("apply", "--yes")), "apply --delete-all")
    assert "DELETED" in ok(run("entity", "history", "process", "counting"))


@of(
    "definitions.errors.ForeignDefinitionsError.__init__: apply",
    "definitions.errors.ReplacedDefinitionsError.__init__: apply",
)
def test_another_project_takes_a_database_over(
    counted: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, paste: Pasting
) -> None:
    ok(run("apply", "--yes"))
    other = tmp_path_factory.mktemp("other")
    (other / "entities").mkdir()
    (other / "feed_assets.yaml").write_text(f"state: sqlite:///{counted}/state.db\n")
    declare(other, CLUSTER, {**CLICKS, "name": "others"})
    monkeypatch.chdir(other)
    paste(refused(run("entity", "list")), "apply --delete-all")
    monkeypatch.chdir(counted)
    paste(refused(run("entity", "history", "feed", "clicks")), "apply")
    ok(run("entity", "history", "feed", "clicks"))


@of("operations.retention.holding.release_hold: hold list")
def test_an_unknown_hold_leads_to_the_list(expired: Path, paste: Pasting) -> None:
    ok(run("hold", "add", "audit", "--feed", "clicks", "--reason", "numbers"))
    assert "audit" in paste(refused(run("hold", "release", "other")), "hold list").stdout


@of("operations.entities.planning._find_holds: hold release")
def test_the_hold_of_a_feed_that_goes_is_released(expired: Path, paste: Pasting) -> None:
    ok(run("apply", "--yes"))
    ok(run("hold", "add", "audit", "--feed", "views", "--reason", "numbers"))
    (feed,) = [
        each for each in yaml.safe_load_all((expired / "entities/all.yaml").read_text()) if each["name"] == "clicks"
    ]
    declare(expired, CLUSTER, feed)
    paste(run("plan").output, "hold release audit")
    assert "audit" not in ok(run("hold", "list"))


@of(
    "operations.retention.running._require_state: retention show",
    "operations.retention.reading.find_sweep: retention list",
)
def test_an_unfitting_or_unknown_sweep_is_shown(expired: Path, paste: Pasting) -> None:
    sweep = planned("clicks")
    assert "PLANNED" in paste(refused(run("retention", "approve", sweep)), f"retention show {sweep}").stdout
    assert sweep in paste(refused(run("retention", "show", "other")), "retention list").stdout


@of("lifecycle.retention.sweep_context.require_sweep: retention list")
def test_a_run_of_an_unknown_sweep_leads_to_the_list(expired: Path, paste: Pasting) -> None:
    with (
        open_migrated(f"sqlite:///{expired}/state.db").read() as connection,
        pytest.raises(SweepRefusedError) as refusal,
    ):
        require_sweep(Sweeps(connection), "20131103-000000-aaaaaa")
    paste(str(refusal.value), "retention list")


@of("operations.entities.applying.require_digest: plan")
def test_a_digest_that_is_too_short_leads_to_the_plan(counted: Path, paste: Pasting) -> None:
    assert "Plan " in paste(refused(run("apply", "--digest", "4f0")), "plan").stdout


@of("operations.falcon.importing.ImportReport.render_summary: validate")
def test_what_was_imported_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, paste: Pasting) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "feed_assets.yaml").write_text("entities: entities\n")
    primary = Path(__file__).parents[1] / "loading/falcon/documents/primary.xml"
    done = run("import-falcon", str(primary), "--to", "my entities")
    paste(done.stderr, "validate")


@of("operations.errors.InstanceNotThereError.__init__: why")
def test_an_instance_that_cannot_be_read_is_explained(
    counted: Path, monkeypatch: pytest.MonkeyPatch, paste: Pasting
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(counted))
    from feed_assets import load_instance

    with pytest.raises(InstanceNotThereError) as refusal:
        load_instance(None, "clicks", TIME)
    assert "MISSING" in paste(str(refusal.value), "why clicks").stdout


@of("orchestration.sensors.overdue_notices.render_most: why")
def test_a_long_notice_ends_with_the_command_for_the_rest(counted: Path, paste: Pasting) -> None:
    reasons = tuple(Reason(code=ReasonCode.POLLS, text=str(number)) for number in range(300))
    explanation = Explanation(
        kind=Kind.FEED, name="clicks", cluster="primary", nominal_time=AT, status="MISSING", reasons=reasons
    )
    lines = render_most(explanation).splitlines()
    assert (len(lines), lines[-1].startswith("… and 102 more lines: ")) == (MOST_LINES, True)
    assert "has not been polled yet" in paste(lines[-1], "why clicks").stdout


@of(
    "orchestration.errors.NoAssetError.__init__: validate",
    "orchestration.graph.metadata._why: why",
    "orchestration.runs.jobs.build_retention_job: retention list",
)
def test_what_dagster_shows_is_run(counted: Path, paste: Pasting) -> None:
    from feed_assets import build_definitions, get_asset_key

    built = build_definitions(folder=counted)
    with pytest.raises(NoAssetError) as refusal:
        get_asset_key(built, "visits", "primary")
    paste(str(refusal.value), "validate")
    told = built.resolve_all_asset_specs()
    (counts,) = [spec for spec in told if spec.key == get_asset_key(built, "counts", "primary")]
    assert "counts" in paste(str(counts.description), "why").stdout
    paste(str(built.get_job_def("retention_primary").description), "retention list --clusters primary")
