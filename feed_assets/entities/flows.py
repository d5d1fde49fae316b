"""Flows of a feed: the pairs of source and target, the instances that are copied, and their delay."""

from datetime import timedelta

from feed_assets.entities.feed import ClusterRole, Feed
from feed_assets.timing.sequence import InstanceSequence


def find_sources(feed: Feed) -> tuple[str, ...]:
    """Return the clusters that a feed is copied from, in the order of declaration."""
    return _find_role(feed, ClusterRole.SOURCE)


def find_targets(feed: Feed) -> tuple[str, ...]:
    """Return the clusters that a feed is copied to, in the order of declaration."""
    return _find_role(feed, ClusterRole.TARGET)


def flow_sequence(feed: Feed, source: str, target: str) -> InstanceSequence | None:
    """Return the instances that are copied; None if there are none.

    These are the target's instances from the later start until before the earlier end. With a delay, the last instances
    are those whose copies still begin before that end.

    Differs from Falcon: a copy has the nominal time of the copied instance, not one that is later by the delay.
    """
    of_target, of_source = feed.sequence_on(target), feed.sequence_on(source)
    first = of_target.ceil(of_source.start)
    if first is None or are_validities_apart(feed, source, target):
        return None
    ends = [each.end for each in (of_source, of_target) if each.end is not None]
    end = min(ends) - flow_delay(feed, source) if ends else None
    if end is not None and end <= first:
        return None
    return InstanceSequence(start=first, frequency=feed.frequency, timezone=of_target.timezone, end=end)


def flow_delay(feed: Feed, source: str) -> timedelta:
    """Return the time between the nominal time and the start of a copy."""
    delay = feed.clusters[source].delay
    return delay.as_duration() if delay is not None else timedelta(0)


def are_validities_apart(feed: Feed, source: str, target: str) -> bool:
    """Return whether the validities of source and target do not even touch, which Falcon refuses.

    They do not touch if the later start plus the source's delay is after the earlier end.
    """
    delay = flow_delay(feed, source)
    one, other = feed.clusters[source].validity, feed.clusters[target].validity
    try:
        return one.start + delay > other.end or other.start + delay > one.end
    except OverflowError:
        return True


def _find_role(feed: Feed, role: ClusterRole) -> tuple[str, ...]:
    return tuple(name for name, entry in feed.clusters.items() if entry.type is role)
