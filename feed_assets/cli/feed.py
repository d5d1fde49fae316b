"""`feed notify`: producers report arrivals."""

import click

from feed_assets.cli.instance_options import instance_of, open_context_for
from feed_assets.cli.options import author_of, change_options
from feed_assets.cli.render import print_json, say
from feed_assets.entities.common import Kind
from feed_assets.operations.instances.arrival_notices import Notice, record_notice


@click.group()
def feed() -> None:
    """Report arrivals of feed instances."""


@feed.command()
@click.argument("feed")
@click.argument("instance")
@click.option("--cluster", help="The cluster; not needed if the feed arrives on one only.")
@click.option("--key", help="A key of the notice; a repeated notice with the same key does nothing.")
@click.option("--path", help="The location of the data; refused if the instance belongs elsewhere.")
@click.option("--bytes", "size", type=click.IntRange(min=0), help="The size of the data; refused if it differs.")
@click.option("--trust", is_flag=True, help="Do not check storage.")
@change_options
def notify(
    feed: str,
    instance: str,
    cluster: str | None,
    key: str | None,
    path: str | None,
    size: int | None,
    trust: bool,
    author: str | None,
    dry_run: bool,
    output: str,
) -> None:
    """Report that INSTANCE of FEED has arrived, so that it need not be polled.

    INSTANCE is a nominal time, 2013-11-03T05:00Z, or a day or a partition key in the feed's time zone. The command
    checks in storage that the data are available and complete. A notice of an instance that has already arrived does
    nothing. The next tick runs the processes that wait for it.
    """
    context = open_context_for()
    notice = Notice(
        feed=feed,
        nominal_time=instance_of(context, Kind.FEED, feed, instance),
        author=author_of(author),
        cluster=cluster,
        key=key,
        path=path,
        bytes=size,
        is_trusted=trust,
    )
    result = record_notice(context, notice, dry_run=dry_run)
    if output == "json":
        print_json(result)
    else:
        say(result.render())
