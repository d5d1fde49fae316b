"""Draws the files of inboxes: a table for each inbox."""

from typing import TYPE_CHECKING

from feed_assets.cli.render import print_records, say
from feed_assets.plan.rendering import counted

if TYPE_CHECKING:
    from feed_assets.instances.inbox.inbox_lists import InboxResult


def print_inboxes(inboxes: "tuple[InboxResult, ...]", output: str) -> None:
    """Print what became of the files of inboxes."""
    for inbox in inboxes:
        print_records("file=name, bytes, status, instance=nominal_time, reason", inbox.files, output, spare=("reason",))
        say(f"feed {inbox.feed!r} on {inbox.cluster}: {counted(len(inbox.files), 'file')} in {inbox.url}", err=True)
