"""Schedule, suspend, resume and touch entities on their clusters; and the follow-up of a change of the definitions:
begin releases, keep schedules, and end obsolete work.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

from sqlalchemy import Connection

from feed_assets.access.rights import require_acts
from feed_assets.alerts.deadlines.checks import apply_pause
from feed_assets.alerts.deadlines.records import SlaPause
from feed_assets.catalog.describing import apply_schedule_description
from feed_assets.context.errors import NotSchedulableError, NotScheduledError, VerbRefusedError
from feed_assets.definitions.store import Loaded
from feed_assets.definitions.verbs.context import EntityContext, get_own, require_reachable
from feed_assets.definitions.verbs.states import works_here
from feed_assets.definitions.verbs.verb_results import EntityOutcome, EntityVerb, VerbOutcome, VerbResult
from feed_assets.entities.bundle import AnyEntity, Bundle
from feed_assets.entities.cluster import Cluster
from feed_assets.entities.common import Kind
from feed_assets.entities.datasource import Datasource
from feed_assets.entities.feed import Feed
from feed_assets.entities.flow_names import DOT, SEPARATOR
from feed_assets.entities.process import Process
from feed_assets.errors import Fault
from feed_assets.instances.gates.plan_changes import apply_plan, touch_process
from feed_assets.loading.bundles import LoadedBundle
from feed_assets.log.definitions.records import Schedule, ScheduleState
from feed_assets.log.definitions.schedules import Schedules, ScheduleView, load_schedules
from feed_assets.log.instances.attempts import Attempts
from feed_assets.log.instances.process_instances import UNENDED, ProcessInstances
from feed_assets.log.messages.outbox import Outbox
from feed_assets.log.messages.payloads import EntityAction, EntityPayload
from feed_assets.log.messages.records import OutboxMessage
from feed_assets.log.records import Cause, EntityKey, ProcessInstance, ProcessInstanceStatus, WatermarkKind
from feed_assets.log.removals.holds import Holds
from feed_assets.log.watermarks import Watermarks
from feed_assets.plan.location import compile_location
from feed_assets.plan.pinned_files import with_pinned_files
from feed_assets.releases.decide_releases import ReleaseDecision
from feed_assets.releases.store import store_pinned_files
from feed_assets.releases.timeline import BEGINNING, ReleaseTimeline
from feed_assets.sql.database import lock_definitions, lock_for_lineage, lock_log, lock_queues
from feed_assets.timing.dates import render_datetime
from feed_assets.triggers.queue.inputs import TriggerInputs
from feed_assets.triggers.queue.store import QueueEnds

_DELETED = "its process was deleted"
_TAKEN_OFF = "its process was taken off the cluster"

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
    """Return the process names of an entity's instances: its own name, or those of what the feed declares."""
    if kind == Kind.PROCESS:
        return [name]
    known = partial(Watermarks(connection).starting_with, WatermarkKind.PROCESS)
    return [each for sign in (SEPARATOR, DOT) for each in known(name + sign, cluster)]


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

    policy, described = context.settings.definition_changes, context.settings.metadata.system
    return apply_plan(context.database, timeline, context.now, policy, store, described)


def load_timeline(context: EntityContext, declared: LoadedBundle | None = None) -> ReleaseTimeline:
    """Load the release timeline of the current definitions."""
    loaded = declared or context.load().bundle
    settings = context.settings
    location = compile_location(loaded, settings.code_root, settings.notify, settings.works_in)
    return ReleaseTimeline(with_pinned_files(location.plan, settings.root), context.store.values)


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
    context: EntityContext, kind: Kind, name: str, left: Collection[str], *, is_gone: bool = False
) -> tuple[ProcessInstance, ...]:
    """End an entity's work on the clusters that it has left; if it `is_gone`, wherever there is something of it still.
    Returns the killed instances, as they were before.
    """
    clusters = sorted({*left, *_find_remains(context, kind, name)}) if is_gone else left
    if not clusters:
        return ()
    if context.dry_run:
        return _unended(context, kind, name, clusters)
    reason = _DELETED if is_gone else _TAKEN_OFF
    with context.database.begin() as connection:
        lock_for_lineage(connection)
        return apply_end_of_work(connection, kind, name, clusters, reason=reason, now=context.now)


def _find_remains(context: EntityContext, kind: Kind, name: str) -> tuple[str, ...]:
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


_LEADS_TO = {
    EntityVerb.SCHEDULE: (ScheduleState.SCHEDULED, EntityAction.SCHEDULE, VerbOutcome.SCHEDULED),
    EntityVerb.SUSPEND: (ScheduleState.SUSPENDED, EntityAction.SUSPEND, VerbOutcome.SUSPENDED),
    EntityVerb.RESUME: (ScheduleState.SCHEDULED, EntityAction.RESUME, VerbOutcome.RESUMED),
}
"""The state that a verb leads to, its message and its outcome; other verbs schedule."""


def change_work(
    context: EntityContext,
    verb: EntityVerb,
    kind: Kind | None,
    names: Sequence[str],
    clusters: Collection[str] | None = None,
) -> VerbResult:
    """Schedule, suspend or resume feeds or processes, on all their clusters or on some. What is in the state already
    stays as it is.

    Scheduled: instances are created from the start of the validity. Suspended: no instance is created, launched or
    timed out; running instances run to their end. Resumed: missed instances are created now, and waiting instances keep
    the time that was left until their timeout.

    Differs from Falcon: running instances are not suspended, because Dagster cannot hold a run.

    Raises:
        EntityNotFoundError: one is not declared.
        JobOwnedError: a job of an extension has made one.
        NotSchedulableError: clusters and datasources have no schedule; or no engine here can do the work.
        NotScheduledError: one that is to be suspended or resumed is not scheduled on any cluster.
    """
    loaded = context.load()
    return change_work_of(context, verb, loaded, [get_own(loaded, kind, name) for name in names], clusters)


def change_work_of(
    context: EntityContext,
    verb: EntityVerb,
    loaded: Loaded,
    entities: Sequence[AnyEntity],
    clusters: Collection[str] | None = None,
) -> VerbResult:
    """Do the same with entities, whoever has made them."""
    require_acts(each.key for each in entities)
    bundle, view, concerned = loaded.bundle.bundle, context.schedules(), []
    for entity in entities:
        on = _clusters_of(context, entity, clusters)
        active = on if verb is EntityVerb.SCHEDULE else _active_on(view, bundle, entity, on)
        require_schedulable(bundle, entity, on if verb is EntityVerb.SCHEDULE else ())
        if verb is not EntityVerb.SCHEDULE and not active:
            raise NotScheduledError(kind=entity.kind, name=entity.name)
        concerned.append((entity, active))
    if verb is EntityVerb.SCHEDULE:
        require_reachable(context, loaded.bundle, [entity.key for entity in entities])
        view = context.schedules()  # that may have taken long
    outcomes = tuple(set_state(context, view, entity, active, verb) for entity, active in concerned)
    return VerbResult(verb=verb, outcomes=outcomes, dry_run=context.dry_run)


def set_state(
    context: EntityContext, view: ScheduleView, entity: AnyEntity, clusters: Collection[str], verb: EntityVerb
) -> EntityOutcome:
    """Give an entity the state that a verb leads to on those of the clusters where it has another one, and write the
    audit entry; `view` has the schedules before.
    """
    assert isinstance(entity, Feed | Process)
    target, action, done = _LEADS_TO.get(verb, _LEADS_TO[EntityVerb.SCHEDULE])

    def differing(known: ScheduleView) -> list[str]:
        found = {name: known.state(entity.kind, entity.name, name) for name in clusters}
        if verb in (EntityVerb.SUSPEND, EntityVerb.RESUME):
            return [name for name, state in found.items() if state not in (ScheduleState.SUBMITTED, target)]
        return [name for name, state in found.items() if state is ScheduleState.SUBMITTED]

    changed = differing(view)
    if changed and not context.dry_run:
        with context.database.begin() as connection:
            lock_definitions(connection)
            lock_log(connection)
            known = load_schedules(connection)
            changed = differing(known)
            author, now = context.author, context.now
            rows = decide_schedules(known, entity.kind, entity.name, changed, target, author=author, now=now)
            apply_schedules(connection, known, rows, now)
            if changed:
                Outbox(connection).append_many([_message_of(entity, action, sorted(changed), author, now)])
            states = {name: known.state(entity.kind, entity.name, name) for name in context.clusters_of(entity)}
            apply_schedule_description(
                connection,
                entity.kind,
                entity.name,
                states | dict.fromkeys(changed, target),
                context.settings.metadata.system,
                now,
            )
        if changed:
            context.audit(verb, entity.label, clusters=sorted(changed))
    found = {name: view.state(entity.kind, entity.name, name).value for name in context.clusters_of(entity)}
    found.update((cluster, target.value) for cluster in changed)
    return EntityOutcome(
        kind=entity.kind, name=entity.name, outcome=done if changed else VerbOutcome.UNCHANGED, clusters=found
    )


def _message_of(
    entity: Feed | Process, action: EntityAction, clusters: Sequence[str], author: str, now: datetime
) -> OutboxMessage:
    return OutboxMessage(
        recorded_at=now,
        payload=EntityPayload(
            action=action, kind=entity.kind, entity=entity.name, author=author, clusters=tuple(clusters)
        ),
        idempotency_key=f"entity/{entity.kind.value}/{entity.name}/{action.value}/{','.join(clusters)}/{now.isoformat()}",
    )


def require_schedulable(bundle: Bundle, entity: AnyEntity, clusters: Collection[str]) -> None:
    """Require that an entity can be scheduled.

    Raises:
        NotSchedulableError: it cannot be scheduled; names the next step.
    """
    if isinstance(entity, Cluster | Datasource):
        raise NotSchedulableError(
            subject=entity.label,
            reason=f"a {entity.kind.value} has no schedule",
            next_step="Name the feeds and processes that use it.",
        )
    for cluster in clusters:
        if works_here(bundle, entity, cluster):
            continue
        if isinstance(entity, Process) and not entity.workflow.engine.is_supported:
            raise NotSchedulableError(
                subject=entity.label,
                reason=f"the engine {entity.workflow.engine.value!r} does not run here",
                next_step=(
                    "Give it another workflow in its definition, or import it again with "
                    f"--replace-workflow {entity.name}=sql:PATH."
                ),
            )
        raise NotSchedulableError(
            subject=entity.label,
            reason=f"one of its feeds has no location on {cluster}",
            next_step="Declare locations or a table for that feed.",
        )


def _clusters_of(context: EntityContext, entity: AnyEntity, requested: Collection[str] | None) -> list[str]:
    """Return the requested clusters, by default all that are worked on here, in the entity's order.

    Raises:
        VerbRefusedError: the entity is not on one of them.
    """
    own = list(context.clusters_of(entity))
    if requested is None:
        return own
    for name in requested:
        if name not in own:
            raise VerbRefusedError(
                subject=entity.label,
                reason=f"it is not on cluster {name!r}",
                next_step=f"It is on {', '.join(own)}.",
                fault=Fault.MISSING,
            )
    return [name for name in own if name in requested]


def _active_on(view: ScheduleView, bundle: Bundle, entity: AnyEntity, clusters: Collection[str]) -> list[str]:
    """Return the clusters on which an entity is scheduled or suspended, and can be worked on."""
    if not isinstance(entity, Feed | Process):
        return []
    begun = [name for name in clusters if view.state(entity.kind, entity.name, name) is not ScheduleState.SUBMITTED]
    return [name for name in begun if works_here(bundle, entity, name)]


def touch(
    context: EntityContext,
    kind: Kind | None,
    name: str,
    clusters: Collection[str] | None = None,
    effective_from: datetime | None = None,
) -> VerbResult:
    """Begin a new release of a process, with unchanged definitions, at the first instance that is at least three
    minutes ahead, or at `effective_from`. Nothing happens if the validity is over by then. A feed has no releases.

    Raises:
        EntityNotFoundError: there is no such entity.
        NotSchedulableError: clusters and datasources cannot be touched.
    """
    context.record()
    loaded = context.load()
    entity = get_own(loaded, kind, name)
    require_schedulable(loaded.bundle.bundle, entity, ())
    decisions: list[ReleaseDecision] = []
    notes = []
    assert isinstance(entity, Feed | Process)
    if isinstance(entity, Feed):
        notes.append("a feed has no releases: touch the processes that use it")
    else:
        timeline = load_timeline(context, loaded.bundle)
        for cluster in entity.clusters:
            key = (name, cluster)
            record = timeline.plan.processes.get(key)
            if record is None or (clusters is not None and cluster not in clusters):
                continue
            if record.sequence.ceil(effective_from or context.now) is None:
                notes.append(f"on {cluster} its validity is over: no new release")
            elif not context.dry_run:
                apply_releases(context, timeline)
                decisions.append(touch_process(context.database, timeline, key, context.now, effective_from))
    if decisions:
        begins = {each.cluster: each.effective_from and render_datetime(each.effective_from) for each in decisions}
        context.audit(EntityVerb.TOUCH, entity.label, effective_from=begins)
    is_done = bool(decisions) or (context.dry_run and not notes)
    outcome = EntityOutcome(
        kind=entity.kind,
        name=name,
        outcome=VerbOutcome.TOUCHED if is_done else VerbOutcome.UNCHANGED,
        notes=tuple(notes),
    )
    return VerbResult(verb=EntityVerb.TOUCH, outcomes=(outcome,), releases=tuple(decisions), dry_run=context.dry_run)
