"""`replication`: the state of the copies of a feed, their verification, and their repair."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from feed_assets.cli.exit_codes import FAILED
from feed_assets.cli.groups import Verbs
from feed_assets.cli.instance_options import open_context_for, range_options
from feed_assets.cli.options import author_of, listed_change_options, name_argument, output_option
from feed_assets.cli.progress import status_line
from feed_assets.cli.proposals import names_of
from feed_assets.cli.render import Output, print_json, print_records, print_table, say, say_shown
from feed_assets.context.consolidation import PAGE
from feed_assets.entities.common import Kind

if TYPE_CHECKING:
    from feed_assets.replication.auditing import Verified
    from feed_assets.replication.repairing import Repaired

_Command = TypeVar("_Command", bound=Callable[..., Any])


@click.group(cls=Verbs)
def replication() -> None:
    """Inspect, verify and repair the copies of a FEED.

    FEED is the name of a feed, or feed@source, the name of its copies from one source.
    """


_page_option = click.option(
    "--num-results",
    "results",
    type=click.IntRange(min=1),
    default=PAGE,
    show_default=True,
    help="How many copies of each flow are shown.",
)
_newest_option = click.option(
    "--num-results", "results", type=click.IntRange(min=1), help="Only so many of the newest instances; default: all."
)


def _copy_options(command: _Command) -> _Command:
    """Add the options of all commands: a feed, targets, a source, and a range."""
    for option in (
        range_options,
        click.option("--source", help="Only copies from this cluster."),
        click.option("--cluster", "targets", multiple=True, help="Only copies to this cluster; may be repeated."),
        name_argument("feed", names_of(Kind.FEED)),
    ):
        command = option(command)
    return command


_deep_option = click.option("--deep", is_flag=True, help="Read every byte of the targets, not only names and sizes.")


@replication.command()
@_copy_options
@_page_option
@output_option
def status(output: str, results: int, **options: Any) -> None:
    """Show the copies from the record: bytes, files, time, and whether the source has changed since.

    Starts with a line for each flow: the number of all copies by state, the newest copied instance, and how far it is
    behind the newest instance of the source. The newest copies follow, or with --start the oldest.
    """
    from feed_assets.replication.scope import CopyQuery
    from feed_assets.replication.status import find_status

    context = open_context_for()
    found = find_status(
        context,
        CopyQuery(**options),
        page=results,
        progress=lambda settled, total: status_line.show("status", settled, total),
    )
    if output == "json":
        print_json(found)
        return
    if output == Output.TABLE:
        print_records(_FLOWS, found.flows, output, spare=_SPARE)
    print_records(_COPIES, found.instances, output, spare=_SPARE)
    say_shown(len(found.instances), found.total, "copies", "--num-results shows more")


@replication.command(epilog="Example: feed-assets replication verify flights --deep --start 2013-11-01T04:00Z")
@_copy_options
@_newest_option
@_deep_option
@output_option
@click.pass_context
def verify(ctx: click.Context, /, deep: bool, output: str, **options: Any) -> None:
    """Compare copies with their manifests and their sources. Changes nothing.

    Reports copies that are missing, rotten, extra at the target, or behind their source. Evicted instances are not
    missing. The exit code is 1 if something was found, or could not be checked.
    """
    from feed_assets.replication.auditing import verify as verify_copies
    from feed_assets.replication.scope import CopyQuery

    context = open_context_for()
    found = verify_copies(
        context,
        CopyQuery(**options),
        deep=deep,
        progress=lambda settled, total: status_line.show("verify", settled, total),
    )
    if output == "json":
        print_json(found)
    else:
        _print_verified(found, output)
    say(found.render_summary(), err=True)
    if found.findings:
        ctx.exit(FAILED)


@replication.command()
@_copy_options
@_newest_option
@_deep_option
@listed_change_options
@click.pass_context
def repair(ctx: click.Context, /, deep: bool, author: str | None, dry_run: bool, output: str, **options: Any) -> None:
    """Repair what `verify` finds: only what is missing, rotten, extra or behind.

    It copies without Spark, by the rules of every copy: leased, verified, published as a whole and reported to Dagster.
    Instances that others work on, that are suspended, or that the source no longer has are reported and left alone.
    Then, or if a copy fails, the exit code is 1. A repeat does the rest.
    """
    from feed_assets.replication.repairing import repair as repair_copies
    from feed_assets.replication.scope import CopyQuery

    context = open_context_for()
    done = repair_copies(
        context,
        CopyQuery(**options),
        author=author_of(author),
        deep=deep,
        dry_run=dry_run,
        progress=lambda settled, total: status_line.show("verify", settled, total),
        on_copied=status_line.show,
    )
    if output == "json":
        print_json(done)
    else:
        _print_repaired(done, output)
    say(done.render_summary(), err=True)
    if not done.is_complete:
        ctx.exit(FAILED)


_FLOWS = (
    "source, target, copies=counts:counts, newest copy=newest, newest at source=newest_source, lag:lag, "
    "bytes, files, seconds:.12g"
)
_SPARE = (
    "newest at source",
    "bytes",
    "files",
    "removed",
    "seconds",
    "a second",
    "resumed",
    "source digest",
    "target digest",
    "attempts",
)
_COPIES = (
    "source, target, instance=nominal_time, status, sync, copied=figures.copied_at, bytes=figures.bytes, "
    "files=figures.files, seconds=figures.seconds, a second=figures.bandwidth:size, resumed=figures.resumed, "
    "verification=figures.verification, source digest=copied_digest:digest, target digest=target_digest:digest, "
    "attempts, reason"
)


def _print_verified(found: "Verified", output: str) -> None:
    from feed_assets.instances.lists.ranges import join_consecutive, render_range

    sequences = {flow.cluster: flow.sequence for flow in found.scope.flows}
    joined = join_consecutive(
        (
            each.nominal_time,
            sequences.get(each.target),
            (each.source, each.target, each.verdict.value, each.status, each.reason),
        )
        for each in found.copies
    )
    rows = [(source, target, render_range(first, last), *more) for first, last, (source, target, *more) in joined]
    print_table(("source", "target", "instance", "verdict", "status", "reason"), rows, output)


def _print_repaired(done: "Repaired", output: str) -> None:
    columns = "source=copy.source, target=copy.target, instance=copy.nominal_time, verdict=copy.verdict, "
    columns += "outcome, bytes, files, removed, seconds, reason=remark"
    print_records(columns, done.copies, output, spare=_SPARE)
