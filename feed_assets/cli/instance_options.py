"""Options and arguments that the commands on instances share, and their context."""

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, TypeVar

import click

from feed_assets.cli.progress import status_line
from feed_assets.cli.render import say
from feed_assets.context.consolidation import Lifecycle
from feed_assets.settings import load_settings

if TYPE_CHECKING:
    from feed_assets.context.operation import OperationContext


_Command = TypeVar("_Command", bound=Callable[..., Any])


def open_context_for() -> "OperationContext":
    """Open the context of a command: settings, state and definitions."""
    from feed_assets.cli.state import open_state
    from feed_assets.context.operation import open_context

    settings = load_settings()
    database = open_state(settings)
    with status_line.waiting_for(f"the definitions in {settings.entities_location}"):
        return open_context(settings, database)


def say_silence(context: "OperationContext", clusters: Collection[str]) -> None:
    """Say on stderr that no ticks come, which would carry on what was done."""
    from feed_assets.explain.tick_failures import find_silence

    if (silence := find_silence(context, clusters)) is not None:
        say(silence, err=True)


def lifecycle_option(command: _Command) -> _Command:
    """Add `--lifecycle replication`."""
    return click.option(
        "--lifecycle",
        "lifecycles",
        type=click.Choice([lifecycle.value for lifecycle in Lifecycle], case_sensitive=False),
        multiple=True,
        help="For a feed replication (the default if it is copied) or eviction; may be repeated.",
    )(command)
