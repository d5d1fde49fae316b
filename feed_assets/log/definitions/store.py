"""Store every version of every definition for ever: what is declared now, what was, and who changed it."""

from collections.abc import Collection, Iterable
from typing import Any

from sqlalchemy import Select, and_, delete, func, or_, select, update

from feed_assets.entities.common import Kind
from feed_assets.log.cursors import Cursors
from feed_assets.log.definitions.records import DefinitionAction, DefinitionVersion, NewDefinition, Recorded, Rename
from feed_assets.log.definitions.tables import definitions, renames
from feed_assets.log.messages.outbox import Outbox
from feed_assets.log.messages.payloads import EntityAction, EntityPayload
from feed_assets.log.messages.records import OutboxMessage
from feed_assets.sql.database import lock_definitions
from feed_assets.sql.rows import KEY_ROWS, RowMapper, TableStore, key_rows, render_rows

REVISION_CURSOR = "definitions/revision"

_T = definitions.c
_R = renames.c
_ROWS = RowMapper(definitions, DefinitionVersion)
_RENAMES = RowMapper(renames, Rename)
_NEWEST = select(_T.kind, _T.name, func.max(_T.version).label("version")).group_by(_T.kind, _T.name).subquery()
_IS_NEWEST = and_(_T.kind == _NEWEST.c.kind, _T.name == _NEWEST.c.name, _T.version == _NEWEST.c.version)
_ACTIONS = {
    DefinitionAction.SUBMITTED: EntityAction.SUBMIT,
    DefinitionAction.UPDATED: EntityAction.UPDATE,
    DefinitionAction.DELETED: EntityAction.DELETE,
    DefinitionAction.RENAMED: EntityAction.RENAME,
}


class Definitions(TableStore):
    """The versions of definitions as one transaction sees them."""

    def append(self, new: Iterable[NewDefinition]) -> list[DefinitionVersion]:
        """Record versions, each with the next number of its entity. A message tells each.

        Takes the locks of definitions and of the log.
        """
        new = list(new)
        if not new:
            return []
        lock_definitions(self._connection)
        numbers = self._newest_numbers({(definition.kind, definition.name) for definition in new})
        versions = []
        for definition in new:
            key = (definition.kind, definition.name)
            numbers[key] = numbers.get(key, 0) + 1
            fields = {name: getattr(definition, name) for name in NewDefinition.__dataclass_fields__}
            versions.append(DefinitionVersion(**fields, version=numbers[key]))
        _ROWS.insert(self._connection, versions)
        Outbox(self._connection).append_many([_message_of(version) for version in versions])
        return versions

    def revision(self) -> int:
        """Return a number that grows whenever the files or the record of definitions change; 0 before the first
        change.
        """
        return int(Cursors(self._connection).get(REVISION_CURSOR) or 0)

    def bump_revision(self) -> None:
        """Tell every process that has loaded definitions that they have changed."""
        lock_definitions(self._connection)
        Cursors(self._connection).advance(REVISION_CURSOR)

    def newest(self) -> dict[tuple[str, str], DefinitionVersion]:
        """Return the newest version of every entity ever declared, including deletions; by (kind, name)."""
        found = _ROWS.find(self._connection, _ROWS.select.join(_NEWEST, _IS_NEWEST))
        return {version.key: version for version in found}

    def declared_versions(self) -> dict[tuple[str, str], int]:
        """Return the newest version number of every declared entity; without the texts."""
        is_declared = _T.action != DefinitionAction.DELETED
        statement = select(_T.kind, _T.name, _T.version).join(_NEWEST, _IS_NEWEST).where(is_declared)
        return {(kind, name): version for kind, name, version in self._connection.execute(statement)}

    def recorded(self) -> dict[tuple[str, str], Recorded]:
        """Return what the record knows of every declared entity, by (kind, name); without the texts."""
        gone = (
            select(_T.kind, _T.name, func.max(_T.version).label("version"))
            .where(_T.action == DefinitionAction.DELETED)
            .group_by(_T.kind, _T.name)
            .subquery()
        )
        is_gone = and_(_T.kind == gone.c.kind, _T.name == gone.c.name)
        ends = (
            select(_T.kind, _T.name, func.min(_T.version).label("first"), func.max(_T.version).label("last"))
            .outerjoin_from(definitions, gone, is_gone)
            .where(_T.version > func.coalesce(gone.c.version, 0))
            .group_by(_T.kind, _T.name)
            .subquery()
        )
        is_end = and_(
            _T.kind == ends.c.kind, _T.name == ends.c.name, or_(_T.version == ends.c.first, _T.version == ends.c.last)
        )
        statement = select(_T.kind, _T.name, _T.version, _T.recorded_at, _T.author).join(ends, is_end)
        found: dict[tuple[str, str], Recorded] = {}
        for kind, name, version, moment, author in self._connection.execute(statement.order_by(_T.version)):
            first = found.get((kind, name))
            found[kind, name] = Recorded(
                version=version,
                created_at=first.created_at if first is not None else moment,
                created_by=first.created_by if first is not None else author,
                updated_at=moment,
                updated_by=author,
            )
        return found

    def names_ever(self, kind: str) -> list[str]:
        """Return the names of all entities of a kind that were ever declared, in order."""
        return list(self._connection.scalars(select(_T.name).where(_T.kind == kind).distinct().order_by(_T.name)))

    def find_newest(self, kind: str, name: str) -> DefinitionVersion | None:
        """Return the newest version of an entity, including a deletion; None if it was never declared."""
        return self._find(_of(kind, name).order_by(_T.version.desc()).limit(1))

    def find_version(self, kind: str, name: str, version: int) -> DefinitionVersion | None:
        """Return one version of an entity."""
        return self._find(_of(kind, name).where(_T.version == version))

    def history(self, kind: str, name: str) -> list[DefinitionVersion]:
        """Return all versions of an entity, oldest first."""
        return _ROWS.find(self._connection, _of(kind, name).order_by(_T.version))

    def all(self) -> list[DefinitionVersion]:
        """Return all versions of all entities, oldest first for each; for checks, not for ticks."""
        statement = _ROWS.select.order_by(_T.kind, _T.name, _T.version)
        return _ROWS.find(self._connection, statement)

    def rewrite(self, version: DefinitionVersion, text: str, digest: str | None) -> None:
        """Give a recorded version another text, in which an entity has another name."""
        is_it = (_T.kind == version.kind, _T.name == version.name, _T.version == version.version)
        self._connection.execute(update(definitions).where(*is_it).values(text=text, digest=digest))

    def put_rename(self, rename: Rename) -> None:
        """Record what an entity was called. A name that is in use again is none that was."""
        again = (_R.kind == rename.kind, _R.former == rename.name)
        self._connection.execute(delete(renames).where(*again))
        _RENAMES.put(self._connection, [rename])

    def renames(self) -> list[Rename]:
        """Return the former names of entities, the newest last."""
        return _RENAMES.find(self._connection, _RENAMES.select.order_by(_R.renamed_at, _R.former))

    def _newest_numbers(self, keys: Collection[tuple[str, str]]) -> dict[tuple[str, str], int]:
        wanted = key_rows(self._dialect, ("kind", "name"))
        statement = (
            select(_T.kind, _T.name, func.max(_T.version))
            .join(wanted, (_T.kind == wanted.c.kind) & (_T.name == wanted.c.name))
            .group_by(_T.kind, _T.name)
        )
        found = self._connection.execute(statement, {KEY_ROWS: render_rows(keys)})
        return {(kind, name): version for kind, name, version in found}

    def _find(self, statement: Select[Any]) -> DefinitionVersion | None:
        return _ROWS.find_one(self._connection, statement)


def _of(kind: str, name: str) -> Select[Any]:
    return _ROWS.select.where(_T.kind == kind, _T.name == name)


def _message_of(version: DefinitionVersion) -> OutboxMessage:
    action, (kind, name) = _ACTIONS[version.action], version.key
    return OutboxMessage(
        recorded_at=version.recorded_at,
        payload=EntityPayload(action=action, kind=Kind(kind), entity=name, author=version.author),
        idempotency_key=f"entity/{kind}/{name}/{version.version}",
    )
