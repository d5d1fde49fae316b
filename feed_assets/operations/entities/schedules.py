"""Schedule, suspend and resume: whether an entity is worked on, on each of its clusters."""

from collections.abc import Collection, Sequence

from feed_assets.definitions.store import Loaded
from feed_assets.entities.bundle import AnyEntity, Bundle
from feed_assets.entities.cluster import Cluster
from feed_assets.entities.common import Kind
from feed_assets.entities.datasource import Datasource
from feed_assets.entities.feed import Feed
from feed_assets.entities.process import Process
from feed_assets.lifecycle.schedules import ScheduleView, apply_schedules, decide_schedules, load_schedules
from feed_assets.operations.entities.registry import Registry, get_declared, require_reachable
from feed_assets.operations.entities.states import works_here
from feed_assets.operations.entities.verb_results import EntityOutcome, Outcome, VerbResult
from feed_assets.operations.errors import NotSchedulableError, NotScheduledError, VerbRefusedError
from feed_assets.operations.safe_mode import Operation, require_mode
from feed_assets.state.database import lock_definitions
from feed_assets.state.definition_records import ScheduleState


def schedule(
    registry: Registry, kind: Kind, names: Sequence[str], clusters: Collection[str] | None = None
) -> VerbResult:
    """Begin to work on feeds or processes, on all their clusters or on some.

    Instances come into being from the validity's start on. What is scheduled already, or suspended, stays as it is.

    Raises:
        EntityNotFoundError: one is not declared.
        NotSchedulableError: clusters and datasources have no schedule; or nothing here can do the work.
        SafeModeError: safe mode forbids it.
    """
    require_mode(registry.database, Operation.SCHEDULE)
    loaded = registry.load()
    entities = [get_declared(loaded, kind, name) for name in names]
    for entity in entities:
        require_schedulable(loaded.bundle.bundle, entity, _clusters_of(entity, clusters))
    require_reachable(registry, loaded.bundle, [entity.key for entity in entities])
    return _set(registry, loaded, entities, clusters, ScheduleState.SCHEDULED, Operation.SCHEDULE)


def suspend(
    registry: Registry, kind: Kind, names: Sequence[str], clusters: Collection[str] | None = None
) -> VerbResult:
    """Stop working on feeds or processes until they are resumed: no instance comes into being, none is launched, none
    times out. What runs goes on to its end.

    Differs from Falcon: running instances are not suspended, because Dagster cannot hold a run.

    Raises:
        NotScheduledError: one is scheduled nowhere.
    """
    require_mode(registry.database, Operation.SUSPEND)
    return _change_scheduled(registry, kind, names, clusters, ScheduleState.SUSPENDED, Operation.SUSPEND)


def resume(registry: Registry, kind: Kind, names: Sequence[str], clusters: Collection[str] | None = None) -> VerbResult:
    """Go on where `suspend` stopped: what was missed comes into being now, and what waits has the time that it had
    left.

    Raises:
        NotScheduledError: one is scheduled nowhere.
        SafeModeError: safe mode forbids it.
    """
    require_mode(registry.database, Operation.RESUME)
    return _change_scheduled(registry, kind, names, clusters, ScheduleState.SCHEDULED, Operation.RESUME)


def _change_scheduled(
    registry: Registry,
    kind: Kind,
    names: Sequence[str],
    clusters: Collection[str] | None,
    wanted: ScheduleState,
    operation: Operation,
) -> VerbResult:
    loaded = registry.load()
    entities = [get_declared(loaded, kind, name) for name in names]
    view = registry.schedules()
    for entity in entities:
        if not _active_on(view, loaded.bundle.bundle, entity, _clusters_of(entity, clusters)):
            raise NotScheduledError(kind=entity.kind, name=entity.name)
    return _set(registry, loaded, entities, clusters, wanted, operation)


def _set(
    registry: Registry,
    loaded: Loaded,
    entities: Sequence[AnyEntity],
    clusters: Collection[str] | None,
    wanted: ScheduleState,
    operation: Operation,
) -> VerbResult:
    view = registry.schedules()
    outcomes = []
    for entity in entities:
        named = _clusters_of(entity, clusters)
        if operation is Operation.SCHEDULE:
            concerned = [name for name in named if not _is_active(view, entity, name)]
        else:
            concerned = _active_on(view, loaded.bundle.bundle, entity, named)
        outcomes.append(set_state(registry, view, entity, concerned, wanted, operation))
    return VerbResult(verb=operation.value, outcomes=tuple(outcomes), dry_run=registry.dry_run)


def set_state(
    registry: Registry,
    view: ScheduleView,
    entity: AnyEntity,
    clusters: Collection[str],
    wanted: ScheduleState,
    operation: Operation,
) -> EntityOutcome:
    """Give an entity a state on clusters, and note it; `view` is how schedules stood before."""
    assert isinstance(entity, Feed | Process)

    def differing(known: ScheduleView) -> list[str]:
        found = {name: known.state(entity.kind, entity.name, name) for name in clusters}
        if operation in (Operation.SUSPEND, Operation.RESUME):
            return [name for name, state in found.items() if state not in (ScheduleState.SUBMITTED, wanted)]
        return [name for name, state in found.items() if state is ScheduleState.SUBMITTED]

    changed = differing(view)
    if changed and not registry.dry_run:
        with registry.database.begin() as connection:
            lock_definitions(connection)
            known = load_schedules(connection, registry.without_row)
            changed = differing(known)
            author, now = registry.author, registry.now
            rows = decide_schedules(known, entity.kind, entity.name, changed, wanted, author=author, now=now)
            apply_schedules(connection, known, rows, now)
        if changed:
            registry.audit(operation.value, entity.label, clusters=sorted(changed))
    states = {name: view.state(entity.kind, entity.name, name).value for name in entity.clusters}
    states.update((cluster, wanted.value) for cluster in changed)
    done = {
        Operation.SUSPEND: Outcome.SUSPENDED,
        Operation.RESUME: Outcome.RESUMED,
    }.get(operation, Outcome.SCHEDULED)
    return EntityOutcome(
        kind=entity.kind, name=entity.name, outcome=done if changed else Outcome.UNCHANGED, clusters=states
    )


def require_schedulable(bundle: Bundle, entity: AnyEntity, clusters: Collection[str]) -> None:
    """Demand that an entity can be worked on.

    Raises:
        NotSchedulableError: it cannot; says what to do.
    """
    if isinstance(entity, Cluster | Datasource):
        raise NotSchedulableError(
            subject=entity.label,
            reason=f"a {entity.kind.value} is not scheduled",
            next_step="Schedule the feeds and processes that use it.",
        )
    for cluster in clusters:
        if works_here(bundle, entity, cluster):
            continue
        if isinstance(entity, Process) and not entity.workflow.engine.runs_here:
            raise NotSchedulableError(
                subject=entity.label,
                reason=f"there is no engine {entity.workflow.engine.value!r} here",
                next_step=(
                    "Give it another workflow: update it, or import it again with "
                    f"`feed-assets import-falcon … --replace-workflow {entity.name}=sql:PATH`."
                ),
            )
        raise NotSchedulableError(
            subject=entity.label,
            reason=f"on {cluster} a feed of it lies nowhere",
            next_step="Declare locations or a table for the feed in question.",
        )


def _clusters_of(entity: AnyEntity, wanted: Collection[str] | None) -> list[str]:
    """The clusters in question, in the entity's order.

    Raises:
        VerbRefusedError: the entity is not on one of them.
    """
    own = list(entity.clusters) if isinstance(entity, Feed | Process) else []
    if wanted is None:
        return own
    for name in wanted:
        if name not in own:
            raise VerbRefusedError(
                subject=entity.label, reason=f"it is not on cluster {name!r}", next_step=f"It is on {', '.join(own)}."
            )
    return [name for name in own if name in wanted]


def _active_on(view: ScheduleView, bundle: Bundle, entity: AnyEntity, clusters: Collection[str]) -> list[str]:
    """The clusters on which an entity is scheduled or suspended, and could be worked on."""
    if not isinstance(entity, Feed | Process):
        return []
    return [name for name in clusters if _is_active(view, entity, name) and works_here(bundle, entity, name)]


def _is_active(view: ScheduleView, entity: AnyEntity, cluster: str) -> bool:
    """Whether a command, or the setting, has made an entity scheduled or suspended."""
    return view.state(entity.kind, entity.name, cluster) is not ScheduleState.SUBMITTED
