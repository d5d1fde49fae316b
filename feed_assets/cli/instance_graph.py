"""`instance dependency`, `triage` and `search`: queries across entities."""

from datetime import datetime
from typing import Any

import click

from feed_assets.cli.groups import Verb
from feed_assets.cli.instance_options import (
    MORE,
    SCHEDULABLE,
    end_with,
    instance_options,
    open_context_for,
    page_options,
    print_consolidated,
    range_options,
)
from feed_assets.cli.options import KindType, ListType, output_option
from feed_assets.cli.render import print_json, print_records, print_table, say, say_shown
from feed_assets.entities.common import Kind


@click.command(cls=Verb)
@instance_options
@output_option
@click.pass_context
def dependency(ctx: click.Context, /, output: str, **options: Any) -> None:
    """Show the instances that one depends on, and its dependents, one step away."""
    from feed_assets.context.subjects import resolve_subject
    from feed_assets.instances.lists.neighbours import find_dependencies
    from feed_assets.instances.lists.ranges import join_consecutive, render_range

    context = open_context_for()
    found = find_dependencies(context, resolve_subject(context, **options))
    if output == "json":
        print_consolidated(found, "dependencies")
    else:
        joined = join_consecutive(
            (
                each.nominal_time,
                context.find_sequence(each.kind, each.name, each.cluster),
                (each.tag, each.kind.value, each.name, each.cluster, each.by),
            )
            for each in found.items
        )
        rows = [(*cells[:-1], render_range(first, last), cells[-1]) for first, last, cells in joined]
        print_table(("tag", "kind", "name", "cluster", "instance", "by"), rows, output)
    end_with(ctx, found.result, found.message)


@click.command(cls=Verb)
@instance_options
@click.option(
    "--output",
    type=click.Choice(["text", "dot", "json"]),
    default="text",
    show_default=True,
    help="A tree, a graph for Graphviz, or JSON.",
)
@click.pass_context
def triage(ctx: click.Context, /, output: str, **options: Any) -> None:
    """Show what an instance depends on, upstream to the first that are AVAILABLE or SUCCEEDED."""
    from feed_assets.context.subjects import resolve_subject
    from feed_assets.instances.lists.triage import find_triage

    context = open_context_for()
    found = find_triage(context, resolve_subject(context, **options))
    if output == "json":
        print_consolidated(found, "graphs")
    else:
        for graph in found.items:
            say(graph.render_dot() if output == "dot" else graph.render_text())
    end_with(ctx, found.result, found.message)


@click.command(cls=Verb, epilog="Example: feed-assets instance search --status FAILED,TIMEDOUT")
@click.option(
    "--kind",
    "kinds",
    type=KindType(*SCHEDULABLE),
    multiple=True,
    help="Only feeds, or only processes.",
)
@click.option("--nameseq", default="", help="Names with these letters in this order.")
@click.option("--tagkeys", type=ListType(), default=(), help="Each occurs somewhere in the tags.")
@click.option("--status", "statuses", type=ListType(), default=(), help="Only with one of these states.")
@click.option("--order-by", type=click.Choice(["status"]), help="By state; by default the newest first.")
@range_options
@page_options
@output_option
def search(
    kinds: tuple[Kind, ...],
    nameseq: str,
    tagkeys: tuple[str, ...],
    statuses: tuple[str, ...],
    order_by: str | None,
    start: datetime | None,
    end: datetime | None,
    offset: int,
    num_results: int,
    output: str,
) -> None:
    """Search the instances of all feeds and processes; without --start ten of each."""
    from feed_assets.definitions.lists.instance_search import SearchQuery, search_instances

    query = SearchQuery(
        kinds=frozenset(kinds or SCHEDULABLE),
        name_sequence=nameseq,
        tag_keys=tagkeys,
        statuses=frozenset(status.upper() for status in statuses) or None,
        start=start,
        end=end,
        by_status=order_by is not None,
        offset=offset,
        results=num_results,
    )
    found = search_instances(open_context_for(), query)
    if output == "json":
        print_json(found)
        return
    columns = "kind, name, cluster, instance=nominal_time, status, tags, log=run"
    print_records(columns, found.instances, output, spare=("tags",))
    say_shown(found.listed, found.total, "instances", MORE)
