"""Walk and measure directory trees of a local filesystem by handles, without following links or crossing mounts."""

import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b

from feed_assets.storage.local.calls import OBSTACLES, LocalCalls, touches_mount
from feed_assets.storage.paths import CONTROL_FOLDER
from feed_assets.storage.port import Choose, FolderNames
from feed_assets.storage.records import Measure

_PASSED_OVER = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EXDEV})
_LEVELS = 200
"""The maximum depth of an instance: each level costs an open handle."""


def walk_below(
    calls: LocalCalls, folder: int, depth: int, choose: Choose, prefix: str = "", below: str = ""
) -> Iterator[FolderNames]:
    """Yield the chosen paths `depth` levels below an open directory, folder by folder.

    `choose` gets paths that begin with `below`; the yielded paths begin with `prefix`. Both are "" or end with a slash.
    """
    names = _list_names(calls, folder, with_files=depth == 1)
    chosen = list(choose(below.rstrip("/"), names))
    if chosen != names:
        known = frozenset(names)
        chosen = [name for name in chosen if name in known]
    if depth == 1:
        yield FolderNames(prefix, chosen)
        return
    for name in chosen:
        try:
            child = calls.open_folder(folder, name)
        except OSError as exc:
            if exc.errno in _PASSED_OVER:
                continue
            raise
        try:
            yield from walk_below(calls, child, depth - 1, choose, f"{prefix}{name}/", f"{below}{name}/")
        finally:
            calls.close(child)


def _list_names(calls: LocalCalls, folder: int, *, with_files: bool) -> list[str]:
    """Return the directories (and regular files) in an open directory, without the hidden folder."""
    with calls.scan_folder(folder) as entries:
        if with_files:
            names = [
                entry.name
                for entry in entries
                if entry.is_dir(follow_symlinks=False) or entry.is_file(follow_symlinks=False)
            ]
        else:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    if CONTROL_FOLDER in names:
        names.remove(CONTROL_FOLDER)
    return names


@dataclass(slots=True, kw_only=True)
class TreeCount:
    """The count of a tree so far. `other` is the last entry found that is not a regular file, such as a link."""

    bytes: int = 0
    files: int = 0
    obstacle: str | None = None
    other: str | None = None
    names: list[str] = field(default_factory=list)
    fingerprints: list[str] = field(default_factory=list)


class LocalMeasure:
    """Measures paths below an open root directory. A folder stays open for consecutive paths in it."""

    def __init__(self, calls: LocalCalls, root: int, mounts: tuple[str, ...]) -> None:
        self._calls = calls
        self._root = root
        self._device = os.fstat(root).st_dev
        self._mounts = mounts
        self._folder: tuple[str, int] | None = None

    def close(self) -> None:
        if self._folder is not None:
            self._calls.close(self._folder[1])
            self._folder = None

    def measure(self, path: str, plain: str) -> Measure:
        """Measure the tree at `plain`, given as `path`. Raises `OSError` for errors that concern more than the path."""
        try:
            count = self.count(plain)
        except OSError as exc:
            if exc.errno not in OBSTACLES:
                raise
            return Measure(path=path, exists=True, obstacle=OBSTACLES[exc.errno])
        if count is None:
            return Measure(path=path)
        return Measure(
            path=path,
            exists=True,
            bytes=count.bytes,
            files=count.files,
            obstacle=count.obstacle,
            fingerprint=_join_fingerprints(count.fingerprints),
        )

    def count(self, plain: str) -> TreeCount | None:
        """Count the tree at a path; return None if nothing exists."""
        parent, _, name = plain.rpartition("/")
        try:
            folder = self._open_parent(parent)
        except FileNotFoundError:
            return None
        count = TreeCount()
        if self._mounts and touches_mount(plain, self._mounts):
            count.obstacle = "something is mounted on it or in it"
        elif not self._count_folder(count, folder, name, "", _LEVELS):
            found = self._calls.find(folder, name)
            if found is None:
                return None
            count.obstacle = obstacle_of(found, self._device)
            _count_file(count, "", found)
        return count

    def _open_parent(self, parent: str) -> int:
        if self._folder is None or self._folder[0] != parent:
            self.close()
            self._folder = (parent, self._calls.open_folder(self._root, parent))
        return self._folder[1]

    def _count_folder(self, count: TreeCount, folder: int, name: str, below: str, levels: int) -> bool:
        """Count a directory by its name in an open one; return False if it is not a directory."""
        try:
            opened = self._calls.open_folder(folder, name)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as exc:
            return _note_obstacle(count, below, exc)
        try:
            folders = []
            with self._calls.scan_folder(opened) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.name)
                    else:
                        _count_file(count, f"{below}/{entry.name}", entry.stat(follow_symlinks=False))
            found = os.fstat(opened)
            count.fingerprints.append(f"{below}/ {found.st_ino} {found.st_mtime_ns}")
            if folders and not levels:
                count.obstacle = f"it is more than {_LEVELS} directories deep"
                return True
            for child in folders:
                if not self._count_folder(count, opened, child, f"{below}/{child}", levels - 1):
                    count.obstacle = "it changes while it is read"
        except FileNotFoundError:
            count.obstacle = "it changes while it is read"
        except OSError as exc:
            return _note_obstacle(count, below, exc)
        finally:
            self._calls.close(opened)
        return True


def obstacle_of(found: os.stat_result, device: int) -> str | None:
    """Return why an inode must not be moved; None if nothing in its status forbids it."""
    if found.st_dev != device:
        return "another filesystem is mounted there"
    if stat.S_ISDIR(found.st_mode) or stat.S_ISREG(found.st_mode):
        return None
    return "it is a symbolic link" if stat.S_ISLNK(found.st_mode) else "it is neither a directory nor a file"


def _note_obstacle(count: TreeCount, below: str, exc: OSError) -> bool:
    """Keep the obstacle of a directory; re-raise errors that concern more than it. Return False for a link or file."""
    if exc.errno not in OBSTACLES:
        raise exc
    if exc.errno == errno.ELOOP:
        return False
    count.obstacle = OBSTACLES[exc.errno] + (f" ({below[1:]!r} in it)" if below else "")
    return True


def _count_file(count: TreeCount, path: str, found: os.stat_result) -> None:
    is_file = stat.S_ISREG(found.st_mode)
    size = found.st_size if is_file else 0
    count.bytes += size
    count.files += 1
    count.names.append(path[1:])
    times = f"{found.st_mtime_ns} {found.st_ctime_ns}"  # the second tells what was written with an old time
    count.fingerprints.append(f"{path} {found.st_ino} {found.st_mode} {size} {times}")
    if not is_file:
        count.other = path[1:]


def _join_fingerprints(fingerprints: list[str]) -> str:
    fingerprints.sort()
    return blake2b(os.fsencode("\0".join(fingerprints)), digest_size=16).hexdigest()
