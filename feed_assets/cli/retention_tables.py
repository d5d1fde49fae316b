"""Printing of retention plans, sweeps and their paths."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from feed_assets.cli.render import print_records, print_table, render_size, say
from feed_assets.timing.dates import render_datetime

if TYPE_CHECKING:
    from feed_assets.log.removals.records import Sweep
    from feed_assets.retention.planning import RetentionPlan
    from feed_assets.retention.reading import ShownItem

_SWEEP = ("plan", "cluster", "state", "as of", "by", "feeds", "instances", "paths", "size", "evicted", "kept", "failed")
_SPARE = ("as of", "by", "paths", "files", "rule", "kept", "failed", "oldest", "newest", "kind")
_PLAN = ["plan", "cluster", "feed", "instances", "of", "paths", "size", "oldest", "newest", "rule", "kept", "remark"]


def print_plan(planned: "RetentionPlan", output: str) -> None:
    """Print a row for each feed: the planned removals, what stays and why, and what stops the plan from running."""
    rows: list[tuple[object, ...]] = []
    for feed in planned.feeds:
        plan, record = feed.plan, feed.plan.record
        remarks = [plan.left_out] if plan.left_out else [f"asks: {each.sentence}" for each in plan.obstacles]
        if feed.present is None:
            rows.append((None, record.cluster, record.feed, *([None] * 8), "; ".join(remarks)))
            continue
        grace = feed.render_grace()
        remarks += [grace] if grace else []
        remarks += feed.render_protections()
        remarks += [f"{each.location.kind.value} never: {each.location.obstacle}" for each in feed.never_swept]
        rows.append(
            (
                plan.sweep_id,
                record.cluster,
                record.feed,
                feed.instances,
                feed.present,
                sum(feed.paths.values()),
                render_size(feed.bytes),
                feed.oldest and render_datetime(feed.oldest),
                feed.newest and render_datetime(feed.newest),
                ", ".join(f"{rule} {count}" for rule, count in feed.rules.items()),
                sum(feed.kept.values()),
                "; ".join(remarks),
            )
        )
    print_table(_PLAN, rows, output, spare=_SPARE)


def print_sweeps(sweeps: "Iterable[Sweep]", output: str) -> None:
    """Print a row for each sweep; questions and reasons for its end go to standard error."""
    sweeps = list(sweeps)
    rows = [
        (
            sweep.sweep_id,
            sweep.cluster,
            sweep.state.value,
            render_datetime(sweep.as_of),
            sweep.author,
            len(sweep.counts),
            sweep.instances,
            sweep.paths,
            render_size(sweep.bytes),
            sum(count.evicted for count in sweep.counts),
            sum(count.kept for count in sweep.counts),
            sum(count.failed for count in sweep.counts),
        )
        for sweep in sweeps
    ]
    print_table(_SWEEP, rows, output, spare=_SPARE)
    for sweep in sweeps:
        remarks = [obstacle.sentence for obstacle in sweep.obstacles] if not sweep.approved_by else []
        remarks += [sweep.note] if sweep.note else []
        for remark in remarks:
            say(f"{sweep.sweep_id}: {remark}", err=True)


def print_sweep(sweep: "Sweep") -> None:
    """Print the facts of one sweep, a line each."""
    facts = {
        "plan": sweep.sweep_id,
        "cluster": sweep.cluster,
        "state": sweep.state.value,
        "as of": render_datetime(sweep.as_of),
        "planned": f"{render_datetime(sweep.created_at)} by {sweep.author} ({sweep.origin})",
        "digest": sweep.digest,
        "takes": f"{sweep.instances:,} instances, {sweep.paths:,} paths, {render_size(sweep.bytes)}",
        "approved": f"{render_datetime(sweep.approved_at)} by {sweep.approved_by}" if sweep.approved_at else None,
        "started": render_datetime(sweep.started_at) if sweep.started_at else None,
        "ended": render_datetime(sweep.ended_at) if sweep.ended_at else None,
        "trash until": render_datetime(sweep.purge_at) if sweep.purge_at and not sweep.purged_at else None,
        "purged": render_datetime(sweep.purged_at) if sweep.purged_at else None,
        "undone": render_datetime(sweep.undone_at) if sweep.undone_at else None,
        "note": sweep.note,
    }
    for obstacle in sweep.obstacles:
        facts[f"asks ({obstacle.code})"] = obstacle.sentence
    for name, fact in facts.items():
        if fact is not None:
            say(f"{name}: {fact}")
    for count in sweep.counts:
        kept = ", ".join(f"{kind} {number}" for kind, number in count.protected_by.items())
        kept = f"; not in the plan, because protected: {kept}" if kept else ""
        say(
            f"feed {count.feed}: {count.instances:,} instances, {count.paths:,} paths, {render_size(count.bytes)}; "
            f"evicted {count.evicted:,}, kept {count.kept:,}, failed {count.failed:,}{kept}"
        )


def print_items(items: "Iterable[ShownItem]", output: str) -> None:
    """Print a row for each path of a sweep."""
    columns = "feed, kind, instance=nominal_time, path, size=bytes:size, files, rule, outcome, reason=remark"
    print_records(columns, items, output, spare=_SPARE)
