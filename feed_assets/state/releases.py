"""Which definitions govern the instances of each process: its releases, each from a nominal time on."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, select

from feed_assets.state.definition_records import Member, Release
from feed_assets.state.records import EntityKey
from feed_assets.state.schema import releases
from feed_assets.state.upserts import build_upsert

_T = releases.c
_COLUMNS = (
    _T.process,
    _T.cluster,
    _T.release,
    _T.effective_from,
    _T.sign,
    _T.members,
    _T.recorded_at,
    _T.reason,
)


class Releases:
    """The releases as one transaction sees them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def of(self, process: str, cluster: str) -> list[Release]:
        """The releases of a process, by their numbers."""
        statement = select(*_COLUMNS).where(_T.process == process, _T.cluster == cluster).order_by(_T.release)
        return [_from_row(row) for row in self._connection.execute(statement)]

    def on(self, cluster: str) -> dict[EntityKey, list[Release]]:
        """The releases of all processes of a cluster, by their numbers."""
        found: dict[EntityKey, list[Release]] = defaultdict(list)
        statement = select(*_COLUMNS).where(_T.cluster == cluster).order_by(_T.process, _T.release)
        for release in map(_from_row, self._connection.execute(statement)):
            found[EntityKey(release.process, release.cluster)].append(release)
        return dict(found)

    def all(self) -> dict[EntityKey, list[Release]]:
        """The releases of all processes, by their numbers."""
        found: dict[EntityKey, list[Release]] = defaultdict(list)
        statement = select(*_COLUMNS).order_by(_T.process, _T.cluster, _T.release)
        for release in map(_from_row, self._connection.execute(statement)):
            found[EntityKey(release.process, release.cluster)].append(release)
        return dict(found)

    def put(self, rows: Iterable[Release]) -> None:
        """Insert releases, or replace those with the same number."""
        parameters = [_to_row(row) for row in rows]
        if parameters:
            self._connection.execute(build_upsert(self._connection.dialect.name, releases), parameters)


def _to_row(release: Release) -> dict[str, object]:
    row = {column.name: getattr(release, column.name) for column in _COLUMNS}
    return row | {"members": {"members": [[each.kind, each.name, each.version] for each in release.members]}}


def _from_row(row: Sequence[Any]) -> Release:
    process, cluster, release, effective_from, sign, members, recorded_at, reason = row
    return Release(
        process=process,
        cluster=cluster,
        release=release,
        effective_from=effective_from,
        sign=sign,
        members=tuple(Member(kind=kind, name=name, version=version) for kind, name, version in members["members"]),
        recorded_at=recorded_at,
        reason=reason,
    )
