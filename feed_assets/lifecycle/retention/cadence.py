"""When retention of a feed comes next. Pure; how often it comes is compiled into its record."""

from datetime import datetime

from feed_assets.plan.records import RetentionRecord


def decide_next_turn(policy: RetentionRecord, last: datetime | None, as_of: datetime) -> datetime | None:
    """When retention comes next; None if never again. A moment that has passed means now.

    At once where it never came, then a cadence after the last time. Where it stops with the validity it comes a last
    time when that ends, so once, too, for a feed that had ended before.
    Differs from Falcon: by default it goes on after the end, also for a feed with a lifecycle that has ended; and what
    it missed is made up for by one turn.

    Args:
        policy: of the feed on the cluster.
        last: when it came last; None if it never did.
        as_of: stands for the present.
    """
    if last is None:
        return as_of
    if policy.stops_at is not None and last >= policy.stops_at:
        return None
    try:
        following = last + policy.cadence.as_duration()
    except OverflowError:
        return policy.stops_at
    return following if policy.stops_at is None else min(following, policy.stops_at)
