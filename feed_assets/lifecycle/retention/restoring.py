"""Putting back what a chunk of a sweep has taken away: from the trash, or from the archive, with the rows it had."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from feed_assets.lifecycle.arrivals import Candidate, decide_seen
from feed_assets.lifecycle.retention.claims import Grip
from feed_assets.lifecycle.retention.evictions import Removal, find_evictions, former_row, record_restored
from feed_assets.lifecycle.retention.locations import find_store
from feed_assets.lifecycle.retention.worksite import Worksite
from feed_assets.state.feed_instances import FeedInstances
from feed_assets.state.records import FeedEvent, FeedInstance, FeedInstanceStatus, FeedKey
from feed_assets.state.sweep_chunks import SweepChunks
from feed_assets.state.sweep_records import ChunkState, ItemOutcome, ItemResult, Sweep, SweepChunk, SweepItem
from feed_assets.storage.port import InstanceStore
from feed_assets.storage.records import Moved, Outcome

_OUTCOME = {
    Outcome.MOVED: ItemOutcome.RESTORED,
    Outcome.ALREADY: ItemOutcome.RESTORED,
    Outcome.OCCUPIED: ItemOutcome.OCCUPIED,
    Outcome.CHANGED: ItemOutcome.OCCUPIED,
    Outcome.LOST: ItemOutcome.LOST,
    Outcome.VANISHED: ItemOutcome.LOST,
    Outcome.REFUSED: ItemOutcome.EVICTED,
}

AWAY = frozenset({ItemOutcome.EVICTED, ItemOutcome.OCCUPIED, ItemOutcome.LOST})
"""Outcomes of items that were taken away and are not back; one that could not be put back stays EVICTED."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restoration:
    """The items of one chunk that are to come back, with the store they came from.

    `is_resumed` says that an earlier attempt may have put some of them back without recording it.
    """

    site: Worksite
    sweep: Sweep
    chunk: SweepChunk
    removal: Removal
    store: InstanceStore
    is_resumed: bool

    def restore(
        self, grip: Grip, places: Sequence[int], *, given_back: Mapping[int, str] | None = None
    ) -> list[ItemResult]:
        """Put items back, by their places in the chunk, and record it; returns the results of all items.

        With `given_back` the items count as KEPT, for the reasons there; else as RESTORED.
        """
        items = [self.chunk.items[place] for place in places]
        with self.site.database.read() as connection:
            rows = FeedInstances(connection).get_many(self.removal.keys(items))
            events = find_evictions(connection, self.removal, items)
        refused = {item: reason for item in items if (reason := self._refusal(item, grip, rows, events.get(item)))}
        moved = self._move([item for item in items if item not in refused], events)
        back = {item: answer for item, answer in moved.items() if _OUTCOME[answer.outcome] is ItemOutcome.RESTORED}
        results = self._results()
        for place, item in zip(places, items, strict=True):
            if item in refused:
                results[place] = ItemResult(ItemOutcome.OCCUPIED, refused[item])
            elif item in back and given_back is not None:
                results[place] = ItemResult(ItemOutcome.KEPT, given_back[place])
            else:
                answer = moved[item]
                results[place] = ItemResult(_OUTCOME[answer.outcome], answer.reason, answer.bytes, answer.files)
        former = self._former_rows([item for item in back if item in events], events, grip)
        is_away = given_back is not None or any(each.outcome in AWAY for each in results)
        self._record(former, results, ChunkState.DONE if is_away else ChunkState.UNDONE)
        return results

    @property
    def _flag(self) -> str | None:
        record = self.site.feed(self.chunk.feed, self.sweep.cluster)
        return record.flag if record else None

    def _refusal(
        self, item: SweepItem, grip: Grip, rows: Mapping[FeedKey, FeedInstance], event: FeedEvent | None
    ) -> str | None:
        """Why an item cannot come back, as far as the record can tell."""
        if self.removal.is_data and item.nominal_time not in grip.leases:
            return "somebody writes it at this moment"
        row = rows.get(FeedKey(self.chunk.feed, self.sweep.cluster, item.nominal_time))
        if event is None or not self.removal.is_data or row is None or row.event_seq == event.seq:
            return None
        if row.status is FeedInstanceStatus.EVICTED:
            return "a later sweep has taken away a newer one; undo that one, or leave it"
        return f"a newer one is {row.status.value} since {row.updated_at.isoformat(timespec='seconds')}"

    def _move(self, items: Sequence[SweepItem], events: Mapping[SweepItem, FeedEvent]) -> dict[SweepItem, Moved]:
        flag = self._flag if self.removal.is_data else None
        trash, sweep_id = self.store.trash(), self.sweep.sweep_id
        answers = trash.restore(sweep_id, [item.path for item in items])
        moved = dict(zip(items, answers, strict=True))
        for item, answer in moved.items():
            archive = events[item].payload.get("archive") if item in events else None
            if answer.outcome is Outcome.LOST and isinstance(archive, Mapping):
                url, origin_path = str(archive["store"]), str(archive["path"])
                origin = find_store(self.site.plan, self.site.stores, self.sweep.cluster, url)
                if origin is not None:
                    moved[item] = trash.bring_back(item.path, origin, origin_path, sweep_id, flag=flag)
        lost = [item for item, answer in moved.items() if answer.outcome is Outcome.LOST]
        return moved | (self._found_again(lost, events) if self.is_resumed else {})

    def _found_again(self, lost: Sequence[SweepItem], events: Mapping[SweepItem, FeedEvent]) -> dict[SweepItem, Moved]:
        """Of what is not in the trash that which an attempt that broke off has put back already: it is as large as what
        went, as the plan has measured it or as the record had it.
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

    def _former_rows(
        self, items: Iterable[SweepItem], events: Mapping[SweepItem, FeedEvent], grip: Grip
    ) -> dict[SweepItem, FeedInstance | None]:
        """The rows of what is back as they were; of instances that had none, as they are found now."""
        if not self.removal.is_data:
            return dict.fromkeys(items)
        rows = {item: former_row(events[item], grip.leases.get(item.nominal_time)) for item in items}
        unknown = [item for item, row in rows.items() if row is None]
        return rows | (self._seen(unknown) if unknown else {})

    def _seen(self, items: Sequence[SweepItem]) -> dict[SweepItem, FeedInstance | None]:
        record = self.site.feed(self.chunk.feed, self.sweep.cluster)
        if record is None:
            return dict.fromkeys(items)
        looks = self.store.look([item.path for item in items], record.flag)
        as_of = self.site.clock.now()
        return {
            item: decide_seen(Candidate(record=record, nominal_time=item.nominal_time), look, as_of).row
            for item, look in zip(items, looks, strict=True)
        }

    def _results(self) -> list[ItemResult]:
        if self.chunk.results:
            return list(self.chunk.results)
        return [ItemResult(ItemOutcome.KEPT, "it was not taken away")] * self.chunk.count

    def _record(
        self, rows: Mapping[SweepItem, FeedInstance | None], results: Sequence[ItemResult], state: ChunkState
    ) -> None:
        with self.site.database.begin() as connection:
            record_restored(connection, self.removal, rows, self.site.clock.now())
            SweepChunks(connection, self.sweep.sweep_id).finish(self.chunk, self.site.holder, state, results)
