"""What the tests of the local trash share: trees as they lie on disk, and system calls that fail or are disturbed."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from feed_assets.storage.local.calls import LocalCalls

Tree = dict[str, bytes | str]
"""By path relative to a directory: the bytes of a file, "→ target" of a link, "/" of a directory, else a sign of it."""


def read_tree(root: Path | str, *, hidden: bool = False) -> Tree:
    """All that is below a directory, without following links; the store's hidden folder only if asked for."""
    found: Tree = {}
    pending = [""]
    while pending:
        folder = pending.pop()
        for entry in os.scandir(f"{root}/{folder}"):
            path = f"{folder}{entry.name}"
            if path == ".feed-assets" and not hidden:
                continue
            if entry.is_symlink():
                found[path] = f"→ {Path(entry.path).readlink()}"
            elif entry.is_dir():
                found[path] = "/"
                pending.append(f"{path}/")
            elif entry.is_file():
                found[path] = Path(entry.path).read_bytes()
            else:
                found[path] = oct(entry.stat(follow_symlinks=False).st_mode)
    return found


def land(root: Path, path: str, **files: bytes) -> None:
    """Put files into a directory that is made as needed."""
    folder = root / path
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in (files or {"data": path.encode("utf-8", "surrogateescape"), "_SUCCESS": b""}).items():
        (folder / name).write_bytes(data)


@contextmanager
def memory_folder() -> Iterator[Path]:
    """A directory in memory where the system has such: these tests change many files, and need no disk for it."""
    where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with TemporaryDirectory(dir=where, prefix="feed-assets-") as folder:
        yield Path(folder)


class Died(BaseException):
    """The machine is gone."""


class WatchedCalls(LocalCalls):
    """Calls `before` with the name of each system call and its arguments. Nothing is really flushed to disk."""

    def __init__(self, before: Callable[..., None]) -> None:
        self._before = before

    def flush_folder(self, folder: int) -> None:
        self._before("flush_folder", folder)

    def flush_all(self, folder: int) -> None:
        self._before("flush_all", folder)


def _watch(name: str) -> None:
    original = getattr(LocalCalls, name)

    def watched(self: WatchedCalls, *arguments: Any) -> Any:
        self._before(name, *arguments)
        return original(self, *arguments)

    setattr(WatchedCalls, name, watched)


CHANGES = ("make_folder", "move", "replace", "write_file", "remove_file", "remove_folder")
LOOKS = ("open_root", "open_folder", "scan_folder", "list_folder", "find", "read_file")
for _name in (*CHANGES, *LOOKS):
    _watch(_name)


class FailAt:
    """Raises an error at the n-th call; counts calls of all threads."""

    def __init__(self, number: int, error: BaseException) -> None:
        self.left = number
        self._error = error
        self._lock = threading.Lock()

    def __call__(self, *_: object) -> None:
        with self._lock:
            self.left -= 1
            if self.left != 0:
                return
        raise self._error
