"""Totals of what has ended, for metrics: how often, and how much. A scrape reads them instead of the history.

They are written in the transaction in which the work ends, so a crash loses and repeats nothing.
"""

from collections.abc import Iterable
from datetime import timedelta
from enum import StrEnum
from functools import cache
from typing import NamedTuple, cast

from sqlalchemy import BigInteger, Column, Connection, Insert, func, select

from feed_assets.entities.common import Kind
from feed_assets.sql.column_types import Choice, Text
from feed_assets.sql.names import names_by
from feed_assets.sql.rows import RowMapper, TableStore, build_insert
from feed_assets.sql.tables import define_table


class TotalKind(StrEnum):
    """What is counted, with the meaning of `label` and the unit of `amount`.

    ATTEMPTS: ended attempts by status, microseconds. STARTS: begun attempts by cause. START_DELAY: first attempts,
    microseconds from the nominal time. QUEUE: attempts, microseconds from READY. ENDS: ended process instances by
    status. EVENTS: events of a feed by kind, bytes. ARRIVAL_DELAY: arrivals, microseconds from the nominal time.
    COPIED and COPYING: copies of a feed by source cluster, bytes and microseconds. SWEEPS: ended sweeps by state.
    FEED_MISSES and PROCESS_MISSES: missed deadlines by level.
    """

    ATTEMPTS = "ATTEMPTS"
    STARTS = "STARTS"
    START_DELAY = "START_DELAY"
    QUEUE = "QUEUE"
    ENDS = "ENDS"
    EVENTS = "EVENTS"
    ARRIVAL_DELAY = "ARRIVAL_DELAY"
    COPIED = "COPIED"
    COPYING = "COPYING"
    SWEEPS = "SWEEPS"
    FEED_MISSES = "FEED_MISSES"
    PROCESS_MISSES = "PROCESS_MISSES"


_OF_FEEDS = {TotalKind.EVENTS, TotalKind.ARRIVAL_DELAY, TotalKind.COPIED, TotalKind.COPYING, TotalKind.FEED_MISSES}


def _kind_of_total(kind: TotalKind) -> Kind:
    return Kind.FEED if kind in _OF_FEEDS else Kind.PROCESS


totals = define_table(
    "fa_totals",
    Column("kind", Choice(TotalKind), nullable=False),
    Column("entity", Text, nullable=False, info=names_by("kind", TotalKind, _kind_of_total)),
    Column("cluster", Text, nullable=False),
    Column("label", Text, nullable=False),
    Column("occurrences", BigInteger, nullable=False),
    Column("amount", BigInteger, nullable=False),
    key=("kind", "entity", "cluster", "label"),
)


_T = totals.c
_PENDING = "feed_assets/totals"
_MICROSECOND = timedelta(microseconds=1)


class Total(NamedTuple):
    """How often something has happened to an entity on a cluster, and how much of it; or an increase of both.

    `entity` and `label` are empty where they do not apply.
    """

    kind: TotalKind
    entity: str
    cluster: str
    label: str = ""
    occurrences: int = 1
    amount: int = 0


_ROWS = RowMapper(totals, Total)


class Totals(TableStore):
    """The totals as one transaction sees them."""

    def add(self, increases: Iterable[Total]) -> None:
        """Increase totals. They are written just before the commit (see `write_totals`)."""
        pending = cast("dict[tuple[str, ...], Total]", self._connection.info.setdefault(_PENDING, {}))
        for each in increases:
            key = (each.kind, each.entity, each.cluster, each.label)
            was = pending.get(key, each._replace(occurrences=0, amount=0))
            occurrences, amount = was.occurrences + each.occurrences, was.amount + each.amount
            pending[key] = each._replace(occurrences=occurrences, amount=amount)

    def all(self) -> list[Total]:
        """Return all totals as they are committed, ordered by kind, entity, cluster and label.

        The cost grows with entities, not with what has happened to them.
        """
        statement = _ROWS.select.where(_T.kind.in_(list(TotalKind)))
        return sorted(_ROWS.find(self._connection, statement))

    def occurrences(self, kind: TotalKind, entity: str, cluster: str) -> int:
        """Return how often something has happened to an entity on a cluster, as it is committed."""
        is_one = (_T.kind == kind, _T.entity == entity, _T.cluster == cluster)
        return int(self._connection.scalar(select(func.sum(_T.occurrences)).where(*is_one)) or 0)


def microseconds(span: timedelta) -> int:
    """Return a span in microseconds; 0 for a negative one, which a clock that was set back has caused."""
    return max(0, span // _MICROSECOND)


def forget_totals(connection: Connection) -> None:
    """Drop increases that an earlier transaction of the same session has not written."""
    connection.info.pop(_PENDING, None)


def write_totals(connection: Connection) -> None:
    """Write the increases of a transaction.

    On PostgreSQL this locks rows that many transactions write. It is the last thing before the commit, and in the order
    of the keys: so nothing is awaited while they are locked, and no two transactions wait for one another.
    """
    pending = cast("dict[tuple[str, ...], Total]", connection.info.pop(_PENDING, {}))
    if not pending:
        return
    rows = [_ROWS.values(total) for _, total in sorted(pending.items())]
    connection.execute(_increase(connection.dialect.name), rows)


@cache  # measured: building it takes longer than executing it
def _increase(dialect: str) -> Insert:
    new = build_insert(dialect, totals)
    sums = {"occurrences": _T.occurrences + new.excluded.occurrences, "amount": _T.amount + new.excluded.amount}
    return new.on_conflict_do_update(index_elements=[column.name for column in totals.primary_key], set_=sums)
