"""Read, write and lock the `staging.json` of a local staging: the path of its instance, the generation of its writers.

The file exists while the staging may be published. A take-over gives the staging the next generation, under an
exclusive lock of the file. Every writer knows its generation and holds a shared lock while it writes. The operating
system releases the lock of a process that dies.
"""
# System calls on descriptors.
# ruff: noqa: PTH106, PTH108, PTH116, PTH120

import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from feed_assets.clock import TimeBudget
from feed_assets.storage.local.files import opened
from feed_assets.storage.manifests import parse_json

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
