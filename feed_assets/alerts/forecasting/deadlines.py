"""Find the deadlines that are still to come of instances that are not there, and forecast them."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import islice

from sqlalchemy import Connection

from feed_assets.alerts.deadlines.decide_misses import decide_feed_misses, decide_process_misses
from feed_assets.alerts.deadlines.due_times import Deadlines
from feed_assets.alerts.deadlines.store import SlaMisses
from feed_assets.alerts.forecasting.chains import ChainReader, OpenDeadline
from feed_assets.alerts.forecasting.results import Forecast, decide_forecast
from feed_assets.entities.common import Kind
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import FeedKey, ProcessKey
from feed_assets.log.watermarks import Watermarks

_MOMENT = timedelta(microseconds=1)


def find_coming(
    connection: Connection, deadlines: Deadlines, as_of: datetime, until: datetime, limit: int
) -> list[datetime]:
    """Return the first instances whose deadline is after `as_of`, at `until` at the latest, and that are not there."""
    coming, missing = _iter_coming(connection, deadlines, as_of, until), list[datetime]()
    while len(missing) < limit and (times := list(islice(coming, limit))):
        missing += find_missing(connection, deadlines, times)
    return missing[:limit]


def find_missing(connection: Connection, deadlines: Deadlines, times: Sequence[datetime]) -> list[datetime]:
    """Return which of some instances are not there: would their deadlines have passed, they would have missed them."""
    name, cluster = deadlines.name, deadlines.cluster
    if deadlines.kind is Kind.FEED:
        rows = FeedInstances(connection).get_many([FeedKey(name, cluster, time) for time in times])
        misses = decide_feed_misses(deadlines, times, rows, times[-1]) if times else []
    else:
        keys = [ProcessKey(name, cluster, time) for time in times]
        found, starts = ProcessInstances(connection).get_many(keys), SlaMisses(connection).starts(keys)
        misses = decide_process_misses(deadlines, times, found, starts, times[-1]) if times else []
    return [miss.nominal_time for miss in misses if miss.told_at is not None]


def forecast(reader: ChainReader, deadlines: Deadlines, nominal_time: datetime) -> Forecast:
    """Return how probable it is that an instance misses its deadline."""
    deadline = OpenDeadline(
        kind=deadlines.kind,
        name=deadlines.name,
        cluster=deadlines.cluster,
        nominal_time=nominal_time,
        level=deadlines.level,
        due_at=deadlines.due_at(nominal_time),
    )
    return decide_forecast(deadline, reader.read(deadline), reader.as_of)


def _iter_coming(connection: Connection, deadlines: Deadlines, as_of: datetime, until: datetime) -> Iterator[datetime]:
    """Yield from where the walk along the deadlines stands; where none has begun, from the first that is to come."""
    standing = Watermarks(connection).get(deadlines.watermark, deadlines.name, deadlines.cluster)
    first = deadlines.sla.since or as_of - deadlines.delay
    if standing is not None and standing.next_time is not None:
        first = standing.next_time
    time = deadlines.ceil(first)
    while time is not None and (due_at := deadlines.due_at(time)) <= until:
        if due_at > as_of:
            yield time
        time = deadlines.ceil(time + _MOMENT)
