"""`instance`: the group, and the verbs that read the instances of one feed or process."""

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from feed_assets.cli.groups import Verbs
from feed_assets.cli.instance_control import kill, rerun, resume, suspend
from feed_assets.cli.instance_graph import dependency, search, triage
from feed_assets.cli.instance_options import (
    MORE,
    SCHEDULABLE,
    end_with,
    lifecycle_option,
    open_context_for,
    page_options,
    print_consolidated,
    query_of,
    range_options,
    subject_options,
)
from feed_assets.cli.options import author_of, clusters_option, name_argument, output_option
from feed_assets.cli.proposals import find_times, names_of
from feed_assets.cli.render import print_json, print_records, print_table, say, say_shown
from feed_assets.context.consolidation import PAGE
from feed_assets.entities.common import Kind
from feed_assets.timing.dates import render_datetime

if TYPE_CHECKING:
    from feed_assets.instances.lists.queries import InstancePage
    from feed_assets.instances.lists.rows import InstanceRow


@click.group(cls=Verbs)
def instance() -> None:
    """Inspect and control instances of feeds and processes.

    KIND is feed or process; for a replicated feed, the commands are about its copies by default. INSTANCE is a nominal
    time such as 2013-11-03T05:00Z, a day or a partition key. Ranges include --start and exclude --end.
    """


@instance.command(
    "list", epilog="Example: feed-assets instance list flights --start 2013-11-03T05:00Z --filter-by STATUS:MISSING"
)
@subject_options
@range_options
@page_options
@click.option("--all-attempts", is_flag=True, help="A line for each attempt.")
@output_option
@click.pass_context
def list_(ctx: click.Context, /, output: str, **options: Any) -> None:
    """List the instances of a process, the copies of a feed, or its data; waiting ones with what they lack."""
    from feed_assets.instances.lists.queries import list_instances

    context = open_context_for()
    _print_page(ctx, list_instances(context, query_of(context, **options)), output)


instance.add_command(list_, "status")


@instance.command()
@subject_options
@page_options
@output_option
@click.pass_context
def running(ctx: click.Context, /, output: str, **options: Any) -> None:
    """List the running instances of a process, or copies of a feed, whatever their time."""
    from feed_assets.instances.lists.queries import find_running

    context = open_context_for()
    _print_page(ctx, find_running(context, query_of(context, **options)), output)


@instance.command()
@subject_options
@range_options
@click.option("--num-results", type=click.IntRange(min=1), help="Only so many of the newest instances; default: all.")
@output_option
@click.pass_context
def summary(ctx: click.Context, /, num_results: int | None, output: str, **options: Any) -> None:
    """Count the instances of a range by state, on each cluster; UNSCHEDULED ones are not yet created."""
    from feed_assets.instances.lists.counts import summarize_instances

    context = open_context_for()
    found = summarize_instances(context, query_of(context, **options), num_results)
    if output == "json":
        print_json(found)
    else:
        rows = [(each.cluster, status, count) for each in found.clusters for status, count in each.counts.items()]
        print_table(("cluster", "status", "instances"), rows, output)
    end_with(ctx, found.result, found.message)


@instance.command()
@name_argument("name", names_of(*SCHEDULABLE))
@name_argument("instance", find_times)
@clusters_option
@lifecycle_option
@output_option
@click.pass_context
def params(ctx: click.Context, /, output: str, **named: Any) -> None:
    """Show the properties with which an instance of a process, or a copy of a feed, has run; none before it begins."""
    from feed_assets.context.subjects import resolve_subject
    from feed_assets.instances.lists.runs import find_params

    context = open_context_for()
    found = find_params(context, resolve_subject(context, preferred=Kind.PROCESS, **named))
    if output == "json":
        print_consolidated(found, "instances")
    else:
        rows = [(each.cluster, *pair) for each in found.items for pair in sorted(each.properties.items())]
        print_table(("cluster", "property", "value"), rows, output)
        for each in found.items:
            if not each.properties:
                say(f"{each.cluster}: {each.status}, it has not begun", err=True)
    end_with(ctx, found.result, found.message)


@instance.command(epilog="Example: feed-assets instance steps load-orders 2026-03-01T06:00Z")
@name_argument("name", names_of(Kind.PROCESS))
@name_argument("instance", find_times)
@clusters_option
@output_option
@click.pass_context
def steps(ctx: click.Context, name: str, instance: str, clusters: tuple[str, ...], output: str) -> None:
    """Show the steps of an instance of a process, for each attempt; a KEPT one was made by an earlier attempt."""
    from feed_assets.context.subjects import resolve_subject
    from feed_assets.instances.lists.steps import find_steps

    context = open_context_for()
    subject = resolve_subject(context, name, instance, kind=Kind.PROCESS, clusters=clusters)
    found = find_steps(context, subject)
    if output == "json":
        print_consolidated(found, "steps")
    else:
        columns = "cluster, attempt, step, status=state, started=started_at:seconds, ended=ended_at:seconds, "
        print_records(f"{columns}frames=written, reason", found.items, output)
        if not found.items:
            say(f"{name} at {render_datetime(subject.instance)}: no attempt with steps has begun", err=True)
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
    from feed_assets.instances.lists.runs import find_logs

    context = open_context_for()
    found = find_logs(context, query_of(context, **options), attempt)
    if output == "json":
        print_json(found)
    else:
        header = ("cluster", "instance", "attempt", "step", "status", "started", "ended", "run", "details", "log")
        rows = [row for each in found.instances for row in _iter_steps(each)]
        print_table(header, rows, output, spare=_SPARE)
        say_shown(found.listed, found.total, "instances", MORE)
    end_with(ctx, found.result, found.message)


@instance.command(epilog="Example: feed-assets instance listing flights --start 2013-11-01T04:00Z --look")
@name_argument("feed", names_of(Kind.FEED))
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
@click.option("--look", is_flag=True, help="Read storage now instead of the record; what is gone is recorded.")
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
    """List the instances of a feed with availability, size and time."""
    from feed_assets.context.subjects import resolve_subject
    from feed_assets.instances.lists.feed_listings import list_feed
    from feed_assets.instances.lists.ranges import parse_filter
    from feed_assets.log.instances.feed_places import describe_staying

    context = open_context_for()
    found = list_feed(
        context,
        resolve_subject(context, feed, kind=Kind.FEED, clusters=clusters),
        start=start,
        end=end,
        statuses=parse_filter(Kind.FEED, filters).statuses,
        results=num_results,
        look=look,
        author=author_of(None),
    )
    if not look and any(each.url for each in found.instances):
        say("by the record; --look asks storage", err=True)
    if found.staying:
        say(describe_staying(found.staying), err=True)
    if output == "json":
        print_json(found)
    else:
        columns = "cluster, instance=nominal_time, status, size=bytes:size, files, created=created_at, url"
        print_records(columns, found.instances, output)
        say_shown(len(found.instances), found.total, "instances", "--start and --num-results show more")
    end_with(ctx, found.result, found.message)


_SPARE = ("attempt", "started", "ended", "run")
_COLUMNS = (
    "cluster, instance=nominal_time, status, attempt, started=started_at:seconds, ended=ended_at:seconds, run=run_id, "
    "details=remark, copied from=copied_from"
)


def _iter_steps(row: "InstanceRow") -> Iterator[tuple[object, ...]]:
    """Yield a row for an attempt, and one for each of its steps."""
    from feed_assets.instances.lists.rows import rendered

    instance = (row.cluster, render_datetime(row.nominal_time), row.attempt)
    times = (rendered(row.started_at), rendered(row.ended_at))
    yield (*instance, None, row.status, *times, row.run_id, row.remark, row.log)
    for step in row.actions or ():
        yield (*instance, step.name, step.status, None, rendered(step.ended_at), row.run_id, None, step.log)


def _print_page(ctx: click.Context, page: "InstancePage", output: str) -> None:
    if output == "json":
        print_json(page)
    else:
        print_records(_COLUMNS, page.instances, output, spare=_SPARE)
        say_shown(page.listed, page.total, "instances", MORE)
    end_with(ctx, page.result, page.message)


for _command in (dependency, triage, search, kill, suspend, resume, rerun):
    instance.add_command(_command)
