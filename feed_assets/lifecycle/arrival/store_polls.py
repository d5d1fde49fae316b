"""Look at instances of feeds in their stores, with one call for each store and flag.

A store that fails affects only its own instances: what keeps it from looking becomes the obstacle of their results.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from feed_assets.clock import Stopwatch
from feed_assets.errors import describe_error
from feed_assets.lifecycle.bulkheads import Bulkheads
from feed_assets.plan.addresses import StoreAddress, endpoint_of
from feed_assets.plan.records import FeedRecord, Key
from feed_assets.state.records import TickStep
from feed_assets.storage.errors import StorageError
from feed_assets.storage.pool import StorePool
from feed_assets.storage.records import Look, obstructed

PATIENCE = 2.0
"""Seconds after which a store that fails is not asked again in the same tick."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A feed instance to poll; `known` is the fingerprint of the last poll's result."""

    record: FeedRecord
    nominal_time: datetime
    known: str = ""


def poll_instances(stores: StorePool, candidates: Sequence[Candidate]) -> list[Look]:
    """Poll many instances, with one call for each store and flag; results in the order of `candidates`.

    Raises:
        StorageError: a whole store could not look.
    """
    looks: dict[int, Look] = {}
    for (address, flag), positions in _by_store(candidates).items():
        looks.update(_poll(stores, candidates, address, flag, positions))
    return [looks[position] for position in range(len(candidates))]


def poll_confined(stores: StorePool, candidates: Sequence[Candidate], bulkheads: Bulkheads) -> list[Look]:
    """Poll like `poll_instances`; what keeps a store from looking becomes the obstacle of the instances it concerns.

    If a store fails, its feeds are polled one by one. An endpoint that fails slowly, such as by a time-out, is left
    alone for the rest of the tick and for four times as long as it took.
    """
    looks: dict[int, Look] = {}
    for (address, flag), positions in _by_store(candidates).items():
        looks.update(_poll_store(stores, candidates, address, flag, positions, bulkheads))
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


def _by_store(candidates: Sequence[Candidate]) -> dict[tuple[StoreAddress, str | None], list[int]]:
    groups: dict[tuple[StoreAddress, str | None], list[int]] = defaultdict(list)
    for position, candidate in enumerate(candidates):
        groups[candidate.record.store, candidate.record.flag].append(position)
    return groups


def _poll(
    stores: StorePool,
    candidates: Sequence[Candidate],
    address: StoreAddress,
    flag: str | None,
    positions: Sequence[int],
) -> dict[int, Look]:
    paths = [candidates[i].record.path(candidates[i].nominal_time) for i in positions]
    return dict(zip(positions, stores.get(address).look(paths, flag), strict=True))


def _poll_store(
    stores: StorePool,
    candidates: Sequence[Candidate],
    address: StoreAddress,
    flag: str | None,
    positions: Sequence[int],
    bulkheads: Bulkheads,
) -> dict[int, Look]:
    """Poll the instances of one store; all at once, then feed by feed if that fails, then none."""
    endpoint = endpoint_of(address)
    if bulkheads.is_put_off(TickStep.STORAGE, endpoint):
        reason = bulkheads.reason(TickStep.STORAGE, endpoint)
        return {position: obstructed("", f"{endpoint} does not answer: {reason}") for position in positions}
    watch = Stopwatch()
    try:
        looks = _poll(stores, candidates, address, flag, positions)
    except Exception as exc:  # noqa: BLE001 - whatever a storage client raises is an obstacle to its feeds alone
        if watch.seconds > PATIENCE:
            bulkheads.fail(TickStep.STORAGE, endpoint, exc, watch.seconds)
        by_feed: dict[Key, list[int]] = defaultdict(list)
        for position in positions:
            by_feed[candidates[position].record.key].append(position)
        if len(by_feed) == 1 or watch.seconds > PATIENCE:
            return {position: obstructed("", describe_error(exc)) for position in positions}
        return {
            position: look
            for each in by_feed.values()
            for position, look in _poll_store(stores, candidates, address, flag, each, bulkheads).items()
        }
    bulkheads.succeed(TickStep.STORAGE, endpoint)
    return looks
