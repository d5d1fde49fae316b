"""`plan` and `apply`: preview a change of the definitions, and apply exactly that change."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from feed_assets.cli.derived import finish
from feed_assets.cli.exit_codes import DIFFERENT, FAILED
from feed_assets.cli.groups import Verb
from feed_assets.cli.options import (
    author_option,
    dry_run_option,
    open_entity_context_for,
    read_files,
    skip_checks_option,
    text_output_option,
)
from feed_assets.cli.render import confirm, print_json, say
from feed_assets.operation import Operation

if TYPE_CHECKING:
    from feed_assets.definitions.verbs.context import EntityContext
    from feed_assets.definitions.verbs.planning import PlannedChanges

_FILES = click.argument("files", nargs=-1)
_PRUNE = click.option("--prune", is_flag=True, help="Remove the entities that FILES do not contain.")


@click.command(cls=Verb)
@_FILES
@_PRUNE
@text_output_option
@click.option("--detailed-exitcode", is_flag=True, help="Exit with 4 if something would change.")
@click.pass_context
def plan(ctx: click.Context, files: tuple[str, ...], prune: bool, output: str, detailed_exitcode: bool) -> None:
    """Show what would change if FILES were applied, and change nothing.

    FILES are files, folders or URLs. Without FILES it shows the unrecorded edits of the entities folder.

    Exits with 0, with 1 if the change would be refused, and with --detailed-exitcode with 4 if something would change.
    """
    planned = _plan(open_entity_context_for(files, dry_run=True), files, prune=prune)
    _show(planned, output)
    if planned.errors:
        ctx.exit(FAILED)
    if detailed_exitcode and not planned.difference.is_empty:
        ctx.exit(DIFFERENT)


@click.command(cls=Verb, epilog="Example: feed-assets apply new/clicks.yaml --digest 4f0c91d2")
@_FILES
@_PRUNE
@click.option("--digest", help="Apply only the plan with this digest, or with one that begins so (8 characters).")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--delete-all", is_flag=True, help="Confirm that most of the declared entities are deleted.")
@skip_checks_option
@author_option
@dry_run_option
@text_output_option
@click.pass_context
def apply(
    ctx: click.Context,
    files: tuple[str, ...],
    prune: bool,
    digest: str | None,
    yes: bool,
    delete_all: bool,
    skip_checks: bool,
    author: str | None,
    dry_run: bool,
    output: str,
) -> None:
    """Apply FILES as one change, completely or not at all.

    FILES are files, folders or URLs. Without FILES it records the edits of the entities folder. The change takes effect
    at its effective times. If nothing differs, nothing happens.

    Shows the change and asks for confirmation, unless --digest or --yes is given. A change that deletes most of the
    declared entities at once needs --digest or --delete-all instead of --yes.
    """
    from feed_assets.definitions.verbs.planning import apply_planned, require_digest

    context = open_entity_context_for(
        files, author=author, dry_run=dry_run, skip_checks=skip_checks, may_take_over=delete_all
    )
    planned = _plan(context, files, prune=prune)
    if digest is not None and not planned.difference.is_empty:
        require_digest(planned, digest)
    if dry_run:
        _show(planned, output)
        ctx.exit(FAILED if planned.errors else 0)
    if planned.difference.is_empty and not planned.errors:
        say("Nothing would change.", err=True)
    is_confirmed = delete_all or digest is not None
    if not (is_confirmed or yes or planned.difference.is_empty or planned.errors):
        from feed_assets.plan.rendering import render_difference

        say(render_difference(planned.difference), err=True)
        confirm("Apply this?")
        is_confirmed = True
    done = apply_planned(context, planned, may_delete_all=is_confirmed)
    finish(Operation("apply", text="lines"), context, done, output)


def _plan(context: "EntityContext", paths: Sequence[str], *, prune: bool) -> "PlannedChanges":
    from feed_assets.definitions.verbs.planning import plan_edits, plan_folder, read_edits

    if not paths:
        if prune:
            raise click.UsageError("--prune needs FILES: it removes what they do not contain.")
        return plan_folder(context)
    return plan_edits(context, read_edits(context, read_files(paths), prune=prune))


def _show(planned: "PlannedChanges", output: str) -> None:
    from feed_assets.plan.rendering import render_difference

    for issue in planned.issues:
        say(issue.line, err=True)
    if output == "json":
        print_json(planned)
        return
    say(render_difference(planned.difference))
    if not planned.difference.is_empty and not planned.errors:
        say(f"Plan {planned.digest}")
