"""Where the trees of sweeps are: the stores of a cluster that retention looks after, found again by kind or by URL."""

from collections.abc import Iterator
from datetime import datetime

from feed_assets.lifecycle.stores import StorePool
from feed_assets.plan.addresses import StoreAddress
from feed_assets.plan.records import FeedRecord, Plan, RetainedLocation
from feed_assets.storage.port import InstanceStore


def find_location(record: FeedRecord | None, kind: str) -> RetainedLocation | None:
    """The location of a kind that retention of a feed looks after; None if it has none, or nothing is swept there."""
    place = find_place(record, kind)
    return None if place is None or place.obstacle is not None else place


def find_place(record: FeedRecord | None, kind: str) -> RetainedLocation | None:
    """The location of a kind, whether anything is swept there or not."""
    if record is None or record.retention is None:
        return None
    return next((each for each in record.retention.locations if each.kind == kind), None)


def store_addresses(plan: Plan, cluster: str) -> tuple[StoreAddress, ...]:
    """Every store in which sweeps of a cluster may have a trash, the cluster's own first."""
    found = dict.fromkeys(_iter_addresses(plan, cluster))
    return tuple(found)


def find_store(plan: Plan, stores: StorePool, cluster: str, url: str) -> InstanceStore | None:
    """The store of a cluster, or of an archive of its feeds, that has a root URL; None if nothing leads there."""
    archives = (
        record.retention.archive[0]
        for record in plan.feeds.values()
        if record.cluster == cluster and record.retention is not None and record.retention.archive is not None
    )
    for address in dict.fromkeys([*store_addresses(plan, cluster), *archives]):
        store = stores.get(address)
        if url in (address.url, store.root_url):
            return store
    return None


def archive_path(record: FeedRecord, nominal_time: datetime) -> tuple[StoreAddress, str] | None:
    """Where an instance's data go to when they are archived; None where they are not."""
    if record.retention is None or record.retention.archive is None:
        return None
    address, template = record.retention.archive
    return address, template.render(nominal_time, record.sequence.timezone).lstrip("/")


def base_below_root(location: RetainedLocation) -> str:
    """The folder above everything that varies, relative to the root of the store: it is never removed."""
    return location.template.base.strip("/")


def _iter_addresses(plan: Plan, cluster: str) -> Iterator[StoreAddress]:
    if cluster in plan.clusters:
        yield plan.clusters[cluster].store
    for record in plan.feeds.values():
        if record.cluster == cluster and record.retention is not None:
            yield from (location.store for location in record.retention.locations)
