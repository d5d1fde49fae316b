"""Claim chunks of a sweep and the leases of their instances, and keep both alive until the work ends."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import TracebackType
from typing import Self

from feed_assets.clock import Clock
from feed_assets.lifecycle.instances.leasing import TTL, Heartbeat
from feed_assets.lifecycle.instances.worker_names import is_dead
from feed_assets.masking import get_logger
from feed_assets.state.database import Database
from feed_assets.state.errors import StateError
from feed_assets.state.leases import Leases
from feed_assets.state.records import Lease
from feed_assets.state.sweep_chunks import SweepChunks
from feed_assets.state.sweep_records import ChunkHead, ChunkState, SweepChunk

_logger = get_logger(__name__)


def lease_holder(sweep_id: str) -> str:
    """Return the lease holder of a sweep's instances: the sweep itself, so that a resuming worker has the leases."""
    return f"sweep/{sweep_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """Claims on the chunks of a sweep by one worker; `holder` names its run (see `instances.worker_names`)."""

    database: Database
    real_clock: Clock
    sweep_id: str
    holder: str
    ttl: timedelta = TTL

    def take(self, state: ChunkState, after: int = -1) -> SweepChunk | None:
        """Claim the next free chunk in a state, above a number; None if there is none. See `take_many`."""
        return next(iter(self.take_many(state, 1, after)), None)

    def take_many(self, state: ChunkState, limit: int, after: int = -1) -> list[SweepChunk]:
        """Claim at most `limit` free chunks in a state, in numeric order, above a number.

        Also takes over chunks of workers of this machine that have died.

        Raises:
            SweepDamagedError: a chunk differs from the plan.
        """
        with self.database.begin() as connection:
            chunks = SweepChunks(connection, self.sweep_id)
            found = chunks.claim(self.holder, self.real_clock.now(), self.ttl, limit, state=state, after=after)
            if not found and _release_dead(chunks):
                found = chunks.claim(self.holder, self.real_clock.now(), self.ttl, limit, state=state, after=after)
        return found

    def release_dead(self) -> None:
        """Release the claims of workers of this machine that have died."""
        with self.database.begin() as connection:
            _release_dead(SweepChunks(connection, self.sweep_id))

    def left(self, *states: ChunkState) -> list[ChunkHead]:
        """Return the chunks in some states, regardless of their holders."""
        with self.database.read() as connection:
            return [head for head in SweepChunks(connection, self.sweep_id).heads() if head.state in states]

    def renew(self, chunk: ChunkHead) -> None:
        """Extend the claim on a chunk."""
        with self.database.begin() as connection:
            chunks = SweepChunks(connection, self.sweep_id)
            chunks.claim(self.holder, self.real_clock.now(), self.ttl, state=chunk.state, after=chunk.number - 1)

    def release(self) -> None:
        """Release all claims; if the database refuses, they expire."""
        with suppress(StateError), self.database.begin() as connection:
            SweepChunks(connection, self.sweep_id).release(self.holder)


class ChunkLease:
    """A context that keeps a claimed chunk and the leases of its instances alive with a thread.

    `leases` has, by nominal time, the leases that were free when the context was entered. Only chunks of data take
    leases: their instances are in no other chunk.
    """

    def __init__(self, claims: Claims, chunk: ChunkHead, keys: Iterable[tuple[str, str, datetime]]) -> None:
        self._claims = claims
        self._chunk = chunk
        self._keys = list(keys)
        self._store = Leases(claims.database)
        self._heartbeat = Heartbeat(f"chunk {chunk.number}", claims.ttl, self._renew)
        self.leases: dict[datetime, Lease] = {}

    @property
    def tokens(self) -> dict[datetime, int]:
        """The tokens of the leases."""
        return {time: lease.token for time, lease in self.leases.items()}

    def __enter__(self) -> Self:
        holder = lease_holder(self._claims.sweep_id)
        held = self._store.acquire_many(self._keys, holder, self._claims.real_clock.now(), self._claims.ttl)
        self.leases = {lease.nominal_time: lease for lease in held}
        self._heartbeat.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._heartbeat.stop()
        try:
            self._store.release_many(self.leases.values())
        except StateError:
            _logger.warning("leases of chunk %d could not be released; they will expire", self._chunk.number)

    def _renew(self) -> None:
        try:
            self._store.renew_many(self.leases.values(), self._claims.real_clock.now(), self._claims.ttl)
            self._claims.renew(self._chunk)
        except StateError:
            _logger.exception("leases of chunk %d could not be renewed", self._chunk.number)


def _release_dead(chunks: SweepChunks) -> bool:
    dead = {head.holder for head in chunks.heads() if head.holder and is_dead(head.holder)}
    for holder in sorted(dead):
        chunks.release(holder)
    return bool(dead)


@contextmanager
def releasing_claims(claims: Claims) -> Iterator[None]:
    """Return a context that releases all claims at its end, however it ends."""
    try:
        yield
    finally:
        claims.release()
