"""Objects below a key of a filesystem without directories: one fresh listing, reading by range, many at a time."""

import errno
import hashlib
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, BinaryIO, TypeVar, cast

from fsspec import AbstractFileSystem

from feed_assets.storage.object_requests import delete_objects, get_object, get_range, iter_objects, takes_requests

_THREADS = 16
_RANGE = 8 << 20
_ETAG_OF_CONTENT = re.compile(r'"?([0-9a-f]{32})"?')  # "900150983cd24fb0d6963f7d28e17f72", not "…-2" of two parts

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectFile:
    """An object: path relative to the key that was listed ("" for that key itself), size in bytes, time (UTC).

    `tag` changes with every write, as far as the filesystem tells. `checksum` is one of the content that the storage
    itself keeps, "" if it keeps none.
    """

    path: str
    size: int
    modified_at: datetime | None
    tag: str
    checksum: str = ""

    def sign(self, settled_before: datetime) -> str:
        """A sign that changes with every write; "" if the storage tells times only, and the last is too new."""
        is_tagged = not self.tag.startswith(" ")
        is_settled = self.modified_at is not None and self.modified_at < settled_before
        return self.tag if is_tagged or is_settled else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectListing:
    """All that is below a key. `exists` is also true of a directory without objects, where those exist."""

    exists: bool
    files: dict[str, ObjectFile]


def list_objects(fs: AbstractFileSystem, key: str) -> ObjectListing:
    """List a key and all that is below it."""
    if not takes_requests(fs):
        found = fs.find(key, withdirs=True, detail=True)
        names = {name: info for name, info in found.items() if info["type"] != "directory" and not name.endswith("/")}
        files = {_below(key, name): _object_file(_below(key, name), info) for name, info in names.items()}
        return ObjectListing(exists=bool(found), files=files)
    below = list_below(fs, key)
    if below.exists or "/" not in key:
        return below
    itself = find_object(fs, key)
    return below if itself is None else ObjectListing(exists=True, files={"": itself})


def list_below(fs: AbstractFileSystem, key: str) -> ObjectListing:
    """List all that is below a key which is no object itself."""
    if not takes_requests(fs):
        return list_objects(fs, key)
    found = {str(info["name"]): info for info in iter_objects(fs, f"{key}/")}
    names = {name: info for name, info in found.items() if not name.endswith("/")}
    files = {_below(key, name): _object_file(_below(key, name), info) for name, info in names.items()}
    return ObjectListing(exists=bool(found), files=files)


def find_object(fs: AbstractFileSystem, key: str) -> ObjectFile | None:
    """What a listing tells of one object; None if it does not exist."""
    if not takes_requests(fs):
        return list_objects(fs, key).files.get("")
    first = next(iter_objects(fs, key, 1), None)
    return _object_file("", first) if first is not None and first["name"] == key else None


def _below(key: str, name: str) -> str:
    return name.removeprefix(key).lstrip("/")


def _object_file(path: str, info: Mapping[str, Any]) -> ObjectFile:
    modified_at = _modified_at(info)
    tag = next((str(info[field]) for field in ("ETag", "etag", "generation", "md5Hash") if info.get(field)), "")
    return ObjectFile(
        path=path,
        size=int(info["size"] if "size" in info else info["Size"]),
        modified_at=modified_at,
        tag=f"{tag} {modified_at}",
        checksum=_checksum(info),
    )


def child_names(fs: AbstractFileSystem, key: str) -> set[str] | None:
    """The names directly below a key; None if there is nothing at all."""
    try:
        return {str(name).rstrip("/").rsplit("/", 1)[-1] for name in fs.ls(key, detail=False)}
    except FileNotFoundError:
        return None


def each(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Do the same with many objects, several at a time; results in order; the first exception goes on."""
    if len(items) < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(min(_THREADS, len(items))) as pool:
        return list(pool.map(work, items))


def remove_objects(fs: AbstractFileSystem, keys: Iterable[str]) -> None:
    """Remove objects, those that are gone already included."""
    keys = list(keys)
    if delete_objects(fs, keys):
        return

    def remove(key: str) -> None:
        with suppress(FileNotFoundError):
            fs.rm_file(key)

    each(remove, keys)


def remove_below(fs: AbstractFileSystem, key: str) -> None:
    """Remove all that is below a key."""
    remove_objects(fs, [f"{key}/{path}" for path in list_below(fs, key).files if path])


def read_object(fs: AbstractFileSystem, key: str) -> bytes | None:
    """The bytes of one small object; None if it does not exist."""
    try:
        return get_object(fs, key)
    except FileNotFoundError:
        return None


def read_document(fs: AbstractFileSystem, key: str) -> dict[str, Any] | None:
    """The JSON of one small object; None if it does not exist."""
    text = read_object(fs, key)
    return None if text is None else cast(dict[str, Any], json.loads(text))


def iter_ranges(fs: AbstractFileSystem, key: str, offset: int, size: int) -> Iterator[bytes]:
    """A stretch of an object in order; less if it is shorter. `FileNotFoundError` if it does not exist.

    `size` may be one byte more than there is, to see whether there is more.
    """
    while size > 0:
        wanted = size if size <= _RANGE + 1 else _RANGE
        try:
            is_whole = offset == 0 and wanted == 1  # of an object without bytes no range can be had
            data = get_object(fs, key) if is_whole else get_range(fs, key, offset, offset + wanted)
        except OSError as exc:
            if exc.errno == errno.EINVAL and int(fs.info(key)["size"]) <= offset:
                return
            raise
        if data:
            yield data
        if len(data) < wanted:
            return
        offset, size = offset + len(data), size - len(data)


class ObjectReader(io.RawIOBase):
    """An object of known size as a stream; each read is one request for a range."""

    def __init__(self, fs: AbstractFileSystem, key: str, size: int) -> None:
        super().__init__()
        self._fs = fs
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

    def readall(self) -> bytes:
        data = b"".join(iter_ranges(self._fs, self._key, self._position, self._size - self._position))
        self._position += len(data)
        return data

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        start, end = self._position, min(self._position + len(buffer), self._size)
        if start >= end:
            return 0
        data = get_range(self._fs, self._key, start, end)
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)


def open_object(fs: AbstractFileSystem, key: str, size: int) -> BinaryIO:
    """Open an object of known size for reading."""
    buffer = max(io.DEFAULT_BUFFER_SIZE, min(size, _RANGE))
    return cast(BinaryIO, io.BufferedReader(ObjectReader(fs, key, size), buffer_size=buffer))


def prove_object(etag: str, data: bytes) -> str:
    """What a listing gives as the `checksum` of an object with this ETag, if that is one of this content; else ""."""
    return checksum if is_checksum_of(checksum := _etag_checksum(etag), data) else ""


def is_checksum_of(checksum: str, data: bytes) -> bool:
    """Whether the `checksum` of an object is an ETag that proves that it has this content."""
    return checksum == f"etag:{_md5(data)}"


def _checksum(info: Mapping[str, object]) -> str:
    """The checksum that Google keeps of an object, or the ETag of S3 where that is one: not of what came in parts."""
    if md5 := info.get("md5Hash"):
        return f"md5:{md5}"
    return _etag_checksum(str(info.get("ETag", "")))


def _etag_checksum(etag: str) -> str:
    tag = _ETAG_OF_CONTENT.fullmatch(etag)
    return f"etag:{tag.group(1)}" if tag else ""


def _md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def _modified_at(info: Mapping[str, object]) -> datetime | None:
    for field in ("LastModified", "last_modified", "mtime", "updated", "created"):
        match info.get(field):
            case datetime() as moment:
                return moment.astimezone(UTC)
            case float() | int() as seconds:
                return datetime.fromtimestamp(seconds, UTC)
            case str() as text:
                return datetime.fromisoformat(text).astimezone(UTC)
    return None
