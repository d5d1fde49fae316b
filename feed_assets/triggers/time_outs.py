"""Let an instance that has waited too long run with what is there, if its process says so (`on_timeout: run`).

The deadline of the instance tells it, so retries and runs for changed inputs go on with what is there; a rerun by a
person waits anew. No attempt reads less than an earlier one.
"""

from datetime import datetime
from typing import NamedTuple

from sqlalchemy import Connection

from feed_assets.entities.process import OnTimeout
from feed_assets.log.records import ProcessInstance
from feed_assets.plan.records import Plan, ProcessRecord
from feed_assets.triggers.input_windows import InputState, closed_gates, input_states


def runs_incomplete(process: ProcessRecord, row: ProcessInstance, as_of: datetime) -> bool:
    """Return whether an instance has waited long enough to run with what is there."""
    return process.on_timeout is OnTimeout.RUN and row.deadline_at is not None and row.deadline_at <= as_of


class Gate(NamedTuple):
    """The inputs with which an instance may run now, and those that keep it from running."""

    states: tuple[InputState, ...]
    closed: tuple[InputState, ...]


def check_gate(
    connection: Connection, plan: Plan, process: ProcessRecord, row: ProcessInstance, as_of: datetime
) -> Gate:
    """Return whether an instance may run now.

    If it runs with what is there, a data-driven window that lacks instances has those that there are.
    """
    time = row.nominal_time
    states = input_states(connection, plan, process, [time], as_of)[time]
    closed = closed_gates(states)
    if not closed or not runs_incomplete(process, row, as_of):
        return Gate(states, closed)
    partial = input_states(connection, plan, process, [time], as_of, is_partial=True)[time]
    there = {state.edge.name: set(state.present) for state in partial}
    read = {frozen.name: set(frozen.nominal_times) for frozen in row.inputs}
    lost = (state for state in closed if not read.get(state.edge.name, set()) <= there[state.edge.name])
    return Gate(partial, tuple(lost))
