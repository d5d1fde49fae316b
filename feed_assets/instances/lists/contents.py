"""The files of instances, by the events that brought them or by time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from feed_assets.context.errors import InstanceQueryError
from feed_assets.context.operation import OperationContext
from feed_assets.instances.inbox.inbox_files import find_ahead
from feed_assets.instances.inbox.store import TakenFile, TakenFiles
from feed_assets.json_form import NominalTime
from feed_assets.log.events import EventLog
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.manifests import Manifests, RecordedManifest
from feed_assets.log.records import FeedEvent, FeedInstance, FeedInstanceStatus, FeedKey
from feed_assets.plan.records import FeedRecord
from feed_assets.storage.errors import InstanceNotFoundError
from feed_assets.storage.paths import SINGLE_FILE
from feed_assets.storage.records import Availability
from feed_assets.timing.dates import render_datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedFile:
    """One file of an instance. The `checksum` is None if nobody has read the file."""

    url: str
    bytes: int
    checksum: str | None
    event: int
    nominal_time: NominalTime


@dataclass(frozen=True, slots=True, kw_only=True)
class UnlistedEvent:
    """An event whose files are not known any more, and why."""

    event: int
    nominal_time: NominalTime
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FileList:
    """The files that events have brought, in the order of the events and of the paths.

    `ahead` tells of files that wait in the inbox for a time in the future.
    """

    feed: str
    cluster: str
    files: tuple[ListedFile, ...]
    unlisted: tuple[UnlistedEvent, ...]
    ahead: str | None

    @property
    def notes(self) -> tuple[str, ...]:
        """What is not known any more, and what waits."""
        events = [(f"event {each.event}, {render_datetime(each.nominal_time)}", each.reason) for each in self.unlisted]
        return (*(f"{event}: its files are not known any more: {reason}" for event, reason in events), self.ahead or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What the state knows of some events."""

    rows: Mapping[FeedKey, FeedInstance]
    scanned: Mapping[FeedKey, RecordedManifest]
    taken: Mapping[int, Sequence[TakenFile]]


def list_files(
    context: OperationContext,
    feed: str,
    *,
    cluster: str | None = None,
    first_event: int | None = None,
    last_event: int | None = None,
    start: datetime | None = None,
    end: datetime | None = None,
) -> FileList:
    """Return the files that the events of a feed have brought, from one event to another, both included; or those of
    the instances from one nominal time to another, both included.

    What a manifest or a scan has recorded is as it was then, with checksums. Files that nobody has read are listed in
    storage. Those of an instance that was replaced or evicted since are not known, unless they were taken from an
    inbox.

    Raises:
        EntityNotFoundError: there is no such feed.
        InstanceQueryError: it is not on the cluster, or has no data, or is on several and none is named.
        StorageError: storage cannot be read.
    """
    record = context.only_feed(feed, cluster)
    if not record.has_data:
        raise InstanceQueryError(subject=f"feed {feed!r}", reason="it has no data", next_step="Name a feed with files.")
    with context.database.read() as connection:
        log = EventLog(connection)
        if start is not None or end is not None:
            rows = FeedInstances(connection).find_between(
                *record.key, start or record.sequence.start, end or context.as_of
            )
            events = list(log.of_numbers(row.event_seq for row in rows if row.event_seq is not None).values())
        else:
            events = log.of_feed(*record.key, first_event or 1, last_event or log.last_seq())
        ahead = find_ahead(connection, [record])
        keys = {FeedKey(*record.key, event.nominal_time) for event in events}
        taken: dict[int, list[TakenFile]] = {}
        for file in TakenFiles(connection).of_events([event.seq for event in events]):
            taken.setdefault(file.event, []).append(file)
        known = _Known(
            rows=FeedInstances(connection).get_many(keys), scanned=Manifests(connection).get_many(keys), taken=taken
        )
    found = context.stores.each(lambda event: _list(context, record, event, known), events)
    return FileList(
        feed=record.feed,
        cluster=record.cluster,
        files=tuple(each for listed in found if isinstance(listed, list) for each in listed),
        unlisted=tuple(each for each in found if isinstance(each, UnlistedEvent)),
        ahead=ahead[0][1] if ahead else None,
    )


def _list(
    context: OperationContext, record: FeedRecord, event: FeedEvent, known: _Known
) -> list[ListedFile] | UnlistedEvent:
    """Return the files that an event has brought, or why they are not known."""
    store, path = context.stores.get(record.store), record.path(event.nominal_time)
    if taken := known.taken.get(event.seq):
        return _listed(store.url(path), event, [(file.name, file.size, file.checksum) for file in taken])
    key = FeedKey(*record.key, event.nominal_time)
    scanned, row = known.scanned.get(key), known.rows.get(key)
    try:
        place = store.place(path)
        url = place.store.url(place.path)
        if scanned is not None and scanned.digest == event.manifest_digest:
            return _listed(url, event, [(file.path, file.size, file.checksum) for file in scanned.files])
        manifest = store.published_manifest(path)
        if manifest is not None and manifest.digest == event.manifest_digest:
            return _listed(url, event, [(entry.path, entry.size, entry.checksum) for entry in manifest.entries])
        if row is not None and row.event_seq == event.seq and row.status is FeedInstanceStatus.AVAILABLE:
            survey = place.store.survey(place.path, record.flag, 0)
            if survey.availability is Availability.AVAILABLE:
                return _listed(url, event, [(file.path, file.size, file.checksum) for file in survey.files])
    except InstanceNotFoundError:
        pass
    return UnlistedEvent(event=event.seq, nominal_time=event.nominal_time, reason=_why_unlisted(event, row))


def _why_unlisted(event: FeedEvent, row: FeedInstance | None) -> str:
    if row is not None and row.status is FeedInstanceStatus.EVICTED:
        return "the instance was evicted"
    if row is not None and row.event_seq is not None and row.event_seq > event.seq:
        return f"event {row.event_seq} has brought other content"
    return "the instance is not there any more"


def _listed(url: str, event: FeedEvent, files: Sequence[tuple[str, int, str]]) -> list[ListedFile]:
    return [
        ListedFile(
            url=url if path == SINGLE_FILE else f"{url}/{path}",
            bytes=size,
            checksum=checksum or None,
            event=event.seq,
            nominal_time=event.nominal_time,
        )
        for path, size, checksum in files
    ]
