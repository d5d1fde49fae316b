"""What storage says of instances: looks, manifests, scans, measures, and what became of moved paths."""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple, Self, TypeAlias

# "part-00000-1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed-c000.snappy.parquet"
_WRITER = re.compile(r"-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?=[-.])")

_NOTHING: Mapping[str, object] = {}

Guard: TypeAlias = Callable[[], None]
"""Called when everything is prepared and nothing is visible yet; raises to forbid the publication."""


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


class ManifestEntry(NamedTuple):
    """One content file: path relative to the instance with `/`, size in bytes, `blake3:<hex>` of its bytes; where
    it was written by an earlier version, `sha256:<hex>`.

    A tuple, because there is one for each of many files.
    """

    path: str
    size: int
    checksum: str
    unknown: Mapping[str, object] = _NOTHING


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

        >>> from feed_assets.storage.records import Manifest, ManifestEntry
        >>> one = ManifestEntry(path="b", size=1, checksum="blake3:1")
        >>> two = ManifestEntry(path="a", size=2, checksum="blake3:2")
        >>> manifest = Manifest.of([one, two])
        >>> [entry.path for entry in manifest.entries], manifest.bytes, manifest.files
        (['a', 'b'], 3, 2)
        >>> manifest.digest == Manifest.of([two, one], {"run": "r1"}).digest
        True
        """
        ordered = tuple(sorted(entries, key=attrgetter("path")))
        return cls(
            entries=ordered,
            digest=content_digest(ordered),
            bytes=sum([entry.size for entry in ordered]),
            files=len(ordered),
            extra=dict(extra or {}),
        )


def content_digest(entries: "Iterable[ManifestEntry | ScannedFile]") -> str:
    """`sha256:<hex>` over path, size and checksum of each entry, in order. The id that Spark puts into the name of each
    file that it writes does not count, so the same rows written by another run have the same digest.

    >>> from feed_assets.storage.records import ManifestEntry, content_digest
    >>> names = ["part-0-1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed-c000.csv", "part-0-c000.csv"]
    >>> one, two = (content_digest([ManifestEntry(path=name, size=1, checksum="blake3:1")]) for name in names)
    >>> one == two
    True
    """
    named = [(each.path, each.size, each.checksum) for each in entries]
    if _WRITER.search("\0".join([path for path, _, _ in named])):
        named = [(_WRITER.sub("", path), size, checksum) for path, size, checksum in named]
    text = "".join([f"{path}\0{size}\0{checksum}\n" for path, size, checksum in sorted(named)])
    return f"sha256:{hashlib.sha256(text.encode('utf-8', 'surrogateescape')).hexdigest()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedFile:
    """One content file: path, size and checksum as in a manifest, and a `sign` that a later scan compares.

    Equal signs of one path mean that the file was not written in between; "" is no sign, and equals none. `checksum` is
    `blake3:<hex>`, or `etag:<tag>` or `md5:<…>` where the storage itself tells one of the content.
    """

    path: str
    size: int
    sign: str
    checksum: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """The content of an instance, with as little of it read as possible; `files` in the order of their paths.

    There are no files unless it is AVAILABLE. `read` is how many of them had to be read. Equal digests of two scans of
    one store mean equal content; they are those of manifests where every checksum is one of ours.
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
