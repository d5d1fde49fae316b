"""Store the steps of every attempt as they happen."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    and_,
    insert,
    update,
)

from feed_assets.instances.steps.records import StepRun, StepStatus
from feed_assets.log.records import ProcessKey
from feed_assets.sql.column_types import Choice, Payload, Text, UtcDateTime
from feed_assets.sql.names import NAMES_PROCESS
from feed_assets.sql.rows import RowMapper, TableStore, has_key, key_parameters
from feed_assets.sql.tables import define_table

steps = define_table(
    "fa_steps",
    Column("process", Text, nullable=False, info=NAMES_PROCESS),
    Column("cluster", Text, nullable=False),
    Column("nominal_time", UtcDateTime, nullable=False),
    Column("attempt", BigInteger, nullable=False),
    Column("step", Text, nullable=False),
    Column("position", BigInteger, nullable=False),
    Column("status", Choice(StepStatus), nullable=False),
    Column("started_at", UtcDateTime),
    Column("ended_at", UtcDateTime),
    Column("reason", Text),
    Column("basis", Text, nullable=False),
    Column("made_in", BigInteger, nullable=False),
    Column("frames", Payload),
    key=("process", "cluster", "nominal_time", "attempt", "step"),
)


_T = steps.c
_ROWS = RowMapper(steps, StepRun)


class Steps(TableStore):
    """The steps of attempts as one transaction sees them."""

    def add(self, runs: Sequence[StepRun]) -> None:
        """Record the steps of a new attempt."""
        if runs:
            self._connection.execute(insert(steps), [_ROWS.values(run) for run in runs])

    def of(self, key: ProcessKey) -> list[StepRun]:
        """Return the steps of all attempts at an instance, in the order of attempts and of running."""
        statement = _ROWS.select.where(_is_of(key)).order_by(_T.attempt, _T.position)
        return _ROWS.find(self._connection, statement)

    def begin(self, key: ProcessKey, attempt: int, step: str, now: datetime) -> bool:
        """Record that a step begins; return False if it is not PENDING in this attempt."""
        return self._change(key, attempt, step, StepStatus.PENDING, status=StepStatus.RUNNING, started_at=now)

    def begin_again(self, key: ProcessKey, attempt: int, step: str, now: datetime) -> bool:
        """Record that a step begins once more in its attempt; return False if it has not FAILED in it."""
        changes = {"status": StepStatus.RUNNING, "started_at": now, "ended_at": None, "reason": None}
        return self._change(key, attempt, step, StepStatus.FAILED, **changes)

    def end(self, run: StepRun, status: StepStatus, now: datetime, **changes: Any) -> bool:
        """Record how a running step ended, with its `frames` or a `reason`; return False if it was not RUNNING."""
        changes |= {"status": status, "ended_at": now}
        return self._change(run.key, run.attempt, run.step, StepStatus.RUNNING, **changes)

    def begin_anew(self, keys: Collection[ProcessKey]) -> list[StepRun]:
        """Let the next attempts at some instances begin with their first step; return the steps of former attempts."""
        found = _ROWS.of_keys(self._connection, ProcessKey._fields, keys)
        parameters = [key_parameters(ProcessKey._fields, key) for key in sorted({run.key for run in found})]
        if parameters:
            change = update(steps).where(has_key(steps, ProcessKey._fields)).values(basis="")
            self._connection.execute(change, parameters)
        return found

    def _change(self, key: ProcessKey, attempt: int, step: str, before: StepStatus, **changes: Any) -> bool:
        is_it = and_(_is_of(key), _T.attempt == attempt, _T.step == step, _T.status == before)
        return self._connection.execute(update(steps).where(is_it).values(**changes)).rowcount == 1


def _is_of(key: ProcessKey) -> ColumnElement[bool]:
    return and_(_T.process == key.process, _T.cluster == key.cluster, _T.nominal_time == key.nominal_time)
