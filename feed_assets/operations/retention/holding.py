"""`hold`: named protections of instances against retention."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from feed_assets.entities.common import Kind
from feed_assets.operations.errors import InstanceQueryError
from feed_assets.operations.retention.auditing import note_target
from feed_assets.operations.safe_mode import Operation, require_mode
from feed_assets.operations.scene import Scene
from feed_assets.state.holds import Holds
from feed_assets.state.sweep_chunks import SweepChunks
from feed_assets.state.sweep_records import Hold, Sweep
from feed_assets.timing.dates import render_datetime

VERSION = 1
_MOMENT = timedelta(microseconds=1)
_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldSpan:
    """What a hold is on: feeds (none: every feed) on clusters (none: every cluster), and `start <= nominal time < end`,
    or up to `last` itself.
    """

    feeds: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()
    start: datetime | None = None
    end: datetime | None = None
    last: datetime | None = None


def add_hold(
    scene: Scene,
    name: str,
    span: HeldSpan,
    *,
    reason: str,
    author: str,
    expires_at: datetime | None = None,
    dry_run: bool = False,
) -> list[Hold]:
    """Protect instances against retention until the hold is released or expires; several may protect the same.

    It holds also what comes into being later. More can be added under one name, and are released together.

    Raises:
        EntityNotFoundError: there is no such feed.
        InstanceQueryError: the name or reason is empty, a cluster is not declared, the range is none, or it would have
            expired already.
    """
    _check(scene, name, span, reason, expires_at)
    new = [
        Hold(
            name=name,
            feed=feed,
            cluster=cluster,
            first=span.start,
            last=span.last if span.end is None else span.end - _MOMENT,
            reason=reason,
            author=author,
            created_at=scene.as_of,
            expires_at=expires_at,
        )
        for feed in span.feeds or (None,)
        for cluster in span.clusters or (None,)
    ]
    if dry_run:
        return new
    with scene.database.begin() as connection:
        added = Holds(connection).add(new)
    note_target(scene, author, "hold add", f"hold {name!r}", reason=reason, holds=len(added))
    return added


def release_hold(scene: Scene, name: str, *, author: str, dry_run: bool = False) -> list[Hold]:
    """Give up all holds of a name that still protect something; returns them.

    Raises:
        SafeModeError: safe mode is on.
        InstanceQueryError: there is none.
    """
    require_mode(scene.database, Operation.RETENTION_RELEASE)
    with scene.database.read() as connection:
        known = Holds(connection).of_name(name)
    active = [hold for hold in known if hold.released_at is None]
    if not active:
        reason = "it was released already" if known else "there is none of this name"
        raise InstanceQueryError(
            subject=f"hold {name!r}", reason=reason, next_step="`feed-assets hold list` has those there are."
        )
    if not dry_run:
        with scene.database.begin() as connection:
            Holds(connection).release(name, scene.as_of, author)
        note_target(scene, author, "hold release", f"hold {name!r}", holds=len(active))
    return [replace(hold, released_at=scene.as_of, released_by=author) for hold in active]


def list_holds(scene: Scene, *, limit: int, everything: bool = False, feed: str | None = None) -> list[Hold]:
    """The holds that protect something now; with `everything` also those released or expired. Newest first."""
    with scene.database.read() as connection:
        holds = Holds(connection)
        found = holds.newest() if everything else list(reversed(holds.active(scene.as_of)))
    return [hold for hold in found if feed is None or hold.feed in (None, feed)][:limit]


def hold_undone(
    scene: Scene,
    sweep: Sweep,
    feeds: Collection[str] | None,
    times: Collection[datetime] | None,
    author: str,
    until: datetime,
) -> list[Hold]:
    """Hold what is about to come back, so that the next sweep does not take it away at once."""
    with scene.database.read() as connection:
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
            name=undo_hold(sweep),
            feed=feed,
            cluster=sweep.cluster,
            first=first,
            last=last,
            reason=f"sweep {sweep.sweep_id} was undone",
            author=author,
            created_at=scene.as_of,
            expires_at=until,
        )
        for feed, (first, last) in sorted(spans.items())
    ]
    with scene.database.begin() as connection:
        holds = Holds(connection)
        known = [hold for hold in holds.of_name(undo_hold(sweep)) if hold.is_active(scene.as_of)]
        has = {(hold.feed, hold.first, hold.last) for hold in known}
        return known + holds.add([hold for hold in new if (hold.feed, hold.first, hold.last) not in has])


def undo_hold(sweep: Sweep) -> str:
    """The name of the hold that an undo puts on what it brings back."""
    return f"undo-{sweep.sweep_id}"


def hold_to_json(hold: Hold) -> dict[str, object]:
    """The JSON form of a hold; `end` is the first minute after it, as nominal times are minutes."""
    return {
        "name": hold.name,
        "feed": hold.feed,
        "cluster": hold.cluster,
        "start": _text(hold.first),
        "end": _text(None if hold.last is None else hold.last.replace(second=0, microsecond=0) + _MINUTE),
        "reason": hold.reason,
        "author": hold.author,
        "created_at": _text(hold.created_at),
        "expires_at": _text(hold.expires_at),
        "released_at": _text(hold.released_at),
        "released_by": hold.released_by,
        "readable": hold.is_readable,
    }


def holds_to_json(holds: Sequence[Hold]) -> dict[str, object]:
    """The JSON form of holds, `version` 1."""
    return {"version": VERSION, "holds": [hold_to_json(hold) for hold in holds]}


def _check(scene: Scene, name: str, span: HeldSpan, reason: str, expires_at: datetime | None) -> None:
    for feed in span.feeds:
        scene.clusters_of(Kind.FEED, feed)
    unknown = sorted(set(span.clusters) - set(scene.plan.clusters))
    faults = [
        (not name.strip(), "a hold", "it has no name", "Give it a name that says what it is for."),
        (not reason.strip(), f"hold {name!r}", "it has no reason", "Say why, for those who meet it later."),
        (
            bool(unknown),
            f"cluster {', '.join(unknown)}",
            "it is not declared",
            f"Declared are {', '.join(sorted(scene.plan.clusters))}.",
        ),
        (
            span.start is not None and span.end is not None and span.end <= span.start,
            f"hold {name!r}",
            "its end is not after its start",
            "Give a later end; it is not included itself.",
        ),
        (
            expires_at is not None and expires_at <= scene.as_of,
            f"hold {name!r}",
            "it would have expired already",
            f"Give a time after {render_datetime(scene.as_of)}.",
        ),
    ]
    for is_wrong, subject, what, next_step in faults:
        if is_wrong:
            raise InstanceQueryError(subject=subject, reason=what, next_step=next_step)


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else render_datetime(moment)
