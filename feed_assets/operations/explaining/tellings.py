"""Say who was told of the end of an instance, and who was not, and why."""

from collections.abc import Iterator

from sqlalchemy import Connection

from feed_assets.delivery.ways import Way, read_ways
from feed_assets.lifecycle.instances.end_messages import keys_of_end
from feed_assets.operations.context import OperationContext
from feed_assets.operations.explaining.records import Reason, ReasonCode
from feed_assets.plan.records import ProcessRecord
from feed_assets.state.deliveries import Deliveries, Delivery, WaysOut, WayState
from feed_assets.state.messages import OutboxMessage
from feed_assets.state.outbox import MessageHead, Outbox
from feed_assets.state.records import ProcessInstance, ProcessInstanceStatus
from feed_assets.timing.dates import render_datetime

_ENDED = frozenset(
    {
        ProcessInstanceStatus.SUCCEEDED,
        ProcessInstanceStatus.FAILED,
        ProcessInstanceStatus.KILLED,
        ProcessInstanceStatus.TIMEDOUT,
    }
)


def explain_tellings(
    context: OperationContext, connection: Connection, process: ProcessRecord | None, row: ProcessInstance | None
) -> Iterator[Reason]:
    """Yield who was told of the end of an instance, as far as receivers are declared."""
    if context.settings is None or row is None or row.status not in _ENDED:
        return
    ways = read_ways(context.settings, context.plan).usable
    seqs = Outbox(connection).find_keys(keys_of_end(process, row)).values() if ways else ()
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
            yield Reason(code=ReasonCode.NOT_TOLD, text=_describe(name, left, state), facts={"way": name})
        else:
            told.append(name)
    if told:
        yield Reason(code=ReasonCode.TOLD, text=f"told of its end: {', '.join(told)}", facts={"ways": told})


def _wants(way: Way, message: OutboxMessage) -> bool:
    head = MessageHead(message.seq, message.topic, message.level, message.subject, message.recorded_at)
    return way.wants(head) and way.accepts(message)


def _describe(name: str, left: list[Delivery], state: WayState) -> str:
    dead = [each for each in left if each.dead_at is not None]
    if dead:
        return f"{name} was not told of its end, a dead letter: {dead[0].error}"
    next_at = left[0].next_at if left else state.next_at
    error = (left[0].error if left else None) or state.error
    when = f", next at {render_datetime(next_at)}" if next_at is not None else ""
    return f"{name} is not told of its end yet{when}" + (f": {error}" if error else "")
