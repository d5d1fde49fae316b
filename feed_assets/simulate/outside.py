"""What comes from outside in a simulation: data that lands, notices, and commands, by the operations of everybody."""

from collections.abc import Iterator

from feed_assets.context.operation import OperationContext
from feed_assets.definitions.verbs.decide_schedules import apply_schedules, decide_schedules
from feed_assets.entities.common import Kind
from feed_assets.instances.arrival.arrival_notices import Notice, NoticeOutcome, record_notice
from feed_assets.log.definitions.schedules import load_schedules
from feed_assets.log.events import EventLog
from feed_assets.simulate.event_files import AUTHOR, Command, GivenCommand, ToldArrival
from feed_assets.simulate.log import LogLine, SimulatedEvent
from feed_assets.simulate.parts import Arrival, SimulatedStores

_COMMANDS = {Command.SUSPEND: SimulatedEvent.SUSPENDED, Command.RESUME: SimulatedEvent.RESUMED}


def land(context: OperationContext, stores: SimulatedStores, arrival: Arrival) -> LogLine:
    """Write what arrives for polls to find; what is never polled is told."""
    record = context.plan.feeds[arrival.feed, arrival.cluster]
    if record.is_external and not record.is_polled:
        notice = Notice(
            feed=arrival.feed,
            cluster=arrival.cluster,
            nominal_time=arrival.nominal_time,
            author=AUTHOR,
            is_again=True,
        )
        return tell(context, stores, ToldArrival(at=arrival.at, notice=notice, content=arrival.content, record=record))
    stores.write(record, arrival.nominal_time, arrival.content)
    return LogLine(
        at=arrival.at,
        what=SimulatedEvent.ARRIVED,
        entity=arrival.feed,
        cluster=arrival.cluster,
        nominal_time=arrival.nominal_time,
        note="" if arrival.content == "1" else f"content {arrival.content}",
    )


def tell(context: OperationContext, stores: SimulatedStores, arrival: ToldArrival) -> LogLine:
    """Write what arrives if it has data, and give notice of it."""
    notice, record = arrival.notice, arrival.record
    time = notice.nominal_time
    if record.has_data and time is not None and stores.read(record, time) != arrival.content:
        stores.write(record, time, arrival.content)
    done = record_notice(context, notice)
    event = None
    if done.outcome is not NoticeOutcome.KNOWN:
        with context.read() as connection:
            event = EventLog(connection).last_seq()
    texts = [done.outcome.value if event is None else f"event {event}"]
    if done.outcome is NoticeOutcome.CHANGED:
        texts.append("other content")
    if notice.marking is not None:
        texts.append(f"marked {notice.marking}")
    return LogLine(
        at=arrival.at,
        what=SimulatedEvent.ARRIVED,
        entity=done.feed,
        cluster=done.cluster,
        nominal_time=done.nominal_time,
        note=", ".join(texts),
        event=event,
    )


def give(context: OperationContext, command: GivenCommand) -> Iterator[LogLine]:
    """Suspend or resume a process, and yield a line for each of its clusters."""
    with context.database.begin() as connection:
        view = load_schedules(connection, context.without_row)
        rows = decide_schedules(
            view,
            Kind.PROCESS,
            command.process,
            command.clusters,
            command.state,
            author=AUTHOR,
            now=context.as_of,
        )
        apply_schedules(connection, view, rows, context.as_of)
    for cluster in command.clusters:
        yield LogLine(at=command.at, what=_COMMANDS[command.command], entity=command.process, cluster=cluster)
