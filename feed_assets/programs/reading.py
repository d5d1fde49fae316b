"""Find instances of feeds for other people's code: those that are there, with addresses; else why they are not."""

import atexit
from collections.abc import Sequence
from datetime import datetime

from feed_assets.context.errors import InstanceNotThereError
from feed_assets.context.operation import OperationContext
from feed_assets.engines.port import InputData
from feed_assets.entities.common import Kind
from feed_assets.explain.explanations import explain_instance
from feed_assets.instances.arrival.store_polls import Candidate, poll_instances
from feed_assets.instances.attempts.attempt_inputs import InstanceAddresses
from feed_assets.instances.attempts.work_data import feed_data
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.records import FeedInstanceStatus, FeedKey
from feed_assets.plan.records import FeedRecord
from feed_assets.storage.records import Availability

_STATUS = {
    Availability.MISSING: FeedInstanceStatus.MISSING,
    Availability.PARTIAL: FeedInstanceStatus.PARTIAL,
    Availability.EMPTY: FeedInstanceStatus.EMPTY,
}


def require_instances(context: OperationContext, record: FeedRecord, times: Sequence[datetime]) -> None:
    """Require that instances can be read: they have arrived by the record, or storage has an arrival that no tick has
    seen, and whose rows need not be judged; and their data are there now.

    Raises:
        InstanceNotThereError: one of them cannot be read; the oldest is named, with the reasons.
        StorageError: storage cannot be reached.
    """
    keys = [FeedKey(*record.key, time) for time in times]
    with context.read() as connection:
        rows = FeedInstances(connection).get_many(keys)
    looks = poll_instances(context.stores, [Candidate(record=record, nominal_time=time) for time in times])
    for key, look in zip(keys, looks, strict=True):
        row = rows.get(key)
        known = row.status if row is not None else FeedInstanceStatus.MISSING
        is_there = look.availability is Availability.AVAILABLE
        is_unseen = record.is_polled and not record.is_judged and known in _STATUS.values()
        if is_there and (known is FeedInstanceStatus.AVAILABLE or is_unseen):
            continue
        is_lost = known is FeedInstanceStatus.AVAILABLE
        raise InstanceNotThereError(
            feed=record.feed,
            cluster=record.cluster,
            nominal_time=key.nominal_time,
            status=_STATUS[look.availability] if is_lost else known,
            reason=_lost(context, record, key.nominal_time, look.availability) if is_lost else _why(context, key),
        )


def find_instances(
    context: OperationContext, record: FeedRecord, times: Sequence[datetime], *, is_spark: bool
) -> InputData:
    """Return instances with addresses for Spark, or on this machine. Copies live as long as the process.

    Raises: the errors of `require_instances`.
    """
    require_instances(context, record, times)
    addresses = InstanceAddresses(context, is_spark=is_spark)
    atexit.register(addresses.close)  # a DataFrame of Spark reads the copies later
    return feed_data(record.feed, record, addresses.find(record.feed, record, times))


def _why(context: OperationContext, key: FeedKey) -> str:
    with context.read() as connection:
        return explain_instance(context, connection, Kind.FEED, key.feed, key.cluster, key.nominal_time).render()


def _lost(context: OperationContext, record: FeedRecord, time: datetime, availability: Availability) -> str:
    url = context.feed_url(record, time)
    match availability:
        case Availability.PARTIAL:
            return f"it has arrived, but {url} is incomplete now" + (f": it lacks {record.flag}" if record.flag else "")
        case Availability.EMPTY:
            return f"it has arrived, but {url} is empty now"
        case _:
            return f"it has arrived, but {url} does not exist now"
