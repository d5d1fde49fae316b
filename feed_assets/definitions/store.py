"""The store of definitions: files that say what is declared, a journal of changes, and the record of every version.

A change is noted in the journal, then made file by file, then recorded. One that breaks off is finished (or undone,
where somebody edited the same files meanwhile) by whoever uses the store next: all of a change is seen, or nothing.
"""

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from feed_assets.definitions.contents import Contents, ContentsReader, Quarantined, StoredDocument
from feed_assets.definitions.edits import Edit, Put, apply_edits, resolve_edits
from feed_assets.definitions.errors import DefinitionsChangedError, DefinitionStoreError
from feed_assets.definitions.folder import DefinitionFolder
from feed_assets.definitions.recording import Newest, decide_versions, stands_in_folder
from feed_assets.definitions.recovery import find_digest, finish_change, recover_changes, undo_change, write_files
from feed_assets.entities.common import label_of
from feed_assets.entities.errors import DefinitionsError
from feed_assets.issues import EntityKey
from feed_assets.loading.entity_files import LoadedBundle
from feed_assets.loading.interpolation import Values
from feed_assets.state.changes import Changes
from feed_assets.state.database import Database
from feed_assets.state.definition_records import Change, ChangeState, DefinitionVersion, FileChange
from feed_assets.state.definitions import REVISION_CURSOR, Definitions

REVISION = REVISION_CURSOR
"""The cursor that is raised whenever definitions have changed."""

FOLDER_ORIGIN = "folder"
"""The origin of versions that somebody made by editing files."""

UNKNOWN_AUTHOR = "unknown"
_ATTEMPTS = 3

Check: TypeAlias = Callable[[LoadedBundle, LoadedBundle], None]
"""Given what is declared before and after a change; raises to refuse it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What the store holds at one moment.

    `bundle` is what the files declare and what is wrong with them; `documents` are the texts, also of entities that
    cannot be used; `newest` is the record, deletions included. `revision` grows with every change.
    """

    bundle: LoadedBundle
    documents: Mapping[EntityKey, StoredDocument]
    newest: Newest
    quarantined: tuple[Quarantined, ...]
    revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What edits would make of the store: what is declared before and after, and the files that would change."""

    before: Loaded
    after: LoadedBundle
    documents: Mapping[EntityKey, StoredDocument]
    files: tuple[FileChange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Position:
    number: int
    revision: int
    is_settled: bool


class DefinitionStore:
    """The definitions in a folder, with their history in the state database.

    Several processes may use one store at a time; changes take turns. Keep the object: it parses a file only when the
    file has changed.
    """

    def __init__(self, database: Database, folder: DefinitionFolder, values: Values) -> None:
        self._database = database
        self._folder = folder
        self._values = values
        self._reader = ContentsReader(folder, values)

    @property
    def folder(self) -> DefinitionFolder:
        """Where the files are."""
        return self._folder

    @property
    def values(self) -> Values:
        """Where the values of references come from."""
        return self._values

    def load(self, now: datetime) -> Loaded:
        """What is declared, between two changes; one that has broken off is finished or undone first.

        Raises:
            LocationUnreadableError: there is no such place, or it cannot be read.
        """
        for _ in range(_ATTEMPTS):
            position = self._position()
            if position.is_settled:
                contents, newest = self._read()
                if self._position() == position:
                    return _loaded(contents, newest, position.revision)
            else:
                self.recover(now)
        with self._database.changing_definitions():
            self._recover(now)
            contents, newest = self._read()
            return _loaded(contents, newest, self._position().revision)

    def preview(self, edits: Iterable[Edit], *, now: datetime) -> Preview:
        """What edits would do; nothing is changed.

        Raises:
            DefinitionsError: as `change`, but for its check.
        """
        with self._database.changing_definitions():
            self._recover(now)
            contents, newest = self._read()
            revision = self._position().revision
            after, _, files = self._edited(contents, edits)
        loaded = _loaded(contents, newest, revision)
        return Preview(before=loaded, after=after.loaded, documents=after.documents, files=files)

    def change(
        self, edits: Iterable[Edit], *, author: str, origin: str, now: datetime, check: Check | None = None
    ) -> Change | None:
        """Make all edits or none; None if the files say it already.

        What was edited by other means before is recorded first. A version is recorded for each entity of which the
        edits change what it says; comments alone make none.

        Args:
            edits: what to declare and what not.
            author: who changes it, for the record.
            origin: the command, for the record.
            now: the time of the change.
            check: asked with what is declared before and after; raises to refuse.

        Raises:
            DefinitionsError: a text cannot be read as an entity; carries the issues.
            DefinitionStoreError: the files do not allow it, or the place refused.
            DefinitionsChangedError: somebody edited the same files meanwhile.
        """
        with self._database.changing_definitions():
            self._recover(now)
            contents, newest = self._read()
            after, keys, files = self._edited(contents, edits)
            if not files:
                return None
            if check is not None:
                check(contents.loaded, after.loaded)
            if self._record(contents, newest, now, None):
                newest = self._newest()
            self._refuse_foreign_edits(files)
            change_id = uuid.uuid4().hex
            versions = decide_versions(
                after, newest, keys, author_of=lambda _: author, origin=origin, now=now, change_id=change_id
            )
            change = Change(
                change_id=change_id,
                number=0,
                state=ChangeState.PREPARED,
                author=author,
                origin=origin,
                begun_at=now,
                files=files,
                versions=tuple(versions),
            )
            with self._database.begin() as connection:
                change = Changes(connection).prepare(change)
            return self._made(change, now)

    def recover(self, now: datetime) -> list[Change]:
        """Finish or undo what has broken off, and return it; waits for a change that is being made."""
        with self._database.changing_definitions():
            return self._recover(now)

    def record_found(
        self, now: datetime, author: str | None = None, *, check: Callable[[LoadedBundle], None] | None = None
    ) -> list[DefinitionVersion]:
        """Record what the files say and the record does not: somebody edited them by other means.

        Without `author` the owner of the file is noted, where the place knows owners. Entities that cannot be read stay
        what they were. `check` is asked with what the files say; it raises to refuse.

        Raises:
            LocationUnreadableError: there is no such place, or it cannot be read.
        """
        with self._database.changing_definitions():
            self._recover(now)
            contents, newest = self._read()
            if check is not None:
                check(contents.loaded)
            return self._record(contents, newest, now, author)

    def _made(self, change: Change, now: datetime) -> Change:
        is_written = False
        try:
            write_files(self._folder, change)
            is_written = True
        finally:
            if not is_written:
                undo_change(self._database, self._folder, change, now)
        return finish_change(self._database, self._folder, change, now)

    def _recover(self, now: datetime) -> list[Change]:
        return recover_changes(self._database, self._folder, now)

    def _edited(
        self, contents: Contents, edits: Iterable[Edit]
    ) -> tuple[Contents, Collection[EntityKey], tuple[FileChange, ...]]:
        """What the files would declare, which entities the edits are about, and the files that change."""
        wanted = resolve_edits(edits, self._values)
        texts = apply_edits(contents, wanted, self._folder.only_file)
        after = self._reader.with_texts(contents, texts) if texts else contents
        _refuse_unreadable(after, wanted)
        _refuse_side_effects(self._folder.location, contents, after, texts, wanted)
        files = tuple(
            FileChange.of(name, contents.files[name].text if name in contents.files else None, texts[name])
            for name in sorted(texts)
        )
        return after, wanted.keys(), files

    def _record(self, contents: Contents, newest: Newest, now: datetime, author: str | None) -> list[DefinitionVersion]:
        def author_of(file: str) -> str:
            return author or self._folder.owner_of(file) or UNKNOWN_AUTHOR

        versions = decide_versions(contents, newest, author_of=author_of, origin=FOLDER_ORIGIN, now=now)
        if not versions:
            return []
        with self._database.begin() as connection:
            definitions = Definitions(connection)
            appended = definitions.append(versions)
            definitions.bump_revision()
        return appended

    def _read(self) -> tuple[Contents, Newest]:
        newest = self._newest()
        if not self._folder.exists() and not any(map(stands_in_folder, newest.values())):
            return self._reader.empty(), newest
        return self._reader.read(), newest

    def _newest(self) -> Newest:
        with self._database.read() as connection:
            return Definitions(connection).newest()

    def _position(self) -> _Position:
        with self._database.read() as connection:
            changes = Changes(connection)
            return _Position(
                number=changes.last_number(),
                revision=Definitions(connection).revision(),
                is_settled=not changes.has_prepared(),
            )

    def _refuse_foreign_edits(self, files: Iterable[FileChange]) -> None:
        """Whoever edits files by other means has no turn to wait for; this keeps their edits out of our way."""
        foreign = [each.file for each in files if find_digest(self._folder, each.file) != each.before_digest]
        if foreign:
            raise DefinitionsChangedError(location=self._folder.location, files=tuple(foreign))


def _loaded(contents: Contents, newest: Newest, revision: int) -> Loaded:
    return Loaded(
        bundle=contents.loaded,
        documents=contents.documents,
        newest=newest,
        quarantined=contents.quarantined,
        revision=revision,
    )


def _refuse_unreadable(after: Contents, wanted: Mapping[EntityKey, Put | None]) -> None:
    for key, put in wanted.items():
        document = after.documents.get(key)
        if put is None and document is not None:
            raise DefinitionStoreError(
                location=document.file,
                reason=f"{label_of(key)} cannot be taken out of it",
                next_step="Remove it by hand.",
            )
        if put is not None and (document is None or document.entity is None or key in after.loaded.broken):
            raise DefinitionsError(location=put.source or label_of(key), issues=after.issues_about(key))


def _refuse_side_effects(
    location: str,
    before: Contents,
    after: Contents,
    texts: Collection[str],
    wanted: Collection[EntityKey],
) -> None:
    """Nothing but the entities in question may change with the files that they stand in."""
    for name in texts:
        for contents, other in ((before, after), (after, before)):
            declared = contents.files[name].documents if name in contents.files else {}
            for key in declared.keys() - wanted:
                twin = other.documents.get(key)
                if twin is None or twin.entity != declared[key].entity:
                    raise DefinitionStoreError(
                        location=location,
                        reason=f"the file {name!r} cannot be edited without changing {label_of(key)}",
                        next_step="Separate its documents with lines of three dashes.",
                    )
