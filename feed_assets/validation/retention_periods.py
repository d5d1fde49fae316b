"""The time for which instances of a feed are certain to be kept, by all settings of its retention."""

from dataclasses import dataclass
from datetime import timedelta

from feed_assets.entities.feed import Feed
from feed_assets.timing.sequence import Frequency


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPeriod:
    """A period for which instances are kept, its text, the key that declares it, and the feed's frequency."""

    duration: timedelta
    text: str
    key: str
    frequency: Frequency

    def enough(self, least: Frequency) -> str:
        """Return the value that replaces `text` so that instances are kept for `least`."""
        if self.key == "limit":
            return least.render()
        return str(-(-least.as_duration() // self.frequency.as_duration()))


def find_retention_period(feed: Feed, cluster: str) -> RetentionPeriod | None:
    """Return how long instances are kept on a cluster; None if neither age nor number limits that.

    The period is the limit (a stage's, if there is one) or `max_instances`, whichever is shorter, but at least the
    `keep_newest` instances.
    """
    limit, retention = feed.retention_limit_on(cluster), feed.clusters[cluster].retention
    found = []
    if limit is not None:
        found.append(
            RetentionPeriod(duration=limit.as_duration(), text=limit.render(), key="limit", frequency=feed.frequency)
        )
    if retention is not None and retention.max_instances is not None:
        found.append(_counted(feed.frequency, retention.max_instances, "max_instances"))
    if not found:
        return None
    shortest = min(found, key=lambda each: each.duration)
    if retention is None or retention.keep_newest == 0:
        return shortest
    return max(shortest, _counted(feed.frequency, retention.keep_newest, "keep_newest"), key=lambda each: each.duration)


def _counted(frequency: Frequency, count: int, key: str) -> RetentionPeriod:
    try:
        duration = frequency.as_duration() * count
    except OverflowError:
        duration = timedelta.max
    return RetentionPeriod(duration=duration, text=f"{count:,} instances", key=key, frequency=frequency)
