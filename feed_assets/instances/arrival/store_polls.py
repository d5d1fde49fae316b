"""Look at instances of feeds in their stores, with one call for each store and flag.

A store that fails affects only its own instances: what keeps it from looking becomes the obstacle of their results.
Instances of a feed that has moved are where the record has them, or where somebody has moved them to.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import chain
from typing import TypeAlias

from feed_assets.clock import Stopwatch
from feed_assets.context.bulkheads import AWAY, SLOW_SECONDS
from feed_assets.context.operation import LifecycleContext
from feed_assets.context.tick import Tick, ask_by_store
from feed_assets.errors import describe_error
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.feed_places import FeedPlaces
from feed_assets.log.records import FeedKey
from feed_assets.plan.copy_records import StoreAddress
from feed_assets.plan.edges import Key
from feed_assets.plan.records import FeedRecord
from feed_assets.storage.errors import StorageError
from feed_assets.storage.pool import StorePool
from feed_assets.storage.records import Availability, Look, obstructed


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A feed instance to poll; `known` is the fingerprint of the last poll's result."""

    record: FeedRecord
    nominal_time: datetime
    known: str = ""

    @property
    def key(self) -> FeedKey:
        """The instance."""
        return FeedKey(*self.record.key, self.nominal_time)


_Group: TypeAlias = dict[int, Candidate]
"""Some candidates of one store and flag, by their positions."""


def poll_instances(stores: StorePool, candidates: Sequence[Candidate]) -> list[Look]:
    """Poll many instances, with one call for each store and flag; results in the order of `candidates`.

    Raises:
        StorageError: a whole store could not look.
    """
    looks: dict[int, Look] = {}
    for group in _by_store(candidates).values():
        looks |= _poll(stores, group)
    return [looks[position] for position in range(len(candidates))]


def poll_confined(tick: Tick, candidates: Sequence[Candidate]) -> list[Look]:
    """Poll like `poll_instances`; what keeps a store from looking becomes the obstacle of the instances it concerns.

    All endpoints are asked at once. If a store fails, its feeds are polled one by one. What fails slowly, such as by a
    time-out, is left alone for the rest of the tick and for twice as long as it took: see `ask_by_store`. An address
    that fails is on record before what it obstructs, so that nobody tells that as another failure.
    """
    groups: dict[StoreAddress, list[_Group]] = defaultdict(list)
    for (address, _), group in _by_store(candidates).items():
        groups[address].append(group)

    def poll(address: StoreAddress) -> dict[int, Look]:
        looks = [_poll_store(tick.stores, group) for group in groups[address]]
        return {position: look for some in looks for position, look in some.items()}

    looks: dict[int, Look] = {}
    for address, answer in ask_by_store(
        {address: partial(poll, address) for address in groups}, tick.bulkheads
    ).items():
        if isinstance(answer, Exception):
            obstacle = obstructed("", describe_error(answer))
            looks |= dict.fromkeys(chain.from_iterable(groups[address]), obstacle)
        else:
            looks |= answer
    if any(look.obstacle is not None for look in looks.values()):
        tick.bulkheads.save(tick.database)
    return [looks[position] for position in range(len(candidates))]


def require_unobstructed(candidates: Iterable[Candidate], looks: Iterable[Look]) -> None:
    """Raise `StorageError` if a store could not look into one of the instances."""
    for candidate, look in zip(candidates, looks, strict=True):
        if look.obstacle is not None:
            raise StorageError(
                store=candidate.record.store.url,
                path=look.path,
                reason=look.obstacle,
                next_step="Remove the obstacle, and try again.",
            )


def _by_store(candidates: Sequence[Candidate]) -> dict[tuple[StoreAddress, str | None], _Group]:
    groups: dict[tuple[StoreAddress, str | None], _Group] = defaultdict(dict)
    for position, candidate in enumerate(candidates):
        groups[candidate.record.store, candidate.record.flag][position] = candidate
    return groups


def _poll(stores: StorePool, group: _Group) -> dict[int, Look]:
    record = next(iter(group.values())).record
    paths = [each.record.path(each.nominal_time) for each in group.values()]
    return dict(zip(group, stores.get(record.store).look(paths, record.flag), strict=True))


def _poll_store(stores: StorePool, group: _Group) -> dict[int, Look]:
    """Poll the instances of one store: all at once, then feed by feed if that fails. Raises what fails slowly, and that
    the storage is away.
    """
    watch = Stopwatch()
    try:
        return _poll(stores, group)
    except Exception as exc:
        if watch.seconds > SLOW_SECONDS or isinstance(exc, AWAY):
            raise
        by_feed: dict[Key, _Group] = defaultdict(dict)
        for position, candidate in group.items():
            by_feed[candidate.record.key][position] = candidate
        if len(by_feed) == 1:
            return dict.fromkeys(group, obstructed("", describe_error(exc)))
    return {position: look for each in by_feed.values() for position, look in _poll_store(stores, each).items()}


def find_records(
    context: LifecycleContext, record: FeedRecord, times: Collection[datetime]
) -> dict[datetime, FeedRecord]:
    """Return for each instance of a feed the feed at the place where the instance is. Looks only at those that are at
    another place than that of `record`, by the record.
    """
    with context.database.read() as connection:
        rows = FeedInstances(connection).get_many([FeedKey(*record.key, time) for time in times])
        places = FeedPlaces(connection)
        there = {row.nominal_time: places.at_place(record, row) for row in rows.values()}
    return {time: find_record(context.stores, there.get(time, record), record, time) for time in times}


def find_record(stores: StorePool, there: FeedRecord, record: FeedRecord, nominal_time: datetime) -> FeedRecord:
    """Return that of two records of a feed at whose location an instance is; `there` if it is there or nowhere. Where
    they differ by the zone of their paths only, what is at the other path is another instance.
    """
    if (there.store, there.template.text) == (record.store, record.template.text):
        return there
    looks = poll_instances(stores, [Candidate(record=each, nominal_time=nominal_time) for each in (there, record)])
    at_there, here = (look.availability is Availability.AVAILABLE for look in looks)
    return record if here and not at_there else there
