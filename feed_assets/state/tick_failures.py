"""Store what failed in the ticks of a cluster: which unit of work, why, since when, and when it is tried again.

The table holds only what fails now; a unit that succeeds, or that no tick tries any more, has no row.
"""

from collections.abc import Iterable

from sqlalchemy import Connection

from feed_assets.state.rows import RowMapper, delete_keys
from feed_assets.state.schema import tick_failures
from feed_assets.state.tick_records import TickFailure, TickStep
from feed_assets.state.upserts import build_upsert

_T = tick_failures.c
_KEY = ("cluster", "step", "subject")
_ROWS = RowMapper(tick_failures, TickFailure)


class TickFailures:
    """The failures as one transaction sees them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def all(self) -> list[TickFailure]:
        """Return the failures of all clusters, ordered by cluster, step and subject."""
        return _ROWS.find(self._connection, _ROWS.select.order_by(*(_T[name] for name in _KEY)))

    def put(self, failures: Iterable[TickFailure]) -> None:
        """Record failures; replace earlier ones of the same units."""
        rows = [_ROWS.values(failure) for failure in failures]
        if rows:
            self._connection.execute(build_upsert(self._connection.dialect.name, tick_failures), rows)

    def remove(self, keys: Iterable[tuple[str, TickStep, str]]) -> None:
        """Remove the failures of units, by (cluster, step, subject)."""
        delete_keys(self._connection, tick_failures, _KEY, keys)
