"""`state`: rebuild a state that was lost, or restored from an old backup."""

from typing import TYPE_CHECKING

import click

from feed_assets.access.rights import require_local
from feed_assets.cli.exit_codes import FAILED
from feed_assets.cli.groups import Verbs
from feed_assets.cli.options import author_of, author_option, dry_run_option, output_option
from feed_assets.cli.progress import status_line
from feed_assets.cli.render import Output, confirm, print_json, print_table, say
from feed_assets.settings import load_settings
from feed_assets.timing.dates import render_datetime

if TYPE_CHECKING:
    from feed_assets.log.removals.records import Hold
    from feed_assets.rebuild.rebuilding import Rebuilt, RebuiltFeed, RebuiltProcess


@click.group(cls=Verbs)
def state() -> None:
    """Rebuild the state from what lies on storage."""


@state.command()
@click.option("--yes", is_flag=True, help="Do not show the plan and ask first.")
@author_option
@dry_run_option
@output_option
@click.pass_context
def rebuild(ctx: click.Context, yes: bool, author: str | None, dry_run: bool, output: str) -> None:
    """Record what lies on storage and is not in the state: after its loss, or after the restore of an old backup.

    Feed instances are found by their paths, and what has written them by their manifests. A process instance whose
    outputs are on storage counts as SUCCEEDED and does not run again. What the state knows stays as it is, but what
    storage has lost becomes MISSING; a second rebuild changes nothing. Holds come back from their traces beside the
    data. The sensors then report to Dagster what it lacks.

    Exits with 1 if the storage of a feed, a manifest, or a trace of a hold cannot be read.
    """
    from feed_assets.cli.state import open_state
    from feed_assets.rebuild.rebuilding import rebuild_state

    settings = load_settings()
    require_local(settings, author)
    database, author = open_state(settings), author_of(author)
    if not (yes or dry_run):
        planned = rebuild_state(settings, database, author=author, dry_run=True, on_progress=status_line.show)
        if not planned.is_empty:
            _print_rows(planned, Output.TABLE)
            confirm(f"{_summary(planned)} Record this?")
    rebuilt = rebuild_state(settings, database, author=author, dry_run=dry_run, on_progress=status_line.show)
    if output == "json":
        print_json(rebuilt)
    else:
        _print_rows(rebuilt, output)
    say(_summary(rebuilt), err=True)
    for fault in (fault for each in rebuilt.feeds for fault in each.damaged):
        say(fault, err=True)
    for each in rebuilt.unsettled:
        say(each.sentence, err=True)
    if not rebuilt.is_complete:
        ctx.exit(FAILED)


def _print_rows(rebuilt: "Rebuilt", output: str) -> None:
    rows = [("feed", each.feed, each.cluster, each.complete, each.recorded, _remark(each)) for each in rebuilt.feeds]
    rows += [
        ("process", each.process, each.cluster, each.finished, each.recorded, _describe_begin(each))
        for each in rebuilt.processes
    ]
    rows += [("hold", each.name, each.cluster or "every", 1, 1, _describe_hold(each)) for each in rebuilt.holds]
    print_table(["kind", "name", "cluster", "on storage", "new", "remark"], rows, output)


def _remark(feed: "RebuiltFeed") -> str:
    if feed.problem is not None:
        return feed.problem
    unknown = f"{feed.unknown} without a manifest are left out" if feed.unknown else ""
    damaged = f"{len(feed.damaged)} with a damaged manifest are left out" if feed.damaged else ""
    anew = "nothing shows what its inbox has had: it begins anew" if feed.begins_anew else ""
    return "; ".join(filter(None, [unknown, damaged, f"{feed.vanished} are gone" if feed.vanished else "", anew]))


def _describe_begin(process: "RebuiltProcess") -> str:
    at = process.begins_at
    later = "" if at is None else f"instances before {render_datetime(at)} are not created"
    anew = "nothing shows what it has taken: its queue begins anew" if process.begins_anew else ""
    return "; ".join(filter(None, [later, anew]))


def _describe_hold(hold: "Hold") -> str:
    feed = f"feed {hold.feed}" if hold.feed else "every feed"
    times = {"from": hold.first, "to": hold.last, "until": hold.expires_at}
    span = "".join(f" {word} {render_datetime(time)}" for word, time in times.items() if time is not None)
    return f"{feed}{span}, by {hold.author}: {hold.reason}"


def _summary(rebuilt: "Rebuilt") -> str:
    from feed_assets.plan.rendering import counted

    if rebuilt.is_empty:
        but = "" if all(each.is_whole for each in rebuilt.feeds) else ", but for what cannot be read"
        return f"The state has everything that lies on storage{but}."
    feeds, processes = (sum(each.recorded for each in found) for found in (rebuilt.feeds, rebuilt.processes))
    verb = "would be" if rebuilt.dry_run else "were"
    instances = f"{counted(feeds, 'feed instance')}, {counted(processes, 'process instance')}"
    vanished = sum(each.vanished for each in rebuilt.feeds)
    lost = f" {counted(vanished, 'instance')} lost by storage {verb} recorded as missing." if vanished else ""
    return f"{instances} and {counted(len(rebuilt.holds), 'hold')} {verb} recorded.{lost}"
