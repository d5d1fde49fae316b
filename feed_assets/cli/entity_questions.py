"""The reading verbs of `entity`: status, definition, list, dependency, summary, lookup, history, blame, governing."""

from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar

import click

from feed_assets.cli.exit_codes import FAILED
from feed_assets.cli.groups import Verbs
from feed_assets.cli.options import (
    KindType,
    ListType,
    MomentType,
    cluster_option,
    name_argument,
    open_entity_context_for,
    output_option,
    split_kind,
    subject_arguments,
    text_output_option,
)
from feed_assets.cli.proposals import ProposedType, find_names, names_of
from feed_assets.cli.render import Output, print_json, print_records, print_table, say, say_shown, say_state
from feed_assets.definitions.lists.query_fields import PAGE, SUMMARY_INSTANCES, FilterField, Form, ListField
from feed_assets.entities.common import Kind
from feed_assets.issues import Severity
from feed_assets.operation_list import describe_group
from feed_assets.timing.dates import render_datetime

if TYPE_CHECKING:
    from feed_assets.definitions.verbs.context import EntityContext

_MORE = "--num-results and --offset show more"

entity = Verbs("entity", help=describe_group("entity"))
_Command = TypeVar("_Command", bound=Callable[..., Any])
_Known = TypeVar("_Known", bound=StrEnum)


@entity.command()
@subject_arguments()
@output_option
def status(kind: Kind | None, name: str, output: str) -> None:
    """Show the status of an entity: SUBMITTED, RUNNING, SUSPENDED or COMPLETED, overall and on each cluster."""
    from feed_assets.definitions.lists.reading import find_status

    context = open_entity_context_for(dry_run=True)
    found = find_status(context, kind, name)
    if output == "json":
        print_json(found)
        return
    if output == Output.TABLE:
        say_state(found.state.value)
    print_table(("cluster", "status"), found.clusters.items(), output)


@entity.command()
@subject_arguments()
@click.option("--version", type=int, help="This version; see history.")
@click.option(
    "--format",
    "form",
    type=click.Choice([form.value for form in Form]),
    default=Form.WRITTEN.value,
    show_default=True,
    help="As it was written, or converted.",
)
def definition(kind: Kind | None, name: str, version: int | None, form: str) -> None:
    """Print the definition of an entity."""
    from feed_assets.definitions.lists.reading import show_definition

    context = open_entity_context_for(dry_run=True)
    say(show_definition(context, kind, name, version=version, form=Form(form)).rstrip("\n"))


def _parse_filters(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> dict[FilterField, tuple[str, ...]]:
    by: dict[FilterField, tuple[str, ...]] = {}
    for text in texts:
        name, found, value = text.partition(":")
        if not found or name.upper() not in list(FilterField):
            names = ", ".join(each.value for each in FilterField)
            raise click.BadParameter(f"{text!r} is not FIELD:value with FIELD one of {names}")
        by[FilterField(name.upper())] = (*by.get(FilterField(name.upper()), ()), value)
    return by


def _parse_tags(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    for text in texts:
        if "=" not in text:
            raise click.BadParameter(f"{text!r} is not name=value")
    return tuple(tuple(text.split("=", 1)) for text in texts)


def _one_of(text: str, known: type[_Known], hint: str) -> _Known:
    for each in known:
        if each.value.lower() == text.lower():
            return each
    raise click.BadParameter(f"{text!r} is not one of {', '.join(known)}", param_hint=hint)


def _list_options(command: _Command) -> _Command:
    """Add the options that `list` and `summary` share, the fields of a `ListQuery`."""
    order = click.Choice(["name"], case_sensitive=False)
    direction = click.Choice(["asc", "desc"])
    fields = "FIELD:value with FIELD TYPE, NAME, STATUS, PIPELINES or CLUSTER."
    for option in (
        click.option(
            "--num-results",
            "results",
            type=click.IntRange(min=1),
            default=PAGE,
            show_default=True,
            help="How many to show.",
        ),
        click.option("--offset", type=int, default=0, show_default=True, help="How many to skip."),
        click.option(
            "--sort-order",
            "descending",
            type=direction,
            callback=lambda _, __, value: value == "desc",
            default="asc",
            show_default=True,
            help="The order of names.",
        ),
        click.option(
            "--order-by", type=order, default="name", show_default=True, help="The sort key.", expose_value=False
        ),
        click.option("--filter-by", "filters", type=ListType(), default=(), callback=_parse_filters, help=fields),
        click.option("--tags", type=ListType(), default=(), callback=_parse_tags, help="Each name=value is a tag."),
        click.option("--tagkeys", "tag_keys", type=ListType(), default=(), help="Each occurs somewhere in the tags."),
        click.option("--nameseq", "name_sequence", default="", help="Names with these letters in this order."),
    ):
        command = option(command)
    return command


@entity.command(
    "list",
    epilog="Example: feed-assets entity list --kind feed,process --filter-by STATUS:SUSPENDED --fields TAGS",
)
@click.option("--kind", "kinds", type=ListType(), default=(), help="Only these kinds, separated by commas.")
@click.option(
    "--fields", type=ListType(), default=(), help="Also show these fields: STATUS, TAGS, PIPELINES, CLUSTERS."
)
@_list_options
@output_option
def list_(kinds: tuple[str, ...], fields: tuple[str, ...], output: str, **options: Any) -> None:
    """List entities by name. All conditions must hold; several filters by one field are alternatives."""
    from feed_assets.definitions.lists.listing import ListQuery
    from feed_assets.definitions.lists.reading import find_page

    query = ListQuery(
        kinds=frozenset(_one_of(kind, Kind, "--kind") for kind in kinds) or frozenset(Kind),
        fields=frozenset(_one_of(field, ListField, "--fields") for field in fields),
        **options,
    )
    page = find_page(open_entity_context_for(dry_run=True), query)
    if output == "json":
        print_json(page)
        return
    shown = [field for field in ListField if field in query.shown]
    columns = [f"{field.lower()}:{'' if field is ListField.STATUS else 'commas'}" for field in shown]
    print_records(", ".join(["kind", "name", *columns]), page.entities, output)
    say_shown(len(page.entities), page.total, "entities", _MORE)


@entity.command()
@subject_arguments()
@output_option
def dependency(kind: Kind | None, name: str, output: str) -> None:
    """Show the entities that an entity depends on, and its dependents; feeds as Input or Output of processes."""
    from feed_assets.definitions.lists.reading import find_neighbours
    from feed_assets.definitions.verbs.context import get_declared

    context = open_entity_context_for(dry_run=True)
    loaded = context.load()
    found = find_neighbours(loaded.bundle.bundle, get_declared(loaded, kind, name))
    if output == "json":
        print_json(dependencies=found)
        return
    print_records("kind, name, tags:commas", found, output)


@entity.command()
@click.argument("kind", type=KindType())
@cluster_option("The cluster; not needed if there is only one.")
@click.option("--start", type=MomentType(), help="From this nominal time on; by default 2 days before --end.")
@click.option("--end", type=MomentType(), help="Before this nominal time; by default up to now.")
@click.option(
    "--num-instances",
    type=click.IntRange(min=1),
    default=SUMMARY_INSTANCES,
    show_default=True,
    help="How many instances for each entity.",
)
@_list_options
@output_option
def summary(
    kind: Kind,
    cluster: str | None,
    start: datetime | None,
    end: datetime | None,
    num_instances: int,
    output: str,
    **options: Any,
) -> None:
    """Show the feeds or processes on a cluster with their newest instances."""
    from feed_assets.definitions.lists.listing import ListQuery
    from feed_assets.definitions.lists.reading import summarize

    query = ListQuery(kinds=frozenset({kind}), **options)
    context = open_entity_context_for(dry_run=True)
    found = summarize(
        context, kind, _cluster_of(context, cluster), query, start=start, end=end, instances=num_instances
    )
    if output == "json":
        print_json(found)
        return
    rows = [
        (entity.name, entity.status, render_datetime(each.nominal_time), each.status)
        for entity in found.entities
        for each in entity.instances
    ]
    print_table(("name", "status", "instance", "instance status"), rows, output)
    say_shown(len(found.entities), found.total, "entities", _MORE)


@entity.command(epilog="Example: feed-assets entity lookup /weather/2013/11/03/05")
@click.argument("path")
@output_option
def lookup(path: str, output: str) -> None:
    """Show the feeds of PATH, the complete path of an instance."""
    from feed_assets.definitions.lists.lookup import FeedLookup

    loaded = open_entity_context_for(dry_run=True).load()
    found = FeedLookup(loaded.bundle.bundle).find(path)
    if output == "json":
        print_json(feeds=found)
        return
    print_records("feed, cluster, type, instance=nominal_time", found, output)
    if not found:
        say("No feed has this path.", err=True)


@entity.command()
@subject_arguments()
@output_option
def history(kind: Kind | None, name: str, output: str) -> None:
    """Show all versions of an entity: time, author, command and number of changed fields."""
    from feed_assets.definitions.lists.history import entity_history
    from feed_assets.definitions.verbs.context import find_kind

    context = open_entity_context_for()
    context.record()
    found = entity_history(context.database, find_kind(context.load(), kind, name), name)
    if output == "json":
        print_json(history=found)
        return
    print_records("version, action, at=recorded_at, author, by=origin, changed", found, output)


def _split_field(ctx: click.Context, _: click.Parameter, words: tuple[str, ...]) -> str | None:
    ctx.params["kind"], (ctx.params["name"], *fields) = split_kind(words)
    if len(fields) > 1:
        raise click.UsageError("Give one KIND, one NAME and one FIELD.", ctx)
    return fields[0] if fields else None


@entity.command(epilog="Example: feed-assets entity blame flights clusters.primary")
@click.argument(
    "field",
    nargs=-1,
    required=True,
    metavar="[KIND] NAME [FIELD]",
    type=ProposedType(find_names),
    callback=_split_field,
)
@output_option
def blame(kind: Kind | None, name: str, field: str | None, output: str) -> None:
    """Show which version set each field of an entity, or FIELD and the fields below it."""
    from feed_assets.definitions.lists.history import blame as blame_fields
    from feed_assets.definitions.verbs.context import find_kind

    context = open_entity_context_for()
    context.record()
    found = blame_fields(context.database, find_kind(context.load(), kind, name), name, field)
    if output == "json":
        print_json(fields=found)
        return
    print_records("field, value=text, version, author, at=recorded_at", found, output)


@entity.command()
@name_argument("process", names_of(Kind.PROCESS))
@click.argument("instance", type=MomentType())
@cluster_option("The cluster of the instance; not needed if the process is on one only.")
@output_option
def governing(process: str, instance: datetime, cluster: str | None, output: str) -> None:
    """Show the definitions that govern INSTANCE of PROCESS: the release and its versions."""
    from feed_assets.definitions.lists.history import governing_version

    context = open_entity_context_for(dry_run=True)
    cluster = _cluster_of(context, cluster, process)
    found = governing_version(context.database, process, cluster, instance)
    if output == "json":
        print_json(governing=found)
        return
    if found is None:
        say(f"No release of {process!r} on {cluster!r} is in effect at {render_datetime(instance)}.", err=True)
        return
    if output == Output.TABLE:
        say(f"release {found.row.release} from {render_datetime(found.row.effective_from)} on: {found.row.reason}")
    print_records("kind, name, version, author, at=recorded_at", found.versions, output)


@entity.command("verify-store")
@text_output_option
@click.pass_context
def verify(ctx: click.Context, output: str) -> None:
    """Verify that files, journal and history agree. Exits with 1 if they do not."""
    from feed_assets.definitions.verification import verify_store

    context = open_entity_context_for()
    store = context.store
    issues = verify_store(context.database, store.folder, store.values, context.now)
    errors = [issue for issue in issues if issue.severity is Severity.ERROR]
    if output == "json":
        print_json(errors=len(errors), issues=issues)
    else:
        for issue in issues:
            say(issue.line)
    say(f"{len(errors)} errors, {len(issues) - len(errors)} warnings", err=True)
    if errors:
        ctx.exit(FAILED)


def _cluster_of(context: "EntityContext", cluster: str | None, process: str = "") -> str:
    """Return the given cluster, else the only one that is declared, or on which a process is."""
    if cluster is not None:
        return cluster
    bundle = context.load().bundle.bundle
    declared = bundle.find_process(process)
    names = tuple(declared.clusters) if declared is not None else bundle.names(Kind.CLUSTER)
    if len(names) != 1:
        raise click.UsageError(f"Name one of the clusters {', '.join(names)} with --cluster.")
    return next(iter(names))
