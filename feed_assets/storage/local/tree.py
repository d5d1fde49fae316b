"""Read directory trees of the local filesystem by descriptor, and flush them.

A descriptor stays with the directory on which it was opened. A tree read through one descriptor is therefore never a
mix of the directories at a path before and after an exchange.
"""
# System calls on text and descriptors: half of them have no pathlib form, and `look` is a hot path.
# ruff: noqa: PTH102, PTH108, PTH112, PTH114, PTH120, PTH123, PTH208

import os
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from feed_assets.storage.local.files import opened, read_chunks
from feed_assets.storage.manifests import read_entry
from feed_assets.storage.records import ManifestEntry

_THREADS = 8
_WORTH_THREADS = 32


def read_files(directory: int, paths: Sequence[str]) -> list[ManifestEntry]:
    """Read files below an open directory to their end, several at a time if there are many, and flush them to disk."""

    def read(path: str) -> ManifestEntry:
        with opened(path, os.O_RDONLY, directory) as descriptor:
            entry = read_entry(path, read_chunks(descriptor))
            os.fsync(descriptor)
        return entry

    if len(paths) < _WORTH_THREADS:
        return [read(path) for path in paths]
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(read, paths))


def list_directory(path: str) -> list[str]:
    """Return the names in a directory, sorted; none if it does not exist."""
    try:
        return sorted(os.listdir(path))
    except FileNotFoundError:
        return []


def remove_tree(path: str) -> None:
    """Remove a file, a link (not its target) or a directory with all its content."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)


def flush_file(path: str) -> None:
    """Flush a file or directory to disk."""
    with opened(path, os.O_RDONLY) as descriptor:
        os.fsync(descriptor)


def write_flushed(path: str, data: bytes) -> None:
    """Write a file and flush it to disk; the caller must flush its directory."""
    with open(path, "wb", buffering=0) as stream:
        stream.write(data)
        os.fsync(stream.fileno())


def make_directories(path: str) -> None:
    """Create a directory and its missing parents, and flush the created directories to disk."""
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
    """Return the newest modification time (ns) of a file, or of a directory and all its content; 0 if it is gone."""
    try:
        newest = os.lstat(path).st_mtime_ns
        if os.path.isdir(path) and not os.path.islink(path):
            with os.scandir(path) as entries:
                newest = max([newest, *(newest_change(entry.path) for entry in entries)])
    except FileNotFoundError:
        return 0
    return newest
