"""Follow-up of a change of the definitions: begin releases, keep schedules, and end obsolete work. Decide and apply
schedules: on which clusters an entity is scheduled, and what a change means for its instances.
"""

from collections.abc import Collection, Iterable
from dataclasses import replace
from datetime import datetime

from sqlalchemy import Connection

from feed_assets.alerts.deadlines.checks import apply_pause
from feed_assets.alerts.deadlines.records import SlaPause
from feed_assets.definitions.verbs.context import EntityContext
from feed_assets.entities.bundle import AnyEntity, Bundle
from feed_assets.entities.common import Kind
from feed_assets.entities.feed import Feed
from feed_assets.entities.flow_names import SEPARATOR
from feed_assets.entities.process import Process
from feed_assets.instances.gates.plan_changes import apply_plan
from feed_assets.loading.bundles import LoadedBundle
from feed_assets.log.definitions.records import Schedule, ScheduleState
from feed_assets.log.definitions.schedules import Schedules, ScheduleView
from feed_assets.log.instances.attempts import Attempts
from feed_assets.log.instances.process_instances import UNENDED, ProcessInstances
from feed_assets.log.records import Cause, EntityKey, ProcessInstance, ProcessInstanceStatus, WatermarkKind
from feed_assets.log.removals.holds import Holds
from feed_assets.log.watermarks import Watermarks
from feed_assets.plan.location import compile_location
from feed_assets.plan.pinned_files import with_pinned_files
from feed_assets.releases.decide_releases import ReleaseDecision
from feed_assets.releases.pinning import store_pinned_files
from feed_assets.releases.timeline import BEGINNING, ReleaseTimeline
from feed_assets.sql.locks import lock_for_lineage, lock_queues
from feed_assets.triggers.queue.inputs import TriggerInputs
from feed_assets.triggers.queue.store import QueueEnds

DELETED = "its process was deleted"
TAKEN_OFF = "its process was taken off the cluster"

_FAILED = frozenset({ProcessInstanceStatus.FAILED, ProcessInstanceStatus.TIMEDOUT})


def decide_schedules(
    view: ScheduleView,
    kind: Kind,
    name: str,
    clusters: Iterable[str],
    new_state: ScheduleState,
    *,
    author: str,
    now: datetime,
) -> tuple[Schedule, ...]:
    """Return the rows to write so that an entity has a state on clusters; rows that have it already are left out.

    An entity with the right state but without a row also gets one, so that the state survives a change of the setting.
    """
    rows = []
    for cluster in clusters:
        known = view.rows.get((kind, name, cluster))
        if known is None:
            known = Schedule(
                kind=kind, name=name, cluster=cluster, state=view.without_row, changed_at=now, author=author
            )
        elif known.state is new_state:
            continue
        scheduled_at = now if new_state is ScheduleState.SCHEDULED else None
        rows.append(
            replace(
                known,
                state=new_state,
                changed_at=now,
                author=author,
                scheduled_at=known.scheduled_at or scheduled_at,
            )
        )
    return tuple(rows)


def apply_schedules(connection: Connection, view: ScheduleView, rows: Iterable[Schedule], now: datetime) -> None:
    """Write schedules.

    If a suspended process resumes, the deadlines of its waiting instances are put off by the time of the suspension.
    Those of its SLA are put off by the time in which it was not scheduled.
    """
    rows = tuple(rows)
    for row in rows:
        before = view.rows.get(row.key)
        if row.kind == Kind.PROCESS and row.state is ScheduleState.SCHEDULED and not view.is_scheduled(*row.key):
            begun_at = BEGINNING if before is None else before.changed_at
            apply_pause(connection, SlaPause(row.name, row.cluster, begun_at, now))
        was_suspended = before is not None and before.state is ScheduleState.SUSPENDED
        if before is not None and was_suspended:
            for name in _work_of(connection, row.kind, row.name, row.cluster):
                ProcessInstances(connection).postpone_deadlines(name, row.cluster, now - before.changed_at, now)
    Schedules(connection).put(rows)


def apply_end_of_work(
    connection: Connection, kind: Kind, name: str, clusters: Iterable[str], *, reason: str, now: datetime
) -> tuple[ProcessInstance, ...]:
    """End an entity's work on clusters.

    Its unended instances become KILLED, no more are created, and its schedules are removed. Ended instances stay in the
    record. A queue ends, too: then batches that failed are KILLED as well, since they have no events any more.

    Returns the killed instances as they were: some of them have runs, or a request for one.
    """
    killed: list[ProcessInstance] = []
    clusters = tuple(clusters)
    instances = ProcessInstances(connection)
    lock_queues(connection)
    for cluster in clusters:
        work = _work_of(connection, kind, name, cluster)
        for each in work:
            rows = instances.unended(each, cluster)
            failed: list[ProcessInstance] = []
            if QueueEnds(connection).end(EntityKey(each, cluster), now):
                failed = [row for status in _FAILED for row in instances.with_status(status, each, cluster, limit=None)]
            instances.transition_many(
                [row.key for row in (*rows, *failed)],
                UNENDED | _FAILED,
                status=ProcessInstanceStatus.KILLED,
                ended_at=now,
                updated_at=now,
                cause=Cause.REMOVED,
                cause_detail=reason,
            )
            for row in rows:
                if row.status is ProcessInstanceStatus.RUNNING:
                    Attempts(connection).end(row.key, ProcessInstanceStatus.KILLED, now, reason)
            killed.extend(rows)
        Watermarks(connection).remove(WatermarkKind.PROCESS, [(each, cluster) for each in work])
    if kind is Kind.FEED:
        Watermarks(connection).remove(WatermarkKind.FEED, [(name, cluster) for cluster in clusters])
    Schedules(connection).remove([(kind, name, cluster) for cluster in clusters])
    return tuple(killed)


def _work_of(connection: Connection, kind: str, name: str, cluster: str) -> list[str]:
    """Return the process names of an entity's instances: its own name, or the names of the feed's flows."""
    if kind == Kind.PROCESS:
        return [name]
    return Watermarks(connection).starting_with(WatermarkKind.PROCESS, name + SEPARATOR, cluster)


def settle_releases(context: EntityContext, declared: LoadedBundle | None = None) -> tuple[ReleaseDecision, ...]:
    """Begin the releases of the current definitions at their effective times, without waiting for the next tick.
    `declared` avoids loading the definitions again.
    """
    timeline = load_timeline(context, declared)
    return apply_releases(context, timeline)


def apply_releases(context: EntityContext, timeline: ReleaseTimeline) -> tuple[ReleaseDecision, ...]:
    """Store the files of the workflows, then begin the releases of the definitions."""

    def store() -> bool:
        return store_pinned_files(context.database, timeline.plan, context.settings.root)

    settings = context.settings
    return apply_plan(
        context.database,
        timeline,
        context.now,
        settings.definition_changes,
        store,
        settings.metadata.system,
        context.without_row,
    )


def load_timeline(context: EntityContext, declared: LoadedBundle | None = None) -> ReleaseTimeline:
    """Load the release timeline of the current definitions."""
    loaded = declared or context.load().bundle
    root = context.settings.root
    plan = with_pinned_files(compile_location(loaded, context.now, root, context.settings.notify).plan, root)
    return ReleaseTimeline(plan, context.store.values)


def keep_submitted(context: EntityContext, entities: Collection[AnyEntity], before: Bundle) -> None:
    """Record that the new clusters of entities wait for `schedule`. It runs before the entities are declared, so that
    no tick sees them without a row.
    """
    view = context.schedules()
    rows: list[Schedule] = []
    for entity in entities:
        if not isinstance(entity, Feed | Process):
            continue
        known = before.find(entity.key)
        old = known.clusters if isinstance(known, Feed | Process) else {}
        new = [name for name in entity.clusters if name not in old]
        author, now = context.author, context.now
        fresh = ScheduleView(without_row=view.without_row)  # rows of a deleted entity of the same name do not count
        rows += decide_schedules(fresh, entity.kind, entity.name, new, ScheduleState.SUBMITTED, author=author, now=now)
    if rows:
        with context.database.begin() as connection:
            Schedules(connection).put(rows)


def left_clusters(before: AnyEntity | None, after: AnyEntity | None) -> tuple[str, ...]:
    """Return the clusters that an entity has left."""
    old = before.clusters if isinstance(before, Feed | Process) else {}
    new = after.clusters if isinstance(after, Feed | Process) else {}
    return tuple(name for name in old if name not in new)


def end_work(
    context: EntityContext, kind: Kind, name: str, clusters: Collection[str], reason: str
) -> tuple[ProcessInstance, ...]:
    """End an entity's work on clusters. Returns the killed instances, as they were before."""
    if not clusters:
        return ()
    if context.dry_run:
        return _unended(context, kind, name, clusters)
    with context.database.begin() as connection:
        lock_for_lineage(connection)
        return apply_end_of_work(connection, kind, name, clusters, reason=reason, now=context.now)


def find_remains(context: EntityContext, kind: Kind, name: str) -> tuple[str, ...]:
    """Return the clusters on which an undeclared entity still has schedules, unfinished instances, or a queue."""
    with context.database.read() as connection:
        clusters = set(Schedules(connection).of(kind, name))
        if kind is Kind.PROCESS:
            counts = ProcessInstances(connection).unended_counts()
            clusters |= {cluster for process, cluster in counts if process == name}
            clusters |= {mark.cluster for mark in TriggerInputs(connection).of_process(name)}
    return tuple(sorted(clusters))


def find_held(context: EntityContext, feed: str) -> list[str]:
    """Return a sentence on each hold of a feed: they stay when it is deleted, and its data with them."""
    with context.database.read() as connection:
        held = [hold for hold in Holds(connection).active(context.now) if hold.feed == feed]
    also = "also if the feed is declared again"
    return [f"hold {hold.name!r} of {hold.author} stays, {also}: {hold.reason}" for hold in held]


def _unended(context: EntityContext, kind: Kind, name: str, clusters: Collection[str]) -> tuple[ProcessInstance, ...]:
    if kind is not Kind.PROCESS:
        return ()
    with context.database.read() as connection:
        instances = ProcessInstances(connection)
        return tuple(row for cluster in clusters for row in instances.unended(name, cluster))
