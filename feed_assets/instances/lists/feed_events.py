"""The events of the instances of a feed, with what their senders say, and how many were cleaned up."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from heapq import merge
from itertools import islice

from feed_assets.context.operation import OperationContext
from feed_assets.entities.common import Kind
from feed_assets.errors import WrongUsageError
from feed_assets.json_form import Hidden
from feed_assets.log.events import EventLog
from feed_assets.log.records import FeedEvent, render_payload
from feed_assets.masking import mask, mask_values
from feed_assets.timing.dates import render_datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedEvents:
    """Some events of a feed, the newest first; `cleaned_up` of the feed are not in the log any more."""

    feed: Hidden[str]
    events: tuple[FeedEvent, ...]
    has_more: bool
    cleaned_up: int

    @property
    def notes(self) -> tuple[str, ...]:
        """What is not shown."""
        more = f"only the newest {len(self.events):,}; --limit shows more" if self.has_more else ""
        gone = f"{self.cleaned_up:,} events of feed {self.feed!r} were cleaned up, long after their data were evicted"
        return (more, gone if self.cleaned_up else "")


def find_events(
    context: OperationContext,
    feed: str,
    *,
    cluster: str | None,
    start: datetime | None,
    end: datetime | None,
    payload: Mapping[str, str],
    limit: int,
) -> FeedEvents:
    """Return at most `limit` events of the instances of a feed from `start` to before `end`, if given. `payload` are
    values of what the sender or the program says, as they are shown, without secrets. The
    feed and the cluster need not be declared any more.

    Raises:
        EntityNotFoundError: no feed of this name was ever declared.
        InstanceQueryError: there never was this cluster.
        WrongUsageError: the start is after the end.
    """
    if start is not None and end is not None and start > end:
        raise WrongUsageError(
            f"--start {render_datetime(start)} is after --end {render_datetime(end)}; give an earlier --start."
        )
    with context.read() as connection:
        context.kinds_ever(connection, feed, Kind.FEED)
        clusters = context.clusters_ever(connection, (cluster,) if cluster else ())
        log = EventLog(connection)
        newest = merge(
            *(log.iter_newest(feed, each, start, end) for each in clusters),
            key=lambda event: event.seq,
            reverse=True,
        )
        wanted = {f"{name}={value}" for name, value in payload.items()}
        found = (each for each in newest if wanted <= _render({**each.payload, **each.message}))
        events = tuple(islice(found, limit + 1))
        gone = sum(log.count_removed(feed, each) for each in clusters)
    return FeedEvents(feed=feed, events=events[:limit], has_more=len(events) > limit, cleaned_up=gone)


def _render(payload: Mapping[str, object]) -> set[str]:
    return {mask(f"{name}={render_payload(value)}") for name, value in mask_values(payload).items()}
