from datetime import timedelta
from pathlib import Path

import pytest

from feed_assets.entities.common import Kind
from feed_assets.entities.errors import EntityNotFoundError
from feed_assets.operations.entities import changes as entity_changes
from feed_assets.operations.entities.reading import find_status
from feed_assets.operations.entities.schedules import resume, schedule, suspend
from feed_assets.operations.entities.states import EntityState
from feed_assets.operations.entities.touch import touch
from feed_assets.operations.entities.verb_results import Outcome
from feed_assets.operations.errors import NotSchedulableError, NotScheduledError, VerbRefusedError
from feed_assets.state.process_instances import ProcessInstances
from feed_assets.state.records import ProcessInstanceStatus
from feed_assets.state.releases import Releases
from tests.lifecycle.world import at
from tests.operations.desk import ALL, COUNTING, Desk, changed, file_of, with_validity

WAITING = ProcessInstanceStatus.WAITING


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk.at(tmp_path)
    entity_changes.submit(desk.registry(), [file_of(*ALL)])
    return desk


def state(desk: Desk) -> EntityState:
    return find_status(desk.registry(), Kind.PROCESS, "counting").state


def test_what_is_submitted_has_no_instances_until_it_is_scheduled(desk: Desk) -> None:
    desk.tick()
    assert desk.instances() == {}
    schedule(desk.registry(), Kind.PROCESS, ["counting"])
    desk.tick()
    assert min(desk.instances()) == at("01")


def test_row_88_a_second_schedule_has_no_effect_and_what_is_suspended_stays_so(desk: Desk) -> None:
    registry = desk.registry()
    assert schedule(registry, Kind.PROCESS, ["counting"]).outcomes[0].outcome is Outcome.SCHEDULED
    assert schedule(registry, Kind.PROCESS, ["counting"]).outcomes[0].outcome is Outcome.UNCHANGED
    suspend(registry, Kind.PROCESS, ["counting"])
    again = schedule(registry, Kind.PROCESS, ["counting"]).outcomes[0]
    assert (again.outcome, dict(again.clusters)) == (Outcome.UNCHANGED, {"primary": "SUSPENDED"})


def test_only_feeds_and_processes_that_are_declared_are_scheduled(desk: Desk) -> None:
    with pytest.raises(NotSchedulableError, match="cluster 'primary': a cluster is not scheduled"):
        schedule(desk.registry(), Kind.CLUSTER, ["primary"])
    with pytest.raises(EntityNotFoundError):
        schedule(desk.registry(), Kind.PROCESS, ["nobody"])
    with pytest.raises(VerbRefusedError, match=r"it is not on cluster 'moon'\. It is on primary"):
        schedule(desk.registry(), Kind.PROCESS, ["counting"], ["moon"])


def test_row_91_nothing_begins_while_suspended_and_what_was_missed_comes_on_resume(desk: Desk) -> None:
    schedule(desk.registry(), Kind.PROCESS, ["counting"])
    desk.tick()
    deadline = desk.instances()[at("03T12")].deadline_at
    suspend(desk.registry(), Kind.PROCESS, ["counting"])
    desk.later(hours=30)
    desk.tick()
    assert (max(desk.instances()), desk.statuses()) == (at("03T12"), {WAITING})
    with desk.database.read() as connection:
        instances = ProcessInstances(connection)
        assert instances.deadlines_passed(desk.now, 10, cluster="primary") == []
    result = resume(desk.registry(), Kind.PROCESS, ["counting"])
    assert result.outcomes[0].outcome is Outcome.RESUMED
    desk.tick()
    assert max(desk.instances()) == at("04T18")
    assert deadline is not None
    assert desk.instances()[at("03T12")].deadline_at == deadline + timedelta(hours=30)
    assert desk.statuses() == {WAITING}
    desk.later(hours=7)
    desk.tick()
    assert desk.instances()[at("03T12")].status is ProcessInstanceStatus.TIMEDOUT


def test_row_91_what_is_ready_is_not_launched_while_suspended(desk: Desk) -> None:
    schedule(desk.registry(), Kind.PROCESS, ["counting"])
    desk.tick()
    desk.put(ProcessInstanceStatus.READY, at("01"))
    suspend(desk.registry(), Kind.PROCESS, ["counting"])
    with desk.database.begin() as connection:
        instances = ProcessInstances(connection)
        assert not instances.has_unrequested("primary")
        assert instances.unrequested("primary", 10) == []
    resume(desk.registry(), Kind.PROCESS, ["counting"])
    with desk.database.begin() as connection:
        assert len(ProcessInstances(connection).unrequested("primary", 10)) == 1


def test_suspend_and_resume_can_be_given_again_and_need_something_scheduled(desk: Desk) -> None:
    for verb in (suspend, resume):
        with pytest.raises(NotScheduledError, match="process 'counting': it is not scheduled"):
            verb(desk.registry(), Kind.PROCESS, ["counting"])
        with pytest.raises(NotScheduledError):
            verb(desk.registry(), Kind.CLUSTER, ["primary"])
    schedule(desk.registry(), Kind.PROCESS, ["counting"])
    assert resume(desk.registry(), Kind.PROCESS, ["counting"]).outcomes[0].outcome is Outcome.UNCHANGED
    suspend(desk.registry(), Kind.PROCESS, ["counting"])
    assert suspend(desk.registry(), Kind.PROCESS, ["counting"]).outcomes[0].outcome is Outcome.UNCHANGED


def test_resuming_twice_moves_deadlines_once(desk: Desk) -> None:
    schedule(desk.registry(), Kind.PROCESS, ["counting"])
    desk.tick()
    suspend(desk.registry(), Kind.PROCESS, ["counting"])
    desk.later(hours=1)
    resume(desk.registry(), Kind.PROCESS, ["counting"])
    deadline = desk.instances()[at("03T12")].deadline_at
    resume(desk.registry(), Kind.PROCESS, ["counting"])
    assert desk.instances()[at("03T12")].deadline_at == deadline


@pytest.mark.parametrize(
    ("mode", "expected"), [("automatic", EntityState.RUNNING), ("explicit", EntityState.SUBMITTED)]
)
def test_files_in_the_folder_are_scheduled_or_wait_as_the_setting_says(
    tmp_path: Path, mode: str, expected: EntityState
) -> None:
    desk = Desk.at(tmp_path, schedule=mode)
    (tmp_path / "entities" / "all.yaml").write_bytes(file_of(*ALL).content)
    desk.tick()
    assert state(desk) is expected
    assert bool(desk.instances()) is (expected is EntityState.RUNNING)
    schedule(desk.registry(), Kind.PROCESS, ["counting"])
    assert state(desk) is EntityState.RUNNING
    suspend(desk.registry(), Kind.PROCESS, ["counting"])
    assert state(desk) is EntityState.SUSPENDED


def test_row_93_the_four_states(desk: Desk) -> None:
    assert state(desk) is EntityState.SUBMITTED
    schedule(desk.registry(), Kind.PROCESS, ["counting"])
    assert state(desk) is EntityState.RUNNING
    suspend(desk.registry(), Kind.PROCESS, ["counting"])
    assert state(desk) is EntityState.SUSPENDED
    resume(desk.registry(), Kind.PROCESS, ["counting"])
    desk.tick()
    short = with_validity(COUNTING, end="2013-11-03T14:00Z")
    entity_changes.update(desk.registry(), [file_of(short)])
    desk.later(hours=3)
    assert state(desk) is EntityState.RUNNING
    desk.tick()
    desk.put(ProcessInstanceStatus.SUCCEEDED, *desk.instances())
    assert state(desk) is EntityState.COMPLETED
    assert find_status(desk.registry(), Kind.CLUSTER, "primary").state is EntityState.SUBMITTED
    with pytest.raises(EntityNotFoundError):
        find_status(desk.registry(), Kind.FEED, "nothing")


def test_row_104_a_touch_pins_the_definitions_from_the_next_instance_on(desk: Desk) -> None:
    schedule(desk.registry(), Kind.PROCESS, ["counting"])
    desk.tick()
    desk.put(ProcessInstanceStatus.SUCCEEDED, at("01"))
    desk.later(minutes=58)
    result = touch(desk.registry(), Kind.PROCESS, "counting")
    assert result.outcomes[0].outcome is Outcome.TOUCHED
    with desk.database.read() as connection:
        releases = Releases(connection).of("counting", "primary")
    assert [(row.effective_from, row.reason) for row in releases] == [
        (at("01"), "declared"),
        (at("03T14"), "touched"),
    ]
    assert releases[0].members == releases[1].members


def test_a_touch_after_the_end_creates_nothing_and_a_feed_has_nothing_to_touch(desk: Desk) -> None:
    desk.later(days=60)
    result = touch(desk.registry(), Kind.PROCESS, "counting")
    assert (result.outcomes[0].outcome, result.releases) == (Outcome.UNCHANGED, ())
    assert result.outcomes[0].notes == ("on primary its validity is over, nothing begins anew",)
    assert touch(desk.registry(), Kind.FEED, "clicks").outcomes[0].outcome is Outcome.UNCHANGED


def test_a_dry_run_of_a_schedule_changes_nothing(desk: Desk) -> None:
    result = schedule(desk.registry(dry_run=True), Kind.PROCESS, ["counting"])
    assert result.outcomes[0].outcome is Outcome.SCHEDULED
    assert state(desk) is EntityState.SUBMITTED


def test_a_feed_in_a_table_is_scheduled_as_any_other(desk: Desk) -> None:
    table = {
        "kind": "feed",
        "name": "sales",
        "frequency": "hours(1)",
        "table": "catalog:shop:sales#ds=${YEAR}-${MONTH}-${DAY}-${HOUR}",
        "clusters": {"primary": {"validity": {"start": "2013-11-01T00:00Z"}}},
    }
    cluster = changed(ALL[0], name="cat", catalog="thrift://127.0.0.1:1")
    table["clusters"] = {"cat": {"validity": {"start": "2013-11-01T00:00Z"}}}
    registry = desk.registry(skip_checks=True)
    entity_changes.submit(registry, [file_of(cluster, table)])
    (outcome,) = schedule(registry, Kind.FEED, ["sales"]).outcomes
    assert outcome.outcome is Outcome.SCHEDULED
