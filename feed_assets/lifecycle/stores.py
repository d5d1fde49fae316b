"""Stores by address: opened once a process, on first use."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from feed_assets.plan.addresses import StoreAddress
from feed_assets.storage.port import InstanceStore
from feed_assets.storage.registry import open_store

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class StorePool:
    """Opens each store once; a pool is made where a process begins and handed down.

    `threads` is how many instances are worked on at a time: several wait for storage better than one.
    """

    def __init__(
        self, opener: Callable[[str, dict[str, object]], InstanceStore] = open_store, *, threads: int = 8
    ) -> None:
        self._opener = opener
        self._threads = threads
        self._stores: dict[StoreAddress, InstanceStore] = {}

    def get(self, address: StoreAddress) -> InstanceStore:
        """The store at `address`.

        Raises:
            StorageError: the scheme is unknown, its package is not installed, or an option is wrong.
        """
        store = self._stores.get(address)
        if store is None:
            options = {name: _thawed(value) for name, value in address.options.items()}
            store = self._stores[address] = self._opener(address.url, options)
        return store

    def each(self, work: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
        """Do the same with many instances, several at a time; results in order, the first exception goes on."""
        if min(self._threads, len(items)) < 2:
            return [work(item) for item in items]
        with ThreadPoolExecutor(min(self._threads, len(items))) as pool:
            return list(pool.map(work, items))


def _thawed(value: object) -> object:
    """A frozen option as fsspec takes it: maps as dicts, sequences as lists."""
    if isinstance(value, Mapping):
        return {name: _thawed(item) for name, item in value.items()}
    return [_thawed(item) for item in value] if isinstance(value, tuple) else value
