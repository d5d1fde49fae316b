"""The verb of `entity` that leads from an instance to the definitions that made it."""

from datetime import datetime

import click

from feed_assets.cli.options import MomentType, open_registry_for, output_option
from feed_assets.cli.render import print_json, print_table
from feed_assets.operations.entities.history import governing_version
from feed_assets.timing.dates import render_datetime


@click.command()
@click.argument("process")
@click.argument("instance", type=MomentType())
@click.option("--cluster", required=True, help="Where the instance is.")
@output_option
def governing(process: str, instance: datetime, cluster: str, output: str) -> None:
    """Which definitions made INSTANCE of PROCESS, or will make it: the release, and the versions it is made of."""
    registry = open_registry_for(dry_run=True)
    found = governing_version(registry.database, process, cluster, instance)
    if output == "json":
        print_json({"version": 1, "governing": None if found is None else found.to_json()})
        return
    if found is None:
        click.echo(f"No release governs {process!r} on {cluster!r} at {render_datetime(instance)}.", err=True)
        return
    release = found.release
    click.echo(f"release {release.release} from {render_datetime(release.effective_from)} on: {release.reason}")
    rows = [
        (each.kind, each.name, each.version, each.author, f"{each.recorded_at:%Y-%m-%dT%H:%M:%SZ}")
        for each in found.versions
    ]
    print_table(("kind", "name", "version", "author", "at"), rows)


COMMANDS = (governing,)
