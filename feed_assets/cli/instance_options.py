"""Options and arguments that the commands on instances share, and their context."""

from collections.abc import Callable, Collection, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from feed_assets.cli.exit_codes import FAILED
from feed_assets.cli.options import MomentType, clusters_option, name_argument, subject_arguments
from feed_assets.cli.progress import status_line
from feed_assets.cli.proposals import find_times
from feed_assets.cli.render import print_json, say
from feed_assets.context.consolidation import PAGE, Consolidated, Lifecycle, Result
from feed_assets.entities.common import Kind
from feed_assets.instances.lists.query_fields import FilterField, OrderField
from feed_assets.settings import load_settings

if TYPE_CHECKING:
    from feed_assets.context.operation import OperationContext
    from feed_assets.instances.lists.ranges import InstanceQuery

MORE = "--num-results and --offset show more"
SCHEDULABLE = (Kind.FEED, Kind.PROCESS)

_Command = TypeVar("_Command", bound=Callable[..., Any])


def open_context_for() -> "OperationContext":
    """Open the context of a command: settings, state and definitions."""
    from feed_assets.cli.state import open_state
    from feed_assets.context.operation import open_context

    settings = load_settings()
    database = open_state(settings)
    with status_line.waiting_for(f"the definitions in {settings.entities_location}"):
        return open_context(settings, database)


def say_silence(context: "OperationContext", clusters: Collection[str]) -> None:
    """Say on stderr that no ticks come, which would carry on what was done."""
    from feed_assets.explain.tick_failures import find_silence

    if (silence := find_silence(context, clusters)) is not None:
        say(silence, err=True)


def range_options(command: _Command) -> _Command:
    """Add `--start` and `--end`."""
    end = click.option("--end", type=MomentType(), help="Before this nominal time; by default now.")
    start = click.option(
        "--start",
        type=MomentType(),
        help="From this nominal time on; by default one page of instances before the end.",
    )
    return start(end(command))


def page_options(command: _Command) -> _Command:
    """Add `--offset` and `--num-results`."""
    size, start = click.IntRange(min=1), click.IntRange(min=0)
    results = click.option(
        "--num-results", type=size, default=PAGE, show_default=True, help="How many instances a page has."
    )
    offset = click.option("--offset", type=start, default=0, show_default=True, help="How many to skip.")
    return offset(results(command))


def filter_option(command: _Command) -> _Command:
    """Add `--filter-by FIELD:value`."""
    fields = ", ".join(FilterField)
    return click.option(
        "--filter-by", "filters", multiple=True, help=f"FIELD:value with FIELD one of {fields}; may be repeated."
    )(command)


def order_options(command: _Command) -> _Command:
    """Add `--order-by` and `--sort-order`."""
    direction = click.option(
        "--sort-order", type=click.Choice(["asc", "desc"]), help="The direction of --order-by; by default ascending."
    )
    order = click.option(
        "--order-by",
        type=click.Choice([field.value for field in OrderField], case_sensitive=False),
        help="By default the newest first, or the oldest first with --start.",
    )
    return order(direction(command))


def lifecycle_option(command: _Command) -> _Command:
    """Add `--lifecycle replication`."""
    return click.option(
        "--lifecycle",
        "lifecycles",
        type=click.Choice([lifecycle.value for lifecycle in Lifecycle], case_sensitive=False),
        multiple=True,
        help="For a feed replication (the default if it is copied) or eviction; may be repeated.",
    )(command)


def query_of(
    context: "OperationContext",
    *,
    filters: Iterable[str] = (),
    order_by: str | None = None,
    sort_order: str | None = None,
    num_results: int = PAGE,
    start: datetime | None = None,
    end: datetime | None = None,
    offset: int = 0,
    all_attempts: bool = False,
    **named: Any,
) -> "InstanceQuery":
    """Build the query from the options; those that are `named` tell the subject."""
    from feed_assets.context.subjects import resolve_subject
    from feed_assets.instances.lists.ranges import InstanceQuery, parse_filter

    subject = resolve_subject(context, **named)
    return InstanceQuery(
        subject=subject,
        start=start,
        end=end,
        filter=parse_filter(subject.kind, filters, is_of_data=False),
        order=OrderField(order_by) if order_by else None,
        descending=None if sort_order is None else sort_order == "desc",
        offset=offset,
        results=num_results,
        all_attempts=all_attempts,
    )


def subject_options(command: _Command) -> _Command:
    """Add the options of verbs that list instances of one feed or process: its kind and name, clusters, and
    conditions.
    """
    for option in (
        order_options,
        filter_option,
        lifecycle_option,
        clusters_option,
        subject_arguments(*SCHEDULABLE),
    ):
        command = option(command)
    return command


def instance_options(command: _Command) -> _Command:
    """Add the options of verbs on one instance; see `resolve_subject`."""
    instance = name_argument("instance", find_times)
    return subject_arguments(*SCHEDULABLE)(instance(clusters_option(lifecycle_option(command))))


def print_consolidated(found: Consolidated[Any], name: str, **more: object) -> None:
    """Print the answers of all clusters as JSON, with the items under `name`."""
    print_json(result=found.result.value, message=found.message, **{name: found.items}, **more)


def end_with(ctx: click.Context, result: Result, message: str) -> None:
    """Print the failures, and let the command fail if there are any."""
    if message:
        say(message, err=True)
    if result is not Result.SUCCEEDED:
        say(f"feed-assets: {result.value}", err=True)
        ctx.exit(FAILED)
