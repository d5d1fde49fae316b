"""`admin`: safe mode, the audit, the messages for other programs, and the clean-up after runs."""

import json
from time import sleep
from typing import TYPE_CHECKING, NoReturn

import click

from feed_assets.cli.groups import Verbs
from feed_assets.cli.options import (
    author_of,
    author_option,
    clusters_option,
    dry_run_option,
    listed_change_options,
    output_option,
    text_output_option,
)
from feed_assets.cli.progress import status_line
from feed_assets.cli.render import print_json, print_list, print_records, say, say_shown
from feed_assets.clock import open_clock
from feed_assets.receivers import Topic
from feed_assets.settings import load_settings

if TYPE_CHECKING:
    from feed_assets.context.safe_mode import SafeMode
    from feed_assets.sql.database import Database

NEWEST = 50
MESSAGES = 1_000
FOLLOW_SECONDS = 1.0


@click.group(cls=Verbs)
def admin() -> None:
    """Manage safe mode, show the audit and the messages for other programs, and clean up after runs."""


@admin.command()
@click.argument("switch", type=click.Choice(["on", "off", "status"]), default="status")
@click.option("--reason", help="The reason, shown in refusals.")
@author_option
@dry_run_option
@text_output_option
def safemode(switch: str, reason: str | None, author: str | None, dry_run: bool, output: str) -> None:
    """Switch safe mode on or off, or show its status.

    In safe mode nothing can be declared, changed, scheduled, resumed or removed. Clusters are the exception: they can
    be changed in safe mode only.
    """
    from feed_assets.cli.state import open_state
    from feed_assets.context.safe_mode import load_safe_mode, set_safe_mode

    settings = load_settings()
    database = open_state(settings)
    if switch == "status":
        with database.read() as connection:
            mode = load_safe_mode(connection)
    else:
        mode = set_safe_mode(
            database,
            is_on=switch == "on",
            author=author_of(author),
            now=open_clock(settings).now(),
            reason=reason,
            dry_run=dry_run,
        )
    if output == "json":
        print_json(mode)
    else:
        say(_sentence(mode))


@admin.command()
@click.option("--limit", type=click.IntRange(min=1), default=NEWEST, show_default=True, help="How many, newest first.")
@output_option
def audit(limit: int, output: str) -> None:
    """Show who changed what and when, newest first."""
    from feed_assets.cli.state import open_state
    from feed_assets.log.audit import Audit

    database = open_state(load_settings())
    with database.read() as connection:
        entries, total = Audit(connection).newest(limit), Audit(connection).count()
    columns = "at=recorded_at:seconds, author, action, target, details:pairs"
    print_list("audit", columns, entries, output, total=total)
    if output != "json":
        say_shown(len(entries), total, "entries", "--limit shows more")


@admin.command()
@click.option(
    "--after", type=click.IntRange(min=0), default=0, show_default=True, help="Only messages with a larger seq."
)
@click.option(
    "--limit", type=click.IntRange(min=1), default=MESSAGES, show_default=True, help="How many, oldest first."
)
@click.option("--topic", type=click.Choice(Topic, case_sensitive=False), help="Only messages of this topic.")
@click.option("--follow", is_flag=True, help="Go on with new messages, until somebody ends it; one line each.")
@output_option
def messages(after: int, limit: int, topic: Topic | None, follow: bool, output: str) -> None:
    """Show the messages for other programs, oldest first.

    Topics are eviction (evicted and restored paths), metadata (changes), instance (ends of instances), sla, retry
    (used-up retries), sweep (asks for approval) and entity (changes). A reader remembers the largest seq it has seen,
    and requests later messages with --after. Messages never change.
    """
    from feed_assets.cli.state import open_state
    from feed_assets.log.messages.outbox import Outbox

    database = open_state(load_settings())
    if follow:
        _follow(database, after, topic, output)
    with database.read() as connection:
        found, total = Outbox(connection).read(after, limit, topic), Outbox(connection).count(after, topic)
    print_list("messages", "seq, at=recorded_at:seconds, topic, payload=members:pairs", found, output, total=total)
    if output != "json":
        say_shown(len(found), total, "messages", "--after and --limit show more")


def _follow(database: "Database", after: int, topic: Topic | None, output: str) -> NoReturn:
    """Print messages as they come: lines of JSON, or of text."""
    from feed_assets.json_form import render_document
    from feed_assets.log.messages.outbox import Outbox

    while True:
        with database.read() as connection:
            found = Outbox(connection).read(after, MESSAGES, topic)
        for each in found:
            said = ", ".join(f"{name}={value}" for name, value in each.members.items())
            at, is_json = f"{each.recorded_at:%Y-%m-%dT%H:%M:%SZ}", output == "json"
            say(json.dumps(render_document(each)) if is_json else f"{each.seq} {at} {each.topic.value} {said}")
            after = each.seq
        if not found:
            sleep(FOLLOW_SECONDS)


@admin.command()
@clusters_option
@listed_change_options
def cleanup(clusters: tuple[str, ...], author: str | None, dry_run: bool, output: str) -> None:
    """Remove the captured logs of old runs, and old messages that everybody was told.

    How long they are kept depends on the frequency of the process: the settings `cleanup`. The retention job does the
    same once a day. Runs, instances, partitions and materializations stay. With --dry-run it shows what would go.
    """
    from feed_assets.cli.instance_options import open_context_for
    from feed_assets.orchestration.runs.cleanup import clean_up
    from feed_assets.retention.reading import require_clusters

    context = open_context_for()
    require_clusters(context, clusters)
    done = clean_up(
        context,
        load_settings().cleanup,
        clusters or tuple(context.plan.clusters),
        author=author_of(author),
        dry_run=dry_run,
        on_progress=status_line.show,
    )
    if output == "json":
        print_json(cleaned=done, dry_run=dry_run)
        return
    columns = "what=leftover, cluster, frequency=unit, kept for=limit, before:seconds, "
    print_records(f"{columns}{'would go' if dry_run else 'removed'}=count", done, output)


def _sentence(mode: "SafeMode") -> str:
    state = f"safe mode is {'on' if mode.is_on else 'off'}"
    if mode.author is None or mode.changed_at is None:
        return state
    reason = f": {mode.reason}" if mode.reason else ""
    return f"{state} since {mode.changed_at:%Y-%m-%dT%H:%M:%SZ}, by {mode.author}{reason}"
