"""`queue`: what waits for processes that take what comes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from feed_assets.cli.groups import Verbs
from feed_assets.cli.instance_options import open_context_for
from feed_assets.cli.options import author_of, change_options, cluster_option, name_argument, output_option
from feed_assets.cli.proposals import names_of
from feed_assets.cli.render import print_json, print_list, print_records, say
from feed_assets.entities.common import Kind

if TYPE_CHECKING:
    from feed_assets.triggers.queues import QueuedEvent

_CLUSTER = "The cluster; not needed if the process is on one only."


@click.group(cls=Verbs)
def queue() -> None:
    """Inspect and change what waits for processes that take what comes."""


@queue.command("list")
@output_option
def list_(output: str) -> None:
    """List the queues: how many events are pending, and what each condition still lacks."""
    from feed_assets.triggers.queues import list_queues

    print_list("queues", "process, cluster, pending, condition=sentence", list_queues(open_context_for()), output)


@queue.command(epilog="Example: feed-assets queue show load-orders")
@name_argument("process", names_of(Kind.PROCESS))
@cluster_option(_CLUSTER)
@output_option
def show(process: str, cluster: str | None, output: str) -> None:
    """Show the pending, held and dropped events of PROCESS, oldest first, and what its condition still lacks."""
    from feed_assets.triggers.queues import show_queue

    found = show_queue(open_context_for(), process, cluster)
    if output == "json":
        print_json(found)
        return
    print_events((*found.events, *found.set_aside), output)
    say(f"{found.queue.pending} pending; {found.queue.sentence}", err=True)


@queue.command(epilog="Example: feed-assets queue consumers orders")
@name_argument("feed", names_of(Kind.FEED))
@cluster_option("Only this cluster; by default all.")
@output_option
def consumers(feed: str, cluster: str | None, output: str) -> None:
    """Show which processes take the events of FEED, and how far each has come."""
    from feed_assets.triggers.queues import list_consumers

    columns = "process, cluster, input, taken to=taken, pending, since, not routed=not_routed, held, dropped"
    print_list("consumers", columns, list_consumers(open_context_for(), feed, cluster), output)


def _change(action: str, meaning: str) -> None:
    """Add the command that decides so about an event."""

    @queue.command(action, help=meaning)
    @name_argument("process", names_of(Kind.PROCESS))
    @click.option("--event", type=click.IntRange(min=1), required=True, help="The number of the event.")
    @click.option("--reason", required=True, help="The reason, for people who find the change later.")
    @cluster_option(_CLUSTER)
    @change_options
    def change(
        process: str, event: int, reason: str, cluster: str | None, author: str | None, dry_run: bool, output: str
    ) -> None:
        from feed_assets.triggers.queue.records import QueueAction
        from feed_assets.triggers.queues import change_event

        done = change_event(
            open_context_for(),
            process,
            event,
            QueueAction[action.upper()],
            author=author_of(author),
            reason=reason,
            cluster=cluster,
            dry_run=dry_run,
        )
        if output == "json":
            print_json(changes=done)
            return
        for each in done:
            would = "would be " if dry_run else ""
            say(
                f"event {each.event} at input {each.input!r} of {each.process!r}: "
                f"was {each.was}, {would}{QueueAction[action.upper()].done}"
            )


_change("add", "Let a batch of PROCESS take an event: a held, dropped or passed one, or one from before the trigger.")
_change("drop", "Drop a pending event of PROCESS: no batch takes it, until it is added.")
_change("hold", "Hold a pending event of PROCESS back: batches pass it by, until it is added.")


@queue.command()
@output_option
@click.pass_context
def verify(ctx: click.Context, output: str) -> None:
    """Prove that each event is in one batch, pending, passed over or dropped; exit with 1 if one is not."""
    from feed_assets.triggers.queues import find_faults

    faults = find_faults(open_context_for())
    print_list("faults", "process, cluster, input, fault=message", faults, output)
    if not faults and output != "json":
        say("every event is in its place", err=True)
    ctx.exit(1 if faults else 0)


def print_events(events: "Sequence[QueuedEvent]", output: str) -> None:
    """Print events of a queue or a batch."""
    print_records(
        "event, input, feed, instance=nominal_time, kind, marking, origin, payload, decided",
        sorted(events, key=lambda each: each.row.seq),
        output,
        spare=("origin", "payload"),
    )
