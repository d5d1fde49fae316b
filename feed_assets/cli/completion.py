"""`completion`: the script by which a shell completes commands, names and times."""

import click
from click.shell_completion import get_completion_class

from feed_assets.cli.groups import Verb
from feed_assets.cli.render import say

PROGRAM = "feed-assets"
VARIABLE = "_FEED_ASSETS_COMPLETE"


@click.command(cls=Verb)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes commands, names and times in SHELL.

    One line in the start-up file of the shell switches it on: `eval "$(feed-assets completion bash)"` in ~/.bashrc,
    `eval "$(feed-assets completion zsh)"` in ~/.zshrc, `feed-assets completion fish | source` in config.fish.
    """
    kind = get_completion_class(shell)
    assert kind is not None
    say(kind(ctx.find_root().command, {}, PROGRAM, VARIABLE).source())
