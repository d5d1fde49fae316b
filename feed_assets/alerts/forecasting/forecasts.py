"""Forecast the deadlines that are still to come: which instances will probably miss them, and why."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection

from feed_assets.alerts.deadlines.due_times import Deadlines, find_sla, open_deadlines
from feed_assets.alerts.forecasting.chains import ChainReader
from feed_assets.alerts.forecasting.deadlines import find_coming, forecast
from feed_assets.alerts.forecasting.results import Forecast
from feed_assets.context.errors import InstanceQueryError
from feed_assets.context.operation import OperationContext
from feed_assets.entities.common import Kind
from feed_assets.log.definitions.schedules import load_schedules
from feed_assets.log.messages.levels import SlaLevel
from feed_assets.plan.edges import Key

MOST = 1_000
"""Forecasts are made for so many deadlines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecasts:
    """The forecasts of deadlines up to `until`, the most probable misses first. Without `is_complete` there are more
    deadlines than `MOST`: those of the last entities are left out.
    """

    until: datetime
    forecasts: tuple[Forecast, ...]
    is_complete: bool

    @property
    def summary(self) -> str:
        """How to see the others, if there are more."""
        others = "--kind, --name, --clusters and --within choose others"
        return "" if self.is_complete else f"the first {MOST:,} deadlines; {others}"


def forecast_deadlines(
    context: OperationContext,
    within: timedelta,
    *,
    kind: Kind | None = None,
    name: str | None = None,
    clusters: tuple[str, ...] = (),
) -> Forecasts:
    """Forecast the deadlines within a time from now, of instances that are not there; of one kind, one entity and some
    clusters if given. Processes that are not scheduled have none.

    It costs a walk over the SLAs, and for each deadline the reading of a chain (see `ChainReader`).

    Raises:
        EntityNotFoundError: there is no such feed or process.
        InstanceQueryError: the one that is named has no SLA, or is not scheduled.
    """
    until = context.as_of + within
    found: list[Forecast] = []
    kinds = _kinds_of(context, kind, name)
    with context.read() as connection:
        reader = ChainReader(connection=connection, timeline=context.timeline, as_of=context.as_of)
        keys = _keys_of(context, connection, kinds, name, clusters)
        for deadlines in _iter_deadlines(context, connection, keys):
            left = MOST - len(found)
            times = find_coming(connection, deadlines, context.as_of, until, left + 1)
            found += [forecast(reader, deadlines, time) for time in times[:left]]
            if len(times) > left:
                return Forecasts(until=until, forecasts=_in_order(found), is_complete=False)
    return Forecasts(until=until, forecasts=_in_order(found), is_complete=True)


def _kinds_of(context: OperationContext, kind: Kind | None, name: str | None) -> tuple[Kind, ...]:
    """Return the kinds that are asked for. Raises EntityNotFoundError if none of them has the name."""
    if name is None:
        return (Kind.FEED, Kind.PROCESS) if kind is None else (kind,)
    return context.kinds_of(name, kind)


def _keys_of(
    context: OperationContext,
    connection: Connection,
    kinds: tuple[Kind, ...],
    name: str | None,
    clusters: tuple[str, ...],
) -> list[tuple[Kind, Key]]:
    """Return the feeds and processes with deadlines, in order. Raises InstanceQueryError if a named one has none."""
    declared = [
        (kind, key)
        for kind in kinds
        for key in sorted(context.records(kind))
        if name in (None, key[0])
        and (not clusters or key[1] in clusters)
        and find_sla(context.plan, kind, *key) is not None
    ]
    view = load_schedules(connection, context.without_row)
    scheduled = [(kind, key) for kind, key in declared if kind is Kind.FEED or view.is_scheduled(kind, *key)]
    if name is not None and not scheduled:
        what = " or ".join(kind.value for kind in kinds)
        raise InstanceQueryError(
            subject=f"{what} {name!r}",
            reason="it is not scheduled, so its deadlines do not count" if declared else "it has no SLA there",
            next_step="Schedule it." if declared else "Declare `sla`, or name another one.",
        )
    return scheduled


def _iter_deadlines(
    context: OperationContext, connection: Connection, keys: list[tuple[Kind, Key]]
) -> Iterator[Deadlines]:
    for kind, (name, cluster) in keys:
        for level in SlaLevel:
            deadlines = open_deadlines(connection, context.timeline, kind, name, cluster, level)
            if deadlines is not None:
                yield deadlines


def _in_order(found: list[Forecast]) -> tuple[Forecast, ...]:
    def order(each: Forecast) -> tuple[object, ...]:
        return -(each.probability or 0.0), each.deadline.due_at, each.deadline.name, each.deadline.cluster

    return tuple(sorted(found, key=order))
