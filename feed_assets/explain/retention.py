"""The reasons from retention: removal of a feed instance, expiry, and protections."""

from collections.abc import Iterator

from sqlalchemy import Connection

from feed_assets.command_lines import command_line
from feed_assets.context.operation import OperationContext
from feed_assets.explain.records import Reason, ReasonCode
from feed_assets.instances.lists.rows import rendered
from feed_assets.log.records import FeedEvent, FeedEventKind, FeedKey
from feed_assets.log.removals.records import Sweep
from feed_assets.log.removals.store import Sweeps
from feed_assets.plan.records import FeedRecord
from feed_assets.retention.rules.store import RetentionSchedule


def explain_eviction(connection: Connection, key: FeedKey, events: tuple[FeedEvent, ...]) -> Iterator[Reason]:
    """Yield when, by which sweep and why an instance was evicted, where it is now and how to restore it."""
    gone = [event for event in events if event.kind is FeedEventKind.EVICTED and event.is_of_data]
    if not gone:
        yield Reason(code=ReasonCode.EVICTED, text="it was evicted; the log does not have the time", blocks=True)
        return
    event = gone[-1]
    sweep_id = event.payload.get("sweep")
    because = f": {event.payload['reason']}" if event.payload.get("reason") else ""
    by = f"sweep {sweep_id}" if sweep_id else event.origin
    facts = {"at": rendered(event.recorded_at), "origin": event.origin, "bytes": event.bytes, "files": event.files}
    yield Reason(
        code=ReasonCode.EVICTED,
        text=f"it was evicted at {rendered(event.recorded_at)} by {by}{because}",
        blocks=True,
        facts={**facts, **event.payload},
    )
    sweep = Sweeps(connection).find(str(sweep_id)) if sweep_id else None
    if sweep is not None:
        yield from _whereabouts(key, event, sweep)


def _whereabouts(key: FeedKey, event: FeedEvent, sweep: Sweep) -> Iterator[Reason]:
    undo = command_line("retention", "undo", sweep.sweep_id, feed=key.feed, instance=key.nominal_time)
    archive = event.payload.get("archive")
    if isinstance(archive, dict):
        url = f"{str(archive['store']).rstrip('/')}/{archive['path']}"
        yield Reason(code=ReasonCode.ARCHIVED, text=f"it is archived at {url}", facts={"url": url}, command=undo)
    elif sweep.purged_at is not None:
        text = f"the trash was emptied at {rendered(sweep.purged_at)}: it cannot be restored"
        yield Reason(code=ReasonCode.PURGED, text=text, facts={"at": rendered(sweep.purged_at)})
    else:
        until = rendered(sweep.purge_at)
        kept = f"until {until}" if sweep.purge_at else "until the sweep has ended and the trash expires"
        facts = {"until": until, "sweep": sweep.sweep_id}
        yield Reason(code=ReasonCode.TRASHED, text=f"it is in the trash {kept}", facts=facts, command=undo)


def explain_keeping(
    context: OperationContext, connection: Connection, record: FeedRecord, key: FeedKey
) -> Iterator[Reason]:
    """Yield the time until which an available instance is kept, and its protections after that."""
    # Measured: 15 ms, and the data that are missing need none of it.
    from feed_assets.retention.rules.protections import ProtectionQuery, find_protections

    policy = record.retention
    if policy is None:
        yield Reason(code=ReasonCode.KEPT, text="it stays: its feed has no retention here")
        return
    expires_at = None
    if policy.limit is not None:
        expires_at = key.nominal_time + policy.limit.as_duration()
        over = "ended at" if expires_at < context.as_of else "ends at"
        text = f"its retention of {policy.limit} {over} {rendered(expires_at)}"
        yield Reason(code=ReasonCode.EXPIRES, text=text, facts={"at": rendered(expires_at), "limit": str(policy.limit)})
    query = ProtectionQuery(as_of=context.as_of, real_now=context.real_now, holder="")
    for kept in find_protections(connection, context.timeline, record, [key.nominal_time], query).get(
        key.nominal_time, []
    ):
        facts = {"protection": kept.kind.value, "reason": kept.reason}
        yield Reason(code=ReasonCode.KEPT, text=f"it is protected ({kept.kind}): {kept.reason}", facts=facts)
    scheduled = RetentionSchedule(connection).find_many([record.key]).get(record.key)
    if scheduled is not None and expires_at is not None and expires_at < context.as_of:
        text = f"retention of its feed is next due at {rendered(scheduled.next_at)}"
        yield Reason(code=ReasonCode.NEXT_SWEEP, text=text, facts={"at": rendered(scheduled.next_at)})
