"""Begin the queues of triggers with the releases that declare them: what comes after that is in the queue.

Ticks follow the triggers later, and count from there.
"""

from sqlalchemy import Connection

from feed_assets.entities.triggers import StartFrom
from feed_assets.log.events import EventLog
from feed_assets.log.records import EntityKey
from feed_assets.plan.records import Plan, ProcessRecord
from feed_assets.plan.trigger_records import TriggerInput
from feed_assets.sql.locks import lock_queues
from feed_assets.triggers.queue.inputs import TriggerInputs
from feed_assets.triggers.queue.records import InputKey, Mark


def input_key(record: ProcessRecord, each: TriggerInput) -> InputKey:
    """Return the key of an input of a trigger."""
    return InputKey(record.process, record.cluster, each.name, each.feed, each.feed_cluster)


def begin_queues(connection: Connection, plan: Plan) -> None:
    """Write the place in the log of each input that begins `now` and has none; other starts depend on no present."""
    triggers = [
        (record, record.trigger)
        for record in plan.processes.values()
        if record.trigger is not None and record.trigger.start is StartFrom.NOW
    ]
    if not triggers:
        return
    lock_queues(connection)
    known = TriggerInputs(connection).of([EntityKey(*record.key) for record, _ in triggers])
    last = EventLog(connection).last_seq()
    TriggerInputs(connection).add(
        Mark(**key._asdict(), counts_unchanged=trigger.counts_unchanged, start_seq=last, taken_seq=last)
        for record, trigger in triggers
        for each in trigger.inputs
        if (key := input_key(record, each)) not in known.get(EntityKey(*record.key), {})
    )
