"""Whose turn it is at a slot that several processes fill: its sign has a number and a lock.

Who takes the slot over gives it the next number and has the lock for itself at that moment; every writer knows the
number and shares the lock as long as it writes. The lock of a process that dies is given back by the system.
"""
# System calls on descriptors.
# ruff: noqa: PTH116

import fcntl
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from feed_assets.clock import TimeBudget
from feed_assets.storage.manifests import parse_json

PATIENCE = 30.0
"""How many seconds are waited for writers to end."""
_PAUSE = 0.05
_LONGEST = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What a sign says: the path that the slot is for, the inode of its data, and who has taken it over."""

    path: str
    inode: int
    number: int


def find_turn(sign: str) -> Turn | None:
    """What a sign says; None if there is none, or it was never written."""
    try:
        lock = os.open(sign, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        return _read(lock)
    finally:
        os.close(lock)


def take_first(sign: str, path: str, inode: int) -> tuple[int, int]:
    """Make the sign of a new slot; its number, which is 1, and a descriptor that holds the lock.

    Raises `FileExistsError` or `FileNotFoundError` if another process makes or removes the slot, too.
    """
    turn = Turn(path=path, inode=inode, number=1)

    def take(lock: int) -> Turn:
        if not _try_lock(lock):
            raise FileExistsError(sign)
        _write(lock, turn)
        return turn

    return _hold(sign, os.O_RDWR | os.O_CREAT | os.O_EXCL, take)


def take_over(sign: str) -> tuple[int, int]:
    """Take a slot over; its new number, and a descriptor that holds the lock.

    Raises `FileNotFoundError` if the slot goes meanwhile, `TimeoutError` if the writers do not end.
    """

    def take(lock: int) -> Turn | None:
        budget = TimeBudget(PATIENCE)
        while not _try_lock(lock):
            if budget.is_spent:
                raise TimeoutError(sign)
            time.sleep(_PAUSE)
        former = _read(lock)
        if former is None:
            return None
        turn = replace(former, number=former.number + 1)
        _write(lock, turn)
        return turn

    return _hold(sign, os.O_RDWR, take)


def join_writers(sign: str, number: int) -> int:
    """A descriptor that shares the lock; `FileNotFoundError` if the slot is gone or has another number."""

    def take(lock: int) -> Turn | None:
        fcntl.flock(lock, fcntl.LOCK_SH)
        turn = _read(lock)
        return turn if turn is not None and turn.number == number else None

    return _hold(sign, os.O_RDONLY, take)[1]


def _hold(sign: str, flags: int, take: Callable[[int], Turn | None]) -> tuple[int, int]:
    """Open a sign and do with it what is to be done; the number then, and the descriptor, if it is still the sign."""
    lock = os.open(sign, flags | os.O_CLOEXEC, 0o666)
    try:
        turn = take(lock)
        if turn is None or not _is_at(lock, sign):
            raise FileNotFoundError(sign)
    except BaseException:
        os.close(lock)
        raise
    return turn.number, lock


def _read(lock: int) -> Turn | None:
    try:
        document = parse_json(os.pread(lock, _LONGEST, 0))
        return Turn(path=document["path"], inode=document["inode"], number=document["number"])
    except (ValueError, KeyError):
        return None


def _write(lock: int, turn: Turn) -> None:
    """Write what never becomes shorter."""
    document = {"version": 1, "path": turn.path, "inode": turn.inode, "number": turn.number}
    os.pwrite(lock, json.dumps(document).encode(), 0)


def _try_lock(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(lock: int, sign: str) -> bool:
    try:
        return os.path.samestat(os.fstat(lock), os.stat(sign, follow_symlinks=False))
    except FileNotFoundError:
        return False
