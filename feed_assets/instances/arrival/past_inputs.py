"""Poll feeds by their past definitions, because older releases may still read feeds that have changed.

A feed has changed if it has moved or has other instances. The arrival sensor follows the current declaration. This
module polls the further instances that older releases wait for, at the locations of their definitions.
"""

from datetime import datetime, timedelta

from sqlalchemy import Connection

from feed_assets.context.bulkheads import Bulkheads
from feed_assets.context.tick_records import TickStep
from feed_assets.instances.arrival.polling import poll_missing_inputs
from feed_assets.log.cursors import Cursors
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import ProcessInstanceStatus
from feed_assets.plan.records import FeedRecord, Plan
from feed_assets.releases.timeline import ActiveRelease, ReleaseTimeline
from feed_assets.sql.database import Database
from feed_assets.storage.pool import StorePool
from feed_assets.triggers.input_windows import InputState, input_states_many

PAUSE = timedelta(minutes=1)
INSTANCES_A_LOOK = 500
_MOMENT = timedelta(microseconds=1)
_WAITING = frozenset({ProcessInstanceStatus.WAITING})


def apply_past_polls(
    database: Database,
    stores: StorePool,
    timeline: ReleaseTimeline,
    cluster: str,
    as_of: datetime,
    bulkheads: Bulkheads,
) -> None:
    """Poll the inputs that older releases wait for and the arrival sensor does not poll, once a minute.

    Does nothing, and reads nothing, while no older release has waiting instances.
    """
    older = timeline.older(cluster)
    if not older:
        return
    with database.read() as connection:
        due = Cursors(connection).get(_cursor(cluster))
        if due is not None and timedelta(0) < datetime.fromisoformat(due) - as_of <= PAUSE:
            return
        waited = [(each, _missing(connection, timeline.plan, each, as_of)) for each in older]
    for each, states in waited:
        bulkheads.run_unit(
            TickStep.PAST_ARRIVALS,
            each.record.process,
            None,
            poll_missing_inputs,
            database,
            stores,
            each.plan,
            states,
            as_of,
            bulkheads,
        )
    with database.begin() as connection:
        Cursors(connection).put(_cursor(cluster), (as_of + PAUSE).isoformat())


def _cursor(cluster: str) -> str:
    return f"arrival/former/{cluster}"


def _missing(connection: Connection, present: Plan, older: ActiveRelease, as_of: datetime) -> list[InputState]:
    """Return the inputs with missing instances that the arrival sensor does not poll."""
    key = older.record.key
    waiting = ProcessInstances(connection).times_in({key: [(older.start, older.stop - _MOMENT)]}, _WAITING)
    times = [time for found in waiting.values() for time in found if older.contains(time)][:INSTANCES_A_LOOK]
    states = input_states_many(connection, older.plan, {key: times}, as_of)[key]
    return [
        state
        for by_input in states.values()
        for state in by_input
        if _is_unpolled(state, older.plan, present.feeds.get(state.edge.feed_key))
    ]


def _is_unpolled(state: InputState, plan: Plan, present: FeedRecord | None) -> bool:
    record = plan.feeds[state.edge.feed_key]
    if present is None or record.place != present.place:
        return bool(state.missing)
    return not all(map(present.sequence.contains, state.missing))
