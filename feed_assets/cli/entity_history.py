"""`entity governing`: from an instance to the definitions that govern it."""

from datetime import datetime

import click

from feed_assets.cli.options import MomentType, open_entity_context_for, output_option
from feed_assets.cli.render import print_json, print_table, say
from feed_assets.operations.entities.history import governing_version
from feed_assets.timing.dates import render_datetime


@click.command()
@click.argument("process")
@click.argument("instance", type=MomentType())
@click.option("--cluster", required=True, help="The cluster of the instance.")
@output_option
def governing(process: str, instance: datetime, cluster: str, output: str) -> None:
    """Show the definitions that govern INSTANCE of PROCESS: the release and its versions."""
    context = open_entity_context_for(dry_run=True)
    found = governing_version(context.database, process, cluster, instance)
    if output == "json":
        print_json(governing=found)
        return
    if found is None:
        say(f"No release of {process!r} on {cluster!r} is in effect at {render_datetime(instance)}.", err=True)
        return
    say(f"release {found.release} from {render_datetime(found.effective_from)} on: {found.reason}")
    rows = [
        (each.kind, each.name, each.version, each.author, f"{each.recorded_at:%Y-%m-%dT%H:%M:%SZ}")
        for each in found.versions
    ]
    print_table(("kind", "name", "version", "author", "at"), rows)


COMMANDS = (governing,)
