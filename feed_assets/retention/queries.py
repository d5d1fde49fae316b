"""What a hold is to protect: the options of `hold add`, which travel together."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from feed_assets.entities.common import Kind
from feed_assets.operation import Param
from feed_assets.parameters import Clusters


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldQuery:
    """Feeds (none: every feed) on clusters (none: every cluster), and `start <= nominal time < end`, or one instance.

    Times are in the time zone of each feed unless they are UTC times.
    """

    feeds: Annotated[tuple[str, ...], Param("The feed; may be repeated.", option="feed", of=(Kind.FEED,))] = ()
    every_feed: Annotated[bool, Param("Hold every feed.")] = False
    clusters: Clusters = ()
    start: Annotated[str | None, Param("From this nominal time on; by default from the first.")] = None
    end: Annotated[str | None, Param("Before this nominal time; by default all future instances, too.")] = None
    instance: Annotated[str | None, Param("Only this nominal time, instead of --start and --end.")] = None
    until: Annotated[datetime | None, Param("When the hold expires; by default never.")] = None
    reason: Annotated[str, Param("The reason, for people who find the hold later.")]
