"""What retention has done to an instance of a feed, or will do, and what protects it meanwhile."""

from collections.abc import Iterator

from sqlalchemy import Connection

from feed_assets.entities.common import LocationKind
from feed_assets.lifecycle.retention.keepers import Asked, find_keepers
from feed_assets.operations.explaining.records import Reason, ReasonCode
from feed_assets.operations.instances.rows import rendered
from feed_assets.operations.scene import Scene
from feed_assets.plan.records import FeedRecord
from feed_assets.state.records import FeedEvent, FeedEventKind, FeedKey
from feed_assets.state.sweep_records import Sweep
from feed_assets.state.sweep_turns import SweepTurns
from feed_assets.state.sweeps import Sweeps
from feed_assets.timing.dates import render_datetime


def explain_eviction(connection: Connection, key: FeedKey, events: tuple[FeedEvent, ...]) -> Iterator[Reason]:
    """When an evicted instance went, by which sweep and why, where it is now and how it comes back."""
    gone = [event for event in events if event.kind is FeedEventKind.EVICTED and _is_of_data(event)]
    if not gone:
        yield Reason(code=ReasonCode.EVICTED, text="it was evicted; the log does not say when", blocks=True)
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
    undo = f"`feed-assets retention undo {sweep.sweep_id} --instance {render_datetime(key.nominal_time)}`"
    archive = event.payload.get("archive")
    if isinstance(archive, dict):
        url = f"{str(archive['store']).rstrip('/')}/{archive['path']}"
        text = f"it is archived at {url}; {undo} brings it back"
        yield Reason(code=ReasonCode.ARCHIVED, text=text, facts={"url": url})
    elif sweep.purged_at is not None:
        text = f"the trash was emptied at {rendered(sweep.purged_at)}: it cannot come back"
        yield Reason(code=ReasonCode.PURGED, text=text, facts={"at": rendered(sweep.purged_at)})
    else:
        until = rendered(sweep.purge_at)
        kept = f"until {until}" if sweep.purge_at else "until the sweep has ended and its time is over"
        text = f"it is in the trash {kept}; {undo} brings it back"
        yield Reason(code=ReasonCode.TRASHED, text=text, facts={"until": until, "sweep": sweep.sweep_id})


def explain_keeping(scene: Scene, connection: Connection, record: FeedRecord, key: FeedKey) -> Iterator[Reason]:
    """Until when an instance that is there is kept, and what protects it beyond that."""
    policy = record.retention
    if policy is None:
        yield Reason(code=ReasonCode.KEPT, text="it is kept: its feed has no retention here")
        return
    expires_at = None
    if policy.limit is not None:
        expires_at = key.nominal_time + policy.limit.as_duration()
        over = "has been over since" if expires_at < scene.as_of else "is over at"
        text = f"its retention of {policy.limit} {over} {rendered(expires_at)}"
        yield Reason(code=ReasonCode.EXPIRES, text=text, facts={"at": rendered(expires_at), "limit": str(policy.limit)})
    asked = Asked(as_of=scene.as_of, wall=scene.wall, holder="")
    for kept in find_keepers(connection, scene.governance, record, [key.nominal_time], asked).get(key.nominal_time, []):
        facts = {"keeper": kept.keeper.value, "reason": kept.reason}
        yield Reason(code=ReasonCode.KEPT, text=f"it is kept ({kept.keeper}): {kept.reason}", facts=facts)
    turn = SweepTurns(connection).find_many([record.key]).get(record.key)
    if turn is not None and expires_at is not None and expires_at < scene.as_of:
        text = f"retention of its feed comes next at {rendered(turn.next_at)}"
        yield Reason(code=ReasonCode.NEXT_SWEEP, text=text, facts={"at": rendered(turn.next_at)})


def _is_of_data(event: FeedEvent) -> bool:
    return event.payload.get("kind", LocationKind.DATA.value) == LocationKind.DATA.value
