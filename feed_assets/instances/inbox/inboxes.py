"""Look into the inboxes of feeds, and take what has settled there."""

from collections.abc import Sequence
from datetime import datetime

from feed_assets.clock import TimeBudget
from feed_assets.context.bulkheads import Bulkheads
from feed_assets.context.errors import NotAskedError
from feed_assets.context.store_answers import ask_stores, find_silent
from feed_assets.context.tick_records import TickStep
from feed_assets.instances.arrival.polling import ArrivalResult
from feed_assets.instances.inbox.inbox_files import (
    FileStatus,
    InboxFile,
    InboxState,
    SeenFile,
    cursor_of,
    find_files,
    inbox_of,
    judge_file,
)
from feed_assets.instances.inbox.taking import take_files
from feed_assets.log.cursors import Cursors
from feed_assets.plan.records import FeedRecord, Plan
from feed_assets.sql.database import Database
from feed_assets.storage.pool import StorePool

LARGEST_IN_TICKS = 1 << 30
"""The bytes of the largest file that a tick takes, and of all files of one instance that it makes."""


def apply_inboxes(
    database: Database,
    stores: StorePool,
    plan: Plan,
    cluster: str,
    as_of: datetime,
    real_now: datetime,
    budget: TimeBudget,
    bulkheads: Bulkheads,
) -> ArrivalResult:
    """Take what has settled in the inboxes of a cluster; a look into one is due after each `settle`.

    An inbox is left alone while its own storage, or that of the instances, does not answer. `real_now` is the real
    time, that of storage.
    """
    due = _find_due(database, plan, cluster, as_of, bulkheads)
    answers = ask_stores(
        due, lambda record: inbox_of(record).store, lambda record: find_files(stores, record), bulkheads
    )
    there = [record for record, found in zip(due, answers, strict=True) if not isinstance(found, Exception)]
    silent = find_silent(stores, [record.store for record in there], bulkheads)
    step, results = TickStep.INBOXES, list[ArrivalResult]()
    for record, found in zip(due, answers, strict=True):
        if isinstance(found, NotAskedError) or record.store in silent:
            continue  # the failure of the storage tells it
        if isinstance(found, Exception):
            bulkheads.fail(step, record.feed, found)
            continue
        if budget.is_spent:
            return ArrivalResult.sum_of(*results, ArrivalResult(is_complete=False))
        seen = bulkheads.run_unit(
            step,
            record.feed,
            (),
            take_files,
            database,
            stores,
            record,
            found,
            as_of,
            real_now,
            largest=LARGEST_IN_TICKS,
        )
        arrived = {each.nominal_time for each in seen if each.status is FileStatus.TAKEN}
        results.append(ArrivalResult(polled=len(seen), arrived=len(arrived)))
    return ArrivalResult.sum_of(*results)


def _find_due(database: Database, plan: Plan, cluster: str, as_of: datetime, bulkheads: Bulkheads) -> list[FeedRecord]:
    records = {cursor_of(record): record for record in plan.with_inbox_on(cluster) if takes_at(record, as_of)}
    if not records:
        return []
    with database.read() as connection:
        kept = Cursors(connection).get_many(records)
    return [
        record
        for cursor, record in records.items()
        if not bulkheads.is_put_off(TickStep.INBOXES, record.feed) and _is_due(record, kept.get(cursor), as_of)
    ]


def takes_at(record: FeedRecord, moment: datetime) -> bool:
    """Return whether the feed has instances at a moment."""
    index = record.sequence.index_at_or_before(moment)
    return index >= 0 and (record.sequence.size is None or index < record.sequence.size)


def _is_due(record: FeedRecord, kept: str | None, as_of: datetime) -> bool:
    """Return whether the next look is due, also after the clock was set back."""
    state = InboxState.parse(record, kept)
    pause = inbox_of(record).settle.as_duration()
    return state.next_at is None or not as_of < state.next_at <= as_of + pause


def preview_files(
    database: Database, record: FeedRecord, found: Sequence[InboxFile], real_now: datetime
) -> tuple[SeenFile, ...]:
    """Return what is known of files in an inbox, and which are READY to be taken; reads none of them."""
    with database.read() as connection:
        state = InboxState.parse(record, Cursors(connection).get(cursor_of(record)))
    judged = [(file, judge_file(record, file, state.left.get(file.name), real_now, None)) for file in found]
    return tuple(SeenFile(name=file.name, bytes=file.size, status=status, reason=why) for file, (status, why) in judged)
