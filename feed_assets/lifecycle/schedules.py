"""Which entities are worked on where: schedules as commands set them, and what setting one means for instances."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import assert_never

from sqlalchemy import Connection

from feed_assets.entities.common import Kind
from feed_assets.entities.flow_names import SEPARATOR
from feed_assets.settings import ScheduleMode
from feed_assets.state.attempts import Attempts
from feed_assets.state.definition_records import Schedule, ScheduleState
from feed_assets.state.frontiers import Frontiers
from feed_assets.state.process_instances import ProcessInstances
from feed_assets.state.records import FrontierKind, ProcessInstance, ProcessInstanceStatus
from feed_assets.state.schedules import Schedules

DELETED = "its process was deleted"
TAKEN_OFF = "its process was taken off the cluster"

_UNENDED = frozenset(
    {
        ProcessInstanceStatus.WAITING,
        ProcessInstanceStatus.READY,
        ProcessInstanceStatus.RUNNING,
        ProcessInstanceStatus.SUSPENDED,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleView:
    """The schedules at one moment. An entity that no command has scheduled or suspended has the state `without_row`."""

    without_row: ScheduleState
    rows: Mapping[tuple[str, str, str], Schedule] = field(default_factory=dict)

    def state(self, kind: str, name: str, cluster: str) -> ScheduleState:
        """The state of an entity on a cluster."""
        row = self.rows.get((kind, name, cluster))
        return self.without_row if row is None else row.state

    def is_scheduled(self, kind: str, name: str, cluster: str) -> bool:
        """Whether the entity is worked on there."""
        return self.state(kind, name, cluster) is ScheduleState.SCHEDULED


def state_without_row(mode: ScheduleMode) -> ScheduleState:
    """The state of entities that no command has scheduled or suspended, by the setting `schedule`."""
    match mode:
        case ScheduleMode.AUTOMATIC:
            return ScheduleState.SCHEDULED
        case ScheduleMode.EXPLICIT:
            return ScheduleState.SUBMITTED
        case _:
            assert_never(mode)


def load_schedules(connection: Connection, without_row: ScheduleState) -> ScheduleView:
    """All schedules; for commands, and for what a tick seldom does."""
    return ScheduleView(without_row=without_row, rows=Schedules(connection).all())


def decide_schedules(
    view: ScheduleView,
    kind: Kind,
    name: str,
    clusters: Iterable[str],
    wanted: ScheduleState,
    *,
    author: str,
    now: datetime,
) -> tuple[Schedule, ...]:
    """The rows to write so that an entity has a state on clusters; those that have it already need none.

    A row is also written where the state is only that of entities without one, so that it stays when the setting
    changes.
    """
    rows = []
    for cluster in clusters:
        known = view.rows.get((kind, name, cluster))
        if known is None:
            known = Schedule(
                kind=kind, name=name, cluster=cluster, state=view.without_row, changed_at=now, author=author
            )
        elif known.state is wanted:
            continue
        scheduled_at = now if wanted is ScheduleState.SCHEDULED else None
        rows.append(
            replace(
                known,
                state=wanted,
                changed_at=now,
                author=author,
                scheduled_at=known.scheduled_at or scheduled_at,
            )
        )
    return tuple(rows)


def apply_schedules(connection: Connection, view: ScheduleView, rows: Iterable[Schedule], now: datetime) -> None:
    """Write rows. What waits for its inputs in a process that goes on after it was suspended is given the time that it
    was suspended for.
    """
    rows = tuple(rows)
    for row in rows:
        before = view.rows.get(row.key)
        was_suspended = before is not None and before.state is ScheduleState.SUSPENDED
        if before is not None and was_suspended:
            for name in _work_of(connection, row.kind, row.name, row.cluster):
                ProcessInstances(connection).put_off_deadlines(name, row.cluster, now - before.changed_at, now)
    Schedules(connection).put(rows)


def apply_end_of_work(
    connection: Connection, kind: Kind, name: str, clusters: Iterable[str], *, reason: str, now: datetime
) -> tuple[ProcessInstance, ...]:
    """End an entity's work on clusters: its instances that have not ended are KILLED, no more come into being, and its
    schedules are forgotten. What has ended stays in the record.

    Returns the killed instances as they were: some of them have runs, or have asked for one.
    """
    killed: list[ProcessInstance] = []
    clusters = tuple(clusters)
    instances = ProcessInstances(connection)
    for cluster in clusters:
        work = _work_of(connection, kind, name, cluster)
        for each in work:
            rows = instances.unended(each, cluster)
            instances.transition_many(
                [row.key for row in rows],
                _UNENDED,
                status=ProcessInstanceStatus.KILLED,
                ended_at=now,
                updated_at=now,
                reason=reason,
            )
            for row in rows:
                if row.status is ProcessInstanceStatus.RUNNING:
                    Attempts(connection).end(row.key, ProcessInstanceStatus.KILLED, now, reason)
            killed.extend(rows)
        Frontiers(connection).remove(FrontierKind.PROCESS, [(each, cluster) for each in work])
    if kind is Kind.FEED:
        Frontiers(connection).remove(FrontierKind.FEED, [(name, cluster) for cluster in clusters])
    Schedules(connection).remove([(kind, name, cluster) for cluster in clusters])
    return tuple(killed)


def _work_of(connection: Connection, kind: str, name: str, cluster: str) -> list[str]:
    """The names under which the instances of an entity are kept: its own, or those of the feed's flows."""
    if kind == Kind.PROCESS:
        return [name]
    return Frontiers(connection).starting_with(FrontierKind.PROCESS, name + SEPARATOR, cluster)
