"""Looks at the deadlines of a cluster, and what they have recorded and told."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from feed_assets.alerts.deadlines.checks import LookResult, apply_deadlines
from feed_assets.alerts.deadlines.records import LateInstance, SlaMiss
from feed_assets.alerts.deadlines.store import SlaMisses
from feed_assets.definitions.verbs.schedules import apply_schedules, decide_schedules
from feed_assets.entities.common import Kind
from feed_assets.log.definitions.records import ScheduleState
from feed_assets.log.definitions.schedules import load_schedules
from feed_assets.log.messages.outbox import Outbox
from feed_assets.log.messages.payloads import SlaPayload
from feed_assets.receivers import Topic
from feed_assets.timing.dates import render_datetime
from tests.instances.harness import LifecycleHarness, at


def no_causes(_: Sequence[LateInstance]) -> Mapping[LateInstance, str]:
    return {}


def look(
    lifecycle: LifecycleHarness,
    as_of: str | datetime,
    causes: Mapping[str, str] = {},
    cluster: str = "primary",
) -> LookResult:
    """A whole look at a time; `causes` are the root causes by the names of entities."""
    moment = at(as_of) if isinstance(as_of, str) else as_of
    lifecycle.now = max(lifecycle.now, moment)
    tick = lifecycle.open_tick(moment, cluster)
    return apply_deadlines(
        tick, lambda instances: {each: causes[each.name] for each in instances if each.name in causes}
    )


def told(lifecycle: LifecycleHarness, after: int = 0) -> list[str]:
    """The messages about deadlines: `missed low feed clicks: 01T00, 01T01 (why)`."""
    with lifecycle.database.read() as connection:
        found = Outbox(connection).read(after, 10_000, Topic.SLA)
    return [_line(message.payload) for message in found if isinstance(message.payload, SlaPayload)]


def _line(payload: SlaPayload) -> str:
    times = ", ".join(text[8:13] for text in payload.instances)
    assert payload.count == len(payload.instances)
    assert (render_datetime(payload.oldest), render_datetime(payload.newest)) == (
        payload.instances[0],
        payload.instances[-1],
    )
    why = f" ({payload.reason})" if payload.reason else ""
    place = "" if payload.cluster == "primary" else f" on {payload.cluster}"
    return f"{payload.event} {payload.sla} {payload.kind} {payload.entity}{place}: {times}{why}"


def misses(lifecycle: LifecycleHarness) -> list[SlaMiss]:
    """Everything that was ever late, oldest instance first."""
    with lifecycle.database.read() as connection:
        return SlaMisses(connection).between(at("2000-01-01"), at("2100-01-01"))


def late(lifecycle: LifecycleHarness) -> list[str]:
    """What is late now: `01T00 low`."""
    return [f"{each.nominal_time:%dT%H} {each.level}" for each in misses(lifecycle) if each.is_open]


def schedule(lifecycle: LifecycleHarness, name: str, state: ScheduleState, as_of: str) -> None:
    """Schedule or suspend a process on the primary cluster, as the commands do."""
    with lifecycle.database.begin() as connection:
        view = load_schedules(connection)
        rows = decide_schedules(view, Kind.PROCESS, name, ["primary"], state, author="ann", now=at(as_of))
        apply_schedules(connection, view, rows, at(as_of))
