"""Evictions and restorations of feed instances, as rows of instance lists."""

from feed_assets.context.consolidation import Lifecycle
from feed_assets.entities.common import Kind
from feed_assets.instances.lists.ranges import ClusterQuery
from feed_assets.instances.lists.rows import InstanceRow
from feed_assets.log.events import EventLog
from feed_assets.log.records import FeedEvent, FeedEventKind
from feed_assets.plan.records import FeedRecord


def find_evictions(of: ClusterQuery) -> list[InstanceRow]:
    """Return the last action of retention on each instance of a range: EVICTED or RESTORED.

    Raises:
        InstanceQueryError: the feed is not on the cluster.
    """
    record, log = of.feed, EventLog(of.connection)
    events = [*log.for_feed(*record.key, FeedEventKind.EVICTED), *log.for_feed(*record.key, FeedEventKind.RESTORED)]
    newest = {
        event.nominal_time: event
        for event in sorted(events, key=lambda event: event.seq)
        if of.start <= event.nominal_time < of.stop and event.is_of_data
    }
    return [
        _row(record, event) for event in newest.values() if of.query.filter.is_met(event.kind.value, event.recorded_at)
    ]


def _row(record: FeedRecord, event: FeedEvent) -> InstanceRow:
    reason, sweep, store = (event.payload.get(name) for name in ("reason", "sweep", "store"))
    return InstanceRow(
        kind=Kind.FEED,
        name=record.feed,
        cluster=record.cluster,
        lifecycle=Lifecycle.EVICTION,
        nominal_time=event.nominal_time,
        status=event.kind.value,
        reason="; ".join(str(text) for text in (f"sweep {sweep}" if sweep else event.origin, reason) if text),
        ended_at=event.recorded_at,
        bytes=event.bytes,
        files=event.files,
        url=f"{str(store).rstrip('/')}/{event.payload['path']}" if store else None,
    )
