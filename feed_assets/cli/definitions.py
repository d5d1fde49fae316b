"""`validate` and `schema`: commands on definitions that run nothing."""

import json
from pathlib import Path

import click

from feed_assets.cli.exit_codes import FAILED
from feed_assets.cli.groups import Verb
from feed_assets.cli.options import project_settings, text_output_option
from feed_assets.cli.render import print_json, say
from feed_assets.clock import open_clock
from feed_assets.entities.common import Kind
from feed_assets.issues import Severity


@click.command(cls=Verb)
@click.argument("path", required=False)
@text_output_option
@click.option("--strict", is_flag=True, default=None, help="Also fail for warnings.")
@click.option(
    "--live",
    is_flag=True,
    help="Also contact storages, Spark, catalogs and databases, import functions, and let Spark analyze SQL.",
)
@click.pass_context
def validate(ctx: click.Context, path: str | None, output: str, strict: bool | None, live: bool) -> None:
    """Check the entities in PATH, and the code that they name: a folder, a file or an fsspec URL; by default those of
    the settings.

    Exits with 0 if the entities are valid, with 1 if they are not, with 2 for wrong usage or settings.
    """
    from feed_assets.definitions.checks.declared_definitions import validate_location

    paths = [path] if path else []
    settings = project_settings(paths, **({} if strict is None else {"strict": strict}))
    report = validate_location(settings, open_clock(settings).now(), path and _absolute(path), live=live)
    if output == "json":
        print_json(report)
    else:
        for issue in report.issues:
            prefix = "warning: " if issue.severity is Severity.WARNING else ""
            say(f"{prefix}{issue.render()}")
    say(report.render_summary(), err=True)
    if not report.is_good(strict=settings.strict):
        ctx.exit(FAILED)


@click.command(cls=Verb)
@click.option("--kind", type=click.Choice([kind.value for kind in Kind]), help="Only this kind of entity.")
def schema(kind: str | None) -> None:
    """Print the JSON Schema of entity files, for editors.

    For the YAML language server: `feed-assets schema > entity.schema.json`, and in each file
    `# yaml-language-server: $schema=entity.schema.json`.
    """
    from feed_assets.definitions.checks.declared_definitions import entity_schema

    say(json.dumps(entity_schema(Kind(kind) if kind else None), indent=2))


def _absolute(path: str) -> str:
    return path if "://" in path else str(Path(path).absolute())
