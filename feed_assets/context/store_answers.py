"""Ask stores, all endpoints at once and with a time limit; what fails concerns its own question alone."""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TypeVar

from feed_assets.clock import Stopwatch
from feed_assets.context.bulkheads import AWAY, SLOW_SECONDS, Bulkheads
from feed_assets.context.errors import NotAskedError
from feed_assets.context.tick_failures import TickStep
from feed_assets.errors import NoAnswerError
from feed_assets.plan.addresses import StoreAddress, endpoint_of
from feed_assets.storage.pool import StorePool

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")


def ask_by_store(
    calls: Mapping[StoreAddress, Callable[[], _Answer]], bulkheads: Bulkheads
) -> dict[StoreAddress, _Answer | Exception]:
    """Call stores, all endpoints at once and the stores of each in turn; return what each returned, or why it did not.

    A call that fails slowly, such as by a time-out, raises, and keeps the stores behind it from being called; then the
    endpoint is put off. The next time it is called without the store that was at work. If it answers, that store fails
    alone: a table, for instance, whose data are elsewhere. Such a store is called by itself until it answers.
    """
    by_endpoint: dict[str, list[StoreAddress]] = defaultdict(list)
    for address in calls:
        by_endpoint[endpoint_of(address)].append(address)
    together, apart = dict[str, list[StoreAddress]](), dict[str, list[StoreAddress]]()
    for endpoint, addresses in by_endpoint.items():
        known = bulkheads.patience.find_apart(endpoint)
        others = [each for each in addresses if each.url not in known]
        if others or bulkheads.has_failed(TickStep.STORAGE, endpoint):
            together[endpoint] = others or addresses
        apart[endpoint] = [each for each in addresses if each not in together.get(endpoint, ())]
    found, failed = _ask_units(together, calls, bulkheads)
    for endpoint, addresses in apart.items():
        if endpoint in failed:
            found |= dict.fromkeys(addresses, failed[endpoint])
    alone: dict[str, list[StoreAddress]] = defaultdict(list)
    for each in (each for endpoint, addresses in apart.items() if endpoint not in failed for each in addresses):
        alone[each.url].append(each)
    answered, failing = _ask_units(alone, calls, bulkheads)
    for url, addresses in alone.items():
        if url not in failing:
            bulkheads.patience.put_back(endpoint_of(addresses[0]), url)
    return found | answered


def _ask_units(
    units: Mapping[str, Sequence[StoreAddress]],
    calls: Mapping[StoreAddress, Callable[[], _Answer]],
    bulkheads: Bulkheads,
) -> tuple[dict[StoreAddress, _Answer | Exception], dict[str, Exception]]:
    """Call the stores of units, and return the answers by store, and the units that failed."""
    done: dict[str, dict[StoreAddress, _Answer]] = {unit: {} for unit in units}
    at_work: dict[str, StoreAddress] = {}

    def ask(unit: str) -> None:
        for address in units[unit]:
            at_work[unit] = address
            done[unit][address] = calls[address]()

    found: dict[StoreAddress, _Answer | Exception] = {}
    failed: dict[str, Exception] = {}
    for unit, answer in bulkheads.ask(TickStep.STORAGE, {unit: partial(ask, unit) for unit in units}).items():
        if isinstance(answer, Exception):
            failed[unit] = answer
            found |= dict.fromkeys(units[unit], answer)
            if unit in at_work and len(units[unit]) > 1:
                bulkheads.patience.set_apart(unit, at_work[unit].url)
        found |= done[unit].copy()  # a call that hangs may go on writing
    return found, failed


def ask_stores(
    items: Sequence[_Item],
    address_of: Callable[[_Item], StoreAddress],
    ask: Callable[[_Item], _Answer],
    bulkheads: Bulkheads,
) -> list[_Answer | Exception]:
    """Ask the stores of some items; return the answer for each, or why there is none.

    What fails concerns its own item alone, unless it fails slowly: see `ask_by_store`.
    """
    by_store: dict[StoreAddress, list[int]] = defaultdict(list)
    for position, item in enumerate(items):
        by_store[address_of(item)].append(position)

    def ask_all(positions: Sequence[int]) -> dict[int, _Answer | Exception]:
        return {position: _ask(ask, items[position]) for position in positions}

    calls = {address: partial(ask_all, positions) for address, positions in by_store.items()}
    found: dict[int, _Answer | Exception] = {}
    for address, answer in ask_by_store(calls, bulkheads).items():
        found |= dict.fromkeys(by_store[address], answer) if isinstance(answer, Exception) else answer
    return [found[position] for position in range(len(items))]


def find_silent(
    stores: StorePool, addresses: Collection[StoreAddress], bulkheads: Bulkheads
) -> Mapping[StoreAddress, Exception]:
    """Return the stores whose storage does not answer now, and what is known of it; one small call for each store.

    For work that has no time limit: it may read and write much. A storage that answers, whatever it answers, is none
    of them.
    """
    chosen = list(dict.fromkeys(addresses))
    answers = ask_stores(chosen, lambda address: address, lambda address: stores.get(address).check_root(), bulkheads)
    silent = zip(chosen, answers, strict=True)
    return {address: answer for address, answer in silent if isinstance(answer, NoAnswerError | NotAskedError)}


def _ask(ask: Callable[[_Item], _Answer], item: _Item) -> _Answer | Exception:
    """Return the answer for an item, or why there is none. Raises what fails slowly, and that the storage is away."""
    watch = Stopwatch()
    try:
        return ask(item)
    except Exception as exc:
        if watch.seconds > SLOW_SECONDS or isinstance(exc, AWAY):
            raise
        return exc
