"""`feed notify`: producers tell what they have delivered."""

import click

from feed_assets.cli.instance_options import instance_of, open_scene_for
from feed_assets.cli.options import author_of, change_options
from feed_assets.cli.render import print_json
from feed_assets.operations.instances.arrival_notices import Notice, record_notice


@click.group()
def feed() -> None:
    """Instances of feeds as their producers see them."""


@feed.command()
@click.argument("feed")
@click.argument("instance")
@click.option("--cluster", help="On which cluster; not needed where the feed arrives on one only.")
@click.option("--key", help="A key of the notice: of two with one key the second does nothing.")
@click.option("--path", help="Where the data are; refused if they belong elsewhere.")
@click.option("--bytes", "size", type=click.IntRange(min=0), help="How much there is; refused if there is not.")
@click.option("--trust", is_flag=True, help="Do not ask storage whether it is there.")
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
    """Say that INSTANCE of FEED has arrived, so that nobody has to look for it.

    INSTANCE is a nominal time, 2013-11-03T05:00Z, or a day or a partition key in the feed's time zone. Storage is asked
    whether it is there and whole. A notice of what has arrived already does nothing. What waits for it is run by the
    next tick.
    """
    scene = open_scene_for()
    notice = Notice(
        feed=feed,
        nominal_time=instance_of(scene, "feed", feed, instance),
        author=author_of(author),
        cluster=cluster,
        key=key,
        path=path,
        bytes=size,
        is_trusted=trust,
    )
    result = record_notice(scene, notice, dry_run=dry_run)
    if output == "json":
        print_json(result.to_json())
    else:
        click.echo(result.render())
