"""The lines of a simulation about queues: which batches are cut, what they take, what is passed over, what is left."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from feed_assets.context.operation import OperationContext
from feed_assets.log.records import EntityKey, ProcessKey
from feed_assets.plan.rendering import counted
from feed_assets.simulate.log import LogLine, QueueShare, SimulatedEvent
from feed_assets.triggers.queue.batches import Batches, BatchEvents
from feed_assets.triggers.queue.records import RangeUse
from feed_assets.triggers.queues import show_queue
from feed_assets.triggers.waiting import Queue

_NAMED_AT_MOST = 10
_NAMED_OF_MANY = 3
_USES = ("taken", "passed", "pending")


@dataclass(slots=True)
class QueueLog:
    """Tells what becomes of what comes for processes, by the record."""

    _told: dict[EntityKey, set[int]] = field(default_factory=lambda: defaultdict(set))

    def iter_cut(self, context: OperationContext, batches: Collection[ProcessKey], at: datetime) -> Iterator[LogLine]:
        """Yield a line for each batch that a tick has cut."""
        for batch in batches:
            with context.read() as connection:
                taken = Batches(connection).events_of(batch)
                passed = Batches(connection).events_of(batch, RangeUse.PASSED)
            consumer = EntityKey(batch.process, batch.cluster)
            yield _line(context, SimulatedEvent.CUT, consumer, at, taken, passed, batch.nominal_time)

    def iter_passed(
        self, context: OperationContext, suspended: Collection[EntityKey], at: datetime
    ) -> Iterator[LogLine]:
        """Yield a line for each suspended process for which a tick has passed something over."""
        for consumer in sorted(suspended):
            told = self._told[consumer]
            with context.read() as connection:
                passed = Batches(connection).passed_while_suspended(consumer)
            news = [
                each._replace(events=tuple(event for event in each.events if event.seq not in told)) for each in passed
            ]
            told |= {event.seq for each in news for event in each.events}
            if any(each.events for each in news):
                yield _line(context, SimulatedEvent.PASSED, consumer, at, [], news)

    @staticmethod
    def iter_left(context: OperationContext, at: datetime) -> Iterator[LogLine]:
        """Yield a line for each process for which something is pending."""
        for cluster in sorted(context.plan.clusters):
            for record in context.plan.triggered_on(cluster):
                line = _line(context, SimulatedEvent.LEFT, EntityKey(*record.key), at, [], [])
                if any(share.pending for share in line.queue):
                    yield line


def _line(
    context: OperationContext,
    what: SimulatedEvent,
    consumer: EntityKey,
    at: datetime,
    taken: Sequence[BatchEvents],
    passed: Sequence[BatchEvents],
    nominal_time: datetime | None = None,
) -> LogLine:
    content = show_queue(context, *consumer)
    trigger = context.plan.processes[consumer].trigger
    shares = tuple(
        QueueShare(
            input=each.name,
            feed=each.feed,
            taken=_numbers(taken, each.name),
            passed=_numbers(passed, each.name),
            pending=tuple(event.row.seq for event in content.events if event.input == each.name),
        )
        for each in (trigger.inputs if trigger else ())
    )
    return LogLine(
        at=at,
        what=what,
        entity=consumer.entity,
        cluster=consumer.cluster,
        nominal_time=nominal_time,
        note=_note(what, shares, content.queue),
        queue=shares,
    )


def _numbers(found: Sequence[BatchEvents], name: str) -> tuple[int, ...]:
    return tuple(event.seq for each in found if each.input == name for event in each.events)


def _note(what: SimulatedEvent, shares: Sequence[QueueShare], queue: Queue) -> str:
    """Return what is taken, passed over and left, and at the end of all what is lacking, in a few words."""
    taken, passed, left = ({share.input: getattr(share, name) for share in shares} for name in _USES)
    texts = [f"takes {_render(taken)}"] if what is SimulatedEvent.CUT else []
    if any(passed.values()):
        texts.append(f"passes over {_render(passed)}")
    pending = _render(left, queue.pending)
    texts += [pending, queue.sentence] if what is SimulatedEvent.LEFT else [f"leaves {pending}"]
    return "; ".join(texts)


def _render(numbers: Mapping[str, Sequence[int]], count: int | None = None) -> str:
    """Return events by input; `count` is how many there are, if not all are listed.

    >>> _render({"orders": (1, 2), "approval": (3,), "rates": ()}), _render({"orders": range(1, 101)}), _render({})
    ('3 events: orders 1, 2; approval 3', '100 events: orders 1, 2, 3, …', 'nothing')
    """
    if not any(numbers.values()):
        return "nothing"
    each = (
        f"{name} {', '.join(map(str, found if len(found) <= _NAMED_AT_MOST else [*found[:_NAMED_OF_MANY], '…']))}"
        for name, found in numbers.items()
        if found
    )
    return f"{counted(count or sum(map(len, numbers.values())), 'event')}: {'; '.join(each)}"
