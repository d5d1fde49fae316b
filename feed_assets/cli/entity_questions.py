"""The verbs of `entity` that only ask: status, definition, list, dependency, summary, lookup, history, blame."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar

import click

from feed_assets.cli.options import ListType, MomentType, kind_argument, open_registry_for, output_option, packed
from feed_assets.cli.render import print_json, print_table
from feed_assets.definitions.verification import verify_store
from feed_assets.entities.common import Kind
from feed_assets.issues import Severity
from feed_assets.operations.entities.history import blame as blame_fields
from feed_assets.operations.entities.history import entity_history
from feed_assets.operations.entities.listing import PAGE, FilterField, ListField, ListQuery
from feed_assets.operations.entities.lookup import FeedLookup
from feed_assets.operations.entities.neighbours import find_neighbours
from feed_assets.operations.entities.reading import (
    SUMMARY_INSTANCES,
    Form,
    find_page,
    find_status,
    show_definition,
    summarize,
)
from feed_assets.operations.entities.registry import get_declared
from feed_assets.plan.rendering import counted
from feed_assets.timing.dates import render_datetime

FAILED = 1

_Command = TypeVar("_Command", bound=Callable[..., Any])
_Known = TypeVar("_Known", bound=StrEnum)


@click.command()
@kind_argument
@click.argument("name")
@output_option
def status(kind: Kind, name: str, output: str) -> None:
    """How an entity stands: SUBMITTED, RUNNING, SUSPENDED or COMPLETED, overall and on each cluster."""
    found = find_status(open_registry_for(dry_run=True), kind, name)
    if output == "json":
        print_json({"version": 1, **found.to_json()})
        return
    click.echo(found.state.value)
    print_table(("cluster", "status"), found.clusters.items())


@click.command()
@kind_argument
@click.argument("name")
@click.option("--version", type=int, help="As it was in this version; see history.")
@click.option(
    "--format",
    "form",
    type=click.Choice([form.value for form in Form]),
    default=Form.WRITTEN.value,
    show_default=True,
    help="As it was written, or written anew.",
)
def definition(kind: Kind, name: str, version: int | None, form: str) -> None:
    """Print the definition of an entity."""
    registry = open_registry_for(dry_run=True)
    click.echo(show_definition(registry, kind, name, version=version, form=Form(form)).rstrip("\n"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """The options that `list` and `summary` share, as they were given."""

    nameseq: str
    tagkeys: tuple[str, ...]
    tags: tuple[str, ...]
    filter_by: tuple[str, ...]
    order_by: str
    sort_order: str
    offset: int
    num_results: int

    def query(self, kinds: tuple[str, ...], fields: tuple[str, ...] = ()) -> ListQuery:
        """The query that they make.

        Raises:
            click.BadParameter: an option has a value that is none.
        """
        by: dict[FilterField, tuple[str, ...]] = {}
        for text in self.filter_by:
            name, found, value = text.partition(":")
            if not found or name.upper() not in list(FilterField):
                names = ", ".join(each.value for each in FilterField)
                raise click.BadParameter(
                    f"{text!r} is not FIELD:value with FIELD one of {names}", param_hint="--filter-by"
                )
            by[FilterField(name.upper())] = (*by.get(FilterField(name.upper()), ()), value)
        for text in self.tags:
            if "=" not in text:
                raise click.BadParameter(f"{text!r} is not name=value", param_hint="--tags")
        pairs = [text.partition("=") for text in self.tags]
        return ListQuery(
            kinds=frozenset(_one_of(kind, Kind, "--kind") for kind in kinds) or frozenset(Kind),
            fields=frozenset(_one_of(field, ListField, "--fields") for field in fields),
            name_sequence=self.nameseq,
            tag_keys=self.tagkeys,
            tags=tuple((name, value) for name, _, value in pairs),
            filters=by,
            descending=self.sort_order == "desc",
            offset=self.offset,
            results=self.num_results,
        )


def _one_of(text: str, known: type[_Known], hint: str) -> _Known:
    for each in known:
        if each.value.lower() == text.lower():
            return each
    raise click.BadParameter(f"{text!r} is not one of {', '.join(known)}", param_hint=hint)


def _list_options(command: _Command) -> _Command:
    """What `list` and `summary` share; given as `asked`."""
    order = click.Choice(["name"], case_sensitive=False)
    direction = click.Choice(["asc", "desc"])
    fields = "FIELD:value with FIELD TYPE, NAME, STATUS, PIPELINES or CLUSTER."
    for option in (
        packed("asked", _Asked),
        click.option("--num-results", type=int, default=PAGE, show_default=True, help="How many to show."),
        click.option("--offset", type=int, default=0, show_default=True, help="How many to leave out."),
        click.option("--sort-order", type=direction, default="asc", show_default=True, help="The order of names."),
        click.option("--order-by", type=order, default="name", show_default=True, help="The key."),
        click.option("--filter-by", type=ListType(), default=(), help=fields),
        click.option("--tags", type=ListType(), default=(), help="Each name=value is a tag."),
        click.option("--tagkeys", type=ListType(), default=(), help="Each occurs somewhere in the tags."),
        click.option("--nameseq", default="", help="Names that have these letters in this order."),
    ):
        command = option(command)
    return command


@click.command("list")
@click.option("--kind", "kinds", type=ListType(), default=(), help="Only these kinds, with commas between them.")
@click.option("--fields", type=ListType(), default=(), help="Show these, too: STATUS, TAGS, PIPELINES, CLUSTERS.")
@_list_options
@output_option
def list_(kinds: tuple[str, ...], fields: tuple[str, ...], asked: _Asked, output: str) -> None:
    """List entities by name; all conditions must hold, of several filters by one field one is enough."""
    query = asked.query(kinds, fields)
    page = find_page(open_registry_for(dry_run=True), query)
    if output == "json":
        print_json(page.to_json())
        return
    shown = [field for field in ListField if field in query.shown]
    rows = [
        (each.kind, each.name, *(_cell(getattr(each, field.value.lower())) for field in shown))
        for each in page.entities
    ]
    print_table(("kind", "name", *(field.value.lower() for field in shown)), rows)
    click.echo(f"{len(page.entities)} of {page.total} entities", err=True)


def _cell(value: object) -> str:
    return ",".join(value) if isinstance(value, tuple) else str(value)


@click.command()
@kind_argument
@click.argument("name")
@output_option
def dependency(kind: Kind, name: str, output: str) -> None:
    """The entities that depend on an entity, and those that it depends on; feeds as Input or Output of processes."""
    loaded = open_registry_for(dry_run=True).load()
    found = find_neighbours(loaded.bundle.bundle, get_declared(loaded, kind, name))
    if output == "json":
        print_json({"version": 1, "dependencies": [each.to_json() for each in found]})
        return
    print_table(("kind", "name", "tags"), [(each.kind, each.name, ",".join(each.tags)) for each in found])


@click.command()
@kind_argument
@click.option("--cluster", required=True, help="On this cluster.")
@click.option("--start", type=MomentType(), help="Instances from this time on; by default 2 days before --end.")
@click.option("--end", type=MomentType(), help="Instances up to this time; by default now.")
@click.option(
    "--num-instances", type=click.IntRange(min=1), default=SUMMARY_INSTANCES, show_default=True, help="How many each."
)
@_list_options
@output_option
def summary(
    kind: Kind,
    cluster: str,
    start: datetime | None,
    end: datetime | None,
    num_instances: int,
    asked: _Asked,
    output: str,
) -> None:
    """Feeds or processes on a cluster with their newest instances."""
    query = asked.query((kind.value,))
    registry = open_registry_for(dry_run=True)
    found = summarize(registry, kind, cluster, query, start=start, end=end, instances=num_instances)
    if output == "json":
        print_json(found.to_json())
        return
    rows = [
        (entity.name, entity.status, render_datetime(each.nominal_time), each.status)
        for entity in found.entities
        for each in entity.instances
    ]
    print_table(("name", "status", "instance", "instance status"), rows)
    click.echo(f"{len(found.entities)} of {found.total} entities", err=True)


@click.command()
@click.argument("path")
@output_option
def lookup(path: str, output: str) -> None:
    """The feeds that PATH, the whole path of one instance, belongs to."""
    loaded = open_registry_for(dry_run=True).load()
    found = FeedLookup(loaded.bundle.bundle).find(path)
    if output == "json":
        print_json({"version": 1, "feeds": [each.to_json() for each in found]})
        return
    rows = [
        (each.feed, each.cluster, each.type.value, render_datetime(each.nominal_time) if each.nominal_time else "")
        for each in found
    ]
    print_table(("feed", "cluster", "type", "instance"), rows)
    if not found:
        click.echo("No feed has this path.", err=True)


@click.command()
@kind_argument
@click.argument("name")
@output_option
def history(kind: Kind, name: str, output: str) -> None:
    """All versions of an entity: when, by whom, by which command, and how many fields were changed."""
    registry = open_registry_for()
    registry.record()
    found = entity_history(registry.database, kind, name)
    if output == "json":
        print_json({"version": 1, "history": [each.to_json() for each in found]})
        return
    rows = [
        (
            each.version.version,
            each.version.action.value,
            f"{each.version.recorded_at:%Y-%m-%dT%H:%M:%SZ}",
            each.version.author,
            each.version.origin,
            counted(len(each.changes), "field"),
        )
        for each in found
    ]
    print_table(("version", "action", "at", "author", "by", "changed"), rows)


@click.command()
@kind_argument
@click.argument("name")
@click.argument("field", required=False)
@output_option
def blame(kind: Kind, name: str, field: str | None, output: str) -> None:
    """Which version made each field of an entity what it is; of FIELD and what is below it only, if given."""
    registry = open_registry_for()
    registry.record()
    found = blame_fields(registry.database, kind, name, field)
    if output == "json":
        print_json({"version": 1, "fields": [each.to_json() for each in found]})
        return
    rows = [
        (
            each.field,
            json.dumps(each.value, ensure_ascii=False),
            each.version,
            each.author,
            f"{each.recorded_at:%Y-%m-%dT%H:%M:%SZ}",
        )
        for each in found
    ]
    print_table(("field", "value", "version", "author", "at"), rows)


@click.command("verify-store")
@output_option
@click.pass_context
def verify(ctx: click.Context, output: str) -> None:
    """Prove that files, journal and history agree. Exits with 1 if they do not."""
    registry = open_registry_for()
    store = registry.store
    issues = verify_store(registry.database, store.folder, store.values, registry.now)
    errors = [issue for issue in issues if issue.severity is Severity.ERROR]
    if output == "json":
        print_json({"version": 1, "errors": len(errors), "issues": [issue.to_json() for issue in issues]})
    else:
        for issue in issues:
            prefix = "warning: " if issue.severity is Severity.WARNING else ""
            click.echo(f"{prefix}{issue.render()}")
    click.echo(f"{len(errors)} errors, {len(issues) - len(errors)} warnings", err=True)
    if errors:
        ctx.exit(FAILED)


COMMANDS = (status, definition, list_, dependency, summary, lookup, history, blame, verify)
