"""Open each store once per process, on first use."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from feed_assets.errors import NoAnswerError
from feed_assets.patience import Patience
from feed_assets.plan.copy_records import StoreAddress, endpoint_of
from feed_assets.storage.errors import StorageAwayError
from feed_assets.storage.port import InstanceStore
from feed_assets.storage.registry import open_store

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class StorePool:
    """Opens and keeps stores by address. A process creates its pool at the start and passes it down.

    `threads` is the number of instances processed at a time; several requests then wait for storage in parallel.
    With `patience`, a store is opened only if its storage answers, whatever it answers. Nothing after that has a time
    limit: the work takes as long as its data need, and a slow copy of a huge file looks like one that hangs.
    """

    def __init__(
        self,
        opener: Callable[[str, dict[str, object]], InstanceStore] = open_store,
        *,
        threads: int = 8,
        patience: Patience | None = None,
    ) -> None:
        self._opener = opener
        self._threads = threads
        self._patience = patience
        self._stores: dict[StoreAddress, InstanceStore] = {}
        self._answered: set[StoreAddress] = set()

    def get(self, address: StoreAddress) -> InstanceStore:
        """Return the store at `address`.

        Raises:
            StorageError: the scheme is unknown, its package is not installed, an option is wrong, or the storage does
                not answer.
        """
        store = self._open(address)
        if self._patience is not None and address not in self._answered:
            self._ask(address, store.check_root, self._patience)
        self._answered.add(address)
        return store

    def url(self, address: StoreAddress, path: str) -> str:
        """Return the URL of what is at a path of a store. Nothing is asked, so a storage that hangs keeps nobody from
        telling what is recorded.
        """
        return self._open(address).url(path)

    def _open(self, address: StoreAddress) -> InstanceStore:
        store = self._stores.get(address)
        if store is None:
            options = {name: _thaw(value) for name, value in address.options.items()}
            store = self._stores[address] = self._opener(address.url, options)
        return store

    def ask(self, address: StoreAddress, work: Callable[[], _Result]) -> _Result:
        """Return the result of a call at an address that no store has. Raises `StorageAwayError` if it does not answer,
        with patience.
        """
        if self._patience is None:
            return work()
        answer = self._ask(address, work, self._patience)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _ask(self, address: StoreAddress, work: Callable[[], _Result], patience: Patience) -> _Result | Exception:
        endpoint = endpoint_of(address)
        answer = patience.ask({endpoint: work})[endpoint].value
        if isinstance(answer, NoAnswerError):
            raise StorageAwayError(
                store=endpoint, path="", reason=answer.reason, next_step=answer.next_step
            ) from answer
        return answer

    def each(self, work: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
        """Call `work` for many instances, several at a time; return results in order, raise the first exception."""
        if min(self._threads, len(items)) < 2:
            return [work(item) for item in items]
        with ThreadPoolExecutor(min(self._threads, len(items))) as pool:
            return list(pool.map(work, items))


def _thaw(value: object) -> object:
    """Convert a frozen option for fsspec: maps to dicts, sequences to lists."""
    if isinstance(value, Mapping):
        return {name: _thaw(item) for name, item in value.items()}
    return [_thaw(item) for item in value] if isinstance(value, tuple) else value
