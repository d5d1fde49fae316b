"""What a shell proposes for the values of parameters: names and times from the compiled plan, ids from the state.

A shell asks at each press of the tab key. So nothing here imports more than it needs, and what fails proposes nothing.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from zoneinfo import ZoneInfo

import click
from click.shell_completion import CompletionItem

from feed_assets.clock import open_clock
from feed_assets.entities.common import Kind
from feed_assets.settings import load_settings, project_environment

if TYPE_CHECKING:
    from feed_assets.plan.records import Plan
    from feed_assets.sql.database import Database
    from feed_assets.timing.sequence import InstanceSequence

Proposal: TypeAlias = Callable[[click.Context], Iterable[str]]

_NEWEST = 20
_Value = TypeVar("_Value")


class ProposingType(click.ParamType[_Value]):
    """A value for which a shell proposes texts; none by default."""

    def __init__(self, find: Proposal = lambda _: ()) -> None:
        self._find = find

    def shell_complete(
        self,
        ctx: click.Context,
        param: click.Parameter,  # noqa: ARG002
        incomplete: str,
    ) -> list[CompletionItem]:
        """Return the values that begin so."""
        return propose(self._find, ctx, incomplete)


class ProposedType(ProposingType[str]):
    """A text for which a shell proposes values. It is a name: an empty one is more likely an unset variable."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text."""
        return str(value) or self.fail("it is empty. Give a name, or leave it out.", param, ctx)


def propose(find: Proposal, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """Return the found values that begin so; none if they cannot be found. Of a list with commas it is the last one."""
    before, comma, last = incomplete.rpartition(",")
    try:
        with project_environment(Path.cwd()):
            found = [value for value in dict.fromkeys(find(ctx)) if value.startswith(last)]
    except Exception:  # noqa: BLE001 - in the middle of a line a shell has no place for an error
        return []
    return [CompletionItem(f"{before}{comma}{value}") for value in found]


def names_of(*kinds: Kind) -> Proposal:
    """Return the proposal of the names of entities of these kinds; of the kind that the line names, if it names one."""

    def find(ctx: click.Context) -> Iterable[str]:
        kind = ctx.params.get("kind")
        return _names([kind] if kind in (kinds or tuple(Kind)) else kinds)

    return find


def _names(kinds: Sequence[Kind]) -> list[str]:
    plan = _load_plan()
    names = {
        Kind.CLUSTER: set(plan.clusters),
        Kind.FEED: {name for name, _ in plan.feeds},
        Kind.PROCESS: {name for name, _ in plan.processes},
    }
    return sorted(set().union(*(names.get(kind, set()) for kind in kinds)))


def find_entities(_: click.Context) -> Iterable[str]:
    """Return the paths of declared entities, as metadata name them."""
    return sorted(f"{kind}/{name}" for kind, name in _load_plan().facts)


def subjects_of(kinds: Sequence[Kind]) -> Proposal:
    """Return the proposal for `[KIND] NAME [INSTANCE]`: kinds and names, then names, then times."""

    def find(ctx: click.Context) -> Iterable[str]:
        given = [ctx.params.get("kind"), ctx.params.get("name"), ctx.params.get("instance")]
        texts = [text for text in given if text]
        kind = next((kind for kind in kinds if texts and str(texts[0]).lower() == kind.value), None)
        if kind is not None and len(texts) == 1:
            return _names([kind])
        return _times(str(texts[-1])) if texts else [*(kind.value for kind in kinds), *_names(kinds)]

    return find


def find_names(ctx: click.Context) -> Iterable[str]:
    """Return what may come next in `[KIND] NAMES...`: kinds and names, then names of the kind that comes first."""
    given = (ctx.params.get("kind"), ctx.params.get("name"), *(ctx.params.get("names") or ()))
    words = [text for text in given if text]
    kinds = [kind for kind in Kind if words and kind.value == words[0].lower()]
    return _names(kinds or tuple(Kind)) if words else [*(kind.value for kind in Kind), *_names(tuple(Kind))]


def find_times(ctx: click.Context) -> Iterable[str]:
    """Return the newest nominal times of the entity that the line names, newest first."""
    return _times(_named(ctx.params))


def find_zone(given: Mapping[str, Any]) -> ZoneInfo:
    """Return the zone of days and keys of the process or feed that the parameters of a command name, else UTC."""
    from feed_assets.timing.instance_texts import UTC_KEYS, zone_of_keys

    name = _named(given)
    return next(map(zone_of_keys, _sequences(_load_plan(), name, given.get("kind")) if name else ()), UTC_KEYS)


def _sequences(plan: "Plan", name: str, kind: Kind | None = None) -> "Iterator[InstanceSequence]":
    records = (*(plan.processes.items() if kind is not Kind.FEED else ()), *plan.feeds.items())
    return (record.sequence for key, record in records if key[0] == name)


def _named(given: Mapping[str, Any]) -> str:
    return str(given.get("name") or given.get("feed") or given.get("process") or "")


def _times(name: str) -> Iterable[str]:
    from feed_assets.timing.dates import render_datetime

    plan, now = _load_plan(), open_clock(load_settings()).now()
    for sequence in islice(_sequences(plan, name), 1):
        past = sequence.clip(range(sequence.index_at_or_before(now) + 1))
        yield from (render_datetime(sequence.at(index)) for index in islice(reversed(past), _NEWEST))


def find_sweeps(_: click.Context) -> Iterable[str]:
    """Return the ids of the newest sweeps."""
    from feed_assets.log.removals.store import Sweeps

    with _open_state().read() as connection:
        return [sweep.sweep_id for sweep in Sweeps(connection).newest(_NEWEST)]


def find_holds(_: click.Context) -> Iterable[str]:
    """Return the names of the active holds."""
    from feed_assets.log.removals.holds import Holds

    with _open_state().read() as connection:
        return [hold.name for hold in Holds(connection).active(open_clock(load_settings()).now())]


def find_receivers(_: click.Context) -> Iterable[str]:
    """Return the names of the receivers of the settings."""
    return sorted(load_settings().notify)


def _load_plan() -> "Plan":
    from feed_assets.plan.location import find_plan_cache, load_location

    settings = load_settings()
    return load_location(settings, open_clock(settings).now(), find_plan_cache(os.environ)).plan


def _open_state() -> "Database":
    from feed_assets.cli.state import open_state

    return open_state(load_settings())
