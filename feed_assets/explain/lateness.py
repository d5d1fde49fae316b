"""The deadlines that an instance has missed or that are to come, and who was told of it and of its end."""

from collections.abc import Collection, Iterator
from datetime import datetime, timedelta

from sqlalchemy import Connection

from feed_assets.alerts.deadlines.checks import INSTANCES_A_STEP
from feed_assets.alerts.deadlines.due_times import KINDS, Deadlines, open_deadlines
from feed_assets.alerts.deadlines.messages import SENTENCES, key_of_message
from feed_assets.alerts.deadlines.records import LateInstance, SlaMiss
from feed_assets.alerts.deadlines.store import SlaMisses
from feed_assets.alerts.delivery.receivers import Receiver, read_receivers
from feed_assets.alerts.delivery.store import Deliveries, Delivery, ReceiverState, ReceiverStates
from feed_assets.alerts.forecasting.chains import ChainReader
from feed_assets.alerts.forecasting.forecasts import are_missing, forecast
from feed_assets.context.operation import OperationContext
from feed_assets.entities.common import Kind
from feed_assets.explain.records import Reason, ReasonCode
from feed_assets.instances.lists.rows import rendered
from feed_assets.log.messages.levels import SlaLevel
from feed_assets.log.messages.outbox import MessageHead, Outbox
from feed_assets.log.messages.payloads import SlaEvent
from feed_assets.log.messages.records import OutboxMessage
from feed_assets.log.records import FeedKey, ProcessKey
from feed_assets.log.watermarks import Watermarks
from feed_assets.timing.dates import render_datetime


def explain_messages(
    context: OperationContext, connection: Connection, keys: Collection[str], subject: str
) -> Iterator[Reason]:
    """Yield who was told by the messages with these keys, as far as receivers are declared; `subject` is what of."""
    if context.settings is None or not keys:
        return
    receivers = read_receivers(context.settings, context.plan).usable
    seqs = Outbox(connection).find_keys(keys).values() if receivers else ()
    if not seqs:
        return
    messages = Outbox(connection).get_many(list(seqs))
    states, undone = ReceiverStates(connection).all(), Deliveries(connection).of_messages(list(seqs))
    told: list[str] = []
    for name, receiver in sorted(receivers.items()):
        wanted = [seq for seq, message in messages.items() if _wants(receiver, message)]
        left = [each for each in undone if each.way == name and each.seq in wanted]
        state = states.get(name)
        if not wanted or state is None:
            continue
        if left or state.cursor < max(wanted):
            yield Reason(code=ReasonCode.NOT_TOLD, text=_describe(name, subject, left, state), facts={"way": name})
        else:
            told.append(name)
    if told:
        yield Reason(code=ReasonCode.TOLD, text=f"told of {subject}: {', '.join(told)}", facts={"ways": told})


def _wants(receiver: Receiver, message: OutboxMessage) -> bool:
    head = MessageHead(message.seq, message.topic, message.level, message.subject, message.recorded_at)
    return receiver.wants(head) and receiver.accepts(message)


def _describe(name: str, subject: str, left: list[Delivery], state: ReceiverState) -> str:
    dead = [each for each in left if each.dead_at is not None]
    if dead:
        return f"{name} was not told of {subject}, a dead letter: {dead[0].error}"
    next_at = left[0].next_at if left else state.next_at
    error = (left[0].error if left else None) or state.error
    when = f", next at {render_datetime(next_at)}" if next_at is not None else ""
    return f"{name} is not told of {subject} yet{when}" + (f": {error}" if error else "")


def explain_deadlines(
    context: OperationContext, connection: Connection, key: FeedKey | ProcessKey, *, is_due: bool
) -> Iterator[Reason]:
    """Yield a reason for each deadline that the instance has missed, who was told of it, and a reason for each deadline
    that is still to come if it `is_due`: if it has not come.
    """
    kind, (name, cluster, nominal_time) = Kind.FEED if isinstance(key, FeedKey) else Kind.PROCESS, key
    instance = LateInstance(kind.value, name, cluster, nominal_time)
    misses = SlaMisses(connection).of([instance]).get(instance, [])
    for miss in misses:
        yield _missed(miss, context.as_of)
        if miss.told_at is not None:
            first = SlaMisses(connection).first_told_with(miss, INSTANCES_A_STEP)
            message = key_of_message(SlaEvent.MISSED, miss.level, first.instance, str(first.episode))
            yield from explain_messages(context, connection, [message], f"its lateness ({miss.level.value.upper()})")
    for level in SlaLevel if is_due else ():
        deadlines = open_deadlines(connection, context.timeline, kind, name, cluster, level)
        watermark = Watermarks(connection).get(KINDS[kind, level], name, cluster)
        is_ahead = watermark is not None and watermark.next_time is not None and watermark.next_time <= nominal_time
        if deadlines is not None and is_ahead:
            due_at = deadlines.due_at(nominal_time)
            text, probability = _forecast(context, connection, deadlines, nominal_time)
            yield Reason(
                code=ReasonCode.DEADLINE,
                text=f"it is late after {render_datetime(due_at)} ({level.value.upper()}){text}",
                facts={"level": level.value, "due_at": rendered(due_at), "probability": probability},
            )


def _forecast(
    context: OperationContext, connection: Connection, deadlines: Deadlines, nominal_time: datetime
) -> tuple[str, float | None]:
    """Return what is forecast of a deadline, and the probability of a miss; nothing without enough history."""
    is_to_come = deadlines.due_at(nominal_time) > context.as_of
    if not is_to_come or not are_missing(connection, [(deadlines, nominal_time)])[0]:
        return "", None
    reader = ChainReader(connection=connection, timeline=context.timeline, as_of=context.as_of)
    (found,) = forecast(reader, [(deadlines, nominal_time)])
    return (f"; {found.sentence}" if found.probability is not None else ""), found.probability


def _missed(miss: SlaMiss, as_of: datetime) -> Reason:
    late = timedelta(seconds=(max(miss.recovered_at or as_of, miss.due_at) - miss.due_at) // timedelta(seconds=1))
    due, level = render_datetime(miss.due_at), miss.level.value.upper()
    text = f"it is late by {late}" if miss.is_open else f"it was late by {late}"
    text += f": it was due at {due} ({level})"
    if miss.recovered_by is not None:
        text += f", and {SENTENCES[miss.recovered_by]}"
    told = "nobody was told, since it had come by then"
    if miss.told_at is not None:
        told = f"a message of the topic sla tells of it, written at {rendered(miss.told_at)}"
    known = f"; {miss.acknowledged_by} has acknowledged it" if miss.acknowledged_by is not None else ""
    return Reason(
        code=ReasonCode.DEADLINE,
        text=f"{text}; {told}{known}",
        facts={
            "level": miss.level.value,
            "due_at": rendered(miss.due_at),
            "missed_at": rendered(miss.missed_at),
            "told_at": rendered(miss.told_at),
            "recovered_at": rendered(miss.recovered_at),
            "acknowledged_by": miss.acknowledged_by,
        },
    )
