"""When people are told why a process instance is not done: it has timed out, failed for good, or waits for long."""

from datetime import datetime, timedelta

from feed_assets.plan.records import ProcessRecord
from feed_assets.state.records import ProcessInstance, ProcessInstanceStatus
from feed_assets.state.tellings import Telling

SHORTEST_PAUSE = timedelta(minutes=1)
LONGEST_PAUSE = timedelta(days=366)


def tell_after(record: ProcessRecord, as_of: datetime) -> datetime:
    """When people are told of an instance that begins to wait now: when it has waited as long as its frequency."""
    return as_of + min(record.sequence.frequency.as_duration(), LONGEST_PAUSE)


def decide_telling(row: ProcessInstance, digest: str | None, as_of: datetime) -> Telling:
    """What is to be remembered of an instance that is due, after people have been told what they did not know.

    One that waits is looked at again when it has been waiting twice as long; one that has ended is not, nor is one that
    cannot be explained, because its process is not declared any more.

    Args:
        row: the instance.
        digest: of what keeps it; None if that cannot be explained.
        as_of: the time of the data.
    """
    if digest is None or row.status is not ProcessInstanceStatus.WAITING:
        return Telling(instance=row, told=digest or row.told, tell_at=None)
    waited = as_of - (row.materialized_at or as_of)
    return Telling(instance=row, told=digest, tell_at=as_of + min(max(waited, SHORTEST_PAUSE), LONGEST_PAUSE))
