"""Store when instances are checked again for late data, and which re-runs were decided.

An instance has a row while something is pending: a check, or a run that must process what was found.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    Column,
    Select,
    func,
    select,
    text,
)

from feed_assets.entities.flow_names import SEPARATOR
from feed_assets.sql.column_types import Entries, Text, UtcDateTime
from feed_assets.sql.rows import KEY_ROWS, RowMapper, TableStore, delete_keys, render_rows, select_keyed
from feed_assets.sql.tables import define_table, index_where

IS_DUE_SOMETIME = text("due_at IS NOT NULL")

late_checks = define_table(
    "fa_late_checks",
    Column("kind", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("cluster", Text, nullable=False),
    Column("nominal_time", UtcDateTime, nullable=False),
    Column("planned_at", UtcDateTime, nullable=False),
    Column("due_at", UtcDateTime),
    Column("cut_off_at", UtcDateTime, nullable=False),
    Column("checks", BigInteger, nullable=False),
    Column("changed", Entries("inputs", str, str)),
    index_where("fa_late_checks_due", IS_DUE_SOMETIME, "cluster", "due_at"),
    key=("kind", "name", "cluster", "nominal_time"),
)


_T = late_checks.c


UPDATE = "update"
"""The kind of a check of a process instance whose inputs the log says were updated: nothing is read from storage."""


BEHIND_AFTER = timedelta(minutes=10)
"""How long a source has other content than its replica before that is told; copies take their time."""


class LateKey(NamedTuple):
    """An instance that is checked for late data: of a process (its inputs), or of a feed (itself), or for an update."""

    kind: str
    name: str
    cluster: str
    nominal_time: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LateCheck:
    """The next check of an instance, planned at `planned_at`; there is none if `due_at` is None.

    Late data count until `cut_off_at`; `checks` counts the checks made. `changed` names the inputs whose late data the
    next successful run processes.
    """

    kind: str
    name: str
    cluster: str
    nominal_time: datetime
    planned_at: datetime
    due_at: datetime | None
    cut_off_at: datetime
    checks: int = 0
    changed: tuple[str, ...] = ()

    @property
    def key(self) -> LateKey:
        """The instance."""
        return LateKey(self.kind, self.name, self.cluster, self.nominal_time)

    @property
    def delay(self) -> timedelta:
        """The time from planning to the due time of the check."""
        return timedelta(0) if self.due_at is None else self.due_at - self.planned_at


class BehindCopies(NamedTuple):
    """How many replicas of a flow are behind their source, and the oldest of them."""

    flow: str
    cluster: str
    instances: int
    oldest: datetime


_ROWS = RowMapper(late_checks, LateCheck)


class LateChecks(TableStore):
    """The checks as one transaction sees them."""

    def due(self, cluster: str, as_of: datetime, limit: int, *, updates: bool = False) -> list[LateCheck]:
        """Return the due checks for late data, or those for updates, the longest waiting first."""
        is_wanted = _T.kind == UPDATE if updates else _T.kind != UPDATE
        statement = _ROWS.select.where(_T.cluster == cluster, _T.due_at <= as_of, is_wanted, IS_DUE_SOMETIME)
        statement = statement.order_by(_T.due_at, _T.kind, _T.name, _T.nominal_time).limit(limit)
        return _ROWS.find(self._connection, statement)

    def get(self, kind: str, name: str, cluster: str, nominal_time: datetime) -> LateCheck | None:
        """Return the pending check of one instance; None if there is none."""
        key = LateKey(kind, name, cluster, nominal_time)
        return self.get_many([key]).get(key)

    def get_many(self, keys: Collection[LateKey]) -> dict[LateKey, LateCheck]:
        """Return the pending checks of several instances, in one statement."""
        if not keys:
            return {}
        return self._find(self._select_many(), keys)

    def lock_many(self, keys: Collection[LateKey]) -> dict[LateKey, LateCheck]:
        """Return as `get_many`, and lock the rows until the transaction ends."""
        if not keys:
            return {}
        return self._find(self._select_many().with_for_update(of=late_checks), keys)

    def put(self, checks: Iterable[LateCheck]) -> None:
        """Plan checks; replace existing ones."""
        _ROWS.put(self._connection, sorted(checks, key=lambda check: check.key))

    def add(self, checks: Iterable[LateCheck]) -> None:
        """Plan checks of instances without one; leave existing ones alone."""
        _ROWS.put_absent(self._connection, sorted(checks, key=lambda check: check.key))

    def remove(self, keys: Iterable[LateKey]) -> None:
        """Remove the checks of instances."""
        delete_keys(self._connection, late_checks, LateKey._fields, keys)

    def behind(self, as_of: datetime) -> list[BehindCopies]:
        """Return the flows with replicas whose source has had other content for `BEHIND_AFTER`, in order."""
        oldest = func.min(_T.nominal_time, type_=_T.nominal_time.type)
        statement = select(_T.name, _T.cluster, func.count(), oldest).where(_T.kind == UPDATE)
        statement = statement.where(_T.name.contains(SEPARATOR), _T.planned_at <= as_of - BEHIND_AFTER)
        statement = statement.group_by(_T.name, _T.cluster).order_by(_T.name, _T.cluster)
        return [BehindCopies(*row) for row in self._connection.execute(statement)]

    def _select_many(self) -> Select[Any]:
        return select_keyed(self._dialect, late_checks, LateKey._fields, _ROWS.columns)

    def _find(self, statement: Select[Any], keys: Collection[LateKey]) -> dict[LateKey, LateCheck]:
        found = _ROWS.find(self._connection, statement, {KEY_ROWS: render_rows(keys)})
        return {check.key: check for check in found}
