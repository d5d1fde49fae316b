"""Every command that the program offers is pasted where it was read: it runs, and ends what it promises to end.

Here are those of `why` and of Dagster's pages; `test_hints_of_instances.py` and `test_hints_of_definitions.py` have the
others.
"""

import shutil
from pathlib import Path

import pytest
import yaml

from feed_assets.alerts.delivery.port import Letter
from feed_assets.context.errors import InstanceNotThereError
from feed_assets.context.safe_mode import record_restore
from feed_assets.entities.common import Kind
from feed_assets.entities.metadata import Origin
from feed_assets.explain.records import Explanation, Reason, ReasonCode
from feed_assets.instances.late.lateness import plan_rerun
from feed_assets.instances.late.store import Asked, LateChecks
from feed_assets.log.agenda import AgendaKind
from feed_assets.log.instances.attempts import Attempts
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.messages.payloads import (
    EntityAction,
    EntityPayload,
    MessagePayload,
    MetadataPayload,
    RetryPayload,
    SweepPayload,
)
from feed_assets.log.messages.records import OutboxMessage
from feed_assets.log.records import Attempt, Cause, FrozenInput, ProcessInstanceStatus, ProcessKey
from feed_assets.orchestration.errors import NoAssetError
from feed_assets.orchestration.location.health import describe_behind
from feed_assets.orchestration.sensors.overdue_notices import MOST_LINES, render_most
from tests.alerts.deadlines import test_sla_commands
from tests.alerts.delivery import test_notify_commands
from tests.cli import test_hints_of_definitions, test_hints_of_extensions, test_hints_of_instances
from tests.cli.pasting import (
    AT,
    CLAIMED,
    TIME,
    Pasting,
    begin,
    counted,
    declare,
    expired,
    land,
    look,
    of,
    paste,
    replicated,
    schedule_by_hand,
    status_of,
)
from tests.cli.project import let_ticks_come, must, ok, run, set_clock
from tests.commands import offered_in_code, written_by_hand
from tests.databases import open_migrated
from tests.definitions.verbs.harness import CLICKS, CLUSTER, COUNTING, COUNTS, NOON
from tests.external_work import test_calls
from tests.instances.inbox import test_inbox_commands
from tests.log.samples import feed_instance, late_check, process_instance
from tests.retention.project import planned

__all__ = ["counted", "expired", "paste", "replicated"]

OTHERS = (
    test_calls,
    test_hints_of_definitions,
    test_hints_of_extensions,
    test_hints_of_instances,
    test_inbox_commands,
    test_notify_commands,
    test_sla_commands,
)
"""Modules with the other tests, which say on import what they paste."""
ELSEWHERE = {
    "definitions.errors.EditedHereError.__init__: entity definition": "tests/front/test_sites.py reads it",
    "server.serving.serve: front": "tests/front/test_sites.py reads it",
    "engines.workflow.sql_code.<module>: validate": "starts Spark: tests/definitions/checks/test_code_trials.py",
    "explain.explanations._Explainer._missing: entity touch": "old releases: tests/explain/test_explanations.py",
    "instances.arrival.stored_data._describe_lost: state rebuild": "tests/instances/arrival/test_stored_data.py",
    "project_homes._init_here: init": "needs a clone or a copy: tests/scaffolding/test_checkouts.py",
    "scaffolding.checkouts.find_project: init": "outside of any project: tests/scaffolding/test_checkouts.py",
    "triggers.input_windows.find_gone: entity touch": "old releases: tests/explain/test_explanations.py",
    "sql.errors.StateSchemaError.__init__: state rebuild": "needs a new database: tests/cli/test_away.py",
}
"""Places whose commands are not pasted in their place, and what makes what these promise. Here the same command is
pasted for a storage.
"""


def test_every_command_that_the_code_offers_is_pasted_by_a_test() -> None:
    claimed = {place for places in CLAIMED.values() for place in places}
    assert claimed | ELSEWHERE.keys() == offered_in_code()


def test_no_command_is_written_by_hand() -> None:
    assert written_by_hand() == []


@of("explain.explanations._plain: entity schedule")
def test_what_is_not_scheduled_is_scheduled(counted: Path, paste: Pasting) -> None:
    schedule_by_hand(counted)
    paste(ok(run("why", "counting", TIME)), "entity schedule process counting --clusters primary")
    assert "its process is not scheduled" not in ok(run("why", "counting", TIME, "--all"))


@of("explain.explanations._plain: entity resume")
def test_what_is_suspended_is_resumed(counted: Path, paste: Pasting) -> None:
    ok(run("entity", "suspend", "process", "counting"))
    paste(ok(run("why", "counting", TIME)), "entity resume process counting --clusters primary")
    assert "its process is suspended" not in ok(run("why", "counting", TIME, "--all"))


@of("explain.explanations._plain: entity resume")
def test_copies_are_resumed_by_their_feed(replicated: Path, paste: Pasting) -> None:
    ok(run("entity", "suspend", "feed", "clicks"))
    said = ok(run("why", "clicks@east", "2013-11-01T00:00Z", "--all"))
    paste(said, "entity resume feed clicks --clusters west")
    assert "its feed is suspended" not in ok(run("why", "clicks@east", "2013-11-01T00:00Z", "--all"))


@of(
    "explain.explanations._plain: instance resume",
    "explain.sentences._ended: instance rerun",
)
def test_an_instance_is_resumed_and_run_again(counted: Path, paste: Pasting) -> None:
    begin(counted, ProcessInstanceStatus.SUSPENDED)
    paste(ok(run("why", "counting", TIME)), "instance resume")
    assert status_of() == "WAITING"
    begin(counted, ProcessInstanceStatus.FAILED)
    paste(ok(run("why", "counting", TIME)), "instance rerun")
    assert status_of() == "WAITING"


@of("explain.sentences._rerun: instance kill")
def test_a_rerun_that_was_asked_for_is_called_off(counted: Path, paste: Pasting) -> None:
    begin(counted, ProcessInstanceStatus.SUCCEEDED)
    asked = Asked("4f0c91d2", "ann", 0, goes_on=False, is_woken=True)
    with open_migrated(f"sqlite:///{counted}/state.db").begin() as connection:
        LateChecks(connection).put([plan_rerun(ProcessKey("counting", "primary", AT), asked, NOON)])
    paste(ok(run("why", "counting", TIME)), "instance kill")
    assert "rerun" not in ok(run("why", "counting", TIME))


@of("instances.gates.reconciliation.suspend_command: entity suspend")
def test_whose_run_was_cancelled_says_what_stops_its_process(counted: Path, paste: Pasting) -> None:
    begin(counted, ProcessInstanceStatus.KILLED, cause=Cause.RUN_CANCELLED)
    paste(ok(run("why", "counting", TIME)), "entity suspend process counting --clusters primary")
    assert "its process is suspended" in ok(run("why", "counting", "2013-11-03T06:00Z", "--all"))


@of(
    "explain.explanations.explain_behind: instance rerun",
    "orchestration.location.health.describe_behind: why",
)
def test_a_replica_that_is_behind_is_explained_on_both_sides_and_copied_again(replicated: Path, paste: Pasting) -> None:
    set_clock(replicated, "2013-11-03T12:00Z")
    let_ticks_come(f"sqlite:///{replicated}/state.db")
    begin(replicated, ProcessInstanceStatus.FAILED, "clicks@east", "west")
    with open_migrated(f"sqlite:///{replicated}/state.db").begin() as connection:
        checks = LateChecks(connection)
        checks.put(
            [late_check(kind=AgendaKind.UPDATE, name="clicks@east", cluster="west", nominal_time=AT, planned_at=AT)]
        )
        (behind,) = checks.behind(NOON)
    explained = paste(describe_behind(behind), "why").stdout
    assert "the replication of feed 'clicks' from east" in explained
    said = ok(run("why", "clicks", TIME))
    since = "2013-11-03T05:00:00Z: the replication of feed 'clicks' from east is FAILED"
    assert f"its copy on west is behind since it changed at {since}" in " ".join(said.split())
    assert f"it is behind its source on east, which has other content since {since}" in " ".join(said.split())
    paste(said, "instance rerun clicks@east")
    assert status_of("clicks@east") == "WAITING"


@of("explain.sentences._arrival_command: feed notify")
def test_what_has_arrived_after_all_is_told(counted: Path, paste: Pasting) -> None:
    look(counted)
    said = ok(run("why", "clicks", TIME))
    land(counted)
    paste(said, "feed notify")
    assert status_of("clicks") == "AVAILABLE"


@of("explain.sentences.explain_lost: instance rerun")
def test_what_storage_has_lost_is_produced_again(counted: Path, paste: Pasting) -> None:
    land(counted)
    begin(counted, ProcessInstanceStatus.SUCCEEDED)
    row = feed_instance(feed="counts", nominal_time=AT, updated_at=NOON, files=1)
    with open_migrated(f"sqlite:///{counted}/state.db").begin() as connection:
        FeedInstances(connection).put([row])
    said = run("why", "counts", TIME, "--look")
    assert "1 instance lost by storage, and recorded as missing" in said.stderr
    paste(said.stdout, "instance rerun")
    assert status_of() == "WAITING"


@of("explain.explanations.explain_remakes: why")
def test_what_is_there_and_was_to_be_made_again_names_what_keeps_that(counted: Path, paste: Pasting) -> None:
    begin(counted, ProcessInstanceStatus.SUCCEEDED)
    row = feed_instance(feed="counts", nominal_time=AT, updated_at=NOON, files=1)
    with open_migrated(f"sqlite:///{counted}/state.db").begin() as connection:
        FeedInstances(connection).put([row])
    assert "again" not in ok(run("why", "counts", TIME))
    begin(counted, ProcessInstanceStatus.FAILED)
    said = ok(run("why", "counts", TIME))
    assert "process 'counting' was to make it again, and is FAILED; this stays" in said
    assert "process counting on primary at 2013-11-03T05:00Z is FAILED" in paste(said, "why").stdout


@of("explain.sentences._obstruction: validate")
def test_what_cannot_be_polled_is_examined(expired: Path, paste: Pasting) -> None:
    place = expired / "data/clicks/2013-11-03/05"
    shutil.rmtree(place)
    place.symlink_to(place)
    look(expired)
    paste(ok(run("why", "clicks", TIME)), "validate --live")


@of("explain.sentences.explain_whereabouts: retention undo")
def test_what_was_evicted_comes_back(expired: Path, paste: Pasting) -> None:
    ok(run("retention", "run", planned("clicks")))
    assert not (expired / "data/clicks/2013-11-03/05").exists()
    paste(ok(run("why", "clicks", TIME)), "retention undo")
    assert (expired / "data/clicks/2013-11-03/05/part.csv").exists()
    assert not (expired / "data/clicks/2013-11-03/04").exists()


@of("instances.lists.control.find_restores: retention undo")
def test_a_rerun_says_that_what_it_has_read_was_evicted(expired: Path, paste: Pasting) -> None:
    (expired / "counting.sql").write_text("SELECT 1")
    (expired / "entities/counting.yaml").write_text(yaml.safe_dump_all([COUNTS, COUNTING]))
    sweep = planned("clicks")
    ok(run("retention", "run", sweep))
    read = FrozenInput(name="clicks", feed="clicks", nominal_times=(AT,), digests=(None,))
    done = process_instance(
        status=ProcessInstanceStatus.SUCCEEDED, process="counting", nominal_time=AT, updated_at=NOON, attempt=1
    )
    last = Attempt(**done.key._asdict(), attempt=1, run_id="r", status=done.status, started_at=NOON, inputs=(read,))
    with open_migrated(f"sqlite:///{expired}/state.db").begin() as connection:
        ProcessInstances(connection).add_waiting([done])
        Attempts(connection).begin(last)
    for dry_run in (["--dry-run"], []):
        said = must("instance", "rerun", "counting", "--instance", TIME, *dry_run)
    assert "; it waits for inputs that were evicted, to restore them: feed-assets retention undo" in said.stderr
    paste(said.stderr, "retention undo")
    assert (expired / "data/clicks/2013-11-03/05/part.csv").exists()
    again = run("instance", "rerun", "counting", "--instance", TIME)
    assert "evicted" not in again.stderr


@of("explain.explanations.<module>: state rebuild", "context.safe_mode.<module>: state rebuild")
def test_a_restored_state_is_rebuilt(counted: Path, paste: Pasting) -> None:
    with open_migrated(f"sqlite:///{counted}/state.db").begin() as connection:
        record_restore(connection)
    said = ok(run("why", "counting", TIME))
    assert "until `feed-assets state rebuild` has recorded" in said
    paste(said, "state rebuild")
    assert "the state was restored" not in ok(run("why", "counting", TIME))


@of("explain.explanations._named: why")
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


@of("context.errors.InstanceNotThereError.__init__: why")
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
    assert "no tick has polled" in paste(lines[-1], "why clicks").stdout


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


def letter_of(payload: MessagePayload) -> str:
    return Letter(message=OutboxMessage(recorded_at=AT, payload=payload, idempotency_key="1")).text


@of(
    "alerts.delivery.words._tell: entity history",
    "alerts.delivery.words._tell: metadata history",
    "alerts.delivery.words._tell: retention show",
    "alerts.delivery.words._tell_instances: why",
)
def test_what_letters_offer_is_run(expired: Path, paste: Pasting) -> None:
    sweep = planned("clicks")
    asking = SweepPayload(sweep=sweep, feed="clicks", cluster="primary", instances=1, reason="much")
    assert sweep in paste(letter_of(asking), "retention show").stdout
    ended = RetryPayload(kind=Kind.FEED, entity="clicks", cluster="primary", nominal_time=AT, attempts=1)
    assert "clicks" in paste(letter_of(ended), f"why clicks {TIME}").stdout
    ok(run("metadata", "put", "feed/clicks", "color=red"))
    said = MetadataPayload(
        entity="feed/clicks", author="ann", origin=Origin.PERSON, previous={}, additions={}, deletions={}
    )
    assert "color" in paste(letter_of(said), "metadata history").stdout
    changed = EntityPayload(action=EntityAction.UPDATE, kind=Kind.FEED, entity="clicks", author="ann")
    paste(letter_of(changed), "entity history feed clicks")
