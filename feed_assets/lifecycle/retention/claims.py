"""Working on one chunk of a sweep: claimed, with the leases of its instances, both kept alive until the work ends."""

import logging
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import TracebackType
from typing import Self

from feed_assets.clock import Clock
from feed_assets.lifecycle.leasing import TTL
from feed_assets.lifecycle.retention.holders import is_dead
from feed_assets.state.database import Database
from feed_assets.state.errors import StateError
from feed_assets.state.leases import Leases
from feed_assets.state.records import Lease
from feed_assets.state.sweep_chunks import SweepChunks
from feed_assets.state.sweep_records import ChunkHead, ChunkState, SweepChunk

_logger = logging.getLogger(__name__)


def lease_holder(sweep_id: str) -> str:
    """Who has the leases of instances that a sweep works on: the sweep, so that whoever goes on with it has them."""
    return f"sweep/{sweep_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """The chunks of a sweep as one worker takes them; `holder` names the run of the worker (see `holders.py`)."""

    database: Database
    wall: Clock
    sweep_id: str
    holder: str
    ttl: timedelta = TTL

    def take(self, state: ChunkState, after: int = -1) -> SweepChunk | None:
        """The next chunk in a state that can be had, above a number; None if none can. See `take_many`."""
        return next(iter(self.take_many(state, 1, after)), None)

    def take_many(self, state: ChunkState, limit: int, after: int = -1) -> list[SweepChunk]:
        """At most `limit` chunks in a state that can be had, by their numbers, above one.

        What workers of this machine have that have died is taken from them.

        Raises:
            SweepDamagedError: one is not what was planned.
        """
        with self.database.begin() as connection:
            chunks = SweepChunks(connection, self.sweep_id)
            found = chunks.claim(self.holder, self.wall.now(), self.ttl, limit, state=state, after=after)
            if not found and _release_dead(chunks):
                found = chunks.claim(self.holder, self.wall.now(), self.ttl, limit, state=state, after=after)
        return found

    def release_dead(self) -> None:
        """Free what workers of this machine have that have died."""
        with self.database.begin() as connection:
            _release_dead(SweepChunks(connection, self.sweep_id))

    def left(self, *states: ChunkState) -> list[ChunkHead]:
        """The chunks in some states, whoever has them."""
        with self.database.read() as connection:
            return [head for head in SweepChunks(connection, self.sweep_id).heads() if head.state in states]

    def renew(self, chunk: ChunkHead) -> None:
        """Keep a chunk for longer."""
        with self.database.begin() as connection:
            chunks = SweepChunks(connection, self.sweep_id)
            chunks.claim(self.holder, self.wall.now(), self.ttl, state=chunk.state, after=chunk.number - 1)

    def release(self) -> None:
        """Give back what is claimed, if the database lets us; else it is free when its time has come."""
        with suppress(StateError), self.database.begin() as connection:
            SweepChunks(connection, self.sweep_id).release(self.holder)


class Grip:
    """A context in which a claimed chunk and the leases of its instances are kept alive by a thread.

    `leases` has, by nominal time, those that could be had when it was entered. Only chunks of data take leases: their
    instances are in no other chunk.
    """

    def __init__(self, claims: Claims, chunk: ChunkHead, keys: Iterable[tuple[str, str, datetime]]) -> None:
        self._claims = claims
        self._chunk = chunk
        self._keys = list(keys)
        self._store = Leases(claims.database)
        self._ended = threading.Event()
        self._beat = threading.Thread(target=self._renew, name=f"chunk {chunk.number}", daemon=True)
        self.leases: dict[datetime, Lease] = {}

    @property
    def tokens(self) -> dict[datetime, int]:
        """The tokens of the leases."""
        return {time: lease.token for time, lease in self.leases.items()}

    def __enter__(self) -> Self:
        holder = lease_holder(self._claims.sweep_id)
        held = self._store.acquire_many(self._keys, holder, self._claims.wall.now(), self._claims.ttl)
        self.leases = {lease.nominal_time: lease for lease in held}
        self._beat.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._beat.join()
        try:
            self._store.release_many(self.leases.values())
        except StateError:
            _logger.warning("leases of chunk %d could not be given back; they run out", self._chunk.number)

    def _renew(self) -> None:
        while not self._ended.wait(self._claims.ttl.total_seconds() / 3):
            try:
                self._store.renew_many(self.leases.values(), self._claims.wall.now(), self._claims.ttl)
                self._claims.renew(self._chunk)
            except StateError:
                _logger.exception("leases of chunk %d could not be renewed", self._chunk.number)


def _release_dead(chunks: SweepChunks) -> bool:
    dead = {head.holder for head in chunks.heads() if head.holder and is_dead(head.holder)}
    for holder in sorted(dead):
        chunks.release(holder)
    return bool(dead)


@contextmanager
def released(claims: Claims) -> Iterator[None]:
    """A context at the end of which nothing is claimed, however it ends."""
    try:
        yield
    finally:
        claims.release()
