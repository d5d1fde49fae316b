"""Store the journal of the definition store: planned file changes, so that interrupted changes are finished or
undone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, cast

from sqlalchemy import func, insert, select, update

from feed_assets.log.definitions.records import (
    Change,
    ChangeState,
    DefinitionAction,
    DocumentFormat,
    FileChange,
    NewDefinition,
    Rename,
)
from feed_assets.log.definitions.tables import changes
from feed_assets.sql.column_types import from_micros, to_micros
from feed_assets.sql.database import lock_definitions
from feed_assets.sql.rows import RowMapper, TableStore

_T = changes.c
_ROWS = RowMapper(changes, Change)
_COLUMNS = (*_ROWS.columns, _T.content)
_FILE_FIELDS = ("file", "before", "after", "before_digest", "after_digest")


class Changes(TableStore):
    """The journal as one transaction sees it."""

    def prepare(self, change: Change) -> Change:
        """Record a change before its first file is modified; return it with its number."""
        lock_definitions(self._connection)
        number = self.last_number() + 1
        prepared = replace(change, number=number, state=ChangeState.PREPARED)
        self._connection.execute(insert(changes), _to_row(prepared))
        return prepared

    def end(self, change: Change, state: ChangeState, ended_at: datetime) -> bool:
        """Record that a prepared change is done or undone, and delete the contents of its files.

        Returns False, without effect, if another process has ended it already.
        """
        lock_definitions(self._connection)
        ended = replace(
            change,
            state=state,
            ended_at=ended_at,
            files=tuple(each.without_contents() for each in change.files),
            versions=tuple(replace(version, text=None) for version in change.versions),
        )
        is_prepared = (_T.change_id == change.change_id) & (_T.state == ChangeState.PREPARED)
        return self._connection.execute(update(changes).where(is_prepared).values(_to_row(ended))).rowcount == 1

    def rewrite(self, versions: Mapping[tuple[str, str, str | None], tuple[str, str | None]]) -> None:
        """Give versions in the journal another name and digest, by kind, name and digest."""
        for change in self.all():
            changed = []
            for each in change.versions:
                name, digest = versions.get((each.kind, each.name, each.digest), (each.name, each.digest))
                changed.append(replace(each, name=name, digest=digest))
            if tuple(changed) != change.versions:
                row = _to_row(replace(change, versions=tuple(changed)))
                self._connection.execute(update(changes).where(_T.change_id == change.change_id).values(row))

    def prepared(self) -> list[Change]:
        """Return the changes that are neither done nor undone, oldest first."""
        statement = select(*_COLUMNS).where(_T.state == ChangeState.PREPARED).order_by(_T.number)
        return [_from_row(row) for row in self._connection.execute(statement)]

    def find(self, change_id: str) -> Change | None:
        """Return one change."""
        row = self._connection.execute(select(*_COLUMNS).where(_T.change_id == change_id)).one_or_none()
        return None if row is None else _from_row(row)

    def has_prepared(self) -> bool:
        """Return whether there is a change that is neither done nor undone."""
        statement = select(_T.number).where(_T.state == ChangeState.PREPARED).limit(1)
        return self._connection.scalar(statement) is not None

    def last_number(self) -> int:
        """Return the number of the newest change; 0 for an empty journal."""
        return self._connection.scalar(select(func.max(_T.number))) or 0

    def all(self) -> list[Change]:
        """Return the whole journal, in order; for checks, not for ticks."""
        return [_from_row(row) for row in self._connection.execute(select(*_COLUMNS).order_by(_T.number))]


def _to_row(change: Change) -> dict[str, object]:
    content = {
        "files": [[getattr(each, name) for name in _FILE_FIELDS] for each in change.files],
        "versions": [_version_to_json(version) for version in change.versions],
        **({} if (rename := change.rename) is None else {"rename": [rename.kind, rename.former, rename.name]}),
    }
    return _ROWS.values(change) | {"content": content}


def _from_row(row: Sequence[Any]) -> Change:
    *values, content = row
    change = _ROWS.load(
        values,
        files=tuple(FileChange(**dict(zip(_FILE_FIELDS, each, strict=True))) for each in content["files"]),
        versions=tuple(_version_from_json(version) for version in content["versions"]),
    )
    if "rename" not in content:
        return change
    kind, former, name = content["rename"]
    rename = Rename(kind=kind, former=former, name=name, renamed_at=change.begun_at, author=change.author)
    return replace(change, rename=rename)


def _version_to_json(version: NewDefinition) -> dict[str, object]:
    fields = {name: getattr(version, name) for name in NewDefinition.__dataclass_fields__}
    enums = {"action": version.action.value, "format": version.format.value}
    return fields | enums | {"recorded_at": to_micros(version.recorded_at)}


def _version_from_json(fields: Mapping[str, object]) -> NewDefinition:
    values: dict[str, Any] = dict(fields)
    values["action"] = DefinitionAction(values["action"])
    values["format"] = DocumentFormat(values["format"])
    values["recorded_at"] = from_micros(cast(int, values["recorded_at"]))
    return NewDefinition(**values)
