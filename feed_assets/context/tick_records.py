"""Values of ticks: their steps, and what failed in them."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from feed_assets.entities.common import Kind


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
            case TickStep.GATES | TickStep.UPDATES | TickStep.REQUESTS:
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
