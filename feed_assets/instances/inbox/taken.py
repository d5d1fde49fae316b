"""Record what inboxes have taken: the instance that is made of their files, and what each of these had. One whose rows
are judged is held back, and what was taken stays with the event that says so.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime

from sqlalchemy import Connection

from feed_assets.entities.maps import EMPTY
from feed_assets.instances.arrival.polling import decide_poll_result, record_poll_results
from feed_assets.instances.arrival.recording import record_arrival
from feed_assets.instances.arrival.store_polls import Candidate
from feed_assets.instances.inbox.inbox_files import inbox_of
from feed_assets.instances.inbox.store import ListedVersion, ListedVersions, TakenFile, TakenFiles, VersionStatus
from feed_assets.instances.late.quality_checks import QualityChecks
from feed_assets.log.events import EventLog
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.records import FeedEventKind, FeedInstanceStatus, NewFeedEvent
from feed_assets.plan.records import FeedRecord
from feed_assets.storage.records import Look, Manifest

ORIGIN = KEY = "inbox"


def is_taken(manifest: Manifest) -> bool:
    """Return whether a manifest is of files that were taken from an inbox."""
    return KEY in manifest.extra


def record_taken(
    connection: Connection,
    record: FeedRecord,
    time: datetime,
    manifest: Manifest,
    as_of: datetime,
    look: Look | None = None,
    versions: Mapping[str, str] = EMPTY,
) -> int:
    """Record an instance that was made of files of an inbox, what they had, and their `versions` by name if they are
    known; return the number of its event. One that is judged is held back as a `look` has found it.
    """
    key = key_of(record, time)
    if (found := EventLog(connection).find_key(key)) is not None:  # another program goes on with this claim, too
        return found.seq
    event = NewFeedEvent(
        feed=record.feed,
        cluster=record.cluster,
        nominal_time=time,
        kind=FeedEventKind.ARRIVED,
        origin=ORIGIN,
        manifest_digest=manifest.digest,
        bytes=manifest.bytes,
        files=manifest.files,
        payload={"path": record.path(time)},
        recorded_at=as_of,
        idempotency_key=key,
    )
    if record.is_judged and look is not None:
        seq = _record_held(connection, record, event, look)
    else:
        seq = record_arrival(connection, event, record.place)
    TakenFiles(connection).add(
        TakenFile(
            event=seq,
            name=entry.path,
            feed=record.feed,
            cluster=record.cluster,
            size=entry.size,
            checksum=entry.checksum,
        )
        for entry in manifest.entries
    )
    if inbox_of(record).leaves:
        taken = [
            ListedVersion(
                name=each.path,
                version=versions.get(each.path, ""),
                size=each.size,
                status=VersionStatus.TAKEN,
                event=seq,
            )
            for each in manifest.entries
        ]
        ListedVersions(connection, *record.key).take(taken)
    return seq


def _record_held(connection: Connection, record: FeedRecord, event: NewFeedEvent, look: Look) -> int:
    """Record that an instance has come, which is held back until its rows are judged; return the number of the event.

    It is polled from now on: other content in its place is judged anew.
    """
    seen = decide_poll_result(
        Candidate(record=record, nominal_time=event.nominal_time), look, event.recorded_at, ORIGIN
    )
    digest = seen.row.manifest_digest if seen.row is not None else None
    held = replace(event, kind=FeedEventKind.HELD, manifest_digest=digest or event.manifest_digest)
    (seq,) = EventLog(connection).append([held])
    row = None if seen.row is None else replace(seen.row, event_seq=seq)
    record_poll_results(connection, [replace(seen, row=row)])
    return seq


def tell_held(connection: Connection, record: FeedRecord, events: Collection[int]) -> dict[int, str]:
    """Return what keeps instances back whose rows are judged, by the number of the event that has brought them."""
    found = EventLog(connection).of_numbers(events) if record.is_judged and events else {}
    if not found:
        return {}
    keys = {seq: event.key for seq, event in found.items()}
    rows = FeedInstances(connection).get_many({*keys.values()})
    checks = QualityChecks(connection).of_instances(
        key for key, row in rows.items() if row.status is FeedInstanceStatus.PARTIAL
    )
    return {seq: checks[key].sentence for seq, key in keys.items() if key in checks}


def tell_taken(event: int, held: Mapping[int, str]) -> str:
    """Return that an event has taken a file, and what keeps its instance back, as `tell_held` says."""
    return f"event {event} has taken it" + (f"; {held[event]}" if event in held else "")


def key_of(record: FeedRecord, time: datetime) -> str:
    """Return the key of the event of an instance, which its manifest has, too."""
    return f"{KEY}/{record.cluster}/{record.feed}/{time.isoformat()}"
