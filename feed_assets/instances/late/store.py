"""Store when instances are checked again for late data, and which re-runs were decided.

An instance has a row while something is pending: a check, or a run that must process what was found.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from sqlalchemy import func, select

from feed_assets.entities.flow_names import SEPARATOR
from feed_assets.log.agenda import Agenda, AgendaKey, AgendaKind, AgendaRows, agenda
from feed_assets.sql.column_types import from_micros

_T = agenda.c

LATE_DATA = (AgendaKind.LATE_FEED, AgendaKind.LATE_INPUTS)
"""The kinds of checks for late data: of a feed's instance itself, and of the inputs of a process instance."""

BEHIND_AFTER = timedelta(minutes=10)
"""How long a source has other content than its replica before that is told; copies take their time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LateCheck:
    """The next check of an instance, planned at `planned_at`; there is none if `due_at` is None.

    Late data count until `cut_off_at`; `checks` counts the checks made. `changed` names the inputs whose late data the
    next successful run processes.
    """

    kind: AgendaKind
    name: str
    cluster: str
    nominal_time: datetime
    planned_at: datetime
    due_at: datetime | None
    cut_off_at: datetime
    checks: int = 0
    changed: tuple[str, ...] = ()

    @property
    def key(self) -> AgendaKey:
        """What is checked."""
        return AgendaKey(self.kind, self.name, self.cluster, self.nominal_time)

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


class LateChecks(Agenda[LateCheck]):
    """The checks for late data and for updates, as one transaction sees them.

    An update is of a process instance whose inputs the log says were updated: nothing is read from storage.
    """

    rows = AgendaRows(LateCheck, cut_off_at=from_micros, checks=int, changed=tuple)

    def get(self, kind: AgendaKind, name: str, cluster: str, nominal_time: datetime) -> LateCheck | None:
        """Return the pending check of one instance; None if there is none."""
        key = AgendaKey(kind, name, cluster, nominal_time)
        return self.get_many([key]).get(key)

    def behind(self, as_of: datetime) -> list[BehindCopies]:
        """Return the flows with replicas whose source has had other content for `BEHIND_AFTER`, in order."""
        oldest = func.min(_T.nominal_time, type_=_T.nominal_time.type)
        statement = select(_T.name, _T.cluster, func.count(), oldest).where(_T.kind == AgendaKind.UPDATE)
        statement = statement.where(_T.name.contains(SEPARATOR), _T.planned_at <= as_of - BEHIND_AFTER)
        statement = statement.group_by(_T.name, _T.cluster).order_by(_T.name, _T.cluster)
        return [BehindCopies(*row) for row in self._connection.execute(statement)]
