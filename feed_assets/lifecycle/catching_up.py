"""Which instances are left out because their time came while nobody looked: the daemon stood still, the process was not
scheduled, or its validity began before it was declared.
"""

from datetime import timedelta
from typing import assert_never

from feed_assets.entities.process import CatchUp

ON_TIME = timedelta(minutes=5)
"""How late an instance may come into being and still be on time: longer than ticks, reloads and restarts take."""

MISSED = "its time came while nobody looked, and catch_up is none"
OVERTAKEN = "its time and that of a newer instance came while nobody looked, and catch_up is latest"


def decide_catch_up(
    policy: CatchUp, lateness: timedelta, *, has_successor: bool, on_time: timedelta = ON_TIME
) -> str | None:
    """Why an instance that comes into being is left out at once; None if it is not.

    One that is on time never is, so that a slow tick loses nothing, however short the frequency. Of those that are too
    late `ALL` leaves out none, `LATEST` those that have a successor, and `NONE` all.

    Differs from Falcon: it knows `ALL` only.

    Args:
        policy: of the process.
        lateness: how long ago the nominal time was.
        has_successor: whether the time of the next instance has come too.
        on_time: up to which lateness an instance is on time.

    >>> late = timedelta(hours=3)
    >>> decide_catch_up(CatchUp.NONE, late, has_successor=False)
    'its time came while nobody looked, and catch_up is none'
    >>> decide_catch_up(CatchUp.LATEST, late, has_successor=False)
    >>> decide_catch_up(CatchUp.NONE, timedelta(minutes=5), has_successor=False)
    """
    if lateness <= on_time:
        return None
    match policy:
        case CatchUp.ALL:
            return None
        case CatchUp.LATEST:
            return OVERTAKEN if has_successor else None
        case CatchUp.NONE:
            return MISSED
        case _:
            assert_never(policy)
