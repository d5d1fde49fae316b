"""Define the context of sweep workers."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from feed_assets.lifecycle.instances.context import LifecycleContext
from feed_assets.lifecycle.instances.leasing import TTL
from feed_assets.lifecycle.releases.timeline import ReleaseTimeline
from feed_assets.lifecycle.retention.claims import Claims, lease_holder
from feed_assets.lifecycle.retention.protections import ProtectionQuery
from feed_assets.plan.records import FeedRecord, Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepContext(LifecycleContext):
    """A context for running, undoing and purging sweeps: adds the releases and the worker.

    `holder` names one run of one worker (see `name_holder`); `origin` is the origin in events.
    """

    timeline: ReleaseTimeline
    holder: str
    origin: str = "retention"
    ttl: timedelta = TTL

    @property
    def plan(self) -> Plan:
        """The current plan."""
        return self.timeline.plan

    def claims(self, sweep_id: str) -> Claims:
        """Return this worker's claims on the chunks of a sweep."""
        return Claims(
            database=self.database, real_clock=self.real_clock, sweep_id=sweep_id, holder=self.holder, ttl=self.ttl
        )

    def protection_query(self, sweep_id: str, as_of: datetime) -> ProtectionQuery:
        """Return the query for the protections of a sweep's instances."""
        return ProtectionQuery(as_of=as_of, real_now=self.real_now, holder=lease_holder(sweep_id))

    def feed(self, feed: str, cluster: str) -> FeedRecord | None:
        """Return a feed on a cluster as it is declared now; None if it is not."""
        return self.plan.feeds.get((feed, cluster))
