"""`completion`, and what a shell proposes for the values of parameters: names from the compiled plan, ids from the
state.

A shell asks on each press of the tab key, so nothing here imports more than it needs, and whatever fails proposes
nothing.
"""

import os
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem, get_completion_class

from feed_assets.cli.render import say
from feed_assets.clock import open_clock
from feed_assets.entities.common import Kind
from feed_assets.settings import load_settings

if TYPE_CHECKING:
    from feed_assets.plan.records import Plan
    from feed_assets.state.database import Database

PROGRAM = "feed-assets"
VARIABLE = "_FEED_ASSETS_COMPLETE"
_NEWEST = 20
_SHELLS = ("bash", "zsh", "fish")


@click.command(
    epilog='For bash: eval "$(feed-assets completion bash)" in ~/.bashrc; for fish: feed-assets completion fish | source'
)
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print what lets SHELL complete commands, names and times."""
    kind = get_completion_class(shell)
    assert kind is not None
    say(kind(ctx.find_root().command, {}, PROGRAM, VARIABLE).source())


class ProposedType(click.ParamType[str]):
    """A text for which a shell proposes values."""

    name = "text"

    def __init__(self, propose: Callable[[click.Context], Iterable[str]], name: str = "text") -> None:
        self._propose = propose
        self.name = name

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002
        """Return the values that begin so."""
        return propose(self._propose, ctx, incomplete)


def propose(
    find: Callable[[click.Context], Iterable[str]], ctx: click.Context, incomplete: str
) -> list[CompletionItem]:
    """Return the found values that begin so; none if they cannot be found."""
    try:
        return [CompletionItem(value) for value in dict.fromkeys(find(ctx)) if value.startswith(incomplete)]
    except Exception:  # noqa: BLE001 - in the middle of a line a shell has no place for an error
        return []


def names_of(*kinds: Kind) -> Callable[[click.Context], Iterable[str]]:
    """Return a proposal of the names of entities: of the kind that the line has, else of `kinds`."""

    def find(ctx: click.Context) -> Iterable[str]:
        kind = ctx.params.get("kind")
        wanted, plan = (kind,) if kind else kinds, load_plan()
        for each in wanted:
            match each:
                case Kind.CLUSTER:
                    yield from sorted(plan.clusters)
                case Kind.FEED:
                    yield from sorted({name for name, _ in plan.feeds})
                case Kind.PROCESS:
                    yield from sorted({name for name, _ in plan.processes})

    return find


def find_times(ctx: click.Context) -> Iterable[str]:
    """Yield the newest nominal times of the entity that the line names, newest first."""
    from feed_assets.timing.dates import render_datetime

    name, plan = ctx.params.get("name") or ctx.params.get("feed") or ctx.params.get("process"), load_plan()
    records = [record for (each, _), record in (*plan.processes.items(), *plan.feeds.items()) if each == name]
    if records:
        sequence = records[0].sequence
        newest = sequence.clip(range(sequence.index_at_or_before(open_clock(load_settings()).now()) + 1))
        yield from (render_datetime(sequence.at(index)) for index in islice(reversed(newest), _NEWEST))


def find_sweeps(_: click.Context) -> Iterable[str]:
    """Yield the ids of the newest sweeps."""
    from feed_assets.state.sweeps import Sweeps

    with _open_state().read() as connection:
        yield from (sweep.sweep_id for sweep in Sweeps(connection).newest(_NEWEST))


def find_holds(_: click.Context) -> Iterable[str]:
    """Yield the names of the active holds."""
    from feed_assets.state.holds import Holds

    with _open_state().read() as connection:
        yield from (hold.name for hold in Holds(connection).all() if hold.released_at is None)


def load_plan() -> "Plan":
    """Load the compiled plan of the settings, from the cache if it is there."""
    from feed_assets.plan.location import find_plan_cache, load_location

    settings = load_settings()
    return load_location(settings, open_clock(settings).now(), find_plan_cache(os.environ)).plan


def _open_state() -> "Database":
    from feed_assets.cli.state import open_state

    return open_state(load_settings())
