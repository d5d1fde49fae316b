"""What a change of the definitions would do, before anything is changed: of files that are submitted, or of edits in
the folder that are not recorded yet.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from feed_assets.definitions.contents import StoredDocument
from feed_assets.definitions.edits import Edit, Remove
from feed_assets.definitions.recording import stands_in_folder
from feed_assets.definitions.store import Loaded
from feed_assets.definitions.written import (
    digest_as_written,
    find_entity,
    find_version_entity,
    has_references,
)
from feed_assets.entities.bundle import AnyEntity, Bundle
from feed_assets.entities.common import Kind
from feed_assets.issues import EntityKey, Issue, Severity, order_of
from feed_assets.lifecycle.catching_up import ON_TIME
from feed_assets.lifecycle.releases import load_standing
from feed_assets.lifecycle.schedules import ScheduleView, load_schedules
from feed_assets.loading.entity_files import EntityFile, LoadedBundle, usable_bundle
from feed_assets.operations.entities.changes import read_documents
from feed_assets.operations.entities.cluster_versions import with_next_version
from feed_assets.operations.entities.registry import Registry, find_disorder
from feed_assets.operations.entities.update_rules import require_updatable
from feed_assets.operations.errors import VerbRefusedError
from feed_assets.plan.consequences import decide_consequences
from feed_assets.plan.difference_records import EntityDifference, PlanDifference, Standing
from feed_assets.plan.differences import Touched, decide_processes, diff_bundles, find_touched
from feed_assets.plan.records import Key
from feed_assets.settings import DefinitionChanges
from feed_assets.state.definition_records import ScheduleState
from feed_assets.state.process_instances import ProcessInstances
from feed_assets.validation.rules import validate_bundle

VERSION = 1
_NOT_UPDATABLE = "not-updatable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A change and what it would do. `edits` are what it asks of the store; none where the folder says it already.

    `issues` are what is wrong with it: with an error it would be refused. `digest` stands for the change and for the
    world that it was planned in, but not for the time: it is another one as soon as either is. `bundle_digest` is that
    of the files as they would be.
    """

    difference: PlanDifference
    issues: tuple[Issue, ...]
    edits: tuple[Edit, ...]
    keys: frozenset[EntityKey]
    digest: str
    bundle_digest: str

    @property
    def errors(self) -> tuple[Issue, ...]:
        """What refuses the change."""
        return tuple(issue for issue in self.issues if issue.severity is Severity.ERROR)

    def to_json(self) -> dict[str, object]:
        """The JSON form, `version` 1."""
        issues = [issue.to_json() for issue in self.issues]
        return {**self.difference.to_json(), "digest": self.digest, "issues": issues}


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighed:
    """A difference on its way to a `Planned`: as the definitions are, not as they are written."""

    difference: PlanDifference
    state: Sequence[object]


def read_edits(registry: Registry, files: Sequence[EntityFile], *, prune: bool = False) -> tuple[Edit, ...]:
    """The edits that make the store say what files say; with `prune` also those that remove everything else.

    Documents that are in the store with the same meaning need none. Of clusters and datasources the version grows with
    what their users see.

    Raises:
        DefinitionsError: a document cannot be read as an entity, or two declare one; carries the issues.
    """
    wanted = read_documents(registry, files)
    loaded = registry.store.load(registry.now)
    edits: list[Edit] = []
    for key, (put, entity) in wanted.items():
        document = loaded.documents.get(key)
        if document is None or document.digest != digest_as_written(entity, put.text, put.format):
            edits.append(with_next_version(put, loaded.bundle.bundle.find(key), entity, registry.store.values)[0])
    removed = loaded.documents.keys() - wanted.keys() if prune else ()
    return (*edits, *(Remove(key=key) for key in sorted(removed)))


def plan_edits(registry: Registry, edits: Iterable[Edit]) -> Planned:
    """What edits would do.

    Raises:
        DefinitionsError: a text cannot be read as an entity; carries the issues.
        DefinitionStoreError: the files of the store do not allow it.
    """
    edits = tuple(edits)
    preview = registry.store.preview(edits, now=registry.now)
    before, after = preview.before.documents, preview.documents
    documents = frozenset(key for key in before.keys() | after.keys() if before.get(key) is not after.get(key))
    weighed = weigh_change(registry, preview.before.bundle.bundle, preview.after.bundle, preview.after, documents)
    shown = diff_bundles(
        _as_written(before, preview.before.bundle.bundle, documents),
        _as_written(after, preview.after.bundle, documents),
        preview.after.sources,
        only=documents,
    )
    keys = {entity.key for entity in (*weighed.difference.entities, *shown)}
    issues = [
        *find_disorder(registry, preview.before.bundle, preview.after, keys),
        *_find_refusals(registry, preview.before.bundle.bundle, preview.after.bundle, preview.after, keys),
    ]
    removed = [edit.key for edit in edits if isinstance(edit, Remove)]
    digest = digest_change(preview.before.bundle, preview.after, removed, weighed)
    return _planned(weighed, shown, issues, edits, digest, preview.after.digest)


def plan_folder(registry: Registry) -> Planned:
    """What the files in the folder say that is not recorded yet; entities with errors stand as they were recorded."""
    loaded = registry.store.load(registry.now)
    issues = [
        *loaded.bundle.issues,
        *validate_bundle(loaded.bundle.bundle, loaded.bundle.sources, registry.now, registry.settings.root),
    ]
    usable, blocked = usable_bundle(loaded.bundle, issues)
    recorded = _recorded(registry, loaded)
    unusable = {entity.key for entity in loaded.bundle.bundle.entities if not usable.find(entity.key)}
    kept = loaded.bundle.broken | unusable | _hidden(registry, loaded)
    after = Bundle(entities=(*usable.entities, *(recorded[key] for key in sorted(kept) if key in recorded)))
    before = Bundle(entities=tuple(recorded.values()))
    keys = frozenset(
        key
        for key in recorded.keys() | {entity.key for entity in after.entities}
        if recorded.get(key) is not after.find(key)
    )
    weighed = weigh_change(registry, before, after, loaded.bundle, keys)
    issues += [*blocked, *_find_refusals(registry, before, after, loaded.bundle, keys)]
    written = {key: version for key in keys if (version := loaded.newest.get(key)) is not None}
    old = {key: find_version_entity(version) or recorded.get(key) for key, version in written.items()}
    shown = diff_bundles(
        Bundle(entities=tuple(entity for entity in old.values() if entity is not None)),
        _as_written(loaded.documents, after, keys),
        loaded.bundle.sources,
        only=keys,
    )
    digest = digest_change(loaded.bundle, loaded.bundle, [], weighed, loaded.revision)
    return _planned(weighed, shown, issues, (), digest, loaded.bundle.digest)


def weigh_change(
    registry: Registry,
    before: Bundle,
    after: Bundle,
    loaded: LoadedBundle,
    keys: Collection[EntityKey] | None = None,
) -> Weighed:
    """The difference between two sets of definitions (of entities `keys` only, if given) under the schedules and
    releases that there are.
    """
    entities = diff_bundles(before, after, loaded.sources, only=keys)
    touched = find_touched(before, after, entities)
    with registry.database.read() as connection:
        schedules = load_schedules(connection, registry.without_row)
        policy = registry.settings.definition_changes
        standings = _load_standings(connection, touched, schedules, policy)
    processes = decide_processes(touched, standings, registry.now)
    state = [
        [
            *process.key,
            process.step.value,
            process.standing.is_active,
            process.standing.is_suspended,
            process.standing.release,
        ]
        for process in processes
    ]
    difference = decide_consequences(before, after, entities, processes, registry.now, ON_TIME)
    return Weighed(difference=difference, state=state)


def _find_refusals(
    registry: Registry, before: Bundle, after: Bundle, loaded: LoadedBundle, keys: Collection[EntityKey]
) -> Iterator[Issue]:
    """What the verb `update` would refuse."""
    for key in sorted(keys):
        old, new = before.find(key), after.find(key)
        if old is None or new is None:
            continue
        try:
            require_updatable(registry, old, new)
        except VerbRefusedError as exc:
            yield Issue(
                severity=Severity.ERROR,
                code=_NOT_UPDATABLE,
                entity=new.label,
                message=exc.reason,
                remedy=exc.next_step,
                source=loaded.sources.locate(key),
            )


def digest_change(
    before: LoadedBundle, after: LoadedBundle, removed: Iterable[EntityKey], weighed: Weighed, revision: int = 0
) -> str:
    """The sha256 of a change and of what it was weighed against, in hexadecimal."""
    content = [VERSION, before.digest, after.digest, sorted(removed), weighed.state, revision]
    return hashlib.sha256(json.dumps(content, separators=(",", ":")).encode()).hexdigest()


def _planned(
    weighed: Weighed,
    shown: tuple[EntityDifference, ...],
    issues: Iterable[Issue],
    edits: tuple[Edit, ...],
    digest: str,
    bundle_digest: str,
) -> Planned:
    found = weighed.difference
    by_key = {entity.key: entity for entity in (*found.entities, *shown)}
    entities = tuple(by_key[key] for key in sorted(by_key))
    difference = PlanDifference(
        as_of=found.as_of, entities=entities, processes=found.processes, instances=found.instances
    )
    return Planned(
        difference=difference,
        issues=tuple(sorted(issues, key=order_of)),
        edits=edits,
        keys=frozenset(entity.key for entity in entities),
        digest=digest,
        bundle_digest=bundle_digest,
    )


def _recorded(registry: Registry, loaded: Loaded) -> dict[EntityKey, AnyEntity]:
    """What is recorded as declared in the folder; the entity of the file itself where the two say the same."""
    found: dict[EntityKey, AnyEntity] = {}
    for key, version in loaded.newest.items():
        if not stands_in_folder(version):
            continue
        document = loaded.documents.get(key)
        if document is not None and document.entity is not None and document.digest == version.digest:
            found[key] = document.entity
        elif (entity := find_version_entity(version, registry.store.values)) is not None:
            found[key] = entity
    return found


def _hidden(registry: Registry, loaded: Loaded) -> frozenset[EntityKey]:
    """What stood in files that are so wrong that nobody can tell whether it still does."""
    files = {each.file for each in loaded.quarantined if any(issue.entity is None for issue in each.issues)}
    return frozenset(
        key
        for key, version in loaded.newest.items()
        if key not in loaded.documents
        and stands_in_folder(version)
        and registry.store.folder.shown(version.file) in files
    )


def _as_written(documents: Mapping[EntityKey, StoredDocument], bundle: Bundle, keys: Collection[EntityKey]) -> Bundle:
    """Some entities with references to values from outside instead of these, as far as they can be read so."""
    found = []
    for key in sorted(keys):
        entity, document = bundle.find(key), documents.get(key)
        if entity is not None and document is not None and has_references(key[0], document.text):
            entity = find_entity(document.text, document.format) or entity
        if entity is not None:
            found.append(entity)
    return Bundle(entities=tuple(found))


def _load_standings(
    connection: Connection, touched: Sequence[Touched], schedules: ScheduleView, policy: DefinitionChanges
) -> dict[Key, Standing]:
    """How the processes stand; what was not there before has no releases to look for."""
    releases = load_standing(connection, [each.key for each in touched if each.old is not None])
    found = {}
    for each in touched:
        state = schedules.state(Kind.PROCESS, *each.key)
        standing = releases.get(each.key)
        newest = standing.newest if standing else None
        ends = standing is not None and each.new is None
        unended = ProcessInstances(connection).unended(*each.key) if ends else standing.unbegun if standing else ()
        found[each.key] = Standing(
            is_active=state is not ScheduleState.SUBMITTED,
            is_suspended=state is ScheduleState.SUSPENDED,
            release=newest.release if newest else 0,
            stood_from=standing.stood_from if standing else None,
            newest_from=newest.effective_from if newest else None,
            has_begun=bool(standing and standing.has_begun),
            governs_all=policy is DefinitionChanges.ALWAYS,
            first_unbegun=next(iter(standing.unbegun), None) if standing else None,
            unended=len(unended),
        )
    return found
