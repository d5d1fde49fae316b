"""Read objects below a key of a storage without directories: fresh listings, small documents, byte ranges."""

import io
import json
from collections.abc import Sequence
from typing import Any, BinaryIO, cast

from feed_assets.storage.object.client import ObjectClient, ObjectListing, each

_BUFFER = 8 << 20
_WORTH_LISTING_PARENT = 4


def list_objects(client: ObjectClient, key: str) -> ObjectListing:
    """List all objects below a key; if there are none, list the object at the key itself as ""."""
    below = client.list(key)
    if below.exists:
        return below
    itself = client.find(key)
    return below if itself is None else ObjectListing(exists=True, files={"": itself})


def find_present(client: ObjectClient, paths: Sequence[str]) -> dict[str, None]:
    """Return the paths that may exist and need a listing each; a folder with several of the paths is listed first."""
    groups: dict[str, list[str]] = {}
    for path in paths:
        groups.setdefault(path.rpartition("/")[0], []).append(path)
    parents = [parent for parent, group in groups.items() if len(group) >= _WORTH_LISTING_PARENT]
    children = dict(zip(parents, each(client.children, parents), strict=True))
    present: dict[str, None] = {}
    for parent, group in groups.items():
        names = {name for found in children.get(parent, ()) for name in found}
        present.update({path: None for path in group if parent not in children or path.rpartition("/")[2] in names})
    return present


def remove_below(client: ObjectClient, key: str) -> None:
    """Remove all objects below a key."""
    client.remove([f"{key}/{path}" for path in client.list(key).files])


def read_object(client: ObjectClient, key: str) -> bytes | None:
    """Return the bytes of one small object; None if it does not exist."""
    try:
        return client.get(key)
    except FileNotFoundError:
        return None


def read_document(client: ObjectClient, key: str) -> dict[str, Any] | None:
    """Return the JSON of one small object; None if it does not exist."""
    text = read_object(client, key)
    return None if text is None else cast(dict[str, Any], json.loads(text))


class ObjectReader(io.RawIOBase):
    """An object of known size as a stream; each read is one request for a range."""

    def __init__(self, client: ObjectClient, key: str, size: int) -> None:
        super().__init__()
        self._client = client
        self._key = key
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, origin + offset)
        return self._position

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        start, end = self._position, min(self._position + len(buffer), self._size)
        if start >= end:
            return 0
        data = self._client.get_range(self._key, start, end)
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)

    def readall(self) -> bytes:
        start, self._position = self._position, max(self._position, self._size)
        return bytes(self._client.get_range(self._key, start, self._size)) if start < self._size else b""


def open_object(client: ObjectClient, key: str, size: int) -> BinaryIO:
    """Open an object of known size for reading."""
    buffer = max(io.DEFAULT_BUFFER_SIZE, min(size, _BUFFER))
    return cast(BinaryIO, io.BufferedReader(ObjectReader(client, key, size), buffer_size=buffer))
