"""The port to clients of object storage: the requests that an object store makes.

Keys are relative to the root of a store. A missing object raises `FileNotFoundError`, a failed condition raises
`FileExistsError`, a name that the client cannot use raises `UnusableKeyError`, and every other refusal raises another
`OSError`.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, TypeVar

from feed_assets.storage.listing import UNKNOWN_CHANGE, Entry, nanoseconds
from feed_assets.storage.paths import PUBLISHING_NAME

_THREADS = 16

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectListing:
    """All objects below a key. `exists` is also true for an empty directory, on storages with directories."""

    exists: bool
    files: dict[str, Entry]


def entry_of(path: str, size: int, modified_at: datetime | None, tag: str, checksum: str = "") -> Entry:
    """Return the entry of an object: path relative to the listed key ("" for that key itself), time in UTC.

    `tag` is the version; it begins with a space if it is only a time, and the size then belongs to it. With an ETag an
    object counts as settled at once, with a time only later.
    """
    modified = None if modified_at is None else nanoseconds(modified_at)
    if not tag.startswith(" "):
        return Entry(path, size, tag, 0, modified, None, checksum)
    changed = UNKNOWN_CHANGE if modified is None else modified
    return Entry(path, size, f"{tag} {size}", changed, modified, None, checksum)


class Children(NamedTuple):
    """The names directly below a key, and the objects by their names."""

    folders: Sequence[str]
    files: Mapping[str, Entry]


class RootRefusedError(OSError):
    """The bucket of a root does not exist, or its service refuses the credentials."""

    def __init__(self, reason: str, next_step: str) -> None:
        self.next_step = next_step
        super().__init__(reason)


class RootAwayError(RootRefusedError, ConnectionError):
    """The service of a root does not answer."""


class UnusableKeyError(OSError):
    """An object has a name that the client cannot read, copy or delete, such as one with an empty part (`x//y`)."""

    @property
    def obstacle(self) -> str:
        """Why what contains the object cannot be moved."""
        return f"an object of it cannot be removed: {self}"


class ObjectClient(ABC):
    """The requests to one storage; thread-safe."""

    def find_refusal(self, error: Exception) -> RootRefusedError | None:  # noqa: ARG002
        """Return what keeps the root from being used, by the code of the service's answer, or by the lack of one; None
        if an error says nothing of it.
        """
        return None

    def marker(self, target: str) -> str:
        """Return the key of the marker of a publication in progress at a key."""
        return f"{target}/{PUBLISHING_NAME}"

    @abstractmethod
    def check(self) -> None:
        """Contact the storage. Raises `OSError` unless the bucket, or the directory, of the root exists."""

    @abstractmethod
    def list(self, prefix: str) -> ObjectListing:
        """List all objects below the folder `prefix`, never from a cache and without an object of that very name."""

    @abstractmethod
    def children(self, prefix: str) -> Children:
        """List the names directly below the folder `prefix`; "" is the root."""

    def all_children(self, prefix: str) -> Children:
        """List as `children` does, with names that no request can use if possible: `/a.json` is `prefix//a.json`."""
        return self.children(prefix)

    @abstractmethod
    def find(self, key: str) -> Entry | None:
        """Return one object, with the same tag as in a listing; None if it does not exist."""

    def get(self, key: str) -> bytes:
        """Read a small object."""
        return b"".join(self.chunks(key))

    def get_versioned(self, key: str) -> tuple[bytes, object]:
        """Read a small object; return its bytes and the version for the condition `replaces` of `put`: the bytes, where
        the storage knows no versions.
        """
        return (data := self.get(key)), data

    @abstractmethod
    def chunks(self, key: str) -> Iterator[bytes]:
        """Read an object from start to end, in chunks."""

    def chunks_of(self, key: str, tag: str) -> Iterator[bytes]:
        """Read an object that has this tag, by one conditional request where the storage knows any.

        Otherwise it is compared before and after. Raises `FileExistsError` if it has another tag.
        """
        self._require(key, tag)
        yield from self.chunks(key)
        self._require(key, tag)

    def _require(self, key: str, tag: str) -> None:
        found = self.find(key)
        if found is None or found.version != tag:
            raise FileExistsError(key)

    @abstractmethod
    def put(self, key: str, data: bytes, *, is_new: bool = False, replaces: object = None) -> None:
        """Write a small object atomically.

        Raises `FileExistsError` and writes nothing if `is_new` and the object exists, or if its version is not the one
        that `replaces` names. This can also happen after success: a request whose answer is late is repeated, and the
        repeat then finds its own object.
        """

    @abstractmethod
    def put_chunks(self, key: str, size: int, chunks: Iterable[bytes | memoryview]) -> None:
        """Write an object of any size atomically.

        Raises `OSError` if the chunks do not have `size` bytes in total.
        """

    def copy(self, key: str, to: str, size: int | None) -> None:
        """Copy an object within the storage, or through this process; `size` is its size in bytes, None if unknown."""
        found = self.find(key)
        self.put_chunks(to, found.size if found else size or 0, self.chunks(key))

    @abstractmethod
    def remove(self, keys: Sequence[str]) -> None:
        """Remove objects; missing ones are no error."""

    def remove_unchanged(self, key: str, size: int, tag: str) -> None:
        """Remove an object that still has this size and tag, by one conditional request where the storage knows any.

        Otherwise it is compared directly before.
        """
        found = self.find(key)
        if found is not None and (found.size, found.version) == (size, tag):
            self.remove([key])


def each(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Call `work` for many objects, several at a time; return results in order, raise the first exception."""
    if len(items) < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(min(_THREADS, len(items))) as pool:
        return list(pool.map(work, items))


def counted(chunks: Iterable[bytes | memoryview], size: int) -> Iterator[bytes]:
    """Yield chunks as bytes. Raises `OSError` at the end unless they had `size` bytes in total."""
    received = 0
    for chunk in chunks:
        received += len(chunk)
        yield bytes(chunk)
    if received != size:
        raise OSError(f"it has {received:,} bytes instead of {size:,}")


def is_content_of(file: Entry | None, data: bytes) -> bool:
    """Return whether the checksum of an object proves that it has this content."""
    digest = hashlib.md5(data, usedforsecurity=False).hexdigest()
    return file is not None and file.checksum == f"etag:{digest}"
