"""Decide how long the schedule leaves a feed alone whose retention became stricter: from the history of definitions."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import TypeAlias

from sqlalchemy import Connection

from feed_assets.entities.common import Kind
from feed_assets.entities.overlaps import NO_OVERLAPS
from feed_assets.json_form import NominalTime
from feed_assets.lifecycle.releases.timeline import ReleaseTimeline
from feed_assets.plan.records import FeedRecord, Key, RetentionRecord
from feed_assets.plan.retention import compile_retention, find_stricter
from feed_assets.state.definition_records import Member
from feed_assets.state.definitions import Definitions

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
    found: dict[Key, Grace] = {}
    for record in records if period else ():
        replaced = _iter_replaced(connection, timeline, record, as_of, period)
        grace = decide_grace(record.retention, replaced, as_of, period)
        if grace is not None:
            found[record.key] = grace
    return found


def _iter_replaced(
    connection: Connection, timeline: ReleaseTimeline, record: FeedRecord, as_of: datetime, period: timedelta
) -> Iterator[Replaced]:
    """Yield what was in force within the grace period, and the newest recorded definition."""
    definitions = Definitions(connection)
    history = definitions.history(Kind.FEED, record.feed)
    ends = [(former.version, newer.recorded_at) for former, newer in pairwise(history)]
    ends += [(newest.version, as_of) for newest in history[-1:]]
    on = definitions.find_newest(Kind.CLUSTER, record.cluster)
    if on is None:
        return
    for version, replaced_at in ends:
        if replaced_at + period <= as_of:
            continue
        members = (
            Member(kind=Kind.FEED, name=record.feed, version=version),
            Member(kind=on.kind, name=on.name, version=on.version),
        )
        bundle = timeline.load_recorded(connection, members).bundle
        feed, cluster = bundle.find_feed(record.feed), bundle.find_cluster(record.cluster)
        if feed is not None and cluster is not None and record.cluster in feed.clusters:
            yield compile_retention(feed, cluster, NO_OVERLAPS), replaced_at
