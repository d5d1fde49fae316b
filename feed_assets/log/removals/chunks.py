"""Divide sweeps into chunks, with digests that prove a stored plan unchanged, and store the chunks: their items, the
claims on them, and the results of the items.

One worker at a time claims a chunk, until an expiry. The holder of a sweep's lease may revoke claims.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import compress, islice
from typing import Any

from sqlalchemy import Connection, Row, Select, case, insert, or_, select, update

from feed_assets.log.removals.records import (
    CHUNK_ITEMS,
    OPEN_STATES,
    ChunkHead,
    ChunkState,
    FeedCount,
    ItemOutcome,
    ItemResult,
    Sweep,
    SweepChunk,
    SweepItem,
    SweepState,
)
from feed_assets.log.removals.tables import IS_UNARCHIVED, sweep_chunks, sweeps
from feed_assets.sql.column_types import to_micros
from feed_assets.sql.errors import ChunkTakenError, SweepDamagedError
from feed_assets.sql.rows import RowMapper, delete_keys

DATA = "data"

_render_json = json.JSONEncoder(separators=(",", ":")).encode


class SweepDraft:
    """Collects and counts what a sweep removes, outside of any transaction.

    >>> from datetime import UTC
    >>> draft = SweepDraft("s1", "primary")
    >>> item = SweepItem("clicks/2024", datetime(2024, 1, 1, tzinfo=UTC), 5, 1, "age", "older than days(2)")
    >>> draft.add("clicks", "data", [item])
    >>> [(count.feed, count.instances, count.paths, count.bytes) for count in draft.counts]
    [('clicks', 1, 1, 5)]
    """

    def __init__(self, sweep_id: str, cluster: str) -> None:
        self.sweep_id = sweep_id
        self.cluster = cluster
        self.chunks: list[SweepChunk] = []
        self._counts: dict[str, FeedCount] = {}

    def add(self, feed: str, kind: str, items: Iterable[SweepItem], place: int | None = None) -> None:
        """Add paths of one feed and one kind of location, in the given order; `place` as in `ChunkHead`."""
        rest = iter(items)
        while batch := tuple(islice(rest, CHUNK_ITEMS)):
            times = [item.nominal_time for item in batch]
            chunk = SweepChunk(
                sweep_id=self.sweep_id,
                number=len(self.chunks),
                feed=feed,
                kind=kind,
                first=min(times),
                last=max(times),
                count=len(batch),
                digest=digest_items(batch),
                place=place,
                items=batch,
            )
            self.chunks.append(chunk)
            self._count(chunk)

    @property
    def counts(self) -> tuple[FeedCount, ...]:
        """The counts of each feed, by name."""
        return tuple(self._counts[feed] for feed in sorted(self._counts))

    def finish(
        self, state: SweepState, *, as_of: datetime, created_at: datetime, author: str, origin: str, log_seq: int
    ) -> Sweep:
        """Return the sweep of the collected items. Obstacles can be added with `replace`; `Sweeps.add` stores it."""
        return Sweep(
            sweep_id=self.sweep_id,
            cluster=self.cluster,
            state=state,
            as_of=as_of,
            created_at=created_at,
            author=author,
            origin=origin,
            digest=digest_chunks(self.cluster, self.chunks),
            log_seq=log_seq,
            instances=sum(count.instances for count in self.counts),
            paths=sum(count.paths for count in self.counts),
            bytes=sum(count.bytes for count in self.counts),
            files=sum(count.files for count in self.counts),
            chunks=len(self.chunks),
            counts=self.counts,
        )

    def _count(self, chunk: SweepChunk) -> None:
        before = self._counts.get(chunk.feed, FeedCount(feed=chunk.feed))
        self._counts[chunk.feed] = replace(
            before,
            instances=before.instances + (chunk.count if chunk.kind == DATA else 0),
            paths=before.paths + chunk.count,
            bytes=before.bytes + sum(item.bytes or 0 for item in chunk.items),
            files=before.files + sum(item.files or 0 for item in chunk.items),
        )


def digest_chunks(cluster: str, chunks: Iterable[ChunkHead]) -> str:
    """Return the digest of a sweep's plan: equal digests mean equal paths for equal reasons."""
    rows = [
        [each.number, each.feed, each.kind, to_micros(each.first), to_micros(each.last), each.count, each.digest]
        + ([] if each.place is None else [each.place])
        for each in chunks
    ]
    return _digest({"cluster": cluster, "chunks": rows})


def digest_anew(connection: Connection, feed: str) -> None:
    """Give sweeps with chunks of a feed that has another name now the digest of what they have planned."""
    of_feed = select(sweeps.c.sweep_id, sweeps.c.cluster).where(
        sweeps.c.sweep_id.in_(select(_T.sweep_id).where(_T.feed == feed))
    )
    for sweep_id, cluster in connection.execute(of_feed).all():
        digest = digest_chunks(cluster, SweepChunks(connection, sweep_id).heads())
        connection.execute(update(sweeps).where(sweeps.c.sweep_id == sweep_id).values(digest=digest))


def digest_items(items: Iterable[SweepItem]) -> str:
    """Return the digest of the ordered items of a chunk, as planned."""
    return _digest([(path, to_micros(time), *others) for path, time, *others in items])


def _digest(document: object) -> str:
    return f"sha256:{hashlib.sha256(_render_json(document).encode()).hexdigest()}"


_T = sweep_chunks.c
_HEADS = RowMapper(sweep_chunks, ChunkHead)
_CHUNKS = RowMapper(sweep_chunks, SweepChunk)
_ITEMS = _T["items"]
_WHOLE = (*_CHUNKS.columns, _T.outcomes)
_FREE: dict[str, object] = {"holder": None, "held_until": None}


class SweepChunks:
    """The chunks of one sweep as one transaction sees them."""

    def __init__(self, connection: Connection, sweep_id: str) -> None:
        self._connection = connection
        self._sweep_id = sweep_id
        self._is_of_sweep = _T.sweep_id == sweep_id

    def add(self, chunks: Iterable[SweepChunk]) -> None:
        """Store new chunks with their items, and with results if they have them."""
        for chunk in chunks:
            row = _CHUNKS.values(chunk) | {"outcomes": _in_order(chunk, chunk.results)}
            self._connection.execute(insert(sweep_chunks), row)

    def heads(self, *, state: ChunkState | None = None) -> list[ChunkHead]:
        """Return the chunks without their items, by number; in one state if given."""
        return _HEADS.find(self._connection, self._select(_HEADS.columns, state))

    def get(self, number: int) -> SweepChunk:
        """Return one chunk.

        Raises:
            SweepDamagedError: there is none with this number, or it differs from the plan.
        """
        row = self._connection.execute(self._select(_WHOLE).where(_T.number == number)).one_or_none()
        if row is None:
            raise SweepDamagedError(sweep=self._sweep_id, chunk=number)
        return self._load(row)

    def iter_all(self, *, feed: str | None = None) -> Iterator[SweepChunk]:
        """Yield the chunks with their items, by number; of one feed if given.

        Raises:
            SweepDamagedError: a chunk differs from the plan.
        """
        statement = self._select(_WHOLE, feeds=None if feed is None else [feed])
        return map(self._load, self._connection.execute(statement).all())

    def count_outcomes(
        self, feeds: Collection[str] | None = None, times: Collection[datetime] | None = None
    ) -> dict[tuple[str, ItemOutcome | None], int]:
        """Return the number of items by feed and outcome (None: not run); of some feeds and at some times if given."""
        counted: Counter[tuple[str, ItemOutcome | None]] = Counter()
        columns = (_T.feed, _T.count, _T.outcomes, *([] if times is None else [_ITEMS]))
        for feed, count, results, *items in self._connection.execute(self._select(columns, feeds=feeds)):
            outcomes = [each.outcome for each in results] or [None] * count
            is_wanted = (each.nominal_time in (times or ()) for listed in items for each in listed)
            counted.update((feed, each) for each in (compress(outcomes, is_wanted) if items else outcomes))
        return dict(counted)

    def find_nearest(
        self, time: datetime, feeds: Collection[str] | None = None
    ) -> tuple[datetime | None, datetime | None]:
        """Return the nearest nominal times of items until and from a time; both are the time if an item has it."""
        columns = (_T.first, _T.last, case(((_T.first < time) & (_T.last > time), _ITEMS)))
        times: set[datetime] = set()
        for first, last, items in self._connection.execute(self._select(columns, feeds=feeds)):
            times |= {first, last, *(each.nominal_time for each in items)}
        until, since = (each for each in times if each <= time), (each for each in times if each >= time)
        return max(until, default=None), min(since, default=None)

    def find_samples(self, outcome: ItemOutcome) -> dict[int, list[SweepItem]]:
        """Return for each chunk, by its number, an item with an outcome; nothing if none has it."""
        found = self._connection.execute(self._select((_T.number, _ITEMS, _T.outcomes)))
        return {
            number: [item for item, each in zip(items, results, strict=False) if each.outcome is outcome][:1]
            for number, items, results in found
        }

    def require_intact(self, sweep: Sweep) -> None:
        """Make sure that the chunks are those that were planned, all of them; items are checked when they are read.

        Raises:
            SweepDamagedError: chunks are missing, were added or differ.
        """
        if digest_chunks(sweep.cluster, self.heads()) != sweep.digest:
            raise SweepDamagedError(sweep=sweep.sweep_id)

    def claim(
        self,
        holder: str,
        now: datetime,
        ttl: timedelta,
        limit: int = 1,
        *,
        state: ChunkState = ChunkState.OPEN,
        after: int = -1,
        without: Collection[str] = (),
    ) -> list[SweepChunk]:
        """Claim at most `limit` free chunks in a state until `now + ttl`, in numeric order above `after`.

        Skips chunks of the feeds in `without`, and those of other holders until their claims expire; a holder may claim
        its own chunks again. So `holder` must name one run of one worker. In a write transaction only.
        """
        free = self._select((_T.number,), state).where(
            _T.number > after, _T.feed.not_in(without), _is_free(holder, now)
        )
        free = free.limit(limit)
        numbers = list(self._connection.scalars(free.with_for_update(skip_locked=True)))
        if not numbers:
            return []
        taken = update(sweep_chunks).where(
            self._is_of_sweep, _T.number.in_(numbers), _T.state == state, _is_free(holder, now)
        )
        self._connection.execute(taken.values(holder=holder, held_until=now + ttl))
        wanted = self._select(_WHOLE).where(_T.number.in_(numbers), _T.holder == holder)
        return list(map(self._load, self._connection.execute(wanted).all()))

    def renew(self, chunk: ChunkHead, holder: str, held_until: datetime) -> None:
        """Extend the holder's claim on a chunk; do nothing if it has none."""
        held = update(sweep_chunks).where(self._is_of_sweep, _T.number == chunk.number, _T.holder == holder)
        self._connection.execute(held.values(held_until=held_until))

    def finish(
        self, chunk: SweepChunk, holder: str, state: ChunkState, results: Mapping[SweepItem, ItemResult]
    ) -> None:
        """End the work on a claimed chunk: write its new state (the same, if there is more to do) and a result for each
        item.

        Call it in the transaction with all other database changes of the work.

        Raises:
            ChunkTakenError: another holder has it or has ended it; the transaction must not be committed.
            ValueError: the number of results differs from the number of items.
        """
        if len(results) != chunk.count:
            raise ValueError(f"{len(results)} results for {chunk.count} items of chunk {chunk.number}")
        claimed = self._select((_T.state, _T.holder)).where(_T.number == chunk.number).with_for_update()
        row = self._connection.execute(claimed).one_or_none()
        if row is None or (row.state, row.holder) != (chunk.state, holder):
            raise ChunkTakenError(
                sweep=self._sweep_id, chunk=chunk.number, holder=holder, other=None if row is None else row.holder
            )
        ended = update(sweep_chunks).where(self._is_of_sweep, _T.number == chunk.number)
        self._connection.execute(ended.values(state=state, outcomes=_in_order(chunk, results), **_FREE))

    def release(self, holder: str) -> int:
        """Release all claims of a holder that stops or has died; return how many chunks."""
        held = update(sweep_chunks).where(self._is_of_sweep, _T.holder == holder)
        return self._connection.execute(held.values(_FREE)).rowcount

    def _select(
        self, columns: Sequence[Any], state: ChunkState | None = None, feeds: Collection[str] | None = None
    ) -> Select[Any]:
        statement = select(*columns).where(self._is_of_sweep).order_by(_T.number)
        statement = statement if feeds is None else statement.where(_T.feed.in_(feeds))
        return statement if state is None else statement.where(_T.state == state)

    def _load(self, row: Row[Any]) -> SweepChunk:
        values, outcomes = row[:-1], row[-1]
        chunk = _CHUNKS.load(values)
        if digest_items(chunk.items) != chunk.digest:
            raise SweepDamagedError(sweep=self._sweep_id, chunk=chunk.number)
        return replace(chunk, results=dict(zip(chunk.items, outcomes, strict=bool(outcomes))))


def _in_order(chunk: SweepChunk, results: Mapping[SweepItem, ItemResult]) -> tuple[ItemResult, ...]:
    return tuple(results[item] for item in chunk.items) if results else ()


def _is_free(holder: str, now: datetime) -> Any:
    return or_(_T.holder.is_(None), _T.holder == holder, _T.held_until <= now)


def find_old_chunks(connection: Connection, before: datetime, limit: int) -> dict[tuple[str, int], int]:
    """Return chunks of sweeps that were planned before a time and have neither work nor trash any more nor an archive,
    with the numbers of their items.
    """
    of = sweeps.c
    has_no_trash = or_(of.purge_at.is_(None), of.purged_at.is_not(None))
    is_old = (of.created_at < before, of.state.not_in(sorted(OPEN_STATES)), has_no_trash, IS_UNARCHIVED)
    statement = select(_T.sweep_id, _T.number, _T.count).join(sweeps, of.sweep_id == _T.sweep_id).where(*is_old)
    return {(sweep_id, number): count for sweep_id, number, count in connection.execute(statement.limit(limit))}


def remove_chunks(connection: Connection, keys: Collection[tuple[str, int]]) -> None:
    """Remove chunks with their items; their sweeps stay."""
    delete_keys(connection, sweep_chunks, ("sweep_id", "number"), keys)
