"""Implement stagings on a local filesystem: folders next to the instances, filled by writers and then exchanged.

The folder `staging/<token>/<name of the path>/` has `data` (the next content), its partial manifest, and the header
`staging.json`. The header exists while the staging may be published. It has the inode of `data`, so that `data` is
found after a crash. One or several writers fill the folder. A take-over gives the staging the next generation, under an
exclusive lock of the header. Every writer knows its generation and holds a shared lock while it writes. The operating
system releases the lock of a process that dies.
"""

# ruff: noqa: PTH102, PTH103, PTH104, PTH106, PTH108, PTH110, PTH116, PTH120, PTH123
# System calls on text and descriptors: half of them have no pathlib form, and this is a hot path.

import errno
import fcntl
import json
import os
import shutil
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import count
from pathlib import Path

from feed_assets.clock import TimeBudget
from feed_assets.storage.copy_port import Prepared, StagedFile, Staging, size_error
from feed_assets.storage.errors import (
    InstanceChangingError,
    InstanceNotFoundError,
    StagingLostError,
    Translated,
)
from feed_assets.storage.local.files import (
    Follow,
    clone_file,
    is_at,
    iter_files,
    opened,
    parents,
    read_chunks,
    take_all_rights,
    write_all,
    write_chunks,
    write_file,
)
from feed_assets.storage.local.reader import LocalReader
from feed_assets.storage.local.tree import flush_file, list_directory, make_directories, read_files, write_flushed
from feed_assets.storage.manifests import parse_json, render_json, render_manifest, with_hidden
from feed_assets.storage.paths import MANIFEST_NAME, is_content
from feed_assets.storage.records import Extra, Guard, Manifest, StagingPlace

PATIENCE = 30.0
"""The number of seconds to wait for writers to end."""
_PAUSE = 0.05
_LONGEST = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class StagingHeader:
    """The content of `staging.json`. Until the staging `is_prepared`, its writer may recreate `data`."""

    path: str
    inode: int
    generation: int
    is_prepared: bool = False

    def render(self) -> bytes:
        document = {"version": 1, "path": self.path, "inode": self.inode, "number": self.generation}
        return json.dumps({**document, "prepared": self.is_prepared}).encode()


def find_header(folder: str) -> StagingHeader | None:
    """Return the content of a staging's `staging.json`; None if it does not exist or was never written."""
    try:
        with opened(header_path(folder), os.O_RDONLY) as lock:
            return _read_header(lock)
    except FileNotFoundError:
        return None


def remove_staging(folder: str) -> None:
    """Remove a staging, `staging.json` first, so that a half-removed staging never looks like a valid one."""
    with suppress(FileNotFoundError):
        os.unlink(header_path(folder))
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):
        os.rmdir(os.path.dirname(folder))


def header_path(folder: str) -> str:
    return f"{folder}/staging.json"


def create_header(path: str, header: StagingHeader) -> tuple[int, int]:
    """Create the `staging.json` of a new staging; return its generation and a descriptor that holds the lock.

    Raises `FileExistsError` or `FileNotFoundError` if another process creates or removes the staging at the same time.
    """

    def take(lock: int) -> StagingHeader:
        if not _try_lock(lock):
            raise FileExistsError(path)
        os.pwrite(lock, header.render(), 0)
        return header

    return _hold(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, take)


def take_over(path: str) -> tuple[int, int]:
    """Take over a staging; return its new generation and a descriptor that holds the lock.

    Raises `FileNotFoundError` if the staging is removed meanwhile, `TimeoutError` if the writers do not end.
    """

    def take(lock: int) -> StagingHeader | None:
        budget = TimeBudget(PATIENCE)
        while not _try_lock(lock):
            if budget.is_spent:
                raise TimeoutError(path)
            time.sleep(_PAUSE)
        former = _read_header(lock)
        if former is None:
            return None
        header = replace(former, generation=former.generation + 1)
        os.pwrite(lock, header.render(), 0)  # the new text is never shorter
        return header

    return _hold(path, os.O_RDWR, take)


def join_writers(path: str, generation: int) -> int:
    """Return a descriptor that holds the shared lock of a staging.

    Raises `FileNotFoundError` if the staging does not exist or has another generation.
    """

    def take(lock: int) -> StagingHeader | None:
        fcntl.flock(lock, fcntl.LOCK_SH)
        header = _read_header(lock)
        return header if header is not None and header.generation == generation else None

    return _hold(path, os.O_RDONLY, take)[1]


def _hold(path: str, flags: int, take: Callable[[int], StagingHeader | None]) -> tuple[int, int]:
    """Open a `staging.json`, apply `take`, and return its generation and the descriptor.

    Raises `FileNotFoundError` if `take` returns None or the file was replaced meanwhile.
    """
    lock = os.open(path, flags | os.O_CLOEXEC, 0o666)
    try:
        header = take(lock)
        if header is None or not _is_at(lock, path):
            raise FileNotFoundError(path)
    except BaseException:
        os.close(lock)
        raise
    return header.generation, lock


def _read_header(lock: int) -> StagingHeader | None:
    try:
        found = parse_json(os.pread(lock, _LONGEST, 0))
        return StagingHeader(
            path=found["path"],
            inode=found["inode"],
            generation=found["number"],
            is_prepared=bool(found.get("prepared")),
        )
    except (ValueError, KeyError):
        return None


def _try_lock(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(lock: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(lock), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False


_TRIES = 10
_PART = ".feed-assets.part-"
_NOT_EMPTY = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT})
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
_OLD = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW

Swap = Callable[["LocalStaging", Guard], None]


class StagingState(StrEnum):
    """The progress of a publication from a staging."""

    LOST = "LOST"
    STAGED = "STAGED"
    SWAPPED = "SWAPPED"


class LocalStaging(Staging):
    """A staging in the absolute `folder`, for the store that `reader` reads; `swap` is the exchange of the store."""

    def __init__(self, path: str, token: str, folder: str, reader: LocalReader, swap: Swap) -> None:
        self.path = path
        self.token = token
        self.folder = folder
        self.target = reader.target(path)
        self._data_path = f"{folder}/data"
        self._header_path = header_path(folder)
        self._reader = reader
        self._swap = swap
        self._lock: int | None = None
        self._data: int | None = None
        self._records = PartialManifest(folder)
        self._parts = count()
        self._writer = uuid.uuid4().hex
        self._made = {""}
        self.is_exact = False
        self._is_published = False

    def create(self, *, is_again: bool = False) -> StagingPlace:
        with self._translated():
            if not (is_again and os.path.exists(self._header_path)):
                self._lay(is_again=is_again)
        data = self._data_path
        return StagingPlace(path=self.path, token=self.token, url=f"file://{data}", local_path=Path(data))

    def _lay(self, *, is_again: bool) -> None:
        if not is_again:
            remove_staging(self.folder)
        for _ in range(_TRIES):
            with suppress(FileNotFoundError):  # the last other staging of this token was just removed
                make_directories(self._data_path)
                break
        header = StagingHeader(path=self.path, inode=os.lstat(self._data_path).st_ino, generation=0)
        write_flushed(self._header_path, header.render())

    def open(self) -> int:
        generation, lock = self._open()
        os.close(lock)
        return generation

    def seal(self, generation: int | None = None) -> None:  # noqa: ARG002 - it has locks
        _, self._lock = self._open()

    def join(self, generation: int) -> None:
        with self._translated():
            try:
                self._lock = join_writers(self._header_path, generation)
            except FileNotFoundError:
                raise self._lost() from None

    def close(self) -> None:
        self._records.close()
        for descriptor in (self._data, self._lock):
            if descriptor is not None:
                os.close(descriptor)
        self._data = self._lock = None
        self._made = {""}

    def put(
        self,
        file: str,
        size: int,
        chunks: Iterable[bytes | memoryview],
        block_size: int | None = None,  # noqa: ARG002 - only HDFS lets it be chosen
    ) -> None:
        part = f"{_PART}{self._writer}-{next(self._parts)}"
        with self._translated(file):
            data = self._opened_data()
            descriptor = os.open(part, _NEW, 0o666, dir_fd=data)
            try:
                try:
                    written = write_chunks(descriptor, chunks)
                finally:
                    os.close(descriptor)
                if written != size:
                    raise size_error(self._reader.root_url, self.path, file, written, size)
                try:
                    os.rename(part, file, src_dir_fd=data, dst_dir_fd=data)
                except FileNotFoundError:
                    self._make_parents(file)
                    os.rename(part, file, src_dir_fd=data, dst_dir_fd=data)
            except BaseException:
                with suppress(OSError):
                    os.unlink(part, dir_fd=data)
                raise

    def record(self, files: Sequence[StagedFile]) -> None:
        with self._translated():
            self._records.add(files)

    def recorded(self) -> list[StagedFile]:
        with self._translated():
            # A file with a second link is also at the target: an earlier try has adopted it.
            sizes = {path: seen.st_size for path, seen in iter_files(self._opened_data()) if seen.st_nlink == 1}
            found = self._records.read()
        return [file for file in found.values() if sizes.get(file.path) == file.size]

    def chunks(self, file: str) -> Iterator[bytes | memoryview]:
        with self._translated(file):
            try:
                descriptor = os.open(file, _OLD, dir_fd=self._opened_data())
            except (FileNotFoundError, NotADirectoryError):
                raise InstanceNotFoundError(store=self._reader.root_url, path=f"{self.path}/{file}") from None
            try:
                yield from read_chunks(descriptor)
            finally:
                os.close(descriptor)

    def drop(self, files: Collection[str]) -> None:
        with self._translated():
            self._records.drop(files)
            for file in files:
                with suppress(FileNotFoundError, NotADirectoryError):
                    os.unlink(file, dir_fd=self._opened_data())

    def adopt(self, files: Collection[str]) -> None:
        if not files:
            return
        with self._translated(), self._standing() as folder:
            if folder is None:
                raise FileNotFoundError(2, os.strerror(2), self.target)
            data = self._opened_data()
            for file in files:
                self._make_parents(file)
                try:
                    clone_file(folder, data, file)
                except FileExistsError:  # an earlier try has left it
                    os.unlink(file, dir_fd=data)
                    clone_file(folder, data, file)

    def dress(self, file: str, modified: int | None, mode: int | None) -> None:
        with self._translated(file):
            if mode is not None:
                os.chmod(file, mode, dir_fd=self._opened_data())
            if modified is not None:
                os.utime(file, ns=(modified, modified), dir_fd=self._opened_data(), follow_symlinks=False)

    def prepare(self, prepared: Prepared) -> None:
        with self._translated():
            data, meant = self._opened_data(), prepared.sizes
            found = {path: seen.st_size for path, seen in iter_files(data)}
            prepared.require(found, self._reader.root_url, self.path)
            for path in found.keys() - meant.keys():
                os.unlink(path, dir_fd=data)
                self._remove_parents(path)
            self.is_exact = prepared.manifest is None
            if prepared.manifest is None:
                return
            for flag in prepared.flags:
                self._make_parents(flag)
                os.close(os.open(flag, _NEW, 0o666, dir_fd=data))
            write_file(f"{self._data_path}/{MANIFEST_NAME}", render_manifest(prepared.manifest))
            with self._standing() as folder:
                if folder is not None:
                    take_all_rights(folder, data)

    def publish(self, guard: Guard) -> None:
        with self._translated():
            self._reader.check_inside(self.path, os.path.dirname(self.target))
            make_directories(os.path.dirname(self.target))
        self._swap(self, guard)
        self._is_published = True

    def remove(self) -> None:
        self.close()
        with self._translated():
            remove_staging(self.folder)

    def touched(self) -> Iterator[str]:
        """Yield the files and directories to flush: of the staging, or of its publication once published."""
        if self._is_published:
            yield from (os.path.dirname(self.target), self.folder)
            return
        folders = {self._data_path}
        for path, seen in iter_files(self._opened_data()):
            if seen.st_nlink == 1:
                yield f"{self._data_path}/{path}"
            folders.update(f"{self._data_path}/{parent}" for parent in parents(path))
        yield from sorted(folders)
        yield from (self._header_path, self.folder, os.path.dirname(self.folder))

    def state(self) -> StagingState:
        """Return the state of the staged content: still in the staging, at the target, or lost."""
        header = find_header(self.folder)
        if header is None:
            return StagingState.LOST
        if not header.is_prepared:
            return StagingState.STAGED
        if _inode(self.target) == header.inode:
            return StagingState.SWAPPED
        return StagingState.STAGED if _inode(self._data_path) == header.inode else StagingState.LOST

    def complete(self, flag: str | None, extra: Extra, follow: Follow) -> Manifest:
        """Add manifest and flag to the content that a writer has left in `data`, and flush all of it to disk."""
        data = self._data_path
        with suppress(FileExistsError):
            os.mkdir(data)
        with suppress(FileNotFoundError):
            os.unlink(f"{data}/{MANIFEST_NAME}")
        if flag:
            make_directories(os.path.dirname(f"{data}/{flag}"))
            with open(f"{data}/{flag}", "ab"):
                pass
        with opened(data, _FOLDER) as directory:
            paths = [path for path, _ in iter_files(directory, follow=follow)]
            entries = read_files(directory, paths)
            manifest = with_hidden(
                Manifest.of((entry for entry in entries if is_content(entry.path, flag)), extra),
                [entry for entry in entries if entry.path != flag and not is_content(entry.path, flag)],
            )
            write_flushed(f"{data}/{MANIFEST_NAME}", render_manifest(manifest))
            for folder, _, _ in os.walk(data, topdown=False):
                flush_file(folder)
            inode = os.fstat(directory).st_ino
        header = StagingHeader(path=self.path, inode=inode, generation=0, is_prepared=True)
        write_flushed(f"{self._header_path}.new", header.render())
        os.rename(f"{self._header_path}.new", self._header_path)
        flush_file(self.folder)
        return manifest

    def _open(self) -> tuple[int, int]:
        """Create the staging or take it over; return its generation and the descriptor that holds its lock."""
        with self._translated(), suppress(TimeoutError):
            for _ in range(_TRIES):
                with suppress(FileNotFoundError, FileExistsError):
                    if self._is_there():
                        return take_over(self._header_path)
                    return self._make()
        reason = "another process still works on the same copy of it"
        raise InstanceChangingError(store=self._reader.root_url, path=self.path, reason=reason)

    def _is_there(self) -> bool:
        """Return whether there is a staging to continue with; remove the remains of a finished publication."""
        header = find_header(self.folder)
        if header is None and not os.path.exists(self.folder):
            return False
        if header is not None and (header.path, header.inode) == (self.path, _inode(self._data_path)):
            return True
        remove_staging(self.folder)
        return False

    def _make(self) -> tuple[int, int]:
        above = os.path.dirname(self.folder)
        with suppress(FileExistsError):
            try:
                os.mkdir(above)
            except FileNotFoundError:
                os.makedirs(above, exist_ok=True)
        os.mkdir(self.folder)
        os.mkdir(self._data_path)
        inode = os.lstat(self._data_path).st_ino
        return create_header(self._header_path, StagingHeader(path=self.path, inode=inode, generation=1))

    def _opened_data(self) -> int:
        if self._data is None:
            try:
                self._data = os.open(self._data_path, _FOLDER)
            except FileNotFoundError:
                raise self._lost() from None
        return self._data

    def _make_parents(self, file: str) -> None:
        parent = file.rpartition("/")[0]
        if parent in self._made:
            return
        parts = parent.split("/")
        for number in range(1, len(parts) + 1):
            with suppress(FileExistsError):
                os.mkdir("/".join(parts[:number]), dir_fd=self._opened_data())
        self._made.add(parent)

    def _remove_parents(self, file: str) -> None:
        """Remove the parent directories of a removed file that are empty now."""
        for parent in parents(file):
            try:
                os.rmdir(parent, dir_fd=self._opened_data())
            except OSError as exc:
                if exc.errno not in _NOT_EMPTY:
                    raise
                return
            self._made.discard(parent)

    @contextmanager
    def _standing(self) -> Iterator[int | None]:
        try:
            folder = os.open(self.target, _FOLDER)
        except FileNotFoundError:
            yield None
            return
        try:
            if not is_at(folder, self.target):
                self._reader.check_inside(self.path, os.path.dirname(self.target))
            yield folder
        finally:
            os.close(folder)

    def _lost(self) -> StagingLostError:
        return StagingLostError(store=self._reader.root_url, path=self.path, token=self.token)

    def _translated(self, file: str = "") -> Translated:
        return Translated(self._reader.refuse, f"{self.path}/{file}" if file else self.path)


def _inode(path: str) -> int | None:
    try:
        return os.lstat(path).st_ino
    except (FileNotFoundError, NotADirectoryError):
        return None


_PREFIX = "files-"


class PartialManifest:
    """The records in the `folder` of a staging. All methods raise `OSError`."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._own: int | None = None

    def add(self, files: Sequence[StagedFile]) -> None:
        """Record complete files."""
        if self._own is None:
            name = f"{self._folder}/{_PREFIX}{uuid.uuid4().hex}.jsonl"
            self._own = os.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        write_all(self._own, b"".join([render_json(list(file)) + b"\n" for file in files]))

    def read(self) -> dict[str, StagedFile]:
        """Return the records of all writers, by path."""
        return {file.path: file for file in _read(self._names())}

    def drop(self, files: Collection[str]) -> None:
        """Remove the records of files. A crash during the call can leave too many records, never too few."""
        former = self._names()
        kept = [file for file in _read(former) if file.path not in files]
        self.close()
        self.add(kept)
        for name in former:
            os.unlink(name)

    def close(self) -> None:
        """Close the file of this writer; the next record starts a new one."""
        if self._own is not None:
            os.close(self._own)
            self._own = None

    def _names(self) -> list[str]:
        return [f"{self._folder}/{name}" for name in list_directory(self._folder) if name.startswith(_PREFIX)]


def _read(names: Sequence[str]) -> Iterator[StagedFile]:
    """Yield records in order; skip torn lines."""
    for name in names:
        with open(name, "rb") as stream:
            for line in stream:
                with suppress(ValueError, TypeError):
                    yield StagedFile(*parse_json(line))
