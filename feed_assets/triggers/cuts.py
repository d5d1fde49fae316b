"""Cut batches: what each input gives to a batch, and what is pending after it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sqlalchemy import Connection

from feed_assets.entities.common import Kind
from feed_assets.entities.triggers import Backlog
from feed_assets.log.instances.overdue_notices import first_notice_at
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.messages.outbox import tell_arrived
from feed_assets.log.records import EntityKey, ProcessInstance, ProcessInstanceStatus, ProcessKey
from feed_assets.plan.edges import TriggerInput
from feed_assets.plan.records import Plan, ProcessRecord
from feed_assets.releases.timeline import note_changed
from feed_assets.triggers.queue.batches import Batches
from feed_assets.triggers.queue.changes import QueueChanges
from feed_assets.triggers.queue.inputs import PendingEvents, TriggerInputs
from feed_assets.triggers.queue.records import EventRange, Mark, QueueAction, RangeUse

_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one input gives to a batch: ranges of the log, and single events that were free; and its mark after that."""

    ranges: tuple[EventRange, ...]
    freed: tuple[int, ...]
    passed: tuple[int, ...]
    mark: Mark

    def count(self, use: RangeUse) -> int:
        """Return how many events the batch takes, or passes over."""
        singly = self.freed if use is RangeUse.TAKEN else self.passed
        return sum(each.count for each in self.ranges if each.use is use) + len(singly)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A batch that is to be cut, without the time by which it will be named."""

    record: ProcessRecord
    shares: tuple[Share, ...]

    @property
    def consumer(self) -> EntityKey:
        """The process."""
        return EntityKey(*self.record.key)

    @property
    def leaves_any(self) -> bool:
        """Whether anything is pending after it."""
        return any(share.mark.pending for share in self.shares)


def decide_cut(record: ProcessRecord, marks: Mapping[str, Mark], events: PendingEvents, most: int | None) -> Cut:
    """Decide what a batch takes: of each input with pending events, all, the oldest, or the newest instance; not more
    than `most` of them, or than the trigger says.
    """
    trigger = record.trigger
    assert trigger is not None
    most = trigger.max_events if most is None else most
    found = ((each, marks[each.name]) for each in trigger.inputs if each.name in marks and marks[each.name].pending)
    if trigger.backlog is Backlog.LATEST:
        return Cut(record=record, shares=tuple(_take_newest(mark, events) for _, mark in found))
    return Cut(record=record, shares=tuple(_take_oldest(each, mark, events, most) for each, mark in found))


def _take_oldest(each: TriggerInput, mark: Mark, events: PendingEvents, most: int | None) -> Share:
    taking = events.take(mark, most, to_marker=each.until is not None)
    taken = [_range(mark, mark.taken_seq, taking.to_seq, taking.events)] if taking.events else []
    # Without a range, the place in the log stays: what was passed by counts for nobody.
    after = replace(mark, taken_seq=taking.to_seq if taken else mark.taken_seq)
    is_all = taking.events + len(taking.freed) == mark.pending
    after = _emptied(after) if is_all else events.measure(after, each.until, but=taking.freed)
    return Share(ranges=tuple(taken), freed=taking.freed, passed=(), mark=after)


def _take_newest(mark: Mark, events: PendingEvents) -> Share:
    newest, free = events.find_newest(mark), events.free(mark)
    assert newest is not None
    parts: list[EventRange] = []
    if newest in free:
        spans = [(mark.taken_seq, events.upto, RangeUse.PASSED)]
    else:
        before, after = (mark.taken_seq, newest - 1), (newest, events.upto)
        spans = [(*before, RangeUse.PASSED), (newest - 1, newest, RangeUse.TAKEN), (*after, RangeUse.PASSED)]
    place = mark.taken_seq
    for start, to, use in spans:
        count = events.count_between(mark, start, to)
        if count:
            parts.append(_range(mark, place, to, count, use))
            place = to
    freed = tuple(seq for seq in free if seq == newest)
    passed = tuple(seq for seq in free if seq != newest)
    return Share(ranges=tuple(parts), freed=freed, passed=passed, mark=_emptied(replace(mark, taken_seq=place)))


def _emptied(mark: Mark) -> Mark:
    return replace(mark, pending=0, first_seq=None, first_at=None, last_at=None, marker_seq=None)


def _range(mark: Mark, after: int, to: int, count: int, use: RangeUse = RangeUse.TAKEN) -> EventRange:
    return EventRange(
        **mark.key._asdict(),
        after_seq=after,
        to_seq=to,
        count=count,
        counts_unchanged=mark.counts_unchanged,
        use=use,
        nominal_time=None,
    )


def apply_cuts(connection: Connection, plan: Plan, cuts: Collection[Cut], as_of: datetime) -> list[ProcessKey]:
    """Create the instances of batches, and record what each has taken; return the instances. Whoever cuts holds the
    lock of the queues.

    A batch is named by the second at which it is cut; if there is an instance of that second, by the next one that is
    free. Processes that write one feed share the seconds, so that each publication is an instance of its own.
    """
    named = _name(connection, plan, [cut.consumer for cut in cuts], as_of)
    tell_arrived(connection, Kind.PROCESS, ((*key, key.nominal_time) for key in named.values()), as_of)  # locks first
    instances = (_instance(cut.record, named[cut.consumer], as_of) for cut in cuts)
    ProcessInstances(connection).add_waiting(instances)
    ranges = (
        replace(each, nominal_time=named[cut.consumer].nominal_time)
        for cut in cuts
        for share in cut.shares
        for each in share.ranges
    )
    Batches(connection).add(ranges)
    changes = QueueChanges(connection)
    for cut in cuts:
        for share in cut.shares:
            changes.settle(share.mark, share.freed, QueueAction.ADD, named[cut.consumer].nominal_time)
            changes.settle(share.mark, share.passed, QueueAction.PASS, named[cut.consumer].nominal_time)
    TriggerInputs(connection).put([share.mark for cut in cuts for share in cut.shares])
    note_changed(connection, {cut.record.key for cut in cuts})  # so that their gates are checked
    return list(named.values())


def _name(
    connection: Connection, plan: Plan, consumers: Sequence[EntityKey], as_of: datetime
) -> dict[EntityKey, ProcessKey]:
    second = as_of.replace(microsecond=0)
    named = {consumer: ProcessKey(*consumer, second) for consumer in consumers}
    sharing = {each: (each, *plan.rivals_of(each)) if each in plan.processes else (each,) for each in consumers}
    while True:
        wanted = {each: [ProcessKey(*one, named[each].nominal_time) for one in sharing[each]] for each in consumers}
        taken = set(ProcessInstances(connection).get_progress([key for keys in wanted.values() for key in keys]))
        before = {each: {*map(named.get, consumers[:place])} for place, each in enumerate(consumers)}
        late = [each for each, keys in wanted.items() if not (taken | before[each]).isdisjoint(keys)]
        if not late:
            return named
        named |= {each: named[each]._replace(nominal_time=named[each].nominal_time + _SECOND) for each in late}


def _instance(record: ProcessRecord, key: ProcessKey, as_of: datetime) -> ProcessInstance:
    """Return the instance of a batch: READY, unless it must wait for the instances of a window, too."""
    waits = any(edge.window is not None and not edge.optional for edge in record.inputs)
    return ProcessInstance(
        **key._asdict(),
        status=ProcessInstanceStatus.WAITING if waits else ProcessInstanceStatus.READY,
        updated_at=as_of,
        materialized_at=as_of,
        ready_at=None if waits else as_of,
        deadline_at=record.deadline_after(as_of) if waits else None,
        notice_at=first_notice_at(record, key.nominal_time, as_of) if waits else None,
        definition_digest=record.definition_digest,
    )


def pass_over(connection: Connection, mark: Mark, events: PendingEvents, new_after: int, as_of: datetime) -> Mark:
    """Pass over the events that came after `new_after`, while the process was suspended; return the mark after that."""
    if mark.taken_seq <= new_after and events.count_between(mark, mark.taken_seq, new_after) == 0:
        count = events.count_between(mark, mark.taken_seq, events.upto)
        Batches(connection).add([_range(mark, mark.taken_seq, events.upto, count, RangeUse.PASSED)])
        return replace(mark, taken_seq=events.upto)
    _pass_singly(connection, mark, new_after, events.upto, as_of)
    return mark


def keep_newest(connection: Connection, mark: Mark, events: PendingEvents, as_of: datetime) -> Mark:
    """Pass over all pending events but the newest of the newest instance; return the mark after that."""
    newest, free = events.find_newest(mark), events.free(mark)
    if newest is None or mark.pending < 2:
        return mark
    QueueChanges(connection).settle(mark, [seq for seq in free if seq != newest], QueueAction.PASS, None)
    if newest in free:
        _pass_singly(connection, mark, mark.taken_seq, events.upto, as_of)
        return mark
    _pass_singly(connection, mark, newest, events.upto, as_of)
    count = events.count_between(mark, mark.taken_seq, newest - 1)
    if not count:
        return mark
    Batches(connection).add([_range(mark, mark.taken_seq, newest - 1, count, RangeUse.PASSED)])
    return replace(mark, taken_seq=newest - 1)


def _pass_singly(connection: Connection, mark: Mark, after: int, to: int, as_of: datetime) -> None:
    reason = "it came while the process was suspended"
    QueueChanges(connection).put_range(mark, after, to, QueueAction.PASS, reason, "feed-assets", as_of)
