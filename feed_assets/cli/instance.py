"""`instance`: the group, and the verbs that only read the instances of one feed or process."""

from datetime import datetime

import click

from feed_assets.cli.instance_control import kill, rerun, resume, suspend
from feed_assets.cli.instance_graph import dependency, search, triage
from feed_assets.cli.instance_options import (
    clusters_option,
    end_with,
    filter_option,
    instance_of,
    kind_argument,
    lifecycle_option,
    lifecycles_of,
    open_scene_for,
    order_options,
    page_options,
    print_consolidated,
    query_of,
    range_options,
)
from feed_assets.cli.options import output_option, packed
from feed_assets.cli.render import print_json, print_table
from feed_assets.entities.common import Kind
from feed_assets.operations.instances.feed_listings import list_feed, render_size
from feed_assets.operations.instances.queries import InstancePage, find_running, list_instances, summarize_instances
from feed_assets.operations.instances.ranges import PAGE, InstanceQuery, Lifecycle, parse_filter
from feed_assets.operations.instances.rows import InstanceRow, rendered
from feed_assets.operations.instances.runs import find_logs, find_params
from feed_assets.timing.dates import render_datetime


@click.group()
def instance() -> None:
    """Instances of feeds and processes: how they stand, why, and what to do about it.

    KIND is feed or process; of a feed that is copied, its copies are meant where nothing else is said. INSTANCE is a
    nominal time such as 2013-11-03T05:00Z, a day or a partition key. Ranges are from --start up to, and without, --end.
    """


@instance.command("list")
@kind_argument
@click.argument("name")
@range_options
@clusters_option
@lifecycle_option
@filter_option
@order_options
@page_options
@click.option("--all-attempts", is_flag=True, help="A line for each attempt.")
@output_option
@click.pass_context
@packed("query", query_of)
def list_(ctx: click.Context, query: InstanceQuery, output: str) -> None:
    """The instances of a process, the copies of a feed, or its data with their states; what those that wait lack."""
    _print_page(ctx, list_instances(open_scene_for(), query), output)


instance.add_command(list_, "status")


@instance.command()
@kind_argument
@click.argument("name")
@clusters_option
@lifecycle_option
@filter_option
@order_options
@page_options
@output_option
@click.pass_context
@packed("query", query_of)
def running(ctx: click.Context, query: InstanceQuery, output: str) -> None:
    """The instances of a process, or the copies of a feed, that run now, whatever their time."""
    _print_page(ctx, find_running(open_scene_for(), query), output)


@instance.command()
@kind_argument
@click.argument("name")
@range_options
@clusters_option
@lifecycle_option
@filter_option
@order_options
@click.option("--num-results", type=int, default=PAGE, show_default=True, help="How long the range is without --start.")
@output_option
@click.pass_context
@packed("query", query_of)
def summary(ctx: click.Context, query: InstanceQuery, output: str) -> None:
    """How many instances of a range have which state, on each cluster; UNSCHEDULED have not come into being."""
    found = summarize_instances(open_scene_for(), query)
    if output == "json":
        print_json(found.to_json())
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
    """With which properties an instance of a process, or the copy of a feed's, has run; nothing before it has begun."""
    scene = open_scene_for()
    nominal_time = instance_of(scene, scene.kind_of(name).value, name, instance)
    found = find_params(scene, name, nominal_time, clusters, lifecycles_of(lifecycles))
    if output == "json":
        print_consolidated(found, "instances")
    else:
        for each in found.items:
            rows = [(each.cluster, key, value) for key, value in sorted(each.properties.items())]
            print_table(("cluster", "property", "value"), rows)
            if not rows:
                click.echo(f"{each.cluster}: {each.status}, it has not begun", err=True)
    end_with(ctx, found.result, found.message)


@instance.command()
@kind_argument
@click.argument("name")
@range_options
@clusters_option
@lifecycle_option
@filter_option
@order_options
@page_options
@click.option("--attempt", type=click.IntRange(min=1), help="Of this attempt, counted from 1; by default the newest.")
@output_option
@click.pass_context
@packed("query", query_of)
def logs(ctx: click.Context, query: InstanceQuery, attempt: int | None, output: str) -> None:
    """Where to read how instances went: the run of an attempt, its steps, and links (with the setting `webserver`)."""
    found = find_logs(open_scene_for(), query, attempt)
    if output == "json":
        print_json(found.to_json())
    else:
        for each in found.instances:
            row = each.row
            print_table(_HEADER, [_cells(row)])
            for action in each.actions:
                place = action.log or f"run {row.run_id}"
                click.echo(f"  {action.name} {action.status} {rendered(action.ended_at) or 'not ended'} {place}")
    end_with(ctx, found.result, found.message)


@instance.command()
@click.argument("feed")
@range_options
@clusters_option
@click.option("--filter-by", "filters", multiple=True, help="STATUS:value; may be repeated.")
@click.option("--num-results", type=int, default=PAGE, show_default=True, help="How long the range is without --start.")
@click.option("--look", is_flag=True, help="Ask storage how it is now, instead of the record.")
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
    """The instances of a feed with availability, size and time, up to and with --end."""
    found = list_feed(
        open_scene_for(),
        feed,
        start=start,
        end=end,
        clusters=clusters,
        statuses=parse_filter(Kind.FEED, filters).statuses,
        results=num_results,
        look=look,
    )
    if output == "json":
        print_json(found.to_json())
    else:
        print_table(
            ("cluster", "instance", "status", "size", "files", "created", "uri"),
            [
                (
                    each.cluster,
                    render_datetime(each.nominal_time),
                    each.status.value,
                    None if each.size is None else render_size(each.size),
                    each.files,
                    rendered(each.created_at),
                    each.url,
                )
                for each in found.instances
            ],
        )
    end_with(ctx, found.result, found.message)


_HEADER = ("cluster", "instance", "status", "attempt", "started", "ended", "run", "details", "copied from")


def _cells(row: InstanceRow) -> tuple[object, ...]:
    details = "; ".join([*row.details, *([row.reason] if row.reason else [])]) or row.url
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
        print_json(page.to_json())
    else:
        print_table(_HEADER, map(_cells, page.instances))
        if page.has_more:
            click.echo("There are more: see --offset and --num-results.", err=True)
    end_with(ctx, page.result, page.message)


for _command in (dependency, triage, search, kill, suspend, resume, rerun):
    instance.add_command(_command)
