"""Cut the items of a sweep into chunks, and encode them: column by column as compressed JSON with a version.

A digest of the stored content proves that a plan is unchanged.
"""

import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import Any

from feed_assets.state.column_types import from_micros, to_micros
from feed_assets.state.errors import StateError, SweepDamagedError
from feed_assets.state.records import FeedEventKind
from feed_assets.state.sweep_records import (
    CHUNK_ITEMS,
    ChunkHead,
    FeedCount,
    ItemOutcome,
    ItemResult,
    Sweep,
    SweepChunk,
    SweepItem,
    SweepState,
)

DATA = "data"

_VERSION = 1
_FAST = 1
_OUTCOME = {outcome.value: outcome for outcome in ItemOutcome}
_render_json = json.JSONEncoder(separators=(",", ":")).encode  # in ASCII: paths may contain bytes that are not text


@dataclass(frozen=True, slots=True, kw_only=True)
class NewChunk:
    """A chunk that is not stored yet."""

    head: ChunkHead
    content: bytes


class SweepDraft:
    """Collects and counts what a sweep removes; outside of any transaction, with little memory for each item.

    >>> from datetime import UTC
    >>> draft = SweepDraft("s1", "primary")
    >>> item = SweepItem("clicks/2024", datetime(2024, 1, 1, tzinfo=UTC), 5, 1, "age", "older than days(2)")
    >>> draft.add("clicks", "data", [item])
    >>> draft.instances, draft.paths, draft.bytes
    (1, 1, 5)
    """

    def __init__(self, sweep_id: str, cluster: str) -> None:
        self.sweep_id = sweep_id
        self.cluster = cluster
        self.chunks: list[NewChunk] = []
        self._counts: dict[str, FeedCount] = {}

    def add(self, feed: str, kind: str, items: Iterable[SweepItem]) -> None:
        """Add paths of one feed and one kind of location, in the given order."""
        rest = iter(items)
        while batch := tuple(islice(rest, CHUNK_ITEMS)):
            content, digest = encode_items(batch)
            times = [item.nominal_time for item in batch]
            head = ChunkHead(
                sweep_id=self.sweep_id,
                number=len(self.chunks),
                feed=feed,
                kind=kind,
                first=min(times),
                last=max(times),
                count=len(batch),
                digest=digest,
            )
            self.chunks.append(NewChunk(head=head, content=content))
            self._count(feed, kind, batch)

    @property
    def counts(self) -> tuple[FeedCount, ...]:
        """The counts of each feed, by name."""
        return tuple(self._counts[feed] for feed in sorted(self._counts))

    @property
    def instances(self) -> int:
        """How many instances, of all feeds: paths of data."""
        return sum(count.instances for count in self._counts.values())

    @property
    def paths(self) -> int:
        """How many paths, of all feeds and kinds."""
        return sum(count.paths for count in self._counts.values())

    @property
    def bytes(self) -> int:
        """How many bytes, as far as measured."""
        return sum(count.bytes for count in self._counts.values())

    @property
    def files(self) -> int:
        """How many files, as far as measured."""
        return sum(count.files for count in self._counts.values())

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
            digest=digest_chunks(self.cluster, [chunk.head for chunk in self.chunks]),
            log_seq=log_seq,
            instances=self.instances,
            paths=self.paths,
            bytes=self.bytes,
            files=self.files,
            chunks=len(self.chunks),
            counts=self.counts,
        )

    def _count(self, feed: str, kind: str, items: Sequence[SweepItem]) -> None:
        before = self._counts.get(feed, FeedCount(feed=feed))
        self._counts[feed] = replace(
            before,
            instances=before.instances + (len(items) if kind == DATA else 0),
            paths=before.paths + len(items),
            bytes=before.bytes + sum(item.bytes or 0 for item in items),
            files=before.files + sum(item.files or 0 for item in items),
        )


def event_key(chunk: ChunkHead, kind: FeedEventKind, item: SweepItem) -> str:
    """Return the idempotency key of the event and the message about an item of a chunk."""
    return f"sweep/{chunk.sweep_id}/{kind.value.lower()}/{chunk.kind}/{item.path}"


def digest_chunks(cluster: str, heads: Iterable[ChunkHead]) -> str:
    """Return the digest of a sweep's plan: equal digests mean equal paths for equal reasons."""
    chunks = [
        [head.number, head.feed, head.kind, to_micros(head.first), to_micros(head.last), head.count, head.digest]
        for head in heads
    ]
    return _digest(_render_json({"cluster": cluster, "chunks": chunks}).encode())


def encode_items(items: Sequence[SweepItem]) -> tuple[bytes, str]:
    """Encode items for storage; return them with their digest."""
    paths, times, sizes, files, rules, reasons, fingerprints = zip(*items, strict=True) if items else ((),) * 7
    document: dict[str, object] = {
        "version": _VERSION,
        "paths": paths,
        "times": [to_micros(time) for time in times],
        "bytes": sizes,
        "files": files,
        "rules": _fold(rules),
        "reasons": _fold(reasons),
    }
    if any(fingerprints):
        document["signs"] = fingerprints
    raw = _render_json(document).encode()
    return zlib.compress(raw, _FAST), _digest(raw)


def decode_chunk(head: ChunkHead, content: bytes, results: bytes | None) -> SweepChunk:
    """Decode a stored chunk.

    Raises:
        SweepDamagedError: the content differs from the plan.
        StateError: a newer release has written it.
    """
    try:
        raw = zlib.decompress(content)
    except zlib.error as exc:
        raise SweepDamagedError(sweep=head.sweep_id, chunk=head.number) from exc
    if _digest(raw) != head.digest:
        raise SweepDamagedError(sweep=head.sweep_id, chunk=head.number)
    document = _load(raw)
    count = len(document["paths"])
    items = map(
        SweepItem,
        document["paths"],
        map(from_micros, document["times"]),
        document["bytes"],
        document["files"],
        _unfold(document["rules"]),
        _unfold(document["reasons"]),
        document.get("signs") or [""] * count,
    )
    fields = {name: getattr(head, name) for name in ChunkHead.__dataclass_fields__}
    return SweepChunk(**fields, items=tuple(items), results=_decode_results(results))


def encode_results(results: Sequence[ItemResult]) -> bytes:
    """Encode the results of a chunk for storage."""
    outcomes, reasons, sizes, files = zip(*results, strict=True) if results else ((),) * 4
    document = {
        "version": _VERSION,
        "outcomes": _fold(outcomes),
        "reasons": _fold(reasons),
        "bytes": sizes,
        "files": files,
    }
    return zlib.compress(_render_json(document).encode(), _FAST)


def _decode_results(results: bytes | None) -> tuple[ItemResult, ...]:
    if results is None:
        return ()
    document = _load(zlib.decompress(results))
    outcomes = (_OUTCOME[outcome] for outcome in _unfold(document["outcomes"]))
    return tuple(map(ItemResult, outcomes, _unfold(document["reasons"]), document["bytes"], document["files"]))


def _fold(values: Sequence[str | None]) -> dict[str, object]:
    """Encode mostly repeated values as the distinct values and an index for each."""
    places: dict[str | None, int] = {}
    at = [places.setdefault(value, len(places)) for value in values]
    return {"values": list(places), "at": at}


def _unfold(folded: dict[str, Any]) -> Iterator[Any]:
    values = folded["values"]
    return (values[place] for place in folded["at"])


def _load(raw: bytes) -> Any:
    document = json.loads(raw)
    if document["version"] > _VERSION:
        raise StateError(
            reason=f"a sweep has content of version {document['version']}, but this release reads up to {_VERSION}",
            next_step="Upgrade feed-assets here to the release that wrote it.",
        )
    return document


def _digest(raw: bytes) -> str:
    return f"sha256:{hashlib.sha256(raw).hexdigest()}"
