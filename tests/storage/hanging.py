"""A filesystem that does not answer, as one of a server that is down: system calls on it wait."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, current_thread, main_thread
from typing import Any

import pytest

from feed_assets.entities.locations.overlaps import Mount, MountTable

LONGEST = 30.0
"""Seconds after which a call is answered all the same, so that a test fails instead of waiting."""

_CALLS = ("stat", "lstat", "open", "access", "listdir", "scandir", "mkdir", "readlink")


@contextmanager
def hanging(folder: Path) -> Iterator[None]:
    """A block in which a folder is a mount of its own, and the system does not answer calls on it and what is below.

    Fails if the test itself, and not a thread that can be left alone, has waited for an answer.
    """
    is_over = Event()
    waited: list[str] = []

    def waiting(call: Callable[..., Any]) -> Callable[..., Any]:
        def wait(path: Any = ".", *args: Any, **options: Any) -> Any:
            if isinstance(path, str | os.PathLike) and Path(path).is_relative_to(folder):
                is_answered = is_over.wait(LONGEST)
                if not is_answered and current_thread() is main_thread():
                    waited.append(f"{call.__name__} {os.fspath(path)}")
            return call(path, *args, **options)

        return wait

    mounts = _mounts_with(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MountTable, "of_this_process", lambda: mounts)
        for name in _CALLS:
            patch.setattr(os, name, waiting(getattr(os, name)))
        try:
            yield
        finally:
            is_over.set()
    assert not waited


def _mounts_with(folder: Path) -> MountTable:
    known = MountTable.of_this_process()
    around = known._mount_of(str(folder))
    number = "" if around is None else around.number
    return MountTable(
        [*known._at.values(), Mount(number=str(folder), parent=number, device="", root="", point=str(folder))]
    )
