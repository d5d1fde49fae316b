"""`feed`: producers report arrivals, inboxes are emptied, and the files of instances are listed."""

from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

import click

from feed_assets.cli.groups import Verbs
from feed_assets.cli.options import (
    JsonObjectType,
    MomentType,
    author_of,
    change_options,
    cluster_option,
    name_argument,
    output_option,
)
from feed_assets.cli.progress import status_line
from feed_assets.cli.proposals import find_times, names_of
from feed_assets.cli.render import print_json, print_records, say
from feed_assets.cli.state import open_context_for, say_silence
from feed_assets.entities.common import Kind
from feed_assets.timing.dates import render_datetime

if TYPE_CHECKING:
    from feed_assets.context.operation import OperationContext


@click.group(cls=Verbs)
def feed() -> None:
    """Report arrivals of feed instances, take files from inboxes, and list files."""


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
    from feed_assets.context.subjects import resolve_subject
    from feed_assets.instances.arrival.arrival_notices import Notice, record_notice

    notice = Notice(
        feed=feed,
        nominal_time=resolve_subject(context, feed, instance, kind=Kind.FEED).nominal_time,
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
    say_silence(context, [result.cluster])


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
    from feed_assets.instances.lists.polled_ranges import poll_range

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
    say_silence(context, {each.cluster for each in polled})


@feed.command(epilog="Example: feed-assets feed take orders --dry-run")
@name_argument("feed", names_of(Kind.FEED))
@cluster_option("Only this cluster; by default all on which the feed has an inbox.")
@change_options
def take(feed: str, cluster: str | None, author: str | None, dry_run: bool, output: str) -> None:
    """Take the files that have settled in the inbox of FEED now, of any size.

    Sensors look into inboxes by themselves. The command also takes files that they have left there, such as large ones,
    and tries again what was refused before. With --dry-run it shows the files in the inbox and what is known of them;
    one that is READY would be taken, if no file with its content was taken before.
    """
    from feed_assets.instances.inbox.inbox_lists import take_from_inboxes
    from feed_assets.plan.rendering import counted

    found = take_from_inboxes(
        open_context_for(),
        feed,
        author=author_of(author),
        cluster=cluster,
        dry_run=dry_run,
        on_progress=partial(status_line.show, "files taken"),
    )
    if output == "json":
        print_json(inboxes=found)
        return
    for inbox in found:
        print_records("file=name, bytes, status, instance=nominal_time, reason", inbox.files, output, spare=("reason",))
        say(f"feed {inbox.feed!r} on {inbox.cluster}: {counted(len(inbox.files), 'file')} in {inbox.url}", err=True)


@feed.command(epilog="Example: feed-assets feed files orders --from-event 17 --to-event 25 --output csv")
@name_argument("feed", names_of(Kind.FEED))
@click.option("--from-event", type=click.IntRange(min=1), help="The number of the first event.")
@click.option("--to-event", type=click.IntRange(min=1), help="The number of the last event, which is included.")
@click.option("--start", type=MomentType(), help="The nominal time of the first instance, instead of events.")
@click.option("--end", type=MomentType(), help="The nominal time of the last instance, which is included.")
@cluster_option("The cluster; not needed if the feed is on one only.")
@output_option
def files(
    feed: str,
    from_event: int | None,
    to_event: int | None,
    start: datetime | None,
    end: datetime | None,
    cluster: str | None,
    output: str,
) -> None:
    """List the files that events of FEED have brought, with their sizes and checksums.

    By the numbers of the events, such as the smallest and the largest that a batch has taken, or by the nominal times
    of the instances; both ends are included. Without them, all events count. A file that nobody has read has no
    checksum.
    """
    from feed_assets.instances.lists.contents import list_files

    if (from_event or to_event) and (start or end):
        raise click.UsageError("Give either events or times.")
    found = list_files(
        open_context_for(), feed, cluster=cluster, first_event=from_event, last_event=to_event, start=start, end=end
    )
    if output == "json":
        print_json(found)
        return
    print_records("path=url, size=bytes, checksum, event", found.files, output)
    for each in found.unlisted:
        time = render_datetime(each.nominal_time)
        say(f"event {each.event}, {time}: its files are not known any more: {each.reason}", err=True)
    if found.ahead is not None:
        say(found.ahead, err=True)
