"""Which process instances write or read an instance of a feed by their windows, each by what governs it."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import cache
from typing import NamedTuple

from sqlalchemy import Connection

from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import ProcessInstanceStatus, ProcessKey
from feed_assets.plan.edges import InputEdge, Key, OutputEdge
from feed_assets.plan.records import FeedRecord
from feed_assets.releases.timeline import ActiveRelease, ReleaseTimeline
from feed_assets.timing.expressions import DataDriven
from feed_assets.timing.windows import Window, parse_window

_ALL = frozenset(ProcessInstanceStatus)


class Writer(NamedTuple):
    """A process instance that writes the instance of a feed at a time."""

    feed_time: datetime
    edge: OutputEdge
    key: ProcessKey


class Reader(NamedTuple):
    """A process instance that reads the instance of a feed at a time. With `latest` and `future` it may."""

    feed_time: datetime
    edge: InputEdge
    key: ProcessKey


def find_writers(
    timeline: ReleaseTimeline, connection: Connection, record: FeedRecord, times: Sequence[datetime]
) -> list[Writer]:
    """Return the process instances that write some instances of a feed."""
    return [
        Writer(feed_time, edge, key)
        for active in iter_spans(timeline, connection, record, [edge.process_key for edge in record.outputs_of])
        for edge in active.record.outputs
        if edge.feed_key == record.key
        for feed_time, key in _iter_touching(connection, active, record, edge.window, times)
    ]


def find_readers(
    timeline: ReleaseTimeline, connection: Connection, record: FeedRecord, times: Sequence[datetime]
) -> list[Reader]:
    """Return the process instances that read some instances of a feed by a window."""
    return [
        Reader(feed_time, edge, key)
        for active in iter_spans(timeline, connection, record, [edge.process_key for edge in record.inputs_of])
        for edge in active.record.inputs
        if edge.feed_key == record.key and edge.window is not None
        for feed_time, key in _iter_touching(connection, active, record, edge.window, times)
    ]


def iter_spans(
    timeline: ReleaseTimeline, connection: Connection, record: FeedRecord, processes: Iterable[Key]
) -> Iterator[ActiveRelease]:
    """Yield the releases in effect of all processes that touch a feed, by the current definitions or an older
    release.
    """
    older = [*timeline.older(record.cluster), *timeline.older_readers(record.cluster)]
    for process in sorted({*processes, *(each.record.key for each in older)}):
        yield from timeline.spans(connection, process)


def _iter_touching(
    connection: Connection, active: ActiveRelease, record: FeedRecord, window: Window, times: Sequence[datetime]
) -> Iterator[tuple[datetime, ProcessKey]]:
    """Yield the instances of a release span whose window contains one of the feed's instances, by the feed of that
    span; only those that there are, if something makes each.
    """
    feed, process = active.plan.feeds.get(record.key), active.record
    if feed is None:
        return
    spans: dict[datetime, range] = {}
    for time in times:
        if feed.sequence.contains(time):
            found = _consumers(window, feed.sequence.index(time), active, feed)
            spans |= {time: found} if found else {}
    at = process.sequence.at
    if process.is_enumerated:
        pairs: Iterable[tuple[datetime, datetime]] = ((time, at(n)) for time, found in spans.items() for n in found)
    else:
        pieces = {time: (at(found[0]), at(found[-1])) for time, found in spans.items()}
        there = ProcessInstances(connection).times_in({process.key: [*pieces.values()]}, _ALL)
        pairs = (
            (time, each)
            for time, (first, last) in pieces.items()
            for known in there.values()
            for each in known
            if first <= each <= last
        )
    yield from ((time, ProcessKey(*process.key, each)) for time, each in pairs if active.contains(each))


def _consumers(window: Window, index: int, active: ActiveRelease, feed: FeedRecord) -> range:
    sequence = active.record.sequence
    match window.start.data_driven:
        case DataDriven.FUTURE:
            reached = feed.sequence.clip(range(index - window.end.limit, index + 1))
            return _own_time().consumers_of_range(reached, feed.sequence, sequence)
        case DataDriven.LATEST:
            return _own_time().consumers(index, feed.sequence, sequence)
        case None:
            return window.consumers(index, feed.sequence, sequence)


@cache  # building the parser of expressions takes a tenth of a second, which `why` need not wait for
def _own_time() -> Window:
    return parse_window("now(0,0)", "now(0,0)")
