"""`listing`: the instances of a feed with availability, size and times, from the record or from storage; and their
files, by the events that brought them or by time.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

from feed_assets.context.consolidation import PAGE, Answer, Result, consolidate
from feed_assets.context.errors import InstanceQueryError
from feed_assets.context.operation import OperationContext, Subject
from feed_assets.errors import render_some
from feed_assets.instances.arrival.arrival_notices import notice_origin
from feed_assets.instances.arrival.store_polls import Candidate, find_records, poll_instances, require_unobstructed
from feed_assets.instances.arrival.stored_data import record_vanished
from feed_assets.instances.inbox.inbox_files import find_ahead
from feed_assets.instances.inbox.store import ListedVersion, ListedVersions, TakenFile, TakenFiles
from feed_assets.instances.inbox.taken import tell_held
from feed_assets.instances.lists.lifecycles import find_data
from feed_assets.instances.lists.queries import count_listed, range_of
from feed_assets.instances.lists.ranges import ClusterQuery, InstanceFilter, InstanceQuery
from feed_assets.instances.lists.rows import due_between, iter_feed_instances
from feed_assets.json_form import Hidden, NominalTime, shown
from feed_assets.log.events import EventLog
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.feed_places import FeedPlaces, describe_staying
from feed_assets.log.instances.manifests import Manifests, RecordedManifest
from feed_assets.log.records import CONTENT, FeedEvent, FeedEventKind, FeedInstance, FeedInstanceStatus, FeedKey
from feed_assets.pages import MoreThan, has_more, tell_shown, up_to
from feed_assets.plan.records import FeedRecord
from feed_assets.plan.rendering import counted
from feed_assets.storage.errors import InstanceNotFoundError
from feed_assets.storage.paths import SINGLE_FILE
from feed_assets.storage.records import Availability, Look
from feed_assets.timing.dates import render_datetime

_MOMENT = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedInstance:
    """An instance of a feed. `created_at` is the time of availability by the record, or of the last change by storage;
    `looked_at` is None if storage was not checked.
    """

    feed: str
    cluster: str
    nominal_time: NominalTime
    status: FeedInstanceStatus
    url: str
    bytes: int | None
    files: int | None
    created_at: datetime | None
    looked_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedListing(Answer):
    """The instances of the range that are due, by cluster, oldest first. `total` counts, by the record, all up to the
    end; `has_more` says that there are others. `staying` counts all at former places of the feed.
    """

    result: Result
    message: str
    start: NominalTime
    end: NominalTime
    instances: tuple[ListedInstance, ...]
    total: int
    staying: Hidden[int] = 0

    @shown
    def more_than_total(self) -> bool:
        """Whether there are more than were counted."""
        return isinstance(self.total, MoreThan)

    @shown
    def has_more(self) -> bool:
        """Whether there are others."""
        return has_more(len(self.instances), self.total)

    @property
    def remarks(self) -> tuple[str, ...]:
        """Where it is from, what stays at former places, and how many of all there are."""
        is_of_record = any(each.url and each.looked_at is None for each in self.instances)
        return (
            "by the record; --look asks storage" if is_of_record else "",
            describe_staying(self.staying) if self.staying else "",
            tell_shown(len(self.instances), self.total, "instances", "--num-results shows more"),
        )


def list_feed(
    context: OperationContext,
    subject: Subject,
    *,
    start: datetime | None = None,
    end: datetime | None = None,
    statuses: frozenset[str] | None = None,
    results: int | None = None,
    look: bool = False,
    author: str = "",
) -> FeedListing:
    """Return the recorded instances of a feed with `start <= nominal time < end`; without an end, up to now.

    With `look`, storage is checked instead, if the feed has data; what it has lost is recorded in the name of `author`.
    A cluster with unreachable storage fails without the others. Ranges default to those of `decide_range`, with
    `results` instances or a page; with a start, `results` are the oldest of each cluster, by default all.

    Differs from Falcon: the end is not in the range; an evicted instance is EVICTED, not MISSING, unless storage is
    checked; a missing instance has no size, where Falcon says -1; sizes count no replicas; and instances follow the
    feed's time zone and validity.

    Raises:
        InstanceQueryError: the range is invalid.
    """
    subjects = find_data(subject)
    only = InstanceFilter(statuses=statuses)
    query = InstanceQuery(subject=subject, start=start, end=end, results=results or PAGE, filter=only)
    first, last = range_of(context, query, subjects)
    since, _ = range_of(context, query, subjects, is_whole=True)
    with context.read() as connection:
        total, staying = 0, 0

        def read(cluster: str) -> Sequence[ListedInstance]:
            nonlocal total, staying
            record, beyond = context.feed_on(subject.name, cluster), last if end is not None else last + _MOMENT
            total += count_listed(
                ClusterQuery(
                    context=context, connection=connection, query=query, cluster=cluster, start=since, stop=beyond
                )
            )
            places = FeedPlaces(connection)
            staying += sum(1 for _ in places.find_elsewhere(record))
            due = due_between(record, first, beyond, context.as_of)
            is_page = start is None and not record.is_expected
            found = iter_feed_instances(connection, record, due, descending=is_page)
            most = query.results if is_page else None if start is None or statuses else results
            rows = list(islice(found, most))[:: -1 if is_page else 1]
            if not look or not record.has_data:
                listed = _recorded(context, ((places.at_place(record, row), time, row) for time, row in rows))
            else:
                there = find_records(context, record, [time for time, _ in rows])
                candidates = [Candidate(record=each, nominal_time=time) for time, each in there.items()]
                listed = _looked(context, candidates, author)
            wanted = [each for each in listed if statuses is None or each.status in statuses]
            return wanted if start is None else wanted[:results]

        parts = consolidate(subjects.by_cluster, read)
    return FeedListing(
        result=parts.result,
        message=parts.message,
        start=first,
        end=last,
        instances=tuple(parts.items),
        total=up_to(total, len(parts.items)),
        staying=staying,
    )


def _recorded(
    context: OperationContext, rows: Iterable[tuple[FeedRecord, datetime, FeedInstance | None]]
) -> list[ListedInstance]:
    return [
        ListedInstance(
            feed=record.feed,
            cluster=record.cluster,
            nominal_time=time,
            status=row.status if row else FeedInstanceStatus.MISSING,
            url=context.feed_url(record, time),
            bytes=row.bytes if row and row.status is not FeedInstanceStatus.MISSING else None,
            files=row.files if row and row.status is not FeedInstanceStatus.MISSING else None,
            created_at=row.available_at if row else None,
        )
        for record, time, row in rows
    ]


def _looked(context: OperationContext, candidates: Sequence[Candidate], author: str) -> list[ListedInstance]:
    looks = poll_instances(context.stores, candidates)
    require_unobstructed(candidates, looks)
    found = zip(candidates, looks, strict=True)
    absent = [each for each, look in found if look.availability is not Availability.AVAILABLE]
    record_vanished(context, absent, notice_origin(author))
    with context.database.read() as connection:
        rows = FeedInstances(connection).get_many([each.key for each in absent])
    missing = {row.nominal_time for row in rows.values() if row.status is FeedInstanceStatus.MISSING}
    return [
        ListedInstance(
            feed=each.record.feed,
            cluster=each.record.cluster,
            nominal_time=each.nominal_time,
            status=(status := _status(look, each.nominal_time in missing)),
            url=context.feed_url(each.record, each.nominal_time),
            bytes=None if status is FeedInstanceStatus.MISSING else look.bytes,
            files=None if status is FeedInstanceStatus.MISSING else look.files,
            created_at=look.modified_at,
            looked_at=context.as_of,
        )
        for each, look in zip(candidates, looks, strict=True)
    ]


def _status(look: Look, is_missing: bool) -> FeedInstanceStatus:
    """Return the status by storage. An empty folder that the record has as MISSING, since it had content, is that."""
    is_lost = is_missing and look.availability is Availability.EMPTY
    return FeedInstanceStatus.MISSING if is_lost else FeedInstanceStatus(look.availability.value)


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
class HeldFiles:
    """An event that has brought files of an inbox to an instance that is held back, and why it is."""

    event: int
    nominal_time: NominalTime
    names: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FileList:
    """The files that events have brought, in the order of the events and of the paths.

    `ahead` tells of files that wait in the inbox for a time in the future. `missed` are versions that looks had listed
    in an inbox that leaves its files, and that went before they were read. `held` are files of an inbox that nobody
    reads before their rows are judged.
    """

    feed: str
    cluster: str
    files: tuple[ListedFile, ...]
    unlisted: tuple[UnlistedEvent, ...]
    ahead: str | None
    missed: tuple[ListedVersion, ...] = ()
    held: tuple[HeldFiles, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What is not known any more, and what waits."""
        events = [(f"event {each.event}, {render_datetime(each.nominal_time)}", each.reason) for each in self.unlisted]
        missed = [
            f"{each.name}: a version of {counted(each.size, 'byte')} ({each.version}) was never read: it was "
            f"{each.status.lower()} after a look had listed it"
            for each in self.missed
        ]
        unlisted = (f"{event}: its files are not known any more: {reason}" for event, reason in events)
        held = (
            f"event {each.event}, {render_datetime(each.nominal_time)}: nobody reads {render_some(each.names, 3)}: "
            f"{each.reason}"
            for each in self.held
        )
        return (*unlisted, *missed, *held, self.ahead or "")


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
            span = (min(event.seq for event in events), max(event.seq for event in events)) if events else (0, -1)
        else:
            span = (first_event or 0, last_event or log.last_seq())
            events = log.of_feed(*record.key, *span, CONTENT | {FeedEventKind.HELD})
        ahead = find_ahead(connection, [record])
        missed = ListedVersions(connection, *record.key).missed(*span)
        keys = {FeedKey(*record.key, event.nominal_time) for event in events}
        past = log.for_instances(keys) if record.inbox is not None else {}
        taken = TakenFiles(connection).brought_by([*events, *(event for listed in past.values() for event in listed)])
        last_held = {event.nominal_time: event for event in events if event.kind is FeedEventKind.HELD}
        held = tell_held(connection, record, [event.seq for event in last_held.values()])
        known = _Known(
            rows=FeedInstances(connection).get_many(keys), scanned=Manifests(connection).get_many(keys), taken=taken
        )
    content = [event for event in events if event.kind is not FeedEventKind.HELD]
    found = context.stores.each(lambda event: _list(context, record, event, known), content)
    return FileList(
        feed=record.feed,
        cluster=record.cluster,
        files=tuple(each for listed in found if isinstance(listed, list) for each in listed),
        unlisted=tuple(each for each in found if isinstance(each, UnlistedEvent)),
        ahead=ahead[0][1] if ahead else None,
        missed=tuple(missed),
        held=tuple(
            HeldFiles(
                event=event.seq,
                nominal_time=event.nominal_time,
                names=tuple(file.name for file in taken.get(event.seq, ())),
                reason=held[event.seq],
            )
            for event in last_held.values()
            if event.seq in held
        ),
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
