"""Hold leases during work: acquire them, renew them with a heartbeat, and release them at the end."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import TracebackType
from typing import Self, TypeAlias

from sqlalchemy import Connection

from feed_assets.clock import Clock
from feed_assets.masking import get_logger
from feed_assets.state.database import Database
from feed_assets.state.errors import FencedOutError, StateError
from feed_assets.state.leases import Leases
from feed_assets.state.records import Lease

TTL = timedelta(seconds=60)

_logger = get_logger(__name__)


class Heartbeat:
    """A thread that renews leases after each third of their duration, until it is stopped."""

    def __init__(self, name: str, ttl: timedelta, renew: Callable[[], None]) -> None:
        self._pause = ttl.total_seconds() / 3
        self._renew = renew
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, after a renewal in progress."""
        self._ended.set()
        self._thread.join()

    def _beat(self) -> None:
        while not self._ended.wait(self._pause):
            self._renew()


class Leased:
    """A context that holds leases; a thread renews them after each third of their duration until the context ends.

    `clock` tells the real time, so a lease lasts equally long for all workers. A refused renewal is logged, and the
    next `check` raises an exception. A lease can expire because the worker or its machine slept, or because the clock
    was set; the next `check` renews it if nobody has taken it over.
    """

    def __init__(self, database: Database, clock: Clock, *, holder: str, cluster: str, ttl: timedelta = TTL) -> None:
        self._leases = Leases(database)
        self._clock = clock
        self._holder = holder
        self._cluster = cluster
        self._ttl = ttl
        self._held: list[Lease] = []
        self._mutex = threading.Lock()
        self._heartbeat = Heartbeat(f"leases of {holder}", ttl, self._renew)

    def acquire(self, entity: str, nominal_time: datetime) -> Lease:
        """Take a lease and keep it alive.

        Raises:
            LeaseHeldError: another holder has it; the error names the holder and the expiry.
        """
        lease = self._leases.acquire(entity, self._cluster, nominal_time, self._holder, self._clock.now(), self._ttl)
        with self._mutex:
            self._held.append(lease)
        return lease

    def release(self, nominal_time: datetime) -> None:
        """Release the leases at one nominal time."""
        for lease in self._snapshot(nominal_time):
            with self._mutex:
                self._held = [each for each in self._held if _key_of(each) != _key_of(lease)]
            self._leases.release(lease)

    def of(self, nominal_time: datetime) -> "LeasedTime":
        """Return a view of the leases at one nominal time; it guards one of several instances."""
        return LeasedTime(self, nominal_time)

    def check(self, nominal_time: datetime | None = None) -> None:
        """Make sure that every lease (at a nominal time) is still held. Called before an effect outside the database.

        Raises:
            FencedOutError: a lease was taken over, or revoked because the worker seemed dead.
        """
        now = self._clock.now()
        held = self._snapshot(nominal_time)
        for lease in held:
            if lease.expires_at <= now:
                self._renew_one(lease)
        self._leases.check_many([lease for lease in held if lease.expires_at > now], now)

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
        self._heartbeat.stop()
        try:
            self._leases.release_many(self._held)
        except StateError:
            names = ", ".join(f"{lease.entity} at {lease.nominal_time}" for lease in self._held)
            _logger.exception("leases on %s could not be released; they will expire", names)

    def _renew_one(self, lease: Lease) -> None:
        renewed = self._leases.renew(lease, self._clock.now(), self._ttl)
        with self._mutex:
            self._held = [renewed if _key_of(each) == _key_of(lease) else each for each in self._held]

    def _snapshot(self, nominal_time: datetime | None = None) -> tuple[Lease, ...]:
        with self._mutex:
            return tuple(lease for lease in self._held if nominal_time in (None, lease.nominal_time))

    def _renew(self) -> None:
        for lease in self._snapshot():
            try:
                self._renew_one(lease)
            except FencedOutError:
                _logger.warning("lease on %s at %s was taken over", lease.entity, lease.nominal_time)
            except StateError:
                _logger.exception("lease on %s at %s could not be renewed", lease.entity, lease.nominal_time)


@dataclass(frozen=True, slots=True)
class LeasedTime:
    """The leases of a `Leased` context at one nominal time."""

    leased: Leased
    nominal_time: datetime

    def check(self) -> None:
        """Check as `Leased.check` does."""
        self.leased.check(self.nominal_time)

    def check_in(self, connection: Connection) -> None:
        """Check as `Leased.check_in` does."""
        self.leased.check_in(connection, self.nominal_time)


HeldLeases: TypeAlias = Leased | LeasedTime
"""The leases that guard an instance."""


def _key_of(lease: Lease) -> tuple[str, str, datetime]:
    return lease.entity, lease.cluster, lease.nominal_time
