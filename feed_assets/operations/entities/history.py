"""Which definitions there were, who made them, and which of them made an instance."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from feed_assets.definitions.written import find_version_entity
from feed_assets.entities.bundle import AnyEntity
from feed_assets.entities.differences import FieldChange, diff_entities, render_field
from feed_assets.entities.errors import EntityNotFoundError
from feed_assets.issues import FieldPath
from feed_assets.operations.errors import VersionNotFoundError
from feed_assets.state.database import Database
from feed_assets.state.definition_records import DefinitionAction, DefinitionVersion, Release
from feed_assets.state.definitions import Definitions
from feed_assets.state.process_instances import ProcessInstances
from feed_assets.state.records import ProcessInstance
from feed_assets.state.releases import Releases
from feed_assets.timing.dates import render_datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """A version of an entity, and the fields in which it differs from the one before; none for a deletion.

    Values that come from outside stand as they are written, `${env:PASSWORD}`.
    """

    version: DefinitionVersion
    changes: tuple[FieldChange, ...]

    def to_json(self) -> dict[str, object]:
        """The JSON form."""
        version = self.version
        return {
            "version": version.version,
            "action": version.action.value,
            "author": version.author,
            "recorded_at": version.recorded_at.isoformat(),
            "origin": version.origin,
            "file": version.file,
            "digest": version.digest,
            "changes": [change.to_json() for change in self.changes],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Blame:
    """A field, and the version that made it what it is now; `value` is None if it was left out then."""

    path: FieldPath
    value: object
    version: int
    author: str
    recorded_at: datetime

    @property
    def field(self) -> str:
        """The path as people write it."""
        return render_field(self.path)

    def to_json(self) -> dict[str, object]:
        """The JSON form."""
        return {
            "field": self.field,
            "value": self.value,
            "version": self.version,
            "author": self.author,
            "recorded_at": self.recorded_at.isoformat(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Governing:
    """What governs an instance: the release, and the versions that it is made of, the process first."""

    release: Release
    versions: tuple[DefinitionVersion, ...]

    def to_json(self) -> dict[str, object]:
        """The JSON form."""
        return {
            "process": self.release.process,
            "cluster": self.release.cluster,
            "release": self.release.release,
            "effective_from": render_datetime(self.release.effective_from),
            "reason": self.release.reason,
            "versions": [
                {"kind": each.kind, "name": each.name, "version": each.version, "author": each.author}
                for each in self.versions
            ],
        }


def entity_history(database: Database, kind: str, name: str) -> tuple[HistoryEntry, ...]:
    """All versions of an entity, oldest first.

    Raises:
        EntityNotFoundError: it was never declared.
    """
    return tuple(HistoryEntry(version=version, changes=changes) for version, changes in _walk(database, kind, name))


def blame(database: Database, kind: str, name: str, field: str | None = None) -> tuple[Blame, ...]:
    """Who made each field of the newest version what it is; of `field` and what is below it only, if given.

    A field that was removed, so that its default holds, is listed with the value None if it was asked for.

    Raises:
        EntityNotFoundError: it is not declared.
        VersionNotFoundError: nothing has ever been said about the field.
    """
    blamed: dict[FieldPath, Blame] = {}
    last: DefinitionVersion | None = None
    for version, changes in _walk(database, kind, name):
        last = version
        if version.action is not DefinitionAction.UPDATED:
            blamed.clear()  # submitted again after a deletion, it is another entity
        for change in changes:
            blamed[change.path] = Blame(
                path=change.path,
                value=change.after,
                version=version.version,
                author=version.author,
                recorded_at=version.recorded_at,
            )
    if last is None or last.action is DefinitionAction.DELETED:
        raise EntityNotFoundError(kind=kind, name=name)
    if field is None:
        return tuple(sorted((each for each in blamed.values() if each.value is not None), key=_order_of))
    found = sorted((each for each in blamed.values() if _is_below(each.field, field)), key=_order_of)
    if not found:
        raise VersionNotFoundError(
            kind=kind, name=name, wanted=f"that says anything about {field!r}", known="its default has always held"
        )
    return tuple(found)


def definition_at(
    database: Database, kind: str, name: str, *, version: int | None = None, at: datetime | None = None
) -> DefinitionVersion:
    """A version of an entity: by its number, as it was at a time, or the newest.

    Raises:
        EntityNotFoundError: it was never declared.
        VersionNotFoundError: it has no such version, or was not declared at that time.
    """
    with database.read() as connection:
        definitions = Definitions(connection)
        newest = definitions.find_newest(kind, name)
        if newest is None:
            raise EntityNotFoundError(kind=kind, name=name)
        if version is not None:
            found, wanted = definitions.find_version(kind, name, version), str(version)
        elif at is not None:
            found, wanted = definitions.find_at(kind, name, at), f"of {render_datetime(at)}"
        else:
            return newest
    if found is None:
        numbers = "the only one is 1" if newest.version == 1 else f"there are 1 to {newest.version}"
        raise VersionNotFoundError(kind=kind, name=name, wanted=wanted, known=numbers)
    return found


def governing_version(database: Database, process: str, cluster: str, nominal_time: datetime) -> Governing | None:
    """Which definitions made an instance of a process, or will make it; None before its first release.

    An instance that has run keeps the release that it ran by; any other has the newest one that is in effect at its
    nominal time.
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
            return None
        definitions = Definitions(connection)
        members = fitting[-1].members
        found = [definitions.find_version(each.kind, each.name, each.version) for each in members]
        made_by = None if instance is None or number is None else _made_by(definitions, instance)
    versions = [made_by if each.kind == "process" and made_by else each for each in found if each is not None]
    return Governing(release=fitting[-1], versions=tuple(sorted(versions, key=lambda each: each.kind != "process")))


def _made_by(definitions: Definitions, instance: ProcessInstance) -> DefinitionVersion | None:
    """The version of its process that an instance ran by, where soft fields of the release have changed since."""
    began = instance.started_at
    fitting = [
        version
        for version in definitions.history("process", instance.process)
        if version.digest == instance.definition_digest and (began is None or version.recorded_at <= began)
    ]
    return fitting[-1] if fitting else None


def _walk(database: Database, kind: str, name: str) -> Iterator[tuple[DefinitionVersion, tuple[FieldChange, ...]]]:
    """Each version with its differences. One that this release cannot read says what the one before said."""
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


def _order_of(blame: Blame) -> str:
    return blame.field


def _is_below(field: str, wanted: str) -> bool:
    return field == wanted or field.startswith((f"{wanted}.", f"{wanted}["))
