"""`replication`: how the copies of a feed stand, whether they are what they should be, and making them so again."""

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from feed_assets.cli.instance_options import FAILED, range_options
from feed_assets.cli.options import author_of, change_options, output_option, packed
from feed_assets.cli.progress import Progress
from feed_assets.cli.render import print_json, print_table
from feed_assets.clock import SystemClock, open_clock
from feed_assets.operations.instances.feed_listings import render_size
from feed_assets.operations.instances.ranges import PAGE
from feed_assets.operations.instances.rows import rendered
from feed_assets.operations.replication.scope import CopyQuery, render_lag
from feed_assets.settings import Settings, load_settings
from feed_assets.timing.dates import render_datetime

if TYPE_CHECKING:
    from feed_assets.operations.replication.auditing import Verified
    from feed_assets.operations.replication.repairing import Repaired
    from feed_assets.operations.replication.status import CopyRow, FlowStatus
    from feed_assets.operations.scene import Scene

_Command = TypeVar("_Command", bound=Callable[..., Any])


@click.group()
def replication() -> None:
    """The copies of a FEED from its sources to its targets.

    FEED is the name of a feed; feed@source, the name of its copies from one source, will do, too.
    """


def _copy_of(
    feed: str,
    clusters: tuple[str, ...],
    source: str | None,
    start: datetime | None,
    end: datetime | None,
    num_results: int,
) -> CopyQuery:
    """The query that options make."""
    return CopyQuery(feed=feed, targets=clusters, source=source, start=start, end=end, results=num_results)


def _copy_options(command: _Command) -> _Command:
    """What all commands have: a feed, targets, a source, and a range."""
    for option in (
        click.option(
            "--num-results", type=int, default=PAGE, show_default=True, help="How long the range is without --start."
        ),
        range_options,
        click.option("--source", help="Only what is copied from this cluster."),
        click.option("--cluster", "clusters", multiple=True, help="Only copies to this cluster; may be repeated."),
        click.argument("feed"),
    ):
        command = option(command)
    return command


_deep_option = click.option(
    "--deep", is_flag=True, help="Read every byte of the targets, and not only names and sizes."
)


@replication.command()
@_copy_options
@output_option
@packed("query", _copy_of)
def status(query: CopyQuery, output: str) -> None:
    """How each copy went and stands, from the record: bytes, files, time, and whether the source has changed since.

    A line for each flow first: how many of the range stand how, the newest instance that was copied, and how far that
    is behind the newest of the source.
    """
    from feed_assets.operations.replication.status import find_status

    scene, _ = _open()
    found = find_status(scene, query)
    if output == "json":
        print_json(found.to_json())
        return
    print_table(_FLOWS, map(_flow_cells, found.flows))
    print_table(_COPIES, map(_copy_cells, found.instances))


@replication.command()
@_copy_options
@_deep_option
@output_option
@click.pass_context
@packed("query", _copy_of)
def verify(ctx: click.Context, query: CopyQuery, deep: bool, output: str) -> None:
    """Compare copies with their manifests and their sources; nothing is changed.

    Found is what is missing, rotten, extra at the target, or behind its source. What retention has evicted is not
    missing. The exit code is 1 if something was found, or could not be looked at.
    """
    from feed_assets.operations.replication.auditing import verify as verify_copies

    scene, _ = _open()
    with Progress() as progress:
        found = verify_copies(
            scene,
            query,
            SystemClock(),
            deep=deep,
            progress=lambda settled, total: progress.show("verify", settled, total),
        )
    if output == "json":
        print_json(found.to_json())
    else:
        _print_verified(found)
    click.echo(found.render_summary(), err=True)
    if found.findings:
        ctx.exit(FAILED)


@replication.command()
@_copy_options
@_deep_option
@change_options
@click.pass_context
@packed("query", _copy_of)
def repair(ctx: click.Context, query: CopyQuery, deep: bool, author: str | None, dry_run: bool, output: str) -> None:
    """Copy again what `verify` finds: all of it that is missing, rotten, extra or behind, and no more.

    It is done without Spark, by the rules of every copy: claimed, verified, published at once and told to Dagster.
    What somebody works on, what is suspended, and what the source does not have any more is told and left alone; the
    exit code is 1 then, or if a copy fails. A repeat does what is left.
    """
    from feed_assets.operations.replication.repairing import repair as repair_copies

    scene, settings = _open()
    with Progress() as progress:
        done = repair_copies(
            scene,
            query,
            open_clock(settings),
            SystemClock(),
            author=author_of(author),
            deep=deep,
            dry_run=dry_run,
            progress=lambda settled, total: progress.show("verify", settled, total),
            on_copied=progress.show,
        )
    if output == "json":
        print_json(done.to_json())
    else:
        _print_repaired(done)
    click.echo(done.render_summary(), err=True)
    if not done.is_complete:
        ctx.exit(FAILED)


def _open() -> "tuple[Scene, Settings]":
    """The definitions and the record, opened here and now."""
    from feed_assets.cli.state import open_state
    from feed_assets.operations.scene import open_scene

    settings = load_settings()
    return open_scene(settings, open_state(settings), SystemClock()), settings


_FLOWS = ("source", "target", "in the range", "newest copy", "newest at source", "lag", "bytes", "files", "seconds")
_COPIES = (
    "source",
    "target",
    "instance",
    "status",
    "sync",
    "copied",
    "bytes",
    "files",
    "seconds",
    "a second",
    "resumed",
    "verification",
    "source digest",
    "target digest",
    "attempts",
    "reason",
)


def _flow_cells(flow: "FlowStatus") -> tuple[object, ...]:
    return (
        flow.source,
        flow.target,
        ", ".join(f"{count} {sync.value}" for sync, count in flow.counts.items()),
        flow.newest and render_datetime(flow.newest),
        flow.newest_source and render_datetime(flow.newest_source),
        None if flow.lag is None else render_lag(flow.lag),
        flow.bytes,
        flow.files,
        round(flow.seconds, 3),
    )


def _copy_cells(copy: "CopyRow") -> tuple[object, ...]:
    figures = copy.figures
    done = (
        (
            rendered(figures.copied_at),
            figures.bytes,
            figures.files,
            figures.seconds,
            render_size(figures.bandwidth),
            figures.resumed,
            figures.verification,
        )
        if figures
        else (None,) * 7
    )
    return (
        copy.source,
        copy.target,
        render_datetime(copy.nominal_time),
        copy.status,
        copy.sync.value,
        *done,
        _short(copy.copied_digest),
        _short(copy.target_digest),
        copy.attempts,
        copy.reason,
    )


def _short(digest: str | None) -> str | None:
    """The beginning of a digest."""
    return digest and digest.partition(":")[2][:12]


def _print_verified(found: "Verified") -> None:
    rows = [
        (each.source, each.target, render_datetime(each.nominal_time), each.verdict.value, each.status, each.reason)
        for each in found.copies
    ]
    print_table(("source", "target", "instance", "verdict", "status", "reason"), rows)


def _print_repaired(done: "Repaired") -> None:
    rows = [
        (
            each.copy.source,
            each.copy.target,
            render_datetime(each.copy.nominal_time),
            each.copy.verdict.value,
            each.outcome.value,
            each.bytes,
            each.files,
            each.removed,
            each.seconds,
            "; ".join(filter(None, [each.copy.reason, each.reason])),
        )
        for each in done.copies
    ]
    header = ("source", "target", "instance", "verdict", "outcome", "bytes", "files", "removed", "seconds", "reason")
    print_table(header, rows)
