"""Commands on storage without renames, interrupted at each of their requests: the storage is away, before the request
or after it was done, or the program is killed.
"""

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TypeVar

import pytest

from feed_assets.errors import FeedAssetsError
from feed_assets.instances.leasing import TTL
from feed_assets.storage.object.store import ObjectStore
from feed_assets.storage.pool import StorePool
from feed_assets.storage.registry import open_store
from tests.drills import sized
from tests.object_servers import ObjectServer
from tests.processes import PROCESSES
from tests.storage.watched import WatchedClient

WHEN = ("before", "after", "since")
"""A request is not done, or done without an answer; or nothing is from there on until the end of the command."""
LEASES_END = 2 * TTL
"""After this time, nobody is waited for who was killed."""
_STEPS = {"memory": sized(9, 1), "server": sized(43, 1), "killed": sized(41, 1)}
"""Every n-th request is interrupted, the first of them at the middle of the step."""
_FEW = 10
"""Every command makes more requests than these."""
_numbers = count()

Bench = TypeVar("Bench")


class Interruption:
    """Does something at one request, counted from 1, or since then at all."""

    def __init__(self, number: int, work: Callable[[], object], *, lasts: bool = False) -> None:
        self._left = number
        self._work = work
        self._lasts = lasts
        self._lock = threading.Lock()

    @property
    def has_struck(self) -> bool:
        return self._left <= 0

    def __call__(self, _name: str) -> None:
        with self._lock:
            self._left -= 1
            if self._left > 0 or (self._left < 0 and not self._lasts):
                return
        self._work()


@dataclass(frozen=True, slots=True)
class DrilledStorage:
    """An empty object storage, by its URL; the clients of its folders are interrupted together."""

    url: str
    options: Mapping[str, object]
    clients: dict[str, WatchedClient] = field(default_factory=dict)

    def client(self, folder: str = "") -> WatchedClient:
        if folder not in self.clients:
            store = open_store(f"{self.url}/{folder}".rstrip("/"), self.options)
            assert isinstance(store, ObjectStore)
            self.clients[folder] = WatchedClient(store.client)
        return self.clients[folder]

    def pool(self, scratch: Path, *folders: str) -> StorePool:
        """The stores of clusters: all are at the root of this storage, or each in a folder with its name."""

        def open_folder(url: str, _: object) -> ObjectStore:
            folder = next((name for name in folders if url.endswith(f"/{name}")), "")
            return ObjectStore(self.client(folder), root_url=url, scratch=scratch)

        return StorePool(open_folder)

    def watch(self, when: str, work: Callable[[str], object]) -> None:
        for client in self.clients.values():
            setattr(client, when, work)


@pytest.fixture(
    params=[
        "memory",
        pytest.param("s3", marks=pytest.mark.server),
        pytest.param("azure", marks=[pytest.mark.server, pytest.mark.drill]),
    ]
)
def make_storage(request: pytest.FixtureRequest) -> Callable[[], DrilledStorage]:
    """Makes empty storages of a kind."""
    if request.param == "memory":
        return memory_storage
    server = request.getfixturevalue(f"{request.param}_server")
    return lambda: storage_of(server)


def memory_storage() -> DrilledStorage:
    return DrilledStorage(f"memory://interrupted-{next(_numbers)}", {})


def storage_of(server: ObjectServer) -> DrilledStorage:
    return DrilledStorage(f"{server.url}/interrupted-{next(_numbers)}", server.options)


def interrupted(
    root: Path,
    make_storage: Callable[[], DrilledStorage],
    when: str,
    prepare: Callable[[Path, DrilledStorage], Bench],
    work: Callable[[Bench], object],
    step: int | None = None,
) -> Iterator[Bench]:
    """A new bench for each request at which the storage of its work was away, and at last one where it never was."""

    def away() -> None:
        raise ConnectionError("the storage is away")

    step = step or _STEPS["memory" if make_storage is memory_storage else "server"]
    for number in count(1 + step // 2, step):
        folder, storage = root / str(number), make_storage()
        folder.mkdir()
        bench = prepare(folder, storage)
        interruption = Interruption(number, away, lasts=when == "since")
        storage.watch("after" if when == "after" else "before", interruption)
        with suppress(FeedAssetsError):
            work(bench)
        storage.watch("before", lambda _: None), storage.watch("after", lambda _: None)
        yield bench
        if not interruption.has_struck:
            print(f"{number - 1} requests")
            assert number > _FEW
            return


def killed(
    root: Path,
    server: ObjectServer,
    prepare: Callable[[Path, DrilledStorage], Bench],
    work: Callable[[Bench], Callable[[Path, DrilledStorage], object]],
) -> Iterator[Bench]:
    """A new bench for each request at which the program was killed, and at last one where it was not.

    `work` says what another process does with the same folder and storage.
    """
    step = _STEPS["killed"]
    for number in count(1 + step // 2, step):
        folder, storage = root / str(number), storage_of(server)
        folder.mkdir()
        bench = prepare(folder, storage)
        arguments = (work(bench), folder, storage.url, storage.options, number)
        child = PROCESSES.Process(target=_work_until_killed, args=arguments)
        child.start()
        child.join()
        assert child.exitcode in (0, 9)
        yield bench
        if child.exitcode == 0:
            print(f"{number - 1} requests")
            assert number > _FEW
            return


def _work_until_killed(
    work: Callable[[Path, DrilledStorage], object], folder: Path, url: str, options: Mapping[str, object], number: int
) -> None:
    """Work in a process that dies at its n-th request, without an end to anything."""
    storage = DrilledStorage(url, options)
    for name in ("", "primary", "backup"):
        storage.client(name)
    storage.watch("before", Interruption(number, lambda: os._exit(9)))
    work(folder, storage)
