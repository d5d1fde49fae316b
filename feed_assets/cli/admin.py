"""`admin`: the messages for other programs, and the clean-up after runs."""

import json
from time import sleep
from typing import TYPE_CHECKING, NoReturn

import click

from feed_assets.cli.derived import finish
from feed_assets.cli.groups import Verbs
from feed_assets.cli.options import (
    author_of,
    clusters_option,
    listed_change_options,
    output_option,
)
from feed_assets.cli.progress import status_line
from feed_assets.cli.render import print_json, print_records, say
from feed_assets.operation import Operation, Page
from feed_assets.receivers import Topic
from feed_assets.settings import load_settings

if TYPE_CHECKING:
    from feed_assets.sql.database import Database

MESSAGES = 1_000
FOLLOW_SECONDS = 1.0
_MESSAGES = Operation(
    "admin messages", table="seq, at=recorded_at:seconds, topic, payload=members:pairs", rows="messages"
)


@click.group(cls=Verbs)
def admin() -> None:
    """Manage safe mode, show the audit and the messages for other programs, and clean up after runs."""


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
    page = Page(items=tuple(found), total=total, what="messages", more="--after and --limit show more")
    finish(_MESSAGES, None, page, output)


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
    from feed_assets.cli.state import open_context_for
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
