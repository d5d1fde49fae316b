"""`feed notify`: producers report arrivals."""

from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

import click

from feed_assets.cli.groups import Verbs
from feed_assets.cli.instance_options import instance_of, open_context_for
from feed_assets.cli.options import JsonObjectType, MomentType, author_of, change_options, cluster_option, name_argument
from feed_assets.cli.progress import status_line
from feed_assets.cli.proposals import find_times, names_of
from feed_assets.cli.render import print_json, say
from feed_assets.entities.common import Kind

if TYPE_CHECKING:
    from feed_assets.operations.context import OperationContext


@click.group(cls=Verbs)
def feed() -> None:
    """Report arrivals of feed instances."""


@feed.command(epilog="Example: feed-assets feed notify flights 2013-11-03 --key delivery-4711")
@name_argument("feed", names_of(Kind.FEED))
@name_argument("instance", find_times, required=False)
@click.option("--start", type=MomentType(), help="Poll all instances from this nominal time on, instead of INSTANCE.")
@click.option("--end", type=MomentType(), help="Before this nominal time; by default now.")
@cluster_option("The cluster; not needed if the feed arrives on one only.")
@click.option("--key", help="A key of the notice; a repeated notice with the same key does nothing.")
@click.option("--path", help="The location of the data; refused if the instance belongs elsewhere.")
@click.option("--bytes", "size", type=click.IntRange(min=0), help="The size of the data; refused if it differs.")
@click.option("--trust", is_flag=True, help="Do not check storage.")
@click.option("--payload", type=JsonObjectType(), default="{}", help="A JSON object for those who read the instance.")
@click.option("--marking", help="A word that ends or names a batch of those who read it.")
@click.option("--again", is_flag=True, help="An instance that has arrived has other content now.")
@change_options
def notify(
    feed: str,
    instance: str | None,
    start: datetime | None,
    end: datetime | None,
    cluster: str | None,
    key: str | None,
    path: str | None,
    size: int | None,
    trust: bool,
    payload: dict[str, object],
    marking: str | None,
    again: bool,
    author: str | None,
    dry_run: bool,
    output: str,
) -> None:
    """Report that INSTANCE of FEED has arrived, so that it need not be polled.

    INSTANCE is a nominal time, 2013-11-03T05:00Z, or a day or a partition key in the feed's time zone. The command
    checks in storage that the data are available and complete. A notice of an instance that has already arrived does
    nothing. The next tick runs the processes that wait for it.

    A signal has no data: without INSTANCE, each notice is one at the present second. With --path, INSTANCE may be left
    out if the path of its data tells it.

    With --start, all instances up to --end are looked for in storage at once, such as those of a history that has
    landed. Those that are not there remain missing, and are polled as before.
    """
    if instance is not None and start is not None:
        raise click.UsageError("Give either INSTANCE or --start.")
    context = open_context_for()
    if start is not None:
        if key or path or trust or size is not None or payload or marking or again:
            of_one = "--key, --path, --bytes, --trust, --payload, --marking and --again"
            raise click.UsageError(f"{of_one} are of one INSTANCE.")
        _poll(context, feed, start, end or context.as_of, cluster, author_of(author), dry_run, output)
        return
    from feed_assets.operations.instances.arrival_notices import Notice, record_notice

    notice = Notice(
        feed=feed,
        nominal_time=None if instance is None else instance_of(context, Kind.FEED, feed, instance),
        author=author_of(author),
        cluster=cluster,
        key=key,
        path=path,
        bytes=size,
        is_trusted=trust,
        payload=payload,
        marking=marking,
        is_again=again,
    )
    result = record_notice(context, notice, dry_run=dry_run)
    if output == "json":
        print_json(result)
    else:
        say(result.render())


def _poll(
    context: "OperationContext",
    feed: str,
    start: datetime,
    end: datetime,
    cluster: str | None,
    author: str,
    dry_run: bool,
    output: str,
) -> None:
    from feed_assets.operations.instances.polled_ranges import poll_range

    polled = poll_range(
        context,
        feed,
        start,
        end,
        author=author,
        cluster=cluster,
        dry_run=dry_run,
        on_progress=partial(status_line.show, "instances polled"),
    )
    if output == "json":
        print_json(ranges=polled)
        return
    for each in polled:
        say(each.render())
