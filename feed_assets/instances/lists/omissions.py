"""Find the optional outputs that an instance of a process has left out, from what the log has of their feeds."""

from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import Connection

from feed_assets.log.events import EventLog
from feed_assets.log.records import FeedEventKind, FeedKey, ProcessInstance, ProcessInstanceStatus
from feed_assets.releases.timeline import ActiveRelease
from feed_assets.timing.dates import render_datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Omission:
    """An output that the newest attempt has left out; `former` is the attempt that wrote what is there, if one did."""

    output: str
    feed: FeedKey
    former: int | None

    def render(self) -> str:
        """Return it as the end of a sentence about the process instance."""
        place = f"feed {self.feed.feed} {render_datetime(self.feed.nominal_time)}"
        kept = "" if self.former is None else f"; what attempt {self.former} wrote stays"
        return f"left out its optional output {self.output}, {place}{kept}"


def iter_omissions(connection: Connection, active: ActiveRelease, row: ProcessInstance) -> Iterator[Omission]:
    """Yield the optional outputs that an instance has left out; none unless it has succeeded.

    Of an output that was recorded from storage nobody knows which attempt wrote it: it counts as written.
    """
    if row.status is not ProcessInstanceStatus.SUCCEEDED:
        return
    optional = {
        FeedKey(*edge.feed_key, time): edge.name
        for edge in active.record.own_outputs
        if edge.optional and (time := active.plan.output_time(edge, row.nominal_time)) is not None
    }
    found = EventLog(connection).for_instances(optional)
    for feed, output in optional.items():
        written = [event for event in found.get(feed, ()) if event.kind is FeedEventKind.PRODUCED]
        former = written[-1].payload.get("attempt") if written else None
        if not written or (isinstance(former, int) and former < row.attempt):
            yield Omission(output=output, feed=feed, former=former if isinstance(former, int) else None)
