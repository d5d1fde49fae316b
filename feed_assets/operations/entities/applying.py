"""Apply a planned change: all of it at once, and only to the world that it was planned for."""

from collections.abc import Mapping
from types import MappingProxyType

from feed_assets.definitions.edits import Remove
from feed_assets.entities.common import Kind
from feed_assets.entities.errors import DefinitionsError
from feed_assets.lifecycle.schedules import DELETED, TAKEN_OFF
from feed_assets.loading.entity_files import LoadedBundle
from feed_assets.operations.entities.planning import Planned, digest_change, weigh_change
from feed_assets.operations.entities.registry import Registry, make_change
from feed_assets.operations.entities.settling import end_work, settle_releases
from feed_assets.operations.entities.verb_results import EntityOutcome, Outcome, VerbResult
from feed_assets.operations.errors import PlanOutdatedError
from feed_assets.operations.safe_mode import Operation, require_mode
from feed_assets.plan.difference_records import EntityDifference, Turn
from feed_assets.state.records import ProcessInstance

APPLY = "apply"

_OUTCOMES: Mapping[Turn, Outcome] = MappingProxyType(
    {Turn.ADDED: Outcome.SUBMITTED, Turn.CHANGED: Outcome.UPDATED, Turn.REMOVED: Outcome.DELETED}
)


def apply_planned(registry: Registry, planned: Planned) -> VerbResult:
    """Make a planned change; where nothing would change, nothing happens.

    Entities that are new are scheduled if the setting `schedule` says so. Work on clusters that are left, and of
    entities that are removed, is ended.

    Raises:
        DefinitionsError: something is wrong with it, also with what depends on it; carries the issues.
        PlanOutdatedError: the definitions, schedules or releases are not any more those it was planned for.
        SafeModeError: safe mode forbids it, or is needed for it.
    """
    if planned.errors:
        raise DefinitionsError(
            location="the planned change",
            issues=planned.errors,
            next_step="Nothing was changed; correct what is named here:",
        )
    if planned.difference.is_empty:
        return VerbResult(verb=APPLY, outcomes=(), warnings=planned.issues)
    for entity in planned.difference.entities:
        require_mode(registry.database, _operation_of(entity))
    if planned.edits:
        _change(registry, planned)
    else:
        _record(registry, planned)
    stopped = _end_work(registry, planned)
    releases = settle_releases(registry)
    newest = registry.store.load(registry.now).newest
    outcomes = []
    for entity in planned.difference.entities:
        kind, name = entity.key
        number = newest[entity.key].version
        registry.audit(APPLY, entity.label, turn=entity.turn.value, version=number, digest=planned.digest)
        changes = tuple(field.change for field in entity.fields) if entity.turn is Turn.CHANGED else ()
        outcome = _OUTCOMES[entity.turn]
        outcomes.append(EntityOutcome(kind=kind, name=name, outcome=outcome, version=number, changes=changes))
    return VerbResult(
        verb=APPLY,
        outcomes=tuple(outcomes),
        warnings=planned.issues,
        releases=releases,
        stopped=tuple(stopped),
        reload_needed=True,
    )


def require_digest(planned: Planned, digest: str) -> None:
    """Demand that a plan is the one that somebody has seen.

    Raises:
        PlanOutdatedError: it is another.
    """
    if planned.digest != digest:
        raise PlanOutdatedError(digest=digest)


def _operation_of(entity: EntityDifference) -> Operation:
    match entity.turn:
        case Turn.ADDED:
            return Operation.SUBMIT
        case Turn.REMOVED:
            return Operation.DELETE
        case Turn.CHANGED:
            return Operation.UPDATE_CLUSTER if entity.key[0] == Kind.CLUSTER else Operation.UPDATE


def _change(registry: Registry, planned: Planned) -> None:
    removed = [edit.key for edit in planned.edits if isinstance(edit, Remove)]

    def refuse(before: LoadedBundle, after: LoadedBundle) -> None:
        weighed = weigh_change(registry, before.bundle, after.bundle, after)
        if digest_change(before, after, removed, weighed) != planned.digest:
            raise PlanOutdatedError(digest=planned.digest)

    make_change(registry, planned.edits, planned.keys, origin=APPLY, refuse=refuse)


def _record(registry: Registry, planned: Planned) -> None:
    def check(found: LoadedBundle) -> None:
        if found.digest != planned.bundle_digest:
            raise PlanOutdatedError(digest=planned.digest)

    registry.store.record_found(registry.now, registry.author, check=check)


def _end_work(registry: Registry, planned: Planned) -> list[ProcessInstance]:
    stopped: list[ProcessInstance] = []
    for entity in planned.difference.entities:
        if entity.left:
            reason = DELETED if entity.turn is Turn.REMOVED else TAKEN_OFF
            stopped.extend(end_work(registry, Kind(entity.key[0]), entity.key[1], entity.left, reason))
    return stopped
