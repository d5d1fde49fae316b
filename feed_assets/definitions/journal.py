"""Carry out the changes that the journal of the definitions has: file by file, then the record; or undo them.

Each step can be repeated, so whoever comes next finishes what was broken off.
"""

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime

from feed_assets.definitions.errors import DefinitionsChangedError
from feed_assets.definitions.folder import DefinitionFolder
from feed_assets.definitions.recording import append_versions
from feed_assets.definitions.renaming import rename_record
from feed_assets.entities.common import label_of
from feed_assets.loading.entity_files import Values
from feed_assets.log.audit import Audit
from feed_assets.log.definitions.changes import Changes
from feed_assets.log.definitions.records import AuditEntry, Change, ChangeState, FileChange, Rename, digest_content
from feed_assets.log.definitions.store import Definitions
from feed_assets.masking import get_logger
from feed_assets.sql.database import Database

_logger = get_logger(__name__)


def recover_changes(database: Database, folder: DefinitionFolder, now: datetime, values: Values) -> list[Change]:
    """Finish or undo interrupted changes, oldest first, and return them. The caller holds the lock of the definitions.

    A change is finished if each of its files is in the state before or after the change. If somebody edited one of them
    meanwhile, that edit stays, the other files are restored, and a warning is logged.
    """
    with database.read() as connection:
        prepared = Changes(connection).prepared()
    ended = []
    for change in prepared:
        foreign = [each.file for each in change.files if find_digest(folder, each.file) not in _expected_digests(each)]
        if foreign:
            _logger.warning(
                "the change %d of the definitions (%s, by %s) was interrupted, and %s was edited since: it is undone",
                change.number,
                change.origin,
                change.author,
                " and ".join(foreign),
            )
            ended.append(undo_change(database, folder, change, now))
        else:
            interrupted = "the change %d of the definitions (%s, by %s) was interrupted: it is finished now"
            _logger.warning(interrupted, change.number, change.origin, change.author)
            write_files(folder, change)
            ended.append(finish_change(database, folder, change, now, values))
    return ended


def write_files(folder: DefinitionFolder, change: Change) -> None:
    """Bring the files to their state after the change.

    Raises:
        DefinitionsChangedError: a file was edited by others since the change was prepared; that file is left alone.
    """
    for each in change.files:
        if find_digest(folder, each.file) not in _expected_digests(each):
            raise DefinitionsChangedError(location=folder.location, files=(each.file,))
        _write(folder, each.file, each.after)


def finish_change(
    database: Database, folder: DefinitionFolder, change: Change, now: datetime, values: Values
) -> Change:
    """Record the versions of a change whose files are written, and mark the change as done.

    Raises:
        DefinitionsChangedError: another process took the change over and undid it.
    """
    with database.begin() as connection:
        if Changes(connection).end(change, ChangeState.DONE, now):
            if change.rename is not None:
                rename_record(connection, change.rename, values)
            versions = append_versions(connection, change.versions)
            if change.rename is not None:  # here, so that whoever finishes it notes who wanted it
                Audit(connection).append(_noted(change, change.rename, versions[0].version))
    return _find_ended(database, folder, change, ChangeState.DONE)


def _noted(change: Change, rename: Rename, version: int) -> AuditEntry:
    details = {"former": rename.former, "version": version, "change": change.change_id}
    target = label_of((rename.kind, rename.name))
    return AuditEntry(
        recorded_at=rename.renamed_at, author=rename.author, action="rename", target=target, details=details
    )


def undo_change(database: Database, folder: DefinitionFolder, change: Change, now: datetime) -> Change:
    """Restore the files that the change has written, and mark it as undone. Edits by others stay."""
    for each in reversed(change.files):
        if each.after_digest != each.before_digest and find_digest(folder, each.file) == each.after_digest:
            _write(folder, each.file, each.before)
    with database.begin() as connection:
        if Changes(connection).end(change, ChangeState.UNDONE, now):
            Definitions(connection).bump_revision()
    return _find_ended(database, folder, change, ChangeState.UNDONE)


def find_digest(folder: DefinitionFolder, file: str) -> str | None:
    """Return the sha256 of a file in its present state; None if there is no such file."""
    content = folder.read_file(file)
    return None if content is None else digest_content(content)


def _expected_digests(change: FileChange) -> Collection[str | None]:
    return (change.before_digest, change.after_digest)


def _write(folder: DefinitionFolder, file: str, text: str | None) -> None:
    if text is None:
        folder.remove(file)
    else:
        folder.write(file, text.encode())


def _find_ended(database: Database, folder: DefinitionFolder, change: Change, state: ChangeState) -> Change:
    with database.read() as connection:
        ended = Changes(connection).find(change.change_id)
    if ended is None or ended.state is not state:
        raise DefinitionsChangedError(location=folder.location, files=tuple(each.file for each in change.files))
    return replace(ended, versions=change.versions)
