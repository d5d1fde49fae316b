"""When what instances have read, or hold, is looked at again for late data, and the re-runs that were decided on.

A row is there while there is something to come: a check, or a run that is to process what was found.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import Connection, Integer, Select, and_, bindparam, delete, select

from feed_assets.state.keyed import KEY_ROWS, key_rows, render_rows
from feed_assets.state.schema import IS_DUE_SOMETIME, late_checks
from feed_assets.state.upserts import build_insert_if_absent, build_upsert

_T = late_checks.c
_INPUTS = "inputs"
_REMOVE = delete(late_checks).where(
    _T.kind == bindparam("of_kind"),
    _T.name == bindparam("of_name"),
    _T.cluster == bindparam("on_cluster"),
    _T.nominal_time == bindparam("at"),
)

_SELECT_DUE = (
    select(*late_checks.columns)
    .where(_T.cluster == bindparam("on_cluster"), _T.due_at <= bindparam("not_after"), IS_DUE_SOMETIME)
    .order_by(_T.due_at, _T.kind, _T.name, _T.nominal_time)
    .limit(bindparam("at_most", type_=Integer))
)


class LateKey(NamedTuple):
    """An instance whose late data are looked for: of a process (its inputs), or of a feed (itself)."""

    kind: str
    name: str
    cluster: str
    nominal_time: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LateCheck:
    """The next check of an instance, planned at `planned_at`; none is to come where `due_at` is None.

    `cut_off_at` is until when late data count, `checks` how many were made. `changed` names the inputs whose late data
    a run is to process that has not succeeded yet.
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
        """From when the check was planned to when it is due."""
        return timedelta(0) if self.due_at is None else self.due_at - self.planned_at


class LateChecks:
    """The checks as one transaction sees them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._dialect = connection.dialect.name

    def due(self, cluster: str, as_of: datetime, limit: int) -> list[LateCheck]:
        """The checks that are due, the one that waits longest first."""
        parameters = {"on_cluster": cluster, "not_after": as_of, "at_most": limit}
        return [_from_row(row) for row in self._connection.execute(_SELECT_DUE, parameters)]

    def get(self, kind: str, name: str, cluster: str, nominal_time: datetime) -> LateCheck | None:
        """What is to come for one instance; None if nothing is."""
        key = LateKey(kind, name, cluster, nominal_time)
        return self.get_many([key]).get(key)

    def get_many(self, keys: Collection[LateKey]) -> dict[LateKey, LateCheck]:
        """Those of the instances for which something is to come, in one statement."""
        if not keys:
            return {}
        found = self._connection.execute(_select_many(self._dialect), {KEY_ROWS: render_rows(keys)})
        return {check.key: check for check in map(_from_row, found)}

    def lock_many(self, keys: Collection[LateKey]) -> dict[LateKey, LateCheck]:
        """As `get_many`; nobody else changes them until the transaction ends."""
        if not keys:
            return {}
        statement = _select_many(self._dialect).with_for_update(of=late_checks)
        found = self._connection.execute(statement, {KEY_ROWS: render_rows(keys)})
        return {check.key: check for check in map(_from_row, found)}

    def put(self, checks: Iterable[LateCheck]) -> None:
        """Plan checks, in the place of those there are."""
        rows = [_to_row(check) for check in sorted(checks, key=lambda check: check.key)]
        if rows:
            self._connection.execute(build_upsert(self._dialect, late_checks), rows)

    def add(self, checks: Iterable[LateCheck]) -> None:
        """Plan checks of instances that have none; the others stay as they are."""
        rows = [_to_row(check) for check in sorted(checks, key=lambda check: check.key)]
        if rows:
            self._connection.execute(build_insert_if_absent(self._dialect, late_checks), rows)

    def remove(self, keys: Iterable[LateKey]) -> None:
        """Nothing more is to come for instances."""
        parameters = [
            {"of_kind": key.kind, "of_name": key.name, "on_cluster": key.cluster, "at": key.nominal_time}
            for key in sorted(keys)
        ]
        if parameters:
            self._connection.execute(_REMOVE, parameters)


@lru_cache
def _select_many(dialect: str) -> Select[Any]:
    wanted = key_rows(dialect, LateKey._fields)
    is_wanted = and_(
        _T.kind == wanted.c.kind,
        _T.name == wanted.c.name,
        _T.cluster == wanted.c.cluster,
        _T.nominal_time == wanted.c.nominal_time,
    )
    return select(*late_checks.columns).join_from(wanted, late_checks, is_wanted)


def _to_row(check: LateCheck) -> dict[str, object]:
    return {
        "kind": check.kind,
        "name": check.name,
        "cluster": check.cluster,
        "nominal_time": check.nominal_time,
        "planned_at": check.planned_at,
        "due_at": check.due_at,
        "cut_off_at": check.cut_off_at,
        "checks": check.checks,
        "changed": {_INPUTS: list(check.changed)} if check.changed else {},
    }


def _from_row(row: Sequence[Any]) -> LateCheck:
    kind, name, cluster, nominal_time, planned_at, due_at, cut_off_at, checks, changed = row
    inputs: Mapping[str, Sequence[str]] = changed
    return LateCheck(
        kind=kind,
        name=name,
        cluster=cluster,
        nominal_time=nominal_time,
        planned_at=planned_at,
        due_at=due_at,
        cut_off_at=cut_off_at,
        checks=checks,
        changed=tuple(inputs.get(_INPUTS, ())),
    )
