"""The port to instance storage: everything the project may ask of one cluster's filesystem.

An instance is a directory known by its path below the store's root. The docstrings of `InstanceStore` are the
contract; every adapter passes one behaviour suite.
"""

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Self, TypeAlias

from feed_assets.storage.errors import StorageError

if TYPE_CHECKING:
    from feed_assets.storage.trash_port import Trash

# "part-00000-1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed-c000.snappy.parquet"
_WRITER = re.compile(r"-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?=[-.])")


class Availability(StrEnum):
    """What a look at an instance's directory tells. The names are those of Falcon's feed instance listing."""

    MISSING = "MISSING"
    PARTIAL = "PARTIAL"
    EMPTY = "EMPTY"
    AVAILABLE = "AVAILABLE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One instance as it stood when looked at.

    `path` is the path that was asked for, unchanged. `bytes` and `files` count content (see `Manifest`) and are 0
    where nothing is. `modified_at` (UTC) is the newest change that the filesystem tells of: of a content file, of the
    availability flag or, where directories have times, of the directory; None where nothing is. Equal `bytes`,
    `files` and `modified_at` are a cheap sign, not a proof, that nothing changed: only manifests prove it.
    Differs from Falcon: its size of a missing instance is -1, and its sizes count every replica of a block.
    """

    path: str
    availability: Availability
    bytes: int
    files: int
    modified_at: datetime | None


def missing(path: str) -> Look:
    """The look at a path where nothing is."""
    return Look(path=path, availability=Availability.MISSING, bytes=0, files=0, modified_at=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestEntry:
    """One content file: path relative to the instance with `/`, size in bytes, `sha256:<hex>` of its bytes."""

    path: str
    size: int
    checksum: str
    unknown: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The content of an instance, entries in the order of their paths.

    Content is every file except the availability flag and those that Spark does not read either: a path of which one
    part begins with `.`, or with `_` and has no `=` in it. `digest` depends on content only (see `content_digest`), so
    equal content has equal digests wherever it lies. `extra` is what the publisher said (empty for a computed
    manifest); `unknown` keeps fields written by a newer version through a round trip.
    """

    version: int = 1
    entries: tuple[ManifestEntry, ...]
    digest: str
    bytes: int
    files: int
    extra: Mapping[str, str] = field(default_factory=dict)
    unknown: Mapping[str, object] = field(default_factory=dict)

    @classmethod
    def of(cls, entries: Iterable[ManifestEntry], extra: Mapping[str, str] | None = None) -> Self:
        """Order the entries and compute digest and totals.

        >>> from feed_assets.storage.port import Manifest, ManifestEntry
        >>> one = ManifestEntry(path="b", size=1, checksum="sha256:1")
        >>> two = ManifestEntry(path="a", size=2, checksum="sha256:2")
        >>> manifest = Manifest.of([one, two])
        >>> [entry.path for entry in manifest.entries], manifest.bytes, manifest.files
        (['a', 'b'], 3, 2)
        >>> manifest.digest == Manifest.of([two, one], {"run": "r1"}).digest
        True
        """
        ordered = tuple(sorted(entries, key=lambda entry: entry.path))
        return cls(
            entries=ordered,
            digest=content_digest(ordered),
            bytes=sum(entry.size for entry in ordered),
            files=len(ordered),
            extra=dict(extra or {}),
        )


def content_digest(entries: "Iterable[ManifestEntry | ScannedFile]") -> str:
    """`sha256:<hex>` over path, size and checksum of each entry, in order. The id that Spark puts into the name of each
    file that it writes does not count, so the same rows written by another run have the same digest.

    >>> from feed_assets.storage.port import ManifestEntry, content_digest
    >>> names = ["part-0-1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed-c000.csv", "part-0-c000.csv"]
    >>> one, two = (content_digest([ManifestEntry(path=name, size=1, checksum="sha256:1")]) for name in names)
    >>> one == two
    True
    """
    digest = hashlib.sha256()
    for path, size, checksum in sorted((_WRITER.sub("", each.path), each.size, each.checksum) for each in entries):
        digest.update(path.encode("utf-8", "surrogateescape"))
        digest.update(f"\0{size}\0{checksum}\n".encode())
    return f"sha256:{digest.hexdigest()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedFile:
    """One content file: path, size and checksum as in a manifest, and a `sign` that a later scan compares.

    Equal signs of one path mean that the file was not written in between; "" is no sign, and equals none. `checksum` is
    `sha256:<hex>`, or `etag:<tag>` or `md5:<…>` where the storage itself tells one of the content.
    """

    path: str
    size: int
    sign: str
    checksum: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """The content of an instance, with as little of it read as possible; `files` in the order of their paths.

    There are no files unless it is AVAILABLE. `read` is how many of them had to be read. Equal digests of two scans of
    one store mean equal content; they are those of manifests where every checksum is a sha256.
    """

    availability: Availability
    files: tuple[ScannedFile, ...]
    read: int

    @property
    def digest(self) -> str:
        """`sha256:<hex>` over path, size and checksum of each file."""
        return content_digest(self.files)

    @property
    def bytes(self) -> int:
        """The size of all files."""
        return sum(file.size for file in self.files)


def nothing_to_scan(availability: Availability) -> Scan:
    """The scan of an instance that is not AVAILABLE."""
    return Scan(availability=availability, files=(), read=0)


def files_to_read(files: Iterable[ScannedFile], earlier: Scan | None) -> tuple[list[ScannedFile], list[ScannedFile]]:
    """Part scanned files whose checksum is not known yet (""): those that an earlier scan knows, with its checksum, and
    those that must be read.
    """
    known = {(file.path, file.size, file.sign): file for file in (earlier.files if earlier else ()) if file.sign}
    settled: list[ScannedFile] = []
    unread: list[ScannedFile] = []
    for file in files:
        found = file if file.checksum else known.get((file.path, file.size, file.sign))
        (unread if found is None else settled).append(found or file)
    return settled, unread


@dataclass(frozen=True, slots=True, kw_only=True)
class Staging:
    """A hidden place for the next content of one instance.

    A writer writes files below `url`, which Spark can open (with the store's `spark_scheme`, or `file` where it has
    none), or below `local_path`; what lies in either is published. Both may be deleted and made again by the writer,
    as Spark does.
    """

    path: str
    token: str
    url: str
    local_path: Path


Guard: TypeAlias = Callable[[], None]
"""Called when everything is prepared and nothing is visible yet; raises to forbid the publication."""


Choose: TypeAlias = Callable[[str, Sequence[str]], Iterable[str]]
"""Given a folder, by its path relative to the base of a walk ("" for the base), and the names in it: those to go on
with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """All that a path holds: flag, manifest and hidden files too. A symbolic link counts as a file of no bytes.

    `obstacle` says why it must not be moved; None if it may. `sign` changes when something is written in it, as far as
    the filesystem tells; "" where nothing `exists`. Signs are compared with signs of the same path and store only.
    """

    path: str
    exists: bool = False
    bytes: int = 0
    files: int = 0
    obstacle: str | None = None
    sign: str = ""


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
        """Find out what an instance holds; read only what `earlier`, a scan of the same path, does not know unchanged.

        Availability is that of `look`; nothing is read of an instance that is not AVAILABLE. A file that was written
        again, with its old size and time too, has another checksum if its content is another. A file that changed less
        than two seconds before `now` (the wall clock) has no sign where the storage tells of changes by times only, so
        it is read again. Where the storage's own checksums depend on more than content (S3 with SSE-KMS), a file that
        was written again with the same content counts as another.
        Raises `InstanceChangingError` when it does not hold still.
        """

    @abstractmethod
    def published_manifest(self, path: str) -> Manifest | None:
        """Return the manifest written at publication; None if the instance is missing or was not published by us.

        Raises `ManifestError` for one that cannot be read.
        """

    @abstractmethod
    def files(self, path: str, flag: str | None = None) -> tuple[str, ...]:
        """Return the paths of the content files relative to the instance, in order. Raises as `manifest`."""

    @abstractmethod
    def open(self, path: str, file: str) -> BinaryIO:
        """Open one file of an instance for reading. Raises `InstanceNotFoundError` if it is not there."""

    @abstractmethod
    def fetch(self, path: str, to: Path, flag: str | None = None) -> Manifest:
        """Copy the content into the local directory `to`, made as needed; return the manifest of what was copied.

        Never a mix of two publications. Raises as `manifest`, and `StorageError` if `to` is not empty.
        """

    @abstractmethod
    def stage(self, path: str, token: str) -> Staging:
        """Make an empty staging for (path, token), dropping what an earlier one of the same name held.

        `token` is one name of a file (letters, digits, `.`, `_`, `-`), such as the id of a run and an attempt. Live
        stagings of one path need different tokens.
        """

    @abstractmethod
    def publish(self, staging: Staging, *, flag: str | None, guard: Guard, extra: Mapping[str, str]) -> Manifest:
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
    def discard(self, staging: Staging) -> None:
        """Remove a staging with all it holds, if it exists; a publication that had begun is finished before."""

    @abstractmethod
    def recover(self, path: str) -> bool:
        """Finish or undo a publication of `path` that broke off; True if there was one. Harmless at any time."""

    @abstractmethod
    def sweep_staging(self, older_than: datetime) -> int:
        """Remove stagings in which nothing changed since `older_than` (aware); return how many.

        A broken-off publication is recovered first, so the only copy of an instance is never swept.
        """

    @abstractmethod
    def walk(self, base: str, depth: int, choose: Choose) -> Iterator[str]:
        """Find the paths `depth` (1 or more) levels below the folder `base` that `choose` picked at every level.

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
    def url(self, path: str) -> str:
        """Return the URL of an instance: the root's own scheme, the path as it is (nothing percent-encoded)."""

    @abstractmethod
    def local_path(self, path: str) -> Path | None:
        """Return the path of an instance on this machine's filesystem; None if it has none."""

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
