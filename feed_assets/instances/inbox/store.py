"""Store the files that were taken from inboxes, each with the event of the instance that has it now."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from sqlalchemy import (
    BigInteger,
    Column,
    Index,
)

from feed_assets.sql.column_types import Text
from feed_assets.sql.names import NAMES_FEED
from feed_assets.sql.rows import RowMapper, TableStore
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


_T = taken_files.c


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

    def _find(self, names: tuple[str, ...], keys: Collection[tuple[str | int, ...]]) -> list[TakenFile]:
        return sorted(_ROWS.of_keys(self._connection, names, keys), key=lambda file: (file.event, file.name))
