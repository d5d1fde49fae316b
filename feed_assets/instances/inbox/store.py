"""Store the files that were taken from inboxes, each with the event of the instance that has it now; and the versions
that looks have listed in inboxes that leave their files.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, fields
from enum import StrEnum

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Index,
    delete,
    select,
)

from feed_assets.log.records import FeedEvent, FeedEventKind
from feed_assets.sql.column_types import Choice, Text
from feed_assets.sql.names import NAMES_FEED
from feed_assets.sql.rows import KEY_ROWS, RowMapper, TableStore, insert_rows, key_rows, render_rows
from feed_assets.sql.tables import define_table

taken_files = define_table(
    "fa_taken_files",
    Column("event", BigInteger, nullable=False),
    Column("name", Text, nullable=False),
    Column("feed", Text, nullable=False, info=NAMES_FEED),
    Column("cluster", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("checksum", Text, nullable=False),
    Index("fa_taken_files_by_content", "feed", "cluster", "checksum"),
    key=("event", "name"),
)


class VersionStatus(StrEnum):
    """What became of a version that a look has listed: it WAITS, it is TAKEN, or it went before it was read, because
    another one was OVERWRITTEN over it or the file was REMOVED.
    """

    WAITING = "WAITING"
    TAKEN = "TAKEN"
    OVERWRITTEN = "OVERWRITTEN"
    REMOVED = "REMOVED"


listed_versions = define_table(
    "fa_listed_versions",
    Column("feed", Text, nullable=False, info=NAMES_FEED),
    Column("cluster", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("version", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("status", Choice(VersionStatus), nullable=False),
    Column("event", BigInteger, nullable=False),
    key=("feed", "cluster", "name", "version"),
)

_L = listed_versions.c
_MISSED = (VersionStatus.OVERWRITTEN, VersionStatus.REMOVED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedVersion:
    """A version of a file. `event` is that which has taken it; of one that was missed, the last one in the log then;
    0 of one that waits. A `version` that is not known is "".
    """

    name: str
    version: str
    size: int
    status: VersionStatus
    event: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenFile:
    """A file that was in the inbox of a feed under this name; `event` is that of its instance."""

    event: int
    name: str
    feed: str
    cluster: str
    size: int
    checksum: str


_ROWS = RowMapper(taken_files, TakenFile)


class TakenFiles(TableStore):
    """The taken files as one transaction sees them. None is ever forgotten."""

    def add(self, files: Iterable[TakenFile]) -> None:
        """Record files of a new instance."""
        _ROWS.insert(self._connection, files)

    def of_contents(self, feed: str, cluster: str, checksums: Collection[str]) -> list[TakenFile]:
        """Return the files with some contents that the feed has had, in the order of their events."""
        names = ("feed", "cluster", "checksum")
        return self._find(names, [(feed, cluster, checksum) for checksum in sorted(checksums)])

    def of_events(self, events: Collection[int]) -> list[TakenFile]:
        """Return the files of some events, by event and name."""
        return self._find(("event",), [(event,) for event in sorted(events)])

    def brought_by(self, events: Collection[FeedEvent]) -> dict[int, list[TakenFile]]:
        """Return the files that some events have brought, by the number of the event; those without any are left out.

        What was held back is brought once more by the event that lets it in, if the one that held it is among them.
        """
        by_number = sorted(events, key=lambda each: each.seq, reverse=True)  # the first has them: an undo holds again
        held = {(each.key, each.manifest_digest): each.seq for each in by_number if each.kind is FeedEventKind.HELD}
        by = {each.seq: held.get((each.key, each.manifest_digest), each.seq) for each in events}
        files: dict[int, list[TakenFile]] = {}
        for file in self.of_events({*by.values()}):
            files.setdefault(file.event, []).append(file)
        return {seq: files[taken] for seq, taken in by.items() if taken in files}

    def _find(self, names: tuple[str, ...], keys: Collection[tuple[str | int, ...]]) -> list[TakenFile]:
        return sorted(_ROWS.of_keys(self._connection, names, keys), key=lambda file: (file.event, file.name))


_LISTED = RowMapper(listed_versions, ListedVersion)


class ListedVersions(TableStore):
    """The listed versions of one feed on one cluster, as one transaction sees them; with few statements."""

    def __init__(self, connection: Connection, feed: str, cluster: str) -> None:
        super().__init__(connection)
        self._key = (feed, cluster)

    def known(self) -> list[ListedVersion]:
        """Return the versions that wait or are taken."""
        return self._select(_L.status.not_in(_MISSED))

    def missed(self, first: int, last: int) -> list[ListedVersion]:
        """Return the versions that were missed from one event to another, in their order."""
        found = self._select(_L.status.in_(_MISSED), _L.event.between(first, last))
        return sorted(found, key=lambda each: (each.event, each.name))

    def put(self, versions: Iterable[ListedVersion]) -> None:
        """Write versions, or what became of them."""
        rows = [(*self._key, *_LISTED.values(each).values()) for each in versions]
        names = ("feed", "cluster", *(each.name for each in fields(ListedVersion)))
        insert_rows(self._connection, listed_versions, names, rows, replaces=True)

    def take(self, versions: Collection[ListedVersion]) -> None:
        """Write versions that were taken instead of those that were before."""
        self.forget(VersionStatus.TAKEN, [each.name for each in versions])
        self.put(versions)

    def forget(self, status: VersionStatus, names: Collection[str]) -> None:
        """Forget the versions of some names that have a status."""
        if names:
            keys = key_rows(self._dialect, ("name",))
            its = (*self._its(), _L.status == status, _L.name.in_(select(keys.c.name)))
            parameters = {KEY_ROWS: render_rows([(name,) for name in sorted(names)])}
            self._connection.execute(delete(listed_versions).where(*its), parameters)

    def _select(self, *conditions: ColumnElement[bool]) -> list[ListedVersion]:
        return _LISTED.find(self._connection, _LISTED.select.where(*self._its(), *conditions))

    def _its(self) -> tuple[ColumnElement[bool], ...]:
        feed, cluster = self._key
        return (_L.feed == feed, _L.cluster == cluster)
