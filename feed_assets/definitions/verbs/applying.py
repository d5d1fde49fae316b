"""Applies a planned change as a whole, and only in the state for which it was planned."""

from collections.abc import Mapping
from types import MappingProxyType

from feed_assets.command_lines import command_line
from feed_assets.context.errors import PlanOutdatedError, VerbRefusedError
from feed_assets.context.safe_mode import require_mode, require_update_mode
from feed_assets.definitions.edits import Remove
from feed_assets.definitions.errors import MassDeletionError
from feed_assets.definitions.ownership import is_mass_deletion
from feed_assets.definitions.verbs.context import EntityContext, make_change
from feed_assets.definitions.verbs.decide_schedules import DELETED, TAKEN_OFF
from feed_assets.definitions.verbs.planning import PlannedChanges, compute_change, digest_change
from feed_assets.definitions.verbs.settling import end_work, settle_releases
from feed_assets.definitions.verbs.verb_results import EntityOutcome, EntityVerb, VerbOutcome, VerbResult
from feed_assets.entities.common import Kind, label_of
from feed_assets.entities.errors import DefinitionsError
from feed_assets.loading.bundles import LoadedBundle
from feed_assets.log.definitions.store import Definitions
from feed_assets.log.records import ProcessInstance
from feed_assets.plan.difference_records import EntityChange, EntityDifference

_OUTCOMES: Mapping[EntityChange, VerbOutcome] = MappingProxyType(
    {
        EntityChange.ADDED: VerbOutcome.SUBMITTED,
        EntityChange.CHANGED: VerbOutcome.UPDATED,
        EntityChange.REMOVED: VerbOutcome.DELETED,
    }
)

SHORTEST_DIGEST = 8


def apply_planned(context: EntityContext, planned: PlannedChanges, *, may_delete_all: bool = False) -> VerbResult:
    """Make a planned change. Without differences, the state only follows the settings: what is said of the entities.

    New entities are scheduled if the setting `schedule` says so. Work ends for removed entities and on clusters that an
    entity leaves.

    Raises:
        DefinitionsError: the change, or an entity that depends on it, has errors; carries the issues.
        PlanOutdatedError: definitions, schedules or releases have changed since it was planned.
        MassDeletionError: it deletes many of the declared entities, and `may_delete_all` is not set.
        SafeModeError: safe mode forbids the change, or the change needs it.
    """
    if planned.errors:
        raise DefinitionsError(
            location="the planned change",
            issues=planned.errors,
            next_step="Nothing was changed. Correct these issues:",
        )
    if planned.difference.is_empty:
        settle_releases(context)
        return VerbResult(verb=EntityVerb.APPLY, outcomes=(), warnings=planned.issues)
    for entity in planned.difference.entities:
        _require_mode(context, entity)
    if not planned.keys:
        require_update_mode(context.database)
    if not may_delete_all:
        _require_few_deleted(context, planned)
    if planned.edits:
        _change(context, planned)
    else:
        _record(context, planned)
    stopped = _end_work(context, planned)
    releases = settle_releases(context)
    if not planned.keys:
        _finish_changed_files(context, planned)
    newest = context.store.load(context.now).newest
    outcomes = []
    for entity in planned.difference.entities:
        kind, name = entity.key
        number = newest[entity.key].version
        context.audit(EntityVerb.APPLY, entity.label, turn=entity.change.value, version=number, digest=planned.digest)
        changes = tuple(field.change for field in entity.fields) if entity.change is EntityChange.CHANGED else ()
        outcome = _OUTCOMES[entity.change]
        outcomes.append(EntityOutcome(kind=kind, name=name, outcome=outcome, version=number, changes=changes))
    return VerbResult(
        verb=EntityVerb.APPLY,
        outcomes=tuple(outcomes),
        warnings=planned.issues,
        releases=releases,
        stopped=tuple(stopped),
        reload_needed=True,
    )


def require_digest(planned: PlannedChanges, digest: str) -> None:
    """Require that a plan is the one that the user has seen; the first eight characters of its digest suffice.

    Raises:
        PlanOutdatedError: the digests differ.
        VerbRefusedError: the digest is too short.
    """
    given = digest.rstrip("…").lower()
    if len(given) < SHORTEST_DIGEST:
        raise VerbRefusedError(
            subject=f"digest {digest!r}",
            reason=f"it has fewer than {SHORTEST_DIGEST} characters",
            next_step=f"Write more of the digest that `{command_line('plan')}` shows.",
        )
    if not planned.digest.startswith(given):
        raise PlanOutdatedError(digest=digest)


def _require_mode(context: EntityContext, entity: EntityDifference) -> None:
    match entity.change:
        case EntityChange.ADDED:
            require_mode(context.database, EntityVerb.SUBMIT)
        case EntityChange.REMOVED:
            require_mode(context.database, EntityVerb.DELETE)
        case EntityChange.CHANGED:
            require_update_mode(context.database, is_cluster=entity.key[0] == Kind.CLUSTER)


def _change(context: EntityContext, planned: PlannedChanges) -> None:
    removed = [edit.key for edit in planned.edits if isinstance(edit, Remove)]

    def refuse(before: LoadedBundle, after: LoadedBundle) -> None:
        computed = compute_change(context, before.bundle, after.bundle, after)
        if digest_change(before, after, removed, computed) != planned.digest:
            raise PlanOutdatedError(digest=planned.digest)

    make_change(context, planned.edits, planned.keys, origin=EntityVerb.APPLY, refuse=refuse)


def _require_few_deleted(context: EntityContext, planned: PlannedChanges) -> None:
    if is_mass_deletion(len(planned.removed), planned.declared, context.settings.unconfirmed_deletions):
        place = context.store.folder.location
        raise MassDeletionError(location=place, deleted=planned.removed, declared=planned.declared)


def _record(context: EntityContext, planned: PlannedChanges) -> None:
    def check(found: LoadedBundle) -> None:
        if found.digest != planned.bundle_digest:
            raise PlanOutdatedError(digest=planned.digest)

    context.store.record_found(context.now, context.author, check=check, may_delete_all=True)


def _finish_changed_files(context: EntityContext, planned: PlannedChanges) -> None:
    """Make running programs load the definitions again, for the files of the workflows, and write audit entries."""
    with context.database.begin() as connection:
        Definitions(connection).bump_revision()
    for process in planned.difference.processes:
        files = [cause.key[1] for cause in process.causes]
        target = label_of((Kind.PROCESS, process.process))
        context.audit(EntityVerb.APPLY, target, cluster=process.cluster, files=files, digest=planned.digest)


def _end_work(context: EntityContext, planned: PlannedChanges) -> list[ProcessInstance]:
    stopped: list[ProcessInstance] = []
    for entity in planned.difference.entities:
        if entity.left:
            reason = DELETED if entity.change is EntityChange.REMOVED else TAKEN_OFF
            stopped.extend(end_work(context, Kind(entity.key[0]), entity.key[1], entity.left, reason))
    return stopped
