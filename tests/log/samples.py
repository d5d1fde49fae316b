"""Records for the tests of this package, with what a test does not care about filled in."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection

from feed_assets.instances.late.store import LateCheck
from feed_assets.log.agenda import AgendaKind, Entry
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.messages.payloads import EvictionOperation, EvictionPayload
from feed_assets.log.messages.records import OutboxMessage
from feed_assets.log.records import (
    ArrivalPoll,
    FeedEventKind,
    FeedInstance,
    FeedInstanceStatus,
    NewFeedEvent,
    ProcessInstance,
    ProcessInstanceStatus,
)
from feed_assets.log.removals.chunks import SweepDraft
from feed_assets.log.removals.records import Hold, Sweep, SweepItem, SweepState
from feed_assets.timing.dates import NEVER

START = datetime(2024, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def hour(n: float) -> datetime:
    return START + n * HOUR


def event(n: int = 0, **fields: Any) -> NewFeedEvent:
    given: dict[str, Any] = {
        "feed": "clicks",
        "cluster": "primary",
        "nominal_time": hour(n),
        "kind": FeedEventKind.ARRIVED,
        "origin": "a test",
        "recorded_at": hour(n),
    }
    return NewFeedEvent(**given | fields)


def feed_instance(n: int = 0, status: FeedInstanceStatus = FeedInstanceStatus.AVAILABLE, **fields: Any) -> FeedInstance:
    given: dict[str, Any] = {
        "feed": "clicks",
        "cluster": "primary",
        "nominal_time": hour(n),
        "status": status,
        "updated_at": hour(n),
    }
    return FeedInstance(**given | fields)


def process_instance(
    n: int = 0, status: ProcessInstanceStatus = ProcessInstanceStatus.WAITING, **fields: Any
) -> ProcessInstance:
    given: dict[str, Any] = {
        "process": "daily",
        "cluster": "primary",
        "nominal_time": hour(n),
        "status": status,
        "updated_at": hour(n),
    }
    return ProcessInstance(**given | fields)


def arrival_poll(n: int = 0, **fields: Any) -> ArrivalPoll:
    given: dict[str, Any] = {
        "feed": "clicks",
        "cluster": "primary",
        "nominal_time": hour(n),
        "found": "MISSING||",
        "polled_at": hour(n),
        "next_poll_at": hour(n + 1),
    }
    return ArrivalPoll(**given | fields)


def late_check(n: int = 0, **fields: Any) -> LateCheck:
    given: dict[str, Any] = {
        "kind": AgendaKind.LATE_INPUTS,
        "name": "daily",
        "cluster": "primary",
        "nominal_time": hour(n),
        "planned_at": hour(n),
        "due_at": hour(n + 1),
        "cut_off_at": hour(n + 9),
    }
    return LateCheck(**given | fields)


def sweep_item(n: int = 0, **fields: Any) -> SweepItem:
    given: dict[str, Any] = {
        "path": f"clicks/{hour(n):%Y/%m/%d/%H}",
        "nominal_time": hour(n),
        "bytes": 100 + n,
        "files": 2,
        "rule": "age",
        "reason": "it is older than days(2)",
    }
    return SweepItem(**given | fields)


def sweep_draft(sweep_id: str = "s1", count: int = 3, *, feed: str = "clicks", cluster: str = "primary") -> SweepDraft:
    draft = SweepDraft(sweep_id, cluster)
    draft.add(feed, "data", (sweep_item(n) for n in range(count)))
    return draft


def finished(draft: SweepDraft, n: float = 0, state: SweepState = SweepState.PLANNED) -> Sweep:
    return draft.finish(state, as_of=hour(n), created_at=hour(n), author="ann", origin="a test", log_seq=7)


def hold(name: str = "audit", **fields: Any) -> Hold:
    given: dict[str, Any] = {
        "feed": "clicks",
        "reason": "the auditors want to see it",
        "author": "ann",
        "created_at": hour(0),
    }
    return Hold(name=name, **given | fields)


def eviction(path: str = "clicks/0", **fields: Any) -> EvictionPayload:
    given: dict[str, Any] = {
        "operation": EvictionOperation.DELETE,
        "feed": "clicks",
        "cluster": "primary",
        "nominal_time": hour(0),
        "kind": "data",
        "store": "file:///data",
        "path": path,
        "sweep": "s1",
        "rule": "age",
    }
    return EvictionPayload(**given | fields)


def message(n: int = 0, **fields: Any) -> OutboxMessage:
    given: dict[str, Any] = {
        "recorded_at": hour(n),
        "payload": eviction(f"clicks/{n}"),
        "idempotency_key": f"s1/clicks/{n}",
    }
    return OutboxMessage(**given | fields)


def entry(n: float = 0, **fields: Any) -> Entry:
    given: dict[str, Any] = {
        "kind": AgendaKind.RETENTION,
        "name": "clicks",
        "cluster": "primary",
        "nominal_time": NEVER,
        "due_at": hour(n),
        "planned_at": hour(0),
        "state": {},
    }
    return Entry(**given | fields)


def count_by_status(connection: Connection, process: str, cluster: str) -> dict[ProcessInstanceStatus, int]:
    """Count the instances of a process by their statuses."""
    found = ProcessInstances(connection).find_between(process, cluster, datetime(1970, 1, 1, tzinfo=UTC), NEVER)
    return dict(Counter(row.status for row in found))
