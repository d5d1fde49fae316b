"""Decide how long the schedule leaves a feed alone whose retention became stricter: from the history of definitions."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import TypeAlias

from sqlalchemy import Connection

from feed_assets.entities.common import Kind
from feed_assets.entities.locations.overlaps import NO_OVERLAPS
from feed_assets.json_form import NominalTime
from feed_assets.log.definitions.records import Member
from feed_assets.log.definitions.store import Definitions
from feed_assets.plan.edges import Key
from feed_assets.plan.records import FeedRecord, RetentionRecord
from feed_assets.plan.retention import compile_retention, find_stricter
from feed_assets.releases.changed import is_applied
from feed_assets.releases.timeline import ReleaseTimeline
from feed_assets.timing.errors import TimingError

Replaced: TypeAlias = tuple[RetentionRecord | None, datetime]
"""A former retention, None if it kept everything, and the moment at which another one replaced it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grace:
    """A grace period: the schedule acts on the retention of a feed from `until` on, because `fields` are stricter."""

    until: NominalTime
    fields: tuple[str, ...]


def decide_grace(
    present: RetentionRecord | None, replaced: Iterable[Replaced], as_of: datetime, period: timedelta
) -> Grace | None:
    """Decide the grace period of a retention; None if it is over, or if it is no stricter than what it replaced."""
    found = [
        Grace(until=replaced_at + period, fields=fields)
        for former, replaced_at in replaced
        if replaced_at + period > as_of and (fields := find_stricter(former, present))
    ]
    return max(found, key=lambda grace: grace.until, default=None)


def find_graces(
    connection: Connection, timeline: ReleaseTimeline, records: Iterable[FeedRecord], as_of: datetime, period: timedelta
) -> dict[Key, Grace]:
    """Find the feeds in a grace period, by (feed, cluster). A definition that is not recorded yet counts as new."""
    records = list(records) if period else []
    is_recorded = not records or is_applied(connection, timeline)
    found: dict[Key, Grace] = {}
    for record in records:
        history = Definitions(connection).history(Kind.FEED, record.feed)
        ends = [(former.version, newer.recorded_at) for former, newer in pairwise(history)]
        ends += [] if is_recorded else [(newest.version, as_of) for newest in history[-1:]]
        recent = [(version, replaced_at) for version, replaced_at in ends if replaced_at + period > as_of]
        replaced = _iter_retained(connection, timeline, record, recent)
        grace = decide_grace(record.retention, replaced, as_of, period)
        if grace is not None:
            found[record.key] = grace
    return found


def _iter_retained(
    connection: Connection, timeline: ReleaseTimeline, record: FeedRecord, ends: Iterable[tuple[int, datetime]]
) -> Iterator[Replaced]:
    """Yield the retention of former versions of a feed on a cluster, each with the moment at which it ended."""
    for version, replaced_at in ends:
        on = Definitions(connection).find_newest(Kind.CLUSTER, record.cluster)
        if on is None:
            return
        members = (
            Member(kind=Kind.FEED, name=record.feed, version=version),
            Member(kind=on.kind, name=on.name, version=on.version),
        )
        bundle = timeline.load_recorded(connection, members).bundle
        feed, cluster = bundle.find_feed(record.feed), bundle.find_cluster(record.cluster)
        if feed is None or cluster is None or record.cluster not in feed.clusters:
            continue
        try:
            yield compile_retention(feed, cluster, NO_OVERLAPS), replaced_at
        except TimingError:  # it was never in force: its templates are wrong
            continue
