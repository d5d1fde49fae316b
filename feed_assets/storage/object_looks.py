"""What the listing of an instance on an object store tells of it."""

from datetime import datetime, timedelta
from hashlib import blake2b

from feed_assets.storage.errors import StorageError
from feed_assets.storage.object_tree import ObjectFile, ObjectListing
from feed_assets.storage.paths import PUBLISHING_NAME, is_content
from feed_assets.storage.records import Availability, Look, Measure, ScannedFile, missing

MOVING = "trash-"
"""How the marker of a move to the trash begins, which stands where that of a publication would."""
_SETTLING = timedelta(seconds=2)


def look_at(path: str, listing: ObjectListing | None, flag: str | None) -> Look:
    """What a look tells of a listing; None is the listing of nothing."""
    if listing is None or not listing.exists:
        return missing(path)
    files = listing.files
    content = [file for name, file in files.items() if is_content(name, flag)]
    size = sum(file.size for file in content)
    if PUBLISHING_NAME in files:
        availability = Availability.PARTIAL
    elif flag is not None:
        availability = Availability.AVAILABLE if flag in files else Availability.PARTIAL
    else:
        availability = Availability.AVAILABLE if size else Availability.EMPTY
    shown = content + ([files[flag]] if flag in files else [])
    times = [file.modified_at for file in shown or files.values() if file.modified_at is not None]
    return Look(
        path=path, availability=availability, bytes=size, files=len(content), modified_at=max(times, default=None)
    )


def scanned(file: ObjectFile, now: datetime) -> ScannedFile:
    """A file of a scan, with the checksum that the storage keeps of it, if any."""
    return ScannedFile(path=file.path, size=file.size, sign=file.sign(now - _SETTLING), checksum=file.checksum)


def measure_listing(path: str, listing: ObjectListing) -> Measure:
    """Measure what was listed of a path."""
    files = listing.files.values()
    signs = sorted(f"{file.path} {file.size} {file.tag}" for file in files)
    sign = blake2b("\0".join(signs).encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()
    return Measure(
        path=path,
        exists=listing.exists,
        bytes=sum(file.size for file in files),
        files=len(files),
        obstacle="a publication of it is under way" if PUBLISHING_NAME in listing.files else None,
        sign=sign if listing.exists else "",
    )


def broken_off(store: str, path: str, token: str) -> StorageError:
    """Build the refusal to recover what only its author can finish."""
    if token.startswith(MOVING):
        reason, next_step = "a move to the trash, or back, broke off", "Repeat the sweep or its undo."
    else:
        reason = f"a publication broke off and its staging {token!r} is gone"
        next_step = "Produce and publish the instance again."
    return StorageError(store=store, path=path, reason=reason, next_step=next_step)
