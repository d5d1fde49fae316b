"""`settings`: shows every setting in force, and where it comes from."""

import click

from feed_assets.cli.groups import Verb
from feed_assets.cli.options import output_option, project_settings
from feed_assets.cli.render import Output, print_json, print_records


@click.command(cls=Verb)
@click.argument("path", required=False)
@output_option
def settings(path: str | None, output: str) -> None:
    """Show the settings of the project of the working directory, or else of the project of PATH: each with its value,
    without secrets, and its source.
    """
    from feed_assets.context.settings_in_force import find_settings_in_force

    found = find_settings_in_force(project_settings([path] if path else []))
    if output == Output.JSON:
        print_json(found)
        return
    print_records("setting=name, value, source", found.settings, output)
