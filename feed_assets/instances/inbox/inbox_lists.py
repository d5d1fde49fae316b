"""Take files from the inboxes of a feed now, without waiting for the next look, or show what is there."""

from collections.abc import Callable
from dataclasses import dataclass

from feed_assets.context.errors import InstanceQueryError
from feed_assets.context.operation import OperationContext, note_target
from feed_assets.context.safe_mode import require_mode
from feed_assets.instances.inbox.inbox_files import FileStatus, SeenFile, find_files, inbox_of
from feed_assets.instances.inbox.ingest import preview_files, take_files, takes_at
from feed_assets.plan.records import FeedRecord
from feed_assets.timing.dates import render_datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxResult:
    """The files of an inbox, and what became of them, or would."""

    feed: str
    cluster: str
    url: str
    dry_run: bool
    files: tuple[SeenFile, ...]


def take_from_inboxes(
    context: OperationContext,
    feed: str,
    *,
    author: str,
    cluster: str | None = None,
    dry_run: bool = False,
    progress: Callable[[str, int, int], object] = lambda *_: None,
) -> tuple[InboxResult, ...]:
    """Take all files that have settled in the inboxes of a feed, of any size, also those that ticks have left there.

    With `dry_run`, nothing is read or taken. `progress` receives the files that were dealt with, and all.

    Raises:
        EntityNotFoundError: there is no such feed.
        InstanceQueryError: it has no inbox on the cluster, or none at all, or no instance at present.
        SafeModeError: safe mode is on.
        StorageError: a storage refused; what was taken is recorded, and the next call goes on.
    """
    with_inbox = [
        record for record in context.feeds_of(feed, cluster) if record.is_external and record.inbox is not None
    ]
    if not with_inbox:
        place = f" on {cluster}" if cluster else ""
        raise InstanceQueryError(
            subject=f"feed {feed!r}{place}", reason="it has no inbox", next_step="Name a feed that declares an inbox."
        )
    for record in with_inbox:
        if not takes_at(record, context.as_of):
            raise InstanceQueryError(
                subject=f"feed {feed!r} on {record.cluster}",
                reason="the present is outside its validity",
                next_step="Correct the validity.",
            )
    if not dry_run:
        require_mode(context.database, "take from inboxes")
    return tuple(_take(context, record, author, progress, dry_run=dry_run) for record in with_inbox)


def _take(
    context: OperationContext,
    record: FeedRecord,
    author: str,
    progress: Callable[[str, int, int], object],
    *,
    dry_run: bool,
) -> InboxResult:
    seen: dict[str, SeenFile] = {}
    done, goes_on = 0, True
    while goes_on:
        before = done
        found = find_files(context.stores, record)
        real_now = context.real_clock.now()
        if dry_run:
            files = preview_files(context.database, record, found, real_now)
        else:
            is_first = not seen  # later ones remember what the first has found out
            files = take_files(
                context.database, context.stores, record, found, context.as_of, real_now, is_asked=is_first
            )
        seen |= {file.name: file for file in files}
        done = sum(file.status is not FileStatus.READY for file in seen.values())
        progress("files taken", done, len(seen))
        goes_on = not dry_run and before < done < len(seen)
    taken = [file.nominal_time for file in seen.values() if file.status is FileStatus.TAKEN and file.nominal_time]
    if taken:
        instances = sorted({render_datetime(time) for time in taken})
        target = f"feed {record.feed!r} on {record.cluster}"
        note_target(context, author, "feed take", target, files=len(taken), instances=instances)
    inbox = inbox_of(record)
    return InboxResult(
        feed=record.feed,
        cluster=record.cluster,
        url=context.stores.url(inbox.store, inbox.directory),
        dry_run=dry_run,
        files=tuple(seen.values()),
    )
