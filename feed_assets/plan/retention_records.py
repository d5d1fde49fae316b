"""The records of retention policies: how long instances of a feed are kept on a cluster, and at which places."""

from dataclasses import dataclass
from datetime import datetime

from feed_assets.entities.common import LocationKind, RetentionAction
from feed_assets.plan.addresses import StoreAddress
from feed_assets.timing.frequency import Frequency
from feed_assets.timing.templates import PathTemplate


@dataclass(frozen=True, slots=True, kw_only=True)
class RetainedLocation:
    """A location of a feed on a cluster that is under retention.

    `obstacle` is why nothing is ever removed there, as a clause for a message; None if there is no obstacle.
    """

    kind: LocationKind
    store: StoreAddress
    template: PathTemplate
    obstacle: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepLimits:
    """The most that one sweep may evict of a feed without confirmation: a share (0 to 1), a number, and bytes."""

    share: float = 0.5
    instances: int = 10_000
    bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRecord:
    """How long instances of a feed are kept on a cluster; the fields have the meaning of those of `Retention`.

    At least one of `limit`, `max_instances` and `max_bytes` is set. `stops_at` is the end of the validity if retention
    stops with it: instances are never judged as of a later moment. `cadence` is the interval between sweeps, `trash`
    the time for which removed data can be restored. `priority` is from 2 (first) to -2; `queue` is only displayed.
    `archive` is for the data; accompanying files go to the trash. `partition` is that of a table: such an
    instance is a whole period, and older than the limit when all of the period is.
    """

    limit: Frequency | None
    action: RetentionAction = RetentionAction.DELETE
    keep_newest: int = 0
    max_instances: int | None = None
    max_bytes: int | None = None
    until_read_by: tuple[str, ...] = ()
    until_replicated_to: tuple[str, ...] = ()
    stops_at: datetime | None = None
    cadence: Frequency
    trash: Frequency
    sweep_limits: SweepLimits = SweepLimits()
    priority: int = 0
    queue: str | None = None
    locations: tuple[RetainedLocation, ...] = ()
    archive: tuple[StoreAddress, PathTemplate] | None = None
    partition: PathTemplate | None = None

    def judged_at(self, as_of: datetime) -> datetime:
        """Return the moment as of which instances are judged: at the latest the time at which retention stops."""
        return as_of if self.stops_at is None else min(as_of, self.stops_at)

    def has_expired(self, nominal_time: datetime, as_of: datetime) -> bool:
        """Return whether an instance is older than the limit of age, if there is one."""
        return self.limit is not None and self.judged_at(as_of) - nominal_time > self.limit.as_duration()
