"""Find which process instances read an instance of a feed: by the current plan, and by the releases before it."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from feed_assets.plan.edges import InputEdge, Key
from feed_assets.plan.records import FeedRecord
from feed_assets.releases.timeline import ActiveRelease, ReleaseTimeline
from feed_assets.timing.expressions import DataDriven

_NONE = range(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedReader:
    """A process that reads a feed through an input, by the definitions of one span of its instances."""

    active: ActiveRelease
    edge: InputEdge

    @property
    def process(self) -> Key:
        """(process, cluster)."""
        return self.active.record.key

    @property
    def newest_read(self) -> int | None:
        """The number of newest instances that a `latest` window covers; None for other windows."""
        window = self.edge.window
        return 1 - window.start.n if window is not None and window.start.data_driven is DataDriven.LATEST else None

    def readers(self, nominal_time: datetime) -> range:
        """Return the indices of the process instances that read a feed instance.

        Empty for a `latest` window, which reads the newest instances. For a `future` window, which depends on
        availability, return all possible readers.
        """
        feed = self.active.plan.feeds[self.edge.feed_key].sequence
        process = self.active.record.sequence
        index = feed.index_at_or_before(nominal_time)
        if self.newest_read is not None or index < 0 or feed.at(index) != nominal_time:
            return _NONE
        window = self.edge.window
        if window is not None and window.start.data_driven is DataDriven.FUTURE:
            first = max(0, index - window.end.limit)
            found = process.indices_between(feed.at(first), feed.at(index + 1))
        else:
            found = self.active.plan.reader_indices(self.edge, range(index, index + 1))
        governs = self.active.between(self.active.start, self.active.stop)
        return range(max(found.start, governs.start), min(found.stop, governs.stop)) if found else _NONE

    def at(self, index: int) -> datetime:
        """Return the nominal time of a process instance."""
        return self.active.record.sequence.at(index)


def find_feed_readers(connection: Connection, timeline: ReleaseTimeline, record: FeedRecord) -> list[FeedReader]:
    """Return all readers of a feed, as processes and flows: by the current plan and by their older releases."""
    keys = {edge.process_key: None for edge in record.inputs_of}
    for older in timeline.older_readers(record.cluster):
        if any(edge.feed_key == record.key for edge in older.record.inputs):
            keys.setdefault(older.record.key)
    return [
        FeedReader(active=active, edge=edge)
        for key in keys
        for active in timeline.spans(connection, key)
        for edge in active.record.inputs
        if edge.feed_key == record.key
    ]
