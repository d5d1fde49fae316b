"""The port to a store's trash: the only object of the project that can take instances away.

The docstrings of `Trash` are the contract; every adapter passes one behaviour suite.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from feed_assets.storage.port import InstanceStore


class Outcome(StrEnum):
    """What became of one path."""

    MOVED = "MOVED"
    """It is where it should be, by this call."""
    ALREADY = "ALREADY"
    """It was there before: an earlier call had moved it."""
    VANISHED = "VANISHED"
    """Nothing stands at its place and this sweep has not moved it: somebody else took it away."""
    OCCUPIED = "OCCUPIED"
    """Something stands where it should go; nothing was touched."""
    LOST = "LOST"
    """It is not in the trash: purged, restored before, or never moved."""
    REFUSED = "REFUSED"
    """It must not be moved: a link, a mount point, another filesystem, a path that is none, missing rights."""
    CHANGED = "CHANGED"
    """What stands there is not what was to be moved: it came or changed later. It was left alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """The answer for one path, as it was given.

    `bytes` and `files` are those that were moved; None where moving does not tell (a rename). `reason` is a sentence
    part for everything but MOVED.
    """

    path: str
    outcome: Outcome
    bytes: int | None = None
    files: int | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Purged:
    """What a purge removed: `files` (links included). Unless it `is_complete`, `obstacle` says what was in the way."""

    sweep: str
    files: int
    is_complete: bool
    obstacle: str | None = None


class Trash(ABC):
    """The trash of one store, safe to use from several threads and processes on different paths.

    A `sweep` is the id of a removal: one plain name of letters, digits, `.`, `_`, `-`, of at most 200 characters. What
    it took away is in the hidden folder of the store, below `.feed-assets/trash/<sweep>/`, until it is purged.
    A path that is none of the store's is answered by REFUSED. Every method raises `StorageError` when the filesystem
    refuses as a whole; then a repeat of the same call finishes the work: at any moment, also after a crash, each
    instance is at its place or whole in the trash (on an object store possibly PARTIAL at its place and whole in the
    trash, until the repeat). No symbolic link is followed, no other filesystem is entered.
    `flag` is the availability flag of the instances: where nothing can be renamed it goes first when an instance is
    taken away, and comes last when it is put back, so that no reader sees part of an available instance.
    """

    store: InstanceStore

    @abstractmethod
    def describe(self, sweep: str, document: Mapping[str, object]) -> None:
        """Write what the sweep is about beside what it takes away; on disk when this returns. Call it before `put`.

        So the trash explains itself to people, also without the state database. A later document takes the place of
        an earlier one. The document is JSON.
        """

    @abstractmethod
    def find_description(self, sweep: str) -> Mapping[str, object] | None:
        """Return what `describe` wrote; None if there is none, or it cannot be read."""

    @abstractmethod
    def put(self, sweep: str, paths: Sequence[str], *, flag: str | None = None) -> list[Moved]:
        """Take instances away: one answer for each path, in order. Flushed to disk once, when all are moved.

        MOVED, ALREADY (moved before, nothing stands there), VANISHED, REFUSED, or CHANGED (this sweep moved it before
        and another one has come since, or it changed while it was moved). One large call is cheaper than many.
        """

    @abstractmethod
    def restore(self, sweep: str, paths: Sequence[str]) -> list[Moved]:
        """Put instances back, byte for byte: one answer for each path, in order. Flushed as `put`.

        MOVED, OCCUPIED (something stands there; it is not touched and the trash keeps its own), LOST or REFUSED.
        Parents that were removed are made again with the rights they had.
        """

    @abstractmethod
    def purge(self, sweep: str) -> Purged:
        """Remove for good all that a sweep took away. From the first moment on nothing of it can be restored.

        Links are removed, not what they lead to. What is in the middle of a broken-off restore is kept and named as
        `obstacle`: restore it again before. A purge of a sweep that is not in the trash is complete.
        """

    @abstractmethod
    def remove_empty_parents(self, base: str, paths: Sequence[str]) -> list[str]:
        """Remove the parents of `paths` that are strictly below `base` and empty; return those removed, deepest first.

        `base` may be "", the root. A path that is not below `base` has no such parents. Nothing but an empty directory
        is ever removed; a link or mount point on the way ends it. An object store has no directories: it removes none.
        """

    @abstractmethod
    def sweeps(self) -> list[str]:
        """Return the ids of all sweeps that have something in the trash, in order; a purge that broke off included."""

    @abstractmethod
    def contents(self, sweep: str) -> Iterator[str]:
        """Find the paths that can be restored, in no order; none while a purge has broken off."""

    @abstractmethod
    def receive(self, source: InstanceStore, path: str, to_path: str, *, flag: str | None = None) -> Moved:
        """Copy all files of an instance of another store (flag, manifest, hidden ones) to `to_path` of this one.

        Written to a hidden place, read back and compared by checksum, then put in its place as `restore` does.
        MOVED; ALREADY if all that stands there is equal; OCCUPIED if it is not; VANISHED if the source is missing;
        CHANGED if it did not hold still; REFUSED. Rights, times and empty directories are not copied.
        """

    def archive(self, path: str, to: InstanceStore, to_path: str, sweep: str, *, flag: str | None = None) -> Moved:
        """Copy an instance to another store (see `receive`), and only then take it away (see `put`).

        The answer names `path`: that of `put` if the copy stands, else that of `receive`. ALREADY when the instance had
        been archived and taken away by this sweep before.
        """
        if self._has_begun(sweep, path):
            return self.put(sweep, [path], flag=flag)[0]
        received = to.trash().receive(self.store, path, to_path, flag=flag)
        match received.outcome:
            case Outcome.MOVED | Outcome.ALREADY | Outcome.VANISHED:
                return self.put(sweep, [path], flag=flag)[0]
            case _:
                return replace(received, path=path)

    def bring_back(
        self, path: str, origin: InstanceStore, origin_path: str, sweep: str, *, flag: str | None = None
    ) -> Moved:
        """Put an archived instance back: from the trash if it is still there, else as a copy from the archive.

        Answers as `restore` or `receive`; LOST if neither has it. The archive keeps its own.
        """
        restored = self.restore(sweep, [path])[0]
        if restored.outcome is not Outcome.LOST:
            return restored
        received = replace(self.receive(origin, origin_path, path, flag=flag), path=path)
        return restored if received.outcome is Outcome.VANISHED else received

    def _has_begun(self, sweep: str, path: str) -> bool:  # noqa: ARG002
        """Whether taking an instance away has begun, and left what is there in a state that cannot be copied."""
        return False
