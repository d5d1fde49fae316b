"""`why`: explains the state of an instance."""

from typing import TYPE_CHECKING

import click

from feed_assets.cli.exit_codes import FAILED
from feed_assets.cli.groups import Verb
from feed_assets.cli.options import KindType, ListType, author_of, name_argument, text_output_option
from feed_assets.cli.proposals import find_times, names_of
from feed_assets.cli.render import print_json, say
from feed_assets.cli.state import open_context_for
from feed_assets.entities.common import Kind
from feed_assets.operation import Page
from feed_assets.parameters import SCHEDULABLE

if TYPE_CHECKING:
    from feed_assets.context.operation import OperationContext
    from feed_assets.context.subjects import Subject


@click.command(cls=Verb, epilog="Example: feed-assets why daily-delays 2013-11-03")
@name_argument("name", names_of(*SCHEDULABLE))
@name_argument("instance", find_times, required=False)
@click.option(
    "--cluster",
    "clusters",
    type=ListType(names_of(Kind.CLUSTER)),
    default=(),
    help="Only these clusters; by default all.",
)
@click.option(
    "--kind",
    type=KindType(*SCHEDULABLE),
    help="For a feed and a process with the same name; by default the process.",
)
@click.option("--all", "show_all", is_flag=True, help="Show everything upstream, also what the short form leaves out.")
@click.option("--look", is_flag=True, help="Ask storage now, and record what has arrived and what is gone.")
@text_output_option
@click.pass_context
def why(
    ctx: click.Context,
    name: str,
    instance: str | None,
    clusters: tuple[str, ...],
    kind: Kind | None,
    show_all: bool,
    look: bool,
    output: str,
) -> None:
    """Explain the state of INSTANCE of the process or feed NAME: the root causes, and the commands that end them.

    For a waiting instance: the missing data and their locations, the next poll, the process that should have produced
    them and why it has not; full slots, leases and suspensions. For an instance that has run: its cause and its inputs.
    For missing data: whether they were evicted. Without INSTANCE, of a process that takes what comes: what its next
    batch waits for.
    """
    from feed_assets.context.subjects import resolve_subject
    from feed_assets.explain.explanations import explain
    from feed_assets.explain.summaries import render_summary
    from feed_assets.explain.tick_failures import find_silence
    from feed_assets.log.records import FeedKey
    from feed_assets.plan.rendering import counted

    context = open_context_for()
    subject = resolve_subject(context, name, instance, kind=kind, preferred=Kind.PROCESS, clusters=clusters)
    if instance is None:
        if subject.kind is Kind.FEED:
            raise click.UsageError("Missing argument 'INSTANCE': name an instance of the feed.")
        _explain_queues(context, subject, output)
        return
    found = explain(context, subject)
    if look:
        from feed_assets.instances.lists.polled_ranges import poll_instances_now, record_vanished_now

        asked = {each.cluster for each in found.items}
        if lost := record_vanished_now(context, subject, asked, author_of(None)):
            say(f"{counted(lost, 'instance')} lost by storage, and recorded as missing", err=True)
            found = explain(context, subject)
        roots = [root for each in found.items for root in each.root_causes() if root.kind is Kind.FEED]
        missing = [FeedKey(root.name, root.cluster, root.nominal_time) for root in roots]
        if arrived := poll_instances_now(context, missing, author_of(None)):
            say(f"{counted(arrived, 'instance')} found in storage and recorded", err=True)
            found = explain(context, subject)
    undone = {each.cluster for each in found.items if each.status not in ("AVAILABLE", "SUCCEEDED")}
    silence = find_silence(context, undone)
    if output == "json":
        causes = [root for explanation in found.items for root in explanation.root_causes()]
        print_json(**found.document("instances"), root_causes=causes, no_ticks=silence)
    else:
        if silence is not None:
            say(silence)
        for explanation in found.items:
            say(explanation.render() if show_all else render_summary(explanation, context.find_sequence))
    for note in filter(None, found.notes):
        say(note, err=True)
    if found.has_failed:
        ctx.exit(FAILED)


def _explain_queues(context: "OperationContext", subject: "Subject", output: str) -> None:
    """Print what the next batch of a process waits for, on each of its clusters."""
    from feed_assets.triggers.queues import find_queues

    found = find_queues(context, subject)
    if output == "json":
        print_json(**Page.of(found).document("queues"))
        return
    for queue in found:
        say("\n".join((queue.headline, *(f"  - {reason}" for reason in (queue.lacks, *queue.waits)))))
