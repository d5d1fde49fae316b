"""Records for the tests of this package, with what a test does not care about filled in."""

from datetime import UTC, datetime, timedelta
from typing import Any

from feed_assets.state.late_checks import LateCheck
from feed_assets.state.records import (
    FeedEventKind,
    FeedInstance,
    FeedInstanceStatus,
    NewFeedEvent,
    PlannedLook,
    ProcessInstance,
    ProcessInstanceStatus,
)

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


def planned_look(n: int = 0, **fields: Any) -> PlannedLook:
    given: dict[str, Any] = {
        "feed": "clicks",
        "cluster": "primary",
        "nominal_time": hour(n),
        "found": "MISSING||",
        "looked_at": hour(n),
        "next_look_at": hour(n + 1),
    }
    return PlannedLook(**given | fields)


def late_check(n: int = 0, **fields: Any) -> LateCheck:
    given: dict[str, Any] = {
        "kind": "process",
        "name": "daily",
        "cluster": "primary",
        "nominal_time": hour(n),
        "planned_at": hour(n),
        "due_at": hour(n + 1),
        "cut_off_at": hour(n + 9),
    }
    return LateCheck(**given | fields)
