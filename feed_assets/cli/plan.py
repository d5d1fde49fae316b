"""`plan` and `apply`: what a change of the definitions would do, and doing exactly that."""

import json
from collections.abc import Sequence

import click

from feed_assets.cli.entity import finish
from feed_assets.cli.options import change_options, open_registry_for, output_option, read_files, skip_checks_option
from feed_assets.issues import Severity
from feed_assets.operations.entities.applying import apply_planned, require_digest
from feed_assets.operations.entities.planning import Planned, plan_edits, plan_folder, read_edits
from feed_assets.operations.entities.registry import Registry
from feed_assets.plan.rendering import render_difference

FAILED = 1
DIFFERENT = 4

_FILES = click.argument("files", nargs=-1)
_PRUNE = click.option("--prune", is_flag=True, help="Remove the entities that FILES do not hold.")


@click.command()
@_FILES
@_PRUNE
@output_option
@click.option("--detailed-exitcode", is_flag=True, help="Exit with 4 if something would change.")
@click.pass_context
def plan(ctx: click.Context, files: tuple[str, ...], prune: bool, output: str, detailed_exitcode: bool) -> None:
    """Show what would change if FILES (files, folders or URLs) were applied; without FILES, what the entities folder
    says that is not recorded yet. Nothing is changed.

    Exits with 0, with 1 if something is wrong with the change, and with --detailed-exitcode with 4 if there is one.
    """
    planned = _plan(open_registry_for(dry_run=True), files, prune=prune)
    _show(planned, output)
    if planned.errors:
        ctx.exit(FAILED)
    if detailed_exitcode and not planned.difference.is_empty:
        ctx.exit(DIFFERENT)


@click.command()
@_FILES
@_PRUNE
@click.option("--digest", help="Refuse unless the plan is this one, as `plan` has shown it.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@skip_checks_option
@change_options
@click.pass_context
def apply(
    ctx: click.Context,
    files: tuple[str, ...],
    prune: bool,
    digest: str | None,
    yes: bool,
    skip_checks: bool,
    author: str | None,
    dry_run: bool,
    output: str,
) -> None:
    """Change the definitions to what FILES (files, folders or URLs) say, all at once; without FILES, record what the
    entities folder says. It governs from its effective times on. Where nothing would change, nothing happens.

    Shows what would change and asks, unless --digest or --yes is given.
    """
    registry = open_registry_for(author=author, dry_run=dry_run, skip_checks=skip_checks)
    planned = _plan(registry, files, prune=prune)
    if digest is not None and not planned.difference.is_empty:
        require_digest(planned, digest)
    if dry_run:
        _show(planned, output)
        ctx.exit(FAILED if planned.errors else 0)
    if planned.difference.is_empty and not planned.errors:
        click.echo("Nothing would change.", err=True)
    elif digest is None and not yes and not planned.errors:
        click.echo(render_difference(planned.difference), err=True)
        click.confirm("Apply this?", abort=True, err=True)
    finish(registry, apply_planned(registry, planned), output)


def _plan(registry: Registry, paths: Sequence[str], *, prune: bool) -> Planned:
    if not paths:
        if prune:
            raise click.UsageError("--prune needs FILES: it removes what they do not hold.")
        return plan_folder(registry)
    return plan_edits(registry, read_edits(registry, read_files(paths), prune=prune))


def _show(planned: Planned, output: str) -> None:
    for issue in planned.issues:
        prefix = "warning: " if issue.severity is Severity.WARNING else ""
        click.echo(f"{prefix}{issue.render()}", err=True)
    if output == "json":
        click.echo(json.dumps(planned.to_json(), indent=2))
        return
    click.echo(render_difference(planned.difference))
    if not planned.difference.is_empty and not planned.errors:
        click.echo(f"Plan {planned.digest}")
