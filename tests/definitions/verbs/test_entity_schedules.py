from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from feed_assets.catalog.store import MetadataStore
from feed_assets.context.errors import NotSchedulableError, NotScheduledError, VerbRefusedError
from feed_assets.definitions.lists.reading import find_status
from feed_assets.definitions.verbs import changes as entity_changes
from feed_assets.definitions.verbs import schedules
from feed_assets.definitions.verbs.context import EntityContext
from feed_assets.definitions.verbs.schedules import change_work, touch
from feed_assets.definitions.verbs.states import EntityState
from feed_assets.definitions.verbs.verb_results import EntityVerb, VerbOutcome
from feed_assets.entities.common import Kind
from feed_assets.entities.errors import EntityNotFoundError
from feed_assets.entities.metadata import MetadataKey, MetadataKind, Scope
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import ProcessInstanceStatus
from feed_assets.releases.store import Releases
from feed_assets.setting_sections import MetadataSettings, SystemMetadataSettings
from tests.definitions.verbs.harness import ALL, CLICKS, COUNTING, EntityHarness, changed, file_of, with_validity
from tests.instances.harness import at

WAITING = ProcessInstanceStatus.WAITING


@pytest.fixture
def harness(tmp_path: Path) -> EntityHarness:
    harness = EntityHarness.at(tmp_path)
    entity_changes.submit(harness.context(), [file_of(*ALL)])
    return harness


def outcome_of(context: EntityContext, verb: EntityVerb) -> VerbOutcome:
    """Change the work on the process, and return what came of it."""
    return change_work(context, verb, Kind.PROCESS, ["counting"]).outcomes[0].outcome


def state(harness: EntityHarness) -> EntityState:
    return find_status(harness.context(), Kind.PROCESS, "counting").state


def test_what_is_submitted_has_no_instances_until_it_is_scheduled(harness: EntityHarness) -> None:
    harness.tick()
    assert harness.instances() == {}
    change_work(harness.context(), EntityVerb.SCHEDULE, Kind.PROCESS, ["counting"])
    harness.tick()
    assert min(harness.instances()) == at("01")


def test_row_88_a_second_schedule_has_no_effect_and_what_is_suspended_stays_so(harness: EntityHarness) -> None:
    context = harness.context()
    assert outcome_of(context, EntityVerb.SCHEDULE) is VerbOutcome.SCHEDULED
    assert outcome_of(context, EntityVerb.SCHEDULE) is VerbOutcome.UNCHANGED
    change_work(context, EntityVerb.SUSPEND, Kind.PROCESS, ["counting"])
    again = change_work(context, EntityVerb.SCHEDULE, Kind.PROCESS, ["counting"]).outcomes[0]
    assert (again.outcome, dict(again.clusters)) == (VerbOutcome.UNCHANGED, {"primary": "SUSPENDED"})


def test_what_is_scheduled_while_storage_is_asked_is_told_as_it_is(
    harness: EntityHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def schedule_meanwhile(context: EntityContext, *_: object) -> None:
        monkeypatch.undo()
        assert outcome_of(context, EntityVerb.SCHEDULE) is VerbOutcome.SCHEDULED

    monkeypatch.setattr(schedules, "require_reachable", schedule_meanwhile)
    done = change_work(harness.context(), EntityVerb.SCHEDULE, Kind.PROCESS, ["counting"]).outcomes[0]
    assert (done.outcome, dict(done.clusters)) == (VerbOutcome.UNCHANGED, {"primary": "SCHEDULED"})


def test_metadata_say_the_state_of_the_schedule_at_once(harness: EntityHarness) -> None:
    def said() -> str:
        with harness.database.read() as connection:
            entity = MetadataStore(connection).find("process/counting")
            assert entity is not None
            values = MetadataStore(connection).read(entity.id)
        return values[MetadataKey(Scope.SYSTEM, MetadataKind.PROPERTY, "schedule")].value

    assert said() == "SUBMITTED"
    change_work(harness.context(), EntityVerb.SCHEDULE, Kind.PROCESS, ["counting"])
    assert said() == "SCHEDULED"
    change_work(harness.context(), EntityVerb.SUSPEND, Kind.PROCESS, ["counting"])
    assert said() == "SUSPENDED"
    chosen = SystemMetadataSettings(exclude=("process/schedule",))
    settings = harness.settings.model_copy(update={"metadata": MetadataSettings(system=chosen)})
    change_work(replace(harness.context(), settings=settings), EntityVerb.RESUME, Kind.PROCESS, ["counting"])
    assert said() == "SUSPENDED"  # until it is described by these settings


def test_only_feeds_and_processes_that_are_declared_are_scheduled(harness: EntityHarness) -> None:
    for verb in (EntityVerb.SCHEDULE, EntityVerb.SUSPEND, EntityVerb.RESUME):
        with pytest.raises(NotSchedulableError, match="cluster 'primary': a cluster has no schedule"):
            change_work(harness.context(), verb, Kind.CLUSTER, ["primary"])
    with pytest.raises(EntityNotFoundError):
        change_work(harness.context(), EntityVerb.SCHEDULE, Kind.PROCESS, ["nobody"])
    with pytest.raises(VerbRefusedError, match=r"it is not on cluster 'moon'\. It is on primary"):
        change_work(harness.context(), EntityVerb.SCHEDULE, Kind.PROCESS, ["counting"], ["moon"])


def test_row_91_nothing_begins_while_suspended_and_what_was_missed_comes_on_resume(harness: EntityHarness) -> None:
    change_work(harness.context(), EntityVerb.SCHEDULE, Kind.PROCESS, ["counting"])
    harness.tick()
    deadline = harness.instances()[at("03T12")].deadline_at
    change_work(harness.context(), EntityVerb.SUSPEND, Kind.PROCESS, ["counting"])
    harness.later(hours=30)
    harness.tick()
    assert (max(harness.instances()), harness.statuses()) == (at("03T12"), {WAITING})
    with harness.database.read() as connection:
        instances = ProcessInstances(connection)
        assert instances.deadlines_passed("primary", harness.now, 10) == []
    result = change_work(harness.context(), EntityVerb.RESUME, Kind.PROCESS, ["counting"])
    assert result.outcomes[0].outcome is VerbOutcome.RESUMED
    harness.tick()
    assert max(harness.instances()) == at("04T18")
    assert deadline is not None
    assert harness.instances()[at("03T12")].deadline_at == deadline + timedelta(hours=30)
    assert harness.statuses() == {WAITING}
    harness.later(hours=7)
    harness.tick()
    assert harness.instances()[at("03T12")].status is ProcessInstanceStatus.TIMEDOUT


def test_row_91_what_is_ready_is_not_launched_while_suspended(harness: EntityHarness) -> None:
    change_work(harness.context(), EntityVerb.SCHEDULE, Kind.PROCESS, ["counting"])
    harness.tick()
    harness.put(ProcessInstanceStatus.READY, at("01"))
    change_work(harness.context(), EntityVerb.SUSPEND, Kind.PROCESS, ["counting"])
    with harness.database.begin() as connection:
        instances = ProcessInstances(connection)
        assert not instances.has_unrequested("primary")
        assert instances.unrequested("primary", 10) == []
    change_work(harness.context(), EntityVerb.RESUME, Kind.PROCESS, ["counting"])
    with harness.database.begin() as connection:
        assert len(ProcessInstances(connection).unrequested("primary", 10)) == 1


def test_suspend_and_resume_can_be_given_again_and_need_something_scheduled(harness: EntityHarness) -> None:
    for verb in (EntityVerb.SUSPEND, EntityVerb.RESUME):
        with pytest.raises(NotScheduledError, match="process 'counting': it is not scheduled"):
            change_work(harness.context(), verb, Kind.PROCESS, ["counting"])
    change_work(harness.context(), EntityVerb.SCHEDULE, Kind.PROCESS, ["counting"])
    assert outcome_of(harness.context(), EntityVerb.RESUME) is VerbOutcome.UNCHANGED
    change_work(harness.context(), EntityVerb.SUSPEND, Kind.PROCESS, ["counting"])
    assert outcome_of(harness.context(), EntityVerb.SUSPEND) is VerbOutcome.UNCHANGED


def test_resuming_twice_moves_deadlines_once(harness: EntityHarness) -> None:
    change_work(harness.context(), EntityVerb.SCHEDULE, Kind.PROCESS, ["counting"])
    harness.tick()
    change_work(harness.context(), EntityVerb.SUSPEND, Kind.PROCESS, ["counting"])
    harness.later(hours=1)
    change_work(harness.context(), EntityVerb.RESUME, Kind.PROCESS, ["counting"])
    deadline = harness.instances()[at("03T12")].deadline_at
    change_work(harness.context(), EntityVerb.RESUME, Kind.PROCESS, ["counting"])
    assert harness.instances()[at("03T12")].deadline_at == deadline


@pytest.mark.parametrize(
    ("mode", "expected"), [("automatic", EntityState.RUNNING), ("explicit", EntityState.SUBMITTED)]
)
def test_files_in_the_folder_are_scheduled_or_wait_as_the_setting_says(
    tmp_path: Path, mode: str, expected: EntityState
) -> None:
    harness = EntityHarness.at(tmp_path, schedule=mode)
    (tmp_path / "entities" / "all.yaml").write_bytes(file_of(*ALL).content)
    harness.tick()
    assert state(harness) is expected
    assert bool(harness.instances()) is (expected is EntityState.RUNNING)
    change_work(harness.context(), EntityVerb.SCHEDULE, Kind.PROCESS, ["counting"])
    assert state(harness) is EntityState.RUNNING
    change_work(harness.context(), EntityVerb.SUSPEND, Kind.PROCESS, ["counting"])
    assert state(harness) is EntityState.SUSPENDED


def test_row_93_the_four_states(harness: EntityHarness) -> None:
    assert state(harness) is EntityState.SUBMITTED
    change_work(harness.context(), EntityVerb.SCHEDULE, Kind.PROCESS, ["counting"])
    assert state(harness) is EntityState.RUNNING
    change_work(harness.context(), EntityVerb.SUSPEND, Kind.PROCESS, ["counting"])
    assert state(harness) is EntityState.SUSPENDED
    change_work(harness.context(), EntityVerb.RESUME, Kind.PROCESS, ["counting"])
    harness.tick()
    short = with_validity(COUNTING, end="2013-11-03T14:00Z")
    entity_changes.update(harness.context(), [file_of(short)])
    harness.later(hours=3)
    assert state(harness) is EntityState.RUNNING
    harness.tick()
    harness.put(ProcessInstanceStatus.SUCCEEDED, *harness.instances())
    assert state(harness) is EntityState.COMPLETED
    assert find_status(harness.context(), Kind.CLUSTER, "primary").state is EntityState.SUBMITTED
    with pytest.raises(EntityNotFoundError):
        find_status(harness.context(), Kind.FEED, "nothing")


def test_row_5_without_an_end_an_entity_is_active_as_long_as_there_are_dates(harness: EntityHarness) -> None:
    endless = changed(CLICKS, name="endless", clusters={"primary": {"validity": {"start": "2013-11-01T00:00Z"}}})
    ended = changed(CLICKS, name="ended", locations={"data": "/ended/${YEAR}-${MONTH}-${DAY}/${HOUR}"})
    endless["locations"] = {"data": "/endless/${YEAR}-${MONTH}-${DAY}/${HOUR}"}
    entity_changes.submit(harness.context(), [file_of(endless, ended)])
    change_work(harness.context(), EntityVerb.SCHEDULE, Kind.FEED, ["endless", "ended"])
    harness.now = at("9999-04-15T23:59")
    found = {name: find_status(harness.context(), Kind.FEED, name).state for name in ("endless", "ended")}
    assert found == {"endless": EntityState.RUNNING, "ended": EntityState.COMPLETED}


def test_row_104_a_touch_pins_the_definitions_from_the_next_instance_on(harness: EntityHarness) -> None:
    change_work(harness.context(), EntityVerb.SCHEDULE, Kind.PROCESS, ["counting"])
    harness.tick()
    harness.put(ProcessInstanceStatus.SUCCEEDED, at("01"))
    harness.later(minutes=58)
    result = touch(harness.context(), Kind.PROCESS, "counting")
    assert result.outcomes[0].outcome is VerbOutcome.TOUCHED
    with harness.database.read() as connection:
        releases = Releases(connection).of("counting", "primary")
    assert [(row.effective_from, row.reason) for row in releases] == [
        (at("01"), "declared"),
        (at("03T14"), "touched"),
    ]
    assert releases[0].members == releases[1].members


def test_a_touch_after_the_end_creates_nothing_and_a_feed_has_nothing_to_touch(harness: EntityHarness) -> None:
    harness.later(days=60)
    result = touch(harness.context(), Kind.PROCESS, "counting")
    assert (result.outcomes[0].outcome, result.releases) == (VerbOutcome.UNCHANGED, ())
    assert result.outcomes[0].notes == ("on primary its validity is over: no new release",)
    assert touch(harness.context(), Kind.FEED, "clicks").outcomes[0].outcome is VerbOutcome.UNCHANGED


def test_a_dry_run_of_a_schedule_changes_nothing(harness: EntityHarness) -> None:
    result = change_work(harness.context(dry_run=True), EntityVerb.SCHEDULE, Kind.PROCESS, ["counting"])
    assert result.outcomes[0].outcome is VerbOutcome.SCHEDULED
    assert state(harness) is EntityState.SUBMITTED


def test_a_feed_in_a_table_is_scheduled_as_any_other(harness: EntityHarness) -> None:
    table = {
        "kind": "feed",
        "name": "sales",
        "frequency": "hours(1)",
        "table": "catalog:shop:sales#ds=${YEAR}-${MONTH}-${DAY}-${HOUR}",
        "clusters": {"primary": {"validity": {"start": "2013-11-01T00:00Z"}}},
    }
    cluster = changed(ALL[0], name="cat", catalog="thrift://127.0.0.1:1")
    table["clusters"] = {"cat": {"validity": {"start": "2013-11-01T00:00Z"}}}
    context = harness.context(skip_checks=True)
    entity_changes.submit(context, [file_of(cluster, table)])
    (outcome,) = change_work(context, EntityVerb.SCHEDULE, Kind.FEED, ["sales"]).outcomes
    assert outcome.outcome is VerbOutcome.SCHEDULED
