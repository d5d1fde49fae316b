"""Finishing and undoing a change of the definition store that the journal has noted.

A change goes through three steps, each of which can be repeated: noted (its files and versions stand in the journal),
written (its files, one by one), done (its versions and its end, in one transaction).
"""

import logging
from collections.abc import Collection
from dataclasses import replace
from datetime import datetime

from feed_assets.definitions.errors import DefinitionsChangedError
from feed_assets.definitions.folder import DefinitionFolder
from feed_assets.state.changes import Changes
from feed_assets.state.database import Database
from feed_assets.state.definition_records import Change, ChangeState, FileChange, digest_content
from feed_assets.state.definitions import Definitions

_logger = logging.getLogger(__name__)


def recover_changes(database: Database, folder: DefinitionFolder, now: datetime) -> list[Change]:
    """Finish what has broken off, oldest first; returns what was finished or undone. The caller has the turn.

    A change is finished if each of its files is still as it was before, or already as it should be. If somebody edited
    one meanwhile, theirs stays, the other files become what they were, and a warning is logged.
    """
    with database.read() as connection:
        prepared = Changes(connection).prepared()
    ended = []
    for change in prepared:
        foreign = [each.file for each in change.files if find_digest(folder, each.file) not in _known(each)]
        if foreign:
            _logger.warning(
                "the change %d of the definitions (%s, by %s) broke off, and %s was edited since: it is undone",
                change.number,
                change.origin,
                change.author,
                " and ".join(foreign),
            )
            ended.append(undo_change(database, folder, change, now))
        else:
            write_files(folder, change)
            ended.append(finish_change(database, folder, change, now))
    return ended


def write_files(folder: DefinitionFolder, change: Change) -> None:
    """Bring the files to what they should be after the change.

    Raises:
        DefinitionsChangedError: somebody else has edited one of them since the change was noted; it is left alone.
    """
    for each in change.files:
        if find_digest(folder, each.file) not in _known(each):
            raise DefinitionsChangedError(location=folder.location, files=(each.file,))
        _write(folder, each.file, each.after)


def finish_change(database: Database, folder: DefinitionFolder, change: Change, now: datetime) -> Change:
    """Record the versions of a change whose files are written, and its end.

    Raises:
        DefinitionsChangedError: somebody else took it over and undid it.
    """
    with database.begin() as connection:
        if Changes(connection).end(change, ChangeState.DONE, now):
            definitions = Definitions(connection)
            definitions.append(change.versions)
            definitions.bump_revision()
    return _find_ended(database, folder, change, ChangeState.DONE)


def undo_change(database: Database, folder: DefinitionFolder, change: Change, now: datetime) -> Change:
    """Bring the files that the change has written back to what they were, and note that; foreign edits stay."""
    for each in reversed(change.files):
        if each.after_digest != each.before_digest and find_digest(folder, each.file) == each.after_digest:
            _write(folder, each.file, each.before)
    with database.begin() as connection:
        if Changes(connection).end(change, ChangeState.UNDONE, now):
            Definitions(connection).bump_revision()
    return _find_ended(database, folder, change, ChangeState.UNDONE)


def find_digest(folder: DefinitionFolder, file: str) -> str | None:
    """The sha256 of a file as it is; None if there is no such file."""
    content = folder.read_file(file)
    return None if content is None else digest_content(content)


def _known(change: FileChange) -> Collection[str | None]:
    return (change.before_digest, change.after_digest)


def _write(folder: DefinitionFolder, file: str, text: str | None) -> None:
    if text is None:
        folder.remove(file)
    else:
        folder.write(file, text.encode())


def _find_ended(database: Database, folder: DefinitionFolder, change: Change, wanted: ChangeState) -> Change:
    with database.read() as connection:
        ended = Changes(connection).find(change.change_id)
    if ended is None or ended.state is not wanted:
        raise DefinitionsChangedError(location=folder.location, files=tuple(each.file for each in change.files))
    return replace(ended, versions=change.versions)
