"""The cursor of an arrival sensor in Dagster: which events of the log have been reported, and of which log.

A database that is restored from a backup has other events under the same numbers, or none. The cursor knows some of the
reported events by number and content. Reporting goes on after the newest of them that the log still has, so Dagster is
told everything that it lacks, and some events twice. Until the database has been rebuilt, nothing is launched.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from feed_assets.context.safe_mode import count_rebuilds, record_restore
from feed_assets.entities.maps import EMPTY
from feed_assets.log.events import EventLog
from feed_assets.log.records import FeedEvent
from feed_assets.sql.database import Database

_VERSION = 1
_DIGEST_CHARACTERS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedEvent:
    """An event that was reported: its number, and a digest of its content; "" if only the number is known."""

    seq: int
    digest: str = ""

    def is_of(self, event: FeedEvent) -> bool:
        """Return whether an event of a log is this one."""
        return self.seq == event.seq and self.digest in ("", digest_event(event))


@dataclass(frozen=True, slots=True, kw_only=True)
class TickCursor:
    """A sensor's cursor: some of the reported events, newest first, the digests of the location and of the health that
    its check shows, how often the database had been rebuilt, the event after which the next are `looked` at again, and
    how many replicas of each flow are `behind`, as their checks show.
    """

    reported: tuple[ReportedEvent, ...] = ()
    location: str = ""
    health: str = ""
    rebuilds: int = 0
    looked: int = 0
    behind: Mapping[str, int] = EMPTY

    @property
    def last_seq(self) -> int:
        """The number of the last reported event; 0 if none was reported."""
        return self.reported[0].seq if self.reported else 0

    def render(self) -> str:
        fields = {"version": _VERSION, "told": self.last_seq, "checked": self.location, "health": self.health}
        fields |= {"rebuilds": self.rebuilds, "looked": self.looked}
        fields |= {"behind": dict(self.behind)} if self.behind else {}
        return json.dumps({**fields, "events": [[each.seq, each.digest] for each in self.reported]})


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreported:
    """The next events to report, and the earlier events by which the cursor knows the log.

    `newest` is the last event that was looked at, also of another cluster; None if there is no other one. `lost` is the
    last reported event if the log does not have it.
    """

    events: Sequence[FeedEvent]
    known: tuple[ReportedEvent, ...]
    newest: FeedEvent | None = None
    lost: ReportedEvent | None = None

    def describe(self, cluster: str) -> str:
        """Return a sentence about a log that is another one."""
        after = self.known[0].seq if self.known else 0
        last = self.lost.seq if self.lost is not None else 0
        return (
            f"cluster {cluster}: the event {last}, reported before, is not in the log: the database was restored or "
            f"replaced; everything after the event {after} is reported again"
        )

    def following(self, location: str, health: str, rebuilds: int) -> TickCursor:
        """Return the cursor after these events have been reported."""
        known = self.known
        if (last := self.newest) is not None:
            known = thin_out((ReportedEvent(seq=last.seq, digest=digest_event(last)), *known))
        return TickCursor(reported=known, location=location, health=health, rebuilds=rebuilds)


def parse_cursor(text: str | None) -> TickCursor:
    """Parse a cursor; None is the cursor of a sensor that has never run.

    Raises:
        ValueError: the cursor has another format; it is never reset silently.
    """
    if text is None:
        return TickCursor()
    fields = json.loads(text)
    if not isinstance(fields, dict) or fields.get("version") != _VERSION:
        raise ValueError(f"cursor {text!r} does not have version {_VERSION}; reset it with `dagster sensor cursor`")
    told = int(fields["told"])
    events = [ReportedEvent(seq=int(seq), digest=str(digest)) for seq, digest in fields.get("events", ())]
    return TickCursor(
        reported=tuple(events) or ((ReportedEvent(seq=told),) if told else ()),
        location=str(fields["checked"]),
        health=str(fields.get("health", "")),
        rebuilds=int(fields.get("rebuilds", 0)),
        looked=int(fields.get("looked", 0)),
        behind=dict(fields.get("behind", {})),
    )


def notice_restore(database: Database, cursor: TickCursor) -> int:
    """Record it if the database was restored and not rebuilt since; return how often it has been rebuilt."""
    with database.read() as connection:
        rebuilds = count_rebuilds(connection)
        is_lost = bool(cursor.reported) and not _has_newest(connection, cursor)
    if is_lost and rebuilds <= cursor.rebuilds:
        with database.begin() as connection:
            record_restore(connection)
    return rebuilds


def _has_newest(connection: Connection, cursor: TickCursor) -> bool:
    newest = cursor.reported[0]
    return any(newest.is_of(event) for event in EventLog(connection).read(newest.seq - 1, 1))


def read_unreported(connection: Connection, cursor: TickCursor, cluster: str, limit: int) -> Unreported:
    """Read the next events of a cluster to report. Costs one statement while the log is that of the last report."""
    log = EventLog(connection)
    for position, known in enumerate(cursor.reported):
        events = log.read(known.seq - 1, limit + 1, clusters=[cluster])
        if events and known.is_of(events[0]):
            lost = cursor.reported[0] if position else None
            return _to_report(events[1:], cluster, cursor.reported[position:], lost)
    lost = cursor.reported[0] if cursor.reported else None
    return _to_report(log.read(0, limit, clusters=[cluster]), cluster, (), lost)


def _to_report(
    events: Sequence[FeedEvent], cluster: str, known: tuple[ReportedEvent, ...], lost: ReportedEvent | None
) -> Unreported:
    own = [event for event in events if event.cluster == cluster]
    return Unreported(events=own, known=known, newest=events[-1] if events else None, lost=lost)


def thin_out(reported: Iterable[ReportedEvent]) -> tuple[ReportedEvent, ...]:
    """Keep a few of the events, newest first: the distances between them grow with their age.

    >>> [each.seq for each in thin_out(ReportedEvent(seq=seq) for seq in (1000, 999, 998, 997, 900, 10))]
    [1000, 999, 997, 900, 10]
    """
    oldest: dict[int, ReportedEvent] = {}
    newest: int | None = None
    for each in reported:
        newest = each.seq if newest is None else newest
        oldest[(newest - each.seq).bit_length()] = each
    return tuple(oldest.values())


def digest_event(event: FeedEvent) -> str:
    """Return a digest that two events of different logs do not share; the same after the feed was renamed."""
    parts = (event.seq, event.cluster, event.nominal_time, event.kind, event.origin, event.recorded_at)
    return hashlib.sha256("|".join(map(str, parts)).encode()).hexdigest()[:_DIGEST_CHARACTERS]
