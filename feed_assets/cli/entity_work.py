"""The verbs of `entity` that start and stop work: schedule, suspend, resume, touch."""

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import click

from feed_assets.cli.groups import Verb
from feed_assets.cli.options import (
    MomentType,
    change_options,
    clusters_option,
    kind_argument,
    name_argument,
    open_entity_context_for,
    skip_checks_option,
)
from feed_assets.cli.proposals import names_of
from feed_assets.cli.render import print_result
from feed_assets.entities.common import Kind

if TYPE_CHECKING:
    from feed_assets.operations.entities.verb_results import VerbResult

_Command = TypeVar("_Command", bound=Callable[..., Any])
_Verb: TypeAlias = "Callable[..., VerbResult]"


def _work_options(command: _Command) -> _Command:
    """Add the arguments of verbs on several entities: a kind, names, and clusters."""
    names = name_argument("names", names_of(*Kind), nargs=-1, required=True)
    return kind_argument()(names(clusters_option(change_options(command))))


@click.command(cls=Verb)
@_work_options
@skip_checks_option
def schedule(**options: Any) -> None:
    """Schedule the feeds or processes NAMES, from the start of their validity."""
    from feed_assets.operations.entities import schedules as entity_schedules

    _work(entity_schedules.schedule, **options)


@click.command(cls=Verb)
@_work_options
def suspend(**options: Any) -> None:
    """Suspend the feeds or processes NAMES: nothing new starts until they are resumed."""
    from feed_assets.operations.entities import schedules as entity_schedules

    _work(entity_schedules.suspend, **options)


@click.command(cls=Verb)
@_work_options
def resume(**options: Any) -> None:
    """Resume the feeds or processes NAMES where `suspend` stopped them."""
    from feed_assets.operations.entities import schedules as entity_schedules

    _work(entity_schedules.resume, **options)


def _work(
    verb: _Verb,
    *,
    kind: Kind,
    names: tuple[str, ...],
    clusters: tuple[str, ...],
    author: str | None,
    dry_run: bool,
    output: str,
    skip_checks: bool = False,
) -> None:
    context = open_entity_context_for(author=author, dry_run=dry_run, skip_checks=skip_checks)
    print_result(verb(context, kind, names, clusters or None), output)


@click.command(cls=Verb)
@kind_argument()
@name_argument("name", names_of(*Kind))
@clusters_option
@click.option("--effective-from", type=MomentType(), help="The effective time, such as 2015-02-28T06:30Z.")
@change_options
def touch(
    kind: Kind,
    name: str,
    clusters: tuple[str, ...],
    effective_from: datetime | None,
    author: str | None,
    dry_run: bool,
    output: str,
) -> None:
    """Start a new release of process NAME with unchanged definitions."""
    from feed_assets.operations.entities import touch as entity_touch

    context = open_entity_context_for(author=author, dry_run=dry_run)
    print_result(entity_touch.touch(context, kind, name, clusters or None, effective_from), output)


COMMANDS = (schedule, suspend, resume, touch)
