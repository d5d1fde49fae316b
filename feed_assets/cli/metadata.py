"""`metadata`: what people, programs and declarations say of entities."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from feed_assets.cli.exit_codes import FAILED
from feed_assets.cli.groups import Verbs
from feed_assets.cli.instance_options import open_context_for
from feed_assets.cli.options import author_of, change_options, name_argument, output_option
from feed_assets.cli.progress import status_line
from feed_assets.cli.proposals import find_entities
from feed_assets.cli.render import print_json, print_list_json, print_records, print_table, say
from feed_assets.entities.metadata import MetadataKind, Scope
from feed_assets.timing.dates import render_datetime

if TYPE_CHECKING:
    from feed_assets.catalog.editing import MetadataResult
    from feed_assets.catalog.reindexing import Reindexed

_entity = name_argument("entity", find_entities, metavar="ENTITY")


@click.group(cls=Verbs)
def metadata() -> None:
    """Read and change properties and tags of entities: feed/NAME, feed/NAME/column/COLUMN, run/ID, dashboard/NAME."""


def parse_scope(_ctx: click.Context, _parameter: click.Parameter, text: str | None) -> tuple[Scope, ...]:
    """Return the scopes that a word names, in any spelling; both without a word."""
    if text is None:
        return tuple(Scope)
    if text.upper() not in list(Scope):
        raise click.BadParameter(f"{text!r} is not user or system.")
    return (Scope(text.upper()),)


_scope = click.option(
    "--scope", "scopes", callback=parse_scope, metavar="user|system", help="Only what this scope says."
)


@metadata.command(epilog="Example: feed-assets metadata get feed/flights --scope user")
@_entity
@_scope
@output_option
def get(entity: str, scopes: tuple[Scope, ...], output: str) -> None:
    """Show the metadata of ENTITY, and who said it."""
    from feed_assets.catalog.editing import get_metadata

    found = get_metadata(open_context_for(), entity, scopes)
    if output == "json":
        print_json(found)
        return
    print_records("scope, kind, name, value, origin, author", found.metadata, output)
    if not found.metadata:
        say(f"Nothing is said of {found.entity}{'' if len(scopes) > 1 else f' in the scope {scopes[0]}'}.", err=True)


@metadata.command(epilog="Example: feed-assets metadata put feed/flights owner=ann checked=2026-11-03")
@_entity
@click.argument("properties", nargs=-1, required=True, metavar="NAME=VALUE...")
@change_options
def put(entity: str, properties: tuple[str, ...], author: str | None, dry_run: bool, output: str) -> None:
    """Add properties to ENTITY, or overwrite them."""
    from feed_assets.catalog.editing import update_metadata

    pairs = {}
    for text in properties:
        name, has_value, value = text.partition("=")
        if not has_value:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE.", param_hint="NAME=VALUE")
        pairs[name] = value
    print_change(
        update_metadata(open_context_for(), entity, pairs, (), author=author_of(author), dry_run=dry_run), output
    )


@metadata.command(epilog="Example: feed-assets metadata tag feed/flights checked public")
@_entity
@click.argument("tags", nargs=-1, required=True)
@change_options
def tag(entity: str, tags: tuple[str, ...], author: str | None, dry_run: bool, output: str) -> None:
    """Add TAGS to ENTITY."""
    from feed_assets.catalog.editing import update_metadata

    print_change(
        update_metadata(open_context_for(), entity, {}, tags, author=author_of(author), dry_run=dry_run), output
    )


@metadata.command(epilog="Example: feed-assets metadata untag feed/flights checked")
@_entity
@click.argument("tags", nargs=-1)
@click.option("--all", "is_all", is_flag=True, help="Remove all tags, but for those of declarations.")
@change_options
def untag(entity: str, tags: tuple[str, ...], is_all: bool, author: str | None, dry_run: bool, output: str) -> None:
    """Remove TAGS of ENTITY; those that are not there are not missed."""
    _remove(entity, tags, is_all, MetadataKind.TAG, author, dry_run, output)


@metadata.command(epilog="Example: feed-assets metadata remove feed/flights checked")
@_entity
@click.argument("names", nargs=-1)
@click.option("--all", "is_all", is_flag=True, help="Remove all properties, but for those of declarations.")
@change_options
def remove(entity: str, names: tuple[str, ...], is_all: bool, author: str | None, dry_run: bool, output: str) -> None:
    """Remove the properties NAMES of ENTITY; those that are not there are not missed."""
    _remove(entity, names, is_all, MetadataKind.PROPERTY, author, dry_run, output)


@metadata.command(epilog="Example: feed-assets metadata drop dashboard/otd")
@_entity
@change_options
def drop(entity: str, author: str | None, dry_run: bool, output: str) -> None:
    """Remove all that people and programs have said of ENTITY; one that is not declared is gone with it."""
    from feed_assets.catalog.editing import drop_metadata

    print_change(drop_metadata(open_context_for(), entity, author=author_of(author), dry_run=dry_run), output)


@metadata.command(epilog="Example: feed-assets metadata copy feed/flights feed/flights2")
@_entity
@name_argument("to", find_entities, metavar="TO")
@change_options
def copy(entity: str, to: str, author: str | None, dry_run: bool, output: str) -> None:
    """Add what is said of ENTITY in the scope USER to TO, but for names that the declaration of TO has."""
    from feed_assets.catalog.editing import copy_metadata

    print_change(copy_metadata(open_context_for(), entity, to, author=author_of(author), dry_run=dry_run), output)


@metadata.command(epilog="Example: feed-assets metadata history feed/flights --scope user")
@_entity
@_scope
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="At most so many.")
@output_option
def history(entity: str, scopes: tuple[Scope, ...], limit: int, output: str) -> None:
    """Show the changes of the metadata of ENTITY, newest first."""
    from feed_assets.catalog.editing import list_changes

    found = list_changes(open_context_for(), entity, limit, scopes)
    if output == "json":
        print_list_json("changes", found, len(found))
        return
    rows = [
        (
            each.change.seq,
            render_datetime(each.change.recorded_at),
            each.change.author,
            each.change.origin.value,
            _phrase(each.additions),
            _phrase(each.deletions),
        )
        for each in found
    ]
    print_table(("number", "time", "author", "origin", "added", "removed"), rows, output)


@metadata.command(epilog="Example: feed-assets metadata export feed/flights")
@name_argument("entity", find_entities, metavar="[ENTITY]", required=False)
@click.option("--kind", "kinds", multiple=True, metavar="KIND", help="Only entities of this kind, such as column.")
def export(entity: str | None, kinds: tuple[str, ...]) -> None:
    """Print what is said in the scope USER of ENTITY and what is below it, or of all entities, for `import`."""
    from feed_assets.catalog.moving import export_metadata

    print_json(mutations=export_metadata(open_context_for(), entity, kinds))


@metadata.command("import", epilog="Example: feed-assets metadata import - --dry-run")
@click.argument("file", type=click.File("rb"))
@change_options
def import_(file: BinaryIO, author: str | None, dry_run: bool, output: str) -> None:
    """Make the changes of FILE, all of them or none; importing it again changes nothing. - is standard input."""
    from feed_assets.catalog.moving import import_metadata

    done = import_metadata(open_context_for(), file.name, file.read(), author=author_of(author), dry_run=dry_run)
    if output == "json":
        print_list_json("entities", done, len(done))
        return
    for each in done:
        print_change(each, output)


@metadata.command()
@change_options
@click.pass_context
def reindex(ctx: click.Context, author: str | None, dry_run: bool, output: str) -> None:
    """Prove that searches find what is said and declared, and mend what they do not.

    It is never needed: whatever writes metadata writes the index with them. With --dry-run, the exit code is 1 if
    something is wrong.
    """
    from feed_assets.catalog.reindexing import reindex as reindex_metadata

    done = reindex_metadata(
        open_context_for(),
        author=author_of(author),
        dry_run=dry_run,
        progress=lambda settled, total: status_line.show("reindex", settled, total),
    )
    if output == "json":
        print_json(done)
    else:
        say(f"{done.entities:,} {'entity' if done.entities == 1 else 'entities'}: {_describe_faults(done)}")
    ctx.exit(FAILED if dry_run and not done.is_sound else 0)


def _describe_faults(done: "Reindexed") -> str:
    counts = {
        "missing in the index": done.missing,
        "too many in the index": done.extra,
        "of no entity": done.orphans,
        "wrong descriptions": done.descriptions,
    }
    found = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
    text = f"{found}; {'nothing was changed' if done.dry_run else 'mended'}" if found else "nothing to mend"
    return text if done.descriptions is not None else f"{text}; descriptions follow when the definitions are in force"


def _remove(
    entity: str,
    names: tuple[str, ...],
    is_all: bool,
    kind: MetadataKind,
    author: str | None,
    dry_run: bool,
    output: str,
) -> None:
    from feed_assets.catalog.editing import remove_metadata

    if is_all is bool(names):
        raise click.UsageError("Give names, or --all.")
    done = remove_metadata(
        open_context_for(),
        entity,
        names=None if is_all else names,
        kinds=[kind],
        author=author_of(author),
        dry_run=dry_run,
    )
    print_change(done, output)


def print_change(done: "MetadataResult", output: str) -> None:
    """Print a change of the metadata of an entity."""
    if output == "json":
        print_json(done)
        return
    if not done.is_change:
        say(f"{done.entity}: nothing is different")
        return
    said = {"added": _phrase(done.additions), "removed": _phrase(done.deletions)}
    parts = [f"{word} {phrase}" for word, phrase in said.items() if phrase]
    say(f"{done.entity}: {', '.join(parts)}{' (dry run: nothing was changed)' if done.dry_run else ''}")


def _phrase(said: Mapping[str, Any]) -> str:
    """Return properties and tags in one line: `owner=ann checked`."""
    properties = [f"{name}={value}" for scope in said.values() for name, value in scope["properties"].items()]
    return " ".join([*properties, *(tag for scope in said.values() for tag in scope["tags"])])
