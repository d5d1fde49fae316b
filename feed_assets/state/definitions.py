"""Every version of every definition, oldest kept for ever: what is declared now, what was, and who changed it."""

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, Select, and_, func, insert, select

from feed_assets.state.database import lock_definitions
from feed_assets.state.definition_records import DefinitionAction, DefinitionVersion, DocumentFormat, NewDefinition
from feed_assets.state.schema import definitions

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
        numbers = self._newest_numbers()
        versions = []
        for definition in new:
            key = (definition.kind, definition.name)
            numbers[key] = numbers.get(key, 0) + 1
            fields = {name: getattr(definition, name) for name in NewDefinition.__dataclass_fields__}
            versions.append(DefinitionVersion(**fields, version=numbers[key]))
        self._connection.execute(insert(definitions), [_to_row(version) for version in versions])
        return versions

    def newest(self) -> dict[tuple[str, str], DefinitionVersion]:
        """The newest version of every entity that was ever declared, deleted ones included; by (kind, name)."""
        newest = select(_T.kind, _T.name, func.max(_T.version).label("version")).group_by(_T.kind, _T.name).subquery()
        is_newest = and_(_T.kind == newest.c.kind, _T.name == newest.c.name, _T.version == newest.c.version)
        found = self._connection.execute(select(*_COLUMNS).join(newest, is_newest))
        return {version.key: version for version in map(_from_row, found)}

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

    def of_change(self, change_id: str) -> list[DefinitionVersion]:
        """The versions that one change made."""
        statement = select(*_COLUMNS).where(_T.change_id == change_id).order_by(_T.kind, _T.name)
        return [_from_row(row) for row in self._connection.execute(statement)]

    def _newest_numbers(self) -> dict[tuple[str, str], int]:
        statement = select(_T.kind, _T.name, func.max(_T.version)).group_by(_T.kind, _T.name)
        return {(kind, name): version for kind, name, version in self._connection.execute(statement)}

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
