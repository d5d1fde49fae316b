"""Previews of changes of the definitions: of submitted files, or of unrecorded edits in the folder; and a planned
change applied as a whole, only in the state for which it was planned.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from sqlalchemy import Connection

from feed_assets.access.rights import find_hidden, reads
from feed_assets.command_lines import command_line
from feed_assets.context.errors import PlanOutdatedError, VerbRefusedError
from feed_assets.context.safe_mode import require_mode, require_update_mode
from feed_assets.definitions.contents import StoredDocument
from feed_assets.definitions.edits import Edit, Remove, read_documents
from feed_assets.definitions.errors import RENAMED_PLACES, MassDeletionError, rename_hint
from feed_assets.definitions.folder import (
    find_entity,
    find_version_entity,
    has_references,
)
from feed_assets.definitions.ownership import is_mass_deletion
from feed_assets.definitions.recording import find_renamed, is_in_folder
from feed_assets.definitions.store import Loaded
from feed_assets.definitions.verbs.changes import (
    finish,
    is_declared,
    require_updatable,
    with_next_version,
)
from feed_assets.definitions.verbs.context import AppliedChange, EntityContext, find_new_issues, make_change
from feed_assets.definitions.verbs.plan_effects import (
    Sides,
    find_claimed_metadata,
    find_first_batches,
    find_first_transfers,
    find_left_events,
    find_long_pasts,
    find_next_transfers,
    find_staying,
    find_stranded,
    find_unseen_feeds,
)
from feed_assets.definitions.verbs.schedules import end_work, settle_releases
from feed_assets.definitions.verbs.verb_results import EntityOutcome, EntityVerb, VerbOutcome, VerbResult
from feed_assets.entities.bundle import AnyEntity, Bundle
from feed_assets.entities.common import Kind, label_of
from feed_assets.entities.errors import DefinitionsError
from feed_assets.errors import Fault, WrongUsageError, render_some
from feed_assets.instances.gates.readiness import ON_TIME
from feed_assets.issues import EntityKey, Issue, Severity, fold_followers, order_of
from feed_assets.json_form import Hidden
from feed_assets.loading.bundles import LoadedBundle, usable_bundle
from feed_assets.loading.entity_files import EntityFile
from feed_assets.log.definitions.records import ScheduleState
from feed_assets.log.definitions.schedules import ScheduleView, load_schedules
from feed_assets.log.definitions.store import Definitions
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import ProcessInstance
from feed_assets.log.removals.holds import Holds
from feed_assets.plan.differences import (
    AffectedProcess,
    decide_impact,
    decide_processes,
    diff_bundles,
    find_affected_processes,
)
from feed_assets.plan.edges import Key
from feed_assets.plan.rendering import (
    EntityChange,
    EntityDifference,
    PlanDifference,
    ProcessState,
    render_difference,
)
from feed_assets.releases.decide_releases import load_histories
from feed_assets.releases.store import find_changed_files, with_changed_files
from feed_assets.setting_sections import Authorization
from feed_assets.settings import DefinitionChanges
from feed_assets.validation.rules import validate_bundle

_DIGEST_VERSION = 1
_NOT_UPDATABLE = "not-updatable"
_HELD = "held"
OUTDATED_PLANS = 50
"""How often a change that nobody has seen is planned anew, because another one came before."""
_RENAMED = "renamed-in-files"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedChanges:
    """A change and its effects. `edits` are the edits for the store; none if the folder already has the content.
    `issues` with an error would refuse the change. `digest` identifies the change and the state in which it was
    planned, but not the time. `bundle_digest` is that of the resulting files. `declared` counts the entities that are
    declared before the change. With `tells_difference` the exit code says that something would change.
    """

    difference: PlanDifference
    issues: tuple[Issue, ...]
    edits: Hidden[tuple[Edit, ...]]
    keys: Hidden[frozenset[EntityKey]]
    digest: str
    bundle_digest: str
    declared: Hidden[int]
    unowned: Hidden[tuple[str, ...]] = ()
    """The labels of the entities without `acl`, if that matters; clusters are superusers' with it, too."""
    tells_difference: Hidden[bool] = False

    @property
    def removed(self) -> tuple[str, ...]:
        """The labels of the entities that are removed."""
        return tuple(each.label for each in self.difference.entities if each.change is EntityChange.REMOVED)

    @property
    def errors(self) -> tuple[Issue, ...]:
        """The issues that refuse the change."""
        return tuple(issue for issue in self.issues if issue.severity is Severity.ERROR)

    @property
    def has_failed(self) -> bool:
        """Whether the change would be refused."""
        return bool(self.errors)

    @property
    def lines(self) -> tuple[str, ...]:
        """The difference, and the digest with which it can be applied."""
        applied = () if self.difference.is_empty or self.errors else (f"Plan {self.digest}",)
        return (render_difference(self.difference), *applied)

    @property
    def notes(self) -> tuple[str, ...]:
        """Which entities have no owner, and the issues."""
        unowned = f"{len(self.unowned)} without acl, which superusers alone may change: {render_some(self.unowned)}"
        return (*([unowned] if self.unowned else []), *(issue.line for issue in self.issues))


def plan_files(context: EntityContext, files: Sequence[EntityFile] | None, *, prune: bool = False) -> PlannedChanges:
    """Plan the change that files make, or, without any given, the unrecorded content of the folder.

    Raises:
        WrongUsageError: with `prune`, no files are given.
        DefinitionsError: see `read_edits` and `plan_edits`.
    """
    if files is not None:
        return plan_edits(context, read_edits(context, files, prune=prune))
    if prune:
        raise WrongUsageError("--prune needs FILES: it removes what they do not contain.")
    return plan_folder(context)


def read_edits(context: EntityContext, files: Sequence[EntityFile], *, prune: bool = False) -> tuple[Edit, ...]:
    """Return the edits that give the store the content of files; with `prune` also those that remove everything else.
    Documents with the same meaning in the store need no edit. The version of clusters and datasources grows with the
    fields that their users see.

    Raises:
        DefinitionsError: a document is not a valid entity, or two declare the same one; carries the issues.
    """
    documents = read_documents(files, context.store.values)
    loaded = context.store.load(context.now)
    edits: list[Edit] = []
    for key, (put, entity) in documents.items():
        if not is_declared(loaded, key, put, entity):
            edits.append(with_next_version(put, loaded.bundle.bundle.find(key), entity, context.store.values)[0])
    removed = loaded.documents.keys() - documents.keys() if prune else ()
    return (*edits, *(Remove(key=key) for key in sorted(removed)))


def plan_edits(context: EntityContext, edits: Iterable[Edit]) -> PlannedChanges:
    """Plan the change that edits make.

    Raises:
        DefinitionsError: a text is not a valid entity; carries the issues.
        DefinitionStoreError: the files of the store do not allow the edits.
    """
    edits = tuple(edits)
    preview = context.store.preview(edits, now=context.now, jobs=context.jobs)
    old, new = preview.before.documents, preview.after.documents
    documents = frozenset(key for key in old.keys() | new.keys() if old.get(key) is not new.get(key))
    loaded, before, after = preview.after.bundle, preview.before.bundle.bundle, preview.after.bundle.bundle
    difference, state = compute_change(context, before, after, loaded, documents)
    written = _as_written(old, before, documents), _as_written(new, after, documents)
    shown = diff_bundles(*written, loaded.sources, only=documents)
    keys = {entity.key for entity in (*difference.entities, *shown)}
    sides = Sides(context=context, before=before, after=after, sources=loaded.sources, keys=keys)
    issues = [*find_new_issues(context, preview.before.bundle, loaded, keys), *_find_issues(sides, keys)]
    removed = [edit.key for edit in edits if isinstance(edit, Remove)]
    digest = digest_change(preview.before.bundle, loaded, removed, state)
    return _planned(sides, difference, shown, issues, edits, digest, loaded.digest)


def plan_folder(context: EntityContext) -> PlannedChanges:
    """Plan the unrecorded content of the folder. Entities with errors keep their recorded content."""
    loaded = context.store.load(context.now)
    found = loaded.bundle
    root = context.settings.code_root
    issues = [
        *found.issues,
        *validate_bundle(found.bundle, found.sources, root, left_out=found.salvaged),
    ]
    usable, blocked = usable_bundle(found, issues)
    recorded = _recorded(context, loaded)
    unusable = {entity.key for entity in loaded.bundle.bundle.entities if not usable.find(entity.key)}
    kept = loaded.bundle.broken | unusable | _hidden(context, loaded)
    after = Bundle(entities=(*usable.entities, *(recorded[key] for key in sorted(kept) if key in recorded)))
    before = Bundle(entities=tuple(recorded.values()))
    keys = frozenset(
        key
        for key in recorded.keys() | {entity.key for entity in after.entities}
        if recorded.get(key) is not after.find(key)
    )
    difference, state = compute_change(context, before, after, loaded.bundle, keys)
    sides = Sides(context=context, before=before, after=after, sources=found.sources, keys=keys)
    everything = {entity.key for entity in after.entities}
    issues = fold_followers([*issues, *blocked, *_find_issues(sides, everything)])
    written = {key: version for key in keys if (version := loaded.newest.get(key)) is not None}
    old = {key: find_version_entity(version) or recorded.get(key) for key, version in written.items()}
    shown = diff_bundles(
        Bundle(entities=tuple(entity for entity in old.values() if entity is not None)),
        _as_written(loaded.documents, after, keys),
        loaded.bundle.sources,
        only=keys,
    )
    digest = digest_change(found, found, [], state, loaded.revision)
    return _planned(sides, difference, shown, issues, (), digest, found.digest)


def compute_change(
    context: EntityContext,
    before: Bundle,
    after: Bundle,
    loaded: LoadedBundle,
    keys: Collection[EntityKey] | None = None,
) -> tuple[PlanDifference, Sequence[object]]:
    """Return the difference between two sets of definitions, or between the entities `keys` of them, under the current
    schedules and releases; and what of these it depends on.
    """
    entities = diff_bundles(before, after, loaded.sources, only=keys)
    affected = find_affected_processes(before, after, entities)
    with context.database.read() as connection:
        changed = find_changed_files(connection, after, context.settings.root)
        affected = with_changed_files(affected, changed, before, after)
        schedules = load_schedules(connection)
        policy = context.settings.definition_changes
        states = _load_process_states(connection, affected, schedules, policy)
    processes = decide_processes(affected, states, context.now)
    state = [
        [
            *process.key,
            process.step.value,
            process.state.is_active,
            process.state.is_suspended,
            process.state.release,
            *(file.digest for file in changed.get(process.key, ())),
        ]
        for process in processes
    ]
    difference = decide_impact(
        before, after, entities, processes, context.now, ON_TIME, context.settings.retention_grace
    )
    return difference, state


def _find_issues(sides: Sides, readers: Collection[EntityKey]) -> Iterator[Issue]:
    """Yield why the verb `update` would refuse a change of entities, and what the change leaves behind or takes over;
    and the feeds among `readers`, or read by them, of which nothing has ever come.
    """
    yield from _find_refusals(sides)
    yield from _find_renamed(sides)
    with sides.context.database.read() as connection:
        yield from _find_holds(connection, sides)
        yield from find_left_events(connection, sides)
        yield from find_first_transfers(connection, sides, readers)
        yield from find_unseen_feeds(connection, sides, readers)
        yield from find_claimed_metadata(connection, sides)
    yield from find_long_pasts(sides)


def _find_refusals(sides: Sides) -> Iterator[Issue]:
    """Yield the issues for which the verb `update` would refuse the change."""
    for key in sorted(sides.keys):
        old, new = sides.before.find(key), sides.after.find(key)
        if old is None or new is None:
            continue
        try:
            require_updatable(sides.context, old, new)
        except VerbRefusedError as exc:
            yield replace(sides.warn(_NOT_UPDATABLE, key, exc.reason, exc.next_step), severity=Severity.ERROR)


def _find_renamed(sides: Sides) -> Iterator[Issue]:
    """Yield a warning for each entity that goes, and seems to come back under another name."""
    before, after, keys = sides.before, sides.after, sorted(sides.keys)
    gone = [entity for key in keys if (entity := before.find(key)) is not None and after.find(key) is None]
    come = [entity for key in keys if (entity := after.find(key)) is not None and before.find(key) is None]
    for old, new in find_renamed(gone, come):
        what = f"{old.label} goes, and {new.label} {RENAMED_PLACES[old.kind]}"
        remedy = rename_hint(old.kind, old.name, new.name, is_of_job=bool(sides.context.jobs))
        message = f"{what}: this change leaves behind what is recorded and said of it"
        yield sides.warn(_RENAMED, new.key, message, remedy)


def _find_holds(connection: Connection, sides: Sides) -> Iterator[Issue]:
    """Yield a warning for each hold on a feed that is removed."""
    removed = {key[1]: key for key in sides.keys if key[0] == Kind.FEED and sides.after.find(key) is None}
    for hold in Holds(connection).active(sides.context.now) if removed else ():
        if hold.feed in removed:
            message = f"hold {hold.name!r} covers it: it stays on the feed's place, whoever declares that"
            remedy = f"Release it if it is not needed: {command_line('hold', 'release', hold.name)}"
            yield sides.warn(_HELD, removed[hold.feed], message, remedy)


def digest_change(
    before: LoadedBundle,
    after: LoadedBundle,
    removed: Iterable[EntityKey],
    state: Sequence[object],
    revision: int = 0,
) -> str:
    """Return the hexadecimal sha256 of a change and of the state against which it was computed."""
    content = [_DIGEST_VERSION, before.digest, after.digest, sorted(removed), state, revision]
    return hashlib.sha256(json.dumps(content, separators=(",", ":")).encode()).hexdigest()


def _planned(
    sides: Sides,
    difference: PlanDifference,
    shown: tuple[EntityDifference, ...],
    issues: Sequence[Issue],
    edits: tuple[Edit, ...],
    digest: str,
    bundle_digest: str,
) -> PlannedChanges:
    """Put a plan together; if the change is valid, with the batches that would be cut at once, and what would stay at
    former places.
    """
    by_key = {entity.key: entity for entity in (*difference.entities, *shown)}
    sides, context = replace(sides, keys=frozenset(by_key)), sides.context
    difference = replace(difference, entities=tuple(by_key[key] for key in sorted(by_key)))
    if not any(issue.severity is Severity.ERROR for issue in issues):
        instances = (*difference.instances, *find_next_transfers(sides))
        difference = replace(difference, batches=find_first_batches(sides), instances=instances)
        with context.database.read() as connection:
            issues = [*issues, *find_staying(connection, sides)]
        issues = [*issues, *find_stranded(sides)]
    asked = () if context.settings.authorization is Authorization.OFF else sides.after.entities
    return PlannedChanges(
        difference=_without_unread(difference),
        issues=tuple(sorted(issues, key=order_of)),
        unowned=tuple(each.label for each in asked if each.acl is None and each.kind is not Kind.CLUSTER),
        edits=edits,
        keys=frozenset(by_key),
        digest=digest,
        bundle_digest=bundle_digest,
        declared=len(sides.before.entities),
    )


def _without_unread(difference: PlanDifference) -> PlanDifference:
    """Return a difference without what is said of entities that who asks may not read."""
    entities = (
        each if reads(*each.key) else replace(each, fields=(), joined=(), left=(), source=None)
        for each in difference.entities
    )
    return replace(difference, entities=tuple(entities)) if find_hidden() else difference


def _recorded(context: EntityContext, loaded: Loaded) -> dict[EntityKey, AnyEntity]:
    """Return the recorded entities of the folder, or the file's own entity if both have the same content."""
    found: dict[EntityKey, AnyEntity] = {}
    for key, version in loaded.newest.items():
        if not is_in_folder(version):
            continue
        document = loaded.documents.get(key)
        if document is not None and document.entity is not None and document.digest == version.digest:
            found[key] = document.entity
        elif (entity := find_version_entity(version, context.store.values)) is not None:
            found[key] = entity
    return found


def _hidden(context: EntityContext, loaded: Loaded) -> frozenset[EntityKey]:
    """Return the recorded entities of unreadable files, which may or may not declare them still."""
    files = {each.file for each in loaded.quarantined if any(issue.entity is None for issue in each.issues)}
    return frozenset(
        key
        for key, version in loaded.newest.items()
        if key not in loaded.documents and is_in_folder(version) and context.store.folder.shown(version.file) in files
    )


def _as_written(documents: Mapping[EntityKey, StoredDocument], bundle: Bundle, keys: Collection[EntityKey]) -> Bundle:
    """Return some entities with references to outside values unresolved, as far as they can be read so."""
    found = []
    for key in sorted(keys):
        entity, document = bundle.find(key), documents.get(key)
        if entity is not None and document is not None and has_references(key[0], document.text):
            entity = find_entity(document.text, document.format) or entity
        if entity is not None:
            found.append(entity)
    return Bundle(entities=tuple(found))


def _load_process_states(
    connection: Connection, affected: Sequence[AffectedProcess], schedules: ScheduleView, policy: DefinitionChanges
) -> dict[Key, ProcessState]:
    """Load the state of the processes. New processes have no releases to look for."""
    releases = load_histories(connection, [each.key for each in affected if each.old is not None])
    found = {}
    for each in affected:
        state = schedules.state(Kind.PROCESS, *each.key)
        history = releases.get(each.key)
        newest = history.newest if history else None
        ends = history is not None and each.new is None
        unended = ProcessInstances(connection).unended(*each.key) if ends else history.unstarted if history else ()
        found[each.key] = ProcessState(
            is_active=state is not ScheduleState.SUBMITTED,
            is_suspended=state is ScheduleState.SUSPENDED,
            release=newest.release if newest else 0,
            governed_from=history.first_effective if history else None,
            newest_from=newest.effective_from if newest else None,
            has_begun=bool(history and history.has_begun),
            governs_all=policy is DefinitionChanges.ALWAYS,
            first_unstarted=next(iter(history.unstarted), None) if history else None,
            unended=len(unended),
        )
    return found


_OUTCOMES: Mapping[EntityChange, VerbOutcome] = MappingProxyType(
    {
        EntityChange.ADDED: VerbOutcome.SUBMITTED,
        EntityChange.CHANGED: VerbOutcome.UPDATED,
        EntityChange.REMOVED: VerbOutcome.DELETED,
    }
)

SHORTEST_DIGEST = 8


def apply_planned(
    context: EntityContext,
    planned: PlannedChanges,
    *,
    may_delete_all: bool = False,
    accept: Callable[[], None] = lambda: None,
) -> VerbResult:
    """Make a planned change. Without differences and edits, the state only follows the settings: what is said of the
    entities. `accept` is called immediately before the change is made.

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
    if planned.difference.is_empty and not planned.edits:
        settle_releases(context)
        return VerbResult(verb=EntityVerb.APPLY, outcomes=(), warnings=planned.issues)
    for entity in planned.difference.entities:
        _require_mode(context, entity)
    if not planned.keys:
        require_update_mode(context.database)
    share = context.settings.unconfirmed_deletions
    if not may_delete_all and is_mass_deletion(len(planned.removed), planned.declared, share):
        place = context.store.folder.location
        raise MassDeletionError(location=place, deleted=planned.removed, declared=planned.declared)
    made = _change(context, planned, accept) if planned.edits else _record(context, planned)
    made.warnings = planned.issues
    outcomes: list[EntityOutcome] = []
    stopped: list[ProcessInstance] = []
    for entity in planned.difference.entities:
        kind, name = Kind(entity.key[0]), entity.key[1]
        stopped += end_work(context, kind, name, entity.left, is_gone=entity.change is EntityChange.REMOVED)
        changes = tuple(field.change for field in entity.fields) if entity.change is EntityChange.CHANGED else ()
        outcomes.append(EntityOutcome(kind=kind, name=name, outcome=_OUTCOMES[entity.change], changes=changes))
    result = finish(context, EntityVerb.APPLY, outcomes, made, stopped, digest=planned.digest)
    if not planned.keys:
        _finish_changed_files(context, planned)
    return result


def check_planned(context: EntityContext, planned: PlannedChanges) -> None:
    """Check a planned change, and what it names outside, as `apply_planned` does before it makes it."""
    if planned.edits and not planned.errors:
        make_change(replace(context, dry_run=True), planned.edits, planned.keys, origin=EntityVerb.APPLY)


def require_digest(planned: str, digest: str) -> None:
    """Require that the digest of a plan is the one that the user has seen; its first eight characters suffice.

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
            fault=Fault.ASKED,
        )
    if not planned.startswith(given):
        raise PlanOutdatedError(digest=digest)


def _require_mode(context: EntityContext, entity: EntityDifference) -> None:
    match entity.change:
        case EntityChange.ADDED:
            require_mode(context.database, EntityVerb.SUBMIT)
        case EntityChange.REMOVED:
            require_mode(context.database, EntityVerb.DELETE)
        case EntityChange.CHANGED:
            require_update_mode(context.database, is_cluster=entity.key[0] == Kind.CLUSTER)


def _change(context: EntityContext, planned: PlannedChanges, accept: Callable[[], None]) -> AppliedChange:
    removed = [edit.key for edit in planned.edits if isinstance(edit, Remove)]

    def refuse(before: LoadedBundle, after: LoadedBundle) -> None:
        _, state = compute_change(context, before.bundle, after.bundle, after)
        if digest_change(before, after, removed, state) != planned.digest:
            raise PlanOutdatedError(digest=planned.digest)

    return make_change(context, planned.edits, planned.keys, origin=EntityVerb.APPLY, refuse=refuse, accept=accept)


def _record(context: EntityContext, planned: PlannedChanges) -> AppliedChange:
    def check(found: LoadedBundle) -> None:
        if found.digest != planned.bundle_digest:
            raise PlanOutdatedError(digest=planned.digest)

    context.store.record_found(context.now, context.author, check=check, may_delete_all=True)
    found = context.load().bundle
    return AppliedChange(before=found.bundle, after=found, is_done=True)


def _finish_changed_files(context: EntityContext, planned: PlannedChanges) -> None:
    """Make running programs load the definitions again, for the files of the workflows, and write audit entries."""
    with context.database.begin() as connection:
        Definitions(connection).bump_revision()
    for process in planned.difference.processes:
        files = [cause.key[1] for cause in process.causes]
        target = label_of((Kind.PROCESS, process.process))
        context.audit(EntityVerb.APPLY, target, cluster=process.cluster, files=files, digest=planned.digest)
