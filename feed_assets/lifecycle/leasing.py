"""Holding leases while work goes on: taken together, renewed by a heartbeat, given back at the end."""

import logging
import threading
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import TracebackType
from typing import Self, TypeAlias

from sqlalchemy import Connection

from feed_assets.clock import Clock
from feed_assets.state.database import Database
from feed_assets.state.errors import FencedOutError, StateError
from feed_assets.state.leases import Leases
from feed_assets.state.records import Lease

TTL = timedelta(seconds=60)

_logger = logging.getLogger(__name__)


class Leased:
    """A context in which leases are held; a thread renews them every third of their life until the context ends.

    Time is the wall clock of `clock`, so a lease lasts as long for every worker that shares it. A renewal that is
    refused is logged; the next `check` says so as an exception. One that has run out, because the worker or its machine
    slept, or somebody set the clock, is renewed by the next `check` if nobody has taken it over.
    """

    def __init__(self, database: Database, clock: Clock, *, holder: str, cluster: str, ttl: timedelta = TTL) -> None:
        self._leases = Leases(database)
        self._clock = clock
        self._holder = holder
        self._cluster = cluster
        self._ttl = ttl
        self._held: list[Lease] = []
        self._mutex = threading.Lock()
        self._ended = threading.Event()
        self._beat = threading.Thread(target=self._renew, name=f"leases of {holder}", daemon=True)

    def acquire(self, entity: str, nominal_time: datetime) -> Lease:
        """Take a lease and keep it alive.

        Raises:
            LeaseHeldError: somebody else holds it; names who and until when.
        """
        lease = self._leases.acquire(entity, self._cluster, nominal_time, self._holder, self._clock.now(), self._ttl)
        with self._mutex:
            self._held.append(lease)
        return lease

    def release(self, nominal_time: datetime) -> None:
        """Give back the leases at one nominal time."""
        for lease in self._snapshot(nominal_time):
            with self._mutex:
                self._held = [each for each in self._held if _key_of(each) != _key_of(lease)]
            self._leases.release(lease)

    def of(self, nominal_time: datetime) -> "LeasedTime":
        """The leases that are held at one nominal time, by which one of several instances is guarded."""
        return LeasedTime(self, nominal_time)

    def check(self, nominal_time: datetime | None = None) -> None:
        """Make sure that every lease (at a nominal time) is still held; before an effect outside the database.

        Raises:
            FencedOutError: one has been taken over, or taken away from a worker that was taken for dead.
        """
        now = self._clock.now()
        held = self._snapshot(nominal_time)
        for lease in held:
            if lease.expires_at <= now:
                self._renew_one(lease)
        self._leases.check_many([lease for lease in held if lease.expires_at > now], now)

    def check_in(self, connection: Connection, nominal_time: datetime | None = None) -> None:
        """Make sure inside a write transaction that nobody takes a lease (at a nominal time) over before it ends.

        Raises:
            FencedOutError: one has been taken over.
        """
        self._leases.check_many_in(connection, self._snapshot(nominal_time))

    def __enter__(self) -> Self:
        self._beat.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._beat.join()
        try:
            self._leases.release_many(self._held)
        except StateError:
            names = ", ".join(f"{lease.entity} at {lease.nominal_time}" for lease in self._held)
            _logger.exception("leases on %s could not be given back; they run out", names)

    def _renew_one(self, lease: Lease) -> None:
        renewed = self._leases.renew(lease, self._clock.now(), self._ttl)
        with self._mutex:
            self._held = [renewed if _key_of(each) == _key_of(lease) else each for each in self._held]

    def _snapshot(self, nominal_time: datetime | None = None) -> tuple[Lease, ...]:
        with self._mutex:
            return tuple(lease for lease in self._held if nominal_time in (None, lease.nominal_time))

    def _renew(self) -> None:
        while not self._ended.wait(self._ttl.total_seconds() / 3):
            for lease in self._snapshot():
                try:
                    self._renew_one(lease)
                except FencedOutError:
                    _logger.warning("lease on %s at %s was taken over", lease.entity, lease.nominal_time)
                except StateError:
                    _logger.exception("lease on %s at %s could not be renewed", lease.entity, lease.nominal_time)


@dataclass(frozen=True, slots=True)
class LeasedTime:
    """The leases of a context that are held at one nominal time."""

    leased: Leased
    nominal_time: datetime

    def check(self) -> None:
        """As `Leased.check`."""
        self.leased.check(self.nominal_time)

    def check_in(self, connection: Connection) -> None:
        """As `Leased.check_in`."""
        self.leased.check_in(connection, self.nominal_time)


Held: TypeAlias = Leased | LeasedTime
"""What guards an instance."""


def _key_of(lease: Lease) -> tuple[str, str, datetime]:
    return lease.entity, lease.cluster, lease.nominal_time
