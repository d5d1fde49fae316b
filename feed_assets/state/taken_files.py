"""Store the files that were taken from inboxes, each with the event of the instance that has it now."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from sqlalchemy import Connection, insert

from feed_assets.state.keyed import KEY_ROWS, render_rows, select_keyed
from feed_assets.state.rows import RowMapper
from feed_assets.state.schema import taken_files

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


class TakenFiles:
    """The taken files as one transaction sees them. None is ever forgotten."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, files: Iterable[TakenFile]) -> None:
        """Record files of a new instance."""
        rows = [_ROWS.values(file) for file in files]
        if rows:
            self._connection.execute(insert(taken_files), rows)

    def of_contents(self, feed: str, cluster: str, checksums: Collection[str]) -> list[TakenFile]:
        """Return the files with some contents that the feed has had, in the order of their events."""
        names = ("feed", "cluster", "checksum")
        return self._find(names, [(feed, cluster, checksum) for checksum in sorted(checksums)])

    def of_events(self, events: Collection[int]) -> list[TakenFile]:
        """Return the files of some events, by event and name."""
        return self._find(("event",), [(event,) for event in sorted(events)])

    def _find(self, names: tuple[str, ...], keys: Collection[tuple[str | int, ...]]) -> list[TakenFile]:
        if not keys:
            return []
        statement = select_keyed(self._connection.dialect.name, taken_files, names, _ROWS.columns)
        found = _ROWS.find(self._connection, statement, {KEY_ROWS: render_rows(keys)})
        return sorted(found, key=lambda file: (file.event, file.name))
