"""What somebody who asks for the files of an inbox gets: all that have settled, of any size, or a preview."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from feed_assets.context.errors import InstanceQueryError
from feed_assets.context.operation import ChangeContext, LifecycleContext, note_target
from feed_assets.context.safe_mode import require_mode
from feed_assets.instances.inbox.inbox_files import (
    FileStatus,
    InboxFile,
    InboxState,
    SeenFile,
    cursor_of,
    inbox_of,
    judge_file,
    list_inbox,
)
from feed_assets.instances.inbox.ingest import take_files, takes_at
from feed_assets.instances.inbox.store import ListedVersions, VersionStatus
from feed_assets.instances.inbox.taken import tell_held, tell_taken
from feed_assets.log.cursors import Cursors
from feed_assets.plan.records import FeedRecord
from feed_assets.timing.dates import render_datetime


def preview_files(context: LifecycleContext, record: FeedRecord, found: Sequence[InboxFile]) -> tuple[SeenFile, ...]:
    """Return what is known of files in an inbox, and which are READY to be taken; reads none of them."""
    real_now = context.real_now
    with context.database.read() as connection:
        state = InboxState.parse(record, Cursors(connection).get(cursor_of(record)))
        known = [each for each in ListedVersions(connection, *record.key).known() if each.status is VersionStatus.TAKEN]
        held = tell_held(connection, record, {each.event for each in known})
    taken = {(each.name, each.version): tell_taken(each.event, held) for each in known}
    judged = [
        (file, (FileStatus.KNOWN, why))
        if (why := taken.get((file.name, file.version))) is not None
        else (file, judge_file(record, file, state.left.get(file.name), real_now, None))
        for file in found
    ]
    return tuple(SeenFile(name=file.name, bytes=file.size, status=status, reason=why) for file, (status, why) in judged)


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxResult:
    """The files of an inbox, and what became of them, or would."""

    feed: str
    cluster: str
    url: str
    dry_run: bool
    files: tuple[SeenFile, ...]


def take_from_inboxes(
    context: ChangeContext,
    feed: str,
    *,
    cluster: str | None = None,
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
    if not context.dry_run:
        require_mode(context.database, "take from inboxes")
    return tuple(_take(context, record, progress) for record in with_inbox)


def _take(context: ChangeContext, record: FeedRecord, progress: Callable[[str, int, int], object]) -> InboxResult:
    seen: dict[str, SeenFile] = {}
    done, goes_on = 0, True
    while goes_on:
        before = done
        listing = list_inbox(context, record)
        if context.dry_run:
            files = preview_files(context, record, listing.files)
        else:
            is_first = not seen  # later ones remember what the first has found out
            files = take_files(context, record, listing, is_asked=is_first)
        before_it = {name for name, file in seen.items() if file.status is FileStatus.TAKEN}
        seen |= {file.name: file for file in files if file.status is not FileStatus.KNOWN or file.name not in before_it}
        done = sum(file.status is not FileStatus.READY for file in seen.values())
        progress("files taken", done, len(seen))
        goes_on = not context.dry_run and before < done < len(seen)
    taken = [file.nominal_time for file in seen.values() if file.status is FileStatus.TAKEN and file.nominal_time]
    if taken:
        instances = sorted({render_datetime(time) for time in taken})
        target = f"feed {record.feed!r} on {record.cluster}"
        note_target(context, "feed take", target, files=len(taken), instances=instances)
    inbox = inbox_of(record)
    return InboxResult(
        feed=record.feed,
        cluster=record.cluster,
        url=context.stores.url(inbox.store, inbox.directory),
        dry_run=context.dry_run,
        files=tuple(seen.values()),
    )
