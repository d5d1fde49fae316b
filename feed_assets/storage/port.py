"""The port to instance storage: everything the project may ask of one cluster's filesystem.

An instance is a directory known by its path below the store's root. The docstrings of `InstanceStore` are the
contract; every adapter passes one behaviour suite.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeAlias

from feed_assets.storage.copy_port import Copying
from feed_assets.storage.errors import StorageError
from feed_assets.storage.paths import parse_path
from feed_assets.storage.records import (
    Guard,
    Look,
    Manifest,
    Measure,
    Moved,
    Outcome,
    Purged,
    Scan,
    StagingPlace,
)

Choose: TypeAlias = Callable[[str, Sequence[str]], Iterable[str]]
"""Given a folder, by its path relative to the base of a walk ("" for the base), and the names in it: those to go on
with."""


class FolderNames(NamedTuple):
    """What a walk found in one folder, whose path relative to the root is "" or ends with a slash."""

    folder: str
    names: Sequence[str]


class InstanceStore(ABC):
    """Instances on one cluster's storage, safe to use from several threads and processes.

    A `path` is relative to `root_url`; leading, trailing and doubled slashes mean nothing. Every method raises
    `PathRefusedError` for a path that is empty, contains `.` or `..`, names the store's own hidden folder, or leads
    out of the root through a symbolic link; and `StorageError` (its base) when the filesystem refuses.
    A `flag` is the name of the availability flag inside an instance; None or "" means that none is configured.
    """

    root_url: str
    spark_scheme: str | None
    """The URL scheme by which this Spark's own connector opens the storage (`file`, `s3a`, …); None if it has none."""

    @abstractmethod
    def check_root(self) -> None:
        """Contact the storage: raises `StorageError` unless the root is there, or can be made. Nothing is written."""

    @abstractmethod
    def look(self, paths: Sequence[str], flag: str | None) -> list[Look]:
        """Look at many instances at once: one answer for each path, in the order asked; never cached.

        MISSING: nothing is there. With a flag: AVAILABLE if it is inside, else PARTIAL. Without a flag: AVAILABLE
        if the content has bytes, else EMPTY. PARTIAL also while an unfinished publication is in it. Staging is never
        seen. A file in place of the directory counts as one file, and contains no flag.
        """

    @abstractmethod
    def manifest(self, path: str, flag: str | None = None) -> Manifest:
        """Compute the manifest of what is there by reading all of it; never a mix of two publications.

        Raises `InstanceNotFoundError`; `InstanceChangingError` when it does not hold still or is being published;
        `PathRefusedError` when a symbolic link inside leads out of the root or to a directory.
        """

    @abstractmethod
    def scan(self, path: str, flag: str | None, earlier: Scan | None, now: datetime) -> Scan:
        """Return what an instance holds; read only the files that `earlier`, a scan of the same path, does not cover.

        Availability is that of `look`; only an AVAILABLE instance is read. A rewritten file with other content has
        another checksum, even with its old size and time. If the storage reports changes only by times, a file that
        changed less than two seconds before `now` (real time) has no version, so it is read again. If the storage's
        own checksums depend on more than content (S3 with SSE-KMS), a file rewritten with the same content counts as
        changed. Raises `InstanceChangingError` if the instance keeps changing.
        """

    @abstractmethod
    def published_manifest(self, path: str) -> Manifest | None:
        """Return the manifest written at publication; None if the instance is missing or was not published by us.

        Raises `ManifestError` for one that cannot be read.
        """

    @abstractmethod
    def open(self, path: str, file: str) -> BinaryIO:
        """Open one file of an instance for reading. Raises `InstanceNotFoundError` if it is not there."""

    @abstractmethod
    def fetch(self, path: str, to: Path, flag: str | None = None) -> Manifest:
        """Copy the content into the local directory `to`, made as needed; return the manifest of what was copied.

        Never a mix of two publications. Raises as `manifest`, and `StorageError` if `to` is not empty.
        """

    @abstractmethod
    def stage(self, path: str, token: str) -> StagingPlace:
        """Make an empty staging for (path, token), dropping what an earlier one of the same name held.

        `token` is one name of a file (letters, digits, `.`, `_`, `-`), such as the id of a run and an attempt. Live
        stagings of one path need different tokens.
        """

    @abstractmethod
    def publish(self, staging: StagingPlace, *, flag: str | None, guard: Guard, extra: Mapping[str, str]) -> Manifest:
        """Make the staged content the instance, replacing all that was there, and return its manifest.

        Everything is prepared first (manifest, flag, parents, flushed to disk); then `guard()` runs; then the
        content becomes visible: at once where directories can be exchanged, else objects first, manifest and flag
        last, PARTIAL in between. If `guard` raises, nothing visible has changed, the staging is discarded and the
        exception goes on. After a crash anywhere the instance is the old or the new one, whole (on an object store:
        or PARTIAL until `recover`); both `recover` and a repeat of stage, write, publish converge, and so does calling
        `publish` again with the same staging while it still exists. The staging is gone after success. Publications of
        one path by processes of one machine follow one another; on an object store a publisher that was overtaken
        stops with `InstanceChangingError`.
        Raises `StagingLostError` if the staging does not exist (any more).
        """

    @abstractmethod
    def discard(self, staging: StagingPlace) -> None:
        """Remove a staging with all it holds, if it exists; a publication that had begun is finished before."""

    @abstractmethod
    def recover(self, path: str) -> bool:
        """Finish or undo a publication of `path` that broke off; True if there was one. Harmless at any time."""

    @abstractmethod
    def sweep_staging(self, older_than: datetime) -> int:
        """Remove stagings in which nothing changed since `older_than` (aware); return how many.

        A broken-off publication is recovered first, so the only copy of an instance is never swept.
        """

    def walk(self, base: str, depth: int, choose: Choose) -> Iterator[str]:
        """`walk_folders`, path by path."""
        return (found.folder + name for found in self.walk_folders(base, depth, choose) for name in found.names)

    @abstractmethod
    def walk_folders(self, base: str, depth: int, choose: Choose) -> Iterator[FolderNames]:
        """Find the paths `depth` (1 or more) levels below the folder `base` that `choose` picked at every level.

        They come a folder at a time, some folders empty.
        `base` may be "", the root. Paths are relative to the root, plain, in no order. They are real directories; at
        the last level also regular files. No symbolic link is followed, also none that takes the place of a directory
        during the walk; no other filesystem is entered, and the hidden folder is not shown. `choose` is called once for
        each folder, never from another thread; what it returns beside the names it was given is passed over. A base
        that is missing has nothing. Raises `PathRefusedError` for a base with a symbolic link or a mount point in it.
        """

    @abstractmethod
    def measure(self, paths: Sequence[str]) -> list[Measure]:
        """Measure many paths at once: one answer for each, in the order asked; no symbolic link is followed."""

    @abstractmethod
    def all_files(self, path: str) -> tuple[str, ...]:
        """Return the paths of ALL files of an instance, relative to it, in order; ("",) if it is a file itself.

        Raises `InstanceNotFoundError`, and `PathRefusedError` if it must not be moved (see `Measure.obstacle`).
        """

    @abstractmethod
    def trash(self) -> "Trash":
        """Return what can take instances away from this store. The store itself cannot."""

    @abstractmethod
    def copying(self) -> Copying:
        """Return this store as the source and target of copies."""

    def url(self, path: str) -> str:
        """Return the URL of an instance: the root's own scheme, the path as it is (nothing percent-encoded)."""
        return f"{self.root_url}/{parse_path(self.root_url, path)}"

    def local_path(self, path: str) -> Path | None:
        """Return the path of an instance on this machine's filesystem; None if it has none."""
        parse_path(self.root_url, path)
        return None

    def spark_url(self, path: str) -> str | None:
        """Return the URL by which Spark's own connector opens an instance; None if Spark has no such connector."""
        return None if self.spark_scheme is None else f"{self.spark_scheme}://{self.url(path).split('://', 1)[1]}"

    def _not_empty(self, path: str, to: Path) -> StorageError:
        """Build the refusal to fetch into a directory that holds something."""
        return StorageError(
            store=self.root_url,
            path=path,
            reason=f"{to} holds something already",
            next_step="Fetch into a directory that is empty or does not exist.",
        )

    def _refused(self, path: str, exc: Exception) -> StorageError:
        """Build the translation of what a filesystem raised."""
        reason = getattr(exc, "strerror", None) or str(exc) or type(exc).__name__
        if filename := getattr(exc, "filename", None):
            reason += f" ({filename})"
        return StorageError(
            store=self.root_url,
            path=path,
            reason=f"the filesystem refused: {reason}",
            next_step="Check that the storage is reachable, that it has space and that this user may use the path.",
        )


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

    def remove_empty_parents(self, base: str, paths: Sequence[str]) -> list[str]:  # noqa: ARG002
        """Remove the parents of `paths` that are strictly below `base` and empty; return those removed, deepest first.

        `base` may be "", the root. A path that is not below `base` has no such parents. Nothing but an empty directory
        is ever removed; a link or mount point on the way ends it. A store without directories removes none.
        """
        return []

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
