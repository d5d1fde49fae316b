"""`quality`: how good the rows of feed instances were, and which rules they broke."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from feed_assets.cli.groups import Verbs
from feed_assets.cli.instance_options import open_context_for
from feed_assets.cli.options import cluster_option, name_argument, output_option
from feed_assets.cli.proposals import find_times, names_of
from feed_assets.cli.render import print_json, print_table, say
from feed_assets.entities.common import Kind
from feed_assets.timing.dates import render_datetime

if TYPE_CHECKING:
    from feed_assets.operations.context import OperationContext
    from feed_assets.operations.instances.quality import InstanceQuality
    from feed_assets.operations.instances.subjects import Subject

_ON = "The cluster; by default each on which a process writes the feed."


@click.group(cls=Verbs)
def quality() -> None:
    """Show how good the rows of feed instances were."""


@quality.command(epilog="Example: feed-assets quality show flights 2013-11-03")
@name_argument("feed", names_of(Kind.FEED))
@name_argument("instance", find_times, required=False)
@cluster_option(_ON)
@output_option
def show(feed: str, instance: str | None, cluster: str | None, output: str) -> None:
    """Show what was found about the rows of INSTANCE of FEED, by default of the newest one.

    It is what the newest attempt has found, whether the instance was published or not.
    """
    from feed_assets.operations.instances.quality import show_quality

    found = show_quality(*_asked(feed, cluster, instance))
    if output == "json":
        print_json(instances=found)
        return
    for each in found:
        for line in _lines(each):
            say(line)


@quality.command(epilog="Example: feed-assets quality history flights --limit 7")
@name_argument("feed", names_of(Kind.FEED))
@cluster_option(_ON)
@click.option("--limit", type=click.IntRange(min=1), default=30, show_default=True, help="At most so many instances.")
@output_option
def history(feed: str, cluster: str | None, limit: int, output: str) -> None:
    """Show how good the newest instances of FEED were, newest first."""
    from feed_assets.operations.instances.quality import quality_history

    trend = quality_history(*_asked(feed, cluster), limit)
    if output == "json":
        print_json(trend)
        return
    rows = [
        (
            render_datetime(each.nominal_time),
            each.cluster,
            each.rows,
            each.rejected,
            f"{each.percent:.12g}",
            f"{each.threshold:.12g}",
            "passed" if each.passed else "failed",
            ", ".join(f"{name} {number:,}" for name, number in each.broken.items() if number),
        )
        for each in trend.instances
    ]
    print_table(("instance", "cluster", "rows", "bad", "good %", "needed %", "result", "broken"), rows, output)
    if trend.lowest is not None and output == "table":
        say(
            f"{trend.percent:.12g} % of {trend.rows:,} rows are good; the worst instance is "
            f"{render_datetime(trend.lowest.nominal_time)} with {trend.lowest.percent:.12g} %; "
            f"{trend.failed:,} of {len(rows):,} failed",
            err=True,
        )


def _asked(feed: str, cluster: str | None, instance: str | None = None) -> "tuple[OperationContext, Subject]":
    from feed_assets.operations.instances.subjects import resolve_subject

    context, on = open_context_for(), () if cluster is None else (cluster,)
    return context, resolve_subject(context, feed, instance, kind=Kind.FEED, clusters=on)


def _lines(found: "InstanceQuality") -> Iterator[str]:
    result = "is good enough" if found.passed else "is not good enough"
    yield f"feed {found.feed} on {found.cluster} at {render_datetime(found.nominal_time)} {result}"
    shares = f"{found.percent:.12g} %, needed are {found.threshold:.12g} %"
    yield f"  {found.good:,} of {found.rows:,} rows are good: {shares}"
    for name, number in found.broken.items():
        yield f"  rule {name}: broken by {number:,}"
    if found.quarantine is not None:
        yield f"  bad rows: feed {found.quarantine} at {render_datetime(found.nominal_time)}"
    yield (
        f"  by process {found.process} at {render_datetime(found.process_time)}, attempt {found.attempt}, "
        f"{render_datetime(found.recorded_at)}"
    )
