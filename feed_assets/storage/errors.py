"""Errors raised by stores."""

import logging
from collections.abc import Callable
from types import TracebackType
from typing import TypeAlias

from feed_assets.entities.copies.options import EXISTING, Existing
from feed_assets.errors import Fault, FeedAssetsError, render_some

logging.getLogger("thrift").setLevel(logging.CRITICAL)  # it logs what it raises, and errors say it, too


def not_installed(url: str, package: str, extra: str, cause: Exception) -> "StoreUnknownError":
    """Return the error for a package that cannot be imported: it is not there, or has another version than ours."""
    is_absent = isinstance(cause, ModuleNotFoundError)
    reason = f"the package {package!r} " + ("is not installed" if is_absent else f"cannot be used: {cause}")
    return StoreUnknownError(url=url, reason=reason, next_step=f'Install it with: pip install "feed-assets[{extra}]".')


class StorageError(FeedAssetsError):
    """The storage refused a request, or contains something that feed-assets does not understand."""

    def __init__(self, *, store: str, path: str, reason: str, next_step: str) -> None:
        self.path = path
        self.store = store
        self.reason = reason
        where = f"{store}: {path!r}" if path else store
        super().__init__(f"{where}: {reason}. {next_step}")


class StorageAwayError(StorageError):
    """The storage cannot be reached, or does not answer in time."""


class StorageFullError(StorageError):
    """The storage has no space left, or the user none of a quota."""


class PathRefusedError(StorageError):
    """A path is invalid or leads out of the storage root."""

    def __init__(self, *, store: str, path: str, reason: str) -> None:
        super().__init__(
            store=store, path=path, reason=reason, next_step="Name a directory below the storage root of the cluster."
        )


class InstanceNotFoundError(StorageError):
    """An instance, or a file of an instance, does not exist."""

    fault = Fault.MISSING

    def __init__(self, *, store: str, path: str) -> None:
        super().__init__(
            store=store,
            path=path,
            reason="it does not exist",
            next_step="Try again after it has arrived or has been produced.",
        )


class InstanceChangingError(StorageError):
    """An instance changed while it was read, or another publication overtook this one."""

    def __init__(self, *, store: str, path: str, reason: str) -> None:
        super().__init__(
            store=store,
            path=path,
            reason=reason,
            next_step="Try again later; if no publisher is alive, recover the instance first.",
        )


class StagingLostError(StorageError):
    """A staging was discarded, swept or never created."""

    def __init__(self, *, store: str, path: str, token: str) -> None:
        super().__init__(
            store=store,
            path=path,
            reason=f"the staging {token!r} does not exist",
            next_step="Stage the instance again, write it and publish it.",
        )


class ManifestError(StorageError):
    """A manifest file cannot be read."""

    def __init__(self, *, store: str, path: str, reason: str) -> None:
        super().__init__(
            store=store,
            path=path,
            reason=f"its manifest file cannot be read: {reason}",
            next_step="Publish the instance again, or remove the manifest file if the data are good.",
        )


class ForeignContentError(StorageError):
    """The place of an instance holds content that no record and no manifest knows."""

    def __init__(self, *, store: str, path: str, files: tuple[str, ...]) -> None:
        self.approval = f"{EXISTING}={Existing.ADOPT.value}"
        named = f" ({render_some(files, 3)})" if files != ("",) else ""
        super().__init__(
            store=store,
            path=path,
            reason=f"it is foreign content: {len(files):,} files{named} that no record and no manifest knows",
            next_step=(
                "Nothing was changed. Decide in the declaration of the feed: `existing: adopt` makes it the instance, "
                "`existing: replace` moves it to the trash. A rerun can adopt it once."
            ),
        )


class PlaceOccupiedError(StorageError):
    """Something else is in the place of an exact copy, which replaces nothing."""

    def __init__(self, *, store: str, path: str) -> None:
        super().__init__(
            store=store,
            path=path,
            reason="something else is in its place",
            next_step="Nothing was changed. Move it away, and repeat.",
        )


class TableRefusedError(StorageError):
    """A table does not exist, is not partitioned as the feed says, or cannot be written by adding files."""


class StoreUnknownError(StorageError):
    """No adapter supports a storage URL, or the packages of its adapter are not installed."""

    def __init__(self, *, url: str, reason: str, next_step: str) -> None:
        super().__init__(store=url, path="", reason=reason, next_step=next_step)


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
