"""The context that commands have, of a harness."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from feed_assets.context.operation import OperationContext, Subject, resolve_subject
from feed_assets.entities.common import Kind
from feed_assets.instances.lists.queries import InstancePage, list_instances
from feed_assets.instances.lists.ranges import InstanceQuery
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import ProcessInstance, ProcessInstanceStatus
from tests.instances.harness import START, LifecycleHarness, feed, process

_Answer = TypeVar("_Answer")

WEBSERVER = "http://dagster.example:3000"


def context_of(lifecycle: LifecycleHarness, as_of: datetime, **more: Any) -> OperationContext:
    """What a command sees of a harness."""
    return lifecycle.context(as_of, **({"webserver": WEBSERVER} | more))


def counting_harness(root: Path, state: str | None = None, **more: Any) -> LifecycleHarness:
    """Clicks, with a flag, are counted every hour; weather is optional. Reports are made of four hours of counts."""
    return LifecycleHarness.of(
        root,
        feed("clicks", flag="_SUCCESS", tags={"owner": "web", "tier": "gold"}),
        feed("weather"),
        feed("counts"),
        feed("reports", "hours(4)"),
        process(
            "count",
            inputs={"clicks": "now(0,0)", "weather": "now(0,0)"},
            optional=["weather"],
            outputs={"counts": "now(0,0)"},
            **{"parallel": 4, **more},
        ),
        process("report", "hours(4)", inputs={"counts": "now(0,0) now(3,0)"}, outputs={"reports": "now(0,0)"}),
        state=state,
    )


def put(lifecycle: LifecycleHarness, *rows: ProcessInstance) -> None:
    """Instances as they came to be somehow."""
    with lifecycle.database.begin() as connection:
        ProcessInstances(connection).add_waiting(rows)


def row(name: str, time: datetime, status: ProcessInstanceStatus, **more: Any) -> ProcessInstance:
    """An instance of a process on `primary`."""
    base = ProcessInstance(process=name, cluster="primary", nominal_time=time, status=status, updated_at=START)
    return replace(base, **more)


def about(
    operation: Callable[[OperationContext, Subject], _Answer], context: OperationContext, *named: Any, **more: Any
) -> _Answer:
    """The answer of an operation about what is named, as to `resolve_subject`."""
    return operation(context, resolve_subject(context, *named, **more))


def query_of(context: OperationContext, name: str, kind: Kind | None = None, **more: Any) -> InstanceQuery:
    """A query for instances of what is named."""
    named = {option: more.pop(option) for option in ("clusters", "lifecycles") if option in more}
    return InstanceQuery(subject=resolve_subject(context, name, kind=kind, **named), **more)


def listed(context: OperationContext, name: str, kind: Kind | None = None, **more: Any) -> InstancePage:
    """The instances that a query gives."""
    return list_instances(context, query_of(context, name, kind, **more))
