"""Of which process instances people are to be told that they are not done, and what they have been told."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, bindparam, select, update

from feed_assets.state.definition_records import ScheduleState
from feed_assets.state.process_instances import from_row
from feed_assets.state.process_statements import COLUMNS
from feed_assets.state.records import ProcessInstance, ProcessInstanceStatus
from feed_assets.state.schedules import is_process_scheduled
from feed_assets.state.schema import IS_TOLD_SOMETIME, process_instances

_T = process_instances.c
_MARK = (
    update(process_instances)
    .where(
        _T.process == bindparam("of_process"),
        _T.cluster == bindparam("on_cluster"),
        _T.nominal_time == bindparam("at"),
        _T.tell_at == bindparam("was_due_at"),
    )
    .values(tell_at=bindparam("next_at"), told=bindparam("digest"))
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Telling:
    """What was told of an instance: a digest, and when it is looked at again (None: no more). `instance` is as it was
    before.
    """

    instance: ProcessInstance
    told: str | None
    tell_at: datetime | None


class Tellings:
    """What there is to tell, as one transaction sees it."""

    def __init__(self, connection: Connection, *, without_row: ScheduleState = ScheduleState.SCHEDULED) -> None:
        self._connection = connection
        self._without_row = without_row

    def due(self, cluster: str, as_of: datetime, limit: int) -> list[ProcessInstance]:
        """Instances of scheduled processes, WAITING, FAILED or TIMEDOUT, whose turn to be told of is `as_of` or before,
        the longest overdue first.
        """
        parameters = {"on_cluster": cluster, "as_of": as_of, "most": limit}
        return [from_row(row) for row in self._connection.execute(_select_due(self._without_row), parameters)]

    def oldest_waiting(self, cluster: str) -> ProcessInstance | None:
        """The WAITING instance of a scheduled process with the earliest nominal time; None if nothing waits."""
        row = self._connection.execute(_select_oldest(self._without_row), {"on_cluster": cluster}).first()
        return None if row is None else from_row(row)

    def mark(self, tellings: Iterable[Telling]) -> None:
        """Remember what was told; of an instance that somebody has set another time for meanwhile nothing."""
        parameters = [
            {
                "of_process": telling.instance.process,
                "on_cluster": telling.instance.cluster,
                "at": telling.instance.nominal_time,
                "was_due_at": telling.instance.tell_at,
                "next_at": telling.tell_at,
                "digest": telling.told,
            }
            for telling in sorted(tellings, key=lambda telling: telling.instance.key)
        ]
        if parameters:
            self._connection.execute(_MARK, parameters)


@lru_cache
def _select_due(without_row: ScheduleState) -> Select[Any]:
    statement = select(*COLUMNS).where(_T.cluster == bindparam("on_cluster"), IS_TOLD_SOMETIME)
    statement = statement.where(_T.tell_at <= bindparam("as_of"), _is_active(without_row))
    return statement.order_by(_T.tell_at, _T.nominal_time, _T.process).limit(bindparam("most"))


@lru_cache
def _select_oldest(without_row: ScheduleState) -> Select[Any]:
    is_waiting = (_T.status == ProcessInstanceStatus.WAITING.value, _T.cluster == bindparam("on_cluster"))
    statement = select(*COLUMNS).where(*is_waiting, _is_active(without_row))
    return statement.order_by(_T.nominal_time, _T.process).limit(1)


def _is_active(without_row: ScheduleState) -> ColumnElement[bool]:
    return is_process_scheduled(_T.process, _T.cluster, without_row)
