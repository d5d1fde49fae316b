"""The context of entity verbs: definition store, state, settings, and the circumstances of a command."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from feed_assets.access.rights import reads
from feed_assets.context.errors import JobOwnedError
from feed_assets.context.safe_mode import is_safe_mode
from feed_assets.definitions.edits import Edit
from feed_assets.definitions.store import Check, DefinitionStore, Loaded, open_store
from feed_assets.definitions.verbs.states import EntityProgress, load_progress
from feed_assets.entities.bundle import AnyEntity, Bundle
from feed_assets.entities.common import Kind, label_of
from feed_assets.entities.errors import AmbiguousNameError, DefinitionsError, EntityNotFoundError
from feed_assets.entities.graph import DependencyGraph
from feed_assets.issues import EntityKey, Issue, Severity, fold_followers, order_of
from feed_assets.loading.bundles import LoadedBundle, usable_bundle
from feed_assets.log.audit import Audit
from feed_assets.log.definitions.records import AuditEntry, Change
from feed_assets.log.definitions.schedules import ScheduleView, load_schedules
from feed_assets.settings import Settings
from feed_assets.sql.database import Database


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityContext:
    """The definitions of one location with their state, and the circumstances of a command.

    `now` is the time of the data. With `dry_run` nothing is changed; with `skip_checks` the reachability checks are
    skipped. `jobs` are the jobs of extensions for which it acts.
    """

    settings: Settings
    database: Database
    store: DefinitionStore
    author: str
    now: datetime
    dry_run: bool = False
    skip_checks: bool = False
    jobs: frozenset[str] = frozenset()

    def load(self) -> Loaded:
        """Load the declared entities."""
        return self.store.load(self.now)

    def clusters_of(self, entity: AnyEntity) -> tuple[str, ...]:
        """Return the clusters of a feed or process that are worked on here; none of another entity."""
        colo = self.settings.works_in
        bundle = Bundle(entities=()) if colo is None else self.load().bundle.bundle
        return bundle.clusters_in(entity, colo)

    def record(self) -> None:
        """Record versions of edits that were made outside the commands; where a front declares, they are refused."""
        if not (self.dry_run or self.store.has_front) and self.store.folder.exists():
            self.store.record_found(self.now)

    def schedules(self) -> ScheduleView:
        """Return all schedules."""
        with self.database.read() as connection:
            return load_schedules(connection)

    def progress(self) -> EntityProgress:
        """Return the progress of all entities."""
        with self.database.read() as connection:
            return load_progress(connection)

    def audit(self, action: str, target: str | None, **details: object) -> None:
        """Write an audit entry."""
        entry = AuditEntry(recorded_at=self.now, author=self.author, action=action, target=target, details=details)
        with self.database.begin() as connection:
            Audit(connection).append(entry)


def open_entity_context(
    settings: Settings,
    database: Database,
    *,
    author: str,
    now: datetime,
    store: DefinitionStore | None = None,
    dry_run: bool = False,
    skip_checks: bool = False,
) -> EntityContext:
    """Open the context of the location that the settings name; `store` is that of a server, which keeps it."""
    return EntityContext(
        settings=settings,
        database=database,
        store=store or open_store(database, settings),
        author=author,
        now=now,
        dry_run=dry_run,
        skip_checks=skip_checks,
    )


def find_kind(loaded: Loaded, kind: Kind | None, name: str) -> Kind:
    """Return the given kind, else the only one in which a name is declared, be it with errors.

    Raises:
        EntityNotFoundError: no kind is given, and none has the name.
        AmbiguousNameError: no kind is given, and several have the name.
    """
    if kind is not None:
        return kind
    bundle, broken = loaded.bundle.bundle, loaded.bundle.broken
    found = [each for each in Kind if bundle.find((each, name)) is not None or (each, name) in broken]
    if not found:
        known = dict.fromkeys(similar for each in Kind for similar in suggest(loaded, each, name))
        raise EntityNotFoundError(kind="entity", name=name, suggestions=tuple(known))
    if len(found) > 1:
        raise AmbiguousNameError(name=name, kinds=found)
    return found[0]


def get_declared(loaded: Loaded, kind: Kind | None, name: str) -> AnyEntity:
    """Return a declared entity; see `find_kind`.

    Raises:
        EntityNotFoundError: it is not declared.
        AmbiguousNameError: no kind is given, and several have the name.
        DefinitionsError: it is declared, but has errors; carries the issues.
    """
    kind = find_kind(loaded, kind, name)
    entity = loaded.bundle.bundle.find((kind, name))
    if entity is not None:
        return entity
    if (kind, name) in loaded.bundle.broken:
        label = label_of((kind, name))
        issues = [issue for issue in loaded.bundle.issues if issue.entity == label]
        raise DefinitionsError(location=label, issues=issues, next_step="Correct it first:")
    raise EntityNotFoundError(kind=kind, name=name, suggestions=suggest(loaded, kind, name))


def suggest(loaded: Loaded, kind: Kind, name: str) -> tuple[str, ...]:
    """Return names of a kind that are similar to one, of what who asks may read."""
    return tuple(each for each in loaded.bundle.bundle.suggest(kind, name) if reads(kind, each))


def get_own(loaded: Loaded, kind: Kind | None, name: str) -> AnyEntity:
    """Return a declared entity that no job of an extension has made; see `get_declared`.

    Raises:
        JobOwnedError: a job has made it.
    """
    entity = get_declared(loaded, kind, name)
    require_own(loaded, entity.key)
    return entity


def require_own(loaded: Loaded, key: EntityKey) -> None:
    """Require that no job of an extension has made an entity.

    Raises:
        JobOwnedError: a job has made it.
    """
    if (document := loaded.documents.get(key)) is not None and document.job is not None:
        raise JobOwnedError(kind=key[0], name=key[1], job=document.job)


@dataclass(slots=True, kw_only=True)
class AppliedChange:
    """A change that was made, or that a dry run would make: the declared entities before and after it, and its
    warnings. It is not `is_done` if the files have its content already.
    """

    before: Bundle
    after: LoadedBundle
    warnings: tuple[Issue, ...] = ()
    change: Change | None = None
    is_done: bool = False


def allow(_before: LoadedBundle, _after: LoadedBundle) -> None:
    """Accept every change: the verb has no check of its own."""


def make_change(
    context: EntityContext,
    edits: Sequence[Edit],
    keys: Collection[EntityKey],
    *,
    origin: str,
    refuse: Check = allow,
    accept: Callable[[], None] = lambda: None,
) -> AppliedChange:
    """Check a change of the store, then make it. The checks are the verb's own, every rule for the given entities, and
    the dependents; first without the lock, since what is outside may take its time. A dry run makes no change.

    Args:
        context: the definitions to change.
        edits: the changes; without any nothing is done.
        keys: the entities to check.
        origin: the verb, for the record.
        refuse: raises if the verb does not allow the change; receives the declared entities before and after.
        accept: called after all checks, immediately before the change is made.

    Raises:
        DefinitionsError: the definitions would have errors; carries the issues.
    """
    preview = context.store.preview(edits, now=context.now, jobs=context.jobs)
    made = AppliedChange(before=preview.before.bundle.bundle, after=preview.after.bundle)
    if not edits:
        return made

    def check(before: LoadedBundle, after: LoadedBundle) -> None:
        made.before, made.after = before.bundle, after
        refuse(before, after)
        made.warnings = require_valid(context, before, after, keys)

    def check_and_accept(before: LoadedBundle, after: LoadedBundle) -> None:
        check(before, after)
        accept()

    if context.dry_run or not context.skip_checks:
        check(preview.before.bundle, preview.after.bundle)
        require_reachable(context, preview.after.bundle, keys)
    if not context.dry_run:
        author, now = context.author, context.now
        made.change = context.store.change(
            edits, author=author, origin=origin, now=now, check=check_and_accept, jobs=context.jobs
        )
    made.is_done = context.dry_run or made.change is not None
    return made


def require_valid(
    context: EntityContext, before: LoadedBundle, after: LoadedBundle, keys: Collection[EntityKey]
) -> tuple[Issue, ...]:
    """Require that a change leaves the entities `keys` valid, and every other entity that was valid before. Returns the
    warnings.

    Raises:
        DefinitionsError: one of them is invalid; carries the issues.
    """
    issues = find_new_issues(context, before, after, keys)
    _refuse_errors([issue for issue in issues if issue.severity is Severity.ERROR], keys)
    return issues


def find_new_issues(
    context: EntityContext, before: LoadedBundle, after: LoadedBundle, keys: Collection[EntityKey]
) -> tuple[Issue, ...]:
    """Return the issues of the entities `keys` after a change, and of dependents that were valid before."""
    # Measured: the rules take 8 ms to import, and readers apply none.
    from feed_assets.validation.compatibility import find_broken_dependents
    from feed_assets.validation.rules import validate_bundle

    root = context.settings.code_root
    present = {key for key in keys if after.bundle.find(key) is not None}
    issues = validate_bundle(
        after.bundle,
        after.sources,
        root,
        left_out=after.salvaged,
        only=present,
        listeners=context.settings.notify,
    )
    labels = {label_of(key) for key in keys}
    issues += [issue for issue in after.issues if issue.entity in labels]
    if present and not any(issue.severity is Severity.ERROR for issue in issues):
        issues += _blocked(context, after, present)
    issues += find_broken_dependents(before.bundle, after.bundle, sources=after.sources, root=root)
    return tuple(sorted(fold_followers(issues), key=order_of))


def require_reachable(context: EntityContext, after: LoadedBundle, keys: Collection[EntityKey]) -> None:
    """Require that everything the entities name outside can be reached. Skipped in safe mode and with `skip_checks`.

    Raises:
        DefinitionsError: something cannot be reached; carries the issues.
    """
    with context.database.read() as connection:
        if context.skip_checks or is_safe_mode(connection):
            return
    # Measured: what looks outside takes 25 ms to import, and readers look at nothing there.
    from feed_assets.definitions.checks.code_checks import check_code
    from feed_assets.definitions.checks.live_checks import check_reachability

    root, here = context.settings.root, after.bundle.seen_from(context.settings.works_in)
    found = check_code(here, keys, sources=after.sources, root=root, has_packages=True)
    found += check_reachability(
        here,
        keys,
        sources=after.sources,
        root=root,
        environ=context.store.values.environ,
        prepare=not context.dry_run,
    )
    _refuse_errors([issue for issue in found if issue.severity is Severity.ERROR], keys)


def _refuse_errors(errors: Sequence[Issue], keys: Collection[EntityKey]) -> None:
    if not errors:
        return
    ordered = sorted(errors, key=order_of)
    subject = " and ".join(label_of(key) for key in sorted(keys)[:3]) + (" and others" if len(keys) > 3 else "")
    raise DefinitionsError(
        location=subject,
        issues=ordered,
        next_step="Nothing was changed. Correct these issues:",
    )


def _blocked(context: EntityContext, after: LoadedBundle, keys: Collection[EntityKey]) -> list[Issue]:
    """Return the errors of dependencies that exclude entities which are valid themselves."""
    from feed_assets.validation.rules import validate_bundle

    needed = DependencyGraph.of(after.bundle).dependencies_of(keys) | set(keys)
    root = context.settings.code_root
    found = validate_bundle(after.bundle, after.sources, root, left_out=after.salvaged, only=needed)
    _, blocked = usable_bundle(after, found)
    labels = {label_of(key) for key in keys}
    return [issue for issue in blocked if issue.entity in labels]
