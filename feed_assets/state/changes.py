"""The journal of the definition store: what a change is about to do, so that a broken-off one is finished or undone."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, cast

from sqlalchemy import Connection, func, insert, select, update

from feed_assets.state.column_types import from_micros, to_micros
from feed_assets.state.database import lock_definitions
from feed_assets.state.definition_records import (
    Change,
    ChangeState,
    DefinitionAction,
    DocumentFormat,
    FileChange,
    NewDefinition,
)
from feed_assets.state.schema import changes

_T = changes.c
_COLUMNS = (_T.change_id, _T.number, _T.state, _T.author, _T.origin, _T.begun_at, _T.ended_at, _T.content)
_FILE_FIELDS = ("file", "before", "after", "before_digest", "after_digest")


class Changes:
    """The journal as one transaction sees it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def prepare(self, change: Change) -> Change:
        """Note a change before its first file is touched; returns it with its number."""
        lock_definitions(self._connection)
        number = self.last_number() + 1
        prepared = replace(change, number=number, state=ChangeState.PREPARED)
        self._connection.execute(insert(changes), _to_row(prepared))
        return prepared

    def end(self, change: Change, state: ChangeState, ended_at: datetime) -> bool:
        """Note that a prepared change is done, or undone, and forget the contents of its files.

        False, and nothing is noted, if somebody else has ended it already.
        """
        lock_definitions(self._connection)
        ended = replace(
            change,
            state=state,
            ended_at=ended_at,
            files=tuple(each.without_contents() for each in change.files),
            versions=tuple(replace(version, text=None) for version in change.versions),
        )
        is_prepared = (_T.change_id == change.change_id) & (_T.state == ChangeState.PREPARED.value)
        return self._connection.execute(update(changes).where(is_prepared).values(_to_row(ended))).rowcount == 1

    def prepared(self) -> list[Change]:
        """The changes that have neither been done nor undone, oldest first."""
        statement = select(*_COLUMNS).where(_T.state == ChangeState.PREPARED.value).order_by(_T.number)
        return [_from_row(row) for row in self._connection.execute(statement)]

    def find(self, change_id: str) -> Change | None:
        """One change."""
        row = self._connection.execute(select(*_COLUMNS).where(_T.change_id == change_id)).one_or_none()
        return None if row is None else _from_row(row)

    def has_prepared(self) -> bool:
        """Whether there is a change that has neither been done nor undone."""
        statement = select(_T.number).where(_T.state == ChangeState.PREPARED.value).limit(1)
        return self._connection.scalar(statement) is not None

    def last_number(self) -> int:
        """The number of the newest change; 0 for an empty journal."""
        return self._connection.scalar(select(func.max(_T.number))) or 0

    def all(self) -> list[Change]:
        """The whole journal, in order; for checks, not for ticks."""
        return [_from_row(row) for row in self._connection.execute(select(*_COLUMNS).order_by(_T.number))]


def _to_row(change: Change) -> dict[str, object]:
    content = {
        "files": [[getattr(each, name) for name in _FILE_FIELDS] for each in change.files],
        "versions": [_version_to_json(version) for version in change.versions],
    }
    return {
        "change_id": change.change_id,
        "number": change.number,
        "state": change.state.value,
        "author": change.author,
        "origin": change.origin,
        "begun_at": change.begun_at,
        "ended_at": change.ended_at,
        "content": content,
    }


def _from_row(row: Sequence[Any]) -> Change:
    change_id, number, state, author, origin, begun_at, ended_at, content = row
    return Change(
        change_id=change_id,
        number=number,
        state=ChangeState(state),
        author=author,
        origin=origin,
        begun_at=begun_at,
        ended_at=ended_at,
        files=tuple(FileChange(**dict(zip(_FILE_FIELDS, each, strict=True))) for each in content["files"]),
        versions=tuple(_version_from_json(version) for version in content["versions"]),
    )


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
