"""Record instances that a sweep has removed, and instances that were restored."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from feed_assets.entities.common import Kind, LocationKind
from feed_assets.instances.gates.end_messages import user_topic_of
from feed_assets.instances.late.store import LateChecks
from feed_assets.log.agenda import AgendaKey, AgendaKind
from feed_assets.log.events import EventLog
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.manifests import Manifests
from feed_assets.log.messages.outbox import Outbox
from feed_assets.log.messages.payloads import (
    NONE,
    EvictionOperation,
    EvictionPayload,
    InstanceEnd,
    InstanceOperation,
    InstancePayload,
)
from feed_assets.log.messages.records import OutboxMessage
from feed_assets.log.records import (
    CONTENT,
    FeedEvent,
    FeedEventKind,
    FeedInstance,
    FeedInstanceStatus,
    FeedKey,
    NewFeedEvent,
)
from feed_assets.log.removals.records import VERSION, WAS, ChunkHead, SweepChunk, SweepItem
from feed_assets.plan.facts import EntityFacts
from feed_assets.sql.column_types import from_micros, to_micros
from feed_assets.sql.database import lock_log

_AVAILABLE = "available_at"  # if that is not the time of the event that has brought the content


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """The common facts of all paths of a chunk.

    `facts` are what the feed says of itself. If the paths are archived, `archive` is the URL of the archive's store and
    `archived` has the path of each there.
    """

    chunk: SweepChunk
    cluster: str
    store: str
    origin: str
    facts: EntityFacts = field(default_factory=EntityFacts)
    archive: str | None = None
    archived: Mapping[str, str] | None = None

    @property
    def is_data(self) -> bool:
        """Whether the paths are instances themselves; else they are of another kind of location (meta, stats, tmp)."""
        return self.chunk.kind == LocationKind.DATA

    @property
    def is_leased(self) -> bool:
        """Whether whoever moves the paths holds the leases of their instances."""
        return self.is_data or self.is_version

    @property
    def is_version(self) -> bool:
        """Whether the path is a former version of an instance, which is there."""
        return self.chunk.kind == VERSION

    def of(self, item: SweepItem) -> dict[str, Any]:
        """Return what events say of the sweep, and of where a path is or was."""
        place = {} if self.chunk.place is None else {"place": self.chunk.place}
        return {"sweep": self.chunk.sweep_id, "path": item.path, "kind": self.chunk.kind, "store": self.store} | place

    def keys(self, items: Iterable[SweepItem]) -> list[FeedKey]:
        """Return the keys of the items' instances."""
        return [FeedKey(self.chunk.feed, self.cluster, item.nominal_time) for item in items]


def record_evicted(
    connection: Connection,
    removal: Removal,
    items: Sequence[SweepItem],
    tokens: Mapping[datetime, int],
    as_of: datetime,
    replaced: Collection[SweepItem] = (),
) -> None:
    """Log that paths were removed; for data, mark the instances EVICTED and drop their manifests and late checks.

    Adds two outbox messages for each path: what was evicted, and Falcon's DELETE. `tokens` are those of the leases
    held. Instances that were `replaced` meanwhile keep their rows.
    """
    if not items:
        return
    lock_log(connection)
    keys = removal.keys(items)
    rows = FeedInstances(connection).get_many(keys)
    log = EventLog(connection)
    before = log.for_instances(keys) if removal.is_data else {}
    pairs = list(zip(items, keys, strict=True))
    seqs = log.append(
        [_evicted(removal, item, key, rows.get(key), _came_at(before.get(key, ())), as_of) for item, key in pairs]
    )
    if removal.is_data:
        gone = {key: seq for item, key, seq in zip(items, keys, seqs, strict=True) if item not in replaced}
        FeedInstances(connection).put(
            FeedInstance(
                **key._asdict(),
                status=FeedInstanceStatus.EVICTED,
                updated_at=as_of,
                event_seq=seq,
                fence=tokens.get(key.nominal_time, 0),
                place=rows[key].place if key in rows else None,
            )
            for key, seq in gone.items()
        )
        Manifests(connection).remove(gone)
        LateChecks(connection).remove([AgendaKey(AgendaKind.LATE_FEED, *key) for key in gone])
    kind = FeedEventKind.EVICTED
    evicted = [_message(removal, item, EvictionOperation.DELETE, kind, as_of) for item in items]
    Outbox(connection).append_many([*evicted, *(_delete_message(removal, item, as_of) for item in items)])


def record_restored(
    connection: Connection,
    removal: Removal,
    rows: Mapping[SweepItem, FeedInstance | None],
    as_of: datetime,
) -> None:
    """Log that paths were restored, with their new rows (None if not data) and one message each. To readers, a version
    that is back is a change; an instance that was not available before is none yet, and is HELD.
    """
    if not rows:
        return
    lock_log(connection)
    events = [
        NewFeedEvent(
            feed=removal.chunk.feed,
            cluster=removal.cluster,
            nominal_time=item.nominal_time,
            kind=_kind_of(removal, row),
            origin=removal.origin,
            recorded_at=as_of,
            manifest_digest=row.manifest_digest if row else None,
            bytes=row.bytes if row else item.bytes,
            files=row.files if row else item.files,
            payload=removal.of(item) | ({"kind": LocationKind.DATA.value} if removal.is_version else {}),
            idempotency_key=removal.chunk.event_key(FeedEventKind.RESTORED, item.path),
        )
        for item, row in rows.items()
    ]
    seqs = EventLog(connection).append(events)
    FeedInstances(connection).put(
        replace(row, updated_at=as_of, event_seq=seq)
        for row, seq in zip(rows.values(), seqs, strict=True)
        if row is not None
    )
    kind = FeedEventKind.RESTORED
    Outbox(connection).append_many([_message(removal, item, EvictionOperation.RESTORE, kind, as_of) for item in rows])


def _kind_of(removal: Removal, row: FeedInstance | None) -> FeedEventKind:
    if removal.is_version:
        return FeedEventKind.CHANGED
    is_there = row is None or row.status is FeedInstanceStatus.AVAILABLE
    return FeedEventKind.RESTORED if is_there else FeedEventKind.HELD


def find_evictions(
    connection: Connection, chunk: ChunkHead, cluster: str, items: Iterable[SweepItem]
) -> dict[SweepItem, FeedEvent]:
    """Return the events that evicted items of a chunk; items without one are left out."""
    wanted = {(FeedKey(chunk.feed, cluster, item.nominal_time), item.path): item for item in items}
    events = EventLog(connection).for_instances({key for key, _ in wanted})
    of_chunk = (chunk.sweep_id, chunk.kind, chunk.place)
    return {
        item: _with_time(event, found[:number])
        for found in events.values()
        for number, event in enumerate(found)
        if event.kind is FeedEventKind.EVICTED
        and tuple(map(event.payload.get, ("sweep", "kind", "place"))) == of_chunk
        and (item := wanted.get((event.key, str(event.payload.get("path"))))) is not None
    }


def past_row(event: FeedEvent, now: FeedInstance | None, fence: int) -> FeedInstance | None:
    """Return the row that an eviction displaced, to be restored with a fence where it is `now`; None if there was
    none.
    """
    was = event.payload.get(WAS)
    if not isinstance(was, str):
        return None
    row = event.row(FeedInstanceStatus(was), fence=fence, place=None if now is None else now.place)
    available_at = event.payload.get(_AVAILABLE)
    return replace(row, available_at=from_micros(available_at) if isinstance(available_at, int) else None)


def _with_time(event: FeedEvent, before: Sequence[FeedEvent]) -> FeedEvent:
    """Return an eviction with the time since which its instance was there, as `_evicted` leaves it out."""
    came_at = _came_at(before)
    return replace(event, payload={_AVAILABLE: came_at and to_micros(came_at), **event.payload})


def _came_at(events: Sequence[FeedEvent]) -> datetime | None:
    """Return when the last of some events of an instance that has brought content was recorded."""
    return next((each.recorded_at for each in reversed(events) if each.kind in CONTENT), None)


def _evicted(
    removal: Removal,
    item: SweepItem,
    key: FeedKey,
    row: FeedInstance | None,
    came_at: datetime | None,
    as_of: datetime,
) -> NewFeedEvent:
    payload = {**removal.of(item), "rule": item.rule, "reason": item.reason}
    to_path = (removal.archived or {}).get(item.path)
    if to_path is not None:
        payload["archive"] = {"store": removal.archive, "path": to_path}
    if removal.is_data and row is not None:
        payload[WAS] = row.status.value
        if row.available_at != came_at:
            payload[_AVAILABLE] = row.available_at and to_micros(row.available_at)
    return NewFeedEvent(
        **key._asdict(),
        kind=FeedEventKind.EVICTED,
        origin=removal.origin,
        recorded_at=as_of,
        manifest_digest=row.manifest_digest if removal.is_data and row else None,
        bytes=row.bytes if removal.is_data and row and row.bytes is not None else item.bytes,
        files=row.files if removal.is_data and row and row.files is not None else item.files,
        payload=payload,
    )


def _message(
    removal: Removal, item: SweepItem, operation: EvictionOperation, kind: FeedEventKind, as_of: datetime
) -> OutboxMessage:
    return OutboxMessage(
        recorded_at=as_of,
        payload=EvictionPayload(
            operation=operation,
            feed=removal.chunk.feed,
            cluster=removal.cluster,
            nominal_time=item.nominal_time,
            kind=removal.chunk.kind,
            store=removal.store,
            path=item.path,
            sweep=removal.chunk.sweep_id,
            rule=item.rule,
        ),
        idempotency_key=removal.chunk.event_key(kind, item.path),
    )


def _delete_message(removal: Removal, item: SweepItem, as_of: datetime) -> OutboxMessage:
    """Return Falcon's message about an evicted path; its workflow is the sweep."""
    feed = removal.chunk.feed
    return OutboxMessage(
        recorded_at=as_of,
        payload=InstancePayload(
            cluster=removal.cluster,
            entity_name=feed,
            entity_type=Kind.FEED,
            nominal_time=item.nominal_time,
            operation=InstanceOperation.DELETE,
            feed_names=feed,
            feed_instance_paths=f"{removal.store.rstrip('/')}/{item.path}",
            workflow_id=removal.chunk.sweep_id,
            workflow_user=removal.facts.owner or NONE,
            status=InstanceEnd.SUCCEEDED,
            time_stamp=as_of,
        ),
        idempotency_key=f"instance/{removal.chunk.event_key(FeedEventKind.EVICTED, item.path)}",
        user_topic=user_topic_of(feed, removal.facts),
    )
