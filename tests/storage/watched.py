"""A client of objects that lets tests look, fail and come between around each of its calls; in memory, or another's."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from obstore.store import MemoryStore

from feed_assets.storage.listing import Entry
from feed_assets.storage.object.client import Children, ObjectClient, ObjectListing
from feed_assets.storage.object.obstore_client import ObstoreClient

Result = TypeVar("Result")
CHANGES = ("put", "put_chunks", "copy", "remove")
LOOKS = ("get", "chunks", "list", "children", "find")


class WatchedClient(ObjectClient):
    """Calls `before` and `after` with the name of each call, the former for each key of a removal.

    The objects are its own.
    """

    def __init__(self, inner: ObjectClient | None = None) -> None:
        self.inner = inner or ObstoreClient(MemoryStore())
        self.before: Callable[[str], object] = lambda _: None
        self.after: Callable[[str], object] = lambda _: None

    def names(self, prefix: str = "") -> set[str]:
        """What is below a prefix, by whole names, without being watched."""
        prefix = prefix.rstrip("/")
        return {f"{prefix}/{name}".lstrip("/") for name in self.inner.list(prefix).files}

    def content(self, prefix: str = "") -> dict[str, bytes]:
        return {name: self.inner.get(name) for name in self.names(prefix)}

    def check(self) -> None:
        self.inner.check()

    def list(self, prefix: str) -> ObjectListing:
        return self._watch("list", lambda: self.inner.list(prefix))

    def children(self, prefix: str) -> Children:
        return self._watch("children", lambda: self.inner.children(prefix))

    def find(self, key: str) -> Entry | None:
        return self._watch("find", lambda: self.inner.find(key))

    def get(self, key: str) -> bytes:
        return self._watch("get", lambda: self.inner.get(key))

    def get_versioned(self, key: str) -> tuple[bytes, object]:
        return self._watch("get", lambda: self.inner.get_versioned(key))

    def chunks(self, key: str) -> Iterator[bytes]:
        yield from self._watch("chunks", lambda: list(self.inner.chunks(key)))

    def chunks_of(self, key: str, tag: str) -> Iterator[bytes]:
        yield from self._watch("chunks", lambda: list(self.inner.chunks_of(key, tag)))

    def put(self, key: str, data: bytes, *, is_new: bool = False, replaces: object = None) -> None:
        self._watch("put", lambda: self.inner.put(key, data, is_new=is_new, replaces=replaces))

    def put_chunks(self, key: str, size: int, chunks: Iterable[bytes | memoryview]) -> None:
        self._watch("put_chunks", lambda: self.inner.put_chunks(key, size, chunks))

    def copy(self, key: str, to: str, size: int | None) -> None:
        self._watch("copy", lambda: self.inner.copy(key, to, size))

    def remove(self, keys: Sequence[str]) -> None:
        for key in keys:
            self.before("remove")
            self.inner.remove([key])
        if keys:
            self.after("remove")

    def remove_unchanged(self, key: str, size: int, tag: str) -> None:
        self._watch("remove", lambda: self.inner.remove_unchanged(key, size, tag))

    def _watch(self, name: str, work: Callable[[], Result]) -> Result:
        self.before(name)
        result = work()
        self.after(name)
        return result
