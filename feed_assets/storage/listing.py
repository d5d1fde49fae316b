"""What a store lists of an instance's place, and every answer that follows from it, the same for all storages.

An adapter only lists. Availability, size, measures, marks, settledness and likeness are functions of a `Listing`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from hashlib import blake2b
from typing import NamedTuple

from feed_assets.entities.locations.overlaps import HIDDEN_FOLDER
from feed_assets.storage.checksums import is_of_content
from feed_assets.storage.copy_port import SourceFile, Standing, Traits
from feed_assets.storage.errors import StorageError
from feed_assets.storage.paths import MANIFEST_NAME, PUBLISHING_NAME, SINGLE_FILE, is_content
from feed_assets.storage.records import (
    Availability,
    Look,
    ManifestEntry,
    Measure,
    Scan,
    ScannedFile,
    obstructed,
)

SETTLING = 2_000_000_000
"""Nanoseconds after which a file counts as settled: a later write is certain to have another time."""
UNKNOWN_CHANGE = 1 << 63
"""The `changed` of a file whose version depends on a time that the storage does not report: never settled."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OWN = frozenset({MANIFEST_NAME, PUBLISHING_NAME})
_PUBLISHING = "a publication of it is under way"


class Entry(NamedTuple):
    """One listed file of an instance. A tuple, because there are many. Times are nanoseconds since 1970.

    `version` changes when the file is written. `changed` is the time of the last write if the version depends on times,
    and 0 if it depends on content. `modified` is the time that programs can set, `mode` has the permission bits; both
    are None if the storage has none. `checksum` is the storage's own checksum of the content, if it has one. `traits`
    are what HDFS has besides.
    """

    path: str
    size: int
    version: str
    changed: int = 0
    modified: int | None = None
    mode: int | None = None
    checksum: str = ""
    traits: Traits | None = None


class View(StrEnum):
    """What a listing shows of a place. An adapter may show more."""

    NAMED = "NAMED"
    """Only the files that are asked for by name; their folder is not listed."""
    CONTENT = "CONTENT"
    """Content, and the files that are asked for by name."""
    SOURCE = "SOURCE"
    """Hidden files, too, but nothing of a store whose root is inside."""
    STANDING = "STANDING"
    """All files that a publication would replace. An interrupted exchange is finished before."""
    WHOLE = "WHOLE"
    """All that a removal would move: no link is followed, and what must not be moved is the obstacle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What was at a place at one moment.

    `entries` are in no order; one with the path "" is a file in place of the directory. In a WHOLE listing, `others`
    (what is no regular file) are entries without bytes, and `folders` tell their own state. In every other one,
    `others` are no entries, and `links` has each symbolic link, with the error of what cannot be followed; "" is the
    place itself, if it is a link to nothing. `obstacle` is why the store cannot or must not look into this place; the
    whole listing is then worth nothing, unless it is WHOLE. `is_declared` says that something other than files tells
    that the instance is there, `is_marked` that a publication in place is under way. `version` and `modified` are those
    of the place itself, "" and None if the storage has none. `manifest` is the text of the published manifest, if it
    was asked for.
    """

    exists: bool = True
    entries: Sequence[Entry] = ()
    obstacle: StorageError | None = None
    is_declared: bool = False
    is_marked: bool = False
    version: str = ""
    modified: int | None = None
    links: Mapping[str, StorageError | None] = field(default_factory=dict)
    others: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    manifest: bytes | None = None

    @property
    def is_file(self) -> bool:
        """Whether a file is in place of the directory."""
        return len(self.entries) == 1 and not self.entries[0].path

    def find(self, name: str) -> Entry | None:
        """Return the entry of a file."""
        return next((entry for entry in self.entries if entry.path == name), None)


NOTHING = Listing(exists=False)


def content_of(listing: Listing, flag: str | None) -> list[Entry]:
    """Return the content files."""
    return [entry for entry in listing.entries if is_content(entry.path, flag)]


def availability_of(listing: Listing, flag: str | None) -> Availability:
    """Decide the availability, by the flag or, without one, by the size of the content.

    >>> file = Entry("part-0.csv", 1, "v1")
    >>> [str(availability_of(Listing(entries=[file]), flag)) for flag in (None, "_SUCCESS")]
    ['AVAILABLE', 'PARTIAL']
    """
    if not listing.exists:
        return Availability.MISSING
    if listing.is_marked:
        return Availability.PARTIAL
    if flag is not None:
        return Availability.PARTIAL if listing.find(flag) is None else Availability.AVAILABLE
    is_full = listing.is_declared or any(entry.size and is_content(entry.path, None) for entry in listing.entries)
    return Availability.AVAILABLE if is_full else Availability.EMPTY


def look_of(path: str, listing: Listing, flag: str | None) -> Look:
    """Return the availability, size and time of an instance."""
    if (obstacle := listing.obstacle or listing.links.get("")) is not None:
        return obstructed(path, obstacle.reason)
    if not listing.exists:
        return Look(path=path, availability=Availability.MISSING)
    content, shown = content_of(listing, flag), None if flag is None else listing.find(flag)
    timed = [*content, shown] if shown is not None else content or listing.entries
    times = [entry.modified for entry in timed if entry.modified is not None]
    if listing.modified is not None:
        times.append(listing.modified)
    return Look(
        path=path,
        availability=availability_of(listing, flag),
        bytes=sum([entry.size for entry in content]),
        files=len(content),
        modified_at=moment(max(times)) if times else None,
    )


def measure_of(path: str, listing: Listing) -> Measure:
    """Measure a WHOLE listing. The marker of a publication or a move is no content."""
    files = [entry for entry in listing.entries if not (listing.is_marked and entry.path == PUBLISHING_NAME)]
    exists = listing.exists and (bool(files) or not listing.is_marked)
    lines = [*listing.folders, *[f"{entry.path} {entry.size} {entry.version} {entry.mode}" for entry in files]]
    fingerprint = ""
    if lines or (exists and listing.obstacle is None):
        text = "\0".join([listing.version, *sorted(lines)])
        fingerprint = blake2b(text.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()
    return Measure(
        path=path,
        exists=exists,
        bytes=sum([entry.size for entry in files]),
        files=len(files),
        obstacle=listing.obstacle.reason if listing.obstacle else _PUBLISHING if listing.is_marked else None,
        fingerprint=fingerprint,
    )


def find_uncopied(listing: Listing) -> str | None:
    """Return why a WHOLE listing cannot be copied exactly; None if it can."""
    return f"{min(listing.others)!r} in it is no regular file" if listing.others else None


def mark_of(listing: Listing) -> str:
    """Return a mark that changes with each publication; "" without one, or if the storage reports only times."""
    manifest = listing.find(MANIFEST_NAME)
    if manifest is None or manifest.version.startswith(" "):
        return ""
    return f"{listing.version}.{manifest.version}.{manifest.size:x}" if listing.version else manifest.version


def standing_of(listing: Listing) -> Standing:
    """Return what a publication would replace. Links are not followed, and a single file counts as nothing."""
    sizes = {
        path: size for path, size, *_ in listing.entries if path and path not in _OWN and path not in listing.links
    }
    return Standing(mark_of(listing), sizes, is_unfinished=listing.is_marked)


def is_like(one: Listing, other: Listing, flag: str | None = None) -> bool:
    """Whether two listings have the same content, and none was written between them."""
    first, second = (sorted([entry[:3] for entry in content_of(each, flag)]) for each in (one, other))
    return first == second  # path, size, version


def source_entries(listing: Listing, flag: str | None, *, everything: bool) -> list[Entry]:
    """Return the files of a source: its content, or with `everything` all but the flag and our own.

    Raises the `StorageError` of a link that cannot be followed.
    """
    for _, refusal in sorted(listing.links.items()):
        if refusal is not None:
            raise refusal
    if not everything:
        return content_of(listing, flag)
    ours = {flag, *_OWN}
    return [
        entry for entry in listing.entries if entry.path not in ours and HIDDEN_FOLDER not in entry.path.split("/")[:-1]
    ]


def is_settled(changed: int, now: int) -> bool:
    """Return whether any later write would give the file another version. Both are nanoseconds since 1970.

    >>> [is_settled(changed, 10_000_000_000) for changed in (0, 7_999_999_999, 8_000_000_000, 11_000_000_000)]
    [True, True, False, False]
    """
    return changed < now - SETTLING


def source_files(
    content: Sequence[Entry], known: Mapping[str, ManifestEntry], published_at: int, now: int
) -> tuple[SourceFile, ...]:
    """Return listed files as files of a source, ordered by path.

    `known` has the manifest's entries by path; one counts unless its file was written after `published_at`.
    """
    return tuple(
        [
            SourceFile(
                path or SINGLE_FILE,
                size,
                version,
                is_settled(changed, now),
                _checksum(known.get(path), size, modified, published_at) if known else "",
                modified,
                mode,
                traits,
            )
            for path, size, version, changed, modified, mode, _, traits in sorted(content)
        ]
    )


def scan_listing(
    listing: Listing,
    flag: str | None,
    earlier: Scan | None,
    now: datetime,
    read: Callable[[Sequence[str]], Sequence[ManifestEntry]],
) -> Scan:
    """Scan the content of an instance. `read` reads the files whose content neither `earlier`, if it has the same
    version of them, nor the storage's own checksums tell. A file that is not settled has no version.

    If any was read, the caller must list the files again to see whether they have changed.
    """
    availability = availability_of(listing, flag)
    if availability is not Availability.AVAILABLE:
        return Scan(availability=availability)
    former = {file[:3]: file.checksum for file in (earlier.files if earlier else ()) if file.version}
    files, unread, at = list[ScannedFile](), list[ScannedFile](), nanoseconds(now)
    for path, size, version, changed, _, _, checksum, _ in content_of(listing, flag):
        settled = version if is_settled(changed, at) else ""
        file = ScannedFile(path, size, settled, checksum or former.get((path, size, settled), ""))
        (files if file.checksum else unread).append(file)
    entries = read([file.path for file in unread])
    files += [file._replace(checksum=entry.checksum) for file, entry in zip(unread, entries, strict=True)]
    return Scan(availability=availability, files=tuple(sorted(files)), read=len(unread))


def nanoseconds(when: datetime) -> int:
    """Return a moment as nanoseconds since 1970.

    >>> nanoseconds(datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))
    1000000000
    """
    return ((when - _EPOCH) // timedelta(microseconds=1)) * 1000


def moment(nanoseconds: int) -> datetime:
    """Return nanoseconds since 1970 as a moment.

    >>> moment(1_000_000_000).isoformat()
    '1970-01-01T00:00:01+00:00'
    """
    return _EPOCH + timedelta(microseconds=nanoseconds // 1000)


def _checksum(entry: ManifestEntry | None, size: int, modified: int | None, published_at: int) -> str:
    if entry is None or entry.size != size or (modified or 0) > published_at:
        return ""
    return entry.checksum if is_of_content(entry.checksum) else ""
