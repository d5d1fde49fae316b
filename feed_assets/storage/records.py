"""Define what stores take and return: availability, manifests, scans, measures, moves, the rules of a clearing."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple, Self, TypeAlias

from feed_assets.command_lines import command_line
from feed_assets.entities.copies.options import Existing

_NOTHING: Mapping[str, object] = {}

Guard: TypeAlias = Callable[[], None]
"""Called after all preparation and before anything is visible; raises to forbid the publication."""

Extra: TypeAlias = Mapping[str, str]
"""What a manifest says besides its files, by name."""


class Availability(StrEnum):
    """The availability of an instance. The names are those of Falcon's feed instance listing."""

    MISSING = "MISSING"
    PARTIAL = "PARTIAL"
    EMPTY = "EMPTY"
    AVAILABLE = "AVAILABLE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The state of one instance at the time of a check.

    `path` is the given path, unchanged. `bytes` and `files` count content (see `Manifest`); both are 0 for a missing
    instance. `modified_at` (UTC) is the newest change that the filesystem reports: of a content file, of the
    availability flag or, if directories have times, of the directory. It is None for a missing instance. Equal
    `bytes`, `files` and `modified_at` are a cheap hint that nothing changed; only manifests prove it.
    `obstacle` is why the store cannot or must not look into this path, as a clause for a message; the instance then is
    PARTIAL.
    Differs from Falcon: there a missing instance has size -1, and sizes count every replica of a block.
    """

    path: str
    availability: Availability
    bytes: int = 0
    files: int = 0
    modified_at: datetime | None = None
    obstacle: str | None = None


def obstructed(path: str, obstacle: str) -> Look:
    """Return the `Look` of an instance that the store cannot or must not look into."""
    return Look(path=path, availability=Availability.PARTIAL, obstacle=obstacle)


class ManifestEntry(NamedTuple):
    """One content file of a manifest: path relative to the instance (with `/`), size in bytes, checksum of its bytes.

    The checksum is `blake3:<hex>`, or `sha256:<hex>` in manifests of earlier versions. The entry is a tuple to save
    memory and time, because instances can have very many files.
    """

    path: str
    size: int
    checksum: str
    unknown: Mapping[str, object] = _NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The content of an instance, with entries in the order of their paths.

    Content is every file except the availability flag and hidden files. A file is hidden if a part of its path begins
    with `.`, or begins with `_` and contains no `=`; Spark ignores the same files. `digest` depends on content only
    (see `content_digest`), so equal content has equal digests at any location. `extra` is from the publisher (empty for
    a computed manifest). `unknown` preserves fields of newer versions in a round trip.
    """

    version: int = 1
    entries: tuple[ManifestEntry, ...]
    digest: str
    bytes: int
    files: int
    extra: Extra = field(default_factory=dict)
    unknown: Mapping[str, object] = field(default_factory=dict)

    @classmethod
    def of(cls, entries: Iterable[ManifestEntry], extra: Extra | None = None) -> Self:
        """Sort the entries and compute the digest and the totals.

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
    """Return `sha256:<hex>` over folder, size and checksum of each entry, whatever their order.

    The names of files are left out: a writer names them anew, so the same rows written by another run have the same
    digest. Folders stay, since `country=DE/` is data.

    >>> from feed_assets.storage.records import ManifestEntry, content_digest
    >>> paths = ("a/part-0-1b9d6bcd.csv", "a/b.csv", "c/b.csv")
    >>> one, two, three = (content_digest([ManifestEntry(path=path, size=1, checksum="blake3:1")]) for path in paths)
    >>> one == two, two == three
    (True, False)
    """
    text = "".join(sorted([f"{each.path.rpartition('/')[0]}\0{each.size}\0{each.checksum}\n" for each in entries]))
    return f"sha256:{hashlib.sha256(text.encode('utf-8', 'surrogateescape')).hexdigest()}"


class ScannedFile(NamedTuple):
    """One content file of a scan, also as it is recorded: path, size and checksum as in a manifest, and the `version`
    for a later scan.

    Equal versions of one path mean that the file was not written in between; "" means unknown and equals no version.
    `checksum` is `blake3:<hex>`, or `etag:<tag>` or `md5:<…>` if the storage itself keeps a checksum of the content.
    """

    path: str
    size: int
    version: str
    checksum: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """The content of an instance, found by reading as little as possible; `files` are in the order of their paths.

    `files` is empty unless the instance is AVAILABLE. `read` is the number of files that had to be read. Equal digests
    of two scans of one store mean equal content. If feed-assets computed every checksum, the digest equals that of the
    manifest.
    """

    availability: Availability
    files: tuple[ScannedFile, ...] = ()
    read: int = 0

    @property
    def digest(self) -> str:
        """The `sha256:<hex>` over folder, size and checksum of each file."""
        return content_digest(self.files)

    @property
    def bytes(self) -> int:
        """The total size of all files."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class StagingPlace:
    """The place where a writer puts the next content of one instance.

    The writer puts files below `url`, which Spark can open (with the store's `spark_scheme`, else `file`), or below
    `local_path`; the files of both are published. The writer may delete and recreate both, as Spark does.
    """

    path: str
    token: str
    url: str
    local_path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """The size of everything at a path, including flag, manifest and hidden files; a symbolic link is an empty file.

    `obstacle` says why the path must not be moved; None if it may be. `fingerprint` is a digest that changes with every
    write that the filesystem reports; "" for a missing path. Compare it only with fingerprints of the same path and
    store.
    """

    path: str
    exists: bool = False
    bytes: int = 0
    files: int = 0
    obstacle: str | None = None
    fingerprint: str = ""


class Outcome(StrEnum):
    """The outcome of a move for one path."""

    MOVED = "MOVED"
    """This call moved it to its destination."""
    ALREADY = "ALREADY"
    """An earlier call had moved it to its destination."""
    VANISHED = "VANISHED"
    """Nothing exists at the path, and this sweep did not move it: another program removed it."""
    OCCUPIED = "OCCUPIED"
    """Something exists at the destination; nothing was changed."""
    LOST = "LOST"
    """It is not in the trash: it was purged, restored before, or never moved."""
    REFUSED = "REFUSED"
    """It must not be moved: a link, a mount point, another filesystem, an invalid path, missing permissions."""
    CHANGED = "CHANGED"
    """The content is not the content to be moved: it arrived or changed later. It was left alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """The result of a move for one path; `path` is the given path, unchanged.

    `bytes` and `files` count the moved content; None if a move does not count them (a rename). `reason` is a clause;
    every outcome except MOVED has one.
    """

    path: str
    outcome: Outcome
    bytes: int | None = None
    files: int | None = None
    reason: str | None = None


def moved_nothing(outcome: Outcome, reason: str) -> Moved:
    """Return a result of a move that moved nothing, for a path that is filled in later."""
    return Moved(path="", outcome=outcome, reason=reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Purged:
    """The result of a purge: the number of removed `files` (with links); `obstacle` says why it is not complete."""

    sweep: str
    files: int
    is_complete: bool
    obstacle: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Displaced:
    """What a publication moves to the trash of the removal `sweep`: `files` files, as `paths` below the root.

    `path` is the instance; it is the only one of `paths` if everything in its place goes.
    """

    sweep: str
    store: str
    path: str
    paths: tuple[str, ...]
    files: int

    @property
    def is_whole(self) -> bool:
        """Whether everything in the place goes."""
        return self.paths == (self.path,)

    def describe(self) -> dict[str, object]:
        """Return the document about it in the trash."""
        return {
            "version": 1,
            "sweep": self.sweep,
            "store": self.store,
            "displaced_from": self.path,
            "files": self.files,
            "undo": command_line("retention", "undo", self.sweep),
        }


def describe_displaced(displaced: Sequence[Displaced]) -> dict[str, str | int | float]:
    """Return what went to the trash, for the partition; empty if nothing did."""
    if not displaced:
        return {}
    sweeps = dict.fromkeys(each.sweep for each in displaced)
    return {"displaced_files": sum(each.files for each in displaced), "displaced_to": ", ".join(sweeps)}


def _say_nothing(_displaced: Displaced) -> None:
    """Announce nothing."""


Keep: TypeAlias = Callable[[Manifest], None] | None
"""Called with the manifest of our publication that is about to be replaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clearing:
    """The rules for what stands in the place of a publication; see `storage/clearing.py`.

    `sweep` names the removal in the trash. `existing` decides about foreign content, unless the record knows the
    instance (`is_known`). `has_flags` says that flags, which no manifest lists, are ours. `announce` is called before
    anything is moved, `keep` before what we have published is replaced.
    """

    sweep: str
    existing: Existing = Existing.REFUSE
    is_known: bool = False
    has_flags: bool = True
    announce: Callable[[Displaced], None] = _say_nothing
    keep: Keep = None
