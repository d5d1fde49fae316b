"""Store when instances are checked again for late data, and which re-runs were decided.

An instance has a row while something is pending: a check, or a run that must process what was found.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from sqlalchemy import func, select

from feed_assets.entities.flow_names import SEPARATOR
from feed_assets.log.agenda import Agenda, AgendaKey, AgendaKind, AgendaRows, Planned, agenda
from feed_assets.log.records import ProcessKey
from feed_assets.sql.column_types import from_micros

_T = agenda.c

LATE_DATA = (AgendaKind.LATE_FEED, AgendaKind.LATE_INPUTS)
"""The kinds of checks for late data: of a feed's instance itself, and of the inputs of a process instance."""

BEHIND_AFTER = timedelta(minutes=10)
"""How long a source has other content than its replica before that is told; copies take their time."""


class Asked(NamedTuple):
    """That somebody has asked for a rerun: the name of the plan, the author, and the last event before.

    It `goes_on` if nothing has changed. `is_woken` tells that windows tell what it waits for; else it is looked at now
    and then. It `has_begun` once the rerun was let go: by the author, or since what it reads has changed.
    """

    plan: str
    author: str
    after: int
    goes_on: bool
    is_woken: bool
    has_begun: bool = False

    @property
    def label(self) -> str:
        """The rerun for people: `rerun 4f0c91d2 of ann`."""
        return f"rerun {self.plan} of {self.author}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LateCheck(Planned):
    """The next check of an instance, planned at `planned_at`; there is none if `due_at` is None.

    Late data count until `cut_off_at`; `checks` counts the checks made. `changed` names the inputs whose late data the
    next successful run processes. `asked` is the rerun of which it is a part.
    """

    cut_off_at: datetime
    checks: int = 0
    changed: tuple[str, ...] = ()
    asked: Asked | None = None

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
    """The checks for late data, for updates and for reruns, as one transaction sees them.

    An update is of a process instance whose inputs the log says were updated: nothing is read from storage. A rerun is
    one that is asked for, until it has succeeded, or what it waits for has come out unchanged.
    """

    rows = AgendaRows(LateCheck, cut_off_at=from_micros, checks=int, changed=tuple, asked=lambda values: Asked(*values))

    def get(self, kind: AgendaKind, name: str, cluster: str, nominal_time: datetime) -> LateCheck | None:
        """Return the pending check of one instance; None if there is none."""
        key = AgendaKey(kind, name, cluster, nominal_time)
        return self.get_many([key]).get(key)

    def reruns_of(self, keys: Iterable[ProcessKey]) -> dict[ProcessKey, tuple["LateCheck", Asked]]:
        """Return the reruns of some instances that are asked for."""
        found = self.get_many({AgendaKey(AgendaKind.RERUN, *key) for key in keys})
        return {ProcessKey(*key[1:]): (check, check.asked) for key, check in found.items() if check.asked is not None}

    def wake(self, keys: Iterable[ProcessKey], as_of: datetime) -> None:
        """Let the reruns of some instances be decided now."""
        self.put(replace(check, due_at=as_of) for check, _ in self.reruns_of(keys).values())

    def behind(self, as_of: datetime) -> list[BehindCopies]:
        """Return the flows with replicas whose source has had other content for `BEHIND_AFTER`, in order."""
        oldest = func.min(_T.nominal_time, type_=_T.nominal_time.type)
        statement = select(_T.name, _T.cluster, func.count(), oldest).where(_T.kind == AgendaKind.UPDATE)
        statement = statement.where(_T.name.contains(SEPARATOR), _T.planned_at <= as_of - BEHIND_AFTER)
        statement = statement.group_by(_T.name, _T.cluster).order_by(_T.name, _T.cluster)
        return [BehindCopies(*row) for row in self._connection.execute(statement)]
