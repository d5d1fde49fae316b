"""Filesystems whose n-th operation fails, once or from then on: the local one by its system calls, and objects."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest

from feed_assets.storage.local import calls as local_calls
from feed_assets.storage.local import documents as local_documents
from feed_assets.storage.local import files as local_files
from feed_assets.storage.local import reader as local_reader
from feed_assets.storage.local import staging as local_staging
from feed_assets.storage.local import store as local
from feed_assets.storage.local import store as local_exchange
from feed_assets.storage.local import tree as local_tree
from feed_assets.storage.object.store import ObjectStore
from feed_assets.storage.pool import StorePool
from feed_assets.storage.registry import open_store
from tests.storage.watched import WatchedClient

MODULES: tuple[ModuleType, ...] = (
    local,
    local_calls,
    local_documents,
    local_exchange,
    local_files,
    local_reader,
    local_staging,
    local_tree,
)
LOOKS = ("stat", "lstat", "fstat", "scandir", "listdir", "read", "readv", "pread")
CHANGES = (
    "open",
    "write",
    "pwrite",
    "fsync",
    "mkdir",
    "makedirs",
    "rename",
    "replace",
    "link",
    "unlink",
    "rmdir",
    "chmod",
    "utime",
)


class Fault:
    """Raises an error at the n-th operation while it is armed, or from that one on; counts those of all threads."""

    def __init__(self) -> None:
        self.at = 0
        self.seen = 0
        self._error: Callable[[], BaseException] = RuntimeError
        self._names: tuple[str, ...] = ()
        self._is_forever = False
        self._lock = threading.Lock()

    def __call__(self, name: str) -> None:
        with self._lock:
            if not self.at or name not in self._names:
                return
            self.seen += 1
            if self.seen < self.at or (self.seen > self.at and not self._is_forever):
                return
        raise self._error()

    @property
    def has_struck(self) -> bool:
        return self.seen >= self.at > 0

    @contextmanager
    def armed(
        self, at: int, error: Callable[[], BaseException], names: tuple[str, ...], *, forever: bool = False
    ) -> Iterator[None]:
        self.at, self.seen, self._error, self._names, self._is_forever = at, 0, error, names, forever
        struck = False
        try:
            yield
            struck = self.has_struck
        finally:
            struck = self.has_struck or struck
            self.at = 0
            self.struck = struck

    struck = False


class FaultyOs:
    """The module `os`, with operations that can fail."""

    def __init__(self, fault: Fault) -> None:
        self._fault = fault

    def __getattr__(self, name: str) -> Any:
        found = getattr(os, name)
        if name not in (*LOOKS, *CHANGES):
            return found

        def watched(*arguments: Any, **options: Any) -> Any:
            self._fault(name)
            return found(*arguments, **options)

        return watched


def make_faulty(monkeypatch: pytest.MonkeyPatch, fault: Fault) -> None:
    """Let the fault strike the local storage."""
    exchange, flush_all = local_exchange.exchange, local_calls.LocalCalls.flush_all

    def faulty_open(*arguments: Any, **options: Any) -> Any:
        fault("open")
        return open(*arguments, **options)  # noqa: PTH123

    def faulty_exchange(one: str, other: str) -> bool:
        fault("rename")
        return exchange(one, other)

    def faulty_flush(self: local_calls.LocalCalls, folder: int) -> None:
        fault("fsync")
        flush_all(self, folder)

    faulty = FaultyOs(fault)
    for module in MODULES:
        monkeypatch.setattr(module, "os", faulty)
        monkeypatch.setattr(module, "open", faulty_open, raising=False)
    monkeypatch.setattr(local_exchange, "exchange", faulty_exchange)
    monkeypatch.setattr(local_calls.LocalCalls, "flush_all", faulty_flush)


OBJECT_LOOKS = ("get", "chunks", "list", "find")
OBJECT_CHANGES = ("put", "put_chunks", "copy", "remove")


def faulty_objects(fault: Fault, url: str) -> StorePool:
    """A pool in which `url` is a store of objects that can fail."""
    client = WatchedClient()
    client.before = fault
    store = ObjectStore(client, root_url=url)
    return StorePool(lambda asked, options: store if asked == url else open_store(asked, options))
