"""`sla`: which instances are late, which were, and how far processes are behind."""

from datetime import datetime
from typing import TYPE_CHECKING

import click

from feed_assets.cli.groups import Verbs
from feed_assets.cli.instance_options import SCHEDULABLE, open_context_for
from feed_assets.cli.options import (
    FrequencyType,
    KindType,
    MomentType,
    author_of,
    clusters_option,
    listed_change_options,
    name_argument,
    output_option,
)
from feed_assets.cli.proposals import names_of
from feed_assets.cli.render import print_json, print_table, say
from feed_assets.entities.common import Kind
from feed_assets.timing.dates import render_datetime
from feed_assets.timing.frequency import Frequency

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from feed_assets.operations.deadlines.alerts import SlaList, SlaQuery, SlaRow

LEVELS = ("low", "high")


@click.group(cls=Verbs)
def sla() -> None:
    """Show which instances are late, which were, and how far processes are behind.

    LOW is a warning, HIGH an error. Ranges of nominal times include both --start and --end.
    """


def _query_options(command: "Callable[..., Any]") -> "Callable[..., Any]":
    for option in (
        click.option("--level", type=click.Choice(LEVELS, case_sensitive=False), help="Only deadlines of this level."),
        click.option("--end", type=MomentType(), help="Up to this nominal time, which counts; by default now."),
        click.option(
            "--start", type=MomentType(), required=True, help="From this nominal time on, which counts; required."
        ),
        clusters_option,
        click.option("--name", help="Only this feed or process."),
        click.option("--kind", type=KindType(*SCHEDULABLE), help="Only feeds, or only processes."),
    ):
        command = option(command)
    return command


@sla.command(epilog="Example: feed-assets sla alerts --start 2013-11-01T00:00Z --level high")
@_query_options
@click.option("--acknowledged", is_flag=True, help="Also those that somebody has acknowledged.")
@output_option
def alerts(
    kind: Kind | None,
    name: str | None,
    clusters: tuple[str, ...],
    start: datetime,
    end: datetime | None,
    level: str | None,
    acknowledged: bool,
    output: str,
) -> None:
    """List the instances that are late now, each with the highest deadline that it has missed."""
    from feed_assets.operations.deadlines.alerts import find_alerts

    context = open_context_for()
    query = _query(kind, name, clusters, start, end or context.as_of, level)
    found = find_alerts(context, query, with_acknowledged=acknowledged)
    _print(found, output)
    for note in found.notes:
        say(note, err=True)
    if found.acknowledged:
        say(f"{found.acknowledged:,} acknowledged ones are left out; --acknowledged shows them", err=True)


@sla.command(epilog="Example: feed-assets sla history --start 2013-11-01T00:00Z --name weather")
@_query_options
@output_option
def history(
    kind: Kind | None,
    name: str | None,
    clusters: tuple[str, ...],
    start: datetime,
    end: datetime | None,
    level: str | None,
    output: str,
) -> None:
    """List every deadline that was missed: when it was due, found and told, and how and when the instance came."""
    from feed_assets.operations.deadlines.alerts import find_history

    context = open_context_for()
    _print(find_history(context, _query(kind, name, clusters, start, end or context.as_of, level)), output)


@sla.command()
@name_argument("process", names_of(Kind.PROCESS), required=False)
@clusters_option
@output_option
def backlog(process: str | None, clusters: tuple[str, ...], output: str) -> None:
    """Show how many minutes the instances of PROCESS are behind, or those of each process with an SLA.

    It is the sum over all instances that have missed their end, from their nominal times until now.
    """
    from feed_assets.operations.deadlines.alerts import find_backlog

    found = find_backlog(open_context_for(), process, clusters)
    if output == "json":
        print_json(backlog=found)
        return
    rows = [
        (each.process, each.cluster, each.minutes, each.instances, each.oldest and render_datetime(each.oldest))
        for each in found
    ]
    print_table(("process", "cluster", "minutes", "instances", "oldest"), rows, output)


@sla.command(epilog="Example: feed-assets sla ack --name weather --start 2013-11-07T05:00Z --end 2013-11-07T05:00Z")
@_query_options
@listed_change_options
def ack(
    kind: Kind | None,
    name: str | None,
    clusters: tuple[str, ...],
    start: datetime,
    end: datetime | None,
    level: str | None,
    author: str | None,
    dry_run: bool,
    output: str,
) -> None:
    """Acknowledge late instances: they are shown as late no more until they miss their next deadline."""
    from feed_assets.operations.deadlines.alerts import SlaList, acknowledge

    context = open_context_for()
    query = _query(kind, name, clusters, start, end or context.as_of, level)
    done = acknowledge(context, query, author=author_of(author), dry_run=dry_run)
    _print(SlaList(rows=done), output)
    say(f"{'would acknowledge' if dry_run else 'acknowledged'} {len(done):,}", err=True)


def _query(
    kind: Kind | None, name: str | None, clusters: "Sequence[str]", start: datetime, end: datetime, level: str | None
) -> "SlaQuery":
    from feed_assets.operations.deadlines.alerts import SlaQuery
    from feed_assets.state.sla_records import SlaLevel

    return SlaQuery(
        kind=kind,
        name=name,
        clusters=frozenset(clusters),
        start=start,
        end=end,
        level=None if level is None else SlaLevel(level),
    )


def _print(found: "SlaList", output: str) -> None:
    if output == "json":
        print_json(found)
        return
    header = ("kind", "name", "cluster", "instance", "level", "due", "late", "told", "came", "how", "acknowledged by")
    print_table(header, map(_cells, found.rows), output, spare=("told", "how", "acknowledged by"))


def _cells(row: "SlaRow") -> tuple[object, ...]:
    return (
        row.kind.value,
        row.name,
        row.cluster,
        render_datetime(row.nominal_time),
        row.level.value.upper(),
        render_datetime(row.due_at),
        _duration(row.late_seconds),
        row.told_at and render_datetime(row.told_at),
        row.recovered_at and render_datetime(row.recovered_at),
        row.recovered_by and row.recovered_by.value,
        row.acknowledged_by,
    )


def _duration(seconds: int) -> str:
    hours, rest = divmod(seconds, 3600)
    return f"{hours}:{rest // 60:02}"


@sla.command(epilog="Example: feed-assets sla forecast --name flights --within hours(12)")
@click.option("--kind", type=KindType(*SCHEDULABLE), help="Only feeds, or only processes.")
@click.option("--name", help="Only this feed or process.")
@clusters_option
@click.option(
    "--within", type=FrequencyType(), default="hours(6)", show_default=True, help="Deadlines up to so long from now."
)
@output_option
def forecast(kind: Kind | None, name: str | None, clusters: tuple[str, ...], within: Frequency, output: str) -> None:
    """Forecast which instances will miss their deadlines, the most probable first, and say why.

    A probability is counted: of up to 60 earlier instances, those of the same hour and weekday and the last few, how
    many that were as late by now missed. A process waits for what is missing upstream, in the queue, and for its work.
    """
    from feed_assets.operations.deadlines.forecasts import MOST, forecast_deadlines

    found = forecast_deadlines(open_context_for(), within.as_duration(), kind=kind, name=name, clusters=clusters)
    if output == "json":
        print_json(found)
    else:
        rows = [
            (
                each.kind,
                each.name,
                each.cluster,
                render_datetime(each.nominal_time),
                each.level.value.upper(),
                render_datetime(each.due_at),
                "unknown" if each.probability is None else f"{each.probability:.1%}",
                each.reason,
            )
            for each in found.forecasts
        ]
        header = ("kind", "name", "cluster", "instance", "level", "due", "miss", "because")
        print_table(header, rows, output, spare=("kind",))
    if not found.is_complete:
        say(f"the first {MOST:,} deadlines; --kind, --name, --clusters and --within choose others", err=True)
