"""Define the context of sweep workers, and their claims on the chunks of a sweep."""

from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TypeAlias

from feed_assets.command_lines import command_line
from feed_assets.context.operation import TimelineContext
from feed_assets.errors import Fault
from feed_assets.instances.leasing import TTL, Leased
from feed_assets.log.instances.feed_places import FeedPlaces
from feed_assets.log.removals.chunks import SweepChunks
from feed_assets.log.removals.records import ChunkHead, ChunkState, Sweep, SweepChunk
from feed_assets.log.removals.store import Sweeps
from feed_assets.log.run_names import is_dead
from feed_assets.plan.records import FeedRecord
from feed_assets.retention.errors import SweepRefusedError
from feed_assets.retention.rules.hold_traces import HoldTraces
from feed_assets.retention.rules.locations import at_former
from feed_assets.sql.errors import StateError

Progress: TypeAlias = Callable[[int, int], None]
"""Called with the number of finished paths of a sweep, and the total."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepContext(TimelineContext):
    """A context for planning, running, undoing and purging sweeps: adds the worker.

    `holder` names one run of one worker (see `name_holder`); `origin` is the origin in events.
    """

    holder: str
    origin: str = "retention"
    ttl: timedelta = TTL

    def claims(self, sweep_id: str) -> "Claims":
        """Return this worker's claims on the chunks of a sweep."""
        return Claims(context=self, sweep_id=sweep_id)

    def hold_traces(self, *, dry_run: bool = False) -> HoldTraces:
        """Return what makes the record and the traces of holds on storage equal."""
        return HoldTraces(context=self, as_of=self.clock.now(), dry_run=dry_run)

    def feeds_of(self, sweep: Sweep) -> list[FeedRecord]:
        """Return the feeds of a sweep that are declared now."""
        found = (self.feed(count.feed, sweep.cluster) for count in sweep.counts)
        return [record for record in found if record is not None]

    def feed(self, feed: str, cluster: str) -> FeedRecord | None:
        """Return a feed on a cluster as it is declared now; None if it is not."""
        return self.plan.feeds.get((feed, cluster))

    def feed_of(self, chunk: ChunkHead, cluster: str) -> FeedRecord | None:
        """Return the feed of a chunk where the chunk's paths are; None if it is not declared now."""
        record = self.feed(chunk.feed, cluster)
        if record is None or chunk.place is None:
            return record
        with self.database.read() as connection:
            there = FeedPlaces(connection).find(record, chunk.place)
        return there and at_former(there)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """The claims of a worker on the chunks of a sweep."""

    context: SweepContext
    sweep_id: str

    def each(self, state: ChunkState, after: int = -1) -> Iterator[SweepChunk]:
        """Claim the free chunks in a state one by one, those above a number. See `take_many`."""
        while found := self.take_many(state, 1, after):
            yield from found
            after = found[0].number

    def take_many(
        self, state: ChunkState, limit: int, after: int = -1, without: Collection[str] = ()
    ) -> list[SweepChunk]:
        """Claim at most `limit` free chunks in a state, in numeric order, above a number; none of some feeds.

        Also takes over chunks of workers of this machine that have died.

        Raises:
            SweepDamagedError: a chunk differs from the plan.
        """
        holder, now, ttl = self.context.holder, self.context.real_now, self.context.ttl
        with self.context.database.begin() as connection:
            chunks = SweepChunks(connection, self.sweep_id)
            found = chunks.claim(holder, now, ttl, limit, state=state, after=after, without=without)
            if not found and _release_dead(chunks):
                found = chunks.claim(holder, now, ttl, limit, state=state, after=after, without=without)
        return found

    def release_dead(self) -> None:
        """Release the claims of workers of this machine that have died."""
        with self.context.database.begin() as connection:
            _release_dead(SweepChunks(connection, self.sweep_id))

    def release(self) -> None:
        """Release all claims; if the database refuses, they expire."""
        with suppress(StateError), self.context.database.begin() as connection:
            SweepChunks(connection, self.sweep_id).release(self.context.holder)

    def leased(self, chunk: ChunkHead, cluster: str) -> Leased:
        """Return a context that keeps a claimed chunk alive, and leases on its instances that are acquired there."""
        return Leased(
            self.context.database,
            self.context.real_clock,
            holder=lease_holder(self.sweep_id),
            cluster=cluster,
            ttl=self.context.ttl,
            renew_too=partial(self._renew, chunk),
        )

    def _renew(self, chunk: ChunkHead) -> None:
        with self.context.database.begin() as connection:
            chunks = SweepChunks(connection, self.sweep_id)
            chunks.renew(chunk, self.context.holder, self.context.real_now + self.context.ttl)


def lease_holder(sweep_id: str) -> str:
    """Return the lease holder of a sweep's instances: the sweep itself, so that a resuming worker has the leases."""
    return f"sweep/{sweep_id}"


def require_sweep(sweeps: Sweeps, sweep_id: str) -> Sweep:
    """Return a sweep.

    Raises:
        SweepRefusedError: there is none with this id.
    """
    sweep = sweeps.find(sweep_id)
    if sweep is None:
        raise SweepRefusedError(
            sweep=sweep_id,
            reason="it does not exist",
            next_step=f"List the sweeps: {command_line('retention', 'list')}",
            fault=Fault.MISSING,
        )
    return sweep


def _release_dead(chunks: SweepChunks) -> bool:
    dead = {head.holder for head in chunks.heads() if head.holder and is_dead(head.holder)}
    for holder in sorted(dead):
        chunks.release(holder)
    return bool(dead)
