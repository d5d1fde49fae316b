"""Find the files in an inbox, and remember those that stay there."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, NamedTuple
from uuid import uuid4

from sqlalchemy import Connection

from feed_assets.context.operation import LifecycleContext
from feed_assets.entities.maps import EMPTY
from feed_assets.errors import render_some
from feed_assets.json_form import NominalTime
from feed_assets.log.cursors import Cursors
from feed_assets.plan.records import FeedRecord, InboxRecord
from feed_assets.storage.deliveries import DeliveredFile, Deliveries
from feed_assets.storage.listing import moment
from feed_assets.storage.pool import StorePool
from feed_assets.timing.dates import render_datetime

_HIDDEN = (".", "_")
_CLOCKS_DIFFER = timedelta(minutes=5)
"""So far the clock of a storage may be ahead of this machine's."""
_UNUSABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")  # "line\nbreak.json", and a byte that is no UTF-8
_LONGEST_NAME = 255 - len(".feed-assets.01234567.")


class FileStatus(StrEnum):
    """What became of a file in an inbox. One that is TAKEN is in an instance; KNOWN is one that was put there once more
    and is removed, or one that was taken and left. All others stay: one that is READY is taken next, one that is
    SETTLING was written a short time ago, one that is CHANGING was written while it was read, and one that is AHEAD has
    a time in the future.
    """

    READY = "READY"
    TAKEN = "TAKEN"
    KNOWN = "KNOWN"
    SETTLING = "SETTLING"
    CHANGING = "CHANGING"
    AHEAD = "AHEAD"
    EMPTY = "EMPTY"
    DUPLICATE = "DUPLICATE"
    TOO_LARGE = "TOO_LARGE"
    STUCK = "STUCK"


class InboxFile(NamedTuple):
    """A file of an inbox as it was found. `version` changes when it is written; `obstacle` is why it is not taken."""

    name: str
    size: int
    modified_at: datetime | None
    version: str
    obstacle: str | None = None


class InboxListing(NamedTuple):
    """The files of an inbox, and what its cursor had before they were listed; None if there was none."""

    kept: str | None
    files: Sequence[InboxFile]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenFile:
    """A file of an inbox, and what became of it. `nominal_time` is that of the instance that has its content."""

    name: str
    bytes: int
    status: FileStatus
    nominal_time: NominalTime | None = None
    reason: str | None = None


class LeftFile(NamedTuple):
    """A file that stays in the inbox while it has this version, and why."""

    version: str
    status: FileStatus
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Files that are to be taken into one instance, by the look that has this token; its staging has it, too.

    `overtaken` are the tokens of looks before, whose stagings may still be there.
    """

    nominal_time: datetime
    files: tuple[DeliveredFile, ...]
    token: str = field(default_factory=lambda: f"inbox-{uuid4().hex[:12]}")
    overtaken: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxState:
    """What is remembered of an inbox: when the next look is due, what is being taken, what was left, by name, and
    whether the last look has found nothing.
    """

    location: str
    next_at: datetime | None = None
    claim: Claim | None = None
    was_blank: bool = False
    left: Mapping[str, LeftFile] = field(default_factory=lambda: EMPTY)

    @classmethod
    def parse(cls, record: FeedRecord, text: str | None) -> "InboxState":
        """Return the state that a cursor has; of another inbox, only what is being taken."""
        kept: dict[str, Any] = {} if text is None else json.loads(text)
        claim = kept.get("claim")
        state = cls(location=_location(record), claim=None if claim is None else _parse_claim(claim))
        if kept.get("location") != state.location:
            return state
        left = {name: LeftFile(version, FileStatus(status), why) for name, version, status, why in kept["left"]}
        next_at, was_blank = datetime.fromisoformat(kept["next_at"]), bool(kept.get("blank"))
        return replace(state, next_at=next_at, left=left, was_blank=was_blank)

    def render(self) -> str:
        """Return the value of the cursor; no other look writes the same."""
        claim = self.claim and {
            "time": self.claim.nominal_time.isoformat(),
            "files": self.claim.files,
            "token": self.claim.token,
            "overtaken": self.claim.overtaken,
        }
        left = [[name, *file] for name, file in sorted(self.left.items())]
        next_at = self.next_at and self.next_at.isoformat()
        said = {"location": self.location, "next_at": next_at, "claim": claim, "left": left, "blank": self.was_blank}
        return json.dumps({**said, "look": uuid4().hex[:12]})


def cursor_of(record: FeedRecord) -> str:
    """Return the name of the cursor that has the state of an inbox."""
    return f"inbox/{record.cluster}/{record.feed}"


def inbox_of(record: FeedRecord) -> InboxRecord:
    """Return the inbox of a feed that has one."""
    assert record.inbox is not None
    return record.inbox


def find_files(stores: StorePool, record: FeedRecord) -> list[InboxFile]:
    """Return the files in an inbox whose names fit, the oldest first.

    Raises:
        StorageError: the storage cannot be listed.
    """
    pattern, found = inbox_of(record).pattern, list[InboxFile]()
    for entry in deliveries_of(stores, record).find():
        name = entry.path
        if not name.startswith(_HIDDEN) and name != record.flag and fnmatchcase(name, pattern):
            modified_at = None if entry.modified is None else moment(entry.modified)
            shown = name.encode(errors="surrogateescape").decode(errors="backslashreplace")
            found.append(InboxFile(shown, entry.size, modified_at, entry.version, _find_obstacle(name)))
    return sorted(found, key=lambda file: (file.modified_at is None, file.modified_at, file.name))


def list_inbox(context: LifecycleContext, record: FeedRecord) -> InboxListing:
    """Return the state of an inbox, and then its files.

    Raises:
        StorageError: the storage cannot be listed.
    """
    with context.database.read() as connection:
        kept = Cursors(connection).get(cursor_of(record))
    return InboxListing(kept, find_files(context.stores, record))


def _find_obstacle(name: str) -> str | None:
    """Return what is wrong with a name that no record, or no file of an instance, can have."""
    if _UNUSABLE.search(name):
        return "its name is not UTF-8, or has control characters; give it another one"
    if name.startswith("/"):
        return "its key has an empty part (`//`); give it another one"
    if (size := len(name.encode())) > _LONGEST_NAME:
        return f"its name has {size:,} bytes, but a file here has at most {_LONGEST_NAME}; give it a shorter one"
    return None


def deliveries_of(stores: StorePool, record: FeedRecord) -> Deliveries:
    """Return the directory of an inbox."""
    inbox = inbox_of(record)
    return stores.get(inbox.store).deliveries(inbox.directory)


def find_ahead(connection: Connection, records: Iterable[FeedRecord]) -> list[tuple[FeedRecord, str]]:
    """Return the feeds with files in their inbox that wait for a time in the future, with a sentence each."""
    known = {cursor_of(record): record for record in records if record.inbox is not None}
    kept = Cursors(connection).get_many(known) if known else {}
    states = [(known[cursor], InboxState.parse(known[cursor], text)) for cursor, text in sorted(kept.items())]
    found = []
    for record, state in states:
        ahead = [f"{name}: {file.reason}" for name, file in state.left.items() if file.status is FileStatus.AHEAD]
        if ahead:
            where = f"in the inbox of feed {record.feed} on {record.cluster} waits"
            found.append((record, f"{where} {render_some(tuple(ahead), 3)}"))
    return found


def path_in(record: FeedRecord, name: str) -> str:
    """Return the path of a file in the inbox, below the root of its store."""
    return f"{inbox_of(record).directory}/{name}"


def judge_file(
    record: FeedRecord, file: InboxFile, left: LeftFile | None, real_now: datetime, largest: int | None
) -> tuple[FileStatus, str | None]:
    """Decide the status of a file, and the reason if it is not READY. `left` is its record; `largest` is in bytes."""
    settle = inbox_of(record).settle
    if file.obstacle is not None:
        return FileStatus.STUCK, file.obstacle
    if left is not None and left.version == file.version and left.status is not FileStatus.AHEAD:
        return left.status, left.reason
    if file.modified_at is not None and file.modified_at > real_now - settle.as_duration():
        written = render_datetime(file.modified_at)
        if file.modified_at > real_now + _CLOCKS_DIFFER:
            return FileStatus.AHEAD, f"its time is {written}, and it waits until then; give it the present one (touch)"
        return FileStatus.SETTLING, f"it was written at {written}, and nobody may write it for {settle}"
    if not file.size:
        return FileStatus.EMPTY, "it has no content"
    if largest is not None and file.size > largest:
        return FileStatus.TOO_LARGE, f"it has {file.size:,} bytes, more than the {largest:,} of a file that ticks take"
    return FileStatus.READY, None


def _location(record: FeedRecord) -> str:
    inbox = inbox_of(record)
    return f"{inbox.store.url} {inbox.directory} {inbox.pattern}"


def _parse_claim(kept: Mapping[str, Any]) -> Claim:
    files = tuple(DeliveredFile(*file) for file in kept["files"])
    return Claim(
        nominal_time=datetime.fromisoformat(kept["time"]),
        files=files,
        token=kept["token"],
        overtaken=tuple(kept["overtaken"]),
    )
