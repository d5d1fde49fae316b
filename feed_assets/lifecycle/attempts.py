"""How an attempt at a process instance begins and ends in the record: the instance's row, and the attempt's own."""

from dataclasses import replace
from datetime import datetime

from sqlalchemy import Connection

from feed_assets.lifecycle.run_names import describe_run, is_command
from feed_assets.plan.records import ProcessRecord
from feed_assets.state.attempts import Attempts
from feed_assets.state.process_instances import ProcessInstances
from feed_assets.state.records import Attempt, ProcessInstance, ProcessInstanceStatus, ProcessKey

INPUTS_ARE_THERE = "its inputs are there"
BY_HAND = "a run that was started by hand"

_ANY = frozenset(ProcessInstanceStatus)


def begin_attempt(
    connection: Connection,
    process: ProcessRecord,
    nominal_time: datetime,
    run_id: str,
    now: datetime,
    release: int | None = None,
) -> ProcessInstance:
    """Make an instance RUNNING, whatever it was, and note the attempt; returns the instance with the attempt's number.

    `release` is the number of the release that governs the attempt.
    """
    instances = ProcessInstances(connection)
    key = ProcessKey(*process.key, nominal_time)
    row = instances.get(*key)
    if row is None:
        first = ProcessInstance(
            process=process.process,
            cluster=process.cluster,
            nominal_time=nominal_time,
            status=ProcessInstanceStatus.WAITING,
            updated_at=now,
            materialized_at=now,
            definition_digest=process.digest,
        )
        instances.add_waiting([first])
        row = instances.get(*key)
    assert row is not None
    instances.transition(
        key,
        _ANY,
        status=ProcessInstanceStatus.RUNNING,
        attempt=row.attempt + 1,
        run_id=run_id,
        started_at=now,
        ended_at=None,
        reason=None,
        definition_digest=process.digest,
        release=release,
        retry_at=None,
        tell_at=None,
        told=None,
        updated_at=now,
    )
    Attempts(connection).begin(
        Attempt(
            process=process.process,
            cluster=process.cluster,
            nominal_time=nominal_time,
            attempt=row.attempt + 1,
            run_id=run_id,
            status=ProcessInstanceStatus.RUNNING,
            started_at=now,
            trigger=decide_trigger(row, run_id),
            release=release,
        )
    )
    return replace(row, status=ProcessInstanceStatus.RUNNING, attempt=row.attempt + 1, run_id=run_id)


def decide_trigger(before: ProcessInstance, run_id: str) -> str:
    """What began an attempt, told from the instance as it was before: why it was READY, or somebody's hand."""
    if is_command(run_id):
        return describe_run(run_id)
    if before.status is not ProcessInstanceStatus.READY or before.request_key is None:
        return BY_HAND
    return before.reason or INPUTS_ARE_THERE


def end_attempt(
    connection: Connection, key: ProcessKey, status: ProcessInstanceStatus, reason: str | None, now: datetime
) -> None:
    """Note how the attempt that runs has ended; an instance that somebody has moved on meanwhile stays as it is."""
    ProcessInstances(connection).transition(
        key, {ProcessInstanceStatus.RUNNING}, status=status, ended_at=now, reason=reason, updated_at=now
    )
    Attempts(connection).end(key, status, now, reason)
