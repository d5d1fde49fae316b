"""`keys`: a group of which one command needs no name."""

import click

from feed_assets.cli.groups import Verbs


class _KeysGroup(Verbs):
    """A group whose command `list` needs no name: `keys own` is `keys list own`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put `list` before what is no command and no question for help."""
        is_named = args[:1] and (args[0] in self.commands or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if is_named else ["list", *args])


@click.group(cls=_KeysGroup)
def keys() -> None:
    """List the names of properties, and show the values of one; without a command, list."""
