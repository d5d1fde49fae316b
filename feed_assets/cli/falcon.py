"""`import-falcon` and `export-falcon`: Falcon's documents in and out."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from feed_assets.cli.exit_codes import FAILED
from feed_assets.cli.groups import Verb
from feed_assets.cli.options import dry_run_option, read_files, subject_arguments, text_output_option
from feed_assets.cli.render import print_json, say
from feed_assets.definitions.falcon.file_formats import FileFormat
from feed_assets.entities.common import Kind
from feed_assets.settings import load_settings

if TYPE_CHECKING:
    from feed_assets.definitions.folder import DefinitionFolder
    from feed_assets.entities.workflow import Workflow
    from feed_assets.loading.entity_files import EntityFile


def _parse_replacements(
    _ctx: click.Context, _parameter: click.Parameter, values: Iterable[str]
) -> "dict[str, Workflow]":
    from feed_assets.engines.registry import ENGINE_NAMES
    from feed_assets.entities.workflow import Workflow, WorkflowEngine

    replacements: dict[str, Workflow] = {}
    engines = [name for name in ENGINE_NAMES if WorkflowEngine(name).has_path]
    for text in values:
        name, has_name, work = text.partition("=")
        engine, has_path, path = work.partition(":")
        if not (has_name and has_path and name and path.strip()) or engine not in engines:
            raise click.BadParameter(f"{text!r} is not NAME=ENGINE:PATH with an engine of {', '.join(engines)}.")
        replacements[name] = Workflow(engine=WorkflowEngine(engine), path=path)
    return replacements


@click.command("import-falcon", cls=Verb)
@click.argument("files", nargs=-1, required=True)
@click.option("--to", "target", required=True, metavar="DIR", help="The folder for <kind>/<name>.yaml.")
@click.option(
    "--map", "mapping_file", metavar="FILE", help="YAML with workflows: {name: {engine, path}} and urls: {old: new}."
)
@click.option(
    "--replace-workflow",
    "replacements",
    multiple=True,
    metavar="NAME=ENGINE:PATH",
    callback=_parse_replacements,
    help="A replacement workflow for a process; overrides the mapping file. May be repeated.",
)
@click.option(
    "--format",
    "file_format",
    type=click.Choice([each.value for each in FileFormat]),
    default=FileFormat.YAML.value,
    show_default=True,
    help="The format of the written files.",
)
@click.option("--force", is_flag=True, help="Replace files that say something else.")
@dry_run_option
@text_output_option
@click.pass_context
def import_falcon(
    ctx: click.Context,
    files: tuple[str, ...],
    target: str,
    mapping_file: str | None,
    replacements: "dict[str, Workflow]",
    file_format: str,
    force: bool,
    dry_run: bool,
    output: str,
) -> None:
    """Convert Falcon's XML FILES (or folders of them) to entity files, all of them or none.

    Prints for each file what was carried over, what was mapped, what to check and what cannot run here. Exits with 1,
    and writes nothing, if a file cannot be read or would replace another one.
    """
    from feed_assets.definitions.falcon.importing import import_documents
    from feed_assets.definitions.falcon.mapping import ImportMapping, parse_mapping
    from feed_assets.loading.entity_files import read_entity_files

    mapping = ImportMapping()
    if mapping_file is not None:
        mapping = parse_mapping(read_entity_files(Path(mapping_file).absolute())[0])
    report = import_documents(
        _documents(files),
        _folder(target),
        mapping.with_workflows(replacements),
        file_format=FileFormat(file_format),
        is_forced=force,
        is_dry_run=dry_run,
    )
    if output == "json":
        print_json(report)
    else:
        for line in report.render():
            say(line)
    say(report.render_summary(), err=True)
    if not report.is_good:
        ctx.exit(FAILED)


@click.command("export-falcon", cls=Verb)
@subject_arguments(required=False)
@click.option("--all", "is_all", is_flag=True, help="Every entity.")
@click.option("--from", "source", metavar="PATH", help="Another folder, file or URL than that of the settings.")
@click.option("--to", "target", metavar="DIR", help="The folder for <kind>/<name>.xml; without it they are printed.")
@click.option("--force", is_flag=True, help="Replace files that say something else.")
@dry_run_option
@text_output_option
def export_falcon(
    kind: Kind | None,
    name: str | None,
    is_all: bool,
    source: str | None,
    target: str | None,
    force: bool,
    dry_run: bool,
    output: str,
) -> None:
    """Export the entity KIND NAME, or --all entities, as Falcon's XML.

    Fields without an element in Falcon become properties feed_assets.<field>, so an import gives the same entity.
    """
    from feed_assets.definitions.falcon.exporting import describe, export_documents, write_documents

    if is_all == (name is not None):
        raise click.UsageError("Give KIND and NAME, or --all.")
    location = source or load_settings().entities_location
    documents = export_documents(location if "://" in location else str(Path(location).absolute()), kind, name)
    if target is None:
        if output == "json":
            print_json(documents=documents)
        else:
            say("".join(document.text for document in documents), nl=False)
        return
    report = write_documents(documents, _folder(target), is_forced=force, is_dry_run=dry_run)
    if output == "json":
        print_json(report)
    else:
        for line in describe(documents):
            say(line)
    say(f"{report.folder}: {len(documents)} documents{'' if report.is_written else ', not written'}", err=True)


def _documents(paths: Iterable[str]) -> "list[EntityFile]":
    """Read the named files, and the XML files of the named folders."""
    from feed_assets.loading.entity_documents import is_falcon

    found: list[EntityFile] = []
    for path in paths:
        files = read_files([path])
        is_file = len(files) == 1 and files[0].name.endswith(Path(path).name)
        found.extend(files if is_file else [file for file in files if is_falcon(file.name)])
    if not found:
        raise click.UsageError(f"There is no XML in {', '.join(paths)}.")
    return found


def _folder(target: str) -> "DefinitionFolder":
    from feed_assets.definitions.folder import open_folder

    return open_folder(target if "://" in target else Path(target).absolute())
