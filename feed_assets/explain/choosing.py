"""Which instance is explained where nobody names one, or a day or a month: the newest that waits or has failed."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

from feed_assets.context.errors import InstanceQueryError
from feed_assets.context.operation import OperationContext, Subject
from feed_assets.entities.common import Kind, label_of
from feed_assets.errors import Fault
from feed_assets.instances.lists.queries import count_by_status, find_rows
from feed_assets.instances.lists.ranges import ClusterQuery, InstanceFilter, InstanceQuery
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import FeedInstanceStatus, ProcessInstanceStatus, ProcessKey
from feed_assets.plan.records import FeedRecord, ProcessRecord
from feed_assets.plan.rendering import counted
from feed_assets.timing.sequence import parse_span, zone_of_keys

_MOMENT = timedelta(seconds=1)
_TROUBLED = {
    Kind.FEED: frozenset({FeedInstanceStatus.MISSING, FeedInstanceStatus.PARTIAL}),
    Kind.PROCESS: frozenset(
        {
            ProcessInstanceStatus.WAITING,
            ProcessInstanceStatus.READY,
            ProcessInstanceStatus.SUSPENDED,
            ProcessInstanceStatus.FAILED,
            ProcessInstanceStatus.TIMEDOUT,
        }
    ),
}


def choose_instance(context: OperationContext, subject: Subject, text: str | None) -> tuple[Subject, str]:
    """Return a subject with the instance that a text names, and a remark on how it was chosen, if there was a choice.

    Without a text it is the newest that waits or has failed, on the clusters where it does; if none does, the newest
    that is due. A day or a month means the instance in it, or of several the newest such one.

    Raises:
        DateTimeError: the text is not a time.
        InstanceQueryError: the subject has no instance yet.
    """
    if text is None:
        start, stop = min(record.sequence.start for record in subject.records), None
    else:
        start, stop = parse_span(text, zone_of_keys(subject.records[0].sequence))
        within = {time for each in subject.records if stop for time in _first_two(each, start, stop)}
        if len(within) < 2:
            return replace(subject, nominal_time=min(within, default=start)), ""
    until = min(context.as_of + _MOMENT, stop or context.as_of + _MOMENT)
    number, newest = _count_troubled(context, subject, start, until)
    if newest:
        time = max(newest.values())
        on = tuple(cluster for cluster, each in newest.items() if each == time)
        remark = f"the newest of {counted(number, 'instance')} that wait or have failed" if number > 1 else ""
        return replace(subject, clusters=on, nominal_time=time), remark
    of_all = (_find_due(context, each, start, until) for each in _asked(subject))
    due = [time for time in of_all if time is not None]
    if not due:
        label = label_of((subject.kind, subject.name))
        reason = "it has no instance " + ("yet" if text is None else f"in {text}")
        raise InstanceQueryError(subject=label, reason=reason, next_step="Name a later one.", fault=Fault.MISSING)
    return replace(subject, nominal_time=max(due)), "no instance waits or has failed; this is the newest"


def _asked(subject: Subject) -> list[FeedRecord | ProcessRecord]:
    return [each for each in subject.records if each.cluster in subject.asked]


def _first_two(record: FeedRecord | ProcessRecord, start: datetime, stop: datetime) -> Iterator[datetime]:
    indices = record.sequence.indices_between(start, stop)
    return (record.sequence.at(index) for index in indices[:2])


def _count_troubled(
    context: OperationContext, subject: Subject, start: datetime, stop: datetime
) -> tuple[int, dict[str, datetime]]:
    """Return how many instances wait or have failed, and the newest on each cluster that has one. One that is due and
    not created waits, too.
    """
    total, newest = 0, dict[str, datetime]()
    wanted = InstanceFilter(statuses=frozenset(map(str, _TROUBLED[subject.kind])))
    with context.read() as connection:
        for record in _asked(subject):
            query = InstanceQuery(subject=subject, filter=wanted, results=1)
            of = ClusterQuery(
                context=context, connection=connection, query=query, cluster=record.cluster, start=start, stop=stop
            )
            (counts,) = count_by_status([of])
            times = [row.nominal_time for row in find_rows(of)] if counts else []
            total += sum(each.number for each in counts.values())
            last = _find_due(context, record, start, stop) if isinstance(record, ProcessRecord) else None
            if last is not None and not ProcessInstances(connection).get_many([ProcessKey(*record.key, last)]):
                total, times = total + 1, [last]
            newest |= {record.cluster: times[0]} if times else {}
    return total, newest


def _find_due(
    context: OperationContext, record: FeedRecord | ProcessRecord, start: datetime, stop: datetime
) -> datetime | None:
    """Return the newest instance of a range that is due; None if there is none, or if instances come as they come."""
    expects, delay = (
        (record.is_enumerated, record.delay)
        if isinstance(record, ProcessRecord)
        else (record.is_expected, timedelta(0))
    )
    if not expects:
        return None
    indices = record.sequence.indices_between(start, max(start, min(stop, context.as_of + _MOMENT - delay)))
    return record.sequence.at(indices[-1]) if indices else None
