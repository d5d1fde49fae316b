"""The verbs of `entity` that say whether work is done: schedule, suspend, resume, touch."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeAlias, TypeVar

import click

from feed_assets.cli.options import (
    MomentType,
    change_options,
    clusters_option,
    kind_argument,
    open_registry_for,
    skip_checks_option,
)
from feed_assets.cli.render import print_result
from feed_assets.entities.common import Kind
from feed_assets.operations.entities import schedules as entity_schedules
from feed_assets.operations.entities import touch as entity_touch
from feed_assets.operations.entities.verb_results import VerbResult

_Command = TypeVar("_Command", bound=Callable[..., Any])
_Verb: TypeAlias = Callable[..., VerbResult]


def _work_options(command: _Command) -> _Command:
    """What those have that work on several entities: a kind, names, and clusters."""
    names = click.argument("names", nargs=-1, required=True)
    return kind_argument(names(clusters_option(change_options(command))))


@click.command()
@_work_options
@skip_checks_option
def schedule(**options: Any) -> None:
    """Begin to work on the feeds or processes NAMES, from the start of their validity on."""
    _work(entity_schedules.schedule, **options)


@click.command()
@_work_options
def suspend(**options: Any) -> None:
    """Let nothing new begin of the feeds or processes NAMES, until they are resumed."""
    _work(entity_schedules.suspend, **options)


@click.command()
@_work_options
def resume(**options: Any) -> None:
    """Go on with the feeds or processes NAMES where `suspend` stopped."""
    _work(entity_schedules.resume, **options)


def _work(
    verb: _Verb,
    *,
    kind: Kind,
    names: tuple[str, ...],
    clusters: tuple[str, ...] | None,
    author: str | None,
    dry_run: bool,
    output: str,
    skip_checks: bool = False,
) -> None:
    registry = open_registry_for(author=author, dry_run=dry_run, skip_checks=skip_checks)
    print_result(verb(registry, kind, names, clusters), output)


@click.command()
@kind_argument
@click.argument("name")
@clusters_option
@click.option("--effective-from", type=MomentType(), help="From this time on, such as 2015-02-28T06:30Z.")
@change_options
def touch(
    kind: Kind,
    name: str,
    clusters: tuple[str, ...] | None,
    effective_from: datetime | None,
    author: str | None,
    dry_run: bool,
    output: str,
) -> None:
    """Begin a new release of process NAME with the definitions as they are."""
    registry = open_registry_for(author=author, dry_run=dry_run)
    print_result(entity_touch.touch(registry, kind, name, clusters, effective_from), output)


COMMANDS = (schedule, suspend, resume, touch)
