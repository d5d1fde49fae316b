"""What is open is counted by entity, with the oldest of it; what has ended or is not due is not."""

from typing import Any

import pytest

from feed_assets.alerts.delivery.store import Deliveries, Delivery, ReceiverState, ReceiverStates
from feed_assets.log.instances.arrival_polls import ArrivalPolls
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.messages.outbox import Outbox
from feed_assets.log.records import ProcessInstanceStatus
from feed_assets.log.removals.records import SweepState
from feed_assets.log.removals.store import Sweeps
from feed_assets.metrics.collecting import (
    OpenMessages,
    OpenWork,
    PendingInputs,
)
from feed_assets.sql.database import Database
from feed_assets.triggers.queue.inputs import TriggerInputs
from feed_assets.triggers.queue.records import InputKey, Mark
from tests.log.samples import arrival_poll, finished, hour, message, process_instance, sweep_draft

pytestmark = pytest.mark.both_databases


WAITING, FAILED = ProcessInstanceStatus.WAITING, ProcessInstanceStatus.FAILED
ENDED = (ProcessInstanceStatus.SUCCEEDED, ProcessInstanceStatus.SKIPPED, ProcessInstanceStatus.KILLED)


def test_unfinished_instances_are_counted_by_process_and_status(database: Database) -> None:
    statuses = [WAITING, FAILED, WAITING, WAITING, *ENDED]
    with database.begin() as connection:
        ProcessInstances(connection).add_waiting(process_instance(n, status) for n, status in enumerate(statuses))
        ProcessInstances(connection).add_waiting([process_instance(9, cluster="backup")])
        assert sorted(OpenWork(connection).instances()) == [
            ("daily", "backup", WAITING, 1, hour(9)),
            ("daily", "primary", FAILED, 1, hour(1)),
            ("daily", "primary", WAITING, 3, hour(0)),
        ]


def test_due_instances_that_have_not_arrived_are_counted_by_feed(database: Database) -> None:
    polls = [arrival_poll(1), arrival_poll(2, obstacle="no answer"), arrival_poll(3), arrival_poll(0, feed="views")]
    with database.begin() as connection:
        ArrivalPolls(connection).put([*polls, arrival_poll(0, cluster="backup")])
        assert sorted(OpenWork(connection).missing(["primary"], hour(2))) == [
            ("clicks", "primary", 2, hour(1), 1),
            ("views", "primary", 1, hour(0), 0),
        ]


def test_pending_events_are_counted_by_process(database: Database) -> None:
    def mark(feed: str, process: str = "daily", cluster: str = "primary", **fields: Any) -> Mark:
        key = InputKey(process=process, cluster=cluster, input=feed, feed=feed, feed_cluster="primary")
        return Mark(**key._asdict(), counts_unchanged=False, start_seq=0, taken_seq=0, **fields)

    marks = [
        mark("clicks", pending=2, first_seq=1, first_at=hour(3), last_at=hour(4)),
        mark("views", pending=3, first_seq=2, first_at=hour(2), last_at=hour(4)),
        mark("clicks", "idle", pending=0),
        mark("clicks", cluster="backup", pending=1, first_seq=1, first_at=hour(1), last_at=hour(1)),
    ]
    with database.begin() as connection:
        TriggerInputs(connection).add(marks)
        assert OpenWork(connection).pending(["primary"]) == [PendingInputs("daily", "primary", 5, hour(2))]


def test_open_sweeps_are_counted_by_cluster_and_state(database: Database) -> None:
    states = {"s1": SweepState.ASKING, "s2": SweepState.ASKING, "s3": SweepState.RUNNING, "s4": SweepState.DONE}
    with database.begin() as connection:
        for sweep_id, state in states.items():
            Sweeps(connection).add(finished(sweep_draft(sweep_id), state=state), ())
        assert sorted(OpenWork(connection).sweeps()) == [
            ("primary", SweepState.ASKING, 2),
            ("primary", SweepState.RUNNING, 1),
        ]


def test_undelivered_messages_are_counted_by_way_with_the_oldest_of_them(database: Database) -> None:
    def delivery(way: str, seq: int, **fields: Any) -> Delivery:
        return Delivery(way=way, seq=seq, kind="feed", entity="clicks", since=hour(0), **fields)

    ways = {"chat": 4, "mail": 3, "ops": 2}
    with database.begin() as connection:
        assert OpenWork(connection).messages() == []
        Outbox(connection).append_many([message(n) for n in range(4)])
        ReceiverStates(connection).add(
            ReceiverState(name=name, cursor=cursor, seen_at=hour(0)) for name, cursor in ways.items()
        )
        Deliveries(connection).put([delivery("ops", 1, next_at=hour(9)), delivery("ops", 2, next_at=hour(9))])
        Deliveries(connection).put([delivery("mail", 1, dead_at=hour(9))])
        assert OpenWork(connection).messages() == [
            OpenMessages("chat", 0, None, 0),
            OpenMessages("mail", 1, hour(3), 1),
            OpenMessages("ops", 4, hour(0), 0),
        ]
