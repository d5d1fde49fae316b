"""The table of totals, which belongs to the same schema as all other tables, and what is counted in it."""

from enum import StrEnum

from sqlalchemy import BigInteger, Column

from feed_assets.sql.column_types import Choice, Text
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


totals = define_table(
    "fa_totals",
    Column("kind", Choice(TotalKind), nullable=False),
    Column("entity", Text, nullable=False),
    Column("cluster", Text, nullable=False),
    Column("label", Text, nullable=False),
    Column("occurrences", BigInteger, nullable=False),
    Column("amount", BigInteger, nullable=False),
    key=("kind", "entity", "cluster", "label"),
)
