"""Options and arguments that the commands about instances share, and what they work on."""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from feed_assets.cli.options import ListType, MomentType
from feed_assets.cli.render import print_json
from feed_assets.clock import SystemClock
from feed_assets.entities.common import Kind
from feed_assets.operations.consolidation import Consolidated, Result
from feed_assets.operations.instances.ranges import (
    PAGE,
    FilterField,
    InstanceQuery,
    Lifecycle,
    OrderField,
    parse_filter,
)
from feed_assets.operations.instances.times import resolve_instance
from feed_assets.settings import load_settings

if TYPE_CHECKING:
    from feed_assets.operations.scene import Scene

FAILED = 1
VERSION = 1
SCHEDULABLE = (Kind.FEED.value, Kind.PROCESS.value)

_Command = TypeVar("_Command", bound=Callable[..., Any])


def open_scene_for() -> "Scene":
    """The scene that a command looks at: settings, state and definitions, opened here and now."""
    from feed_assets.cli.state import open_state
    from feed_assets.operations.scene import open_scene

    settings = load_settings()
    return open_scene(settings, open_state(settings), SystemClock())


def kind_argument(command: _Command) -> _Command:
    """`KIND`: feed or process, whatever the case."""
    choice = click.Choice(SCHEDULABLE, case_sensitive=False)
    return click.argument("kind", type=choice, metavar="KIND")(command)


def clusters_option(command: _Command) -> _Command:
    """`--clusters a,b`."""
    return click.option("--clusters", type=ListType(), default=(), help="Only on these, with commas between them.")(
        command
    )


def range_options(command: _Command) -> _Command:
    """`--start` and `--end`."""
    end = click.option("--end", type=MomentType(), help="Before this nominal time; by default now.")
    start = click.option(
        "--start",
        type=MomentType(),
        help="From this nominal time on; by default so many instances before the end as a page has.",
    )
    return start(end(command))


def page_options(command: _Command) -> _Command:
    """`--offset` and `--num-results`."""
    results = click.option(
        "--num-results", type=int, default=PAGE, show_default=True, help="How many instances a page has."
    )
    offset = click.option("--offset", type=int, default=0, show_default=True, help="How many to leave out.")
    return offset(results(command))


def filter_option(command: _Command) -> _Command:
    """`--filter-by FIELD:value`."""
    fields = ", ".join(FilterField)
    return click.option(
        "--filter-by", "filters", multiple=True, help=f"FIELD:value with FIELD one of {fields}; may be repeated."
    )(command)


def order_options(command: _Command) -> _Command:
    """`--order-by` and `--sort-order`."""
    direction = click.option(
        "--sort-order", type=click.Choice(["asc", "desc"]), help="Goes with --order-by; by default ascending."
    )
    order = click.option(
        "--order-by",
        type=click.Choice([field.value for field in OrderField], case_sensitive=False),
        help="By default the newest first, or the oldest first with --start.",
    )
    return order(direction(command))


def lifecycle_option(command: _Command) -> _Command:
    """`--lifecycle replication`."""
    return click.option(
        "--lifecycle",
        "lifecycles",
        type=click.Choice([lifecycle.value for lifecycle in Lifecycle], case_sensitive=False),
        multiple=True,
        help="Of a feed its replication, the default where it is copied, or eviction; may be repeated.",
    )(command)


def lifecycles_of(texts: Iterable[str]) -> frozenset[Lifecycle]:
    """The lifecycles that are asked for."""
    return frozenset(map(Lifecycle, texts))


def query_of(
    kind: str,
    name: str,
    *,
    start: datetime | None = None,
    end: datetime | None = None,
    clusters: tuple[str, ...] = (),
    filters: Iterable[str] = (),
    order_by: str | None = None,
    sort_order: str | None = None,
    offset: int = 0,
    num_results: int = PAGE,
    all_attempts: bool = False,
    lifecycles: tuple[str, ...] = (),
) -> InstanceQuery:
    """The query that options make."""
    of_kind = Kind(kind)
    return InstanceQuery(
        kind=of_kind,
        name=name,
        start=start,
        end=end,
        clusters=frozenset(clusters) or None,
        filter=parse_filter(of_kind, filters, is_of_data=False),
        order=OrderField(order_by) if order_by else None,
        descending=None if sort_order is None else sort_order == "desc",
        offset=offset,
        results=num_results,
        all_attempts=all_attempts,
        lifecycles=lifecycles_of(lifecycles),
    )


def instance_of(scene: "Scene", kind: str, name: str, text: str) -> datetime:
    """The nominal time that an argument means, in the time zone of the entity where it is no UTC time."""
    return resolve_instance(scene, Kind(kind), name, text)


def print_consolidated(found: Consolidated[Any], name: str) -> None:
    """Print what all clusters had to say as JSON, `version` 1, the items below `name`."""
    items = [each.to_json() for each in found.items]
    print_json({"version": VERSION, "status": found.result.value, "message": found.message, name: items})


def end_with(ctx: click.Context, result: Result, message: str) -> None:
    """Say what went wrong, and let the command fail if anything did."""
    if message:
        click.echo(message, err=True)
    if result is not Result.SUCCEEDED:
        click.echo(f"feed-assets: {result.value}", err=True)
        ctx.exit(FAILED)
