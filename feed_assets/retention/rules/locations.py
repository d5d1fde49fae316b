"""Find the locations and stores that retention handles, by kind or by URL."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

from feed_assets.context.operation import TimelineContext
from feed_assets.entities.common import LocationKind
from feed_assets.entities.locations.overlaps import Places
from feed_assets.log.instances.feed_places import FeedPlaces
from feed_assets.plan.copy_records import StoreAddress
from feed_assets.plan.records import FeedRecord, Plan, RetainedLocation
from feed_assets.storage.port import InstanceStore

_REMAINS = timedelta(days=7)
"""How long what is left of an interrupted purge is looked for in the store of a former place."""


def find_location(record: FeedRecord | None, kind: str) -> RetainedLocation | None:
    """Return the location of a kind that retention sweeps; None if there is none, or an obstacle prevents sweeps."""
    location = find_declared_location(record, kind)
    return None if location is None or location.obstacle is not None else location


def find_declared_location(record: FeedRecord | None, kind: str) -> RetainedLocation | None:
    """Return the location of a kind, whether it is swept or not."""
    if record is None or record.retention is None:
        return None
    return next((each for each in record.retention.locations if each.kind == kind), None)


def at_former(there: FeedRecord, obstacle: str | None = None) -> FeedRecord:
    """Return a feed at a former place with its retention there, of its data only; `obstacle` as in the location."""
    location = RetainedLocation(kind=LocationKind.DATA, store=there.store, template=there.template, obstacle=obstacle)
    return replace(there, retention=there.retention and replace(there.retention, locations=(location,)))


def store_addresses(context: TimelineContext, cluster: str) -> tuple[StoreAddress, ...]:
    """Return every store that may hold a trash of a cluster's sweeps, the cluster's own first.

    Those of former places count until a while after the purge, which may have been interrupted.
    """
    found = dict.fromkeys(_iter_addresses(context.plan, cluster))
    urls = {address.url for address in found}
    records = [record for record in context.plan.feeds.values() if record.cluster == cluster]
    with context.database.read() as connection:
        former = FeedPlaces(connection).find_swept(records, context.clock.now() - _REMAINS)
    return (*found, *(address for address in dict.fromkeys(former) if address.url not in urls))


def find_store(context: TimelineContext, cluster: str, url: str) -> InstanceStore | None:
    """Return the store of a cluster, or of an archive of its feeds, whose root is this place; None if there is none."""
    archives = (
        record.retention.archive[0]
        for record in context.plan.feeds.values()
        if record.cluster == cluster and record.retention is not None and record.retention.archive is not None
    )
    places = Places()
    for address in dict.fromkeys([*store_addresses(context, cluster), *archives]):
        store = context.stores.get(address)
        if places.canonical(store.root_url) == places.canonical(url):
            return store
    return None


def archive_path(record: FeedRecord, nominal_time: datetime) -> tuple[StoreAddress, str] | None:
    """Return the store and path of an instance's archive; None if the feed is not archived."""
    if record.retention is None or record.retention.archive is None:
        return None
    address, template = record.retention.archive
    return address, template.render(nominal_time).lstrip("/")


def base_below_root(location: RetainedLocation) -> str:
    """Return the folder above all variable parts, relative to the store's root: it is never removed."""
    return location.template.base.strip("/")


def iter_data(record: FeedRecord) -> Iterator[tuple[StoreAddress, str]]:
    """Yield the stores and path templates of a feed's locations, those of its data first."""
    yield record.store, record.template.text
    yield from ((each.store, each.template.text) for each in (record.retention.locations if record.retention else ()))


def _iter_addresses(plan: Plan, cluster: str) -> Iterator[StoreAddress]:
    if cluster in plan.clusters:
        yield plan.clusters[cluster].store
    for record in plan.feeds.values():
        if record.cluster == cluster:
            yield from (address for address, _ in iter_data(record))
    for process in plan.processes.values():
        if process.cluster == cluster:
            yield from (target.store for _, target in process.directories)
