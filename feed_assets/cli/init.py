"""`init`: lays the files of a new project."""

from pathlib import Path

import click

from feed_assets.cli.groups import Verb
from feed_assets.cli.options import dry_run_option, text_output_option
from feed_assets.cli.render import print_json, say
from feed_assets.clock import SystemClock


@click.command(cls=Verb)
@click.argument("folder", type=click.Path(path_type=Path), default=".")
@click.option("--name", help="The name of the project; by default the name of the folder.")
@click.option("--storage", help="The storage URL of the cluster; by default the folder data of the project.")
@click.option("--postgres", metavar="URL", help="Keep the state of Dagster and feed-assets in this PostgreSQL.")
@click.option("--add", is_flag=True, help="Add to a folder that has files; those that exist stay as they are.")
@dry_run_option
@text_output_option
def init(
    folder: Path, name: str | None, storage: str | None, postgres: str | None, add: bool, dry_run: bool, output: str
) -> None:
    """Make a project in FOLDER, by default the working directory, that `dagster dev` runs at once.

    It has one cluster, two feeds and one process over three days of data, a test, the settings, and a Dagster home.
    Nothing is overwritten.
    """
    from feed_assets.scaffolding.projects import ProjectRequest, make_project

    request = ProjectRequest(
        folder=folder,
        as_of=SystemClock().now(),
        name=name,
        storage=storage,
        postgres=postgres,
        add=add,
        dry_run=dry_run,
    )
    made = make_project(request)
    if output == "json":
        print_json(made)
        return
    say(made.render())
