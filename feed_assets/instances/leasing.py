"""Hold leases during work: acquire them, renew them with a heartbeat, and release them at the end."""

import threading
from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from types import TracebackType
from typing import Self

from sqlalchemy import Connection

from feed_assets.clock import Clock
from feed_assets.log.leases import Leases
from feed_assets.log.records import Lease
from feed_assets.masking import get_logger
from feed_assets.sql.database import Database
from feed_assets.sql.errors import StateError

TTL = timedelta(seconds=60)

_logger = get_logger(__name__)


class Leased:
    """A context that holds leases; a thread renews them after each third of their duration until the context ends.

    `clock` tells the real time, so a lease lasts equally long for all workers. A refused renewal is logged, and the
    next `check` raises an exception. A lease can expire because the worker or its machine slept, or because the clock
    was set; the next `check` renews it if nobody has taken it over. `renew_too` renews what else the work holds.
    """

    def __init__(
        self,
        database: Database,
        clock: Clock,
        *,
        holder: str,
        cluster: str,
        ttl: timedelta = TTL,
        renew_too: Callable[[], None] = lambda: None,
    ) -> None:
        self._leases = Leases(database)
        self._clock = clock
        self._holder = holder
        self._cluster = cluster
        self._ttl = ttl
        self._renew_too = renew_too
        self._held: list[Lease] = []
        self._mutex = threading.Lock()
        self._ended = threading.Event()
        self._heartbeat = threading.Thread(target=self._beat, name=f"leases of {holder}", daemon=True)

    def acquire(self, entity: str, nominal_time: datetime) -> Lease:
        """Take a lease and keep it alive.

        Raises:
            LeaseHeldError: another holder has it; the error names the holder and the expiry.
        """
        lease = self._leases.acquire(entity, self._cluster, nominal_time, self._holder, self._clock.now(), self._ttl)
        with self._mutex:
            self._held.append(lease)
        return lease

    def acquire_free(self, keys: Collection[tuple[str, str, datetime]]) -> None:
        """Take the leases on some (entity, cluster, nominal time) keys that nobody else holds, and keep them alive."""
        leases = self._leases.acquire_many(keys, self._holder, self._clock.now(), self._ttl)
        with self._mutex:
            self._held += leases

    @property
    def tokens(self) -> dict[datetime, int]:
        """The tokens of leases on instances of one entity, by nominal time."""
        return {lease.nominal_time: lease.token for lease in self._snapshot()}

    def release(self, nominal_time: datetime) -> None:
        """Release the leases at one nominal time."""
        with self._mutex:
            released = [lease for lease in self._held if lease.nominal_time == nominal_time]
            self._held = [lease for lease in self._held if lease.nominal_time != nominal_time]
        self._leases.release_many(released)

    def check(self, nominal_time: datetime | None = None) -> None:
        """Make sure that every lease (at a nominal time) is still held. Called before an effect outside the database.

        Raises:
            FencedOutError: a lease was taken over, or revoked because the worker seemed dead.
        """
        now = self._clock.now()
        held = self._snapshot(nominal_time)
        if any(lease.expires_at <= now for lease in held):
            self._renew()
        self._leases.check_many(held, now)

    def check_in(self, connection: Connection, nominal_time: datetime | None = None) -> None:
        """Make sure, inside a write transaction, that no lease (at a nominal time) is taken over before the transaction
        ends.

        Raises:
            FencedOutError: a lease was taken over.
        """
        self._leases.check_many_in(connection, self._snapshot(nominal_time))

    def __enter__(self) -> Self:
        self._heartbeat.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._heartbeat.join()
        try:
            self._leases.release_many(self._held)
        except StateError:
            names = ", ".join(f"{lease.entity} at {lease.nominal_time}" for lease in self._held)
            _logger.exception("leases on %s could not be released; they will expire", names)

    def _snapshot(self, nominal_time: datetime | None = None) -> tuple[Lease, ...]:
        with self._mutex:
            return tuple(lease for lease in self._held if nominal_time in (None, lease.nominal_time))

    def _beat(self) -> None:
        while not self._ended.wait(self._ttl.total_seconds() / 3):
            try:
                self._renew()
                self._renew_too()
            except StateError:
                _logger.exception("leases of %s could not be renewed", self._holder)

    def _renew(self) -> None:
        held = self._snapshot()
        renewed = {lease.key: lease for lease in self._leases.renew_many(held, self._clock.now(), self._ttl)}
        with self._mutex:
            self._held = [renewed.get(each.key, each) for each in self._held]
        for lease in held:
            if lease.key not in renewed:
                _logger.warning("lease on %s at %s was taken over", lease.entity, lease.nominal_time)
