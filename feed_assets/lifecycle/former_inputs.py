"""Feeds that have moved, or have other instances now, while instances of older releases read them as they were.

The arrival sensor follows what is declared now. What older releases wait for beside that is looked at here, where their
definitions say.
"""

from datetime import datetime, timedelta

from sqlalchemy import Connection

from feed_assets.lifecycle.governance import Governance, Governed
from feed_assets.lifecycle.input_states import InputState, input_states_many
from feed_assets.lifecycle.inputs import look_again
from feed_assets.lifecycle.places import is_same_place
from feed_assets.lifecycle.stores import StorePool
from feed_assets.plan.records import FeedRecord, Plan
from feed_assets.state.database import Database
from feed_assets.state.event_log import Cursors
from feed_assets.state.process_instances import ProcessInstances

PAUSE = timedelta(minutes=1)
INSTANCES_A_LOOK = 500
_MOMENT = timedelta(microseconds=1)


def apply_former_looks(
    database: Database, stores: StorePool, governance: Governance, cluster: str, as_of: datetime
) -> None:
    """Once a minute, look at what instances of older releases wait for and the arrival sensor does not look at.

    Nothing is done, or read, while no older release has instances that wait.
    """
    older = governance.older(cluster)
    if not older:
        return
    with database.read() as connection:
        due = Cursors(connection).get(_cursor(cluster))
        if due is not None and timedelta(0) < datetime.fromisoformat(due) - as_of <= PAUSE:
            return
        waited = [(each.plan, _missing(connection, governance.plan, each, as_of)) for each in older]
    for plan, states in waited:
        look_again(database, stores, plan, states, as_of)
    with database.begin() as connection:
        Cursors(connection).put(_cursor(cluster), (as_of + PAUSE).isoformat())


def _cursor(cluster: str) -> str:
    return f"arrival/former/{cluster}"


def _missing(connection: Connection, present: Plan, older: Governed, as_of: datetime) -> list[InputState]:
    """The inputs that lack something where nobody else looks."""
    key = older.record.key
    waiting = ProcessInstances(connection).waiting_times({key: [(older.start, older.stop - _MOMENT)]})
    times = [time for found in waiting.values() for time in found if older.contains(time)][:INSTANCES_A_LOOK]
    states = input_states_many(connection, older.plan, {key: times}, as_of)[key]
    return [
        state
        for by_input in states.values()
        for state in by_input
        if _is_left_alone(state, older.plan, present.feeds.get(state.edge.feed_key))
    ]


def _is_left_alone(state: InputState, plan: Plan, present: FeedRecord | None) -> bool:
    record = plan.feeds[state.edge.feed_key]
    if present is None or not is_same_place(record, present):
        return bool(state.missing)
    return not all(map(present.sequence.contains, state.missing))
