"""Every version of every definition, oldest kept for ever: what is declared now, what was, and who changed it."""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Select, and_, func, insert, select

from feed_assets.state.database import lock_definitions
from feed_assets.state.definition_records import DefinitionAction, DefinitionVersion, DocumentFormat, NewDefinition
from feed_assets.state.event_log import Cursors
from feed_assets.state.keyed import KEY_ROWS, key_rows, render_rows
from feed_assets.state.schema import definitions

REVISION_CURSOR = "definitions/revision"

_T = definitions.c
_COLUMNS = (
    _T.kind,
    _T.name,
    _T.version,
    _T.action,
    _T.digest,
    _T.text,
    _T.format,
    _T.file,
    _T.author,
    _T.origin,
    _T.recorded_at,
    _T.change_id,
)


class Definitions:
    """The versions of definitions as one transaction sees them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def append(self, new: Iterable[NewDefinition]) -> list[DefinitionVersion]:
        """Record versions, each with the next number of its entity."""
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
        self._connection.execute(insert(definitions), [_to_row(version) for version in versions])
        return versions

    def revision(self) -> int:
        """A number that grows whenever the files or the record of definitions have changed; 0 before the first time."""
        return int(Cursors(self._connection).get(REVISION_CURSOR) or 0)

    def bump_revision(self) -> None:
        """Let whoever has loaded definitions know that there are others now."""
        lock_definitions(self._connection)
        Cursors(self._connection).put(REVISION_CURSOR, str(self.revision() + 1))

    def newest(self) -> dict[tuple[str, str], DefinitionVersion]:
        """The newest version of every entity that was ever declared, deleted ones included; by (kind, name)."""
        newest = select(_T.kind, _T.name, func.max(_T.version).label("version")).group_by(_T.kind, _T.name).subquery()
        is_newest = and_(_T.kind == newest.c.kind, _T.name == newest.c.name, _T.version == newest.c.version)
        found = self._connection.execute(select(*_COLUMNS).join(newest, is_newest))
        return {version.key: version for version in map(_from_row, found)}

    def declared_versions(self) -> dict[tuple[str, str], int]:
        """The number of the newest version of every entity that is declared; without the texts."""
        newest = select(_T.kind, _T.name, func.max(_T.version).label("version")).group_by(_T.kind, _T.name).subquery()
        is_newest = and_(_T.kind == newest.c.kind, _T.name == newest.c.name, _T.version == newest.c.version)
        is_declared = _T.action != DefinitionAction.DELETED.value
        statement = select(_T.kind, _T.name, _T.version).join(newest, is_newest).where(is_declared)
        return {(kind, name): version for kind, name, version in self._connection.execute(statement)}

    def find_newest(self, kind: str, name: str) -> DefinitionVersion | None:
        """The newest version of an entity, be it a deletion; None if it was never declared."""
        return self._find(_of(kind, name).order_by(_T.version.desc()).limit(1))

    def find_version(self, kind: str, name: str, version: int) -> DefinitionVersion | None:
        """One version of an entity."""
        return self._find(_of(kind, name).where(_T.version == version))

    def find_digest(self, kind: str, name: str, digest: str) -> DefinitionVersion | None:
        """The newest version of an entity that has a digest."""
        return self._find(_of(kind, name).where(_T.digest == digest).order_by(_T.version.desc()).limit(1))

    def history(self, kind: str, name: str) -> list[DefinitionVersion]:
        """All versions of an entity, oldest first."""
        return [_from_row(row) for row in self._connection.execute(_of(kind, name).order_by(_T.version))]

    def all(self) -> list[DefinitionVersion]:
        """All versions of all entities, each entity's oldest first; for checks, not for ticks."""
        statement = select(*_COLUMNS).order_by(_T.kind, _T.name, _T.version)
        return [_from_row(row) for row in self._connection.execute(statement)]

    def find_at(self, kind: str, name: str, moment: datetime) -> DefinitionVersion | None:
        """The version that was the newest at a time, be it a deletion."""
        recorded = _of(kind, name).where(_T.recorded_at <= moment)
        return self._find(recorded.order_by(_T.version.desc()).limit(1))

    def of_change(self, change_id: str) -> list[DefinitionVersion]:
        """The versions that one change made."""
        statement = select(*_COLUMNS).where(_T.change_id == change_id).order_by(_T.kind, _T.name)
        return [_from_row(row) for row in self._connection.execute(statement)]

    def _newest_numbers(self, keys: Collection[tuple[str, str]]) -> dict[tuple[str, str], int]:
        wanted = key_rows(self._connection.dialect.name, ("kind", "name"))
        statement = (
            select(_T.kind, _T.name, func.max(_T.version))
            .join(wanted, (_T.kind == wanted.c.kind) & (_T.name == wanted.c.name))
            .group_by(_T.kind, _T.name)
        )
        found = self._connection.execute(statement, {KEY_ROWS: render_rows(keys)})
        return {(kind, name): version for kind, name, version in found}

    def _find(self, statement: Select[Any]) -> DefinitionVersion | None:
        row = self._connection.execute(statement).one_or_none()
        return None if row is None else _from_row(row)


def _of(kind: str, name: str) -> Select[Any]:
    return select(*_COLUMNS).where(_T.kind == kind, _T.name == name)


def _to_row(version: DefinitionVersion) -> dict[str, object]:
    row: dict[str, object] = {column.name: getattr(version, column.name) for column in _COLUMNS}
    return row | {"action": version.action.value, "format": version.format.value}


def _from_row(row: Sequence[Any]) -> DefinitionVersion:
    fields = dict(zip((column.name for column in _COLUMNS), row, strict=True))
    fields["action"] = DefinitionAction(fields["action"])
    fields["format"] = DocumentFormat(fields["format"])
    return DefinitionVersion(**fields)
