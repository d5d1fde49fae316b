"""The steps of ticks, and what failed in them on a cluster: which unit of work, why, since when,
and when it is tried again.

The table holds only what fails now; a unit that succeeds, or that no tick tries any more, has no row.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sqlalchemy import (
    BigInteger,
    Column,
    update,
)

from feed_assets.entities.common import Kind
from feed_assets.sql.column_types import Choice, Text, UtcDateTime
from feed_assets.sql.rows import RowMapper, TableStore, delete_keys
from feed_assets.sql.tables import define_table


class TickStep(StrEnum):
    """The step of a tick to which a unit of work belongs; the comment says what the unit is.

    The last five are steps of the sensors for deadlines and for late data and of the jobs of retention and replication,
    all others of the arrival sensor.
    """

    DEFINITIONS = "definitions"  # what the location declares
    RECONCILIATION = "reconciliation"  # the runs of the cluster
    SPARK = "Spark"  # a Spark Connect server
    STAGING_SWEEP = "staging sweep"  # the address of a store
    STORAGE = "storage"  # the endpoint of stores
    MATERIALIZATIONS = "materializations"  # a feed that an asset of another Dagster code produces
    WATCHES = "watches"  # a feed whose instances come as they come
    STORED_DATA = "stored data"  # a store
    INBOXES = "inboxes"  # a feed with an inbox
    ARRIVALS = "arrivals"  # the polls of the cluster
    PAST_ARRIVALS = "past arrivals"  # a process with older releases
    RETRIES = "retries"  # a process
    INSTANCES = "instances"  # a process
    EVENTS = "events"  # the queues of the cluster
    TRIGGERS = "triggers"  # a process
    GATES = "gates"  # a process
    UPDATES = "updates"  # a process
    REQUESTS = "requests"  # a process
    NOTICES = "notices"  # a process
    REPORTS = "reports"  # a feed
    PARTITIONS = "partitions"  # a grid
    POOLS = "pools"  # the pools of the cluster
    DEADLINES = "deadlines"  # a feed or process with an SLA
    FORECASTS = "forecasts"  # the same, if it warns
    LATE_DATA = "late data"  # a feed
    RETENTION = "retention"  # a feed, a sweep, or the trash of a sweep
    REPLICATION = "replication"  # a flow

    @property
    def kind(self) -> Kind | None:
        """The kind of entity that a unit of the step is; None if it is something else, or not always one kind."""
        match self:
            case TickStep.MATERIALIZATIONS | TickStep.WATCHES | TickStep.INBOXES | TickStep.REPORTS:
                return Kind.FEED
            case TickStep.PAST_ARRIVALS | TickStep.RETRIES | TickStep.INSTANCES | TickStep.TRIGGERS:
                return Kind.PROCESS
            case TickStep.GATES | TickStep.UPDATES | TickStep.NOTICES | TickStep.REQUESTS:
                return Kind.PROCESS
            case _:
                return None


@dataclass(frozen=True, slots=True, kw_only=True)
class TickFailure:
    """A unit of work of a cluster's ticks that failed when it was last tried, and when it is tried next (real times).

    `subject` names the unit within its step; "" if the step has one unit. `failures` counts those in a row.
    """

    cluster: str
    step: TickStep
    subject: str
    reason: str
    since: datetime
    next_try_at: datetime
    failures: int = 1


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
