"""Find the instances that may have read other content than an event of the log brings, for those that follow updates.

Readers follow from windows, not from a search. Whether an instance has really read other content is decided after that.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime

from sqlalchemy import Connection

from feed_assets.entities.flow_names import is_flow
from feed_assets.instances.gates.affected import Span
from feed_assets.instances.late.store import LateChecks
from feed_assets.instances.late.updates import CONCERNED, CONCERNED_COPIES, plan_update
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import CONTENT, FeedEvent, ProcessKey
from feed_assets.plan.edges import Key
from feed_assets.plan.records import FeedRecord
from feed_assets.releases.feed_readers import find_feed_readers
from feed_assets.releases.timeline import ReleaseTimeline


def note_updates(
    connection: Connection, timeline: ReleaseTimeline, cluster: str, events: Sequence[FeedEvent], as_of: datetime
) -> None:
    """Plan the checks of the instances of a cluster that have begun, and read what the events mention."""
    plan = timeline.plan
    if not plan.follows_updates(cluster):
        return
    times: dict[Key, set[datetime]] = defaultdict(set)
    for event in events:
        if event.kind in CONTENT and (event.feed, event.cluster) in plan.feeds:
            times[event.feed, event.cluster].add(event.nominal_time)
    spans: dict[Key, list[Span]] = defaultdict(list)
    for feed, changed in times.items():
        for process, span in _iter_reading(connection, timeline, cluster, plan.feeds[feed], changed):
            spans[process].append(span)
    copies = {key: each for key, each in spans.items() if is_flow(key[0])}
    others = {key: each for key, each in spans.items() if key not in copies}
    instances = ProcessInstances(connection)
    found = {**instances.times_in(others, CONCERNED), **instances.times_in(copies, CONCERNED_COPIES)}
    LateChecks(connection).put(
        plan_update(ProcessKey(*process, time), as_of) for process, moments in found.items() for time in moments
    )


def _iter_reading(
    connection: Connection, timeline: ReleaseTimeline, cluster: str, record: FeedRecord, times: Collection[datetime]
) -> Iterator[tuple[Key, Span]]:
    """Yield the spans of instances that read a feed at some times, of processes that follow updates."""
    for reader in find_feed_readers(connection, timeline, record):
        process = reader.active.record
        if process.cluster == cluster and process.follows_updates:
            for time in times:
                if indices := reader.readers(time):
                    yield reader.process, (reader.at(indices.start), reader.at(indices.stop - 1))
