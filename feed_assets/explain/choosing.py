"""Which instance is explained where nobody names one, or a day or a month: the newest that waits or has failed."""

from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta

from feed_assets.context.errors import InstanceQueryError
from feed_assets.context.operation import OperationContext, Subject, as_version
from feed_assets.entities.common import Kind, label_of
from feed_assets.entities.flow_names import Transfer, transfer_name
from feed_assets.errors import Fault
from feed_assets.instances.lists.queries import count_by_status, find_rows
from feed_assets.instances.lists.ranges import ClusterQuery, InstanceFilter, InstanceQuery
from feed_assets.log.records import FeedInstanceStatus, ProcessInstanceStatus
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
    that is due; of an imported feed, its import decides. A day or a month means the instance in it, or of several the
    newest such one. Of a current instance a text names a version.

    Raises:
        DateTimeError: the text is not a time.
        InstanceQueryError: the subject has no instance yet.
    """
    if subject.is_current:
        return as_version(replace(subject, nominal_time=None if text is None else subject.parse(text))), ""
    records = [each for each in subject.records if each.cluster in subject.asked]
    name = transfer_name(subject.name, Transfer.IMPORT)
    imports = [made for each in records if (made := context.plan.processes.get((name, each.cluster))) is not None]
    if text is None and subject.kind is Kind.FEED and imports and len(imports) == len(records):
        with suppress(InstanceQueryError):  # none of it was due yet
            of = replace(subject, kind=Kind.PROCESS, name=name, records=tuple(imports), lifecycles=frozenset())
            chosen, remark = choose_instance(context, of, None)
            return replace(subject, clusters=chosen.clusters, nominal_time=chosen.nominal_time), remark
    start, stop, within = min(each.sequence.start for each in subject.records), None, set[datetime]()
    if text is not None:
        start, stop = parse_span(text, zone_of_keys(subject.records[0].sequence))
        sequences = [each.sequence for each in subject.records if stop is not None]
        within = {each.at(n) for each in sequences for n in each.indices_between(start, stop or start)[:2]}
    if not records or (text is not None and len(within) < 2):
        return replace(subject, nominal_time=min(within, default=start)), ""
    until = min(context.as_of + _MOMENT, stop or context.as_of + _MOMENT)
    with context.read() as connection:
        whole = (
            ClusterQuery(
                context=context,
                connection=connection,
                query=InstanceQuery(subject=subject, results=1),
                cluster=each.cluster,
                start=start,
                stop=max(start, until),
            )
            for each in records
        )
        found = [_look(of, record) for of, record in zip(whole, records, strict=True)]
    if newest := max((times[0] for _, times, _ in found if times), default=None):
        on = tuple(each.cluster for each, (_, times, _) in zip(records, found, strict=True) if times[:1] == [newest])
        number = sum(each for each, _, _ in found)
        remark = f"the newest of {counted(number, 'instance')} that wait or have failed" if number > 1 else ""
        return replace(subject, clusters=on, nominal_time=newest), remark
    if not (known := [time for _, _, times in found for time in times]):
        is_ahead = start > context.as_of
        reason = (
            f"it has no instance {f'in {text}' if text else 'yet'}{' that is due yet' if is_ahead and text else ''}"
        )
        other = f", or name {'an earlier' if is_ahead else 'another'} one" if text else ""
        raise InstanceQueryError(
            subject=label_of((subject.kind, subject.name)),
            reason=reason,
            next_step=f"Wait for it{other}.",
            fault=Fault.MISSING,
        )
    none = "no instance is missing" if subject.kind is Kind.FEED else "no instance waits or has failed"
    return replace(subject, nominal_time=max(known)), f"{none}; this is the newest"


def _look(of: ClusterQuery, record: FeedRecord | ProcessRecord) -> tuple[int, list[datetime], list[datetime]]:
    """Return how many instances on a cluster wait or have failed, and the newest of these and of all, if any. One of a
    process that is due and not created waits, too.
    """
    wanted = InstanceFilter(statuses=frozenset(map(str, _TROUBLED[of.query.subject.kind])))
    troubled = replace(of, query=replace(of.query, filter=wanted))
    number = sum(each.number for (counts,) in [count_by_status([troubled])] for each in counts.values())
    times = [row.nominal_time for row in find_rows(troubled)] if number else []
    known = [row.nominal_time for row in find_rows(of)]
    if isinstance(record, ProcessRecord) and record.is_enumerated:
        until = min(of.stop, of.context.as_of + _MOMENT - record.delay)
        due = record.sequence.indices_between(of.start, max(of.start, until))
        last = [record.sequence.at(due[-1])] if due else []
        if last > known:
            number, times = number + 1, last
    return number, times, known
