"""A tick of a cluster as one object, and its steps as plain calls."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from feed_assets.clock import TimeBudget
from feed_assets.context.bulkheads import Bulkheads, Unconfined
from feed_assets.context.operation import OperationContext
from feed_assets.context.tick_failures import TickStep
from feed_assets.log.definitions.records import ScheduleState
from feed_assets.plan.records import Plan
from feed_assets.releases.timeline import ReleaseTimeline
from feed_assets.sql.database import Database
from feed_assets.storage.pool import StorePool

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")
_Otherwise = TypeVar("_Otherwise")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """What the steps of a tick of a cluster have at hand: made by `open_tick`.

    `real_now` is the real time at its beginning. While it `is_held`, because of safe mode or since the state was
    restored, nothing is taken or cut.
    """

    context: OperationContext
    cluster: str
    bulkheads: Bulkheads
    budget: TimeBudget
    real_now: datetime
    is_held: bool = False

    @property
    def database(self) -> Database:
        """The state."""
        return self.context.database

    @property
    def stores(self) -> StorePool:
        """The stores."""
        return self.context.stores

    @property
    def timeline(self) -> ReleaseTimeline:
        """The releases; they are current."""
        return self.context.timeline

    @property
    def plan(self) -> Plan:
        """The plan of the current definitions."""
        return self.context.timeline.plan

    @property
    def as_of(self) -> datetime:
        """The time of the data."""
        return self.context.as_of

    @property
    def without_row(self) -> ScheduleState:
        """The state of processes that have no schedule."""
        return self.context.without_row


def open_tick(
    context: OperationContext,
    cluster: str,
    bulkheads: Bulkheads | None = None,
    *,
    budget: TimeBudget | None = None,
    is_held: bool = False,
) -> Tick:
    """Return a tick of a cluster. Without bulkheads what fails is raised; without a budget the time is ample."""
    return Tick(
        context=context,
        cluster=cluster,
        bulkheads=bulkheads or Unconfined(cluster, context.real_clock),
        budget=budget or TimeBudget.ample(),
        real_now=context.real_now,
        is_held=is_held,
    )


def tick_step(
    step: TickStep, otherwise: _Otherwise, unit: str = ""
) -> Callable[
    [Callable[Concatenate[Tick, _Arguments], _Result]], Callable[Concatenate[Tick, _Arguments], _Result | _Otherwise]
]:
    """Let a function be a step of ticks: called as it is written, it runs under the bulkheads of its tick, and its
    result is `otherwise` if it fails or is put off. With a `unit` it is but that unit of the step.
    """

    def decorate(
        work: Callable[Concatenate[Tick, _Arguments], _Result],
    ) -> Callable[Concatenate[Tick, _Arguments], _Result | _Otherwise]:
        @wraps(work)
        def run(tick: Tick, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result | _Otherwise:
            if unit:
                return tick.bulkheads.run_unit(step, unit, otherwise, work, tick, *args, **kwargs)
            return tick.bulkheads.run(step, otherwise, work, tick, *args, **kwargs)

        return run

    return decorate
