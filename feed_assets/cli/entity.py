"""`entity`: the group, and the verbs that change declared entities, or start and stop their work."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import click

from feed_assets.cli import entity_questions
from feed_assets.cli.groups import Verbs
from feed_assets.cli.options import (
    MomentType,
    change_options,
    clusters_option,
    name_argument,
    open_entity_context_for,
    read_files,
    skip_checks_option,
    subject_arguments,
    subjects_argument,
    text_output_option,
)
from feed_assets.cli.proposals import names_of
from feed_assets.cli.render import print_result, say
from feed_assets.entities.common import Kind
from feed_assets.errors import FeedAssetsError

if TYPE_CHECKING:
    from feed_assets.definitions.verbs.context import EntityContext
    from feed_assets.definitions.verbs.verb_results import VerbResult
    from feed_assets.log.records import ProcessInstance

_Command = TypeVar("_Command", bound=Callable[..., Any])
_Verb: TypeAlias = "Callable[..., VerbResult]"
_FILES = click.argument("files", nargs=-1, required=True)


@click.group(cls=Verbs)
def entity() -> None:
    """Declare, schedule and inspect clusters, datasources, feeds and processes.

    FILES are files, folders or URLs of YAML documents or Falcon XML; `-` is standard input. Every command can be
    repeated safely.
    """


@entity.command()
@_FILES
@skip_checks_option
@text_output_option
def validate(files: tuple[str, ...], skip_checks: bool, output: str) -> None:
    """Check FILES as `submit` or `update` would, together with all declared entities."""
    from feed_assets.definitions.verbs import changes as entity_changes

    context = open_entity_context_for(files, dry_run=True, skip_checks=skip_checks)
    finish(context, entity_changes.validate(context, read_files(files)), output)


@entity.command()
@_FILES
@skip_checks_option
@change_options
def submit(files: tuple[str, ...], skip_checks: bool, author: str | None, dry_run: bool, output: str) -> None:
    """Declare all entities in FILES, or none. Feeds and processes then wait for `schedule`."""
    from feed_assets.definitions.verbs import changes as entity_changes

    context = open_entity_context_for(files, author=author, dry_run=dry_run, skip_checks=skip_checks)
    finish(context, entity_changes.submit(context, read_files(files)), output)


@entity.command("submit-and-schedule")
@_FILES
@skip_checks_option
@change_options
def submit_and_schedule(
    files: tuple[str, ...], skip_checks: bool, author: str | None, dry_run: bool, output: str
) -> None:
    """Declare the entities in FILES and schedule them."""
    from feed_assets.definitions.verbs import changes as entity_changes

    context = open_entity_context_for(files, author=author, dry_run=dry_run, skip_checks=skip_checks)
    finish(context, entity_changes.submit(context, read_files(files), and_schedule=True), output)


@entity.command()
@_FILES
@skip_checks_option
@change_options
def update(files: tuple[str, ...], skip_checks: bool, author: str | None, dry_run: bool, output: str) -> None:
    """Update all declared entities in FILES, or none."""
    from feed_assets.definitions.verbs import changes as entity_changes

    context = open_entity_context_for(files, author=author, dry_run=dry_run, skip_checks=skip_checks)
    finish(context, entity_changes.update(context, read_files(files)), output)


@entity.command()
@subjects_argument
@change_options
def delete(kind: Kind | None, names: tuple[str, ...], author: str | None, dry_run: bool, output: str) -> None:
    """Delete the entities NAMES. This kills their unfinished instances and ends their runs."""
    from feed_assets.definitions.verbs import changes as entity_changes

    context = open_entity_context_for(author=author, dry_run=dry_run)
    finish(context, entity_changes.delete(context, kind, names), output)


def _parse_replacements(
    _ctx: click.Context, _parameter: click.Parameter, values: tuple[str, ...]
) -> list[tuple[str, str]]:
    pairs = [text.partition("=") for text in values]
    wrong = next(("".join(pair) for pair in pairs if not (pair[0] and pair[1])), None)
    if wrong is not None:
        raise click.BadParameter(f"{wrong!r} is not OLD=NEW.")
    return [(old, new) for old, _, new in pairs]


@entity.command(epilog="Example: feed-assets entity clone clicks clicks-eu --replace /clicks/=/clicks-eu/")
@subject_arguments()
@click.argument("new")
@click.option(
    "--replace",
    "replacements",
    multiple=True,
    metavar="OLD=NEW",
    callback=_parse_replacements,
    help="A text of the definition, and what the clone has instead. May be repeated.",
)
@skip_checks_option
@change_options
def clone(
    kind: Kind | None,
    name: str,
    new: str,
    replacements: list[tuple[str, str]],
    skip_checks: bool,
    author: str | None,
    dry_run: bool,
    output: str,
) -> None:
    """Declare entity NEW as NAME is defined, with its comments. Metadata, schedules and instances are not copied."""
    from feed_assets.definitions.verbs import cloning

    context = open_entity_context_for(author=author, dry_run=dry_run, skip_checks=skip_checks)
    finish(context, cloning.clone(context, kind, name, new, replacements), output)


@entity.command("update-cluster-dependents")
@name_argument("cluster", names_of(Kind.CLUSTER))
@skip_checks_option
@change_options
def update_cluster_dependents(cluster: str, skip_checks: bool, author: str | None, dry_run: bool, output: str) -> None:
    """Move the feeds and processes that refer to another version of CLUSTER to its current one."""
    from feed_assets.definitions.verbs import cluster_dependents

    context = open_entity_context_for(author=author, dry_run=dry_run, skip_checks=skip_checks)
    finish(context, cluster_dependents.update_cluster_dependents(context, cluster), output)


def _work_options(command: _Command) -> _Command:
    """Add the arguments of verbs on several entities: a kind, names, and clusters."""
    return subjects_argument(clusters_option(change_options(command)))


@entity.command()
@_work_options
@skip_checks_option
def schedule(**options: Any) -> None:
    """Schedule the feeds or processes NAMES, from the start of their validity."""
    from feed_assets.definitions.verbs import schedules as entity_schedules

    _work(entity_schedules.schedule, **options)


@entity.command()
@_work_options
def suspend(**options: Any) -> None:
    """Suspend the feeds or processes NAMES: nothing new starts until they are resumed."""
    from feed_assets.definitions.verbs import schedules as entity_schedules

    _work(entity_schedules.suspend, **options)


@entity.command()
@_work_options
def resume(**options: Any) -> None:
    """Resume the feeds or processes NAMES where `suspend` stopped them."""
    from feed_assets.definitions.verbs import schedules as entity_schedules

    _work(entity_schedules.resume, **options)


def _work(
    verb: _Verb,
    *,
    kind: Kind | None,
    names: tuple[str, ...],
    clusters: tuple[str, ...],
    author: str | None,
    dry_run: bool,
    output: str,
    skip_checks: bool = False,
) -> None:
    context = open_entity_context_for(author=author, dry_run=dry_run, skip_checks=skip_checks)
    print_result(verb(context, kind, names, clusters or None), output)


@entity.command()
@subject_arguments()
@clusters_option
@click.option("--effective-from", type=MomentType(), help="The effective time, such as 2015-02-28T06:30Z.")
@change_options
def touch(
    kind: Kind | None,
    name: str,
    clusters: tuple[str, ...],
    effective_from: datetime | None,
    author: str | None,
    dry_run: bool,
    output: str,
) -> None:
    """Start a new release of process NAME with unchanged definitions."""
    from feed_assets.definitions.verbs import touch as entity_touch

    context = open_entity_context_for(author=author, dry_run=dry_run)
    print_result(entity_touch.touch(context, kind, name, clusters or None, effective_from), output)


def finish(context: "EntityContext", result: "VerbResult", output: str) -> None:
    """Print the result, end the runs of killed instances, and reload Dagster's webserver."""
    print_result(result, output)
    if not result.dry_run:
        end_and_reload(context, result.stopped, reload_needed=result.reload_needed)


def end_and_reload(context: "EntityContext", stopped: "Sequence[ProcessInstance]", *, reload_needed: bool) -> None:
    """End the runs of killed instances, and reload Dagster's webserver."""
    from feed_assets.cli.state import show_changes, stop_runs

    failed = None
    try:
        stop_runs(stopped)
    except FeedAssetsError as exc:
        failed = exc
    if reload_needed and (reason := show_changes(context.settings)) is not None:
        say(f"warning: {reason}", err=True)
    if failed is not None:
        raise failed


for _command in entity_questions.COMMANDS:
    entity.add_command(_command)
