"""Carry out the changes that the journal of the definitions has: file by file, then the record; or undo them.

Each step can be repeated, so whoever comes next finishes what was broken off.
"""

from dataclasses import dataclass, replace
from datetime import datetime

from feed_assets.definitions.errors import DefinitionsChangedError
from feed_assets.definitions.folder import DefinitionFolder
from feed_assets.definitions.recording import append_versions
from feed_assets.definitions.renaming import rename_record
from feed_assets.entities.common import label_of
from feed_assets.loading.entity_files import Values
from feed_assets.log.audit import Audit
from feed_assets.log.definitions.changes import Changes
from feed_assets.log.definitions.records import AuditEntry, Change, ChangeState, FileChange, digest_content
from feed_assets.log.definitions.store import Definitions
from feed_assets.masking import get_logger
from feed_assets.sql.database import Database

_logger = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Journal:
    """The journal of the definitions in a folder. Whoever uses it holds the lock of the definitions."""

    database: Database
    folder: DefinitionFolder
    values: Values

    def make(self, change: Change, now: datetime) -> Change:
        """Prepare a change, write its files, and record it; undo it if a file cannot be written.

        Raises:
            DefinitionsChangedError: a file was edited by others, or another process undid the change.
        """
        with self.database.begin() as connection:
            change = Changes(connection).prepare(change)
        try:
            self._write_files(change)
        except BaseException:
            self._undo(change, now)
            raise
        return self._finish(change, now)

    def recover(self, now: datetime) -> list[Change]:
        """Finish or undo interrupted changes, oldest first, and return them.

        A change is finished if each of its files is in the state before or after the change. If somebody edited one of
        them meanwhile, that edit stays, the other files are restored, and a warning is logged.
        """
        with self.database.read() as connection:
            prepared = Changes(connection).prepared()
        ended = []
        interrupted = "the change %d of the definitions (%s, by %s) was interrupted"
        for change in prepared:
            told = change.number, change.origin, change.author
            foreign = [each.file for each in change.files if self._is_foreign(each)]
            if foreign:
                _logger.warning(f"{interrupted}, and %s was edited since: it is undone", *told, " and ".join(foreign))
                ended.append(self._undo(change, now))
            else:
                _logger.warning(f"{interrupted}: it is finished now", *told)
                self._write_files(change)
                ended.append(self._finish(change, now))
        return ended

    def _is_foreign(self, file: FileChange) -> bool:
        """Return whether a file was edited by others since its change was prepared."""
        return find_digest(self.folder, file.file) not in (file.before_digest, file.after_digest)

    def _write_files(self, change: Change) -> None:
        """Bring the files to their state after the change; one that others have edited is left alone."""
        for each in change.files:
            if self._is_foreign(each):
                raise DefinitionsChangedError(location=self.folder.location, files=(each.file,))
            self._write(each.file, each.after)

    def _finish(self, change: Change, now: datetime) -> Change:
        """Record the versions of a change whose files are written, and mark the change as done."""
        with self.database.begin() as connection:
            if Changes(connection).end(change, ChangeState.DONE, now):
                if change.rename is not None:
                    rename_record(connection, change.rename, self.values)
                versions = append_versions(connection, change.versions)
                if (rename := change.rename) is not None:  # here, so that whoever finishes it notes who wanted it
                    entry = AuditEntry(
                        recorded_at=rename.renamed_at,
                        author=rename.author,
                        action="rename",
                        target=label_of((rename.kind, rename.name)),
                        details={
                            "former": rename.former,
                            "version": versions[0].version,
                            "change": change.change_id,
                        },
                    )
                    Audit(connection).append(entry)
        return self._find_ended(change, ChangeState.DONE)

    def _undo(self, change: Change, now: datetime) -> Change:
        """Restore the files that the change has written, and mark it as undone. Edits by others stay."""
        for each in reversed(change.files):
            if each.after_digest != each.before_digest and find_digest(self.folder, each.file) == each.after_digest:
                self._write(each.file, each.before)
        with self.database.begin() as connection:
            if Changes(connection).end(change, ChangeState.UNDONE, now):
                Definitions(connection).bump_revision()
        return self._find_ended(change, ChangeState.UNDONE)

    def _write(self, file: str, text: str | None) -> None:
        if text is None:
            self.folder.remove(file)
        else:
            self.folder.write(file, text.encode())

    def _find_ended(self, change: Change, state: ChangeState) -> Change:
        with self.database.read() as connection:
            ended = Changes(connection).find(change.change_id)
        if ended is None or ended.state is not state:
            raise DefinitionsChangedError(
                location=self.folder.location, files=tuple(each.file for each in change.files)
            )
        return replace(ended, versions=change.versions)


def find_digest(folder: DefinitionFolder, file: str) -> str | None:
    """Return the sha256 of a file in its present state; None if there is no such file."""
    content = folder.read_file(file)
    return None if content is None else digest_content(content)
