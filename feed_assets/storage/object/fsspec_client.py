"""Access storage that fsspec supports and obstore does not: files on a server (sftp), presented as objects.

This storage has no conditional writes: a condition of `put` is checked before the write, so two publishers of one
path need a lease. Files have times instead of ETags, so a recent version proves nothing. A file is written to a
temporary path and then renamed. Symbolic links below the root are not followed.
"""

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from threading import RLock
from typing import Any

import fsspec
from fsspec import AbstractFileSystem

from feed_assets.storage.listing import Entry
from feed_assets.storage.object.client import Children, ObjectClient, ObjectListing, counted, entry_of
from feed_assets.storage.paths import CONTROL_FOLDER

_CHUNK = 1 << 20
ANSWER_SECONDS = 60.0
_WRITING = f"{CONTROL_FOLDER}/staging/writing"


class FsspecClient(ObjectClient):
    """The files below the path of a URL. `foreign` are the exceptions of its library that are not `OSError`.

    Only one request runs at a time, because paramiko mixes up the answers to concurrent requests. A request that is not
    answered within `ANSWER_SECONDS` fails, and the next one connects anew.
    """

    def __init__(self, url: str, options: Mapping[str, object], foreign: tuple[type[Exception], ...] = ()) -> None:
        self._open = cache(lambda: _connect(url, options))
        self._foreign = foreign
        self._lock = RLock()

    def check(self) -> None:
        with self._request() as (fs, root):
            fs.info(root if fs.exists(root) else root.rpartition("/")[0] or "/")

    def list(self, prefix: str) -> ObjectListing:
        with self._request() as (fs, root):
            path = f"{root}/{prefix}".rstrip("/")
            found = fs.find(path, withdirs=True, detail=True)
        found = {name[len(path) + 1 :]: info for name, info in found.items() if len(name) > len(path)}
        files = {name: _object_file(name, info) for name, info in found.items() if _is_file(name, info)}
        return ObjectListing(exists=bool(files), files=files)

    def children(self, prefix: str) -> Children:
        found: Sequence[Mapping[str, Any]] = ()
        with self._request() as (fs, root), suppress(FileNotFoundError, NotADirectoryError):
            path = f"{root}/{prefix}".rstrip("/")
            found = [info for info in fs.ls(path, detail=True) if info["name"].rstrip("/") != path]
        infos = {info["name"].rstrip("/").rpartition("/")[2]: info for info in found}
        files = {name: _object_file(name, info) for name, info in infos.items() if info["type"] == "file"}
        return Children([name for name, info in infos.items() if info["type"] == "directory"], files)

    def find(self, key: str) -> Entry | None:
        with suppress(FileNotFoundError), self._request() as (fs, root):
            info = fs.info(f"{root}/{key}")
            return _object_file("", info) if _is_file(key, info) else None
        return None

    def chunks(self, key: str) -> Iterator[bytes]:
        with self._request() as (fs, root):
            stream = fs.open(f"{root}/{key}", "rb")
        while True:
            with self._request():
                chunk = stream.read(_CHUNK)
                if not chunk:
                    stream.close()
                    return
            yield chunk

    def put(self, key: str, data: bytes, *, is_new: bool = False, replaces: object = None) -> None:
        if (is_new and self.find(key) is not None) or (replaces is not None and self.get(key) != replaces):
            raise FileExistsError(key)
        self.put_chunks(key, len(data), [data])

    def put_chunks(self, key: str, size: int, chunks: Iterable[bytes | memoryview]) -> None:
        with self._request() as (fs, root):
            written = f"{root}/{_WRITING}/{uuid.uuid4().hex}/file"
            fs.makedirs(written.rpartition("/")[0], exist_ok=True)
            stream = fs.open(written, "wb")
        try:
            for chunk in counted(chunks, size):
                with self._request():
                    _write(stream, chunk)
            with self._request():
                stream.close()
                fs.makedirs(f"{root}/{key}".rpartition("/")[0], exist_ok=True)
                fs.mv(written, f"{root}/{key}")
        finally:
            self.remove([written.removeprefix(f"{root}/")])

    def remove(self, keys: Sequence[str]) -> None:
        """Remove files and their empty parent folders, because object storages have no folders."""
        with self._request() as (fs, root):
            for folder in {key.rpartition("/")[0] for key in keys}:
                self._require_no_link(fs, root, folder)
            for key in keys:
                with suppress(FileNotFoundError):
                    fs.rm_file(f"{root}/{key}")
                with suppress(OSError):
                    while key := key.rpartition("/")[0]:
                        fs.rmdir(f"{root}/{key}")

    def _require_no_link(self, fs: AbstractFileSystem, root: str, folder: str) -> None:
        with suppress(FileNotFoundError):
            while folder:
                parent, _, name = folder.rpartition("/")
                infos = fs.ls(f"{root}/{parent}".rstrip("/"), detail=True)
                any(_is_file(folder, info) for info in infos if info["name"].rpartition("/")[2] == name)
                folder = parent

    @contextmanager
    def _request(self) -> Iterator[tuple[AbstractFileSystem, str]]:
        try:
            with self._lock:
                fs, root = self._open()
                yield fs, str(root).rstrip("/")
        except TimeoutError as exc:
            self._open.cache_clear()
            raise TimeoutError(f"it has not answered within {ANSWER_SECONDS:g} seconds") from exc
        except self._foreign as exc:
            raise OSError(str(exc)) from exc


def _write(stream: Any, chunk: bytes | memoryview) -> None:
    """Write a chunk; of paramiko many requests at once, whose answers are all read with the last: whoever reads by the
    same connection meanwhile would take them.
    """
    pipeline = getattr(stream, "set_pipelined", bool)
    pipeline(True)
    stream.write(chunk[:-1])
    pipeline(False)
    stream.write(chunk[-1:])


def _connect(url: str, options: Mapping[str, object]) -> tuple[AbstractFileSystem, str]:
    try:
        fs, root = fsspec.core.url_to_fs(url, **options, skip_instance_cache=True)
    except OSError as exc:
        if exc.errno is None:  # paramiko has tried each address of the host
            raise ConnectionError(exc.strerror or str(exc)) from exc
        raise
    fs.ftp.get_channel().settimeout(ANSWER_SECONDS)
    return fs, root


def _is_file(name: str, info: Mapping[str, Any]) -> bool:
    """Return whether an entry is a file rather than a folder. Raises `OSError` for a link or anything else."""
    if info["type"] not in ("file", "directory"):
        raise OSError(f"{name!r} is a {info['type']}, which is not followed")
    return bool(info["type"] == "file")


def _object_file(path: str, info: Mapping[str, Any]) -> Entry:
    modified_at = info.get("mtime") or info.get("created")
    if isinstance(modified_at, int | float):
        modified_at = datetime.fromtimestamp(modified_at, UTC)
    return entry_of(path, int(info["size"]), modified_at, f" {modified_at}")
