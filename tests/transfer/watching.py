"""Stores whose copies are watched: bytes are counted, and a test can step in before any call or change what passes."""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from feed_assets.storage.copy_port import Reading, Staging
from feed_assets.storage.pool import StorePool
from feed_assets.storage.port import InstanceStore
from feed_assets.storage.registry import open_store

Data = bytes | memoryview


def nothing(call: str, file: str) -> None:
    """What is done before a call unless a test says otherwise."""


def unchanged(file: str, data: Data) -> Data:
    return data


@dataclass(slots=True)
class Watch:
    """Counts of bytes and calls. `before` is called with the name of each call and its file ("" for none).

    `reading` and `writing` may change bytes on their way from the source and into the staging.
    """

    read: int = 0
    written: int = 0
    read_back: int = 0
    calls: list[tuple[str, str]] = field(default_factory=list)
    before: Callable[[str, str], None] = nothing
    reading: Callable[[str, Data], Data] = unchanged
    writing: Callable[[str, Data], Data] = unchanged
    mutex: threading.RLock = field(default_factory=threading.RLock)

    def enter(self, call: str, file: str = "") -> None:
        with self.mutex:
            self.calls.append((call, file))
        self.before(call, file)

    def add(self, *, read: int = 0, written: int = 0, read_back: int = 0) -> None:
        with self.mutex:
            self.read += read
            self.written += written
            self.read_back += read_back

    def reset(self) -> None:
        self.read = self.written = self.read_back = 0
        self.calls.clear()


def watched_stores(watch: Watch) -> StorePool:
    """Stores as they are opened by their addresses, but with watched copies."""
    return StorePool(lambda url, options: _WatchedStore(open_store(url, options), watch))  # type: ignore[arg-type, return-value]


class _Watched:
    """Passes everything on to what it is made of."""

    def __init__(self, inner: Any, watch: Watch) -> None:
        self._inner = inner
        self._watch = watch

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        return partial(self._call, name, found) if callable(found) else found

    def _call(self, name: str, method: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        self._watch.enter(name, arguments[0] if arguments and isinstance(arguments[0], str) else "")
        return method(*arguments, **options)


class _WatchedStore(_Watched):
    _inner: InstanceStore

    @contextmanager
    def reading(self, path: str) -> Iterator["_WatchedReading"]:
        self._watch.enter("reading", path)
        with self._inner.reading(path) as reading:
            yield _WatchedReading(reading, self._watch)

    def staging(self, path: str, token: str) -> "_WatchedStaging":
        return _WatchedStaging(self._inner.staging(path, token), self._watch)

    def flush(self, stagings: Iterable["_WatchedStaging"]) -> None:
        self._watch.enter("flush")
        self._inner.flush([each._inner for each in stagings])


class _WatchedReading(_Watched):
    _inner: Reading

    def chunks(self, file: str) -> Iterator[Data]:
        self._watch.enter("source.chunks", file)
        for chunk in self._inner.chunks(file):
            self._watch.add(read=len(chunk))
            yield self._watch.reading(file, chunk)


class _WatchedStaging(_Watched):
    _inner: Staging

    def put(self, file: str, size: int, chunks: Iterable[Data], block_size: int | None = None) -> None:
        self._watch.enter("put", file)

        def passing() -> Iterator[Data]:
            for chunk in chunks:
                self._watch.add(written=len(chunk))
                yield self._watch.writing(file, chunk)

        self._inner.put(file, size, passing(), block_size)

    def chunks(self, file: str) -> Iterator[Data]:
        self._watch.enter("read_back", file)
        for chunk in self._inner.chunks(file):
            self._watch.add(read_back=len(chunk))
            yield chunk
