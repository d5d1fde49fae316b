"""Ask stores, all endpoints at once and with a time limit; what fails concerns its own question alone."""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TypeVar

from feed_assets.clock import Stopwatch
from feed_assets.errors import NoAnswerError
from feed_assets.lifecycle.bulkheads import SLOW_SECONDS, Bulkheads
from feed_assets.lifecycle.errors import NotAskedError
from feed_assets.plan.addresses import StoreAddress, endpoint_of
from feed_assets.state.tick_records import TickStep
from feed_assets.storage.pool import StorePool

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")


def ask_stores(
    items: Sequence[_Item],
    address_of: Callable[[_Item], StoreAddress],
    ask: Callable[[_Item], _Answer],
    bulkheads: Bulkheads,
) -> list[_Answer | Exception]:
    """Ask the stores of some items, all endpoints at once; return the answer for each, or why there is none.

    What fails concerns its own item alone, unless it fails slowly: then its endpoint is left alone, as in
    `poll_confined`.
    """
    by_endpoint: dict[str, list[int]] = defaultdict(list)
    for position, item in enumerate(items):
        by_endpoint[endpoint_of(address_of(item))].append(position)

    def ask_all(positions: Sequence[int]) -> dict[int, _Answer | Exception]:
        return {position: _ask(ask, items[position]) for position in positions}

    calls = {endpoint: partial(ask_all, positions) for endpoint, positions in by_endpoint.items()}
    found: dict[int, _Answer | Exception] = {}
    for endpoint, answer in bulkheads.ask(TickStep.STORAGE, calls).items():
        positions = by_endpoint[endpoint]
        found |= dict.fromkeys(positions, answer) if isinstance(answer, Exception) else answer
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
    """Return the answer for an item, or why there is none. Raises what fails slowly."""
    watch = Stopwatch()
    try:
        return ask(item)
    except Exception as exc:
        if watch.seconds > SLOW_SECONDS:
            raise
        return exc
