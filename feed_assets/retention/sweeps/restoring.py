"""Restore the items that a chunk of a sweep has removed, from the trash or the archive, with their former rows."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from feed_assets.instances.arrival.polling import decide_poll_result
from feed_assets.instances.arrival.store_polls import Candidate
from feed_assets.instances.leasing import Leased
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.records import FeedEvent, FeedInstance, FeedInstanceStatus, FeedKey
from feed_assets.log.removals.chunks import SweepChunks
from feed_assets.log.removals.records import ChunkState, ItemOutcome, ItemResult, Sweep, SweepChunk, SweepItem
from feed_assets.retention.rules.locations import find_store
from feed_assets.retention.sweeps.removal_records import Removal, find_evictions, past_row, record_restored
from feed_assets.retention.sweeps.sweep_context import SweepContext
from feed_assets.storage.port import InstanceStore, StorePath
from feed_assets.storage.records import Moved, Outcome
from feed_assets.transfer.archiving import copy_exactly

_OUTCOME = {
    Outcome.MOVED: ItemOutcome.RESTORED,
    Outcome.ALREADY: ItemOutcome.RESTORED,
    Outcome.OCCUPIED: ItemOutcome.OCCUPIED,
    Outcome.CHANGED: ItemOutcome.OCCUPIED,
    Outcome.LOST: ItemOutcome.LOST,
    Outcome.VANISHED: ItemOutcome.LOST,
    Outcome.REFUSED: ItemOutcome.EVICTED,
}

REMOVED_OUTCOMES = frozenset({ItemOutcome.EVICTED, ItemOutcome.OCCUPIED, ItemOutcome.LOST})
"""Outcomes of items that were removed and are not back; an item that could not be restored stays EVICTED."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restoration:
    """The restoration of items of one chunk to their store.

    `is_resumed` says that an earlier attempt may have restored some of them without recording it.
    """

    context: SweepContext
    sweep: Sweep
    chunk: SweepChunk
    removal: Removal
    store: InstanceStore
    is_resumed: bool

    def restore(
        self, leased: Leased, items: Sequence[SweepItem], *, kept_reasons: Mapping[SweepItem, str] | None = None
    ) -> dict[SweepItem, ItemResult]:
        """Restore items of the chunk, and record it; return the results of all its items.

        With `kept_reasons` the items count as KEPT, for the reasons given there; else as RESTORED.
        """
        tokens = leased.tokens
        with self.context.database.read() as connection:
            rows = FeedInstances(connection).get_many(self.removal.keys(items))
            events = find_evictions(connection, self.removal, items)
        refused = {item: reason for item in items if (reason := self._refusal(item, tokens, rows, events.get(item)))}
        moved = self._move([item for item in items if item not in refused], events)
        back = {item: answer for item, answer in moved.items() if _OUTCOME[answer.outcome] is ItemOutcome.RESTORED}
        not_removed = ItemResult(ItemOutcome.KEPT, "it was not removed")
        results = {item: self.chunk.results.get(item, not_removed) for item in self.chunk.items}
        for item in items:
            if item in refused:
                results[item] = ItemResult(ItemOutcome.OCCUPIED, refused[item])
            elif item in back and kept_reasons is not None:
                results[item] = ItemResult(ItemOutcome.KEPT, kept_reasons[item])
            else:
                answer = moved[item]
                results[item] = ItemResult(_OUTCOME[answer.outcome], answer.reason, answer.bytes, answer.files)
        former = self._past_rows([item for item in back if item in events], events, tokens)
        is_away = kept_reasons is not None or any(each.outcome in REMOVED_OUTCOMES for each in results.values())
        self._record(former, results, ChunkState.DONE if is_away else ChunkState.UNDONE)
        return results

    @property
    def _flag(self) -> str | None:
        record = self.context.feed_of(self.chunk, self.sweep.cluster)
        return record.flag if record else None

    def _refusal(
        self,
        item: SweepItem,
        tokens: Mapping[datetime, int],
        rows: Mapping[FeedKey, FeedInstance],
        event: FeedEvent | None,
    ) -> str | None:
        """Return why an item cannot be restored, as far as the record shows."""
        if self.removal.is_data and item.nominal_time not in tokens:
            return "a writer holds its lease now"
        row = rows.get(FeedKey(self.chunk.feed, self.sweep.cluster, item.nominal_time))
        if event is None or not self.removal.is_data or row is None or row.event_seq == event.seq:
            return None
        if row.status is FeedInstanceStatus.EVICTED:
            return "a later sweep has removed a newer one; undo that one, or leave it"
        return f"a newer one has been {row.status.value} since {row.updated_at.isoformat(timespec='seconds')}"

    def _move(self, items: Sequence[SweepItem], events: Mapping[SweepItem, FeedEvent]) -> dict[SweepItem, Moved]:
        flag = self._flag if self.removal.is_data else None
        answers = self.store.trash().restore(self.sweep.sweep_id, [item.path for item in items])
        moved = dict(zip(items, answers, strict=True))
        for item, answer in moved.items():
            archive = events[item].payload.get("archive") if item in events else None
            if answer.outcome is Outcome.LOST and isinstance(archive, Mapping):
                url, origin_path = str(archive["store"]), str(archive["path"])
                origin = find_store(self.context, self.context.plan, self.sweep.cluster, url)
                if origin is not None:  # the archive keeps its copy
                    archived, place = (
                        StorePath(store=origin, path=origin_path),
                        StorePath(store=self.store, path=item.path),
                    )
                    back = copy_exactly(archived, place, self.context.real_clock, flag=flag)
                    moved[item] = answer if back.outcome is Outcome.VANISHED else back
        lost = [item for item, answer in moved.items() if answer.outcome is Outcome.LOST]
        return moved | (self._find_back(lost, events) if self.is_resumed else {})

    def _find_back(self, lost: Sequence[SweepItem], events: Mapping[SweepItem, FeedEvent]) -> dict[SweepItem, Moved]:
        """Return the lost items that an interrupted attempt has restored already.

        The item is missing in the trash, and its path has the size of the removed content, by the plan or by the
        record.
        """
        paths = [item.path for item in lost]
        measures, looks = self.store.measure(paths), self.store.look(paths, self._flag)
        found = {}
        for item, measure, look in zip(lost, measures, looks, strict=True):
            event = events.get(item)
            went = {(item.bytes, item.files), *([(event.bytes, event.files)] if event else [])}
            if measure.exists and went & {(measure.bytes, measure.files), (look.bytes, look.files), (None, None)}:
                found[item] = Moved(path=item.path, outcome=Outcome.MOVED, bytes=measure.bytes, files=measure.files)
        return found

    def _past_rows(
        self, items: Iterable[SweepItem], events: Mapping[SweepItem, FeedEvent], tokens: Mapping[datetime, int]
    ) -> dict[SweepItem, FeedInstance | None]:
        """Return the former rows of restored items; for instances without one, a row from their present content."""
        if not self.removal.is_data:
            return dict.fromkeys(items)
        rows = {item: past_row(events[item], tokens.get(item.nominal_time, 0)) for item in items}
        unknown = [item for item, row in rows.items() if row is None]
        return rows | (self._seen(unknown) if unknown else {})

    def _seen(self, items: Sequence[SweepItem]) -> dict[SweepItem, FeedInstance | None]:
        record = self.context.feed_of(self.chunk, self.sweep.cluster)
        if record is None:
            return dict.fromkeys(items)
        looks = self.store.look([item.path for item in items], record.flag)
        as_of = self.context.clock.now()
        return {
            item: decide_poll_result(Candidate(record=record, nominal_time=item.nominal_time), look, as_of).row
            for item, look in zip(items, looks, strict=True)
        }

    def _record(
        self,
        rows: Mapping[SweepItem, FeedInstance | None],
        results: Mapping[SweepItem, ItemResult],
        state: ChunkState,
    ) -> None:
        with self.context.database.begin() as connection:
            record_restored(connection, self.removal, rows, self.context.clock.now())
            SweepChunks(connection, self.sweep.sweep_id).finish(self.chunk, self.context.holder, state, results)
