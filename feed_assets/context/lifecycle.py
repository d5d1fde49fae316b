"""Contexts for everything that works on instances: the state, the stores, the clocks, and for attempts the plan."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from feed_assets.clock import Clock
from feed_assets.plan.records import Plan
from feed_assets.sql.database import Database
from feed_assets.storage.pool import StorePool


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleContext:
    """The state database, the stores and the clocks, shared by attempts, sweeps and commands.

    `clock` tells the time of the data, `real_clock` the real time, which leases and durations use. The two differ only
    in replays and simulations. The name `Context` is taken: a `python` workflow receives a `Context`.
    """

    database: Database
    stores: StorePool
    clock: Clock
    real_clock: Clock

    @property
    def real_now(self) -> datetime:
        """The real time."""
        return self.real_clock.now()


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptContext(LifecycleContext):
    """A context for attempts: adds the plan of the active release, and its number.

    `current` is the plan of the current declaration; the plan of a release has only its own.

    `run_id` names a Dagster run, a simulation or a command (see `run_names`). `is_cancelled` tells whether somebody has
    cancelled the run, when it is interrupted.
    """

    plan: Plan
    run_id: str
    release: int | None = None
    current: Plan | None = None
    is_cancelled: Callable[[], bool] = lambda: True

    @property
    def declared(self) -> Plan:
        """The plan of the current declaration, as far as it is known."""
        return self.current or self.plan
