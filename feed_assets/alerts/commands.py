"""What can be asked about deadlines: what is late, was, and will be; and that somebody knows of it."""

from typing import TYPE_CHECKING, Annotated

from feed_assets.alerts.deadlines.queries import LateQuery, SlaQuery
from feed_assets.entities.common import Kind
from feed_assets.operation import Does, Param, later, operation
from feed_assets.parameters import Clusters, OnlyKind, OnlyName
from feed_assets.timing.sequence import Frequency

if TYPE_CHECKING:
    from feed_assets.alerts.deadlines import alerts as deadline_alerts
    from feed_assets.alerts.forecasting import forecasts
    from feed_assets.context.operation import ChangeContext, OperationContext

later(globals())

GROUPS = {
    "sla": """Show which instances are late, which were, and how far processes are behind.

    LOW is a warning, HIGH an error. Ranges of nominal times include both --start and --end.
    """
}
_MISSES = (
    "kind, name, cluster, instance=nominal_time, level=level:upper, due=due_at, late=late_seconds:duration, "
    "told=told_at, came=recovered_at, how=recovered_by, acknowledged by=acknowledged_by"
)
_SPARE = ("told", "how", "acknowledged by")

Acknowledged = Annotated[bool, Param("Also those that somebody has acknowledged.")]
OnlyProcess = Annotated[str | None, Param("Only this process.", argument=True, of=(Kind.PROCESS,))]
Within = Annotated[Frequency, Param("Deadlines up to so long from now.", default="hours(6)")]


@operation("sla alerts", none="nothing is late", table=_MISSES, rows="rows", spare=_SPARE, example="--level high")
def alerts(
    context: "OperationContext", *, query: LateQuery, acknowledged: Acknowledged = False
) -> "deadline_alerts.SlaList":
    """List the instances that are late now, each with the highest deadline that it has missed."""
    return deadline_alerts.find_alerts(context, query, with_acknowledged=acknowledged)


@operation(
    "sla history",
    none="no deadline was missed there",
    table=_MISSES,
    rows="rows",
    spare=_SPARE,
    example="--start 2013-11-01T00:00Z --name weather",
)
def history(context: "OperationContext", *, query: SlaQuery) -> "deadline_alerts.SlaList":
    """List every deadline that was missed: when it was due, found and told, and how and when the instance came."""
    return deadline_alerts.find_history(context, query)


@operation(
    "sla backlog", none="no process has an SLA", table="process, cluster, minutes, instances, oldest", rows="backlog"
)
def backlog(
    context: "OperationContext", *, process: OnlyProcess = None, clusters: Clusters = ()
) -> "tuple[deadline_alerts.Backlog, ...]":
    """Show how many minutes the instances of PROCESS are behind, or those of each process with an SLA.

    It is the sum over all instances that have missed their end, from their nominal times until now.
    """
    return deadline_alerts.find_backlog(context, process, clusters)


@operation(
    "sla ack",
    does=Does.ACTS,
    safe=True,
    table=_MISSES,
    rows="rows",
    spare=_SPARE,
    example="--name weather --start 2013-11-07T05:00Z --end 2013-11-07T05:00Z",
)
def ack(context: "ChangeContext", *, query: SlaQuery) -> "deadline_alerts.SlaList":
    """Acknowledge late instances: they are shown as late no more until they miss their next deadline."""
    return deadline_alerts.acknowledge(context, query)


@operation(
    "sla forecast",
    none="no deadline is due so soon",
    table="kind, name, cluster, instance=nominal_time, level=level:upper, due=due_at, miss=share, because=reason",
    rows="forecasts",
    spare=("kind",),
    example="--name flights --within hours(12)",
)
def forecast(
    context: "OperationContext",
    *,
    kind: OnlyKind = None,
    name: OnlyName = None,
    clusters: Clusters = (),
    within: Within,
) -> "forecasts.Forecasts":
    """Forecast which instances will miss their deadlines, the most probable first, and say why.

    A probability is counted: of up to 60 earlier instances, those of the same hour and weekday and the last few, how
    many that were as late by now missed. A process waits for what is missing upstream, in the queue, and for its work.
    """
    return forecasts.forecast_deadlines(context, within.as_duration(), kind=kind, name=name, clusters=clusters)
