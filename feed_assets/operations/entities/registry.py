"""What entity verbs work on: the definition store, the state and the settings; and who asks, when, and how."""

import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from feed_assets.definitions.edits import Edit
from feed_assets.definitions.folder import open_folder
from feed_assets.definitions.store import Check, DefinitionStore, Loaded
from feed_assets.entities.bundle import AnyEntity, Bundle
from feed_assets.entities.common import Kind, label_of
from feed_assets.entities.errors import DefinitionsError, EntityNotFoundError
from feed_assets.entities.graph import DependencyGraph
from feed_assets.issues import EntityKey, Issue, Severity, order_of
from feed_assets.lifecycle.schedules import ScheduleView, load_schedules, state_without_row
from feed_assets.loading.entity_files import LoadedBundle, usable_bundle
from feed_assets.loading.interpolation import Values
from feed_assets.operations.entities.states import Progress, load_progress
from feed_assets.operations.outside.reachability import check_reachability
from feed_assets.operations.safe_mode import is_safe_mode
from feed_assets.settings import Settings
from feed_assets.state.audit import Audit
from feed_assets.state.database import Database
from feed_assets.state.definition_records import AuditEntry, Change, ScheduleState
from feed_assets.validation.compatibility import find_broken_dependents
from feed_assets.validation.rules import validate_bundle


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """The definitions of one place with their state, and the circumstances of a command.

    `now` is the time of the data. With `dry_run` nothing is changed; with `skip_checks` nobody asks whether what is
    named outside can be reached.
    """

    settings: Settings
    database: Database
    store: DefinitionStore
    author: str
    now: datetime
    dry_run: bool = False
    skip_checks: bool = False

    @property
    def without_row(self) -> ScheduleState:
        """The state of entities that no command has scheduled or suspended."""
        return state_without_row(self.settings.schedule)

    def load(self) -> Loaded:
        """What is declared."""
        return self.store.load(self.now)

    def record(self) -> None:
        """Give what was edited by other means its versions."""
        if not self.dry_run and self.store.folder.exists():
            self.store.record_found(self.now)

    def schedules(self) -> ScheduleView:
        """All schedules."""
        with self.database.read() as connection:
            return load_schedules(connection, self.without_row)

    def progress(self) -> Progress:
        """How far everything has come."""
        with self.database.read() as connection:
            return load_progress(connection, self.without_row)

    def audit(self, action: str, target: str | None, **details: object) -> None:
        """Note what was done."""
        entry = AuditEntry(recorded_at=self.now, author=self.author, action=action, target=target, details=details)
        with self.database.begin() as connection:
            Audit(connection).append(entry)


def open_registry(
    settings: Settings,
    database: Database,
    *,
    author: str,
    now: datetime,
    dry_run: bool = False,
    skip_checks: bool = False,
) -> Registry:
    """The registry of the place that the settings name."""
    values = Values(variables=settings.cluster_variables, environ=os.environ)
    store = DefinitionStore(database, open_folder(settings.entities_location), values)
    return Registry(
        settings=settings,
        database=database,
        store=store,
        author=author,
        now=now,
        dry_run=dry_run,
        skip_checks=skip_checks,
    )


def get_declared(loaded: Loaded, kind: Kind, name: str) -> AnyEntity:
    """A declared entity.

    Raises:
        EntityNotFoundError: there is none.
        DefinitionsError: it is declared and cannot be used; carries the issues.
    """
    entity = loaded.bundle.bundle.find((kind, name))
    if entity is not None:
        return entity
    if (kind, name) in loaded.bundle.broken:
        label = label_of((kind, name))
        issues = [issue for issue in loaded.bundle.issues if issue.entity == label]
        raise DefinitionsError(location=label, issues=issues, next_step="Correct it first:")
    raise EntityNotFoundError(kind=kind, name=name, suggestions=loaded.bundle.bundle.suggest(kind, name))


@dataclass(slots=True)
class Made:
    """A change that was made, or with a dry run would be: what is declared before and after it, and its warnings."""

    before: Bundle = field(default_factory=lambda: Bundle(entities=()))
    after: LoadedBundle | None = None
    warnings: tuple[Issue, ...] = ()
    change: Change | None = None

    def is_done(self, registry: Registry) -> bool:
        """Whether it was made, or would be; not if the files said all of it already."""
        return registry.dry_run or self.change is not None


def make_change(
    registry: Registry,
    edits: Sequence[Edit],
    keys: Collection[EntityKey],
    *,
    origin: str,
    refuse: Check,
    accept: Callable[[], None] = lambda: None,
) -> Made:
    """Make a change of the store after everything has been checked: what the verb itself demands, the entities in
    question by every rule, and what depends on them. With a dry run everything is done but the change.

    Args:
        registry: where.
        edits: what to change.
        keys: the entities in question.
        origin: the verb, for the record.
        refuse: raises where the verb does not allow the change; given what is declared before and after.
        accept: called when nothing speaks against the change any more, right before it is made.

    Raises:
        DefinitionsError: the definitions would not be in order; carries the issues.
    """
    made = Made()
    if not registry.skip_checks:
        preview = registry.store.preview(edits, now=registry.now)
        refuse(preview.before.bundle, preview.after)
        require_order(registry, preview.before.bundle, preview.after, keys)
        require_reachable(registry, preview.after, keys)

    def check(before: LoadedBundle, after: LoadedBundle) -> None:
        made.before, made.after = before.bundle, after
        refuse(before, after)
        made.warnings = require_order(registry, before, after, keys)
        if not registry.dry_run:
            accept()

    if registry.dry_run:
        preview = registry.store.preview(edits, now=registry.now)
        check(preview.before.bundle, preview.after)
    else:
        made.change = registry.store.change(edits, author=registry.author, origin=origin, now=registry.now, check=check)
    return made


def require_order(
    registry: Registry, before: LoadedBundle, after: LoadedBundle, keys: Collection[EntityKey]
) -> tuple[Issue, ...]:
    """Demand that the entities `keys` are in order after a change, and all that was so before; returns the warnings.

    Raises:
        DefinitionsError: carries what is wrong.
    """
    issues = find_disorder(registry, before, after, keys)
    _refuse_errors([issue for issue in issues if issue.severity is Severity.ERROR], keys)
    return issues


def find_disorder(
    registry: Registry, before: LoadedBundle, after: LoadedBundle, keys: Collection[EntityKey]
) -> tuple[Issue, ...]:
    """What is wrong with the entities `keys` after a change, and with what depends on them and was in order before."""
    root = registry.settings.root
    wanted = {key for key in keys if after.bundle.find(key) is not None}
    issues = validate_bundle(after.bundle, after.sources, registry.now, root, only=wanted)
    labels = {label_of(key) for key in keys}
    issues += [issue for issue in after.issues if issue.entity in labels]
    if wanted and not any(issue.severity is Severity.ERROR for issue in issues):
        issues += _blocked(registry, after, wanted)
    issues += find_broken_dependents(before.bundle, after.bundle, sources=after.sources, as_of=registry.now, root=root)
    return tuple(sorted(issues, key=order_of))


def require_reachable(registry: Registry, after: LoadedBundle, keys: Collection[EntityKey]) -> None:
    """Demand that what entities name outside can be reached; not in safe mode, and not if checks are skipped.

    Raises:
        DefinitionsError: carries what cannot.
    """
    with registry.database.read() as connection:
        if registry.skip_checks or is_safe_mode(connection):
            return
    found = check_reachability(
        after.bundle,
        keys,
        sources=after.sources,
        root=registry.settings.root,
        environ=registry.store.values.environ,
        prepare=not registry.dry_run,
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
        next_step="Nothing was changed; correct what is named here:",
    )


def _blocked(registry: Registry, after: LoadedBundle, keys: Collection[EntityKey]) -> list[Issue]:
    """What keeps entities out that are in order themselves: errors of what they depend on."""
    needed = DependencyGraph.of(after.bundle).dependencies_of(keys) | set(keys)
    found = validate_bundle(after.bundle, after.sources, registry.now, registry.settings.root, only=needed)
    _, blocked = usable_bundle(after, found)
    labels = {label_of(key) for key in keys}
    return [issue for issue in blocked if issue.entity in labels]
