"""Groups of commands: their help has the first sentence of each command, in full."""

import click

_SENTENCE = 1_000


class Verbs(click.Group):
    """A group that lists its commands with their first sentences."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.get_short_help_str(_SENTENCE)) for name, command in commands if command])
