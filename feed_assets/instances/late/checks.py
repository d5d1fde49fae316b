"""Plan the checks of used inputs for late data: their due times and their end, counted from nominal times."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import assert_never

from feed_assets.entities.common import Kind
from feed_assets.entities.process import RetryPolicy
from feed_assets.instances.late.store import LateCheck
from feed_assets.plan.records import FeedRecord, Plan, ProcessRecord
from feed_assets.timing.dates import NEVER

FEED_POLICY = RetryPolicy.EXP_BACKOFF
FEED_DELAY = timedelta(hours=3)
SHORTEST_DELAY = timedelta(minutes=1)


def next_check(
    policy: RetryPolicy, delay: timedelta, nominal_time: datetime, cut_off_at: datetime, after: datetime
) -> datetime | None:
    """Return the first check after a time; None if there is none left.

    PERIODIC checks at nominal + d, 2d, 3d; EXP_BACKOFF at nominal + d, 3d, 7d; FINAL once, at the cut-off.

    All times are capped at the cut-off, and the check at the cut-off is the last. Before the nominal time the first
    check is at the nominal time.

    >>> from datetime import UTC
    >>> nominal = datetime(2016, 3, 17, 4, 56, tzinfo=UTC)
    >>> two = timedelta(minutes=2)
    >>> str(next_check(RetryPolicy.EXP_BACKOFF, two, nominal, nominal + 60 * two, nominal + 2 * two))
    '2016-03-17 05:02:00+00:00'
    """
    if after > cut_off_at:
        return None
    if after < nominal_time and policy is not RetryPolicy.FINAL:
        return min(nominal_time, cut_off_at)
    passed = after - nominal_time
    match policy:
        case RetryPolicy.PERIODIC:
            steps = passed // delay + 1
        case RetryPolicy.EXP_BACKOFF:
            steps = (1 << (passed // delay + 1).bit_length()) - 1
        case RetryPolicy.FINAL:
            return cut_off_at
        case _:
            assert_never(policy)
    if steps > (cut_off_at - nominal_time) // delay:
        return cut_off_at
    return min(nominal_time + steps * delay, cut_off_at)


def latest_cut_off(window_ends: Iterable[tuple[datetime, timedelta | None]]) -> datetime | None:
    """Return the cut-off of a process instance: the latest window end of a late input plus the cut-off of its feed.

    Feeds without a cut-off are left out; None if no feed has one.
    """
    return max((cut_off_at(end, cut_off) for end, cut_off in window_ends if cut_off is not None), default=None)


def cut_off_at(moment: datetime, cut_off: timedelta) -> datetime:
    """Return a time plus a cut-off, at most NEVER."""
    return NEVER if cut_off > NEVER - moment else moment + cut_off


def process_cut_off(plan: Plan, process: ProcessRecord, nominal_time: datetime) -> datetime | None:
    """Return the cut-off of a process instance; None if no feed of its late inputs has a cut-off."""
    ends = []
    for edge in process.inputs:
        cut_off = plan.feeds[edge.feed_key].late_cut_off
        if edge.is_late and cut_off is not None and edge.window is not None:
            zone = edge.window.zone or plan.feeds[edge.feed_key].sequence.timezone
            ends.append((edge.window.end.evaluate(nominal_time, zone), cut_off.as_duration()))
    return latest_cut_off(ends)


def decide_process_check(
    plan: Plan, process: ProcessRecord, nominal_time: datetime, as_of: datetime
) -> LateCheck | None:
    """Return the first check of a process instance that just succeeded; None if late data can no longer change it."""
    cut_off = process_cut_off(plan, process, nominal_time)
    if process.late is None or cut_off is None:
        return None
    due_at = next_check(process.late.policy, process.late.delay.as_duration(), nominal_time, cut_off, as_of)
    return None if due_at is None else _planned(Kind.PROCESS, process.key, nominal_time, as_of, due_at, cut_off)


def decide_feed_check(record: FeedRecord, nominal_time: datetime, as_of: datetime) -> LateCheck | None:
    """Return the first check of a feed instance that just arrived; it is due at once and determines the content.

    None if the feed has no cut-off, or if a process reads it as a late input and checks it by its own rule.
    """
    if record.late_cut_off is None or not record.is_external or any(edge.is_late for edge in record.inputs_of):
        return None
    cut_off = cut_off_at(nominal_time, record.late_cut_off.as_duration())
    return None if as_of > cut_off else _planned(Kind.FEED, record.key, nominal_time, as_of, as_of, cut_off)


def _planned(
    kind: Kind, key: tuple[str, str], nominal_time: datetime, as_of: datetime, due_at: datetime, cut_off: datetime
) -> LateCheck:
    name, cluster = key
    return LateCheck(
        kind=kind.value,
        name=name,
        cluster=cluster,
        nominal_time=nominal_time,
        planned_at=as_of,
        due_at=due_at,
        cut_off_at=cut_off,
    )


def decide_put_off(check: LateCheck, as_of: datetime, pause: timedelta | None = None) -> datetime:
    """Return when a check that cannot be made now is due again: after a pause, by default the same delay.

    At the latest at the cut-off, if that is still to come.
    """
    again = as_of + (max(check.delay, SHORTEST_DELAY) if pause is None else pause)
    return check.cut_off_at if as_of < check.cut_off_at < again else again
