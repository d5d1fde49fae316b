"""Let the table of a feed's catalog have what the record has: its AVAILABLE instances are partitions, and no others.

A registration is tried before what it follows from is recorded. If it fails, it is on the agenda, and a tick tries it
again; so does one for each event of the log. To settle an instance twice changes nothing, so a kill between the two
leaves nothing wrong for long.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from feed_assets.context.operation import LifecycleContext
from feed_assets.entities.maps import EMPTY
from feed_assets.errors import describe_error
from feed_assets.log.agenda import Agenda, AgendaKey, AgendaKind, AgendaRows, Planned
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.feed_places import FeedPlaces
from feed_assets.log.records import FeedInstance, FeedInstanceStatus, FeedKey
from feed_assets.plan.copy_records import StoreAddress
from feed_assets.plan.records import FeedRecord, Plan, RegistrationRecord, TableRecord
from feed_assets.registration.port import CatalogTable, OwnPlaces, RegisteredPlace
from feed_assets.releases.timeline import BEGINNING
from feed_assets.storage.iceberg.catalogs import lacks_iceberg, open_catalog
from feed_assets.storage.pool import StorePool
from feed_assets.storage.registry import open_metastore
from feed_assets.timing.dates import NEVER
from feed_assets.timing.templates import parse_path_template

UNSETTLED = timedelta(minutes=1)
"""When what is written or removed just now is looked at again."""
_AT_ONCE = 500
_MOMENT = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration(Planned):
    """That a table may not have what the record has of an instance, and why the last try failed."""

    reason: str | None = None
    kind: AgendaKind = AgendaKind.REGISTRATION

    @property
    def is_to_come(self) -> bool:
        """Whether it is looked at as somebody is at work there, not because a try has failed."""
        return self.reason is None and self.due_at != self.planned_at


class Registrations(Agenda[Registration]):
    """What is to be registered, as one transaction sees it."""

    rows = AgendaRows(Registration, reason=lambda each: each)

    def of_instances(self, keys: Iterable[FeedKey]) -> dict[FeedKey, Registration]:
        """Return what is to be registered of instances; those without anything are left out."""
        found = self.get_many([AgendaKey(AgendaKind.REGISTRATION, *key) for key in keys])
        return {each.feed_key: each for each in found.values()}

    def plan(
        self, keys: Iterable[FeedKey], as_of: datetime, due_at: datetime | None = None, reason: str | None = None
    ) -> None:
        """Let instances be registered at a time, by default now."""
        self.put(
            Registration(
                name=key.feed,
                cluster=key.cluster,
                nominal_time=key.nominal_time,
                planned_at=as_of,
                due_at=due_at or as_of,
                reason=reason,
            )
            for key in keys
        )


def open_table(context: LifecycleContext, record: FeedRecord) -> CatalogTable:
    """Open the table of a feed that has one; nothing is contacted.

    Raises `StoreUnknownError` if a package is missing.
    """
    registration = record.registration
    assert registration is not None
    with context.database.read() as connection:
        places = FeedPlaces(connection).every(record)
    samples = [(each, each.path(each.sequence.start)) for each in places]
    own = OwnPlaces(
        places=tuple((context.stores.url(each.store, path).removesuffix(f"/{path}"), each) for each, path in samples)
    )
    options = registration.store.options
    if "catalog" not in options:
        from feed_assets.registration.hive import HiveTable

        return HiveTable(record, registration, own, open_metastore(registration.store.url))
    catalog_options, storage_options = options["catalog_options"], options["storage_options"]
    assert isinstance(catalog_options, Mapping)
    assert isinstance(storage_options, Mapping)
    try:
        from feed_assets.registration.iceberg import IcebergTable
    except ImportError as exc:
        raise lacks_iceberg(registration.store.url, exc) from exc

    catalog = open_catalog(str(options["catalog"]), catalog_options, str(options["storage"]), storage_options)
    return IcebergTable(record, registration, own, catalog)


def place_of(stores: StorePool, record: FeedRecord, there: FeedRecord, nominal_time: datetime) -> RegisteredPlace:
    """Return an instance for the table of a feed; `there` is the feed where the instance is."""
    assert record.registration is not None
    return RegisteredPlace(
        nominal_time=nominal_time,
        partition=record.registration.template.render(nominal_time),
        store=stores.get(there.store),
        path=there.path(nominal_time),
        flag=there.flag,
    )


def iter_places(
    context: LifecycleContext, record: FeedRecord, first: datetime, last: datetime
) -> Iterator[tuple[list[FeedInstance], list[RegisteredPlace]]]:
    """Yield the recorded instances of a feed between two times, oldest first, with their places for its table."""
    while True:
        with context.database.read() as connection:
            rows = FeedInstances(connection).find_between(*record.key, first, last, limit=_AT_ONCE)
            places = FeedPlaces(connection)
            there = [places.at_place(record, row) for row in rows]
        if rows:
            at = zip(there, rows, strict=True)
            yield rows, [place_of(context.stores, record, each, row.nominal_time) for each, row in at]
        if len(rows) < _AT_ONCE:
            return
        first = rows[-1].nominal_time + _MOMENT


def find_former(plan: Plan, record: FeedRecord, address: str) -> FeedRecord | None:
    """Return a feed with the table that it had, by its address; None if that is in another catalog."""
    (url, _, template), cluster = address.partition("#"), plan.clusters[record.cluster]
    catalog, database, name = url.rsplit("/", 2)
    scheme, _, hosts = catalog.partition("://")
    if cluster.lake is not None:
        is_same, options = catalog == cluster.lake.url, cluster.lake.options
    else:
        catalog = ",".join(f"{scheme}://{host}" for host in hosts.split(","))
        is_same, options = catalog == cluster.catalog, EMPTY
    if not is_same:
        return None
    table, store = TableRecord(catalog=catalog, database=database, name=name), StoreAddress(url=url, options=options)
    path = parse_path_template(template)
    return replace(record, registration=RegistrationRecord(table=table, store=store, template=path))


def drop_former(context: LifecycleContext, record: FeedRecord, former: FeedRecord) -> None:
    """Drop what a feed has registered in a table that it had, or in its own by other names.

    Raises:
        StorageError: the catalog is away, or refuses.
    """
    assert former.registration is not None
    is_own = record.registration is not None and record.registration.store.url == former.registration.store.url
    sliced = iter_places(context, record, BEGINNING, NEVER) if is_own else ()
    known = [each for _, places in sliced for each in places]
    table = open_table(context, record if is_own else former)
    table.find_others(known, BEGINNING, NEVER, drop=True)


def settle(context: LifecycleContext, record: FeedRecord, times: Collection[datetime]) -> Mapping[datetime, str]:
    """Let the table have what the record has of some instances; return why some cannot be registered.

    Raises:
        StorageError: the catalog is away, or the table is refused.
    """
    keys = [FeedKey(*record.key, time) for time in times]
    with context.database.read() as connection:
        rows = FeedInstances(connection).get_many(keys)
        places = FeedPlaces(connection)
        there = {key: places.at_place(record, rows.get(key)) for key in keys}
    table = open_table(context, record)
    found = {key: place_of(context.stores, record, there[key], key.nominal_time) for key in keys}
    is_there = {key: key in rows and rows[key].status is FeedInstanceStatus.AVAILABLE for key in keys}
    gone = [place for key, place in found.items() if not is_there[key]]
    if gone:
        table.drop(gone)
    new = [place for key, place in found.items() if is_there[key]]
    return table.put(new) if new else {}


def look_later(context: LifecycleContext, declared: FeedRecord | None, times: Collection[datetime]) -> None:
    """Let instances be looked at in a while, as they are about to be written or removed: whoever does so may die
    before the table and the record have what is there.
    """
    if declared is not None and declared.registration is not None:
        now = context.clock.now()
        with context.database.begin() as connection:
            Registrations(connection).plan([FeedKey(*declared.key, time) for time in times], now, now + UNSETTLED)


def try_register(
    context: LifecycleContext, declared: FeedRecord | None, there: FeedRecord, times: Collection[datetime]
) -> None:
    """Try to register instances whose files are in their places, before that is recorded. What fails is on the agenda.

    `declared` is the feed as it is declared now, None if it is not; `there` is the feed where the instances are.
    """
    if declared is None or declared.registration is None or not times:
        return

    def put() -> Mapping[datetime, str]:
        return open_table(context, declared).put([place_of(context.stores, declared, there, time) for time in times])

    try:
        refused = context.stores.ask(declared.registration.store, put)
    except Exception as exc:  # noqa: BLE001 - whatever a catalog raises, what is published is recorded
        refused = dict.fromkeys(times, describe_error(exc))
    with context.database.begin() as connection:
        for time, reason in refused.items():
            Registrations(connection).plan([FeedKey(*declared.key, time)], context.clock.now(), reason=reason)


def unregister(context: LifecycleContext, declared: FeedRecord, there: FeedRecord, times: Collection[datetime]) -> None:
    """Drop the registrations of instances whose files are about to be removed. What becomes of the instances is looked
    at later: those that stay are registered again.

    Raises:
        StorageError: the catalog is away; nothing must be removed.
    """
    assert declared.registration is not None
    look_later(context, declared, times)
    table = open_table(context, declared)
    places = [place_of(context.stores, declared, there, time) for time in times]
    context.stores.ask(declared.registration.store, partial(table.drop, places))
