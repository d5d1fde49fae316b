"""Let an instance that has waited too long run with what is there, if its process says so (`on_timeout: run`).

The deadline of the instance tells it, so retries and runs for changed inputs go on with what is there; a rerun by a
person waits anew. No attempt reads less than an earlier one.
"""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection

from feed_assets.entities.process import OnTimeout
from feed_assets.lifecycle.input_windows import InputState, closed_gates, input_states
from feed_assets.plan.records import Plan, ProcessRecord
from feed_assets.state.records import ProcessInstance


def runs_incomplete(process: ProcessRecord, row: ProcessInstance, as_of: datetime) -> bool:
    """Return whether an instance has waited long enough to run with what is there."""
    return process.on_timeout is OnTimeout.RUN and row.deadline_at is not None and row.deadline_at <= as_of


def gate_states(
    connection: Connection, plan: Plan, process: ProcessRecord, row: ProcessInstance, as_of: datetime
) -> tuple[InputState, ...]:
    """Return the input states with which an instance may run now.

    If it runs with what is there, a window that lacks available instances has those that there are.
    """
    is_partial = runs_incomplete(process, row, as_of)
    states = input_states(connection, plan, process, [row.nominal_time], as_of, is_partial=is_partial)
    return states[row.nominal_time]


def find_closed(
    process: ProcessRecord, row: ProcessInstance, states: Sequence[InputState], as_of: datetime
) -> tuple[InputState, ...]:
    """Return the inputs that keep an instance from running now."""
    closed = closed_gates(states)
    if not runs_incomplete(process, row, as_of):
        return closed
    read = {frozen.name: frozen.nominal_times for frozen in row.inputs}
    return tuple(state for state in closed if not set(read.get(state.edge.name, ())) <= state.available)
