"""Decide which instances are skipped because they are created too late.

Causes are a stopped daemon, a process that was not scheduled, or a validity that began before the declaration.
"""

from datetime import timedelta
from typing import assert_never

from feed_assets.entities.process import CatchUp
from feed_assets.log.records import Cause

ON_TIME = timedelta(minutes=5)
"""An instance created with at most this delay is on time: longer than ticks, reloads and restarts take."""


def decide_catch_up(
    policy: CatchUp, lateness: timedelta, *, has_successor: bool, on_time: timedelta = ON_TIME
) -> Cause | None:
    """Return why an instance is skipped at its creation; None if it is kept.

    An instance that is on time is always kept, so a slow tick loses nothing, however short the frequency. Of the
    instances that are too late, `ALL` keeps every one, `LATEST` those without a successor, and `NONE` none.

    Differs from Falcon: Falcon has only `ALL`.

    Args:
        policy: of the process.
        lateness: how long ago the nominal time was.
        has_successor: whether the nominal time of the next instance has passed too.
        on_time: the greatest lateness that counts as on time.

    >>> late = timedelta(hours=3)
    >>> decide_catch_up(CatchUp.NONE, late, has_successor=False)
    <Cause.MISSED: 'MISSED'>
    >>> decide_catch_up(CatchUp.LATEST, late, has_successor=False)
    >>> decide_catch_up(CatchUp.NONE, timedelta(minutes=5), has_successor=False)
    """
    if lateness <= on_time:
        return None
    match policy:
        case CatchUp.ALL:
            return None
        case CatchUp.LATEST:
            return Cause.OVERTAKEN if has_successor else None
        case CatchUp.NONE:
            return Cause.MISSED
        case _:
            assert_never(policy)
