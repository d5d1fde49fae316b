"""What the check `on_time` of a feed says: which of its instances are late now."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from feed_assets.alerts.deadlines.records import SlaMiss
from feed_assets.alerts.deadlines.store import SlaMisses
from feed_assets.entities.common import Kind
from feed_assets.log.messages.levels import SlaLevel
from feed_assets.plan.rendering import counted
from feed_assets.timing.dates import render_datetime

NAMED = 50
"""So many late instances are named, oldest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedLateness:
    """The late instances of a feed on a cluster that nobody has acknowledged, oldest first; `level` is the highest
    deadline that one of them has missed, None if none is late.
    """

    level: SlaLevel | None = None
    late: tuple[tuple[datetime, SlaLevel], ...] = ()

    @property
    def token(self) -> str:
        """A text that differs if anything has changed; empty if nothing is late."""
        return ",".join(f"{time:%Y%m%d%H%M%S}{level.value[0]}" for time, level in self.late)

    @property
    def sentence(self) -> str:
        """The state in a sentence."""
        if not self.late:
            return "no instance is late"
        times = [render_datetime(time) for time, _ in self.late]
        since = f", the oldest {times[0]}" if len(times) > 1 else f": {times[0]}"
        return f"{counted(len(times), 'instance')} late{since}"


def find_lateness(
    connection: Connection, cluster: str, feeds: Iterable[str] | None = None
) -> Mapping[str, FeedLateness]:
    """Return the lateness of the feeds on a cluster that are late, by name; of some feeds if given.

    It reads what is late, and nothing else.
    """
    misses = SlaMisses(connection)
    if feeds is None:
        late = misses.open(cluster, Kind.FEED)
    else:
        late = [miss for feed in feeds for miss in misses.open(cluster, Kind.FEED, feed)]
    by_feed: dict[str, list[SlaMiss]] = {}
    for miss in late:
        if miss.acknowledged_at is None:
            by_feed.setdefault(miss.name, []).append(miss)
    return {feed: _lateness(found) for feed, found in by_feed.items()}


def _lateness(misses: Iterable[SlaMiss]) -> FeedLateness:
    levels: dict[datetime, SlaLevel] = {}
    for miss in misses:
        if levels.get(miss.nominal_time) is not SlaLevel.HIGH:
            levels[miss.nominal_time] = miss.level
    level = SlaLevel.HIGH if SlaLevel.HIGH in levels.values() else SlaLevel.LOW
    return FeedLateness(level=level, late=tuple(sorted(levels.items())))
