"""Store the releases of each process: which definitions govern its instances from which nominal time on, and with which
files of workflows.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    LargeBinary,
    PrimaryKeyConstraint,
    Table,
    select,
)

from feed_assets.log.definitions.records import Member, Release
from feed_assets.log.records import EntityKey
from feed_assets.sql.column_types import Entries, Text, UtcDateTime
from feed_assets.sql.rows import RowMapper, TableStore, build_insert_if_absent
from feed_assets.sql.tables import define_table, metadata


def _member_values(member: Member) -> list[object]:
    return [member.kind, member.name, member.version]


def _to_member(values: list[Any]) -> Member:
    kind, name, version = values
    return Member(kind=kind, name=name, version=version)


releases = define_table(
    "fa_releases",
    Column("process", Text, nullable=False),
    Column("cluster", Text, nullable=False),
    Column("release", BigInteger, nullable=False),
    Column("effective_from", UtcDateTime, nullable=False),
    Column("fingerprint", Text, nullable=False),
    Column("members", Entries(_member_values, _to_member), nullable=False),
    Column("recorded_at", UtcDateTime, nullable=False),
    Column("reason", Text, nullable=False),
    key=("process", "cluster", "release"),
)

workflow_files = Table(
    "fa_workflow_files",
    metadata,
    Column("digest", Text, nullable=False),
    Column("content", LargeBinary, nullable=False),
    PrimaryKeyConstraint("digest", name="fa_workflow_files_pk"),
)


_T = releases.c
_ROWS = RowMapper(releases, Release)
_F = workflow_files.c


class Releases(TableStore):
    """The releases as one transaction sees them."""

    def of(self, process: str, cluster: str) -> list[Release]:
        """Return the releases of a process, by number."""
        statement = _ROWS.select.where(_T.process == process, _T.cluster == cluster).order_by(_T.release)
        return _ROWS.find(self._connection, statement)

    def on(self, cluster: str) -> dict[EntityKey, list[Release]]:
        """Return the releases of all processes of a cluster, by number."""
        return self._by_process(_T.cluster == cluster)

    def all(self) -> dict[EntityKey, list[Release]]:
        """Return the releases of all processes, by number."""
        return self._by_process()

    def put(self, rows: Iterable[Release]) -> None:
        """Insert releases, or replace those with the same number."""
        _ROWS.put(self._connection, rows)

    def _by_process(self, *conditions: ColumnElement[bool]) -> dict[EntityKey, list[Release]]:
        found: dict[EntityKey, list[Release]] = defaultdict(list)
        statement = _ROWS.select.where(*conditions).order_by(_T.process, _T.cluster, _T.release)
        for release in _ROWS.find(self._connection, statement):
            found[EntityKey(release.process, release.cluster)].append(release)
        return dict(found)


class WorkflowFiles(TableStore):
    """The contents of files of workflows as one transaction sees them: each once for all releases, never removed."""

    def find(self, digest: str) -> bytes | None:
        """Return a content; None if it is not stored."""
        return self._connection.execute(select(_F.content).where(_F.digest == digest)).scalar()

    def known(self, digests: Collection[str]) -> frozenset[str]:
        """Return those of some digests whose content is stored."""
        found: set[str] = set()
        ordered = sorted(digests)
        for start in range(0, len(ordered), 500):
            statement = select(_F.digest).where(_F.digest.in_(ordered[start : start + 500]))
            found.update(self._connection.execute(statement).scalars())
        return frozenset(found)

    def put(self, contents: Mapping[str, bytes]) -> None:
        """Store contents by their digests."""
        if contents:
            rows = [{"digest": digest, "content": content} for digest, content in sorted(contents.items())]
            self._connection.execute(build_insert_if_absent(self._dialect, workflow_files), rows)
