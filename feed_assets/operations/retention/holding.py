"""`hold`: named protections of instances against retention."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from feed_assets.entities.common import Kind
from feed_assets.operations.audit_notes import note_target
from feed_assets.operations.context import OperationContext
from feed_assets.operations.errors import InstanceQueryError
from feed_assets.operations.safe_mode import Operation, require_mode
from feed_assets.state.holds import Holds
from feed_assets.state.sweep_chunks import SweepChunks
from feed_assets.state.sweep_records import Hold, Sweep
from feed_assets.timing.dates import render_datetime

_MOMENT = timedelta(microseconds=1)
_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldSpan:
    """The scope of a hold: feeds (none: every feed) on clusters (none: every cluster), and `start <= nominal time <
    end`, or up to and including `last`.
    """

    feeds: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()
    start: datetime | None = None
    end: datetime | None = None
    last: datetime | None = None


def add_hold(
    context: OperationContext,
    name: str,
    span: HeldSpan,
    *,
    reason: str,
    author: str,
    expires_at: datetime | None = None,
    dry_run: bool = False,
) -> list[Hold]:
    """Protect instances against retention until the hold is released or expires. Several holds may protect the same
    instance. Instances that are created later are protected, too. Holds with the same name are released together.

    Raises:
        EntityNotFoundError: there is no such feed.
        InstanceQueryError: the name or reason is empty, a cluster is not declared, the range is empty, or the hold
            would already have expired.
    """
    _check(context, name, span, reason, expires_at)
    new = [
        Hold(
            name=name,
            feed=feed,
            cluster=cluster,
            first=span.start,
            last=span.last if span.end is None else span.end - _MOMENT,
            reason=reason,
            author=author,
            created_at=context.as_of,
            expires_at=expires_at,
        )
        for feed in span.feeds or (None,)
        for cluster in span.clusters or (None,)
    ]
    if dry_run:
        return new
    with context.database.begin() as connection:
        added = Holds(connection).add(new)
    note_target(context, author, "hold add", f"hold {name!r}", reason=reason, holds=len(added))
    return added


def release_hold(context: OperationContext, name: str, *, author: str, dry_run: bool = False) -> list[Hold]:
    """Release all active holds of a name, and return them.

    Raises:
        SafeModeError: safe mode is on.
        InstanceQueryError: the name has no active hold.
    """
    require_mode(context.database, Operation.RETENTION_RELEASE)
    with context.database.read() as connection:
        known = Holds(connection).of_name(name)
    active = [hold for hold in known if hold.released_at is None]
    if not active:
        reason = "it was already released" if known else "it does not exist"
        raise InstanceQueryError(
            subject=f"hold {name!r}", reason=reason, next_step="`feed-assets hold list` lists the holds."
        )
    if not dry_run:
        with context.database.begin() as connection:
            Holds(connection).release(name, context.as_of, author)
        note_target(context, author, "hold release", f"hold {name!r}", holds=len(active))
    return [replace(hold, released_at=context.as_of, released_by=author) for hold in active]


def list_holds(
    context: OperationContext, *, limit: int, everything: bool = False, feed: str | None = None
) -> list[Hold]:
    """Return the active holds; with `everything` also released and expired ones. Newest first."""
    with context.database.read() as connection:
        holds = Holds(connection)
        found = holds.newest() if everything else list(reversed(holds.active(context.as_of)))
    return [hold for hold in found if feed is None or hold.feed in (None, feed)][:limit]


def hold_restored(
    context: OperationContext,
    sweep: Sweep,
    feeds: Collection[str] | None,
    times: Collection[datetime] | None,
    author: str,
    until: datetime,
) -> list[Hold]:
    """Hold the instances that an undo restores, so that the next sweep does not remove them at once."""
    with context.database.read() as connection:
        heads = [
            head for head in SweepChunks(connection, sweep.sweep_id).heads() if feeds is None or head.feed in feeds
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
            author=author,
            created_at=context.as_of,
            expires_at=until,
        )
        for feed, (first, last) in sorted(spans.items())
    ]
    with context.database.begin() as connection:
        holds = Holds(connection)
        known = [hold for hold in holds.of_name(undo_hold_name(sweep)) if hold.is_active(context.as_of)]
        has = {(hold.feed, hold.first, hold.last) for hold in known}
        return known + holds.add([hold for hold in new if (hold.feed, hold.first, hold.last) not in has])


def undo_hold_name(sweep: Sweep) -> str:
    """Return the name of the hold that an undo places on restored instances."""
    return f"undo-{sweep.sweep_id}"


def _check(context: OperationContext, name: str, span: HeldSpan, reason: str, expires_at: datetime | None) -> None:
    for feed in span.feeds:
        context.clusters_of(Kind.FEED, feed)
    unknown = sorted(set(span.clusters) - set(context.plan.clusters))
    faults = [
        (not name.strip(), "a hold", "it has no name", "Give it a name that says its purpose."),
        (not reason.strip(), f"hold {name!r}", "it has no reason", "Give the reason, for people who find it later."),
        (
            bool(unknown),
            f"cluster {', '.join(unknown)}",
            "it is not declared",
            f"Declared are {', '.join(sorted(context.plan.clusters))}.",
        ),
        (
            span.start is not None and span.end is not None and span.end <= span.start,
            f"hold {name!r}",
            "its end is not after its start",
            "Give a later end; the end is exclusive.",
        ),
        (
            expires_at is not None and expires_at <= context.as_of,
            f"hold {name!r}",
            "it would already have expired",
            f"Give a time after {render_datetime(context.as_of)}.",
        ),
    ]
    for is_wrong, subject, what, next_step in faults:
        if is_wrong:
            raise InstanceQueryError(subject=subject, reason=what, next_step=next_step)


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else render_datetime(moment)
