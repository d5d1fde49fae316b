"""Store where feeds have, or had, their instances: each recorded instance has the number of its place."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from datetime import datetime

from sqlalchemy import Connection, and_, or_, select

from feed_assets.entities.maps import EMPTY
from feed_assets.log.instances.feed_instances import SETTLED, FeedInstances
from feed_assets.log.instances.tables import feed_instances, feed_places
from feed_assets.log.records import FeedInstance, FeedInstanceStatus, FeedKey, FeedSpan
from feed_assets.log.removals.records import AT_WORK
from feed_assets.log.removals.tables import sweep_chunks, sweeps
from feed_assets.plan.copy_records import StoreAddress
from feed_assets.plan.records import FeedRecord, TableRecord
from feed_assets.plan.rendering import counted
from feed_assets.sql.rows import build_insert_if_absent, select_keys
from feed_assets.timing.dates import parse_timezone
from feed_assets.timing.templates import LONGEST, parse_path_template

_T = feed_places.c
_I = feed_instances.c
_C = sweep_chunks.c
_S = sweeps.c
_BATCH = 5_000


def describe_staying(count: int) -> str:
    """Return how many instances are at a former place of their feed."""
    return f"{counted(count, 'instance')} at a former place of the feed, where they stay until they expire"


OWN_PATHS = "Give the feed another location, too, so that no instance to come has the path of one that is there."
"""What prevents that two instances have one path when the place of a feed changes."""


class FeedPlaces:
    """The places of feeds as one transaction sees them. None is ever forgotten."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._known: dict[tuple[str, str], dict[int, FeedRecord]] = {}

    def put(self, records: Iterable[FeedRecord]) -> None:
        """Record the places of feeds with data."""
        found = [
            (*each.key, each.place, each.store.url, each.template.text, each.template.zone.key, each.flag)
            for each in records
            if each.has_data
        ]
        if found:
            rows = [dict(zip(_T.keys(), values, strict=True)) for values in found]
            self._connection.execute(build_insert_if_absent(self._connection.dialect.name, feed_places), rows)

    def at_place(self, record: FeedRecord, instance: FeedInstance | None) -> FeedRecord:
        """Return a feed at the place where an instance is, or was evicted from; the feed itself if that is its place.

        A store elsewhere is reached as the present one if it is of the same kind.
        """
        if instance is None or instance.status not in SETTLED or instance.place in (None, record.place):
            return record
        return self.find(record, instance.place or 0) or record

    def find(self, record: FeedRecord, place: int) -> FeedRecord | None:
        """Return a feed at one of its places; None if it never had that."""
        return record if place == record.place else self._former(record).get(place)

    def every(self, record: FeedRecord) -> list[FeedRecord]:
        """Return a feed at each place that it has or had, the present one first."""
        return [record, *self._former(record).values()]

    def find_swept(self, records: Iterable[FeedRecord], since: datetime) -> list[StoreAddress]:
        """Return the stores of the former places of feeds in which sweeps may have a trash, or had one since a time."""
        is_left = and_(_S.purge_at.is_not(None), or_(_S.purged_at.is_(None), _S.purged_at > since))
        statement = select(_C.feed, _C.place).join_from(sweep_chunks, sweeps, _C.sweep_id == _S.sweep_id)
        statement = statement.where(_C.place.is_not(None), or_(_S.state.in_(sorted(AT_WORK)), is_left)).distinct()
        swept = defaultdict[str, list[int]](list)
        for feed, place in self._connection.execute(statement):
            swept[feed].append(place)
        found = [self.find(record, place) for record in records for place in swept.get(record.feed, ())]
        return [there.store for there in found if there is not None]

    def all(self) -> list[tuple[str, str, str, str, str]]:
        """Return feed, cluster, URL of the store, template and its zone of every place of every feed."""
        statement = select(_T.feed, _T.cluster, _T.url, _T.template, _T.zone)
        return [(feed, cluster, url, *path) for feed, cluster, url, *path in self._connection.execute(statement)]

    def find_elsewhere(self, record: FeedRecord) -> Iterator[tuple[datetime, FeedRecord]]:
        """Yield the AVAILABLE instances of a feed that are at another place than it has now, with the feed there. For
        reports and plans, not for ticks. Reads no instances of a feed that has never had another place.
        """
        former = self._former(record)
        if not former:
            return
        statement = (
            select(_I.nominal_time, _I.place)
            .where(_I.feed == record.feed, _I.cluster == record.cluster, _I.status == FeedInstanceStatus.AVAILABLE)
            .where(_I.place.in_(sorted(former)))
        )
        for time, place in self._connection.execute(statement, execution_options={"yield_per": _BATCH}):
            other = former[place]
            if (other.store.url, other.path(time)) != (record.store.url, record.path(time)):
                yield time, other

    def find_owners(self, wanted: Collection[tuple[FeedRecord, datetime]]) -> dict[FeedKey, datetime]:
        """Return which instances have, where their feed has its data now, the path of another AVAILABLE one that came
        before the place changed; each with that. Costs one statement if none of the feeds has ever moved.
        """
        self._read([record for record, _ in wanted])
        found: list[tuple[FeedSpan, int, FeedRecord, FeedKey, str]] = []
        for record, time in wanted:
            for place, there in self._known[record.key].items():
                path, template = record.path(time), there.template
                named = template.parse(f"/{path}" if template.text.startswith("/") else path)
                if named is not None and template.granularity and there.store.url == record.store.url:
                    longest = LONGEST[template.granularity]
                    span = FeedSpan(*record.key, named - longest, named + longest)
                    found.append((span, place, there, FeedKey(*record.key, time), path))
        instances = FeedInstances(self._connection)
        times = instances.available_times_many([span for span, *_ in found])
        rows = instances.get_many([FeedKey(*span[:2], time) for span, among in times.items() for time in among])
        return {
            key: other
            for span, place, there, key, path in found
            for other in times[span]
            if other != key.nominal_time and there.path(other) == path
            if rows[key._replace(nominal_time=other)].place == place
        }

    def _former(self, record: FeedRecord) -> dict[int, FeedRecord]:
        self._read([record])
        return self._known[record.key]

    def _read(self, records: Iterable[FeedRecord]) -> None:
        new = {record.key: record for record in records if record.key not in self._known}
        self._known |= {key: {} for key in new}
        columns = (_T.feed, _T.cluster, _T.place, _T.url, _T.template, _T.zone, _T.flag)
        for feed, cluster, place, *at in select_keys(self._connection, feed_places, ("feed", "cluster"), columns, new):
            if place != new[feed, cluster].place:
                self._known[feed, cluster][place] = _placed(new[feed, cluster], *at)


def _placed(record: FeedRecord, url: str, template: str, zone: str, flag: str | None) -> FeedRecord:
    scheme, _, where = url.partition("://")
    options = record.store.options if record.store.url.startswith(f"{scheme}://") else EMPTY
    table = None
    if scheme == "thrift":
        hosts, database, name = where.split("/")
        catalog = ",".join(f"thrift://{host}" for host in hosts.split(","))
        table = TableRecord(catalog=catalog, database=database, name=name)
    path = parse_path_template(template).in_zone(parse_timezone(zone))
    return replace(record, store=StoreAddress(url=url, options=options), template=path, flag=flag, table=table)
