"""Evaluate listings of instances, the same for every storage: availability, size, versions of files."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from feed_assets.storage.checksums import is_of_content
from feed_assets.storage.copy_port import SourceFile
from feed_assets.storage.records import (
    Availability,
    Look,
    ManifestEntry,
    Scan,
    ScannedFile,
    files_to_read,
    nothing_to_scan,
)

SETTLING = 2_000_000_000
"""Nanoseconds after which a file counts as settled: a later write is certain to have another time."""
UNKNOWN_CHANGE = 1 << 63
"""The `changed` of a file whose version depends on a time that the storage does not report: never settled."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Entry(NamedTuple):
    """One listed file of an instance. A tuple, because there are many. Times are nanoseconds since 1970.

    `version` changes when the file is written. `changed` is the time of the last write if the version depends on times,
    and 0 if it depends on content. `modified` is the time that programs can set, `mode` has the permission bits; both
    are None if the storage has none. `checksum` is the storage's own checksum of the content, if it has one.
    """

    path: str
    size: int
    version: str
    changed: int = 0
    modified: int | None = None
    mode: int | None = None
    checksum: str = ""


def is_settled(changed: int, now: int) -> bool:
    """Return whether any later write would give the file another version. Both are nanoseconds since 1970.

    >>> [is_settled(changed, 10_000_000_000) for changed in (0, 7_999_999_999, 8_000_000_000, 11_000_000_000)]
    [True, True, False, False]
    """
    return changed < now - SETTLING


def decide_availability(flag: str | None, has_flag: bool, size: int) -> Availability:
    """Decide the availability of an instance that exists and is not being published, from the size of its content.

    >>> [str(decide_availability(None, False, size)) for size in (1, 0)]
    ['AVAILABLE', 'EMPTY']
    >>> [str(decide_availability("_SUCCESS", has_flag, 1)) for has_flag in (True, False)]
    ['AVAILABLE', 'PARTIAL']
    """
    if flag is None:
        return Availability.AVAILABLE if size else Availability.EMPTY
    return Availability.AVAILABLE if has_flag else Availability.PARTIAL


def look_at(
    path: str,
    content: Sequence[Entry],
    flag: str | None,
    has_flag: bool,
    times: Iterable[int],
    *,
    is_publishing: bool = False,
) -> Look:
    """Return the availability, size and time of an instance. `times` are those of its flag and directory, if any."""
    size = sum(entry.size for entry in content)
    newest = max([*times, *(entry.modified for entry in content if entry.modified is not None)], default=None)
    return Look(
        path=path,
        availability=Availability.PARTIAL if is_publishing else decide_availability(flag, has_flag, size),
        bytes=size,
        files=len(content),
        modified_at=None if newest is None else moment(newest),
    )


def source_files(
    content: Sequence[Entry], known: Mapping[str, ManifestEntry], published_at: int, now: int
) -> tuple[SourceFile, ...]:
    """Return listed files as files of a source, ordered by path.

    `known` has the manifest's entries by path; one counts unless its file was written after `published_at`.
    """
    return tuple(
        [
            SourceFile(
                path,
                size,
                version,
                is_settled(changed, now),
                _checksum(known.get(path), size, modified, published_at) if known else "",
                modified,
                mode,
            )
            for path, size, version, changed, modified, mode, _ in sorted(content)
        ]
    )


def scanned_files(content: Iterable[Entry], now: int) -> list[ScannedFile]:
    """Return listed files with the storage's checksums; a file that is not settled has no version."""
    return [
        ScannedFile(
            path=entry.path,
            size=entry.size,
            version=entry.version if is_settled(entry.changed, now) else "",
            checksum=entry.checksum,
        )
        for entry in content
    ]


def scan_listing(
    availability: Availability,
    content: Iterable[Entry],
    earlier: Scan | None,
    now: datetime,
    read: Callable[[Sequence[str]], Sequence[ManifestEntry]],
) -> Scan:
    """Scan listed files. `read` reads the files whose content neither `earlier` nor the storage's checksums tell.

    If any was read, the caller must list the files again to see whether they have changed.
    """
    if availability is not Availability.AVAILABLE:
        return nothing_to_scan(availability)
    known, unread = files_to_read(scanned_files(content, nanoseconds(now)), earlier)
    entries = read([file.path for file in unread])
    found = [file._replace(checksum=entry.checksum) for file, entry in zip(unread, entries, strict=True)]
    ordered = tuple(sorted([*known, *found], key=lambda file: file.path))
    return Scan(availability=availability, files=ordered, read=len(found))


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
