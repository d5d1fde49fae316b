"""`instance dependency`, `triage` and `search`: across entities."""

from datetime import datetime

import click

from feed_assets.cli.instance_options import (
    SCHEDULABLE,
    clusters_option,
    end_with,
    instance_of,
    kind_argument,
    lifecycle_option,
    lifecycles_of,
    open_scene_for,
    page_options,
    print_consolidated,
    range_options,
)
from feed_assets.cli.options import ListType, output_option
from feed_assets.cli.render import print_json, print_table
from feed_assets.entities.common import Kind
from feed_assets.operations.instances.neighbours import find_dependencies
from feed_assets.operations.instances.search import SearchQuery, search_instances
from feed_assets.operations.instances.triage import find_triage
from feed_assets.timing.dates import render_datetime


@click.command()
@kind_argument
@click.argument("name")
@click.argument("instance")
@clusters_option
@lifecycle_option
@output_option
@click.pass_context
def dependency(
    ctx: click.Context,
    kind: str,
    name: str,
    instance: str,
    clusters: tuple[str, ...],
    lifecycles: tuple[str, ...],
    output: str,
) -> None:
    """Which instances one depends on, and which depend on it, one step away."""
    scene = open_scene_for()
    nominal_time = instance_of(scene, kind, name, instance)
    found = find_dependencies(scene, Kind(kind), name, nominal_time, clusters, lifecycles_of(lifecycles))
    if output == "json":
        print_consolidated(found, "dependencies")
    else:
        rows = [
            (each.tag, each.kind.value, each.name, each.cluster, render_datetime(each.nominal_time), each.by)
            for each in found.items
        ]
        print_table(("tag", "kind", "name", "cluster", "instance", "by"), rows)
    end_with(ctx, found.result, found.message)


@click.command()
@kind_argument
@click.argument("name")
@click.argument("instance")
@clusters_option
@lifecycle_option
@click.option(
    "--output",
    type=click.Choice(["text", "dot", "json"]),
    default="text",
    show_default=True,
    help="A tree, a graph for Graphviz, or JSON.",
)
@click.pass_context
def triage(
    ctx: click.Context,
    kind: str,
    name: str,
    instance: str,
    clusters: tuple[str, ...],
    lifecycles: tuple[str, ...],
    output: str,
) -> None:
    """What an instance hangs on, upstream to the first that are AVAILABLE or SUCCEEDED."""
    scene = open_scene_for()
    nominal_time = instance_of(scene, kind, name, instance)
    found = find_triage(scene, Kind(kind), name, nominal_time, clusters, lifecycles_of(lifecycles))
    if output == "json":
        print_consolidated(found, "graphs")
    else:
        for graph in found.items:
            click.echo(graph.render_dot() if output == "dot" else graph.render_text())
    end_with(ctx, found.result, found.message)


@click.command()
@click.option(
    "--kind",
    "kinds",
    type=click.Choice(SCHEDULABLE, case_sensitive=False),
    multiple=True,
    help="Only feeds, or only processes.",
)
@click.option("--nameseq", default="", help="Names that have these letters in this order.")
@click.option("--tagkeys", type=ListType(), default=(), help="Each occurs somewhere in the tags.")
@click.option("--status", "statuses", type=ListType(), default=(), help="Only with one of these states.")
@click.option("--order-by", type=click.Choice(["status"]), help="By state; by default the newest first.")
@range_options
@page_options
@output_option
def search(
    kinds: tuple[str, ...],
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
    """Find instances across all feeds and processes; without --start ten of each."""
    query = SearchQuery(
        kinds=frozenset(map(Kind, kinds or SCHEDULABLE)),
        name_sequence=nameseq,
        tag_keys=tagkeys,
        statuses=frozenset(status.upper() for status in statuses) or None,
        start=start,
        end=end,
        by_status=order_by is not None,
        offset=offset,
        results=num_results,
    )
    found = search_instances(open_scene_for(), query)
    if output == "json":
        print_json(found.to_json())
        return
    rows = [
        (
            each.row.kind.value,
            each.row.name,
            each.row.cluster,
            render_datetime(each.row.nominal_time),
            each.row.status,
            ", ".join(each.tags),
            each.row.log or each.row.run_id,
        )
        for each in found.instances
    ]
    print_table(("kind", "name", "cluster", "instance", "status", "tags", "log"), rows)
    if found.has_more:
        click.echo("There are more: see --offset and --num-results.", err=True)
