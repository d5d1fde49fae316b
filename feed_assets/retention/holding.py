"""`hold`: named protections of instances against retention."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from feed_assets.access.rights import require_acts
from feed_assets.command_lines import command_line
from feed_assets.context.errors import InstanceQueryError
from feed_assets.context.operation import ChangeContext, OperationContext, Subject, note_target, resolve_subject
from feed_assets.entities.common import Kind
from feed_assets.errors import Fault
from feed_assets.instances.attempts.displacement import MIRRORED
from feed_assets.json_form import Hidden
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.removals.chunks import SweepChunks
from feed_assets.log.removals.holds import Holds
from feed_assets.log.removals.records import VERSION, Hold, Sweep
from feed_assets.retention.queries import HoldQuery
from feed_assets.retention.rules.hold_traces import HoldTraces, UnsettledStore
from feed_assets.timing.dates import render_datetime
from feed_assets.timing.sequence import InstanceSequence, parse_instance

_UTC = ZoneInfo("UTC")
_MOMENT = timedelta(microseconds=1)
_FIRST, _LAST = datetime(1, 1, 2, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldChange:
    """The holds that were placed or released, what was done in a sentence, and the stores that do not know it yet."""

    holds: tuple[Hold, ...]
    unsettled: tuple[UnsettledStore, ...] = ()
    sentence: Hidden[str] = ""

    @property
    def notes(self) -> tuple[str, ...]:
        """What was done, and which stores do not know it."""
        return (self.sentence, *(each.sentence for each in self.unsettled))


def add_holds(context: ChangeContext, name: str, query: HoldQuery) -> HoldChange:
    """Protect instances against retention until the hold is released or expires. Several holds may protect the same
    instance. Instances that are created later are protected, too. Holds with the same name are released together.
    A storage that is away does not prevent it.

    Raises:
        EntityNotFoundError: there is no such feed.
        DateTimeError: a text is not a time.
        InstanceQueryError: the name or reason is empty, a cluster is not declared, the range is empty or has no
            instance, or the hold would already have expired.
    """
    feeds = [resolve_subject(context, feed, kind=Kind.FEED) for feed in query.feeds] or (None,)
    holds = [_hold(context, name, feed, query) for feed in feeds]
    context.require_clusters(query.clusters)
    for hold in holds:
        _check(context, hold)
        _require_cover(context, hold, query.clusters)
    new = [replace(hold, cluster=cluster) for hold in holds for cluster in query.clusters or (None,)]
    if context.dry_run:
        return HoldChange(holds=tuple(new), sentence=f"would be held by {name!r}")
    with context.database.begin() as connection:
        added = Holds(connection).add(new)
    note_target(context, "hold add", f"hold {name!r}", reason=query.reason, holds=len(added))
    return _with_traces(context, added, f"held by {name!r}")


def _hold(context: ChangeContext, name: str, feed: Subject | None, query: HoldQuery) -> Hold:
    """Return the hold on a feed (none: every feed), on all clusters."""

    def parse(text: str | None) -> datetime | None:
        if text is None:
            return None
        return parse_instance(text, _UTC) if feed is None else feed.parse(text)

    only, end = parse(query.instance), parse(query.end)
    return Hold(
        name=name,
        feed=None if feed is None else feed.name,
        first=only or parse(query.start),
        last=only if end is None else end - _MOMENT,
        reason=query.reason,
        author=context.author,
        created_at=context.as_of,
        expires_at=query.until,
    )


def release_hold(context: ChangeContext, name: str) -> HoldChange:
    """Release all active holds of a name. A storage that is away does not prevent it.

    Raises:
        InstanceQueryError: the name has no active hold.
    """
    with context.database.read() as connection:
        known = Holds(connection).of_name(name)
    active = [hold for hold in known if hold.released_at is None]
    feeds = [hold.feed for hold in active]
    require_acts(((Kind.FEED.value, feed) for feed in feeds if feed is not None), everything=None in feeds)
    if not active:
        reason = "it was already released" if known else "it does not exist"
        raise InstanceQueryError(
            subject=f"hold {name!r}",
            reason=reason,
            next_step=f"List the holds: {command_line('hold', 'list')}",
            fault=Fault.MISSING,
        )
    released = [replace(hold, released_at=context.as_of, released_by=context.author) for hold in active]
    if context.dry_run:
        return HoldChange(holds=tuple(released), sentence=f"would release {name!r}")
    with context.database.begin() as connection:
        Holds(connection).release(name, context.as_of, context.author)
    note_target(context, "hold release", f"hold {name!r}", holds=len(active))
    return _with_traces(context, released, f"released {name!r}")


def _with_traces(context: OperationContext, holds: Sequence[Hold], sentence: str = "") -> HoldChange:
    """Bring the traces of changed holds up to date."""
    traces = HoldTraces(context=context, as_of=context.as_of)
    traces.settle_reachable(holds)
    return HoldChange(holds=tuple(holds), unsettled=tuple(traces.unsettled), sentence=sentence)


def hold_restored(
    context: ChangeContext,
    sweep: Sweep,
    feeds: Collection[str] | None,
    times: Collection[datetime] | None,
    until: datetime,
) -> HoldChange:
    """Hold the instances that an undo restores, so that the next sweep does not remove them at once.

    What a mirror has displaced belongs to no instance, and of what has versions no sweep removes the instance.
    """
    with context.database.read() as connection:
        heads = [
            head
            for head in SweepChunks(connection, sweep.sweep_id).heads()
            if (feeds is None or head.feed in feeds) and head.kind not in (MIRRORED, VERSION)
        ]
    spans: dict[str, tuple[datetime, datetime]] = {}
    for head in heads:
        first, last = spans.get(head.feed, (head.first, head.last))
        spans[head.feed] = (min(first, head.first), max(last, head.last))
    if times:
        spans = {feed: (min(times), max(times)) for feed in spans}
    new = [
        Hold(
            name=undo_hold_name(sweep),
            feed=feed,
            cluster=sweep.cluster,
            first=first,
            last=last,
            reason=f"sweep {sweep.sweep_id} was undone",
            author=context.author,
            created_at=context.as_of,
            expires_at=until,
        )
        for feed, (first, last) in sorted(spans.items())
    ]
    with context.database.begin() as connection:
        holds = Holds(connection)
        known = [hold for hold in holds.of_name(undo_hold_name(sweep)) if hold.is_active(context.as_of)]
        has = {(hold.feed, hold.first, hold.last) for hold in known}
        added = holds.add([hold for hold in new if (hold.feed, hold.first, hold.last) not in has])
    return _with_traces(context, known + added)


def undo_hold_name(sweep: Sweep) -> str:
    """Return the name of the hold that an undo places on restored instances."""
    return f"undo-{sweep.sweep_id}"


def _check(context: OperationContext, hold: Hold) -> None:
    subject = f"hold {hold.name!r}"
    is_empty = hold.first is not None and hold.last is not None and hold.last < hold.first
    is_over = hold.expires_at is not None and hold.expires_at <= context.as_of
    later = f"Give a time after {render_datetime(context.as_of)}."
    faults = [
        (not hold.name.strip(), "a hold", "it has no name", "Give it a name that says its purpose."),
        (not hold.reason.strip(), subject, "it has no reason", "Give the reason, for people who find it later."),
        (is_empty, subject, "its end is not after its start", "Give a later end; the end is exclusive."),
        (is_over, subject, "it would already have expired", later),
    ]
    for is_wrong, of, what, next_step in faults:
        if is_wrong:
            raise InstanceQueryError(subject=of, reason=what, next_step=next_step)


def _require_cover(context: OperationContext, hold: Hold, clusters: Collection[str]) -> None:
    """Require that a hold covers an instance of a feed, declared or on record; the error names the nearest one."""
    if hold.feed is None or (hold.first is None and hold.last is None):
        return
    keys = [(hold.feed, each) for each in clusters or context.plan.clusters if (hold.feed, each) in context.plan.feeds]
    start, last = hold.first or _FIRST, hold.last or _LAST
    with context.database.read() as connection:
        rows = FeedInstances(connection)
        if any(rows.find_between(*key, start, last) for key in keys):
            return
    near = [time for key in keys for time in _find_nearest(context.plan.feeds[key].sequence, start, last)]
    if any(start <= time <= last for time in near):
        return
    nearest = min(near, key=lambda time: max(start - time, time - last), default=None)
    ends = {"from": hold.first, "before": hold.end}
    span_text = " ".join(f"{word} {render_datetime(time)}" for word, time in ends.items() if time is not None)
    what = render_datetime(start) if start == last else span_text
    raise InstanceQueryError(
        subject=f"hold {hold.name!r}",
        reason=f"it covers nothing: feed {hold.feed!r} has no instance {what}",
        next_step=f"The nearest instance is {render_datetime(nearest)}." if nearest else "Choose another cluster.",
    )


def _find_nearest(sequence: InstanceSequence, start: datetime, last: datetime) -> list[datetime]:
    """Return the instances next to both ends of a span, of which one is in the span if any is."""
    found = {sequence.index_at_or_after(max(start, sequence.start)), sequence.index_at_or_before(start)}
    found |= {sequence.index_at_or_before(min(last, sequence.end - _MOMENT if sequence.end else last))}
    return [time for n in found if n >= 0 and sequence.contains(time := sequence.at(n))]
