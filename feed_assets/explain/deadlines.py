"""What `why` says of the deadlines of an instance: until when it is due, how late it is or was, and who was told."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from sqlalchemy import Connection

from feed_assets.alerts.deadlines.due_times import KINDS, Deadlines, open_deadlines
from feed_assets.alerts.deadlines.looking import INSTANCES_A_STEP
from feed_assets.alerts.deadlines.records import LateInstance, SlaMiss
from feed_assets.alerts.deadlines.store import SlaMisses
from feed_assets.alerts.deadlines.telling import SENTENCES, key_of_message
from feed_assets.alerts.forecasting.chains import ChainReader
from feed_assets.alerts.forecasting.deadlines import find_missing, forecast
from feed_assets.context.operation import OperationContext
from feed_assets.entities.common import Kind
from feed_assets.explain.records import Reason, ReasonCode
from feed_assets.explain.tellings import explain_tellings
from feed_assets.instances.lists.rows import rendered
from feed_assets.log.messages.levels import SlaLevel
from feed_assets.log.messages.payloads import SlaEvent
from feed_assets.log.records import FeedKey, ProcessKey
from feed_assets.log.watermarks import Watermarks
from feed_assets.timing.dates import render_datetime


def explain_deadlines(
    context: OperationContext, connection: Connection, kind: Kind, key: FeedKey | ProcessKey, *, is_due: bool
) -> Iterator[Reason]:
    """Yield a reason for each deadline that the instance has missed, who was told of it, and a reason for each deadline
    that is still to come if it `is_due`: if it has not come.
    """
    name, cluster, nominal_time = key
    instance = LateInstance(kind.value, name, cluster, nominal_time)
    misses = SlaMisses(connection).of([instance]).get(instance, [])
    for miss in misses:
        yield _missed(miss, context.as_of)
        if miss.told_at is not None:
            first = SlaMisses(connection).first_told_with(miss, INSTANCES_A_STEP)
            message = key_of_message(SlaEvent.MISSED, miss.level, first)
            yield from explain_tellings(context, connection, [message], f"its lateness ({miss.level.value.upper()})")
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
    if not is_to_come or not find_missing(connection, deadlines, [nominal_time]):
        return "", None
    reader = ChainReader(connection=connection, timeline=context.timeline, as_of=context.as_of)
    found = forecast(reader, deadlines, nominal_time)
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
