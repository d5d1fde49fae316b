"""`sla alerts` and `sla history`: what is late now, and what was; `sla ack`: somebody knows of it; `sla backlog`: how
many minutes the instances of each process are behind, all together; and what the check `on_time` of a feed says.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import Connection

from feed_assets.alerts.deadlines.checks import note_changed_misses
from feed_assets.alerts.deadlines.queries import LateQuery, SlaQuery
from feed_assets.alerts.deadlines.records import LateInstance, SlaMiss
from feed_assets.alerts.deadlines.store import SlaMisses
from feed_assets.command_lines import command_line
from feed_assets.context.errors import InstanceQueryError
from feed_assets.context.heartbeat import find_silence
from feed_assets.context.operation import ChangeContext, OperationContext, note_target
from feed_assets.entities.common import Kind, label_of
from feed_assets.errors import Fault
from feed_assets.json_form import Hidden, NominalTime, shows
from feed_assets.log.definitions.records import ScheduleState
from feed_assets.log.definitions.schedules import load_schedules
from feed_assets.log.messages.levels import SlaLevel
from feed_assets.plan.rendering import counted
from feed_assets.releases.timeline import BEGINNING
from feed_assets.sql.database import lock_log
from feed_assets.timing.dates import render_datetime

_SECONDS = 60


@shows("miss", "kind, name, cluster, nominal_time, level, due_at, missed_at, told_at")
@shows("miss", "recovered_at, recovered_by, acknowledged_at, acknowledged_by")
@dataclass(frozen=True, slots=True)
class SlaRow:
    """An instance that is late, or was. `level` is that of the deadline at `due_at`, `late_seconds` the time from then
    until it came, or until now.

    `told_at` is when the message of it was written; None if it had come by then. `recovered_by` is how it came.
    """

    miss: Hidden[SlaMiss]
    late_seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SlaList:
    """The rows of a query, oldest instance first; `acknowledged` others are left out. `notes` say what a named entity
    does not do, and `summary` what was done or left out.
    """

    rows: tuple[SlaRow, ...]
    acknowledged: int = 0
    notes: tuple[str, ...] = ()
    summary: Hidden[str] = ""


def find_alerts(context: OperationContext, query: LateQuery, *, with_acknowledged: bool = False) -> SlaList:
    """Return the instances that are late now, each with the highest level that it has missed.

    Those that somebody has acknowledged are left out, unless asked for.

    Raises:
        EntityNotFoundError: no entity of that name is declared.
        InstanceQueryError: the range is empty, or a cluster is not declared.
    """
    kinds = _check(context, query)
    with context.read() as connection:
        found = _find(connection, query, open_only=True)
        notes = tuple(_notes(context, connection, query, kinds))
    worst = _worst(found)
    if query.level is not None:
        worst = [miss for miss in worst if miss.level is query.level]
    shown = [miss for miss in worst if with_acknowledged or miss.acknowledged_at is None]
    left_out = len(worst) - len(shown)
    silence = None if shown else find_silence(context, query.clusters or context.plan.clusters)
    return SlaList(
        rows=tuple(_row(miss, context.as_of) for miss in shown),
        acknowledged=left_out,
        notes=(*notes, *filter(None, [silence])),
        summary=f"{left_out:,} acknowledged ones are left out; --acknowledged shows them" if left_out else "",
    )


def find_history(context: OperationContext, query: SlaQuery) -> SlaList:
    """Return every missed deadline of the instances, with when it was missed and told, and how and when it ended.

    Raises:
        EntityNotFoundError: no entity of that name is declared.
        InstanceQueryError: the range is empty, or a cluster is not declared.
    """
    _check(context, query)
    with context.read() as connection:
        found = _find(connection, query)
    return SlaList(
        rows=tuple(_row(miss, context.as_of) for miss in found if query.level in (None, miss.level)),
    )


def acknowledge(context: ChangeContext, query: SlaQuery) -> SlaList:
    """Record that somebody knows of the late instances: neither `sla alerts` nor the check in Dagster shows them until
    they miss another deadline. Return those that nobody had acknowledged.

    Raises:
        EntityNotFoundError: no entity of that name is declared.
        InstanceQueryError: the range is empty, a cluster is not declared, or nothing is late.
    """
    _check(context, query)
    with context.read() as connection:
        late = [miss for miss in _find(connection, query, open_only=True) if query.level in (None, miss.level)]
    if not late:
        raise InstanceQueryError(
            subject=label_of((query.kind.value, query.name)) if query.kind and query.name else "instances",
            reason=f"none is late from {render_datetime(query.start)} to {render_datetime(query.end)}",
            next_step=f"List what was: {command_line('sla', 'history', start=query.start)}",
            fault=Fault.MISSING,
        )
    new = [miss for miss in late if miss.acknowledged_at is None]
    if new and not context.dry_run:
        with context.database.begin() as connection:
            lock_log(connection)
            SlaMisses(connection).acknowledge(new, context.author, context.as_of)
            for cluster in sorted({miss.cluster for miss in new}):
                note_changed_misses(connection, cluster)
        for kind, name, cluster in sorted({miss.instance[:3] for miss in new}):
            count = sum(miss.instance[:3] == (kind, name, cluster) for miss in new)
            note_target(context, "sla ack", f"{kind} {name!r} on {cluster}", deadlines=count)
    done = [replace(miss, acknowledged_at=context.as_of, acknowledged_by=context.author) for miss in new]
    return SlaList(
        rows=tuple(_row(miss, context.as_of) for miss in done),
        summary=f"{'would acknowledge' if context.dry_run else 'acknowledged'} {len(done):,}",
    )


def _check(context: OperationContext, query: LateQuery) -> tuple[Kind, ...]:
    """Return the kinds of a named entity."""
    if query.start is not None and query.end < query.start:
        raise InstanceQueryError(
            subject=f"the range from {render_datetime(query.start)} to {render_datetime(query.end)}",
            reason="it ends before its start",
            next_step="Give --start and --end in the order of time.",
        )
    context.require_clusters(query.clusters)
    if query.name is None:
        return () if query.kind is None else (query.kind,)
    return context.kinds_of(query.name, query.kind)


def _notes(context: OperationContext, connection: Connection, query: LateQuery, kinds: Sequence[Kind]) -> Iterator[str]:
    """Yield for a named entity where it does not run, as in Falcon, and where it has no deadlines."""
    if query.name is None:
        return
    schedules = load_schedules(connection)
    for kind in kinds:
        for cluster in context.clusters_of(kind, query.name):
            if query.clusters and cluster not in query.clusters:
                continue
            place = f"{label_of((kind.value, query.name))} on {cluster}"
            if context.records(kind)[query.name, cluster].sla is None:
                yield f"{place} has no SLA"
                continue
            state = schedules.state(kind.value, query.name, cluster)
            if kind is Kind.PROCESS and state is not ScheduleState.SCHEDULED:
                yield f"{place} is {state.value}: its deadlines do not count"


def _find(connection: Connection, query: LateQuery, *, open_only: bool = False) -> list[SlaMiss]:
    return SlaMisses(connection).between(
        query.start or BEGINNING,
        query.end,
        clusters=query.clusters,
        kind=query.kind,
        name=query.name,
        open_only=open_only,
    )


def _worst(late: Sequence[SlaMiss]) -> list[SlaMiss]:
    """Return the highest deadline that each instance has missed, in the given order of the instances."""
    worst: dict[LateInstance, SlaMiss] = {}
    for miss in late:
        if miss.level is SlaLevel.HIGH or miss.instance not in worst:
            worst[miss.instance] = miss
    return list(worst.values())


def _row(miss: SlaMiss, as_of: datetime) -> SlaRow:
    until = miss.recovered_at or max(as_of, miss.due_at)
    return SlaRow(miss, int((until - miss.due_at).total_seconds()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """The backlog of a process on a cluster: the `minutes` from the nominal times of all `instances` that have missed
    their end until now. Nothing is missed: 0.
    """

    process: str
    cluster: str
    minutes: int
    instances: int
    oldest: NominalTime | None


def find_backlog(
    context: OperationContext, name: str | None = None, clusters: Collection[str] = ()
) -> tuple[Backlog, ...]:
    """Return the backlog of each process with an SLA, or of one, on each cluster or on some.

    Raises:
        EntityNotFoundError: no such process is declared.
        InstanceQueryError: a cluster is not declared.
    """
    context.require_clusters(clusters)
    if name is not None:
        context.clusters_of(Kind.PROCESS, name)
    wanted = sorted(
        key
        for key, record in context.plan.processes.items()
        if record.sla is not None and name in (None, key[0]) and (not clusters or key[1] in clusters)
    )
    with context.read() as connection:
        counts = SlaMisses(connection).open_counts(context.as_of, clusters)
    late = {
        (each.name, each.cluster): each for each in counts if each.kind == Kind.PROCESS and each.level is SlaLevel.HIGH
    }
    return tuple(
        Backlog(
            process=key[0],
            cluster=key[1],
            minutes=late[key].nominal_seconds // _SECONDS if key in late else 0,
            instances=late[key].instances if key in late else 0,
            oldest=late[key].oldest if key in late else None,
        )
        for key in wanted
    )


NAMED = 50
"""So many late instances are named, oldest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedLateness:
    """The late instances of a feed on a cluster that nobody has acknowledged, oldest first; `level` is the highest
    deadline that one of them has missed, None if none is late.
    """

    level: SlaLevel | None = None
    late: tuple[tuple[datetime, SlaLevel], ...] = ()

    @property
    def token(self) -> str:
        """A text that differs if anything has changed; empty if nothing is late."""
        return ",".join(f"{time:%Y%m%d%H%M%S}{level.value[0]}" for time, level in self.late)

    @property
    def sentence(self) -> str:
        """The state in a sentence."""
        if not self.late:
            return "no instance is late"
        times = [render_datetime(time) for time, _ in self.late]
        since = f", the oldest {times[0]}" if len(times) > 1 else f": {times[0]}"
        return f"{counted(len(times), 'instance')} late{since}"


def find_lateness(
    connection: Connection, cluster: str, feeds: Iterable[str] | None = None
) -> Mapping[str, FeedLateness]:
    """Return the lateness of the feeds on a cluster that are late, by name; of some feeds if given.

    It reads what is late, and nothing else.
    """
    misses = SlaMisses(connection)
    if feeds is None:
        late = misses.open(cluster, Kind.FEED)
    else:
        late = [miss for feed in feeds for miss in misses.open(cluster, Kind.FEED, feed)]
    by_feed: dict[str, list[SlaMiss]] = {}
    for miss in late:
        if miss.acknowledged_at is None:
            by_feed.setdefault(miss.name, []).append(miss)
    return {feed: _lateness(found) for feed, found in by_feed.items()}


def _lateness(misses: Iterable[SlaMiss]) -> FeedLateness:
    levels: dict[datetime, SlaLevel] = {}
    for miss in misses:
        if levels.get(miss.nominal_time) is not SlaLevel.HIGH:
            levels[miss.nominal_time] = miss.level
    level = SlaLevel.HIGH if SlaLevel.HIGH in levels.values() else SlaLevel.LOW
    return FeedLateness(level=level, late=tuple(sorted(levels.items())))
