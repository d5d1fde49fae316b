"""Command lines as text: whether the command line accepts them."""

from collections.abc import Sequence

import click


def require_command(words: Sequence[str]) -> None:
    """Parse a command line as the program does, with its arguments and options, and run nothing.

    Raises:
        click.UsageError: a command, argument or option is wrong, missing or one too many.
    """
    from feed_assets.cli.main import main

    command: click.Command = main
    arguments = list(words)
    parent: click.Context | None = None
    while isinstance(command, click.Group):
        parent = click.Context(command, info_name=command.name, parent=parent, **command.context_settings)
        name, found, arguments = command.resolve_command(parent, arguments)
        assert found is not None, name
        command = found
    command.make_context(command.name, arguments, parent=parent)
