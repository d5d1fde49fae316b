"""Decide when to notify people about an instance that is not done: it has ended otherwise, or waits long."""

from datetime import datetime, timedelta

from feed_assets.log.instances.overdue_notices import OverdueNotice
from feed_assets.log.records import ProcessInstance, ProcessInstanceStatus
from feed_assets.plan.records import ProcessRecord

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
