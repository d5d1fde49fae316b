"""Find process instances that need an overdue notice, because they are not done, decide when, and record it."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, bindparam, or_, update

from feed_assets.log.definitions.schedules import is_process_scheduled, state_without_row
from feed_assets.log.instances.process_instances import ROWS
from feed_assets.log.instances.tables import HAS_NOTICE_TIME, process_instances
from feed_assets.log.records import ProcessInstance, ProcessInstanceStatus, ProcessKey
from feed_assets.plan.records import ProcessRecord
from feed_assets.sql.rows import TableStore, has_key, key_parameters

_T = process_instances.c


@dataclass(frozen=True, slots=True, kw_only=True)
class OverdueNotice:
    """A notice that was given about an instance: its digest, and when the next is due (None: never).

    `instance` is the instance before the notice.
    """

    instance: ProcessInstance
    digest: str | None
    next_at: datetime | None


class OverdueNotices(TableStore):
    """The due notices, as one transaction sees them."""

    def due(self, cluster: str, as_of: datetime, limit: int) -> list[ProcessInstance]:
        """Return ended instances without success, and WAITING ones of scheduled processes, whose notice is due, the
        longest overdue first.
        """
        is_told = or_(_T.status != ProcessInstanceStatus.WAITING, self._is_active())
        is_due = (_T.cluster == cluster, HAS_NOTICE_TIME, _T.notice_at <= as_of, is_told)
        order = (_T.notice_at, _T.nominal_time, _T.process)
        return ROWS.find(self._connection, ROWS.select.where(*is_due).order_by(*order).limit(limit))

    def oldest_waiting(self, cluster: str) -> ProcessInstance | None:
        """Return the WAITING instance of a scheduled process with the earliest nominal time; None if none waits."""
        is_waiting = (_T.status == ProcessInstanceStatus.WAITING, _T.cluster == cluster, self._is_active())
        statement = ROWS.select.where(*is_waiting).order_by(_T.nominal_time, _T.process).limit(1)
        return ROWS.find_one(self._connection, statement)

    def mark(self, notices: Iterable[OverdueNotice]) -> None:
        """Record notices, except for instances whose notice time has changed meanwhile."""
        parameters = [
            key_parameters(ProcessKey._fields, notice.instance.key)
            | {"was_due_at": notice.instance.notice_at, "next_at": notice.next_at, "digest": notice.digest}
            for notice in sorted(notices, key=lambda notice: notice.instance.key)
        ]
        if parameters:
            is_still = (has_key(process_instances, ProcessKey._fields), _T.notice_at == bindparam("was_due_at"))
            marked = update(process_instances).where(*is_still)
            marked = marked.values(notice_at=bindparam("next_at"), notice_digest=bindparam("digest"))
            self._connection.execute(marked, parameters)

    def _is_active(self) -> ColumnElement[bool]:
        return is_process_scheduled(_T.process, _T.cluster, state_without_row(self._connection))


SHORTEST_PAUSE = timedelta(minutes=1)
LONGEST_PAUSE = timedelta(days=366)


def first_notice_at(record: ProcessRecord, nominal_time: datetime, as_of: datetime) -> datetime:
    """Return the time of the first notice for an instance that waits from now: the first deadline of its SLA that is
    ahead, else after half a frequency.
    """
    sla = record.sla
    due = [nominal_time + each.as_duration() for each in (sla.low, sla.high) if each is not None] if sla else []
    ahead = [moment for moment in due if moment > as_of]
    return min(ahead, default=as_of + min(record.sequence.frequency.as_duration() / 2, LONGEST_PAUSE))


def decide_notice(row: ProcessInstance, digest: str | None, as_of: datetime) -> OverdueNotice:
    """Decide on the notice of an instance whose notice is due, and on the time of the next one.

    A waiting instance gets its next notice when it has waited twice as long. There is no further notice for an instance
    that has ended, or that cannot be explained because its process is no longer declared.

    Args:
        row: the instance.
        digest: of its blockers; None if there is no explanation.
        as_of: the time of the data.
    """
    if digest is None or row.status is not ProcessInstanceStatus.WAITING:
        return OverdueNotice(instance=row, digest=digest or row.notice_digest, next_at=None)
    waited = as_of - (row.materialized_at or as_of)
    return OverdueNotice(instance=row, digest=digest, next_at=as_of + min(max(waited, SHORTEST_PAUSE), LONGEST_PAUSE))
