"""Late data as runs see them: what a run notes of its inputs, whether it is one for late data, what follows its end."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection

from feed_assets.entities.common import Kind
from feed_assets.lifecycle.contents import record_contents, scan_contents
from feed_assets.lifecycle.input_states import InputState
from feed_assets.lifecycle.late_checks import decide_process_check
from feed_assets.lifecycle.lateness import UNSETTLED
from feed_assets.lifecycle.stores import StorePool
from feed_assets.plan.records import FeedRecord, Plan, ProcessRecord
from feed_assets.state.database import Database
from feed_assets.state.late_checks import LateChecks, LateKey
from feed_assets.state.records import FeedKey


def scan_late_inputs(
    database: Database, stores: StorePool, plan: Plan, states: Sequence[InputState], as_of: datetime, wall: datetime
) -> dict[FeedKey, str]:
    """Note what the late inputs of a run hold, before it reads them, so that a change while it runs is noticed too.

    Returns digests of the instances of external feeds; what is made here has its digest in the record.
    """
    wanted: dict[FeedKey, FeedRecord] = {}
    for state in states:
        record = plan.feeds[state.edge.feed_key]
        if state.edge.is_late and record.is_external:
            wanted.update({FeedKey(*record.key, time): record for time in state.present})
    if not wanted:
        return {}
    contents = scan_contents(database, stores, wanted, wall)
    with database.begin() as connection:
        recorded = record_contents(connection, contents.values(), as_of)
    return {key: recorded.digests.get(key, UNSETTLED) for key in wanted}


def plan_late_check(
    connection: Connection, plan: Plan, process: ProcessRecord, nominal_time: datetime, as_of: datetime
) -> None:
    """Plan the first check of an instance that has succeeded; what an earlier check has found is processed by that."""
    if process.late is None:
        return
    check = decide_process_check(plan, process, nominal_time, as_of)
    if check is not None:
        LateChecks(connection).put([check])
    else:
        LateChecks(connection).remove([_key_of(process, nominal_time)])


def find_late_inputs(connection: Connection, process: ProcessRecord, nominal_time: datetime) -> tuple[str, ...]:
    """The inputs whose late data the next run of an instance is to process; none if it is no late re-run."""
    if process.late is None:
        return ()
    check = LateChecks(connection).get(*_key_of(process, nominal_time))
    return check.changed if check else ()


def _key_of(process: ProcessRecord, nominal_time: datetime) -> LateKey:
    return LateKey(Kind.PROCESS.value, *process.key, nominal_time)
