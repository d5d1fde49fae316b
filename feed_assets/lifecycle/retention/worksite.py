"""What whoever works on sweeps has at hand: the record, storage, the definitions, the time, and a name of his own."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from feed_assets.clock import Clock
from feed_assets.lifecycle.governance import Governance
from feed_assets.lifecycle.leasing import TTL
from feed_assets.lifecycle.retention.claims import Claims, lease_holder
from feed_assets.lifecycle.retention.keepers import Asked
from feed_assets.lifecycle.stores import StorePool
from feed_assets.plan.records import FeedRecord, Plan
from feed_assets.state.database import Database


@dataclass(frozen=True, slots=True, kw_only=True)
class Worksite:
    """Everything that running, undoing and purging need.

    `clock` is the time of the data, `wall` that of leases. `holder` names one run of one worker (see `name_holder`),
    `origin` is what events say of who did it.
    """

    database: Database
    stores: StorePool
    governance: Governance
    clock: Clock
    wall: Clock
    holder: str
    origin: str = "retention"
    ttl: timedelta = TTL

    @property
    def plan(self) -> Plan:
        """What is declared now."""
        return self.governance.plan

    def claims(self, sweep_id: str) -> Claims:
        """The chunks of a sweep, as this worker takes them."""
        return Claims(database=self.database, wall=self.wall, sweep_id=sweep_id, holder=self.holder, ttl=self.ttl)

    def asked(self, sweep_id: str, as_of: datetime) -> Asked:
        """How it is asked what protects the instances of a sweep."""
        return Asked(as_of=as_of, wall=self.wall.now(), holder=lease_holder(sweep_id))

    def feed(self, feed: str, cluster: str) -> FeedRecord | None:
        """A feed on a cluster as it is declared now; None if it is not."""
        return self.plan.feeds.get((feed, cluster))
