"""The versions of definitions, their authors, and the versions that govern an instance."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter

from feed_assets.context.errors import VersionNotFoundError
from feed_assets.definitions.folder import find_version_entity
from feed_assets.entities.bundle import AnyEntity
from feed_assets.entities.differences import FieldChange, diff_entities, render_field
from feed_assets.entities.errors import EntityNotFoundError
from feed_assets.issues import FieldPath
from feed_assets.json_form import Hidden, shown, shows
from feed_assets.log.definitions.records import DefinitionAction, DefinitionVersion, Release
from feed_assets.log.definitions.store import Definitions
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import ProcessInstance
from feed_assets.plan.rendering import counted
from feed_assets.releases.store import Releases
from feed_assets.sql.database import Database
from feed_assets.timing.dates import render_datetime


@shows("row", "kind, name, version, action, author, recorded_at, origin, file, digest")
@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """A version of an entity, with the fields that differ from the version before; none for a deletion. Values from
    outside are shown as references, `${env:PASSWORD}`.
    """

    row: Hidden[DefinitionVersion]
    changes: tuple[FieldChange, ...]

    @property
    def changed(self) -> str:
        """How much it has changed, for people."""
        return counted(len(self.changes), "field")


@shows("row", "version, author, recorded_at")
@dataclass(frozen=True, slots=True, kw_only=True)
class Blame:
    """A field, and the version that set its current value; `value` is None if that version removed the field."""

    path: FieldPath
    value: object
    row: Hidden[DefinitionVersion]

    @shown
    def field(self) -> str:
        """The path in the notation of entity files."""
        return render_field(self.path)

    @property
    def text(self) -> str:
        """The value for people."""
        return json.dumps(self.value, ensure_ascii=False)


@shows("row", "process, cluster, release, effective_from, reason")
@dataclass(frozen=True, slots=True)
class Governing:
    """The definitions that govern an instance: the release and its versions, the process first; or why none do."""

    row: Hidden[Release | None]
    versions: tuple[DefinitionVersion, ...] = ()
    summary: Hidden[str] = ""

    @property
    def heading(self) -> str:
        """The release, above the table."""
        begins = self.row and render_datetime(self.row.effective_from)
        return f"release {self.row.release} from {begins} on: {self.row.reason}" if self.row else ""

    @property
    def items(self) -> tuple[DefinitionVersion, ...]:
        """The rows of the table."""
        return self.versions

    def document(self, name: str) -> Mapping[str, object]:
        """Return the members of the JSON form."""
        return {name: self if self.row else None}


def entity_history(database: Database, kind: str, name: str) -> tuple[HistoryEntry, ...]:
    """Return all versions of an entity, oldest first.

    Raises:
        EntityNotFoundError: it was never declared.
    """
    return tuple(HistoryEntry(version, changes) for version, changes in _walk(database, kind, name))


def blame(database: Database, kind: str, name: str, field: str | None = None) -> tuple[Blame, ...]:
    """Return the version that set each field of the newest version, or only `field` and the fields below it. If `field`
    was removed, so that its default applies, it is listed with the value None.

    Raises:
        EntityNotFoundError: it is not declared.
        VersionNotFoundError: no version ever set the field.
    """
    blamed: dict[FieldPath, Blame] = {}
    last: DefinitionVersion | None = None
    for version, changes in _walk(database, kind, name):
        last = version
        if version.action is not DefinitionAction.UPDATED:
            blamed.clear()  # an entity submitted again after a deletion is a new one
        for change in changes:
            blamed[change.path] = Blame(path=change.path, value=change.after, row=version)
    if last is None or last.action is DefinitionAction.DELETED:
        raise EntityNotFoundError(kind=kind, name=name)
    found = sorted(blamed.values(), key=attrgetter("field"))
    if field is None:
        return tuple(each for each in found if each.value is not None)
    found = [each for each in found if each.field == field or each.field.startswith((f"{field}.", f"{field}["))]
    if not found:
        raise VersionNotFoundError(
            kind=kind, name=name, wanted=f"that says anything about {field!r}", known="its default has always held"
        )
    return tuple(found)


def governing_version(database: Database, process: str, cluster: str, nominal_time: datetime) -> Governing:
    """Return the definitions that govern an instance of a process; none do before its first release. An instance that
    has run keeps the release of its run. Any other follows the newest release in effect at its nominal time.
    """
    with database.read() as connection:
        instance = ProcessInstances(connection).get(process, cluster, nominal_time)
        releases = Releases(connection).of(process, cluster)
        number = instance.release if instance is not None else None
        if number is None:
            fitting = [each for each in releases if each.effective_from <= nominal_time]
        else:
            fitting = [each for each in releases if each.release == number]
        if not fitting:
            at = render_datetime(nominal_time)
            return Governing(None, summary=f"No release of {process!r} on {cluster!r} is in effect at {at}.")
        definitions = Definitions(connection)
        members = fitting[-1].members
        found = [definitions.find_version(each.kind, each.name, each.version) for each in members]
        made_by = None if instance is None or number is None else _made_by(definitions, instance)
    versions = [made_by if each.kind == "process" and made_by else each for each in found if each is not None]
    return Governing(fitting[-1], tuple(sorted(versions, key=lambda each: each.kind != "process")))


def _made_by(definitions: Definitions, instance: ProcessInstance) -> DefinitionVersion | None:
    """Return the version of its process by which an instance ran, if soft fields of the release have changed since."""
    began, digest = instance.started_at, instance.definition_digest
    fitting = [
        version
        for version in definitions.history("process", instance.process)
        if digest and (version.digest or "").startswith(digest) and (began is None or version.recorded_at <= began)
    ]
    return fitting[-1] if fitting else None


def _walk(database: Database, kind: str, name: str) -> Iterator[tuple[DefinitionVersion, tuple[FieldChange, ...]]]:
    """Yield each version with its differences. A version that cannot be read counts as equal to the one before."""
    with database.read() as connection:
        versions = Definitions(connection).history(kind, name)
    if not versions:
        raise EntityNotFoundError(kind=kind, name=name)
    before: AnyEntity | None = None
    for version in versions:
        if version.action is DefinitionAction.DELETED:
            before = None
            yield version, ()
            continue
        after = find_version_entity(version) or before
        yield version, diff_entities(before, after)
        before = after
