"""How long instances of a feed are sure to be kept, by all that its retention says of it."""

from dataclasses import dataclass
from datetime import timedelta

from feed_assets.entities.feed import Feed
from feed_assets.timing.frequency import Frequency


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A time for which instances are kept, how it is written, the key that says so, and what would be long enough."""

    duration: timedelta
    text: str
    key: str
    frequency: Frequency

    def enough(self, least: Frequency) -> str:
        """What to write in the place of `text` so that instances are kept for `least`."""
        if self.key == "limit":
            return least.render()
        return str(-(-least.as_duration() // self.frequency.as_duration()))


def find_kept(feed: Feed, cluster: str) -> Kept | None:
    """How long instances are kept on a cluster; None for ever, or for as long as they are not too large.

    The limit (a stage's, if there is one) or `max_instances`, whichever ends first, but at least the `keep_newest`.
    """
    limit, retention = feed.retention_limit_on(cluster), feed.clusters[cluster].retention
    found = []
    if limit is not None:
        found.append(Kept(duration=limit.as_duration(), text=limit.render(), key="limit", frequency=feed.frequency))
    if retention is not None and retention.max_instances is not None:
        found.append(_counted(feed.frequency, retention.max_instances, "max_instances"))
    if not found:
        return None
    shortest = min(found, key=lambda each: each.duration)
    if retention is None or retention.keep_newest == 0:
        return shortest
    return max(shortest, _counted(feed.frequency, retention.keep_newest, "keep_newest"), key=lambda each: each.duration)


def _counted(frequency: Frequency, count: int, key: str) -> Kept:
    try:
        duration = frequency.as_duration() * count
    except OverflowError:
        duration = timedelta.max
    return Kept(duration=duration, text=f"{count:,} instances", key=key, frequency=frequency)
