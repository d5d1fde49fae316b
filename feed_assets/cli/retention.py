"""`retention`: sweeps planned, looked at, approved, run, undone, and their trash emptied."""

from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from feed_assets.cli.instance_options import clusters_option
from feed_assets.cli.options import MomentType, author_of, author_option, change_options, dry_run_option, output_option
from feed_assets.cli.progress import Progress
from feed_assets.cli.render import print_json, print_table
from feed_assets.cli.retention_tables import print_items, print_plan, print_sweep, print_sweeps
from feed_assets.clock import SystemClock, open_clock
from feed_assets.settings import load_settings
from feed_assets.state.sweep_records import ItemOutcome, SweepState

if TYPE_CHECKING:
    from feed_assets.lifecycle.retention.worksite import Worksite
    from feed_assets.operations.retention.planning import RetentionPlan
    from feed_assets.operations.retention.running import Ran
    from feed_assets.operations.scene import Scene

FAILED = 1
NEWEST = 20
ITEMS = 50


@click.group()
def retention() -> None:
    """What has expired: planned, looked at, and then moved to the trash, from which it can be brought back.

    PLAN is the id of a sweep, or the beginning of one. Nothing is removed by a plan.
    """


@retention.command()
@click.option("--feed", "feeds", multiple=True, help="Only this feed, scheduled or not; may be repeated.")
@clusters_option
@click.option("--at", type=MomentType(), help="As of this time, 2015-02-28T06:30Z; by default now.")
@change_options
def plan(
    feeds: tuple[str, ...],
    clusters: tuple[str, ...],
    at: datetime | None,
    author: str | None,
    dry_run: bool,
    output: str,
) -> None:
    """Find out what would go, feed by feed, and store it as sweeps that `run` takes.

    Nothing is removed. What is eligible and stays is shown with the reason. A feed of which too much would go has a
    sweep of its own that asks: look at it, then `approve` or `cancel` it. An older plan of the same feeds is
    superseded.
    """
    from feed_assets.operations.retention.planning import plan_retention

    scene, _ = _open(author)
    planned = plan_retention(scene, author=author_of(author), feeds=feeds, clusters=clusters, as_of=at, dry_run=dry_run)
    if output == "json":
        print_json(planned.to_json())
    else:
        print_plan(planned)
    for sweep in planned.superseded:
        click.echo(f"it takes the place of {sweep.sweep_id}", err=True)
    click.echo(planned.render_summary(), err=True)


@retention.command()
@click.argument("plan", required=False)
@click.option(
    "--feed", "feeds", multiple=True, help="Go on with, or plan and run this feed, if it asks nobody; may be repeated."
)
@clusters_option
@change_options
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
    """Move what a sweep has planned to the trash, or go on with a sweep that broke off.

    Without PLAN and --feed all sweeps are run that wait for it, or broke off. What protects an instance is looked at
    again right before it is moved; what has changed since the plan stays. The exit code is 1 if something was refused
    by storage, a sweep cannot be run now, or a part of one is in other hands.
    """
    from feed_assets.operations.retention.planning import plan_retention
    from feed_assets.operations.retention.reading import find_sweep
    from feed_assets.operations.retention.running import find_runnable, run_sweeps

    if plan is not None and (feeds or clusters):
        raise click.UsageError("PLAN says what is run; --feed and --clusters go without it.")
    scene, site = _open(author)
    if plan is not None:
        sweeps = [find_sweep(scene, plan)]
    elif feeds:
        broken_off = [sweep for sweep in find_runnable(scene, clusters, feeds) if sweep.state is SweepState.RUNNING]
        planned = plan_retention(scene, author=author_of(author), feeds=feeds, clusters=clusters, dry_run=dry_run)
        sweeps = broken_off + [sweep for sweep in planned.sweeps if sweep.state is SweepState.PLANNED]
        _tell_who_waits(planned)
    else:
        sweeps = find_runnable(scene, clusters)
    with Progress() as progress:
        ran = run_sweeps(
            scene,
            site,
            sweeps,
            author=author_of(author),
            dry_run=dry_run,
            progress=lambda sweep, settled, total: progress.show(sweep.sweep_id, settled, total),
        )
    if output == "json":
        print_json(ran.to_json())
    else:
        print_sweeps(ran.sweeps)
    _end_run(ctx, ran)


def _tell_who_waits(planned: "RetentionPlan") -> None:
    for feed in planned.feeds:
        if feed.left_out:
            click.echo(f"feed '{feed.record.feed}' on {feed.record.cluster} is left out: {feed.left_out}", err=True)
    for sweep in planned.sweeps:
        if sweep.state is SweepState.ASKING:
            click.echo(f"{sweep.sweep_id} asks: {' '.join(each.sentence for each in sweep.obstacles)}", err=True)


def _end_run(ctx: click.Context, ran: "Ran") -> None:
    if not ran.sweeps and not ran.refused:
        click.echo("no sweep waits to be run", err=True)
    for refused in ran.refused:
        click.echo(f"feed-assets: {refused}", err=True)
    for sweep in ran.sweeps:
        if sweep.state is SweepState.RUNNING and not ran.is_dry_run:
            click.echo(
                f"others work on a part of {sweep.sweep_id}; give the command again when they have ended", err=True
            )
    if not ran.is_complete:
        ctx.exit(FAILED)


@retention.command()
@click.argument("plan")
@change_options
def approve(plan: str, author: str | None, dry_run: bool, output: str) -> None:
    """Let a sweep run that asks, because it would take much, or because the clock seems wrong.

    By approving a sweep of which the clock is the reason, you say that the clock is right.
    """
    from feed_assets.operations.retention.reading import find_sweep
    from feed_assets.operations.retention.running import approve_sweep

    scene, _ = _open(author)
    _show(approve_sweep(scene, find_sweep(scene, plan), author=author_of(author), dry_run=dry_run), output)


@retention.command()
@click.argument("plan")
@change_options
def cancel(plan: str, author: str | None, dry_run: bool, output: str) -> None:
    """Let a sweep that has not begun never run. The feeds have their next turn as ever."""
    from feed_assets.operations.retention.reading import find_sweep
    from feed_assets.operations.retention.running import cancel_sweep

    scene, _ = _open(author)
    _show(cancel_sweep(scene, find_sweep(scene, plan), author=author_of(author), dry_run=dry_run), output)


@retention.command()
@click.argument("plan")
@click.option("--feed", help="Only the paths of this feed.")
@click.option(
    "--outcome",
    "outcomes",
    type=click.Choice([outcome.value for outcome in ItemOutcome]),
    multiple=True,
    help="Only paths that this became of; may be repeated.",
)
@click.option("--limit", type=click.IntRange(min=0), default=ITEMS, show_default=True, help="How many paths.")
@output_option
def show(plan: str, feed: str | None, outcomes: tuple[str, ...], limit: int, output: str) -> None:
    """Show a sweep with its paths: nominal time, size, the rule that made each eligible, and what became of it."""
    from feed_assets.operations.retention.reading import find_sweep, show_sweep

    scene, _ = _open(None)
    wanted = [ItemOutcome(outcome) for outcome in outcomes]
    shown = show_sweep(scene, find_sweep(scene, plan), limit=limit, feed=feed, outcomes=wanted)
    if output == "json":
        print_json(shown.to_json())
        return
    print_sweep(shown.sweep)
    print_items(shown.items)
    if shown.matching > len(shown.items):
        click.echo(f"{len(shown.items):,} of {shown.matching:,} paths; --limit shows more", err=True)


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
    """The newest sweeps: what each would take or took, and how it stands."""
    from feed_assets.operations.retention.reading import VERSION, list_sweeps, sweep_to_json

    scene, _ = _open(None)
    wanted = [SweepState(state.upper()) for state in states]
    sweeps = list_sweeps(scene, limit=limit, clusters=clusters, states=wanted)
    if output == "json":
        print_json({"version": VERSION, "sweeps": [sweep_to_json(sweep) for sweep in sweeps]})
    else:
        print_sweeps(sweeps)


@retention.command()
@click.argument("plan")
@click.option("--feed", "feeds", multiple=True, help="Only what it took of this feed; may be repeated.")
@click.option("--instance", "times", type=MomentType(), multiple=True, help="Only this nominal time; may be repeated.")
@click.option("--no-hold", is_flag=True, help="Do not hold what is back; the next sweep takes it again.")
@change_options
@click.pass_context
def undo(
    ctx: click.Context,
    plan: str,
    feeds: tuple[str, ...],
    times: tuple[datetime, ...],
    no_hold: bool,
    author: str | None,
    dry_run: bool,
    output: str,
) -> None:
    """Bring back what a sweep took away, byte for byte, with the states that its instances had.

    Where something newer stands nothing is replaced; that is told, and the exit code is 1. What is back is held for as
    long as the trash would have kept it, by a hold that `hold release` gives up. A repeat goes on where an earlier undo
    stopped. What was archived comes back from the archive once the trash is purged.
    """
    from feed_assets.operations.retention.reading import find_sweep
    from feed_assets.operations.retention.undoing import bring_back

    scene, site = _open(author)
    sweep = find_sweep(scene, plan)
    with Progress() as progress:
        done = bring_back(
            scene,
            site,
            sweep,
            author=author_of(author),
            feeds=feeds,
            times=times,
            with_hold=not no_hold,
            dry_run=dry_run,
            progress=lambda settled, total: progress.show(sweep.sweep_id, settled, total),
        )
    if output == "json":
        print_json(done.to_json())
    else:
        print_table(("path", "outcome", "reason"), [(path, r.outcome.value, r.reason) for path, r in done.undone.left])
    click.echo(done.render_summary(), err=True)
    if not done.is_complete:
        ctx.exit(FAILED)


@retention.command()
@click.argument("plans", nargs=-1)
@clusters_option
@click.option("--now", is_flag=True, help="Also what is not over its time.")
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
    """Remove for good what sweeps took away and the trash has kept for its time; only that of PLANS if given.

    What somebody holds stays in the trash.
    """
    from feed_assets.operations.retention.reading import find_sweep
    from feed_assets.operations.retention.undoing import empty_trash

    scene, site = _open(author)
    done = empty_trash(
        scene,
        site,
        author=author_of(author),
        clusters=clusters,
        only=[find_sweep(scene, plan) for plan in plans],
        at_once=now,
        dry_run=dry_run,
    )
    if output == "json":
        print_json(done.to_json())
    else:
        rows = [(each.sweep.sweep_id, each.sweep.cluster, each.files, each.obstacle) for each in done.purged]
        print_table(("sweep", "cluster", "files", "obstacle"), rows)
    click.echo(done.render_summary(), err=True)
    if not done.is_complete:
        ctx.exit(FAILED)


@retention.command()
@click.argument("plan")
@output_option
def report(plan: str, output: str) -> None:
    """What a sweep evicted, in Falcon's form: the line of paths of its report file, and the line of instances."""
    from feed_assets.operations.retention.reading import VERSION, find_sweep, report_evictions

    scene, _ = _open(None)
    sweep = find_sweep(scene, plan)
    reports = report_evictions(scene, sweep)
    if output == "json":
        feeds = [each.to_json() for each in reports]
        print_json({"version": VERSION, "sweep": sweep.sweep_id, "feeds": feeds})
        return
    for each in reports:
        click.echo(each.paths)
        click.echo(each.times)


def _open(author: str | None) -> "tuple[Scene, Worksite]":
    """The definitions and the record, and what sweeps are worked on with; both opened here and now."""
    from feed_assets.cli.state import open_state
    from feed_assets.operations.retention.running import site_of
    from feed_assets.operations.scene import open_scene

    settings, wall = load_settings(), SystemClock()
    scene = open_scene(settings, open_state(settings), wall)
    return scene, site_of(scene, open_clock(settings), wall, author=author_of(author))


def _show(sweep: Any, output: str) -> None:
    from feed_assets.operations.retention.reading import VERSION, sweep_to_json

    if output == "json":
        print_json({"version": VERSION, "sweep": sweep_to_json(sweep)})
    else:
        print_sweeps([sweep])
