"""Filesystems whose n-th operation fails, once or from then on: the local one by its system calls, and objects."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from feed_assets.lifecycle.stores import StorePool
from feed_assets.storage import (
    local,
    local_assembly,
    local_calls,
    local_copying,
    local_files,
    local_reader,
    local_reading,
    local_slot,
    local_snapshots,
    local_tree,
    local_turns,
)
from feed_assets.storage.object_store import ObjectStore
from feed_assets.storage.registry import open_store

MODULES: tuple[ModuleType, ...] = (
    local,
    local_assembly,
    local_calls,
    local_copying,
    local_files,
    local_reader,
    local_reading,
    local_slot,
    local_snapshots,
    local_tree,
    local_turns,
)
LOOKS = ("stat", "lstat", "fstat", "scandir", "listdir", "read", "pread", "preadv")
CHANGES = (
    "open",
    "write",
    "pwrite",
    "ftruncate",
    "copy_file_range",
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
    exchange, flush_all = local_slot.exchange, local_calls.LocalCalls.flush_all

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
    monkeypatch.setattr(local_slot, "exchange", faulty_exchange)
    monkeypatch.setattr(local_calls.LocalCalls, "flush_all", faulty_flush)


class FaultyFileSystem(MemoryFileSystem):  # type: ignore[misc]
    """A store of its own with operations that can fail."""

    cachable = False

    def __init__(self, fault: Fault) -> None:
        super().__init__(global_store=False, skip_instance_cache=True)
        self.fault = fault


OBJECT_LOOKS = ("cat_file", "find", "info")
OBJECT_CHANGES = ("pipe_file", "cp_file", "rm_file")


def _watch(name: str) -> None:
    original = getattr(MemoryFileSystem, name)

    def watched(self: FaultyFileSystem, *arguments: Any, **options: Any) -> Any:
        self.fault(name)
        return original(self, *arguments, **options)

    setattr(FaultyFileSystem, name, watched)


for _name in (*OBJECT_LOOKS, *OBJECT_CHANGES):
    _watch(_name)


def faulty_objects(fault: Fault, url: str) -> tuple[StorePool, FaultyFileSystem]:
    """A pool in which `url` is a store of objects that can fail."""
    fs = FaultyFileSystem(fault)
    store = ObjectStore(fs, root="/root", root_url=url, spark_scheme=None, has_containers=False)
    return StorePool(lambda asked, options: store if asked == url else open_store(asked, options)), fs
