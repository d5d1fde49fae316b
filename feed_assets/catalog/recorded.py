"""What the record knows of an entity: of an instance its rows, bytes, files, digest, run and facts; of a feed its
newest content.

Nothing of it is stored twice: it is read when somebody asks, so that a publication costs nothing more, and an instance
that retention has removed says so.
"""

from collections.abc import Iterator
from datetime import datetime

from sqlalchemy import Connection

from feed_assets.catalog.descriptions import by_cluster
from feed_assets.catalog.run_metadata import Facts
from feed_assets.catalog.targets import INSTANCE
from feed_assets.catalog.writing import Target
from feed_assets.entities.common import Kind
from feed_assets.log.events import EventLog
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import CONTENT, FeedEvent, FeedKey, ProcessKey
from feed_assets.log.run_names import find_run
from feed_assets.plan.records import FeedRecord, Plan
from feed_assets.timing.dates import parse_datetime, render_datetime


def find_recorded(connection: Connection, plan: Plan, target: Target) -> dict[str, str]:
    """Return what the record knows of an entity, by the names of SYSTEM properties; empty for most kinds.

    Costs at most four statements, for a feed one for each of its clusters.
    """
    kind, name, *below = target.path.split("/")
    if kind == Kind.FEED and not below:
        found = _iter_feed(connection, plan, name)
    elif target.kind == INSTANCE and target.is_declared:
        time = parse_datetime(below[3], seconds=True)
        is_feed = kind == Kind.FEED
        found = (
            _iter_feed_instance(connection, plan.feeds[name, below[1]], plan, time)
            if is_feed
            else _iter_process_instance(connection, ProcessKey(name, below[1], time))
        )
    else:
        return {}
    return {key: str(value) for key, value in found if value is not None}


def _iter_feed(connection: Connection, plan: Plan, name: str) -> Iterator[tuple[str, object]]:
    log = EventLog(connection)
    clusters = [cluster for feed, cluster in plan.feeds if feed == name]
    newest = {cluster: event for cluster in clusters if (event := log.newest(name, cluster, CONTENT)) is not None}
    if newest:
        yield "newest-instance", by_cluster({each: render_datetime(newest[each].nominal_time) for each in newest})
        yield "newest-at", by_cluster({each: _time(newest[each].recorded_at) for each in newest})


def _iter_feed_instance(
    connection: Connection, record: FeedRecord, plan: Plan, time: datetime
) -> Iterator[tuple[str, object]]:
    row = FeedInstances(connection).get_many([FeedKey(*record.key, time)]).get(FeedKey(*record.key, time))
    if row is None:
        return
    yield "status", row.status.value
    yield "bytes", row.bytes
    yield "files", row.files
    yield "digest", row.manifest_digest
    yield "available-at", _time(row.available_at)
    event = EventLog(connection).of_numbers([row.event_seq]).get(row.event_seq) if row.event_seq is not None else None
    if event is None:
        return
    for name in ("rows", "process", "output", "attempt", "seconds"):
        yield name, event.payload.get(name)
    yield "event", event.kind.value
    run = find_run(event.origin)
    yield ("by", event.origin) if run is None else ("run", run)
    yield from _facts(connection, record, plan, event)


def _facts(connection: Connection, record: FeedRecord, plan: Plan, event: FeedEvent) -> Iterator[tuple[str, object]]:
    """Yield the facts of the attempt that has published an instance."""
    for edge in record.outputs_of:
        if edge.process == event.payload.get("process"):
            for time in plan.writer_times(edge, event.nominal_time):
                for fact in Facts(connection).of(ProcessKey(*edge.process_key, time)):
                    if fact.attempt == event.payload.get("attempt"):
                        yield f"{fact.category}/{fact.name}", fact.value


def _iter_process_instance(connection: Connection, key: ProcessKey) -> Iterator[tuple[str, object]]:
    row = ProcessInstances(connection).get(*key)
    if row is None:
        return
    yield "status", row.status.value
    yield "reason", row.reason
    yield "attempt", row.attempt or None
    yield "run", row.run_id
    yield "release", row.release
    yield "started-at", _time(row.started_at)
    yield "ended-at", _time(row.ended_at)
    for fact in Facts(connection).of(key):
        yield f"{fact.category}/{fact.name}", fact.value


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else render_datetime(moment.replace(microsecond=0))
