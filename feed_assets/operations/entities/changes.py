"""Submit, update and delete: what is declared, and all that has to be right before it changes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from feed_assets.definitions.edits import Edit, Put, Remove, read_puts
from feed_assets.definitions.store import Loaded
from feed_assets.definitions.written import digest_as_written
from feed_assets.entities.bundle import AnyEntity, entity_digest
from feed_assets.entities.common import Kind, label_of
from feed_assets.entities.differences import diff_entities
from feed_assets.entities.errors import DefinitionsError, EntityNotFoundError
from feed_assets.entities.feed import Feed
from feed_assets.entities.process import Process
from feed_assets.issues import EntityKey, Issue
from feed_assets.lifecycle.schedules import DELETED, TAKEN_OFF
from feed_assets.loading.entity_files import EntityFile, LoadedBundle, parse_file
from feed_assets.operations.entities.cluster_versions import with_next_version
from feed_assets.operations.entities.registry import Made, Registry, make_change
from feed_assets.operations.entities.schedules import require_schedulable, set_state
from feed_assets.operations.entities.settling import (
    end_work,
    find_remains,
    keep_submitted,
    left_clusters,
    settle_releases,
)
from feed_assets.operations.entities.update_rules import require_updatable
from feed_assets.operations.entities.verb_results import EntityOutcome, Outcome, VerbResult
from feed_assets.operations.errors import EntityExistsError, EntityReferencedError
from feed_assets.operations.safe_mode import Operation, require_mode
from feed_assets.state.definition_records import ScheduleState
from feed_assets.state.definitions import Definitions
from feed_assets.state.records import ProcessInstance
from feed_assets.validation.compatibility import find_dependents

Wanted = Mapping[EntityKey, tuple[Put, AnyEntity]]
"""The documents that somebody brings, by the entities that they declare."""


def validate(registry: Registry, files: Sequence[EntityFile]) -> VerbResult:
    """Check documents as if they were submitted, or the entities updated by them; nothing is stored.

    Raises:
        DefinitionsError: something is wrong with them, or with what depends on them; carries the issues.
    """
    dry = replace(registry, dry_run=True)
    wanted = read_documents(registry, files)
    edits: list[Edit] = [put for put, _ in wanted.values()]
    made = make_change(dry, edits, wanted.keys(), origin=Operation.VALIDATE, refuse=_allow)
    outcomes = tuple(EntityOutcome(kind=kind, name=name, outcome=Outcome.VALID) for kind, name in wanted)
    return VerbResult(verb=Operation.VALIDATE, outcomes=outcomes, warnings=made.warnings, dry_run=True)


def submit(registry: Registry, files: Sequence[EntityFile], *, and_schedule: bool = False) -> VerbResult:
    """Declare entities, all or none. One that is declared already, and says the same, stays as it is.

    Feeds and processes wait for `schedule`, or are scheduled at once; if that is refused they stay submitted.

    Raises:
        EntityExistsError: another definition of that name is declared.
        DefinitionsError: something is wrong; carries the issues.
        NotSchedulableError: what was submitted cannot be scheduled.
        SafeModeError: safe mode forbids it.
    """
    operation = Operation.SUBMIT_AND_SCHEDULE if and_schedule else Operation.SUBMIT
    require_mode(registry.database, operation)
    loaded = registry.load()
    wanted = read_documents(registry, files)
    new = {key: found for key, found in wanted.items() if not _is_declared(loaded, key, *found)}

    def refuse(before: LoadedBundle, _: LoadedBundle) -> None:
        for key in new:
            known = before.bundle.find(key)
            is_same = known is not None and entity_digest(known) == entity_digest(new[key][1])
            if key in before.broken or (known is not None and not is_same):
                source = before.sources.locate(key)
                raise EntityExistsError(
                    kind=key[0], name=key[1], place=source.render() if source else "the definitions"
                )

    def accept() -> None:
        keep_submitted(registry, [entity for _, entity in new.values()], loaded.bundle.bundle)

    made = Made(before=loaded.bundle.bundle, after=loaded.bundle)
    if new:
        edits: list[Edit] = [put for put, _ in new.values()]
        made = make_change(registry, edits, new.keys(), origin=operation, refuse=refuse, accept=accept)
        if not made.is_done(registry):
            new = {}  # somebody else has submitted the same in between
    outcomes = tuple(
        _outcome(made, key, entity, Outcome.SUBMITTED if key in new else Outcome.UNCHANGED)
        for key, (_, entity) in wanted.items()
    )
    result = _finished(registry, made, operation, outcomes)
    return _scheduled(registry, made, wanted, new, result) if and_schedule else result


def update(registry: Registry, files: Sequence[EntityFile]) -> VerbResult:
    """Change entities that are declared, all or none; see `update_rules` for what is allowed.

    Clusters that are added wait for `schedule`, work on clusters that are removed is stopped. Of clusters the version
    grows with what their users see; that is for safe mode only.

    Raises:
        EntityNotFoundError: one is not declared.
        DefinitionsError: something is wrong, also with what depends on it; carries the issues.
        VerbRefusedError: the change is none that can be made.
        SafeModeError: safe mode forbids it, or is needed.
    """
    wanted = read_documents(registry, files)
    for kind in {key[0] for key in wanted}:
        require_mode(registry.database, Operation.UPDATE_CLUSTER if kind == Kind.CLUSTER else Operation.UPDATE)
    loaded = registry.load()
    changed: dict[EntityKey, tuple[Put, AnyEntity]] = {}
    for key, (put, entity) in wanted.items():
        before = loaded.bundle.bundle.find(key)
        if before is None and key not in loaded.bundle.broken:
            suggestions = loaded.bundle.bundle.suggest(Kind(key[0]), key[1])
            raise EntityNotFoundError(kind=key[0], name=key[1], suggestions=suggestions)
        put, entity = with_next_version(put, before, entity, registry.store.values)
        if not _is_declared(loaded, key, put, entity):
            require_updatable(registry, before, entity)
            changed[key] = (put, entity)
    made = Made(before=loaded.bundle.bundle, after=loaded.bundle)
    if changed:
        edits: list[Edit] = [put for put, _ in changed.values()]
        made = make_change(
            registry,
            edits,
            changed.keys(),
            origin=Operation.UPDATE,
            refuse=_allow,
            accept=lambda: keep_submitted(registry, [entity for _, entity in changed.values()], loaded.bundle.bundle),
        )
        if not made.is_done(registry):
            changed = {}
    stopped = [
        row
        for key, (_, entity) in changed.items()
        for row in end_work(registry, Kind(key[0]), key[1], left_clusters(made.before.find(key), entity), TAKEN_OFF)
    ]
    outcomes = tuple(
        _outcome(made, key, entity, Outcome.UPDATED if key in changed else Outcome.UNCHANGED)
        for key, (_, entity) in {**wanted, **changed}.items()
    )
    return _finished(registry, made, Operation.UPDATE, outcomes, stopped)


def delete(registry: Registry, kind: Kind, names: Sequence[str]) -> VerbResult:
    """Declare entities no longer, all or none. Instances that have not ended are killed; what has ended, and the
    versions, stay in the record. One that is not declared is none to delete.

    Raises:
        EntityReferencedError: others name one of them.
        SafeModeError: safe mode forbids it.
    """
    require_mode(registry.database, Operation.DELETE)
    loaded = registry.load()
    keys = [(kind.value, name) for name in names]
    declared = [key for key in keys if key in loaded.documents or loaded.bundle.bundle.find(key) is not None]

    def refuse(before: LoadedBundle, _: LoadedBundle) -> None:
        for key, referrers in find_dependents(before.bundle, declared).items():
            raise EntityReferencedError(kind=key[0], name=key[1], referrers=[label_of(each) for each in referrers])

    made = Made(before=loaded.bundle.bundle)
    if declared:
        edits: list[Edit] = [Remove(key=key) for key in declared]
        made = make_change(registry, edits, declared, origin=Operation.DELETE, refuse=refuse)
    stopped: list[ProcessInstance] = []
    outcomes = []
    for key in keys:
        entity = made.before.find(key)
        clusters = set(entity.clusters) if isinstance(entity, Feed | Process) else set()
        killed = end_work(registry, kind, key[1], sorted(clusters.union(find_remains(registry, kind, key[1]))), DELETED)
        stopped += killed
        notes = (f"instances that had not ended and are killed: {len(killed)}",) if killed else ()
        if key not in declared:
            notes = ("it is not declared: nothing to do", *notes)
        outcome = Outcome.DELETED if key in declared else Outcome.MISSING
        outcomes.append(EntityOutcome(kind=key[0], name=key[1], outcome=outcome, notes=notes))
    return _finished(registry, made, Operation.DELETE, tuple(outcomes), stopped)


def read_documents(registry: Registry, files: Sequence[EntityFile]) -> Wanted:
    """The documents of users' files.

    Raises:
        DefinitionsError: one cannot be read as an entity, or two declare one; carries the issues.
    """
    found: dict[EntityKey, tuple[Put, AnyEntity]] = {}
    for file in files:
        parsed = parse_file(file, registry.store.values)
        issues: list[Issue] = [*parsed.issues, *(issue for each in parsed.documents for issue in each.issues)]
        if issues or not parsed.documents:
            reason = None if issues else "it declares nothing"
            raise DefinitionsError(location=file.name, issues=issues, reason=reason)
        puts = read_puts(file, registry.store.values)
        for document in parsed.documents:
            assert document.key is not None
            assert document.entity is not None
            if document.key in found:
                raise DefinitionsError(
                    location=file.name,
                    reason=f"{label_of(document.key)} is declared a second time",
                    next_step="Bring one document for each entity.",
                )
            found[document.key] = (puts[document.key], document.entity)
    return found


def _allow(_before: LoadedBundle, _after: LoadedBundle) -> None:
    """The verb itself has nothing against a change."""


def _is_declared(loaded: Loaded, key: EntityKey, put: Put, entity: AnyEntity) -> bool:
    """Whether a document says what is declared, references to values from outside as they are written."""
    known = loaded.documents.get(key)
    return known is not None and known.digest == digest_as_written(entity, put.text, put.format)


def _outcome(made: Made, key: EntityKey, entity: AnyEntity, outcome: Outcome) -> EntityOutcome:
    before = made.before.find(key)
    changes = diff_entities(before, entity) if outcome is Outcome.UPDATED else ()
    return EntityOutcome(
        kind=key[0], name=key[1], outcome=outcome, changes=changes, notes=_notes(made, entity, outcome)
    )


def _notes(made: Made, entity: AnyEntity, outcome: Outcome) -> tuple[str, ...]:
    before = made.before.find(entity.key)
    if outcome is not Outcome.UPDATED or before is None:
        return ()
    notes = []
    added, left = left_clusters(entity, before), left_clusters(before, entity)
    if added:
        notes.append(f"on {', '.join(added)} it waits to be scheduled")
    if left:
        notes.append(f"its work on {', '.join(left)} is ended")
    if entity.kind is Kind.CLUSTER and entity.version != before.version:
        notes.append(f"its version is {entity.version}; update-cluster-dependents brings it to feeds and processes")
    if entity.kind is Kind.DATASOURCE and entity.version != before.version:
        users = find_dependents(made.before, [entity.key]).get(entity.key, ())
        notes.append(f"its version is {entity.version}")
        notes += [f"{label_of(user)} imports or exports by it from now on" for user in users]
    return tuple(notes)


def _finished(
    registry: Registry,
    made: Made,
    operation: Operation,
    outcomes: tuple[EntityOutcome, ...],
    stopped: Sequence[ProcessInstance] = (),
) -> VerbResult:
    """Number the versions, let releases begin, and note who did it."""
    releases = settle_releases(registry, made.after) if made.change is not None else ()
    with registry.database.read() as connection:
        definitions = Definitions(connection)
        newest = {(each.kind, each.name): definitions.find_newest(each.kind, each.name) for each in outcomes}
    numbered = []
    for each in outcomes:
        is_done = made.change is not None and each.outcome not in (Outcome.UNCHANGED, Outcome.MISSING)
        is_known = is_done or each.outcome is Outcome.UNCHANGED
        known = newest[each.kind, each.name] if is_known else None
        number = known.version if known else None
        numbered.append(replace(each, version=number))
        if is_done and made.change is not None:
            registry.audit(operation.value, each.label, version=number, change=made.change.change_id)
    return VerbResult(
        verb=operation.value,
        outcomes=tuple(numbered),
        warnings=made.warnings,
        releases=releases,
        stopped=tuple(stopped),
        reload_needed=made.change is not None,
        dry_run=registry.dry_run,
    )


def _scheduled(registry: Registry, made: Made, wanted: Wanted, new: Wanted, result: VerbResult) -> VerbResult:
    """Schedule what was submitted, and what was before but waits."""
    assert made.after is not None
    entities = [entity for _, entity in wanted.values() if isinstance(entity, Feed | Process)]
    for entity in entities:
        require_schedulable(made.after.bundle, entity, list(entity.clusters))
    outcomes = {(each.kind, each.name): each for each in result.outcomes}
    view = registry.schedules()
    for entity in entities:
        concerned = [
            name
            for name in entity.clusters
            if entity.key in new or view.state(entity.kind, entity.name, name) is ScheduleState.SUBMITTED
        ]
        done = set_state(registry, view, entity, concerned, ScheduleState.SCHEDULED, Operation.SUBMIT_AND_SCHEDULE)
        before = outcomes[entity.key]
        outcome = done.outcome if before.outcome is Outcome.UNCHANGED else before.outcome
        outcomes[entity.key] = replace(before, outcome=outcome, clusters=done.clusters)
    return replace(result, outcomes=tuple(outcomes.values()))
