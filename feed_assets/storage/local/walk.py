"""Walk and measure directory trees of a local filesystem by handles, without following links or crossing mounts."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from feed_assets.storage.listing import Entry
from feed_assets.storage.local.calls import OBSTACLES, LocalCalls, find_mounts, touches_mount
from feed_assets.storage.local.files import entry_of
from feed_assets.storage.paths import CONTROL_FOLDER
from feed_assets.storage.port import Choose, FolderNames

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


@dataclass(slots=True)
class Tree:
    """What is found of a tree, as in a listing of all: `others` are the entries that are no regular files."""

    obstacle: str | None = None
    entries: list[Entry] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)

    def add(self, path: str, seen: os.stat_result) -> None:
        """Add what is no directory; its path is "" if it is all of the tree."""
        entry = entry_of(path, seen)
        if not stat.S_ISREG(seen.st_mode):
            self.others.append(path)
            entry = entry._replace(size=0)
        self.entries.append(entry)


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

    def find(self, plain: str) -> Tree | None:
        """Return the tree at a path, without reading files; None if nothing exists.

        Raises `OSError` for errors that concern more than the path.
        """
        parent, _, name = plain.rpartition("/")
        try:
            folder = self._open_parent(parent)
        except FileNotFoundError:
            return None
        except OSError as exc:
            if exc.errno not in OBSTACLES:
                raise
            return Tree(OBSTACLES[exc.errno])
        tree = Tree()
        if self._mounts and touches_mount(plain, self._mounts):
            tree.obstacle = "something is mounted on it or in it"
        elif not self._add_folder(tree, folder, name, "", _LEVELS):
            found = self._calls.find(folder, name)
            if found is None:
                return None
            tree.obstacle = obstacle_of(found, self._device)
            tree.add("", found)
        return tree

    def _open_parent(self, parent: str) -> int:
        if self._folder is None or self._folder[0] != parent:
            self.close()
            self._folder = (parent, self._calls.open_folder(self._root, parent))
        return self._folder[1]

    def _add_folder(self, tree: Tree, folder: int, name: str, below: str, levels: int) -> bool:
        """Add a directory by its name in an open one; return False if it is not a directory. The paths in it begin with
        `below`, which is "" or ends with a slash.
        """
        try:
            opened = self._calls.open_folder(folder, name)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as exc:
            return _note_obstacle(tree, below, exc)
        try:
            folders = []
            with self._calls.scan_folder(opened) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.name)
                    else:
                        tree.add(f"{below}{entry.name}", entry.stat(follow_symlinks=False))
            found = os.fstat(opened)
            tree.folders.append(f"/{below} {found.st_ino} {found.st_mtime_ns}")
            if folders and not levels:
                tree.obstacle = f"it is more than {_LEVELS} directories deep"
                return True
            for child in folders:
                if not self._add_folder(tree, opened, child, f"{below}{child}/", levels - 1):
                    tree.obstacle = "it changes while it is read"
        except FileNotFoundError:
            tree.obstacle = "it changes while it is read"
        except OSError as exc:
            return _note_obstacle(tree, below, exc)
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


def _note_obstacle(tree: Tree, below: str, exc: OSError) -> bool:
    """Keep the obstacle of a directory; re-raise errors that concern more than it. Return False for a link or file."""
    if exc.errno not in OBSTACLES:
        raise exc
    if exc.errno == errno.ELOOP:
        return False
    tree.obstacle = OBSTACLES[exc.errno] + (f" ({below[:-1]!r} in it)" if below else "")
    return True


@contextmanager
def open_measure(calls: LocalCalls, root: str) -> Iterator[LocalMeasure | None]:
    """Open a root for measuring; yield None if it does not exist."""
    try:
        opened = calls.open_root(root)
    except FileNotFoundError:
        yield None
        return
    with ExitStack() as stack:
        stack.callback(calls.close, opened)
        measure = LocalMeasure(calls, opened, find_mounts(root))
        stack.callback(measure.close)
        yield measure
