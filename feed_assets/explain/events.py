"""What is said of the events of a feed instance: what has brought it, and what has changed it since."""

from collections.abc import Iterator

from sqlalchemy import Connection

from feed_assets.entities.flow_names import describe_process, is_of_feed, source_of
from feed_assets.explain.facts import FeedFacts
from feed_assets.explain.records import Reason, ReasonCode
from feed_assets.instances.lists.rows import rendered
from feed_assets.lineage.walk import find_version
from feed_assets.log.events import EventLog
from feed_assets.log.records import (
    ARRIVING,
    CONTENT,
    Attempt,
    FeedEvent,
    FeedEventKind,
    FeedInstanceStatus,
    FeedKey,
    FrozenInput,
)
from feed_assets.plan.records import Plan
from feed_assets.plan.rendering import counted
from feed_assets.releases.timeline import ActiveRelease
from feed_assets.timing.dates import NEVER, render_datetime

_DIGITS = 12
_GONE = (FeedEventKind.EVICTED, FeedEventKind.VANISHED)


def explain_availability(facts: FeedFacts) -> Iterator[Reason]:
    """Yield what has brought an instance that is there, and what has changed it since."""
    if facts.record.is_current:
        content = [event for event in facts.events if event.kind in CONTENT]
        for event in content[-1:]:
            text = f"the present version is that of {rendered(event.recorded_at)}, the last of {len(content)}, "
            yield Reason(code=ReasonCode.EVENT, text=text + tell_event(event), facts=event_facts(event))
        yield from _quality(facts)
        return
    there = [event for event in facts.events if event.kind in ARRIVING]
    for event in there[-1:]:
        text = f"{event.kind.value} at {rendered(event.recorded_at)} {tell_event(event)}"
        yield Reason(code=ReasonCode.EVENT, text=text, facts=event_facts(event))
    yield from _quality(facts)
    yield from _registration(facts)
    if len(facts.events) > len(there[-1:]):
        yield from explain_history(facts)


def _quality(facts: FeedFacts) -> Iterator[Reason]:
    if facts.check is not None and (facts.check.summary is not None or facts.check.accepted is not None):
        yield Reason(code=ReasonCode.QUALITY, text=facts.check.sentence, facts=dict(facts.check.facts))


def _registration(facts: FeedFacts) -> Iterator[Reason]:
    """Yield that an instance is no partition of its table yet, and when that is tried again."""
    pending, registration = facts.registration, facts.record.registration
    if pending is None or registration is None or pending.is_to_come:
        return
    reason = "the next tick looks at it" if pending.reason is None else pending.reason.rstrip(".")
    again = None if pending.due_at is None else rendered(pending.due_at)
    text = f"it is not registered in {registration.name}: {reason}; it is tried again at {again}"
    yield Reason(code=ReasonCode.REGISTRATION, text=text, facts={"table": registration.name, "at": again})


def find_read(connection: Connection, plan: Plan, attempt: Attempt, frozen: FrozenInput) -> FeedEvent | None:
    """Return the event that has brought the version of a current instance that an attempt has read."""
    record = plan.feeds.get((frozen.feed, source_of(attempt.process) or attempt.cluster))
    if record is None or not record.is_current or not frozen.nominal_times:
        return None
    key = FeedKey(*record.key, frozen.nominal_times[0])
    events, outputs = EventLog(connection).for_instances([key]).get(key, []), attempt.outputs
    return find_version(events, frozen.digests[0], attempt.started_at, attempt.ended_at, min(outputs, default=None))


def left_to_newer(connection: Connection, active: ActiveRelease, newest: Attempt) -> Iterator[Reason]:
    """Yield the current instances that an attempt has left as they were, with the version of a newer instance."""
    written = {each.feed for each in EventLog(connection).of_numbers(newest.outputs).values()}
    for edge in active.record.own_outputs:
        record = active.plan.feeds[edge.feed_key]
        if not record.is_current or edge.feed in written:
            continue
        key = FeedKey(*record.key, record.sequence.start)
        events = EventLog(connection).for_instances([key]).get(key, [])
        ended_at = newest.ended_at or NEVER
        makers = [each.maker for each in events if each.kind in CONTENT and each.recorded_at <= ended_at]
        if makers and (maker := makers[-1]) and maker.process == newest.process and maker[2] > newest.nominal_time:
            newer = render_datetime(maker.nominal_time)
            text = f"it left feed {edge.feed} as it was: there was the version of a newer instance, {newer}"
            facts = {"output": edge.name, "feed": edge.feed, "newer": newer}
            yield Reason(code=ReasonCode.LEFT_OUT, text=text, facts=facts)


def tell_event(event: FeedEvent) -> str:
    """Return who has brought content, and what."""
    size = f"{counted(event.bytes or 0, 'byte')} in {counted(event.files or 0, 'file')}"
    by = event.payload.get("process")
    name = describe_process(str(by)) if is_of_feed(str(by)) else f"process {by}"
    who = f"{name}, {event.origin}" if by else event.origin
    is_read = not (event.manifest_digest or "").startswith("look:")  # else a poll has seen sizes and times
    return f"by {who}: {size}" + (f", {shorten_digest(event.manifest_digest)}" if is_read else "")


def event_facts(event: FeedEvent) -> dict[str, object]:
    """Return the facts of an event."""
    return {
        "kind": event.kind.value,
        "at": rendered(event.recorded_at),
        "origin": event.origin,
        "digest": event.manifest_digest,
        "bytes": event.bytes,
        "files": event.files,
        **event.payload,
    }


def explain_history(facts: FeedFacts) -> Iterator[Reason]:
    """Yield the last event of an instance that has gone or has changed."""
    status = facts.row.status if facts.row else FeedInstanceStatus.MISSING
    changes = [event for event in facts.events if event.kind not in _GONE]
    if status is not FeedInstanceStatus.AVAILABLE and changes:
        event = changes[-1]
        text = f"its last event before: {event.kind.value} at {rendered(event.recorded_at)}"
        yield Reason(code=ReasonCode.EVENT, text=f"{text} by {event.origin}", facts=event_facts(event))
    elif status is FeedInstanceStatus.AVAILABLE and changes and changes[-1].kind is FeedEventKind.CHANGED:
        event = changes[-1]
        text = f"its content changed at {rendered(event.recorded_at)}, noticed by {event.origin}"
        yield Reason(code=ReasonCode.EVENT, text=text, facts=event_facts(event))


def shorten_digest(digest: str | None) -> str:
    """Return a digest shortened for people.

    >>> shorten_digest("sha256:0123456789abcdef"), shorten_digest(None)
    ('sha256:0123456789ab', 'no digest')
    """
    if digest is None:
        return "no digest"
    method, separator, value = digest.partition(":")
    return f"{method}{separator}{value[:_DIGITS]}"
