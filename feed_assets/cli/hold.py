"""`hold`: named protections of instances against retention."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import click

from feed_assets.cli.groups import Verbs
from feed_assets.cli.instance_options import open_context_for
from feed_assets.cli.options import (
    MomentType,
    author_of,
    clusters_option,
    feeds_option,
    listed_change_options,
    name_argument,
    output_option,
)
from feed_assets.cli.proposals import find_holds
from feed_assets.cli.render import print_json, print_list_json, print_table, say, say_shown, say_unsettled
from feed_assets.timing.dates import render_datetime

if TYPE_CHECKING:
    from feed_assets.log.removals.records import Hold
    from feed_assets.retention.holding import HoldChange

NEWEST = 50
EVERY = "every"
_MOMENT, _SECOND, _MINUTE = timedelta(microseconds=1), timedelta(seconds=1), timedelta(minutes=1)


@click.group(cls=Verbs)
def hold() -> None:
    """Manage holds: they protect instances against retention until they are released or expire."""


@hold.command(
    epilog="Example: feed-assets hold add audit --feed flights --end 2014-01-01T00:00Z --reason 'audit until March'"
)
@click.argument("name")
@feeds_option("The feed; may be repeated.")
@click.option("--every-feed", is_flag=True, help="Hold every feed.")
@clusters_option
@click.option("--start", help="From this nominal time on; by default from the first.")
@click.option("--end", help="Before this nominal time; by default all future instances, too.")
@click.option("--instance", help="Only this nominal time, instead of --start and --end.")
@click.option("--until", type=MomentType(), help="When the hold expires; by default never.")
@click.option("--reason", required=True, help="The reason, for people who find the hold later.")
@listed_change_options
def add(
    name: str,
    feeds: tuple[str, ...],
    every_feed: bool,
    clusters: tuple[str, ...],
    start: str | None,
    end: str | None,
    instance: str | None,
    until: datetime | None,
    reason: str,
    author: str | None,
    dry_run: bool,
    output: str,
) -> None:
    """Protect instances of feeds: all, a range of nominal times, or one.

    Several holds may protect the same instance; it stays until the last of them ends. Held instances in the trash are
    not purged. A time is UTC (`2013-11-02T04:00Z`), or a day or a partition key in the time zone of the feed.
    """
    from feed_assets.retention.holding import add_holds, find_spans

    if bool(feeds) == every_feed:
        raise click.UsageError("Name the feeds with --feed, or give --every-feed.")
    if instance is not None and (start is not None or end is not None):
        raise click.UsageError("--instance cannot be combined with --start or --end.")
    context = open_context_for()
    spans = find_spans(context, feeds, clusters, start=start, end=end, instance=instance)
    added = add_holds(context, name, spans, reason=reason, author=author_of(author), expires_at=until, dry_run=dry_run)
    _print_change(added, output)
    say(f"{'would be held' if dry_run else 'held'} by {name!r}", err=True)
    say_unsettled(added.unsettled)


@hold.command()
@name_argument("name", find_holds)
@listed_change_options
def release(name: str, author: str | None, dry_run: bool, output: str) -> None:
    """Release all holds of a name. The next scheduled retention removes what has expired."""
    from feed_assets.retention.holding import release_hold

    released = release_hold(open_context_for(), name, author=author_of(author), dry_run=dry_run)
    _print_change(released, output)
    say(f"{'would release' if dry_run else 'released'} {name!r}", err=True)
    say_unsettled(released.unsettled)


@hold.command("list")
@click.option("--feed", help="Only holds on this feed.")
@click.option("--all", "everything", is_flag=True, help="Also released and expired holds.")
@click.option("--limit", type=click.IntRange(min=1), default=NEWEST, show_default=True, help="How many, newest first.")
@output_option
def list_(feed: str | None, everything: bool, limit: int, output: str) -> None:
    """List the active holds, newest first."""
    from feed_assets.retention.holding import list_holds

    found = list_holds(open_context_for(), everything=everything, feed=feed)
    if output == "json":
        print_list_json("holds", found[:limit], len(found))
        return
    _print(found[:limit], output)
    say_shown(min(limit, len(found)), len(found), "holds", "--limit shows more")


def _print_change(change: "HoldChange", output: str) -> None:
    if output == "json":
        print_json(change)
    else:
        _print(change.holds, output)


def _end_of(last: datetime) -> datetime:
    """Return the exclusive end of a span: the written one, or the moment behind its last instance."""
    if last.microsecond:
        return last + _MOMENT
    return last + (_SECOND if last.second else _MINUTE)


def _print(holds: "Iterable[Hold]", output: str) -> None:
    header = ("name", "feed", "cluster", "start", "end", "until", "by", "reason", "released")
    rows = [
        (
            hold.name,
            hold.feed or EVERY,
            hold.cluster or EVERY,
            _text(hold.first),
            _text(hold.last and _end_of(hold.last)),
            _text(hold.expires_at),
            hold.author,
            hold.reason,
            _text(hold.released_at),
        )
        for hold in holds
    ]
    print_table(header, rows, output)


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else render_datetime(moment)
