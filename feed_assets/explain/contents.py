"""What attempts have read, written and left out, as reasons."""

from collections.abc import Iterator

from sqlalchemy import Connection

from feed_assets.command_lines import instance_command
from feed_assets.context.operation import OperationContext
from feed_assets.explain.facts import FeedFacts
from feed_assets.explain.records import Reason, ReasonCode
from feed_assets.instances.lists.omissions import Omission
from feed_assets.instances.lists.rows import rendered
from feed_assets.log.instances.feed_places import FeedPlaces
from feed_assets.log.records import FeedEvent, FeedEventKind, FeedInstanceStatus, FrozenInput
from feed_assets.plan.rendering import counted
from feed_assets.timing.dates import render_datetime

_DIGITS = 12


def explain_written(event: FeedEvent) -> Reason:
    """Return that an attempt has written an output."""
    output, time = event.payload["output"], render_datetime(event.nominal_time)
    text = f"it wrote feed {event.feed} {time} as output {output} ({shorten_digest(event.manifest_digest)})"
    return Reason(code=ReasonCode.OUTPUT, text=text, facts={"feed": event.feed, "instance": time, **event_facts(event)})


def explain_left_out(text: str, omission: Omission, *, blocks: bool = False) -> Reason:
    """Return that an attempt has left out an output."""
    feed = omission.feed
    facts = {"output": omission.output, "feed": feed.feed, "instance": render_datetime(feed.nominal_time)}
    return Reason(code=ReasonCode.LEFT_OUT, text=text, blocks=blocks, facts=facts)


def explain_read(frozen: FrozenInput) -> Reason:
    """Return what an attempt has read as an input."""
    pairs = list(zip(frozen.nominal_times, frozen.digests, strict=True))
    if not pairs:
        text = f"it read nothing as input {frozen.name}"
    else:
        span = render_datetime(pairs[0][0])
        span += f" to {render_datetime(pairs[-1][0])}" if len(pairs) > 1 else ""
        digest = f" ({shorten_digest(pairs[0][1])})" if len(pairs) == 1 else ""
        text = f"it read {counted(len(pairs), 'instance')} of feed {frozen.feed} as input {frozen.name}: {span}{digest}"
    instances = [{"instance": render_datetime(time), "digest": digest} for time, digest in pairs]
    facts = {"input": frozen.name, "feed": frozen.feed, "instances": instances}
    return Reason(code=ReasonCode.INPUT_READ, text=text, facts=facts)


def shorten_digest(digest: str | None) -> str:
    """Return a digest shortened for people.

    >>> shorten_digest("sha256:0123456789abcdef"), shorten_digest(None)
    ('sha256:0123456789ab', 'no digest')
    """
    if digest is None:
        return "no digest"
    method, separator, value = digest.partition(":")
    return f"{method}{separator}{value[:_DIGITS]}"


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


def explain_former_place(context: OperationContext, connection: Connection, facts: FeedFacts) -> Iterator[Reason]:
    """Yield that an instance is where its feed had its data before, if it is."""
    assert facts.row is not None
    there, time = FeedPlaces(connection).at_place(facts.record, facts.row), facts.row.nominal_time
    if (url := context.feed_url(there, time)) != context.feed_url(facts.record, time):
        text = f"it is at {url}, a former place of its feed"
        yield Reason(code=ReasonCode.FORMER_PLACE, text=text, facts={"url": url})


def explain_lost(facts: FeedFacts, lost: FeedEvent) -> Reason:
    """Return that storage has lost an instance, and the command by which it is produced again."""
    store, path, found_at = lost.payload["store"], lost.payload["path"], rendered(lost.recorded_at)
    url = f"{str(store).rstrip('/')}/{path}"
    text = f"storage has lost it: {url} is not there any more, noticed at {found_at} by {lost.origin}"
    writers = ((key.process, key.nominal_time, key.cluster) for key in facts.writers)
    command = next((instance_command("rerun", *writer) for writer in writers), None)
    return Reason(code=ReasonCode.VANISHED, text=text, blocks=True, facts={"url": url, "at": found_at}, command=command)


_GONE = (FeedEventKind.EVICTED, FeedEventKind.VANISHED)


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
