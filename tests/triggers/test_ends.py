"""Processes that are deleted, and names of conditions that disappear: what becomes of their queues."""

from typing import Any

import pytest

from feed_assets.definitions.verbs.schedules import apply_end_of_work
from feed_assets.entities.common import Kind
from feed_assets.entities.triggers import StartFrom
from feed_assets.instances.attempts.attempt_inputs import find_batch_events
from feed_assets.instances.errors import BatchEndedError
from feed_assets.log.events import EventLog
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import EntityKey, ProcessInstanceStatus
from feed_assets.sql.database import Database
from feed_assets.triggers.apply_triggers import pending_of
from feed_assets.triggers.decide_firing import render_lacking
from feed_assets.triggers.queue.batches import Batches
from feed_assets.triggers.queue.inputs import PendingEvents, TriggerInputs
from feed_assets.triggers.queue.records import QueueAction
from feed_assets.triggers.queues import change_queue, verify_queues
from tests.triggers.harness import CLUSTER, Queues, at, build_plan

SUCCEEDED, FAILED, KILLED = (
    ProcessInstanceStatus.SUCCEEDED,
    ProcessInstanceStatus.FAILED,
    ProcessInstanceStatus.KILLED,
)
WITHOUT = build_plan(["d1"], {})
PROCESS = EntityKey("p", CLUSTER)


def declared(start: StartFrom = StartFrom.NOW, **trigger: Any) -> Any:
    return build_plan(["d1"], {"p": {"when": "d1", "from": start.value, **trigger}})


@pytest.fixture
def queues(database: Database) -> Queues:
    """A batch that has succeeded, one that has failed, and an event that is pending."""
    queues = Queues(database=database, plan=declared())
    queues.tick()
    for status in (SUCCEEDED, FAILED):
        queues.come("d1", hour=len(queues.ticks))
        queues.tick()
        queues.end(status, retry_at=at("20:00"))
    queues.come("d1", hour=9)
    queues.tick()
    assert queues.pending("p") == {"d1": [3]}
    return queues


def delete(queues: Queues) -> None:
    with queues.database.begin() as connection:
        apply_end_of_work(connection, Kind.PROCESS, "p", [CLUSTER], reason="its process was deleted", now=queues.now)
    queues.follow(WITHOUT)


def queued(queues: Queues) -> set[int]:
    """The hours of the instances that retention keeps for the process."""
    with queues.database.read() as connection:
        found = Batches(connection).queued("d1", CLUSTER, [PROCESS])
    assert set(found.values()) <= {PROCESS}
    return {key.nominal_time.hour for key in found}


def test_deleting_a_process_ends_its_queue_and_keeps_the_events_and_what_has_succeeded(queues: Queues) -> None:
    assert queued(queues) == {2, 9}
    delete(queues)
    assert (queued(queues), queues.marks("p")) == (set(), {})
    assert [each.status for each in queues.instances("p")] == [SUCCEEDED, KILLED]
    assert queues.tick(at("21:00")) == []
    with queues.database.read() as connection:
        assert Batches(connection).ranges(PROCESS) == []
        assert EventLog(connection).last_seq() == 3


@pytest.mark.parametrize(("start", "taken"), [(StartFrom.EARLIEST, [1, 2, 3, 4]), (StartFrom.NOW, [4])])
def test_a_process_that_is_declared_again_begins_anew(queues: Queues, start: StartFrom, taken: list[int]) -> None:
    delete(queues)
    queues.tick()
    queues.follow(declared(start, batch={"min": len(taken)}))
    queues.tick()
    queues.come("d1")
    assert queues.tick() == [taken]
    with queues.database.read() as connection:
        assert verify_queues(connection, queues.plan, CLUSTER, queues.now) == []


def test_a_time_in_from_counts_anew_for_a_process_that_is_declared_again(queues: Queues) -> None:
    delete(queues)
    plan = build_plan(["d1", "d2"], {"p": {"when": "d1", "from": "2026-01-01T12:00Z"}, "other": {"when": "d2"}})
    queues.follow(build_plan(["d1", "d2"], {"other": {"when": "d2"}}))
    queues.tick()
    queues.follow(plan)
    queues.come("d1")
    assert queues.tick() == []
    queues.now = at("12:00")
    queues.come("d1")
    assert queues.tick() == [[5]]


def test_a_batch_whose_queue_has_ended_runs_no_more_and_later_ones_do(queues: Queues) -> None:
    delete(queues)
    queues.follow(declared(StartFrom.EARLIEST))
    queues.now = at("12:00")
    assert queues.tick() == [[1, 2, 3]]
    record = queues.plan.processes[PROCESS]
    old, _, new = queues.instances("p")
    with queues.database.read() as connection:
        with pytest.raises(BatchEndedError, match=r"batch .* of process 'p' has no events any more"):
            find_batch_events(connection, record, old.nominal_time)
        assert [each.number for each in find_batch_events(connection, record, new.nominal_time)["d1"]] == [1, 2, 3]


def test_the_queue_of_a_process_that_only_disappears_from_the_definitions_is_kept(queues: Queues) -> None:
    queues.follow(WITHOUT)
    queues.tick()
    queues.come("d1", hour=10)
    queues.tick()
    assert queued(queues) == {2, 9, 10}
    queues.follow(declared())
    queues.tick()
    assert queues.pending("p") == {"d1": [3, 4]}


def lacking(queues: Queues) -> str:
    """What the condition of the process lacks, as `why` says it."""
    record = queues.plan.processes[PROCESS]
    assert record.trigger is not None
    with queues.database.read() as connection:
        events = PendingEvents(connection, EventLog(connection).last_seq(), [PROCESS])
        marks = TriggerInputs(connection).of([PROCESS])[PROCESS]
        return render_lacking(record.trigger, pending_of(record, marks, events, queues.now))


def test_a_name_that_disappears_is_false_and_its_place_in_the_log_is_kept(database: Database) -> None:
    both = build_plan(["d1", "d2"], {"p": {"when": ["d1", "d2"]}})
    queues = Queues(database=database, plan=both)
    queues.tick()
    queues.come("d2")
    queues.tick()
    queues.follow(build_plan(["d1"], {"p": {"when": ["d1", "d2"]}}))
    queues.come("d1", "d2")
    assert queues.tick() == []
    assert lacking(queues) == "1 of 2; d2 is not declared"
    queues.follow(both)
    assert queues.tick() == [[1, 2, 3]]


def test_the_other_branches_of_a_condition_go_on_without_a_name_that_has_disappeared(database: Database) -> None:
    when = {"any": ["d1", "d2"]}
    queues = Queues(database=database, plan=build_plan(["d1", "d2"], {"p": {"when": when}}))
    queues.tick()
    queues.follow(build_plan(["d1"], {"p": {"when": when}}))
    queues.tick()
    queues.come("d1")
    assert queues.tick() == [[1]]


def test_an_event_that_a_person_has_added_is_kept_while_its_batch_is_open(queues: Queues) -> None:
    queues.end()
    record = queues.plan.processes[PROCESS]
    assert record.trigger is not None
    for action in (QueueAction.HOLD, QueueAction.ADD):
        with queues.database.begin() as connection:
            change_queue(connection, record, record.trigger.inputs[0], 3, action, "ann", "a test", queues.now)
    queues.now = at("20:30")
    with queues.database.begin() as connection:
        keys = [each.key for each in queues.instances("p")]
        ProcessInstances(connection).transition_many(keys, {FAILED}, status=SUCCEEDED, updated_at=queues.now)
    assert queues.tick() == [[3]]
    assert queued(queues) == {9}
