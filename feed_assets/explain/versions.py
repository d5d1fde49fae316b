"""What a version of a current instance is, or was: who made it, who has read it, and what came after it."""

from collections.abc import Iterator
from datetime import datetime

from sqlalchemy import Connection

from feed_assets.context.consolidation import consolidate
from feed_assets.context.operation import OperationContext, Subject
from feed_assets.explain.events import event_facts, tell_event
from feed_assets.explain.explanations import Explained, render_summary
from feed_assets.explain.records import Explanation, Reason, ReasonCode
from feed_assets.explain.sentences import explain_whereabouts
from feed_assets.instances.lists.rows import rendered
from feed_assets.lineage.recorded import RecordedLineage
from feed_assets.lineage.walk import find_standing, find_version, no_version
from feed_assets.log.events import EventLog
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.records import CONTENT, FeedEvent, FeedEventKind, FeedInstanceStatus, FeedKey
from feed_assets.log.removals.store import Sweeps
from feed_assets.timing.dates import render_datetime

_REPLACED = "REPLACED"


def explain_version(context: OperationContext, subject: Subject) -> Explained:
    """Explain the version of a current instance that stood in its place at a time."""
    at = subject.version
    assert at is not None
    with context.read() as connection:
        found = consolidate(subject.asked, lambda on: [_explain(context, connection, subject, on, at)])
    rows = tuple(render_summary(each, context.find_sequence) for each in found.items)
    return Explained(parts=found.parts, remarks=(), silence=None, rows=rows)


def _explain(
    context: OperationContext, connection: Connection, subject: Subject, cluster: str, at: datetime
) -> Explanation:
    record = context.feed_on(subject.name, cluster)
    key = FeedKey(*record.key, record.sequence.start)
    events, row = EventLog(connection).for_instances([key]).get(key, []), FeedInstances(connection).get(*key)
    version = find_standing(events, at)
    if version is None:
        raise no_version(events, at)
    is_replaced = any(each.kind in CONTENT and each.seq > version.seq for each in events)
    is_present = not is_replaced and row is not None and row.status is FeedInstanceStatus.AVAILABLE
    text = f"{version.kind.value} at {rendered(version.recorded_at)} {tell_event(version)}"
    return Explanation.of(
        key._replace(nominal_time=version.recorded_at.replace(microsecond=0)),
        FeedInstanceStatus.AVAILABLE.value if is_present else _REPLACED,
        Reason(code=ReasonCode.EVENT, text=text, facts=event_facts(version)),
        *_iter_ends(connection, key, version, events, is_present=is_present),
        *_iter_readers(context, connection, key, version, events),
    )


def _iter_ends(
    connection: Connection, key: FeedKey, version: FeedEvent, events: list[FeedEvent], *, is_present: bool
) -> Iterator[Reason]:
    """Yield what has become of a version."""
    if is_present:
        yield Reason(code=ReasonCode.EVENT, text="it is the present one")
        return
    after = [each for each in events if each.seq > version.seq]
    for end in [each for each in after if each.kind in CONTENT or each.kind is FeedEventKind.VANISHED][:1]:
        what = "it vanished from its place" if end.kind is FeedEventKind.VANISHED else "another came in its place"
        text = f"{what} at {rendered(end.recorded_at)} {tell_event(end)}"
        yield Reason(code=ReasonCode.EVENT, text=text, facts=event_facts(end))
        for gone in [each for each in after if each.kind is FeedEventKind.EVICTED and each.seq < end.seq][:1]:
            sweep = Sweeps(connection).find(str(gone.payload.get("sweep")))
            if sweep is not None and sweep.undone_at is not None:
                text = f"it was brought back at {rendered(sweep.undone_at)}"
                yield Reason(code=ReasonCode.EVENT, text=text, facts={"at": rendered(sweep.undone_at)})
            elif sweep is not None:
                yield from explain_whereabouts(key, gone, sweep)


def _iter_readers(
    context: OperationContext, connection: Connection, key: FeedKey, version: FeedEvent, events: list[FeedEvent]
) -> Iterator[Reason]:
    """Yield who has read a version."""
    for each in RecordedLineage(context.timeline, connection).find_readers([key]):
        tried, digest = each.attempt, each.digest
        until = min(tried.outputs, default=None)
        read = find_version(events, digest, tried.started_at, tried.ended_at, until)
        if (each.event or (read and read.seq)) == version.seq:
            instance = render_datetime(tried.nominal_time)
            text = f"process {tried.process} has read it at {instance}, attempt {tried.attempt}, as input {each.input}"
            facts = {"process": tried.process, "instance": instance, "attempt": tried.attempt, "run": tried.run_id}
            yield Reason(code=ReasonCode.INPUT_READ, text=text, facts=facts)
