"""Store what failed in the ticks of a cluster: which unit of work, why, since when, and when it is tried again.

The table holds only what fails now; a unit that succeeds, or that no tick tries any more, has no row.
"""

from collections.abc import Collection, Iterable
from datetime import datetime

from sqlalchemy import (
    BigInteger,
    Column,
    update,
)

from feed_assets.context.tick_records import TickFailure, TickStep
from feed_assets.sql.column_types import Choice, Text, UtcDateTime
from feed_assets.sql.rows import RowMapper, TableStore, delete_keys
from feed_assets.sql.tables import define_table

tick_failures = define_table(
    "fa_tick_failures",
    Column("cluster", Text, nullable=False),
    Column("step", Choice(TickStep), nullable=False),
    Column("subject", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("since", UtcDateTime, nullable=False),
    Column("next_try_at", UtcDateTime, nullable=False),
    Column("failures", BigInteger, nullable=False),
    key=("cluster", "step", "subject"),
)


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

    def try_again(self, cluster: str, now: datetime, *, but: Collection[TickStep]) -> None:
        """Let the failed units of a cluster be due, but for those of some steps."""
        late = update(tick_failures).where(_T.cluster == cluster, _T.step.not_in(but), _T.next_try_at > now)
        self._connection.execute(late.values(next_try_at=now))

    def remove(self, keys: Iterable[tuple[str, TickStep, str]]) -> None:
        """Remove the failures of units, by (cluster, step, subject)."""
        delete_keys(self._connection, tick_failures, _KEY, keys)
