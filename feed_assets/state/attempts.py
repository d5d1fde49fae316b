"""Every attempt that was made at a process instance: its run, what began it, and how it ended."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, Select, and_, bindparam, select, update

from feed_assets.state.keyed import KEY_ROWS, key_rows, render_rows
from feed_assets.state.records import Attempt, ProcessInstanceStatus, ProcessKey
from feed_assets.state.schema import attempts
from feed_assets.state.upserts import build_upsert

OVERTAKEN = "another attempt took its place"

_STATUS = {status.value: status for status in ProcessInstanceStatus}
_T = attempts.c
_NAMES = tuple(column.name for column in attempts.columns)
_RUNNING = ProcessInstanceStatus.RUNNING.value
_END_UNENDED = update(attempts).where(
    _T.process == bindparam("of_process"),
    _T.cluster == bindparam("on_cluster"),
    _T.nominal_time == bindparam("at"),
    _T.status == _RUNNING,
)


class Attempts:
    """The attempts as one transaction sees them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def begin(self, attempt: Attempt) -> None:
        """Note an attempt that begins; an earlier one of the same instance that never ended has failed by that."""
        self.end(attempt.key, ProcessInstanceStatus.FAILED, attempt.started_at, OVERTAKEN)
        row = {name: getattr(attempt, name) for name in _NAMES} | {"status": attempt.status.value}
        self._connection.execute(build_upsert(self._connection.dialect.name, attempts), row)

    def end(self, key: ProcessKey, status: ProcessInstanceStatus, ended_at: datetime, reason: str | None) -> None:
        """Note how the attempt that runs has ended; does nothing if none runs."""
        self._connection.execute(
            _END_UNENDED,
            {
                "of_process": key.process,
                "on_cluster": key.cluster,
                "at": key.nominal_time,
                "status": status.value,
                "ended_at": ended_at,
                "reason": reason,
            },
        )

    def of(self, key: ProcessKey) -> list[Attempt]:
        """The attempts at an instance, the first one first."""
        return self.of_many([key]).get(key, [])

    def of_many(self, keys: Collection[ProcessKey]) -> dict[ProcessKey, list[Attempt]]:
        """The attempts at several instances in one statement, the first one first; of some there may be none."""
        if not keys:
            return {}
        found: dict[ProcessKey, list[Attempt]] = defaultdict(list)
        statement = _select_many(self._connection.dialect.name)
        for attempt in map(_from_row, self._connection.execute(statement, {KEY_ROWS: render_rows(keys)})):
            found[attempt.key].append(attempt)
        return {key: sorted(listed, key=lambda attempt: attempt.attempt) for key, listed in found.items()}


@lru_cache
def _select_many(dialect: str) -> Select[Any]:
    wanted = key_rows(dialect, ProcessKey._fields)
    is_wanted = and_(
        _T.process == wanted.c.process, _T.cluster == wanted.c.cluster, _T.nominal_time == wanted.c.nominal_time
    )
    return select(*attempts.columns).join_from(wanted, attempts, is_wanted)


def _from_row(row: Sequence[Any]) -> Attempt:
    fields = dict(zip(_NAMES, row, strict=True))
    fields["status"] = _STATUS[fields["status"]]
    return Attempt(**fields)
