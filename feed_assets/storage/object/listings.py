"""Evaluate the listing of an instance on an object store: availability, content, size, obstacles."""

from hashlib import blake2b

from feed_assets.storage.errors import StorageError
from feed_assets.storage.listing import UNKNOWN_CHANGE, Entry, look_at, nanoseconds
from feed_assets.storage.object.client import ObjectFile, ObjectListing
from feed_assets.storage.paths import PUBLISHING_NAME, is_content
from feed_assets.storage.records import Look, Measure, missing

MOVING = "trash-"
"""The prefix of the marker of a move to the trash; it has the same name as the marker of a publication."""


def entry_of(file: ObjectFile) -> Entry:
    """Return the entry of an object; with an ETag it counts as settled at once, with a time only later."""
    modified = None if file.modified_at is None else nanoseconds(file.modified_at)
    is_tagged = not file.tag.startswith(" ")
    changed = 0 if is_tagged else UNKNOWN_CHANGE if modified is None else modified
    return Entry(file.path, file.size, file.tag, changed, modified, None, file.checksum)


def content_of(listing: ObjectListing, flag: str | None) -> list[Entry]:
    """Return the content files of a listing."""
    return [entry_of(file) for name, file in listing.files.items() if is_content(name, flag)]


def look_into(path: str, listing: ObjectListing | None, flag: str | None) -> Look:
    """Return the availability that a listing shows; None is a listing without objects."""
    if listing is None or not listing.exists:
        return missing(path)
    content, files = content_of(listing, flag), listing.files
    has_flag = flag is not None and flag in files
    shown = [files[flag]] if flag is not None and has_flag else [] if content else files.values()
    times = [nanoseconds(file.modified_at) for file in shown if file.modified_at is not None]
    return look_at(path, content, flag, has_flag, times, is_publishing=PUBLISHING_NAME in files)


def measure_listing(path: str, listing: ObjectListing) -> Measure:
    """Measure a listing: bytes, files and a fingerprint. The marker of a publication or a move is no content."""
    is_marked = PUBLISHING_NAME in listing.files
    files = [file for name, file in listing.files.items() if name != PUBLISHING_NAME]
    exists = bool(files) or (listing.exists and not is_marked)
    fingerprints = sorted(f"{file.path} {file.size} {file.tag}" for file in files)
    fingerprint = blake2b("\0".join(fingerprints).encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()
    return Measure(
        path=path,
        exists=exists,
        bytes=sum(file.size for file in files),
        files=len(files),
        obstacle="a publication of it is under way" if is_marked else None,
        fingerprint=fingerprint if exists else "",
    )


def broken_off(store: str, path: str, token: str) -> StorageError:
    """Build the error for an interrupted step that only its author can finish."""
    if token.startswith(MOVING):
        reason, next_step = "a move to the trash, or back, broke off", "Repeat the sweep or its undo."
    else:
        reason = f"a publication broke off and its staging {token!r} is gone"
        next_step = "Produce and publish the instance again."
    return StorageError(store=store, path=path, reason=reason, next_step=next_step)
