"""Say who was told of something, and who was not, and why."""

from collections.abc import Collection, Iterator

from sqlalchemy import Connection

from feed_assets.alerts.delivery.store import Deliveries, Delivery, WaysOut, WayState
from feed_assets.alerts.delivery.ways import Way, read_ways
from feed_assets.context.operation import OperationContext
from feed_assets.explain.records import Reason, ReasonCode
from feed_assets.log.messages.outbox import MessageHead, Outbox
from feed_assets.log.messages.records import OutboxMessage
from feed_assets.timing.dates import render_datetime


def explain_tellings(
    context: OperationContext, connection: Connection, keys: Collection[str], subject: str
) -> Iterator[Reason]:
    """Yield who was told by the messages with these keys, as far as receivers are declared; `subject` is what of."""
    if context.settings is None or not keys:
        return
    ways = read_ways(context.settings, context.plan).usable
    seqs = Outbox(connection).find_keys(keys).values() if ways else ()
    if not seqs:
        return
    messages = Outbox(connection).get_many(list(seqs))
    states, undone = WaysOut(connection).all(), Deliveries(connection).of_messages(list(seqs))
    told: list[str] = []
    for name, way in sorted(ways.items()):
        wanted = [seq for seq, message in messages.items() if _wants(way, message)]
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


def _wants(way: Way, message: OutboxMessage) -> bool:
    head = MessageHead(message.seq, message.topic, message.level, message.subject, message.recorded_at)
    return way.wants(head) and way.accepts(message)


def _describe(name: str, subject: str, left: list[Delivery], state: WayState) -> str:
    dead = [each for each in left if each.dead_at is not None]
    if dead:
        return f"{name} was not told of {subject}, a dead letter: {dead[0].error}"
    next_at = left[0].next_at if left else state.next_at
    error = (left[0].error if left else None) or state.error
    when = f", next at {render_datetime(next_at)}" if next_at is not None else ""
    return f"{name} is not told of {subject} yet{when}" + (f": {error}" if error else "")
