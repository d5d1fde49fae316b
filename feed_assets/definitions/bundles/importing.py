"""Import a bundle: plan it first, refuse what collides, then make all of it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from feed_assets.catalog.documents import import_metadata, parse_document
from feed_assets.catalog.editing import MetadataResult
from feed_assets.catalog.store import MetadataStore
from feed_assets.context.errors import BundleRefusedError, PlanOutdatedError
from feed_assets.context.operation import OperationContext, open_context
from feed_assets.definitions.bundles.archive import BundleArchive, BundledEntity, iter_paths
from feed_assets.definitions.declaring import require_declares
from feed_assets.definitions.edits import Put, read_documents
from feed_assets.definitions.folder import replace_file
from feed_assets.definitions.store import Loaded
from feed_assets.definitions.verbs.changes import is_declared
from feed_assets.definitions.verbs.context import EntityContext, require_reachable
from feed_assets.definitions.verbs.planning import PlannedChanges, apply_planned, plan_edits, read_edits
from feed_assets.definitions.verbs.schedules import settle_releases
from feed_assets.entities.bundle import AnyEntity
from feed_assets.entities.common import Kind, label_of
from feed_assets.entities.errors import DefinitionsError
from feed_assets.entities.process import Process
from feed_assets.issues import EntityKey, Issue, Severity
from feed_assets.json_form import Hidden, shown
from feed_assets.loading.bundles import LoadedBundle
from feed_assets.loading.entity_files import EntityFile
from feed_assets.log.records import ProcessInstance
from feed_assets.plan.location import compile_location
from feed_assets.plan.rendering import PlanDifference, render_difference
from feed_assets.releases.timeline import ReleaseTimeline
from feed_assets.sql.database import lock_definitions, lock_log

IMPORT = "bundle-import"
WORKFLOW_FILE = "workflow-file"


class ImportOutcome(StrEnum):
    """What becomes of an entity or a file of a bundle."""

    ADDED = "added"
    CHANGED = "changed"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedEntity:
    """An entity of a bundle. `uid` is its id in the bundle."""

    kind: str
    name: str
    uid: str
    outcome: ImportOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedFile:
    """A file of a workflow, by its path in the project."""

    path: str
    outcome: ImportOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleImport:
    """The effects of an import, or with `dry_run` its planned effects. `difference` is that of the definitions.

    `stopped` are the killed instances, as they were before: the caller ends their runs.
    """

    entities: tuple[ImportedEntity, ...]
    files: tuple[ImportedFile, ...]
    metadata: tuple[MetadataResult, ...]
    difference: Hidden[PlanDifference]
    warnings: tuple[Issue, ...]
    stopped: Hidden[tuple[ProcessInstance, ...]] = ()
    dry_run: bool

    @shown
    def is_change(self) -> bool:
        """Whether anything was changed, or would be."""
        outcomes = [*(each.outcome for each in self.entities), *(each.outcome for each in self.files)]
        return any(each is not ImportOutcome.UNCHANGED for each in outcomes) or bool(self.metadata)

    @property
    def reload_needed(self) -> bool:
        """Whether a running Dagster must reload to show the change."""
        return self.is_change

    @property
    def notes(self) -> list[str]:
        """The warnings."""
        return [each.line for each in self.warnings]

    @property
    def lines(self) -> Iterator[str]:
        """What became of all that it has, or would become of it."""
        would = "would be " if self.dry_run else ""
        yield from (f"{label_of((each.kind, each.name))}: {would}{each.outcome}" for each in self.entities)
        yield from (f"file {each.path}: {would}{each.outcome}" for each in self.files)
        yield from (each.sentence for each in self.metadata)
        if self.dry_run and not self.difference.is_empty:
            yield render_difference(self.difference)


def import_bundle(context: EntityContext, archive: BundleArchive, name: str) -> BundleImport:
    """Declare what a bundle has, with its files, ids and metadata; `name` is that of its file. What is here already is
    left alone, so that a second import changes nothing. An entity that has another definition here is changed if it has
    the id of the bundle's; else it is another one, and collides.

    Raises:
        BundleRefusedError: something collides, or is missing.
        DefinitionsError: a definition has errors; carries the issues.
        MetadataRefusedError: something that is said cannot be written here.
        PlanOutdatedError: somebody has changed the definitions meanwhile.
        SafeModeError: safe mode forbids the change, or the change needs it.
    """
    loaded = context.load()
    files = [EntityFile(name=place, content=text) for place, text in archive.texts.items()]
    documents = read_documents(files, context.store.values) if files else {}
    declared = {key: entity for key, (_, entity) in documents.items()}
    outcomes = {key: _outcome(loaded, key, put, declared[key]) for key, (put, _) in documents.items()}
    changed = {key: declared[key] for key in outcomes if outcomes[key] is not ImportOutcome.UNCHANGED}
    require_declares(loaded.bundle, changed)
    known = _Known.read(context, archive)
    brought = {path: _file_outcome(context.settings.root, path, each) for path, each in archive.files.items()}
    reasons = [*_collisions(context, loaded, archive, outcomes, known), *_foreign_metadata(archive, name)]
    reasons += _file_collisions(context, loaded, archive, declared, brought, known)
    if reasons:
        next_step = "Nothing was changed. Rename or remove what is here, or leave it out of the bundle."
        raise BundleRefusedError(file=name, reasons=reasons, next_step=next_step)
    edits = read_edits(context, files) if files else ()
    planned = plan_edits(context, edits)
    labels = {label_of(key) for key in declared}
    errors = [each for each in planned.errors if not (each.code == WORKFLOW_FILE and each.entity in labels)]
    if errors:
        raise DefinitionsError(location=name, issues=errors, next_step="Nothing was changed. Correct these issues:")
    after = context.store.preview(edits, now=context.now).after.bundle
    if context.dry_run:
        require_reachable(context, after, [*changed])
    operations = _operations_after(context, after)
    said = import_metadata(operations.by(context.author, dry_run=True), name, archive.metadata)
    result = BundleImport(
        entities=tuple(
            ImportedEntity(kind=each.kind.value, name=each.name, uid=str(each.uid), outcome=outcomes[each.key])
            for each in archive.entities
        ),
        files=tuple(ImportedFile(path=path, outcome=brought[path]) for path in sorted(brought)),
        metadata=tuple(each for each in said if each.is_change),
        difference=planned.difference,
        warnings=tuple(each for each in planned.issues if each.severity is Severity.WARNING),
        dry_run=context.dry_run,
    )
    return result if context.dry_run else _apply(context, archive, name, planned, operations, result)


def _apply(
    context: EntityContext,
    archive: BundleArchive,
    name: str,
    planned: PlannedChanges,
    operations: OperationContext,
    result: BundleImport,
) -> BundleImport:
    written = {each.path for each in result.files if each.outcome is not ImportOutcome.UNCHANGED}
    new = {path: each for path, each in archive.files.items() if path in written}
    ids = {"/".join(each.key): str(each.uid) for each in archive.entities}
    with _written(context.settings.root, new), _identified(context, ids):
        again = plan_edits(context, planned.edits)  # with the files of the workflows
        if again.bundle_digest != planned.bundle_digest:
            raise PlanOutdatedError(digest=planned.digest)
        done = apply_planned(context, again)
    if not done.is_change:
        context.record()
        settle_releases(context)
    said = import_metadata(operations.by(context.author), name, archive.metadata)
    if new:
        context.audit(IMPORT, name, files=sorted(new))
    return replace(result, metadata=tuple(each for each in said if each.is_change), stopped=done.stopped)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """The ids of the bundle's entities here, by path, and the paths here that have ids of the bundle."""

    ids: Mapping[str, str]
    paths: Mapping[str, str]

    @classmethod
    def read(cls, context: EntityContext, archive: BundleArchive) -> "_Known":
        with context.database.read() as connection:
            store = MetadataStore(connection)
            ids = store.ids_of("/".join(each.key) for each in archive.entities)
            return cls(ids=ids, paths=store.paths_of(str(each.uid) for each in archive.entities))

    def is_same(self, each: BundledEntity) -> bool:
        """Return whether an entity of the bundle and that of its name here have one id."""
        return self.ids.get("/".join(each.key)) == str(each.uid)


def _outcome(loaded: Loaded, key: EntityKey, put: Put, entity: AnyEntity) -> ImportOutcome:
    if is_declared(loaded, key, put, entity):
        return ImportOutcome.UNCHANGED
    return ImportOutcome.CHANGED if key in loaded.documents else ImportOutcome.ADDED


def _collisions(
    context: EntityContext,
    loaded: Loaded,
    archive: BundleArchive,
    outcomes: Mapping[EntityKey, ImportOutcome],
    known: _Known,
) -> Iterator[str]:
    for each in archive.entities:
        label = label_of(each.key)
        if each.key not in outcomes:
            yield f"{each.file} does not declare {label}"
            continue
        if outcomes[each.key] is ImportOutcome.CHANGED and not known.is_same(each):
            place = context.store.folder.shown(loaded.documents[each.key].file)
            yield f"{label} is another one here, with another definition, in {place}"
        path = known.paths.get(str(each.uid), "/".join(each.key))
        if path != "/".join(each.key):
            yield f"{label} is {path} here: it has the same id"
    yield from (f"{label_of(key)} is not listed" for key in outcomes if key not in {e.key for e in archive.entities})


def _foreign_metadata(archive: BundleArchive, name: str) -> Iterator[str]:
    """Yield the declared entities outside of a bundle that its metadata would change."""
    own = {"/".join(each.key) for each in archive.entities}
    for mutation in parse_document(name, archive.metadata).mutations:
        path = mutation.entity.strip("/")
        kind, *below = path.split("/")
        if kind in list(Kind) and "/".join([kind, *below[:1]]) not in own:
            yield f"its metadata.json changes {path}, which is not in it"


def _file_outcome(root: Path, path: str, content: bytes) -> ImportOutcome:
    file = root / path
    if not file.exists():
        return ImportOutcome.ADDED
    is_same = file.is_file() and file.read_bytes() == content
    return ImportOutcome.UNCHANGED if is_same else ImportOutcome.CHANGED


def _file_collisions(
    context: EntityContext,
    loaded: Loaded,
    archive: BundleArchive,
    declared: Mapping[EntityKey, AnyEntity],
    brought: Mapping[str, ImportOutcome],
    known: _Known,
) -> Iterator[str]:
    """Yield what is wrong with files: they belong to no process, are others here, lead elsewhere, or are missing."""
    root = context.settings.root
    named = {path: entity for entity in declared.values() if isinstance(entity, Process) for path in iter_paths(entity)}
    own = {each.key for each in archive.entities if known.is_same(each)}
    users: dict[str, set[EntityKey]] = {}
    for process in loaded.bundle.bundle.processes:
        for path in iter_paths(process):
            users.setdefault(path, set()).add(process.key)
    for path, outcome in brought.items():
        if path not in named:
            yield f"the file {path} belongs to no process of it"
        elif not (root / path).resolve().is_relative_to(root.resolve()):
            yield f"the file {path} leads out of the project, by a link"
        elif outcome is ImportOutcome.CHANGED and not (users.get(path) and users[path] <= own):
            yield f"the file {path} is another one here"
    for path, process in named.items():
        if path not in brought and "://" not in path and not (root / path).exists():
            yield f"{process.label} names the file {path}, which is neither here nor in it"


def _operations_after(context: EntityContext, after: LoadedBundle) -> OperationContext:
    """Return a context for metadata with the declared entities as they are after the change."""
    timeline = ReleaseTimeline(compile_location(after).plan, context.store.values)
    return open_context(context.settings, context.database, timeline)


@contextmanager
def _written(root: Path, files: Mapping[str, bytes]) -> Iterator[None]:
    """Write files; bring back what was there if the block fails."""
    before = {path: (root / path).read_bytes() if (root / path).is_file() else None for path in files}
    made: list[Path] = []
    try:
        for path, content in files.items():
            made += _make_folders((root / path).parent)
            replace_file(root / path, content)
        yield
    except BaseException:
        for path, earlier in before.items():
            if earlier is not None:
                replace_file(root / path, earlier)
            else:
                (root / path).unlink(missing_ok=True)
        for folder in reversed(made):
            with suppress(OSError):
                folder.rmdir()
        raise


def _make_folders(folder: Path) -> list[Path]:
    if folder.is_dir():
        return []
    above = _make_folders(folder.parent)
    folder.mkdir(exist_ok=True)
    return [*above, folder]


@contextmanager
def _identified(context: EntityContext, ids: Mapping[str, str]) -> Iterator[None]:
    """Give entities without an id theirs before they are declared; take it back if the block fails."""
    with context.database.begin() as connection:
        lock_definitions(connection)
        lock_log(connection)
        store = MetadataStore(connection)
        known = store.ids_of(ids)
        new = {path: uid for path, uid in ids.items() if path not in known}
        entities = [(path, kind, name, context.author) for path in new for kind, name in [path.split("/", 1)]]
        added = store.add(entities, context.now, new)
    try:
        yield
    except BaseException:
        with context.database.begin() as connection:
            lock_definitions(connection)
            lock_log(connection)
            MetadataStore(connection).remove([each.id for each in added.values()])
        raise
