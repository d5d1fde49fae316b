"""Translate exceptions of a filesystem or an object store to errors of storage."""

from collections.abc import Callable
from types import TracebackType
from typing import TypeAlias

from feed_assets.storage.errors import StorageError

Refuse: TypeAlias = Callable[[str, Exception], StorageError]
"""The error for a path, made of what the system said."""


class Translated:
    """While this is entered, `refuse` says what is raised for an `OSError`; `path` is the path it is about.

    A class, because it is entered for every step of every instance, and a generator takes three times as long.
    """

    __slots__ = ("_path", "_refuse")

    def __init__(self, refuse: Refuse, path: str) -> None:
        self._refuse = refuse
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, OSError):
            raise self._refuse(self._path, error) from error
