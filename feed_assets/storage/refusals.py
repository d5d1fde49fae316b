"""Translate exceptions of a filesystem or an object store into storage errors."""

from collections.abc import Callable
from types import TracebackType
from typing import TypeAlias

from feed_assets.storage.errors import StorageError

Refuse: TypeAlias = Callable[[str, Exception], StorageError]
"""Builds the error for a path from an exception of the system."""


class Translated:
    """A context that translates an `OSError` about `path` into the error that `refuse` builds.

    It is a class because it is entered for every step of every instance; a generator takes three times as long.
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
