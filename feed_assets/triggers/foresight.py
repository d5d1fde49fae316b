"""Foresee the batches that ticks would cut by triggers that do not apply yet: with their decisions, writing nothing."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from sqlalchemy import Connection

from feed_assets.log.events import EventLog
from feed_assets.log.records import EntityKey
from feed_assets.plan.records import ProcessRecord
from feed_assets.triggers.apply_triggers import decide_batch, decide_following, is_followed
from feed_assets.triggers.cuts import Cut
from feed_assets.triggers.queue.batches import Batches
from feed_assets.triggers.queue.inputs import TriggerInputs
from feed_assets.triggers.queue.pending_events import PendingEvents
from feed_assets.triggers.queue.records import InputKey, Mark, TriggerState
from feed_assets.triggers.queue.store import Triggers

FORESEEN_AT_MOST = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeseenBatches:
    """The batches that a consumer would cut of what is pending: how many, or at least how many if there `are_more`.

    `pending` is how many events there are at each input, and `first` what the first batch would take. It waits until
    one of the `busy` batches under way has ended, if there are any.
    """

    record: ProcessRecord
    pending: Mapping[str, int]
    first: Cut
    batches: int
    are_more: bool
    busy: int


def foresee_batches(
    connection: Connection, records: Collection[ProcessRecord], as_of: datetime
) -> dict[EntityKey, ForeseenBatches]:
    """Return the batches that would be cut if these were the declarations; consumers without any are left out."""
    consumers = [EntityKey(*record.key) for record in records]
    last = EventLog(connection).last_seq()
    states, known = Triggers(connection).of(consumers), TriggerInputs(connection).of(consumers)
    under_way = Batches(connection).under_way(consumers)
    events = PendingEvents(connection, last, consumers)
    found = {}
    for record, consumer in zip(records, consumers, strict=True):
        state, marks = _follow(record, states.get(consumer), known.get(consumer, {}), events, last, as_of)
        cuts = list(islice(_iter_cuts(record, state, marks, events, as_of), FORESEEN_AT_MOST))
        if not cuts:
            continue
        busy = under_way.get(consumer, 0)
        found[consumer] = ForeseenBatches(
            record=record,
            pending={key.input: mark.pending for key, mark in marks.items()},
            first=cuts[0],
            batches=len(cuts),
            are_more=cuts[-1].leaves_any and (len(cuts) == FORESEEN_AT_MOST or _has_freed(cuts[-1])),
            busy=busy if busy >= record.parallel else 0,
        )
    return found


def _follow(
    record: ProcessRecord,
    state: TriggerState | None,
    marks: Mapping[InputKey, Mark],
    events: PendingEvents,
    last: int,
    as_of: datetime,
) -> tuple[TriggerState, dict[InputKey, Mark]]:
    """Return the times and marks after the next tick has followed the trigger and routed everything."""
    following = decide_following(record, state, marks, events, last, as_of)
    times = state if state is not None and is_followed(record, state) else following.state
    return times, {mark.key: mark for mark in (*following.added, *following.kept)}


def _iter_cuts(
    record: ProcessRecord,
    state: TriggerState,
    marks: Mapping[InputKey, Mark],
    events: PendingEvents,
    as_of: datetime,
) -> Iterator[Cut]:
    """Yield the batches that would be cut one after another, as if each ended at once."""
    if record.trigger is None or not is_followed(record, state):
        return
    while True:
        state, cut = decide_batch(record, state, marks, 0, events, as_of)
        if cut is None:
            return
        yield cut
        if not cut.leaves_any or _has_freed(cut):
            return
        marks = {**marks, **{share.mark.key: share.mark for share in cut.shares}}


def _has_freed(cut: Cut) -> bool:
    """Return whether a batch takes events that were free again: in the record they are so still, for the next one."""
    return any(share.freed for share in cut.shares)
