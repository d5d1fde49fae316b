"""Directory trees of the local filesystem: reading them by descriptor, flushing them, exchanging two of them.

A descriptor stays with the directory it was opened on, so a tree read through one is never a mix of the directory
that stood at a path before an exchange and the one that stands there after it.
"""
# System calls on text and descriptors: half of them have no pathlib form, and looking is a hot path.
# ruff: noqa: PTH102, PTH108, PTH112, PTH114, PTH120, PTH123, PTH208

import ctypes
import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from io import FileIO
from pathlib import Path

from feed_assets.storage.manifests import read_entry
from feed_assets.storage.paths import is_content_name
from feed_assets.storage.records import ManifestEntry

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_NO_EXCHANGE = frozenset({errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP})
_THREADS = 8
_WORTH_THREADS = 32

Follow = Callable[[str], os.stat_result | None]
"""Given the relative path of a symbolic link, the file it leads to, None to pass over it, or an exception."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeFile:
    """A regular file: path relative to the tree, size in bytes, times in nanoseconds since 1970.

    `modified` is what programs may set to what they like, `changed` when the system last saw a change of any kind.
    """

    path: str
    size: int
    modified: int
    changed: int
    inode: int


def tree_file(path: str, found: os.stat_result) -> TreeFile:
    """What the system tells of a file."""
    return TreeFile(
        path=path,
        size=found.st_size,
        modified=found.st_mtime_ns,
        changed=found.st_ctime_ns,
        inode=found.st_ino,
    )


def iter_tree(directory: int, follow: Follow, *, everything: bool = False, prefix: str = "") -> Iterator[TreeFile]:
    """Walk the content files (or every regular file) below an open directory, in no order.

    What vanishes under the walk raises `FileNotFoundError`.
    """
    with os.scandir(directory) as entries:
        for entry in entries:
            if not (everything or is_content_name(entry.name)):
                continue
            path = prefix + entry.name
            if entry.is_dir(follow_symlinks=False):
                below = os.open(entry.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=directory)
                try:
                    yield from iter_tree(below, follow, everything=everything, prefix=path + "/")
                finally:
                    os.close(below)
                continue
            found = follow(path) if entry.is_symlink() else entry.stat(follow_symlinks=False)
            if found is not None and stat.S_ISREG(found.st_mode):
                yield tree_file(path, found)


def read_file(directory: int, path: str, *, flush: bool = False) -> ManifestEntry:
    """Read a file below an open directory to its end; `flush` also brings it to disk."""
    with _open_below(directory, path) as stream:
        entry = read_entry(path, stream)
        if flush:
            os.fsync(stream.fileno())
    return entry


def _open_below(directory: int, path: str) -> FileIO:
    return open(path, "rb", buffering=0, opener=lambda name, flags: os.open(name, flags, dir_fd=directory))


def read_files(directory: int, paths: Sequence[str], *, flush: bool = False) -> list[ManifestEntry]:
    """Read many files below an open directory, several at a time where they are many."""
    if len(paths) < _WORTH_THREADS:
        return [read_file(directory, path, flush=flush) for path in paths]
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(lambda path: read_file(directory, path, flush=flush), paths))


def copy_files(directory: int, paths: Sequence[str], to: Path) -> list[ManifestEntry]:
    """Copy files below an open directory into a directory, in place of all that it holds."""
    for name in list_directory(str(to)):
        remove_tree(str(to / name))
    entries = []
    for path in paths:
        (to / path).parent.mkdir(parents=True, exist_ok=True)
        with open(to / path, "wb") as copy, _open_below(directory, path) as stream:
            entries.append(read_entry(path, stream, copy))
    return entries


def list_directory(path: str) -> list[str]:
    """The names in a directory; none if it does not exist."""
    try:
        return sorted(os.listdir(path))
    except FileNotFoundError:
        return []


def remove_tree(path: str) -> None:
    """Remove a file, a link (not what it leads to) or a directory with all it holds."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)


def flush_file(path: str) -> None:
    """Bring a file or directory to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_flushed(path: str, data: bytes) -> None:
    """Write a file and bring it to disk; its directory is the caller's to flush."""
    with open(path, "wb", buffering=0) as stream:
        stream.write(data)
        os.fsync(stream.fileno())


def make_directories(path: str) -> None:
    """Make a directory and its parents, and bring what was made to disk."""
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for path in reversed(missing):
        try:
            os.mkdir(path)
        except FileExistsError:
            if not os.path.isdir(path):
                raise
        flush_file(os.path.dirname(path))


def newest_change(path: str) -> int:
    """The newest modification time (ns) of a file, or of a directory and all that is below it; 0 if it is gone."""
    try:
        newest = os.lstat(path).st_mtime_ns
        if os.path.isdir(path) and not os.path.islink(path):
            with os.scandir(path) as entries:
                newest = max([newest, *(newest_change(entry.path) for entry in entries)])
    except FileNotFoundError:
        return 0
    return newest


def exchange(one: str, other: str) -> bool:
    """Exchange two existing paths of one filesystem in a single step; False where system or filesystem cannot."""
    renameat2 = _load_renameat2()
    if renameat2 is None:
        return False
    if renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _NO_EXCHANGE:
        return False
    raise OSError(number, os.strerror(number), one, None, other)


@cache
def _load_renameat2() -> Callable[[int, bytes, int, bytes, int], int] | None:
    function = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if function is not None:
        function.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
        function.restype = ctypes.c_int
    return function
