"""Access HDFS by hdfs-native, without a Java machine, with Python's own file exceptions.

Files are presented as objects, and folders can be renamed. A file is written under a temporary name and then renamed,
so it appears at once. The library reads `core-site.xml` and `hdfs-site.xml` of `HADOOP_CONF_DIR`. Files have times
instead of ETags. A condition `replaces` of `put` is checked before the write, so two publishers of one path need a
lease.
"""

import errno
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import cache, partial
from itertools import islice
from threading import Thread
from typing import TypeVar
from urllib.parse import urlsplit
from uuid import uuid4

from hdfs_native import AclEntry, Client, FileStatus, FileWriter, WriteOptions

from feed_assets.storage.copy_port import Acl, Traits
from feed_assets.storage.listing import Entry
from feed_assets.storage.object.client import (
    Children,
    ObjectClient,
    ObjectListing,
    RootAwayError,
    RootRefusedError,
    UnusableKeyError,
    counted,
)
from feed_assets.storage.paths import CONTROL_FOLDER, path_name

Answer = TypeVar("Answer")

ANSWER_SECONDS = 60.0
_DEFAULTS = {  # the library would try for minutes
    "dfs.client.failover.max.attempts": "4",
    "dfs.client.failover.sleep.base.millis": "250",
    "dfs.client.failover.sleep.max.millis": "2000",
}
_IDENTITY = ("kerberos_principal", "kerberos_keytab", "kerberos_cache")
_WRITING = f"{CONTROL_FOLDER}/staging/writing"
PUBLISHING_FOLDER = f"{CONTROL_FOLDER}/publishing"
_LEAST_BLOCK = 1 << 20
"""Bytes of the smallest block that a name node allows as it comes."""
_PIECES = 16
"""Pieces of a file that make one chunk; the library yields 64 KiB each."""
_BATCH = 10_000
_NO_CONFIGURATION = "name HADOOP_CONF_DIR, the folder of the cluster's core-site.xml and hdfs-site.xml"
# 'RPCError("org.apache.hadoop.hdfs.server.namenode.SafeModeException", "Cannot create file/a. Name node is in safe…'
_ERROR = re.compile(r'(\w+)\((?:"[\w.]*?([\w$]+)", )?"(.*?)(?:"\))?', re.DOTALL)
_TRACE = re.compile(r"(?:\\n|\n)(?:\\t|\t)at .*", re.DOTALL)
_NO_FOLDER = "is not a directory"
_KINDS: Mapping[str, Callable[[str], OSError]] = {
    "AccessControlException": lambda text: PermissionError(errno.EACCES, text),
    "InvalidPathException": lambda text: UnusableKeyError(text),
    "FSLimitException$PathComponentTooLongException": lambda text: UnusableKeyError(text),
    "PathIsNotEmptyDirectoryException": lambda text: OSError(errno.ENOTEMPTY, text),
    "NSQuotaExceededException": lambda text: OSError(errno.EDQUOT, text),
    "DSQuotaExceededException": lambda text: OSError(errno.EDQUOT, text),
    "QuotaByStorageTypeExceededException": lambda text: OSError(errno.EDQUOT, text),
    "SnapshotException": lambda text: NotADirectoryError(errno.ENOTDIR, text),
}
_NODE = "a data node or the name node"
_NODE_AWAY = "Try again: the name node chooses others, and leaves a dead one out after some minutes."
_TRIES, _PAUSE = 5, 0.5


class DataNodeAwayError(RootAwayError):
    """A data node does not answer; the name node may not know of it yet."""


class OptionError(ValueError):
    """An option is not known."""


class HdfsClient(ObjectClient):
    """The files below the path of an `hdfs://` or `viewfs://` URL.

    `options` are properties of Hadoop, whose names have dots, and those of Kerberos. A request that is not answered
    within `ANSWER_SECONDS` is given up; a name node that is away is tried four times.
    """

    def __init__(self, url: str, options: Mapping[str, object]) -> None:
        parts = urlsplit(url)
        self._root = parts.path.rstrip("/")
        self._authority = parts.netloc
        properties = {name: str(value) for name, value in options.items() if "." in name}
        identity = {name: str(value) for name, value in options.items() if name in _IDENTITY}
        if unknown := options.keys() - properties.keys() - identity.keys():
            raise OptionError(", ".join(sorted(unknown)))
        address = f"{parts.scheme}://{parts.netloc}" if parts.netloc else None
        self._open = cache(lambda _pid: Client(address, {**_DEFAULTS, **properties}, **identity))

    def find_refusal(self, error: Exception) -> RootRefusedError | None:
        return error if isinstance(error, RootRefusedError) else None

    def marker(self, target: str) -> str:
        return f"{PUBLISHING_FOLDER}/{path_name(target)}.json"

    def check(self) -> None:
        path = self._root or "/"
        while (found := self._status(path)) is None and path != "/":
            path = path.rpartition("/")[0] or "/"
        if found is None or not found.isdir:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)

    def list(self, prefix: str) -> ObjectListing:
        try:
            found = [each for each in self._statuses(prefix, recursive=True) if not each[1].isdir]
        except (FileNotFoundError, NotADirectoryError):
            return ObjectListing(exists=False, files={})
        return ObjectListing(exists=True, files={name: _entry_of(name, status) for name, status in found})

    def children(self, prefix: str) -> Children:
        found = dict[str, FileStatus]()
        with suppress(FileNotFoundError, NotADirectoryError):
            found.update(self._statuses(prefix, recursive=False))
        files = {name: _entry_of(name, status) for name, status in found.items() if not status.isdir}
        return Children([name for name, status in found.items() if status.isdir], files)

    def find(self, key: str) -> Entry | None:
        status = self.status(key)
        return None if status is None or status.isdir else _entry_of("", status)

    def chunks(self, key: str) -> Iterator[bytes]:
        path = self._path(key)
        try:
            reader = self._ask(lambda client: client.read(path))
            stream = self._ask(lambda _: reader.read_range_stream(0, len(reader)))
            for pieces in self._batches(stream, _PIECES, _NODE):
                yield b"".join(pieces)
        except FileNotFoundError:
            raise
        except OSError as exc:
            # it was removed while it was read, and its blocks are gone
            if (isinstance(exc, DataNodeAwayError) or not isinstance(exc, RootRefusedError)) and self.find(key) is None:
                raise FileNotFoundError(path) from None
            raise

    def put(self, key: str, data: bytes, *, is_new: bool = False, replaces: object = None) -> None:
        if replaces is not None and self.get(key) != replaces:
            raise FileExistsError(key)
        for left in reversed(range(_TRIES)):
            try:
                self._write(key, [data], overwrite=not is_new)
                break
            except DataNodeAwayError:  # the name node may know of it, or choose others, by now
                if not left:
                    raise
                time.sleep(_PAUSE)

    def put_chunks(
        self, key: str, size: int, chunks: Iterable[bytes | memoryview], block_size: int | None = None
    ) -> None:
        self._write(key, counted(chunks, size), overwrite=True, block_size=block_size)

    def remove(self, keys: Sequence[str]) -> None:
        for key in keys:
            with suppress(FileNotFoundError, NotADirectoryError):
                self._delete(key, recursive=False)

    def status(self, key: str) -> FileStatus | None:
        """Return the status of a file or folder; None if nothing is there."""
        return self._status(self._path(key))

    def move(self, key: str, to: str, *, overwrite: bool = False) -> None:
        """Rename a file or folder atomically.

        Raises `FileNotFoundError` if it or the new parent does not exist, `FileExistsError` if the destination does.
        With `overwrite`, a file replaces a file.
        """
        source, target = self._path(key), self._path(to)
        self._ask(lambda client: client.rename(source, target, overwrite))

    def make_folder(self, key: str, *, parents: bool = True, like: FileStatus | None = None) -> None:
        """Create a folder unless it exists, with permissions and owner of `like` as far as this user is allowed.

        Raises `FileExistsError` if a file is there, and without `parents` `FileNotFoundError` if its parent is not.
        """
        path = self._path(key)
        self._ask(lambda client: client.mkdirs(path, 0o755, parents))
        if like is not None:
            self.dress(key, like)

    def dress(self, key: str, like: FileStatus) -> None:
        """Give a file or folder the permissions and the owner of another one as far as this user is allowed."""
        path, now = self._path(key), self.status(key)
        if now is None:
            return
        with suppress(PermissionError):
            if now.permission != like.permission:
                self._ask(lambda client: client.set_permission(path, like.permission))
            if (now.owner, now.group) != (like.owner, like.group):
                self._ask(lambda client: client.set_owner(path, like.owner, like.group))

    def set_times(self, key: str, modified: int) -> None:
        """Set the time of a file, in nanoseconds since 1970; HDFS keeps milliseconds."""
        path, time = self._path(key), modified // 1_000_000
        self._ask(lambda client: client.set_times(path, time, time))

    def set_permission(self, key: str, mode: int) -> None:
        path = self._path(key)
        self._ask(lambda client: client.set_permission(path, mode))

    def grant(self, key: str, traits: Traits, acl: Acl | None) -> None:
        """Set owner, group, number of replicas and access list of a file, as far as they are given."""
        path = self._path(key)
        if traits.replicas:
            self._ask(lambda client: client.set_replication(path, traits.replicas))
        if traits.owner or traits.group:
            self._ask(lambda client: client.set_owner(path, traits.owner or None, traits.group or None))
        if acl:
            entries = [AclEntry(*entry) for entry in acl]  # type: ignore[arg-type]
            self._ask(lambda client: client.modify_acl_entries(path, entries))

    def acl(self, key: str) -> Acl:
        """Return the access list of a file beyond its permissions. Raises `FileNotFoundError`."""
        path = self._path(key)
        found = self._ask(lambda client: client.get_acl_status(path))
        return tuple((entry.type, entry.scope, entry.permissions, entry.name) for entry in found.entries)

    def remove_tree(self, key: str) -> int:
        """Remove a folder with all that is in it; return the number of its files, 0 if it does not exist."""
        path = self._path(key)
        try:
            summary = self._ask(lambda client: client.get_content_summary(path))
        except FileNotFoundError:
            return 0
        self.remove_whole(key)
        return summary.file_count

    def remove_whole(self, key: str) -> None:
        """Remove a file or a folder with all that is in it, atomically."""
        self._delete(key, recursive=True)

    def remove_folder(self, key: str) -> bool:
        """Remove an empty folder; return False if nothing is there. Raises `OSError` with ENOTEMPTY or ENOTDIR."""
        if (found := self.status(key)) is not None and not found.isdir:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), key)
        return found is not None and self._delete(key, recursive=False)

    def remove_empty_folders(self, key: str, older_than: int | None = None) -> None:
        """Remove all empty folders below a folder; if asked, only those unchanged since a time in nanoseconds."""
        folders = list[tuple[str, FileStatus]]()
        with suppress(FileNotFoundError):
            folders += [each for each in self._statuses(key, recursive=True) if each[1].isdir]
        for name, status in sorted(folders, key=lambda found: -found[0].count("/")):
            if older_than is None or status.modification_time * 1_000_000 < older_than:
                with suppress(OSError):
                    self.remove_folder(f"{key}/{name}")

    def _write(self, key: str, chunks: Iterable[bytes], *, overwrite: bool, block_size: int | None = None) -> None:
        folder = f"{_WRITING}/{uuid4().hex}"
        draft, target = self._path(f"{folder}/file"), self._path(key)
        try:
            self._write_blocks(draft, chunks, WriteOptions(block_size=block_size))
            try:
                self._ask(lambda client: client.rename(draft, target, overwrite))
            except FileNotFoundError:
                self.make_folder(key.rpartition("/")[0])
                self._ask(lambda client: client.rename(draft, target, overwrite))
        finally:
            with suppress(OSError):
                self._delete(folder, recursive=True)

    def _write_blocks(self, path: str, chunks: Iterable[bytes | memoryview], options: WriteOptions) -> None:
        """Write a file, closed after each block: only then the library waits until the name node counts the block."""
        writer, written, block = self._ask(lambda client: client.create(path, options)), 0, 0
        for chunk in chunks:
            rest = memoryview(chunk)
            while rest:
                if not block and written + len(rest) > _LEAST_BLOCK:
                    block = self._ask(lambda client: client.get_file_info(path).blocksize) or sys.maxsize
                if block and written and written % block == 0:
                    self._ask(partial(_close, writer), _NODE)
                    writer = self._ask(lambda client: client.append(path))
                piece = rest[: block - written % block] if block else rest
                self._ask(partial(_write, writer, piece), _NODE)
                written, rest = written + len(piece), rest[len(piece) :]
        self._ask(partial(_close, writer), _NODE)

    def _delete(self, key: str, *, recursive: bool) -> bool:
        path = self._path(key)
        return self._ask(lambda client: client.delete(path, recursive))

    def _status(self, path: str) -> FileStatus | None:
        try:
            return self._ask(lambda client: client.get_file_info(path))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _statuses(self, key: str, *, recursive: bool) -> Iterator[tuple[str, FileStatus]]:
        """Yield what is in a folder, by its name relative to it.

        Raises `FileNotFoundError` if nothing is there, `NotADirectoryError` for a file.
        """
        path = self._path(key)
        start = len(path.rstrip("/")) + 1
        for batch in self._batches(self._ask(lambda client: client.list_status(path, recursive)), _BATCH):
            if batch[0].path == path and not batch[0].isdir:
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            yield from ((status.path[start:], status) for status in batch)

    def _batches(self, items: Iterator[Answer], most: int, node: str = "") -> Iterator[Sequence[Answer]]:
        while batch := self._ask(lambda _: [*islice(items, most)], node):
            yield batch
            if len(batch) < most:
                break

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}".rstrip("/") or "/"

    def _ask(self, ask: Callable[[Client], Answer], node: str = "") -> Answer:
        """Ask the name node, or `node`, and give up in time: a call that hangs is left alone in its thread.

        Raises `OSError`.
        """
        future: Future[Answer] = Future()
        Thread(target=_fulfil, args=(future, ask, self._open), name="request to HDFS", daemon=True).start()
        try:
            return future.result(ANSWER_SECONDS)
        except TimeoutError as exc:
            raise RootAwayError(
                f"it has not answered within {ANSWER_SECONDS:g} seconds",
                "Check that the name node and the data nodes run and can be reached.",
            ) from exc
        except (RuntimeError, OSError, UnicodeError) as exc:
            raise self._translate(exc, node) from exc

    def _translate(self, error: Exception, node: str) -> OSError:
        """Return Python's own exception for one of the library."""
        text = _TRACE.sub("", str(error))
        if isinstance(error, UnicodeError):
            return UnusableKeyError("its name is not UTF-8")
        if isinstance(error, FileNotFoundError | FileExistsError | PermissionError | IsADirectoryError):
            return type(error)(text)
        if isinstance(error, OSError):
            if node:
                return DataNodeAwayError(f"{node} does not answer ({text})", _NODE_AWAY)
            return self._away(f"nothing answers{self._at} ({text})")
        kind, cause, said = found.groups() if (found := _ERROR.fullmatch(text)) else ("", "", text)
        said = said.replace('\\"', '"').replace("\\'", "'")
        if _NO_FOLDER in said:
            return NotADirectoryError(errno.ENOTDIR, said)
        if cause in _KINDS:
            return _KINDS[cause](said)
        if "afe mode" in said:
            return RootAwayError(
                f"its name node is in safe mode and changes nothing: {said.partition('.')[0]}",
                "Wait until it has left safe mode; `hdfs dfsadmin -safemode get` says whether it has.",
            )
        if cause in ("StandbyException", "RetriableException"):
            return self._away(f"no name node is active{self._at}: {said}")
        if kind == "InvalidArgument" and ("NameNode" in said or "fs.defaultFS" in said or "viewfs" in said):
            return RootRefusedError(
                f"no name node of {self._authority or 'the default file system'} is known ({said})",
                f"Write the port of the name node, or {_NO_CONFIGURATION}.",
            )
        if "could only be written to 0 of the" in said:
            return OSError(errno.ENOSPC, f"no data node takes a block: all are full or away ({said})")
        if node:
            return DataNodeAwayError(f"{node} broke off ({said})", _NODE_AWAY)
        return OSError(said)

    @property
    def _at(self) -> str:
        return f" at {self._authority}" if self._authority else ""

    def _away(self, reason: str) -> RootAwayError:
        return RootAwayError(reason, f"Start the name node, correct the cluster's storage, or {_NO_CONFIGURATION}.")


def _write(writer: FileWriter, chunk: memoryview, _: Client) -> int:
    return writer.write(chunk)


def _close(writer: FileWriter, _: Client) -> None:
    writer.close()


def _fulfil(future: "Future[Answer]", ask: Callable[[Client], Answer], opened: Callable[[int], Client]) -> None:
    try:
        future.set_result(ask(opened(os.getpid())))
    except Exception as exc:  # noqa: BLE001 - who waits decides what it means
        future.set_exception(exc)
    except BaseException as exc:  # noqa: BLE001 - the library panics so
        future.set_exception(RuntimeError(str(exc)))


def _entry_of(name: str, status: FileStatus) -> Entry:
    modified = status.modification_time * 1_000_000
    version = f"{status.modification_time:x}.{status.length:x}"
    traits = Traits(status.owner, status.group, status.replication or 0, status.blocksize or 0)
    return Entry(name, status.length, version, modified, modified, status.permission, "", traits)
