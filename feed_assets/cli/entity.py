"""`entity`: the group, and the verbs that change what is declared."""

import click

from feed_assets.cli import entity_history, entity_questions, entity_work
from feed_assets.cli.options import (
    change_options,
    kind_argument,
    open_registry_for,
    output_option,
    read_files,
    skip_checks_option,
)
from feed_assets.cli.render import print_result
from feed_assets.cli.state import show_changes, stop_runs
from feed_assets.entities.common import Kind
from feed_assets.errors import FeedAssetsError
from feed_assets.operations.entities import changes as entity_changes
from feed_assets.operations.entities import cluster_dependents
from feed_assets.operations.entities.registry import Registry
from feed_assets.operations.entities.verb_results import VerbResult

_FILES = click.argument("files", nargs=-1, required=True)


@click.group()
def entity() -> None:
    """Clusters, datasources, feeds and processes: declare them, schedule them, ask about them.

    FILES are files, folders or URLs of YAML documents or Falcon XML; `-` is standard input. Every verb can be given
    again without harm.
    """


@entity.command()
@_FILES
@skip_checks_option
@output_option
def validate(files: tuple[str, ...], skip_checks: bool, output: str) -> None:
    """Check FILES as if they were submitted, or their entities updated, beside all that is declared."""
    registry = open_registry_for(dry_run=True, skip_checks=skip_checks)
    finish(registry, entity_changes.validate(registry, read_files(files)), output)


@entity.command()
@_FILES
@skip_checks_option
@change_options
def submit(files: tuple[str, ...], skip_checks: bool, author: str | None, dry_run: bool, output: str) -> None:
    """Declare the entities in FILES, all or none. Feeds and processes then wait for `schedule`."""
    registry = open_registry_for(author=author, dry_run=dry_run, skip_checks=skip_checks)
    finish(registry, entity_changes.submit(registry, read_files(files)), output)


@entity.command("submit-and-schedule")
@_FILES
@skip_checks_option
@change_options
def submit_and_schedule(
    files: tuple[str, ...], skip_checks: bool, author: str | None, dry_run: bool, output: str
) -> None:
    """Declare the entities in FILES and schedule them."""
    registry = open_registry_for(author=author, dry_run=dry_run, skip_checks=skip_checks)
    finish(registry, entity_changes.submit(registry, read_files(files), and_schedule=True), output)


@entity.command()
@_FILES
@skip_checks_option
@change_options
def update(files: tuple[str, ...], skip_checks: bool, author: str | None, dry_run: bool, output: str) -> None:
    """Change the declared entities in FILES, all or none."""
    registry = open_registry_for(author=author, dry_run=dry_run, skip_checks=skip_checks)
    finish(registry, entity_changes.update(registry, read_files(files)), output)


@entity.command()
@kind_argument
@click.argument("names", nargs=-1, required=True)
@change_options
def delete(kind: Kind, names: tuple[str, ...], author: str | None, dry_run: bool, output: str) -> None:
    """Declare the entities NAMES no longer. Their instances that have not ended are killed, their runs ended."""
    registry = open_registry_for(author=author, dry_run=dry_run)
    finish(registry, entity_changes.delete(registry, kind, names), output)


@entity.command("update-cluster-dependents")
@click.argument("cluster")
@skip_checks_option
@change_options
def update_cluster_dependents(cluster: str, skip_checks: bool, author: str | None, dry_run: bool, output: str) -> None:
    """Bring the version of CLUSTER to the feeds and processes that still name another one."""
    registry = open_registry_for(author=author, dry_run=dry_run, skip_checks=skip_checks)
    finish(registry, cluster_dependents.update_cluster_dependents(registry, cluster), output)


def finish(registry: Registry, result: VerbResult, output: str) -> None:
    """Print what was done, end the runs of what was killed, and let Dagster's webserver show it."""
    print_result(result, output)
    if result.dry_run:
        return
    failed = None
    try:
        stop_runs(result.stopped)
    except FeedAssetsError as exc:
        failed = exc
    if result.reload_needed and (reason := show_changes(registry.settings)) is not None:
        click.echo(f"warning: {reason}", err=True)
    if failed is not None:
        raise failed


for _command in (*entity_work.COMMANDS, *entity_questions.COMMANDS, *entity_history.COMMANDS):
    entity.add_command(_command)
