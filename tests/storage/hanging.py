"""A filesystem that does not answer, as one of a server that is down: system calls on it wait."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import pytest

LONGEST = 30.0
"""Seconds after which a call is answered all the same, so that a test fails instead of waiting."""

_CALLS = ("stat", "lstat", "open", "access", "listdir", "scandir", "mkdir", "readlink")


@contextmanager
def hanging(folder: Path) -> Iterator[None]:
    """A block in which the system does not answer calls on a folder and what is below it."""
    is_over = Event()

    def waiting(call: Callable[..., Any]) -> Callable[..., Any]:
        def wait(path: Any = ".", *args: Any, **options: Any) -> Any:
            if isinstance(path, str | os.PathLike) and Path(path).is_relative_to(folder):
                is_over.wait(LONGEST)
            return call(path, *args, **options)

        return wait

    with pytest.MonkeyPatch.context() as patch:
        for name in _CALLS:
            patch.setattr(os, name, waiting(getattr(os, name)))
        try:
            yield
        finally:
            is_over.set()
