"""`bundle`: entities in one file, from one location to another."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from feed_assets.cli.groups import Verbs
from feed_assets.cli.options import (
    change_options,
    name_argument,
    open_entity_context_for,
    skip_checks_option,
    text_output_option,
)
from feed_assets.cli.proposals import names_of
from feed_assets.cli.render import print_json, say
from feed_assets.cli.state import open_context_for
from feed_assets.entities.common import Kind, label_of

if TYPE_CHECKING:
    from feed_assets.definitions.bundles.importing import BundleImport


@click.group(cls=Verbs)
def bundle() -> None:
    """Take entities from one location to another in one file: definitions, files of workflows, and metadata."""


@bundle.command(epilog="Example: feed-assets bundle export flights --with-dependencies --to flights.zip")
@name_argument("names", names_of(*Kind), nargs=-1)
@click.option("--all", "is_all", is_flag=True, help="All entities, and the metadata of all that is described.")
@click.option("--with-dependencies", is_flag=True, help="Also what they need: feeds, clusters and datasources.")
@click.option(
    "--to", "target", required=True, type=click.Path(dir_okay=False, path_type=Path), help="The file to write."
)
@text_output_option
def export(names: tuple[str, ...], is_all: bool, with_dependencies: bool, target: Path, output: str) -> None:
    """Write the entities NAMES, such as flights or feed/flights, to a bundle, which is a zip of texts."""
    from feed_assets.definitions.bundles.exporting import export_bundle

    if is_all is bool(names):
        raise click.UsageError("Give names, or --all.")
    made = export_bundle(open_entity_context_for(), open_context_for(), names, with_dependencies=with_dependencies)
    target.write_bytes(made.content)
    if output == "json":
        print_json(made)
        return
    for key in made.entities:
        say(label_of(key))
    for path in made.files:
        say(f"file {path}")
    for path in made.left_out:
        say(f"warning: {path} is left out: it is not below the project's folder", err=True)
    say(f"metadata of {made.described}")


@bundle.command("import", epilog="Example: feed-assets bundle import flights.zip --dry-run")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@skip_checks_option
@change_options
def import_(file: Path, skip_checks: bool, author: str | None, dry_run: bool, output: str) -> None:
    """Declare what is in FILE, completely or not at all; importing it again changes nothing.

    What is here already is left alone. An entity is changed only if it has the id of the bundle's.
    """
    from feed_assets.definitions.bundles.archive import read_archive
    from feed_assets.definitions.bundles.importing import import_bundle

    context = open_entity_context_for(author=author, dry_run=dry_run, skip_checks=skip_checks)
    done = import_bundle(context, read_archive(file), file.name)
    _print_import(done, output)
    if not dry_run:
        from feed_assets.cli.state import end_and_reload

        end_and_reload(context.settings, done.stopped, reload_needed=done.is_change)


def _print_import(done: "BundleImport", output: str) -> None:
    for issue in done.warnings:
        say(issue.line, err=True)
    if output == "json":
        print_json(done)
        return
    would = "would be " if done.dry_run else ""
    for each in done.entities:
        say(f"{label_of((each.kind, each.name))}: {would}{each.outcome.value}")
    for file in done.files:
        say(f"file {file.path}: {would}{file.outcome.value}")
    for change in done.metadata:
        say(change.sentence)
    if done.dry_run and not done.difference.is_empty:
        from feed_assets.plan.rendering import render_difference

        say(render_difference(done.difference))
