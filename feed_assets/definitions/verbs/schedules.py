"""Schedule, suspend, resume and touch entities on their clusters."""

from collections.abc import Collection, Sequence
from datetime import datetime

from feed_assets.catalog.describing import apply_schedule_description
from feed_assets.context.errors import NotSchedulableError, NotScheduledError, VerbRefusedError
from feed_assets.definitions.store import Loaded
from feed_assets.definitions.verbs.context import EntityContext, get_declared, require_reachable
from feed_assets.definitions.verbs.settling import apply_releases, apply_schedules, decide_schedules, load_timeline
from feed_assets.definitions.verbs.states import works_here
from feed_assets.definitions.verbs.verb_results import EntityOutcome, EntityVerb, VerbOutcome, VerbResult
from feed_assets.entities.bundle import AnyEntity, Bundle
from feed_assets.entities.cluster import Cluster
from feed_assets.entities.common import Kind
from feed_assets.entities.datasource import Datasource
from feed_assets.entities.feed import Feed
from feed_assets.entities.process import Process
from feed_assets.instances.gates.plan_changes import touch_process
from feed_assets.log.definitions.records import ScheduleState
from feed_assets.log.definitions.schedules import ScheduleView, load_schedules
from feed_assets.log.messages.outbox import Outbox
from feed_assets.log.messages.payloads import EntityAction, EntityPayload
from feed_assets.log.messages.records import OutboxMessage
from feed_assets.releases.decide_releases import ReleaseDecision
from feed_assets.sql.locks import lock_definitions, lock_log
from feed_assets.timing.dates import render_datetime

_ACTIONS = {EntityVerb.SUSPEND: EntityAction.SUSPEND, EntityVerb.RESUME: EntityAction.RESUME}


def schedule(
    context: EntityContext, kind: Kind | None, names: Sequence[str], clusters: Collection[str] | None = None
) -> VerbResult:
    """Start the work on feeds or processes, on all their clusters or on some. Instances are created from the start of
    the validity. Scheduled and suspended entities stay as they are.

    Raises:
        EntityNotFoundError: one is not declared.
        NotSchedulableError: clusters and datasources have no schedule; or no engine here can do the work.
    """
    loaded = context.load()
    entities = [get_declared(loaded, kind, name) for name in names]
    for entity in entities:
        require_schedulable(loaded.bundle.bundle, entity, _clusters_of(entity, clusters))
    require_reachable(context, loaded.bundle, [entity.key for entity in entities])
    return _set(context, loaded, entities, clusters, ScheduleState.SCHEDULED, EntityVerb.SCHEDULE)


def suspend(
    context: EntityContext, kind: Kind | None, names: Sequence[str], clusters: Collection[str] | None = None
) -> VerbResult:
    """Stop the work on feeds or processes until they are resumed: no instance is created, launched or timed out.
    Running instances run to their end.

    Differs from Falcon: running instances are not suspended, because Dagster cannot hold a run.

    Raises:
        NotScheduledError: one is not scheduled on any cluster.
        NotSchedulableError: clusters and datasources have no schedule.
    """
    return _change_scheduled(context, kind, names, clusters, ScheduleState.SUSPENDED, EntityVerb.SUSPEND)


def resume(
    context: EntityContext, kind: Kind | None, names: Sequence[str], clusters: Collection[str] | None = None
) -> VerbResult:
    """Continue the work that `suspend` stopped: missed instances are created now, and waiting instances keep the time
    that was left until their timeout.

    Raises:
        NotScheduledError: one is not scheduled on any cluster.
    """
    return _change_scheduled(context, kind, names, clusters, ScheduleState.SCHEDULED, EntityVerb.RESUME)


def _change_scheduled(
    context: EntityContext,
    kind: Kind | None,
    names: Sequence[str],
    clusters: Collection[str] | None,
    target: ScheduleState,
    verb: EntityVerb,
) -> VerbResult:
    loaded = context.load()
    entities = [get_declared(loaded, kind, name) for name in names]
    view = context.schedules()
    for entity in entities:
        if not _active_on(view, loaded.bundle.bundle, entity, _clusters_of(entity, clusters)):
            require_schedulable(loaded.bundle.bundle, entity, ())
            raise NotScheduledError(kind=entity.kind, name=entity.name)
    return _set(context, loaded, entities, clusters, target, verb)


def _set(
    context: EntityContext,
    loaded: Loaded,
    entities: Sequence[AnyEntity],
    clusters: Collection[str] | None,
    target: ScheduleState,
    verb: EntityVerb,
) -> VerbResult:
    view = context.schedules()
    outcomes = []
    for entity in entities:
        named = _clusters_of(entity, clusters)
        if verb is EntityVerb.SCHEDULE:
            concerned = [name for name in named if not _is_active(view, entity, name)]
        else:
            concerned = _active_on(view, loaded.bundle.bundle, entity, named)
        outcomes.append(set_state(context, view, entity, concerned, target, verb))
    return VerbResult(verb=verb.value, outcomes=tuple(outcomes), dry_run=context.dry_run)


def set_state(
    context: EntityContext,
    view: ScheduleView,
    entity: AnyEntity,
    clusters: Collection[str],
    target: ScheduleState,
    verb: EntityVerb,
) -> EntityOutcome:
    """Set the state of an entity on clusters, and write the audit entry; `view` has the schedules before."""
    assert isinstance(entity, Feed | Process)

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
            known = load_schedules(connection, context.without_row)
            changed = differing(known)
            author, now = context.author, context.now
            rows = decide_schedules(known, entity.kind, entity.name, changed, target, author=author, now=now)
            apply_schedules(connection, known, rows, now)
            if changed:
                Outbox(connection).append_many([_message_of(entity, verb, sorted(changed), author, now)])
            states = {name: known.state(entity.kind, entity.name, name) for name in entity.clusters}
            apply_schedule_description(
                connection,
                entity.kind,
                entity.name,
                states | dict.fromkeys(changed, target),
                context.settings.metadata.system,
                now,
            )
        if changed:
            context.audit(verb.value, entity.label, clusters=sorted(changed))
    found = {name: view.state(entity.kind, entity.name, name).value for name in entity.clusters}
    found.update((cluster, target.value) for cluster in changed)
    done = {
        EntityVerb.SUSPEND: VerbOutcome.SUSPENDED,
        EntityVerb.RESUME: VerbOutcome.RESUMED,
    }.get(verb, VerbOutcome.SCHEDULED)
    return EntityOutcome(
        kind=entity.kind, name=entity.name, outcome=done if changed else VerbOutcome.UNCHANGED, clusters=found
    )


def _message_of(
    entity: Feed | Process, verb: EntityVerb, clusters: Sequence[str], author: str, now: datetime
) -> OutboxMessage:
    action = _ACTIONS.get(verb, EntityAction.SCHEDULE)
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


def _clusters_of(entity: AnyEntity, requested: Collection[str] | None) -> list[str]:
    """Return the requested clusters, in the entity's order.

    Raises:
        VerbRefusedError: the entity is not on one of them.
    """
    own = list(entity.clusters) if isinstance(entity, Feed | Process) else []
    if requested is None:
        return own
    for name in requested:
        if name not in own:
            raise VerbRefusedError(
                subject=entity.label, reason=f"it is not on cluster {name!r}", next_step=f"It is on {', '.join(own)}."
            )
    return [name for name in own if name in requested]


def _active_on(view: ScheduleView, bundle: Bundle, entity: AnyEntity, clusters: Collection[str]) -> list[str]:
    """Return the clusters on which an entity is scheduled or suspended, and can be worked on."""
    if not isinstance(entity, Feed | Process):
        return []
    return [name for name in clusters if _is_active(view, entity, name) and works_here(bundle, entity, name)]


def _is_active(view: ScheduleView, entity: AnyEntity, cluster: str) -> bool:
    """Return whether a command, or the setting, has scheduled or suspended an entity."""
    return view.state(entity.kind, entity.name, cluster) is not ScheduleState.SUBMITTED


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
    entity = get_declared(loaded, kind, name)
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
        context.audit(EntityVerb.TOUCH.value, entity.label, effective_from=begins)
    is_done = bool(decisions) or (context.dry_run and not notes)
    outcome = EntityOutcome(
        kind=entity.kind,
        name=name,
        outcome=VerbOutcome.TOUCHED if is_done else VerbOutcome.UNCHANGED,
        notes=tuple(notes),
    )
    return VerbResult(
        verb=EntityVerb.TOUCH.value, outcomes=(outcome,), releases=tuple(decisions), dry_run=context.dry_run
    )
