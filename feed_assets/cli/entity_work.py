"""The verbs of `entity` that say whether work is done: schedule, suspend, resume, touch."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import click

from feed_assets.cli.options import (
    ListType,
    MomentType,
    change_options,
    kind_argument,
    open_registry_for,
    skip_checks_option,
)
from feed_assets.cli.render import print_result
from feed_assets.entities.common import Kind
from feed_assets.operations.entities import schedules as entity_schedules
from feed_assets.operations.entities import touch as entity_touch

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _clusters_option(command: _Command) -> _Command:
    return click.option("--clusters", type=ListType(), help="Only on these clusters, with commas between them.")(
        command
    )


@click.command()
@kind_argument
@click.argument("names", nargs=-1, required=True)
@_clusters_option
@skip_checks_option
@change_options
@click.pass_context
def schedule(
    ctx: click.Context,
    kind: Kind,
    names: tuple[str, ...],
    clusters: tuple[str, ...] | None,
    skip_checks: bool,
    author: str | None,
    dry_run: bool,
    output: str,
) -> None:
    """Begin to work on the feeds or processes NAMES, from the start of their validity on."""
    registry = open_registry_for(ctx, author=author, dry_run=dry_run, skip_checks=skip_checks)
    print_result(entity_schedules.schedule(registry, kind, names, clusters), output)


@click.command()
@kind_argument
@click.argument("names", nargs=-1, required=True)
@_clusters_option
@change_options
@click.pass_context
def suspend(
    ctx: click.Context,
    kind: Kind,
    names: tuple[str, ...],
    clusters: tuple[str, ...] | None,
    author: str | None,
    dry_run: bool,
    output: str,
) -> None:
    """Let nothing new begin of the feeds or processes NAMES, until they are resumed."""
    registry = open_registry_for(ctx, author=author, dry_run=dry_run)
    print_result(entity_schedules.suspend(registry, kind, names, clusters), output)


@click.command()
@kind_argument
@click.argument("names", nargs=-1, required=True)
@_clusters_option
@change_options
@click.pass_context
def resume(
    ctx: click.Context,
    kind: Kind,
    names: tuple[str, ...],
    clusters: tuple[str, ...] | None,
    author: str | None,
    dry_run: bool,
    output: str,
) -> None:
    """Go on with the feeds or processes NAMES where `suspend` stopped."""
    registry = open_registry_for(ctx, author=author, dry_run=dry_run)
    print_result(entity_schedules.resume(registry, kind, names, clusters), output)


@click.command()
@kind_argument
@click.argument("name")
@_clusters_option
@click.option("--effective-from", type=MomentType(), help="From this time on, such as 2015-02-28T06:30Z.")
@change_options
@click.pass_context
def touch(
    ctx: click.Context,
    kind: Kind,
    name: str,
    clusters: tuple[str, ...] | None,
    effective_from: datetime | None,
    author: str | None,
    dry_run: bool,
    output: str,
) -> None:
    """Begin a new release of process NAME with the definitions as they are."""
    registry = open_registry_for(ctx, author=author, dry_run=dry_run)
    print_result(entity_touch.touch(registry, kind, name, clusters, effective_from), output)


COMMANDS = (schedule, suspend, resume, touch)
