"""Scan the contents of external feed instances that are checked for late data, and record them."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from feed_assets.clock import Stopwatch
from feed_assets.context.bulkheads import TIME_OUT_SECONDS, Bulkheads, TickStep
from feed_assets.context.errors import NotAskedError
from feed_assets.context.operation import LifecycleContext
from feed_assets.context.tick import find_silent
from feed_assets.errors import describe_error
from feed_assets.instances.errors import DataRemovedError
from feed_assets.instances.late.lateness import is_young
from feed_assets.instances.late.quality_checks import hold_back
from feed_assets.log.events import EventLog
from feed_assets.log.instances.arrival_polls import ArrivalPolls
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.feed_places import FeedPlaces
from feed_assets.log.instances.manifests import Manifests, RecordedManifest
from feed_assets.log.records import ArrivalPoll, FeedEventKind, FeedInstance, FeedInstanceStatus, FeedKey, NewFeedEvent
from feed_assets.masking import get_logger
from feed_assets.plan.copy_records import StoreAddress, endpoint_of
from feed_assets.plan.records import FeedRecord
from feed_assets.storage.errors import InstanceChangingError
from feed_assets.storage.pool import StorePool
from feed_assets.storage.records import Availability, Scan

ORIGIN, LOOK = "late data", "look"

_logger = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """The scanned content of an instance, with the earlier recorded manifest.

    `scan` is None if it failed: the instance was being written, or there is an `error` of storage.
    """

    record: FeedRecord
    nominal_time: datetime
    scan: Scan | None
    earlier: RecordedManifest | None
    error: Exception | None = None

    @property
    def key(self) -> FeedKey:
        return FeedKey(self.record.feed, self.record.cluster, self.nominal_time)

    @property
    def is_available(self) -> bool:
        """Whether there is a complete instance to read."""
        return self.scan is not None and self.scan.availability is Availability.AVAILABLE

    @property
    def is_less(self) -> bool:
        """Whether files have gone, and nothing has come."""
        if self.earlier is None or self.scan is None or not self.is_available:
            return False
        before, now = (
            Counter((each.path.rpartition("/")[0], each.size, each.checksum) for each in files)
            for files in (self.earlier.files, self.scan.files)
        )
        return now < before


def scan_contents(
    context: LifecycleContext,
    candidates: Mapping[FeedKey, FeedRecord],
    bulkheads: Bulkheads | None = None,
    *,
    follows_declared: bool = False,
) -> dict[FeedKey, Content]:
    """Scan instances, several at a time, where they are by the record; read only files that the record does not cover.
    A current instance that `follows_declared` places is where its feed has its data now, or else where it was.

    With `bulkheads`, a storage that does not answer or fails by a time-out is left alone, and what is less than before
    is held: only a run that a person asks for takes it.
    """
    if not candidates:
        return {}
    stores, real_now = context.stores, context.real_now
    with context.database.read() as connection:
        known, rows = Manifests(connection).get_many(list(candidates)), FeedInstances(connection).get_many(candidates)
        places = FeedPlaces(connection)
        former = {key: places.at_place(record, rows.get(key)) for key, record in candidates.items()}
    following = {key for key, record in candidates.items() if record.is_current and follows_declared}
    there = {key: record if key in following else former[key] for key, record in candidates.items()}
    second = {key: former[key] if key in following else record for key, record in candidates.items()}
    addresses = [record.store for record in there.values()]
    silent = {} if bulkheads is None else find_silent(stores, addresses, bulkheads)

    def scan(item: tuple[FeedKey, FeedRecord]) -> Content:
        key, record = item
        earlier = known.get(key)
        path = record.path(key.nominal_time)
        found: Scan | None = None
        error: Exception | None = None
        endpoint, watch = endpoint_of(record.store), Stopwatch()
        try:
            if record.store in silent:
                raise silent[record.store]
            if bulkheads is not None and bulkheads.is_put_off(TickStep.STORAGE, endpoint):
                raise NotAskedError(endpoint=endpoint, reason=bulkheads.reason(TickStep.STORAGE, endpoint))
            found = stores.get(record.store).scan(path, record.flag, to_scan(earlier), real_now)
            if bulkheads is not None and _is_young(record, path, found, earlier, stores, real_now):
                found = None
        except InstanceChangingError:
            pass
        except Exception as exc:
            _logger.warning("the content of %s could not be read: %s", path, describe_error(exc), exc_info=True)
            error = exc
            if bulkheads is not None and watch.seconds > TIME_OUT_SECONDS:
                bulkheads.fail(TickStep.STORAGE, endpoint, exc, watch.seconds)
        content = Content(record=record, nominal_time=key.nominal_time, scan=found, earlier=earlier, error=error)
        if bulkheads is not None and found is not None and content.is_less and not record.is_current:
            removed = DataRemovedError(url=stores.url(record.store, path), files=len(found.files))
            return replace(content, scan=None, error=removed)
        return content

    found = dict(zip(there, stores.each(scan, list(there.items())), strict=True))
    elsewhere = {  # somebody may have moved it to where its feed has its data now, or not yet
        key: second[key]
        for key, content in found.items()
        if content.scan is not None and not content.is_available and _location(content.record) != _location(second[key])
    }
    return found | dict(zip(elsewhere, stores.each(scan, list(elsewhere.items())), strict=True))


def _is_young(
    record: FeedRecord, path: str, scan: Scan, earlier: RecordedManifest | None, stores: StorePool, real_now: datetime
) -> bool:
    """Return whether other content of a current instance without a flag was written just now: it may not be whole."""
    if not record.is_current or record.flag is not None or (earlier is not None and earlier.digest == scan.digest):
        return False
    (look,) = stores.get(record.store).look([path], None)
    return is_young(look.modified_at, real_now)


def _location(record: FeedRecord) -> tuple[StoreAddress, str]:
    return record.store, record.template.text


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedContents:
    """The digests of the available instances, and the keys of those that have changed."""

    digests: Mapping[FeedKey, str]
    changed: frozenset[FeedKey]


def record_contents(
    connection: Connection,
    contents: Collection[Content],
    as_of: datetime,
    *,
    takes_less: bool = True,
    say: Callable[[NewFeedEvent], NewFeedEvent] = lambda event: event,
) -> RecordedContents:
    """Record the contents of instances.

    An instance whose content differs from the last scan is logged as CHANGED and its row is updated; one whose rows are
    judged is held back before, and who runs again for it waits. If a newer scan was recorded meanwhile, that one
    counts. Unless one `takes_less`, less than at the last scan is not recorded, so that it stays held for others. Of a
    current instance whatever stands there counts. `say` completes the events.
    """
    there = {content.key: content for content in contents if content.is_available}
    manifests = Manifests(connection)
    standing = manifests.get_digests(there)
    digests: dict[FeedKey, str] = {}
    new: list[RecordedManifest] = []
    changed: list[Content] = []
    for key, content in there.items():
        found, before = _to_manifest(content, as_of), standing.get(key)
        if before != (content.earlier and content.earlier.digest):
            digests[key] = before or found.digest
            continue
        digests[key] = found.digest
        if content.is_less and not (takes_less or content.record.is_current):
            continue
        if before not in (None, found.digest):
            changed.append(content)
        elif content.earlier is None or content.earlier.files != found.files:
            new.append(found)
    instances = FeedInstances(connection)
    rows = instances.get_many({each.key for each in changed} | {key for key in there if there[key].record.is_current})
    changed = [each for each in changed if _is_available(rows.get(each.key))]
    moved = [row for key, row in rows.items() if _is_available(row) and row.place != there[key].record.place]
    instances.put(replace(row, place=there[row.key].record.place, updated_at=as_of) for row in moved)
    manifests.put([*new, *(_to_manifest(content, as_of) for content in changed)])
    _record_changed(connection, changed, rows, as_of, say)
    return RecordedContents(digests=digests, changed=frozenset(content.key for content in changed))


def _record_changed(
    connection: Connection,
    changed: Sequence[Content],
    rows: Mapping[FeedKey, FeedInstance],
    as_of: datetime,
    say: Callable[[NewFeedEvent], NewFeedEvent],
) -> None:
    if not changed:
        return
    found = [(each.record, *_change(rows[each.key], each, as_of, say)) for each in changed]
    held = hold_back(connection, found)
    available = [
        (replace(row, available_at=as_of) if record.is_current else row, event)  # a version has a time of its own
        for record, row, event in found
        if row.key not in held
    ]
    seqs = EventLog(connection).append([event for _, event in available])
    told = (replace(row, event_seq=seq) for (row, _), seq in zip(available, seqs, strict=True))
    FeedInstances(connection).put([*told, *held.values()])
    ArrivalPolls(connection).put(ArrivalPoll(*key, found="", polled_at=as_of, next_poll_at=as_of) for key in held)


def _change(
    row: FeedInstance, content: Content, as_of: datetime, say: Callable[[NewFeedEvent], NewFeedEvent]
) -> tuple[FeedInstance, NewFeedEvent]:
    """Return the row of an instance with other content, and the event."""
    scan = content.scan
    assert scan is not None
    before = {file.path: file.checksum for file in content.earlier.files} if content.earlier else {}
    after = {file.path: file.checksum for file in scan.files}
    what: dict[str, Any] = {"manifest_digest": scan.digest, "bytes": scan.bytes, "files": len(scan.files)}
    event = NewFeedEvent(
        **content.key._asdict(),
        **what,
        kind=FeedEventKind.CHANGED,
        origin=LOOK if content.record.is_current else ORIGIN,
        payload={
            "path": content.record.path(content.nominal_time),
            "added": len(after.keys() - before.keys()),
            "removed": len(before.keys() - after.keys()),
            "replaced": sum(before[path] != after[path] for path in before.keys() & after.keys()),
        },
        recorded_at=as_of,
    )
    return replace(row, **what, updated_at=as_of, place=content.record.place), say(event)


def _is_available(row: FeedInstance | None) -> bool:
    return row is not None and row.status is FeedInstanceStatus.AVAILABLE


def scan_held(context: LifecycleContext, record: FeedRecord, key: FeedKey) -> Content | None:
    """Scan an instance that is held back, if its content is compared later: of a current one, or for late data."""
    with context.database.read() as connection:
        is_compared = record.is_current or bool(Manifests(connection).get_digests([key]))
    wanted = {key: record} if is_compared else {}
    return scan_contents(context, wanted, follows_declared=True).get(key)


def note_content(connection: Connection, content: Content | None, as_of: datetime) -> None:
    """Record the content of an instance that is let in: what stands there later is compared with it."""
    if content is not None and content.is_available:
        Manifests(connection).put([_to_manifest(content, as_of)])


def with_content(row: FeedInstance, content: Content | None) -> FeedInstance:
    """Return a row with the digest of what is let in, with which what was read is compared."""
    if content is None or content.scan is None or not content.is_available:
        return row
    return replace(row, manifest_digest=content.scan.digest)


def _to_manifest(content: Content, as_of: datetime) -> RecordedManifest:
    assert content.scan is not None
    return RecordedManifest(
        **content.key._asdict(),
        digest=content.scan.digest,
        files=content.scan.files,
        recorded_at=as_of,
    )


def to_scan(manifest: RecordedManifest | None) -> Scan | None:
    """Return the scan that a recorded manifest keeps."""
    if manifest is None:
        return None
    return Scan(availability=Availability.AVAILABLE, files=manifest.files, read=0)
