"""Store what failed in the ticks of a cluster: which unit of work, why, since when, and when it is tried again.

The table holds only what fails now; a unit that succeeds, or that no tick tries any more, has no row.
"""

from collections.abc import Iterable

from feed_assets.state.rows import RowMapper, TableStore, delete_keys
from feed_assets.state.schema import tick_failures
from feed_assets.state.tick_records import TickFailure, TickStep

_T = tick_failures.c
_KEY = ("cluster", "step", "subject")
_ROWS = RowMapper(tick_failures, TickFailure)


class TickFailures(TableStore):
    """The failures as one transaction sees them."""

    def all(self) -> list[TickFailure]:
        """Return the failures of all clusters, ordered by cluster, step and subject."""
        return _ROWS.find(self._connection, _ROWS.select.order_by(*(_T[name] for name in _KEY)))

    def put(self, failures: Iterable[TickFailure]) -> None:
        """Record failures; replace earlier ones of the same units."""
        _ROWS.put(self._connection, failures)

    def remove(self, keys: Iterable[tuple[str, TickStep, str]]) -> None:
        """Remove the failures of units, by (cluster, step, subject)."""
        delete_keys(self._connection, tick_failures, _KEY, keys)
