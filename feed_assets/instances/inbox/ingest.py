"""Look into the inboxes of feeds, when it is due or at once, and take files that have settled there into one new
instance of the feed.

A file is taken once, by its content. What is taken is recorded before anything is moved, so that after an interruption
the next look goes on with the same files and the same instance. A file leaves the inbox last, when the instance is an
event.

An inbox may leave its files. What a look lists there is then recorded before it is read, so that each version is taken
once, or reported when a later look does not find it any more.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import BinaryIO

from sqlalchemy import Connection

from feed_assets.command_lines import command_line
from feed_assets.context.bulkheads import TickStep
from feed_assets.context.errors import NotAskedError
from feed_assets.context.operation import LifecycleContext
from feed_assets.context.tick import Tick, ask_stores, find_silent, tick_step
from feed_assets.entities.maps import EMPTY
from feed_assets.errors import render_some
from feed_assets.instances.arrival.polling import ArrivalResult
from feed_assets.instances.arrival.recording import find_free_time
from feed_assets.instances.inbox.inbox_files import (
    Claim,
    FileStatus,
    InboxFile,
    InboxListing,
    InboxState,
    LeftFile,
    SeenFile,
    cursor_of,
    deliveries_of,
    find_files,
    inbox_of,
    judge_file,
    path_in,
)
from feed_assets.instances.inbox.store import ListedVersion, ListedVersions, TakenFile, TakenFiles, VersionStatus
from feed_assets.instances.inbox.taken import KEY, key_of, record_taken, tell_held, tell_taken
from feed_assets.log.cursors import Cursors
from feed_assets.log.events import EventLog
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.records import FeedInstanceStatus, FeedKey
from feed_assets.masking import get_logger
from feed_assets.plan.records import FeedRecord
from feed_assets.sql.database import lock_log
from feed_assets.storage.deliveries import DeliveredFile, Deliveries
from feed_assets.storage.errors import InstanceChangingError, StorageAwayError, StorageError
from feed_assets.storage.manifests import read_entry
from feed_assets.storage.pool import StorePool
from feed_assets.storage.records import Availability, Manifest, ManifestEntry, StagingPlace

TAKEN = VersionStatus.TAKEN
MOST_FILES = 1_000
"""The number of files that are taken into one instance."""

_EVICTED = FeedInstanceStatus.EVICTED
_STANDING = (FeedInstanceStatus.AVAILABLE, FeedInstanceStatus.PARTIAL)  # without a digest, it has begun to come
_REMEMBERED = (FileStatus.DUPLICATE, FileStatus.STUCK, FileStatus.EMPTY, FileStatus.TOO_LARGE, FileStatus.AHEAD)
_logger = get_logger(__name__)


class _OvertakenError(Exception):
    """Another program has looked into the inbox meanwhile."""


def take_files(
    context: LifecycleContext,
    record: FeedRecord,
    listing: InboxListing,
    *,
    largest: int | None = None,
    is_asked: bool = False,
) -> tuple[SeenFile, ...]:
    """Take files that were listed in an inbox; return what became of each of them.

    What an earlier call has begun is finished first. `largest` limits the bytes of a file, and of what is taken at
    once. A file that stays is not read again until it is written, unless somebody `is_asked` for it.

    Raises:
        StorageError: a storage refused; the next call goes on.
    """
    inbox = _Inbox(context, record, listing.kept, is_asked=is_asked)
    with suppress(_OvertakenError):
        try:
            inbox.take(listing.files, largest)
        except (OSError, StorageError):
            inbox.require_claim()  # another look has removed what this one has staged
            raise
    return tuple(inbox.seen.values())


class _Inbox:
    """One inbox during one look; `seen` has what became of each file."""

    def __init__(self, context: LifecycleContext, record: FeedRecord, kept: str | None, *, is_asked: bool) -> None:
        stores = context.stores
        self.seen: dict[str, SeenFile] = {}
        self._database = context.database
        self._record = record
        self._as_of = context.as_of
        self._real_now = context.real_now
        self._is_asked = is_asked
        self._leaves = inbox_of(record).leaves
        self._stores = stores
        self._source = stores.get(inbox_of(record).store)
        self._deliveries = deliveries_of(stores, record)
        self._target = stores.get(record.store)
        self._kept = kept
        self._state = InboxState.parse(record, kept)
        self._taken: Mapping[str, ListedVersion] = EMPTY
        self._ready: list[InboxFile] = []
        self._has_more = False

    def take(self, found: Sequence[InboxFile], largest: int | None) -> None:
        """Finish what was claimed before, then claim what is there, and take it."""
        if not self._leaves:
            self._deliveries.put_back()
        if self._state.claim is not None:
            self._finish(self._overtake(self._state.claim))
        there = [file for file in found if self._leaves or file.name not in self.seen]
        with self._database.read() as connection:
            listed = ListedVersions(connection, *self._record.key).known()
        self._taken = {each.name: each for each in listed if each.status is TAKEN}
        gone = self._find_absent({file.name: file.version for file in found})
        self._taken = {name: each for name, each in self._taken.items() if name not in gone}
        self._state = replace(self._state, was_blank=not found)
        chosen = list(self._choose(there, largest))
        self._note(found, [each for each in listed if each.status is not TAKEN], gone)
        checksums = self._stores.each(self._read, chosen)
        contents = [(file, each) for file, each in zip(chosen, checksums, strict=True) if each is not None]
        known = self._claim(contents, {file.name: file for file in found}, self._find_gone(contents))
        again = [] if self._leaves else [*known, *self._find_left(found)]
        if again and (stuck := self._remove(again)):
            self._store(replace(self._state, left={**self._state.left, **stuck}))
        if self._state.claim is not None:
            self._finish(self._state.claim)

    def _choose(self, found: Sequence[InboxFile], largest: int | None) -> Iterator[InboxFile]:
        """Yield the files to be read, up to the limits of one instance."""
        files, size, held = 0, 0, dict[int, str]()
        if self._is_asked:
            with self._database.read() as connection:
                held = tell_held(connection, self._record, {each.event for each in self._taken.values()})
        for file in found:
            if (taken := self._taken.get(file.name)) is not None and taken.version == file.version:
                if self._is_asked and file.name not in self.seen:
                    self._see(file, FileStatus.KNOWN, tell_taken(taken.event, held))
                continue
            left = None if self._is_asked else self._state.left.get(file.name)
            status, reason = judge_file(self._record, file, left, self._real_now, largest)
            if status is not FileStatus.READY:
                self._see(file, status, reason)
                continue
            self._ready.append(file)
            files, size = files + 1, size + file.size
            if files > MOST_FILES or (largest is not None and size > largest):
                self._has_more = True
                self._see(file, FileStatus.READY, "the next look takes it")
                continue
            yield file

    def _find_absent(self, versions: Mapping[str, str]) -> frozenset[str]:
        """Return the files that were taken and have left the listing, of which there are `versions` by name.

        A listing with nothing may be that of a mount which is away: which files have left it, the next one with some
        tells by their versions.
        """
        if not versions and self._state.next_at is not None:
            return frozenset()
        is_again = self._state.was_blank
        return frozenset(
            name
            for name, each in self._taken.items()
            if name not in versions or (is_again and each.version not in ("", versions[name]))
        )

    def _note(self, found: Sequence[InboxFile], waiting: Sequence[ListedVersion], gone: Collection[str]) -> None:
        """Record the versions that are listed, and those that went before they were read; forget files that are gone.

        If files are not to stay, only what was listed before has still to be told.
        """
        versions = {file.name: file.version for file in found}
        missed = [
            replace(each, status=VersionStatus.OVERWRITTEN if each.name in versions else VersionStatus.REMOVED)
            for each in waiting
            if versions.get(each.name) != each.version
        ]
        known = {(each.name, each.version) for each in waiting}
        new = [
            ListedVersion(name=each.name, version=each.version, size=each.size, status=VersionStatus.WAITING)
            for each in self._ready
            if self._leaves and (each.name, each.version) not in known
        ]
        if missed or gone or new or (waiting and not self._leaves):
            with self._database.begin() as connection:
                self._lock(connection)
                last, listed = EventLog(connection).last_seq(), ListedVersions(connection, *self._record.key)
                listed.put([*(replace(each, event=last) for each in missed), *new])
                listed.forget(TAKEN, gone)
                if not self._leaves:
                    listed.forget(VersionStatus.WAITING, [each.name for each in waiting])
                self._put(connection, self._state)
        if missed:
            where = f"{self._source.root_url}/{inbox_of(self._record).directory}"
            named = render_some(tuple(f"{each.name} ({each.status.lower()})" for each in missed), 3)
            again = command_line("feed", "files", self._record.feed, cluster=self._record.cluster)
            text = "feed %s on %s: what a look had listed in %s went before it was read: %s. `%s` tells of all."
            _logger.warning(text, *self._record.key, where, named, again)

    def _find_left(self, found: Sequence[InboxFile]) -> list[DeliveredFile]:
        """Return files that were taken while the inbox left them; one whose instance is gone stays."""
        versions = {file.name: file for file in found}
        left = {
            (each.event, each.name): file
            for each in self._taken.values()
            if (file := versions.get(each.name)) is not None and file.version == each.version
        }
        if not left:
            return []
        standing = self._find_standing({event for event, _ in left})
        with self._database.read() as connection:
            taken = {(each.event, each.name): each.checksum for each in TakenFiles(connection).of_events(standing)}
        for (event, _), file in left.items():
            why = "" if event in standing else "; it stays, because the instance is not there any more"
            self._see(file, FileStatus.KNOWN, f"event {event} has taken it{why}")
        return [
            DeliveredFile(file.name, file.version, file.size, taken[key]) for key, file in left.items() if key in taken
        ]

    def _read(self, file: InboxFile) -> str | None:
        """Return the checksum of a file; None if it cannot be read, or has another size by now."""
        try:
            entry = self._entry(file)
        except StorageAwayError:
            raise
        except StorageError as exc:
            self._see(file, FileStatus.STUCK, exc.reason)
            return None
        if entry is not None:
            return entry.checksum
        self._see(file, FileStatus.CHANGING, "it was changed while it was read")
        return None

    def _entry(self, file: InboxFile | DeliveredFile, copy: BinaryIO | None = None) -> ManifestEntry | None:
        """Read a file of the inbox; None if it is gone, or has another version."""
        return _read_version(self._deliveries, file.name, file.version, copy)

    def _find_gone(self, contents: Sequence[tuple[InboxFile, str]]) -> set[TakenFile]:
        """Return the files with some contents that were taken, and that do not stand in their instance any more.

        Of an instance with other content than was brought, what is left of that is read.
        """
        checksums = {checksum for _, checksum in contents}
        with self._database.read() as connection:
            earlier = TakenFiles(connection).of_contents(*self._record.key, checksums)
        if not earlier:
            return set()
        standing = self._find_standing({file.event for file in earlier})
        with self._database.read() as connection:
            events = EventLog(connection).of_numbers({file.event for file in earlier} - standing)
            rows = FeedInstances(connection).get_many({event.key for event in events.values()})
        gone = {file for file in earlier if file.event in events}
        for seq, event in events.items():
            row = rows.get(event.key)
            if row is not None and row.status in _STANDING:
                path = str(event.payload.get("path") or self._record.path(event.nominal_time))
                gone -= self._find_kept(path, {file.name: file for file in gone if file.event == seq})
        return gone

    def _find_kept(self, path: str, files: Mapping[str, TakenFile]) -> set[TakenFile]:
        """Return the files, by name, that still stand in an instance as they were taken."""
        place = self._target.deliveries(path)
        there = [entry for entry in place.find() if entry.path in files and entry.size == files[entry.path].size]
        found = [_read_version(place, entry.path, entry.version) for entry in there]
        return {files[each.path] for each in found if each is not None and each.checksum == files[each.path].checksum}

    def _find_standing(self, events: Collection[int]) -> set[int]:
        """Return the events whose instance is recorded with what they have brought, and is on storage; one that is held
        back until its rows are judged counts, too.

        Where files are left, what was evicted counts, too: it has been used.
        """
        with self._database.read() as connection:
            found = EventLog(connection).of_numbers(events).values()
            keys = {FeedKey(*self._record.key, event.nominal_time): event for event in found}
            rows = FeedInstances(connection).get_many(keys)
        digests = {key: row.manifest_digest for key, row in rows.items() if row.status in _STANDING}
        kept = [event for key, event in keys.items() if digests.get(key) == event.manifest_digest]
        paths = [str(event.payload.get("path") or self._record.path(event.nominal_time)) for event in kept]
        looks = self._target.look(paths, self._record.flag)
        evicted = {event.seq for key, event in keys.items() if key in rows and rows[key].status is _EVICTED}
        return (evicted if self._leaves else set()) | {
            event.seq
            for event, look in zip(kept, looks, strict=True)
            if look.availability is Availability.AVAILABLE and (look.files, look.bytes) == (event.files, event.bytes)
        }

    def _claim(
        self, contents: Sequence[tuple[InboxFile, str]], found: Mapping[str, InboxFile], gone: Collection[TakenFile]
    ) -> Collection[DeliveredFile]:
        """Record what is to be taken, and what stays; return files that were taken before and came once more.

        What is `gone` from where it was taken to is taken as if it were new.
        """
        with self._database.begin() as connection:
            self._lock(connection)
            claimed, known = self._sort(connection, contents, gone)
            claim = None
            if claimed:
                time = find_free_time(connection, self._record, self._as_of)
                claim = Claim(nominal_time=time, files=tuple(claimed))
            if self._leaves:
                listed = ListedVersions(connection, *self._record.key)
                refused = [name for name, seen in self.seen.items() if seen.status is FileStatus.DUPLICATE]
                listed.forget(VersionStatus.WAITING, refused)
                again = [
                    ListedVersion(name=each.name, version=each.version, size=each.size, status=TAKEN, event=event)
                    for each, event in known.items()
                ]
                listed.take(again)
            self._put(connection, replace(self._state, claim=claim, left=self._remember(found)))
        return known.keys()

    def _sort(
        self, connection: Connection, contents: Sequence[tuple[InboxFile, str]], gone: Collection[TakenFile]
    ) -> tuple[list[DeliveredFile], dict[DeliveredFile, int]]:
        """Return the files that are to be taken, and those that an event has taken before under the same name."""
        claimed, known = list[DeliveredFile](), dict[DeliveredFile, int]()
        taken = TakenFiles(connection).of_contents(*self._record.key, {checksum for _, checksum in contents})
        earlier = [file for file in taken if file not in gone and (not self._leaves or file.name in self._taken)]
        events = EventLog(connection).of_numbers({each.event for each in earlier})
        held = tell_held(connection, self._record, events)
        present = (each for each in earlier if not self._leaves or self._taken[each.name].event == each.event)
        by = {(each.checksum, each.name): each.event for each in present}  # where files are left, the last of its name
        first = {each.checksum: each.name for each in reversed(earlier)}
        for file, checksum in contents:
            each = DeliveredFile(file.name, file.version, file.size, checksum)
            name = first.get(checksum)
            if (event := by.get((checksum, file.name))) is not None:
                known[each] = event
                told = "; ".join(["it was taken before", *([held[event]] if event in held else [])])
                self._see(file, FileStatus.KNOWN, told, events[event].nominal_time)
            elif name not in (None, file.name) and not inbox_of(self._record).takes_duplicates:
                reason = f"its content is that of {name!r}"
                first_event = by.get((checksum, name or ""))
                time = None if first_event is None else events[first_event].nominal_time
                self._see(file, FileStatus.DUPLICATE, reason, time)
            else:
                claimed.append(each)
                first.setdefault(checksum, file.name)
        return claimed, known

    def _remember(self, found: Mapping[str, InboxFile]) -> dict[str, LeftFile]:
        """Return what is remembered of files that stay; say once of each why it does."""
        left = {}
        for name, seen in self.seen.items():
            if seen.status in _REMEMBERED and name in found:
                left[name] = LeftFile(found[name].version, seen.status, seen.reason or "")
                if self._state.left.get(name) != left[name]:
                    self._warn(name, left[name].reason)
        return left

    def _warn(self, name: str, reason: str) -> None:
        """Say why a file stays, unless somebody sees it anyway."""
        if self._is_asked:
            return
        url = f"{self._source.root_url}/{path_in(self._record, name)}"
        again = command_line("feed", "take", self._record.feed, cluster=self._record.cluster)
        text = "feed %s on %s: %s stays in the inbox: %s. After you have changed that, `%s` tries again."
        _logger.warning(text, *self._record.key, url, reason, again)

    def _overtake(self, claim: Claim) -> Claim:
        """Keep other looks from a claim; then end what they have begun to publish, or remove their stagings."""
        mine = Claim(nominal_time=claim.nominal_time, files=claim.files, overtaken=(*claim.overtaken, claim.token))
        self._store(replace(self._state, claim=mine))
        path = self._record.path(claim.nominal_time)
        for token in mine.overtaken:
            self._target.discard(StagingPlace(path=path, token=token, url="", local_path=Path()))
        mine = replace(mine, overtaken=())
        self._store(replace(self._state, claim=mine))
        return mine

    def _finish(self, claim: Claim) -> None:
        """Take what was claimed, from wherever an earlier look has stopped."""
        key = key_of(self._record, claim.nominal_time)
        with self._database.read() as connection:
            event = EventLog(connection).find_key(key)
        if event is not None:
            events = self._find_standing({event.seq})
        else:
            path = self._record.path(claim.nominal_time)
            manifest = self._target.published_manifest(path)
            if manifest is None or manifest.extra.get(KEY) != key:
                manifest = self._publish(claim, path, key)
            events = set() if manifest is None else {self._record_arrival(claim, manifest)}
        with self._database.read() as connection:
            names = {each.name: each.event for each in TakenFiles(connection).of_events(events)}
            held = tell_held(connection, self._record, events)
        files = [file for file in claim.files if file.name in names]
        for file in files:
            self.seen[file.name] = SeenFile(
                name=file.name,
                bytes=file.size,
                status=FileStatus.TAKEN,
                nominal_time=claim.nominal_time,
                reason=held.get(names[file.name]),
            )
        stuck = {} if self._leaves else self._remove(files)
        self._store(replace(self._state, claim=None, left={**self._state.left, **stuck}))

    def _publish(self, claim: Claim, path: str, key: str) -> Manifest | None:
        """Publish the claimed files that are still there; None if there are none."""
        staging = self._target.stage(path, claim.token)
        with ExitStack() as failed:
            failed.callback(self._discard, staging)
            staging.local_path.mkdir(parents=True, exist_ok=True)
            if not any(self._stores.each(partial(self._copy, staging.local_path), claim.files)):
                return None
            flag, extra = self._record.flag, {KEY: key}
            manifest = self._target.publish(staging, flag=flag, guard=self.require_claim, extra=extra)
            failed.pop_all()
        return manifest

    def _copy(self, folder: Path, file: DeliveredFile) -> bool:
        """Copy a file into a folder if it is still the one that was read; return whether it is."""
        to = folder / file.name
        with to.open("wb") as copy:
            entry = self._entry(file, copy)
        is_same = entry is not None and entry.checksum == file.checksum
        if not is_same:
            to.unlink()
        return is_same

    def _discard(self, staging: StagingPlace) -> None:
        """Remove a staging that is of no use; one that a storage keeps is swept later."""
        with suppress(StorageError):
            self._target.discard(staging)

    def _record_arrival(self, claim: Claim, manifest: Manifest) -> int:
        time, versions = claim.nominal_time, {file.name: file.version for file in claim.files}
        looks = self._target.look([self._record.path(time)], self._record.flag) if self._record.is_judged else [None]
        with self._database.begin() as connection:
            self._lock(connection)
            return record_taken(connection, self._record, time, manifest, self._as_of, looks[0], versions)

    def _remove(self, files: Sequence[DeliveredFile]) -> dict[str, LeftFile]:
        """Remove files from the inbox; return those that cannot be removed. One that was written since is another."""
        versions = {file.name: file.version for file in files}
        stuck = {}
        for name, why in self._deliveries.remove(files).items() if files else ():
            reason = f"it was taken, but it cannot be removed: {why}"
            stuck[name] = LeftFile(versions[name], FileStatus.STUCK, reason)
            self.seen[name] = replace(self.seen[name], status=FileStatus.STUCK, reason=reason)
            self._warn(name, reason)
        return stuck

    def require_claim(self) -> None:
        """Raise `_OvertakenError` if another look has changed the inbox since this one."""
        with self._database.read() as connection:
            self._require_same(connection)

    def _lock(self, connection: Connection) -> None:
        """Begin a change of the inbox. Raises `_OvertakenError` if another program has changed it."""
        lock_log(connection)
        self._require_same(connection)

    def _require_same(self, connection: Connection) -> None:
        if Cursors(connection).get(cursor_of(self._record)) != self._kept:
            raise _OvertakenError

    def _store(self, state: InboxState) -> None:
        with self._database.begin() as connection:
            self._lock(connection)
            self._put(connection, state)

    def _put(self, connection: Connection, state: InboxState) -> None:
        """Write the state, and when the next look is due."""
        pause = timedelta() if self._has_more else inbox_of(self._record).settle.as_duration()
        state = replace(state, next_at=self._as_of + pause)
        self._state, self._kept = state, state.render()
        Cursors(connection).put(cursor_of(self._record), self._kept)

    def _see(self, file: InboxFile, status: FileStatus, reason: str | None, time: datetime | None = None) -> None:
        self.seen[file.name] = SeenFile(
            name=file.name, bytes=file.size, status=status, nominal_time=time, reason=reason
        )


def _read_version(place: Deliveries, name: str, version: str, copy: BinaryIO | None = None) -> ManifestEntry | None:
    """Read a file; None if it is gone, or has another version."""
    try:
        return read_entry(name, place.chunks(name, version), copy)
    except InstanceChangingError:
        return None


LARGEST_IN_TICKS = 1 << 30
"""The bytes of the largest file that a tick takes, and of all files of one instance that it makes."""


@tick_step(TickStep.INBOXES, otherwise=ArrivalResult())
def apply_inboxes(tick: Tick) -> ArrivalResult:
    """Take what has settled in the inboxes of a cluster; a look into one is due after each `settle`.

    An inbox is left alone while its own storage, or that of the instances, does not answer, and all are while the tick
    is held.
    """
    if tick.is_held:
        return ArrivalResult()
    due = _find_due(tick)
    answers = ask_stores(due, lambda item: inbox_of(item[0]).store, partial(_list, tick.stores), tick.bulkheads)
    there = [record for (record, _), found in zip(due, answers, strict=True) if not isinstance(found, Exception)]
    silent = find_silent(tick.stores, [record.store for record in there], tick.bulkheads)
    step, results = TickStep.INBOXES, list[ArrivalResult]()
    for (record, _), found in zip(due, answers, strict=True):
        if isinstance(found, NotAskedError) or record.store in silent:
            continue  # the failure of the storage tells it
        if isinstance(found, Exception):
            tick.bulkheads.fail(step, record.feed, found)
            continue
        if tick.budget.is_spent:
            return ArrivalResult.sum_of(*results, ArrivalResult(is_complete=False))
        known = (tick, record, found)
        seen = tick.bulkheads.run_unit(step, record.feed, (), take_files, *known, largest=LARGEST_IN_TICKS)
        arrived = {each.nominal_time for each in seen if each.status is FileStatus.TAKEN}
        results.append(ArrivalResult(polled=len(found.files), arrived=len(arrived)))
    return ArrivalResult.sum_of(*results)


def _list(stores: StorePool, item: tuple[FeedRecord, str | None]) -> InboxListing:
    return InboxListing(item[1], find_files(stores, item[0]))


def _find_due(tick: Tick) -> list[tuple[FeedRecord, str | None]]:
    """Return the feeds into whose inboxes a look is due, with what their cursors have."""
    records = {
        cursor_of(record): record for record in tick.plan.with_inbox_on(tick.cluster) if takes_at(record, tick.as_of)
    }
    if not records:
        return []
    with tick.database.read() as connection:
        kept = Cursors(connection).get_many(records)
    return [
        (record, kept.get(cursor))
        for cursor, record in records.items()
        if not tick.bulkheads.is_put_off(TickStep.INBOXES, record.feed)
        and _is_due(record, kept.get(cursor), tick.as_of)
    ]


def takes_at(record: FeedRecord, moment: datetime) -> bool:
    """Return whether the feed has instances at a moment."""
    index = record.sequence.index_at_or_before(moment)
    return index >= 0 and (record.sequence.size is None or index < record.sequence.size)


def _is_due(record: FeedRecord, kept: str | None, as_of: datetime) -> bool:
    """Return whether the next look is due, also after the clock was set back."""
    state = InboxState.parse(record, kept)
    pause = inbox_of(record).settle.as_duration()
    return state.next_at is None or not as_of < state.next_at <= as_of + pause
