"""Draft sweeps: divide what they remove into chunks, and compute the digests that prove a stored plan unchanged."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from itertools import islice

from feed_assets.log.removals.records import CHUNK_ITEMS, ChunkHead, FeedCount, Sweep, SweepChunk, SweepItem, SweepState
from feed_assets.sql.column_types import to_micros

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


def digest_items(items: Iterable[SweepItem]) -> str:
    """Return the digest of the ordered items of a chunk, as planned."""
    return _digest([(path, to_micros(time), *others) for path, time, *others in items])


def _digest(document: object) -> str:
    return f"sha256:{hashlib.sha256(_render_json(document).encode()).hexdigest()}"
