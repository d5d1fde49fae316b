"""`instance`: the group, and the verbs that read the instances of one feed or process."""

from datetime import datetime
from typing import Any

import click

from feed_assets.cli.instance_control import kill, rerun, resume, suspend
from feed_assets.cli.instance_graph import dependency, search, triage
from feed_assets.cli.instance_options import (
    MORE,
    end_with,
    instance_of,
    lifecycle_option,
    lifecycles_of,
    open_context_for,
    page_options,
    print_consolidated,
    query_of,
    range_options,
    subject_options,
)
from feed_assets.cli.options import clusters_option, output_option
from feed_assets.cli.render import print_json, print_table, say, say_shown
from feed_assets.entities.common import Kind
from feed_assets.errors import render_some
from feed_assets.operations.instances.counts import summarize_instances
from feed_assets.operations.instances.feed_listings import list_feed, render_size
from feed_assets.operations.instances.queries import InstancePage, find_running, list_instances
from feed_assets.operations.instances.ranges import PAGE, Lifecycle, parse_filter
from feed_assets.operations.instances.rows import InstanceRow, rendered
from feed_assets.operations.instances.runs import find_logs, find_params
from feed_assets.timing.dates import render_datetime


@click.group()
def instance() -> None:
    """Inspect and control instances of feeds and processes.

    KIND is feed or process; for a replicated feed, the commands are about its copies by default. INSTANCE is a nominal
    time such as 2013-11-03T05:00Z, a day or a partition key. Ranges include --start and exclude --end.
    """


@instance.command("list")
@subject_options
@range_options
@page_options
@click.option("--all-attempts", is_flag=True, help="A line for each attempt.")
@output_option
@click.pass_context
def list_(ctx: click.Context, /, output: str, **options: Any) -> None:
    """List the instances of a process, the copies of a feed, or its data; waiting ones with what they lack."""
    _print_page(ctx, list_instances(open_context_for(), query_of(**options)), output)


instance.add_command(list_, "status")


@instance.command()
@subject_options
@page_options
@output_option
@click.pass_context
def running(ctx: click.Context, /, output: str, **options: Any) -> None:
    """List the running instances of a process, or copies of a feed, whatever their time."""
    _print_page(ctx, find_running(open_context_for(), query_of(**options)), output)


@instance.command()
@subject_options
@range_options
@click.option("--num-results", type=click.IntRange(min=1), help="Only so many of the newest instances; default: all.")
@output_option
@click.pass_context
def summary(ctx: click.Context, /, num_results: int | None, output: str, **options: Any) -> None:
    """Count the instances of a range by state, on each cluster; UNSCHEDULED ones are not yet created."""
    found = summarize_instances(open_context_for(), query_of(**options), num_results)
    if output == "json":
        print_json(found)
    else:
        rows = [(each.cluster, status, count) for each in found.clusters for status, count in each.counts.items()]
        print_table(("cluster", "status", "instances"), rows)
    end_with(ctx, found.result, found.message)


@instance.command()
@click.argument("name")
@click.argument("instance")
@clusters_option
@lifecycle_option
@output_option
@click.pass_context
def params(
    ctx: click.Context,
    name: str,
    instance: str,
    clusters: tuple[str, ...],
    lifecycles: tuple[str, ...],
    output: str,
) -> None:
    """Show the properties with which an instance of a process, or a copy of a feed, has run; none before it begins."""
    context = open_context_for()
    nominal_time = instance_of(context, context.kind_of(name), name, instance)
    found = find_params(context, name, nominal_time, clusters, lifecycles_of(lifecycles))
    if output == "json":
        print_consolidated(found, "instances")
    else:
        for each in found.items:
            rows = [(each.cluster, key, value) for key, value in sorted(each.properties.items())]
            print_table(("cluster", "property", "value"), rows)
            if not rows:
                say(f"{each.cluster}: {each.status}, it has not begun", err=True)
    end_with(ctx, found.result, found.message)


@instance.command()
@subject_options
@range_options
@page_options
@click.option("--attempt", type=click.IntRange(min=1), help="This attempt, counted from 1; by default the newest.")
@output_option
@click.pass_context
def logs(ctx: click.Context, /, attempt: int | None, output: str, **options: Any) -> None:
    """Show the run of each attempt, its steps, and links to them (with the setting `webserver`)."""
    found = find_logs(open_context_for(), query_of(**options), attempt)
    if output == "json":
        print_json(found)
    else:
        for each in found.instances:
            print_table(_HEADER, [_cells(each)])
            for action in each.actions or ():
                place = action.log or f"run {each.run_id}"
                say(f"  {action.name} {action.status} {rendered(action.ended_at) or 'not ended'} {place}")
        say_shown(found.listed, found.total, "instances", MORE)
    end_with(ctx, found.result, found.message)


@instance.command()
@click.argument("feed")
@range_options
@clusters_option
@click.option("--filter-by", "filters", multiple=True, help="STATUS:value; may be repeated.")
@click.option(
    "--num-results",
    type=click.IntRange(min=1),
    default=PAGE,
    show_default=True,
    help="How long the range is without --start.",
)
@click.option("--look", is_flag=True, help="Read storage now instead of the record.")
@output_option
@click.pass_context
def listing(
    ctx: click.Context,
    feed: str,
    start: datetime | None,
    end: datetime | None,
    clusters: tuple[str, ...],
    filters: tuple[str, ...],
    num_results: int,
    look: bool,
    output: str,
) -> None:
    """List the instances of a feed with availability, size and time, including --end."""
    found = list_feed(
        open_context_for(),
        feed,
        start=start,
        end=end,
        clusters=clusters,
        statuses=parse_filter(Kind.FEED, filters).statuses,
        results=num_results,
        look=look,
    )
    if output == "json":
        print_json(found)
    else:
        print_table(
            ("cluster", "instance", "status", "size", "files", "created", "uri"),
            [
                (
                    each.cluster,
                    render_datetime(each.nominal_time),
                    each.status.value,
                    None if each.bytes is None else render_size(each.bytes),
                    each.files,
                    rendered(each.created_at),
                    each.url,
                )
                for each in found.instances
            ],
        )
        say_shown(len(found.instances), found.total, "instances", "--start and --num-results show more")
    end_with(ctx, found.result, found.message)


_DETAILS = 3
_HEADER = ("cluster", "instance", "status", "attempt", "started", "ended", "run", "details", "copied from")


def _cells(row: InstanceRow) -> tuple[object, ...]:
    missing = [render_some(row.details, _DETAILS)] if row.details else []
    details = "; ".join([*missing, *([row.reason] if row.reason else [])]) or row.url
    return (
        row.cluster,
        render_datetime(row.nominal_time),
        row.status,
        row.attempt,
        rendered(row.started_at),
        rendered(row.ended_at),
        row.run_id,
        details,
        *((row.source_cluster,) if row.lifecycle is Lifecycle.REPLICATION else ()),
    )


def _print_page(ctx: click.Context, page: InstancePage, output: str) -> None:
    if output == "json":
        print_json(page)
    else:
        print_table(_HEADER, map(_cells, page.instances))
        say_shown(page.listed, page.total, "instances", MORE)
    end_with(ctx, page.result, page.message)


for _command in (dependency, triage, search, kill, suspend, resume, rerun):
    instance.add_command(_command)
