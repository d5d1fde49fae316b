"""What is drawn by hand: a sweep with its facts, a line each, and a row for each path; a table for each inbox; and what
was tried, with tables for columns and rows.
"""

from typing import TYPE_CHECKING

from feed_assets.cli.render import Output, print_records, print_table, render_size, say
from feed_assets.json_form import render_words
from feed_assets.log.removals.records import WHILE_A_VERSION
from feed_assets.plan.rendering import counted
from feed_assets.retention.commands import ITEMS, SPARE
from feed_assets.timing.dates import render_datetime

if TYPE_CHECKING:
    from feed_assets.engines.data.differences import Difference, SampledDifference
    from feed_assets.instances.attempts.trying import Tried
    from feed_assets.instances.inbox.asking import InboxResult
    from feed_assets.log.removals.records import Sweep
    from feed_assets.retention.running import ShownSweep


def print_sweep(found: "ShownSweep", output: str) -> None:
    """Print the paths of a sweep; for people its facts, too."""
    if output == Output.TABLE:
        _print_facts(found.sweep)
    print_records(ITEMS, found.items, output, spare=SPARE)


def _trash_end(sweep: "Sweep") -> str | None:
    if sweep.purge_at is None or sweep.purged_at:
        return None
    return "newer versions take its place" if sweep.purge_at == WHILE_A_VERSION else render_datetime(sweep.purge_at)


def _print_facts(sweep: "Sweep") -> None:
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
        "trash until": _trash_end(sweep),
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


def print_inboxes(inboxes: "tuple[InboxResult, ...]", output: str) -> None:
    """Print what became of the files of inboxes."""
    for inbox in inboxes:
        print_records("file=name, bytes, status, instance=nominal_time, reason", inbox.files, output, spare=("reason",))
        say(f"feed {inbox.feed!r} on {inbox.cluster}: {counted(len(inbox.files), 'file')} in {inbox.url}", err=True)


def print_tried(tried: "Tried", output: str) -> None:
    """Print what an instance has made that was tried, and how that differs from what is published."""
    say(tried.heading)
    for each in tried.outputs:
        rows = "" if each.rows is None else f": {counted(each.rows, 'row')}"
        say(f"\noutput {each.output} (feed {each.feed!r} at {render_datetime(each.instance)}){rows}")
        if each.quality is not None:
            say(f"quality: {each.quality}; it would {'' if each.is_good else 'not '}be published")
        if each.message:
            say(f"its event would tell {render_words(each.message)}")
        if each.columns:
            columns = "column, type, published=old_type, change" if each.difference is not None else "column, type"
            print_records(columns, each.columns, output)
        if each.difference is None:
            say(each.note)
        else:
            _print_difference(each.difference, output)
        if each.is_same:
            say("it is what is published")
    if tried.said:
        say(f"\nsaid, and not recorded: {render_words(tried.said)}")


def _print_difference(found: "Difference", output: str) -> None:
    of = f"keys ({', '.join(found.keys)})" if found.keys else "rows"
    changed = f", {found.changed:,} changed" if found.keys else ""
    figures = f"{of}: {found.only_new:,} only new, {found.only_old:,} only published{changed}"
    if not found.compared:
        figures = "no column is on both sides with the same type, so rows are not compared"
    say(f"{counted(found.old_rows, 'row')} published; {figures}")
    if found.sample:
        rows = [
            (each.kind.value, each.number, *(_cell(each, name) for name in found.compared)) for each in found.sample
        ]
        print_table(("difference", "number", *found.compared), rows, output)


def _cell(row: "SampledDifference", column: str) -> str:
    """Return the value of a row, or both if the sides differ in it."""
    values = [side[column] for side in (row.old, row.new) if side is not None]
    texts = dict.fromkeys("NULL" if value is None else value for value in values)
    return " → ".join(texts)
