"""`hold`: named protections of instances against retention."""

from datetime import datetime

import click

from feed_assets.cli.instance_options import clusters_option, open_scene_for
from feed_assets.cli.options import MomentType, author_of, change_options, output_option
from feed_assets.cli.render import print_json, print_table
from feed_assets.operations.retention.holding import (
    HeldSpan,
    add_hold,
    hold_to_json,
    holds_to_json,
    list_holds,
    release_hold,
)
from feed_assets.state.sweep_records import Hold

NEWEST = 50
EVERY = "every"


@click.group()
def hold() -> None:
    """Holds: what nothing removes, whatever its age, until the hold is released or expires."""


@hold.command()
@click.argument("name")
@click.option("--feed", "feeds", multiple=True, help="The feed; may be repeated.")
@click.option("--every-feed", is_flag=True, help="Hold every feed.")
@clusters_option
@click.option("--start", type=MomentType(), help="From this nominal time on; without it from the first.")
@click.option("--end", type=MomentType(), help="Before this nominal time; without it also all that is to come.")
@click.option("--instance", type=MomentType(), help="This nominal time only, in the place of --start and --end.")
@click.option("--until", type=MomentType(), help="When the hold expires by itself; without it never.")
@click.option("--reason", required=True, help="Why, for those who meet the hold later.")
@change_options
def add(
    name: str,
    feeds: tuple[str, ...],
    every_feed: bool,
    clusters: tuple[str, ...],
    start: datetime | None,
    end: datetime | None,
    instance: datetime | None,
    until: datetime | None,
    reason: str,
    author: str | None,
    dry_run: bool,
    output: str,
) -> None:
    """Protect instances of feeds: all, a range of nominal times, or one.

    Several holds may protect the same instance; it stays until the last of them is gone. What is in the trash already
    is not purged while it is held.
    """
    if bool(feeds) == every_feed:
        raise click.UsageError("Name the feeds with --feed, or give --every-feed.")
    if instance is not None and (start is not None or end is not None):
        raise click.UsageError("--instance goes without --start and --end.")
    if instance is not None:
        span = HeldSpan(feeds=feeds, clusters=clusters, start=instance, last=instance)
    else:
        span = HeldSpan(feeds=feeds, clusters=clusters, start=start, end=end)
    scene = open_scene_for()
    added = add_hold(scene, name, span, reason=reason, author=author_of(author), expires_at=until, dry_run=dry_run)
    _print(added, output)
    click.echo(f"{'would be held' if dry_run else 'held'} by {name!r}", err=True)


@hold.command()
@click.argument("name")
@change_options
def release(name: str, author: str | None, dry_run: bool, output: str) -> None:
    """Give up all holds of a name. The next turn of retention takes what has expired."""
    released = release_hold(open_scene_for(), name, author=author_of(author), dry_run=dry_run)
    _print(released, output)
    click.echo(f"{'would release' if dry_run else 'released'} {name!r}", err=True)


@hold.command("list")
@click.option("--feed", help="Only holds that are on this feed.")
@click.option("--all", "everything", is_flag=True, help="Also those that were released or have expired.")
@click.option("--limit", type=click.IntRange(min=1), default=NEWEST, show_default=True, help="How many, newest first.")
@output_option
def list_(feed: str | None, everything: bool, limit: int, output: str) -> None:
    """The holds that protect something now, newest first."""
    _print(list_holds(open_scene_for(), limit=limit, everything=everything, feed=feed), output)


def _print(holds: list[Hold], output: str) -> None:
    if output == "json":
        print_json(holds_to_json(holds))
        return
    header = ("name", "feed", "cluster", "start", "end", "until", "by", "reason", "released")
    rows = []
    for document in map(hold_to_json, holds):
        names = ("name", "feed", "cluster", "start", "end", "expires_at", "author", "reason", "released_at")
        rows.append([document[name] for name in names])
    print_table(header, [[row[0], row[1] or EVERY, row[2] or EVERY, *row[3:]] for row in rows])
