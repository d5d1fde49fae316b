"""`retention`: plan, show, approve, run and undo sweeps, and purge their trash."""

from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from feed_assets.cli.exit_codes import FAILED
from feed_assets.cli.groups import Verbs
from feed_assets.cli.instance_options import open_context_for
from feed_assets.cli.options import (
    MomentType,
    author_of,
    author_option,
    clusters_option,
    dry_run_option,
    feeds_option,
    listed_change_options,
    name_argument,
    output_option,
    text_output_option,
)
from feed_assets.cli.progress import status_line
from feed_assets.cli.proposals import find_sweeps
from feed_assets.cli.render import Output, print_json, print_list_json, print_records, say, say_shown, say_unsettled
from feed_assets.cli.retention_tables import print_items, print_plan, print_sweep, print_sweeps
from feed_assets.log.removals.records import ItemOutcome, SweepState

if TYPE_CHECKING:
    from feed_assets.context.operation import OperationContext
    from feed_assets.retention.planning import RetentionPlan
    from feed_assets.retention.running import SweepRuns
    from feed_assets.retention.sweeps.sweep_context import SweepContext

NEWEST = 20
ITEMS = 50


@click.group(cls=Verbs)
def retention() -> None:
    """Plan and run the removal of expired instances, and restore them from the trash.

    PLAN is the id of a sweep, or a prefix of it. A plan removes nothing.
    """


@retention.command()
@feeds_option("Only this feed, scheduled or not; may be repeated.")
@clusters_option
@click.option("--at", type=MomentType(), help="As of this time, 2015-02-28T06:30Z; by default now.")
@listed_change_options
def plan(
    feeds: tuple[str, ...],
    clusters: tuple[str, ...],
    at: datetime | None,
    author: str | None,
    dry_run: bool,
    output: str,
) -> None:
    """Plan what would be removed, feed by feed, and store it as sweeps for `run`.

    Removes nothing. Shows why eligible instances stay. A feed of which too much would be removed gets a sweep of its
    own that asks: inspect it, then `approve` or `cancel` it. The plan supersedes an older plan of the same feeds.
    """
    from feed_assets.retention.planning import plan_retention

    context, _ = _open(author)
    planned = plan_retention(
        context,
        author=author_of(author),
        feeds=feeds,
        clusters=clusters,
        as_of=at,
        dry_run=dry_run,
        progress=status_line.show,
    )
    if output == "json":
        print_json(planned)
    else:
        print_plan(planned, output)
    for sweep in planned.superseded:
        say(f"it supersedes {sweep.sweep_id}", err=True)
    say(planned.render_summary(), err=True)


@retention.command(epilog="Example: feed-assets retention run 20131128")
@name_argument("plan", find_sweeps, required=False)
@feeds_option("Continue, or plan and run, the sweeps of this feed unless they ask; may be repeated.")
@clusters_option
@listed_change_options
@click.pass_context
def run(
    ctx: click.Context,
    plan: str | None,
    feeds: tuple[str, ...],
    clusters: tuple[str, ...],
    author: str | None,
    dry_run: bool,
    output: str,
) -> None:
    """Move the planned paths of a sweep to the trash, or continue an interrupted sweep.

    Without PLAN and --feed, runs all waiting and interrupted sweeps. Protections are checked again immediately before
    an instance is moved; instances that have changed since the plan stay. The exit code is 1 if storage refused
    something, a sweep cannot run now, or other workers hold a part of one.
    """
    from feed_assets.retention.planning import plan_retention
    from feed_assets.retention.reading import find_sweep
    from feed_assets.retention.running import find_runnable, run_sweeps

    if plan is not None and (feeds or clusters):
        raise click.UsageError("PLAN cannot be combined with --feed or --clusters.")
    context, sweep_context = _open(author)
    if plan is not None:
        sweeps = [find_sweep(context, plan)]
    elif feeds:
        broken_off = [sweep for sweep in find_runnable(context, clusters, feeds) if sweep.state is SweepState.RUNNING]
        planned = plan_retention(context, author=author_of(author), feeds=feeds, clusters=clusters, dry_run=dry_run)
        sweeps = broken_off + [sweep for sweep in planned.sweeps if sweep.state is SweepState.PLANNED]
        _tell_who_waits(planned)
    else:
        sweeps = find_runnable(context, clusters)
    ran = run_sweeps(
        context,
        sweep_context,
        sweeps,
        author=author_of(author),
        dry_run=dry_run,
        progress=lambda sweep, settled, total: status_line.show(sweep.sweep_id, settled, total),
    )
    if output == "json":
        print_json(ran)
    else:
        print_sweeps(ran.sweeps, output)
    _end_run(ctx, ran)


def _tell_who_waits(planned: "RetentionPlan") -> None:
    for feed in planned.feeds:
        if feed.plan.left_out:
            say(
                f"feed '{feed.plan.record.feed}' on {feed.plan.record.cluster} is left out: {feed.plan.left_out}",
                err=True,
            )
        elif grace := feed.render_grace():
            say(f"feed '{feed.plan.record.feed}' on {feed.plan.record.cluster}: {grace}", err=True)
    for sweep in planned.sweeps:
        if sweep.state is SweepState.ASKING:
            say(f"{sweep.sweep_id} asks: {' '.join(each.sentence for each in sweep.obstacles)}", err=True)


def _end_run(ctx: click.Context, ran: "SweepRuns") -> None:
    if not ran.sweeps and not ran.refused:
        say("no sweep waits to run", err=True)
    for refused in ran.refused:
        say(f"feed-assets: {refused}", err=True)
    for sweep in ran.sweeps:
        if sweep.state is SweepState.RUNNING and not ran.dry_run:
            say(f"other workers hold a part of {sweep.sweep_id}; repeat the command when they have finished", err=True)
    if not ran.is_complete:
        ctx.exit(FAILED)


@retention.command()
@name_argument("plan", find_sweeps)
@listed_change_options
def approve(plan: str, author: str | None, dry_run: bool, output: str) -> None:
    """Approve a sweep that asks, because it would remove much or because the clock seems wrong.

    If the clock is the reason, the approval also confirms that the clock is right.
    """
    from feed_assets.retention.reading import find_sweep
    from feed_assets.retention.running import approve_sweep

    context, _ = _open(author)
    _show(approve_sweep(context, find_sweep(context, plan), author=author_of(author), dry_run=dry_run), output)


@retention.command()
@name_argument("plan", find_sweeps)
@listed_change_options
def cancel(plan: str, author: str | None, dry_run: bool, output: str) -> None:
    """Cancel a sweep that has not begun. The retention schedule of its feeds does not change."""
    from feed_assets.retention.reading import find_sweep
    from feed_assets.retention.running import cancel_sweep

    context, _ = _open(author)
    _show(cancel_sweep(context, find_sweep(context, plan), author=author_of(author), dry_run=dry_run), output)


@retention.command()
@name_argument("plan", find_sweeps)
@click.option("--feed", help="Only the paths of this feed.")
@click.option(
    "--outcome",
    "outcomes",
    type=click.Choice([outcome.value for outcome in ItemOutcome]),
    multiple=True,
    help="Only paths with this outcome; may be repeated.",
)
@click.option("--limit", type=click.IntRange(min=0), default=ITEMS, show_default=True, help="How many paths.")
@output_option
def show(plan: str, feed: str | None, outcomes: tuple[str, ...], limit: int, output: str) -> None:
    """Show a sweep with its paths: nominal time, size, rule and outcome of each."""
    from feed_assets.retention.reading import find_sweep, show_sweep

    context, _ = _open(None)
    wanted = [ItemOutcome(outcome) for outcome in outcomes]
    shown = show_sweep(context, find_sweep(context, plan), limit=limit, feed=feed, outcomes=wanted)
    if output == "json":
        print_json(shown)
        return
    if output == Output.TABLE:
        print_sweep(shown.sweep)
    print_items(shown.items, output)
    say_shown(len(shown.items), shown.matching, "paths", "--limit shows more")


@retention.command("list")
@clusters_option
@click.option(
    "--state",
    "states",
    type=click.Choice([state.value for state in SweepState], case_sensitive=False),
    multiple=True,
    help="Only sweeps in this state; may be repeated.",
)
@click.option("--limit", type=click.IntRange(min=1), default=NEWEST, show_default=True, help="How many, newest first.")
@output_option
def list_(clusters: tuple[str, ...], states: tuple[str, ...], limit: int, output: str) -> None:
    """List the newest sweeps: their state, and what each would remove or removed."""
    from feed_assets.retention.reading import list_sweeps

    context, _ = _open(None)
    wanted = [SweepState(state.upper()) for state in states]
    sweeps, total = list_sweeps(context, limit=limit, clusters=clusters, states=wanted)
    if output == "json":
        print_list_json("sweeps", sweeps, total)
    else:
        print_sweeps(sweeps, output)
        say_shown(len(sweeps), total, "sweeps", "--limit shows more")


@retention.command(epilog="Example: feed-assets retention undo 20131128 --instance 2013-11-03T05:00Z")
@name_argument("plan", find_sweeps)
@feeds_option("Only instances of this feed; may be repeated.")
@click.option("--instance", "times", multiple=True, help="Only this nominal time; may be repeated.")
@click.option("--no-hold", is_flag=True, help="Do not hold what is restored; the next sweep removes it again.")
@listed_change_options
@click.pass_context
def undo(
    ctx: click.Context,
    plan: str,
    feeds: tuple[str, ...],
    times: tuple[str, ...],
    no_hold: bool,
    author: str | None,
    dry_run: bool,
    output: str,
) -> None:
    """Restore what a sweep removed, byte for byte, with the former states of its instances.

    Newer data are never replaced; they are reported, and the exit code is 1. A hold protects what is restored for as
    long as the trash would have kept it; `hold release` ends it. A repeat continues an interrupted undo. Archived
    instances come back from the archive once the trash is purged. A time is UTC (`2013-11-02T04:00Z`), or a day or a
    partition key in the time zone of the feed.
    """
    from feed_assets.retention.reading import find_sweep
    from feed_assets.retention.undoing import find_times, undo_removals

    context, sweep_context = _open(author)
    sweep = find_sweep(context, plan)
    done = undo_removals(
        context,
        sweep_context,
        sweep,
        author=author_of(author),
        feeds=feeds,
        times=find_times(context, sweep, feeds, times),
        with_hold=not no_hold,
        dry_run=dry_run,
        progress=lambda settled, total: status_line.show(sweep.sweep_id, settled, total),
    )
    if output == "json":
        print_json(done)
    else:
        print_records("path, outcome, reason", done.left, output)
    say(done.render_summary(), err=True)
    say_unsettled(done.unsettled)
    if not done.is_complete:
        ctx.exit(FAILED)


@retention.command()
@name_argument("plans", find_sweeps, nargs=-1)
@clusters_option
@click.option("--now", is_flag=True, help="Also trash that has not expired.")
@author_option
@dry_run_option
@output_option
@click.pass_context
def purge(
    ctx: click.Context,
    plans: tuple[str, ...],
    clusters: tuple[str, ...],
    now: bool,
    author: str | None,
    dry_run: bool,
    output: str,
) -> None:
    """Remove expired trash for good, or only that of PLANS.

    Held instances stay in the trash.
    """
    from feed_assets.retention.reading import find_sweep
    from feed_assets.retention.undoing import empty_trash

    context, sweep_context = _open(author)
    done = empty_trash(
        context,
        sweep_context,
        author=author_of(author),
        clusters=clusters,
        only=[find_sweep(context, plan) for plan in plans],
        at_once=now,
        dry_run=dry_run,
    )
    if output == "json":
        print_json(done)
    else:
        print_records("sweep=sweep.sweep_id, cluster=sweep.cluster, files, obstacle", done.purged, output)
    say(done.render_summary(), err=True)
    if not done.is_complete:
        ctx.exit(FAILED)


@retention.command()
@name_argument("plan", find_sweeps)
@text_output_option
def report(plan: str, output: str) -> None:
    """Show what a sweep evicted, in Falcon's form: the line of paths of its report file, and the line of instances."""
    from feed_assets.retention.reading import find_sweep, report_evictions

    context, _ = _open(None)
    sweep = find_sweep(context, plan)
    reports = report_evictions(context, sweep)
    if output == "json":
        print_json(sweep_id=sweep.sweep_id, feeds=reports)
        return
    for each in reports:
        say(each.paths)
        say(each.times)


def _open(author: str | None) -> "tuple[OperationContext, SweepContext]":
    """Open the context of the settings, and the sweep context."""
    from feed_assets.retention.running import sweep_context_of

    context = open_context_for()
    return context, sweep_context_of(context, author=author_of(author))


def _show(sweep: Any, output: str) -> None:
    if output == "json":
        print_json(sweep=sweep)
    else:
        print_sweeps([sweep], output)
