"""What can be asked about retention: sweeps are planned, run and undone; holds protect instances from them."""

from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Annotated

from feed_assets.access.rights import reads
from feed_assets.entities.common import Kind
from feed_assets.errors import WrongUsageError
from feed_assets.log.removals.records import ItemOutcome, SweepState
from feed_assets.operation import WORKS_LONG, Does, Param, later, operation
from feed_assets.pages import Page
from feed_assets.parameters import Clusters, Limit
from feed_assets.retention.queries import HoldQuery

if TYPE_CHECKING:
    from feed_assets.context.operation import ChangeContext, OperationContext
    from feed_assets.log.removals import chunks, records, store
    from feed_assets.log.removals import holds as hold_rows
    from feed_assets.retention import holding, planning, running
    from feed_assets.retention.sweeps import undoing

later(globals())

GROUPS = {
    "hold": "Manage holds: they protect instances against retention until they are released or expire.",
    "retention": """Plan and run the removal of expired instances, and restore them from the trash.

    PLAN is the id of a sweep, or a prefix of it. A plan removes nothing.
    """,
}
_PLAN = (
    "plan=sweep_id, cluster, feed, instances=read.instances, of=present, paths=read.paths:total, size=read.bytes:size, "
    "oldest=read.oldest, newest=read.newest, rule=read.rules:numbered, kept=read.kept:total, remark"
)
_SWEEPS = (
    "plan=sweep_id, cluster, state, as of=as_of, by=author, feeds=counts.feed:few, instances, paths, size=bytes:size, "
    "evicted=counts.evicted:sum, kept=counts.kept:sum, failed=counts.failed:sum"
)
ITEMS = "feed, kind, instance=nominal_time, path, size=bytes:size, files, rule, outcome, reason=remark"
_HOLDS = (
    "name, feed=feed|every, cluster=cluster|every, start=first, end, until=expires_at, by=author, reason, "
    "released=released_at"
)
SPARE = ("as of", "by", "paths", "files", "rule", "kept", "failed", "oldest", "newest", "kind")
_FEED = (Kind.FEED,)
_SWEEP = Param("The id of a sweep, or the beginning of it.", argument=True, proposes="sweeps")

Plan = Annotated[str, _SWEEP]


def _feeds(about: str) -> Param:
    return Param(f"{about}; may be repeated.", option="feed", of=_FEED)


@operation("retention plan", does=Does.ACTS, safe=True, table=_PLAN, rows="feeds", spare=SPARE, long=True, answers=201)
def plan(
    context: "ChangeContext",
    *,
    feeds: Annotated[tuple[str, ...], _feeds("Only this feed, scheduled or not")] = (),
    clusters: Clusters = (),
    at: Annotated[datetime | None, Param("As of this time, 2015-02-28T06:30Z; by default now.")] = None,
    progress: Callable[[str, int, int], None],
) -> "planning.RetentionPlan":
    """Plan what would be removed, feed by feed, and store it as sweeps for `run`.

    Removes nothing. Shows why eligible instances stay. A feed of which too much would be removed gets a sweep of its
    own that asks: inspect it, then `approve` or `cancel` it. The plan supersedes an older plan of the same feeds.
    """
    return planning.plan_retention(context, feeds=feeds, clusters=clusters, as_of=at, progress=progress)


@operation(
    "retention run",
    does=Does.ACTS,
    table=_SWEEPS,
    rows="sweeps",
    spare=SPARE,
    example="20131128",
    long=True,
    no_route=WORKS_LONG,
)
def run(
    context: "ChangeContext",
    *,
    plan: Annotated[str | None, _SWEEP] = None,
    feeds: Annotated[
        tuple[str, ...], _feeds("Continue, or plan and run, the sweeps of this feed unless they ask")
    ] = (),
    clusters: Clusters = (),
    progress: Callable[[str, int, int], None],
) -> "running.SweepRuns":
    """Move the planned paths of a sweep to the trash, or continue an interrupted sweep.

    Without PLAN and --feed, runs all waiting and interrupted sweeps. Protections are checked again immediately before
    an instance is moved; instances that have changed since the plan stay. The exit code is 1 if storage refused
    something, a sweep cannot run now, or other workers hold a part of one.
    """
    if plan is not None and (feeds or clusters):
        raise WrongUsageError("PLAN cannot be combined with --feed or --clusters.")
    waiting: tuple[str, ...] = ()
    sweeps = running.find_runnable(context, clusters, feeds) if plan is None else [running.find_sweep(context, plan)]
    if feeds:
        planned = planning.plan_retention(context, feeds=feeds, clusters=clusters)
        waiting = planned.waiting
        sweeps = [sweep for sweep in sweeps if sweep.state is SweepState.RUNNING]
        sweeps += [sweep for sweep in planned.sweeps if sweep.state is SweepState.PLANNED]
    return running.run_sweeps(context, sweeps, waiting=waiting, progress=progress)


@operation("retention approve", does=Does.ACTS, table=_SWEEPS, rows="sweep", spare=SPARE, answers=202)
def approve(context: "ChangeContext", *, plan: Plan) -> "records.Sweep":
    """Approve a sweep that asks, because it would remove much or because the clock seems wrong.

    If the clock is the reason, the approval also confirms that the clock is right.
    """
    return running.approve_sweep(context, running.find_sweep(context, plan))


@operation("retention cancel", does=Does.ACTS, safe=True, table=_SWEEPS, rows="sweep", spare=SPARE)
def cancel(context: "ChangeContext", *, plan: Plan) -> "records.Sweep":
    """Cancel a sweep that has not begun. The retention schedule of its feeds does not change."""
    return running.cancel_sweep(context, running.find_sweep(context, plan))


@operation("retention show", table=ITEMS, rows="items", spare=SPARE)
def show(
    context: "OperationContext",
    *,
    plan: Plan,
    feed: Annotated[str | None, Param("Only the paths of this feed.", of=_FEED)] = None,
    outcomes: Annotated[
        tuple[ItemOutcome, ...], Param("Only paths with this outcome; may be repeated.", option="outcome")
    ] = (),
    limit: Annotated[int, Param("How many paths.", least=0)] = 50,
) -> "running.ShownSweep":
    """Show a sweep with its paths: nominal time, size, rule and outcome of each."""
    sweep = running.find_sweep(context, plan)
    with context.database.read() as connection:
        counts = chunks.SweepChunks(connection, sweep.sweep_id).count_outcomes(None if feed is None else [feed])
    shown = {(of, outcome): n for (of, outcome), n in counts.items() if reads(Kind.FEED, of)}
    matching = sum(count for (_, outcome), count in shown.items() if not outcomes or outcome in outcomes)
    with closing(running.iter_items(context, sweep, feed)) as items:
        found = (item for item in items if not outcomes or (item.result and item.result.outcome in outcomes))
        return running.ShownSweep(
            sweep=running.only_read(sweep), items=tuple(islice(found, min(limit, matching))), matching=matching
        )


@operation("retention list", none="no sweep has been planned yet", table=_SWEEPS, rows="sweeps", spare=SPARE)
def list_sweeps(
    context: "OperationContext",
    *,
    clusters: Clusters = (),
    states: Annotated[
        tuple[SweepState, ...], Param("Only sweeps in this state; may be repeated.", option="state")
    ] = (),
    limit: Limit = 20,
) -> "Page[records.Sweep]":
    """List the newest sweeps: their state, and what each would remove or removed."""
    with context.database.read() as connection:
        sweeps = store.Sweeps(connection)
        newest, total = sweeps.newest(limit, clusters, states), sweeps.count(limit, clusters, states)
    context.require_clusters(() if newest else clusters)
    return Page(items=tuple(map(running.only_read, newest)), total=total, what="sweeps")


@operation(
    "retention undo",
    does=Does.ACTS,
    table="path, outcome, reason",
    rows="left",
    example="20131128 --instance 2013-11-03T05:00Z",
    long=True,
    no_route=WORKS_LONG,
)
def undo(
    context: "ChangeContext",
    *,
    plan: Plan,
    feeds: Annotated[tuple[str, ...], _feeds("Only instances of this feed")] = (),
    times: Annotated[tuple[str, ...], Param("Only this nominal time; may be repeated.", option="instance")] = (),
    no_hold: Annotated[bool, Param("Do not hold what is restored; the next sweep removes it again.")] = False,
    progress: Callable[[str, int, int], None],
) -> "undoing.UndoResult":
    """Restore what a sweep removed, byte for byte, with the former states of its instances.

    Newer data are never replaced; they are reported, and the exit code is 1. A hold protects what is restored for as
    long as the trash would have kept it; `hold release` ends it. A repeat continues an interrupted undo. Archived
    instances come back from the archive once the trash is purged. A time is UTC (`2013-11-02T04:00Z`), or a day or a
    partition key in the time zone of the feed.
    """
    return running.undo_removals(
        context, running.find_sweep(context, plan), feeds=feeds, times=times, with_hold=not no_hold, progress=progress
    )


@operation(
    "retention purge",
    does=Does.ACTS,
    table="sweep=sweep.sweep_id, cluster=sweep.cluster, files, obstacle",
    rows="purged",
    long=True,
    no_route=WORKS_LONG,
)
def purge(
    context: "ChangeContext",
    *,
    plans: Annotated[tuple[str, ...], _SWEEP] = (),
    clusters: Clusters = (),
    now: Annotated[bool, Param("Also trash that has not expired.")] = False,
) -> "running.PurgeResult":
    """Remove expired trash for good, or only that of PLANS.

    Held instances stay in the trash.
    """
    only = [running.find_sweep(context, plan) for plan in plans]
    return running.empty_trash(context, clusters=clusters, only=only, at_once=now)


@operation("retention report", rows="feeds", text="lines")
def report(context: "OperationContext", *, plan: Plan) -> "running.EvictionReports":
    """Show what a sweep evicted, in Falcon's form: the line of paths of its report file, and the line of instances."""
    return running.report_evictions(context, running.find_sweep(context, plan))


@operation(
    "hold add",
    does=Does.ACTS,
    safe=True,
    table=_HOLDS,
    rows="holds",
    answers=201,
    example="audit --feed flights --end 2014-01-01T00:00Z --reason 'audit until March'",
)
def add_hold(
    context: "ChangeContext",
    *,
    name: Annotated[str, Param("Its name; holds of one name are released together.", argument=True)],
    query: HoldQuery,
) -> "holding.HoldChange":
    """Protect instances of feeds: all, a range of nominal times, or one.

    Several holds may protect the same instance; it stays until the last of them ends. Held instances in the trash are
    not purged. A time is UTC (`2013-11-02T04:00Z`), or a day or a partition key in the time zone of the feed.
    """
    if bool(query.feeds) == query.every_feed:
        raise WrongUsageError("Name the feeds with --feed, or give --every-feed.")
    if query.instance is not None and (query.start is not None or query.end is not None):
        raise WrongUsageError("--instance cannot be combined with --start or --end.")
    return holding.add_holds(context, name, query)


@operation("hold release", does=Does.ACTS, table=_HOLDS, rows="holds")
def release_hold(
    context: "ChangeContext", *, name: Annotated[str, Param("Their name.", argument=True, proposes="holds")]
) -> "holding.HoldChange":
    """Release all holds of a name. The next scheduled retention removes what has expired."""
    return holding.release_hold(context, name)


@operation("hold list", none="no hold is active", table=_HOLDS, rows="holds")
def list_holds(
    context: "OperationContext",
    *,
    feed: Annotated[str | None, Param("Only holds on this feed.", of=_FEED)] = None,
    everything: Annotated[bool, Param("Also released and expired holds.", option="all")] = False,
    limit: Limit = 50,
) -> "Page[records.Hold]":
    """List the active holds, newest first."""
    with context.database.read() as connection:
        holds = hold_rows.Holds(connection)
        found = holds.newest() if everything else list(reversed(holds.active(context.as_of)))
    found = [hold for hold in found if hold.feed is None or reads(_FEED[0], hold.feed)]
    listed = [hold for hold in found if feed is None or hold.feed in (None, feed)]
    return Page(items=tuple(listed[:limit]), total=len(listed), what="holds")
