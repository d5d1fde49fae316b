"""The definition store: files that declare entities, a journal of changes, and a record of every version, so that
releases can refer to recorded versions.

A change has three steps, each of which can be repeated: it is prepared in the journal (its files and versions), then
made file by file, then recorded with its end, in one transaction. The next user of the store finishes an interrupted
change, or undoes it if somebody edited the same files meanwhile. So a change is visible as a whole or not at all.
"""

import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeAlias, TypeVar

from feed_assets.context.errors import JobOwnedError
from feed_assets.context.preconditions import require_demanded
from feed_assets.definitions.contents import Contents, ContentsReader
from feed_assets.definitions.declaring import require_declares
from feed_assets.definitions.edits import Edit, Put, PutFile, apply_edits, resolve_edits
from feed_assets.definitions.errors import (
    DefinitionsChangedError,
    DefinitionStoreError,
    EditedHereError,
    RenamedInFilesError,
)
from feed_assets.definitions.folder import DefinitionFolder, digest_as_written, find_version_entity, open_folder
from feed_assets.definitions.journal import Journal, find_digest
from feed_assets.definitions.ownership import (
    PYTHON_ORIGIN,
    find_places,
    place_of_python,
    put_place,
    require_few_deleted,
    require_not_replaced,
    require_own_record,
)
from feed_assets.definitions.recording import (
    Newest,
    append_versions,
    decide_versions,
    find_renamed,
    is_gone,
    is_in_folder,
)
from feed_assets.entities.bundle import AnyEntity
from feed_assets.entities.common import label_of
from feed_assets.entities.errors import DefinitionsError
from feed_assets.issues import EntityKey
from feed_assets.loading.bundles import LoadedBundle
from feed_assets.loading.entity_files import Values, digest_files, read_declared_files, values_of
from feed_assets.loading.yaml_writer import render_yaml
from feed_assets.log.definitions.changes import Changes
from feed_assets.log.definitions.records import (
    Change,
    ChangeState,
    DefinitionAction,
    DefinitionVersion,
    DocumentFormat,
    FileChange,
    NewDefinition,
    Rename,
)
from feed_assets.log.definitions.store import Definitions
from feed_assets.plan.location import Location
from feed_assets.releases.store import store_pinned_files
from feed_assets.settings import Settings
from feed_assets.sql.database import Database

FOLDER_ORIGIN = "folder"
"""The origin of versions that somebody made by editing files."""

UNKNOWN_AUTHOR = "unknown"
_ATTEMPTS = 3
_Found = TypeVar("_Found")

Check: TypeAlias = Callable[[LoadedBundle, LoadedBundle], None]
"""A check of a change: receives the declared entities before and after it, and raises to refuse it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded(Contents):
    """The contents of the store at one moment, and its record: `newest` includes deletions, and `revision` grows with
    every change.
    """

    newest: Newest
    revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """The effect that edits would have: the contents before and after, and the files that would change."""

    before: Loaded
    after: Contents
    files: tuple[FileChange, ...]


class DefinitionStore:
    """The definitions in a folder, with their history in the state database.

    Several processes and threads may use one store at a time; their changes are serialized. Keep the object: it reads
    and parses a file again only after the file has changed. `unconfirmed_deletions` is the share of the declared
    entities that may disappear from the files at once without a confirmation. If it `has_front`, edits of the files are
    refused.
    """

    def __init__(
        self,
        database: Database,
        folder: DefinitionFolder,
        values: Values,
        unconfirmed_deletions: float = 0.5,
        *,
        has_front: bool = False,
    ) -> None:
        self._database = database
        self._unconfirmed_deletions = unconfirmed_deletions
        self._reader = ContentsReader(folder, values)
        self._journal = Journal(database, folder, values)
        self.folder = folder
        self.values = values
        self.has_front = has_front

    def load(self, now: datetime) -> Loaded:
        """Return the declared entities, never in the middle of a change; finish or undo an interrupted change first.

        Raises:
            LocationUnreadableError: the location does not exist or cannot be read.
        """
        return self.read_whole(self._read, now)

    def preview(self, edits: Iterable[Edit], *, now: datetime, jobs: Collection[str] = ()) -> Preview:
        """Return the effect of edits without changing anything. They may change what `jobs` of extensions have made.

        Raises:
            DefinitionsError: as `change`, except for its check.
        """
        before = self.load(now)
        after, _, files = self._edited(before, edits, jobs)
        return Preview(before=before, after=after, files=files)

    def change(
        self,
        edits: Iterable[Edit],
        *,
        author: str,
        origin: str,
        now: datetime,
        check: Check | None = None,
        rename: Rename | None = None,
        jobs: Collection[str] = (),
    ) -> Change | None:
        """Make all edits or none, and return the change; None if the files already match the edits.

        Earlier edits made outside the store are recorded first. A version is recorded for each entity whose meaning
        changes; edits of comments alone make none.

        Args:
            edits: the entities to declare and to remove.
            author: who changes it, for the record.
            origin: the command, for the record.
            now: the time of the change.
            check: receives the declared entities before and after; raises to refuse.
            rename: the edits give an entity another name, and so does the change in all that is recorded. Earlier edits
                are not recorded first. None is returned if the record has the name already.
            jobs: the jobs of extensions that change what they have made.

        Raises:
            DefinitionsError: a text cannot be read as an entity; carries the issues.
            DefinitionStoreError: the files do not allow the change, or the filesystem refused it.
            DefinitionsChangedError: somebody edited the same files meanwhile.
            JobOwnedError: another job of an extension has made one of the entities.
            MassDeletionError: many entities have disappeared from the files before this change.
        """
        with self._database.changing_definitions():
            self._journal.recover(now)
            before = self._read()
            if rename is not None and is_gone(before.newest.get((rename.kind, rename.former))):
                return None
            after, keys, files = self._edited(before, edits, jobs)
            if not files and rename is None:
                return None
            require_demanded()
            if check is not None:
                check(before.bundle, after.bundle)
            newest: Newest = {}
            if rename is None:
                newest = {**before.newest, **{each.key: each for each in self._record(before, now, None)}}
            # Edits outside the store are not serialized with changes.
            foreign = [each.file for each in files if find_digest(self.folder, each.file) != each.before_digest]
            if foreign:
                raise DefinitionsChangedError(location=self.folder.location, files=tuple(foreign))
            change_id = uuid.uuid4().hex
            if rename is not None:
                keys = [(rename.kind, rename.name)]
            versions = decide_versions(
                after, newest, keys, author_of=lambda _: author, origin=origin, now=now, change_id=change_id
            )
            if rename is not None:
                versions = [replace(each, action=DefinitionAction.RENAMED) for each in versions]
            change = Change(
                change_id=change_id,
                number=0,
                state=ChangeState.PREPARED,
                author=author,
                origin=origin,
                begun_at=now,
                files=files,
                versions=tuple(versions),
                rename=rename,
            )
            return self._journal.make(change, now)

    def read_whole(self, read: Callable[[], _Found], now: datetime) -> _Found:
        """Return what is read of files and record, never in the middle of a change; finish or undo an interrupted one
        first, and wait for the lock only if one is being made.
        """
        for _ in range(_ATTEMPTS):
            position = self._position()
            if position is None:
                break
            found = read()
            if self._position() == position:
                return found
        with self._database.changing_definitions():
            self._journal.recover(now)
            return read()

    def record_found(
        self,
        now: datetime,
        author: str | None = None,
        *,
        check: Callable[[LoadedBundle], None] | None = None,
        may_delete_all: bool = False,
    ) -> list[DefinitionVersion]:
        """Record edits that were made to the files outside the store.

        Without `author` the owner of the file is recorded, if the filesystem has owners. Entities that cannot be read
        keep their version. `check` receives the contents of the files and raises to refuse.

        Raises:
            LocationUnreadableError: the location does not exist or cannot be read.
            MassDeletionError: many entities have disappeared, and `may_delete_all` is not set; nothing was recorded.
            ForeignDefinitionsError: the record belongs to another project, and `may_delete_all` is not set.
            ReplacedDefinitionsError: another place has replaced this one, and `may_delete_all` is not set.
            EditedHereError: what is declared comes from a front, and was edited here.
        """
        with self._database.changing_definitions():
            self._journal.recover(now)
            found = self._read()
            if check is not None:
                require_demanded()
                check(found.bundle)
            return self._record(found, now, author, may_delete_all=may_delete_all)

    def _edited(
        self, contents: Contents, edits: Iterable[Edit], jobs: Collection[str]
    ) -> tuple[Contents, Collection[EntityKey], tuple[FileChange, ...]]:
        """Return the contents after the edits, the keys of the edited entities, and the files that change."""
        edits = tuple(edits)
        puts = resolve_edits(edits, self.values)
        texts = apply_edits(contents, puts, self.folder.only_file)
        whole = {edit.name: edit.text for edit in edits if isinstance(edit, PutFile)}
        texts |= {name: text for name, text in whole.items() if text != contents.text_of(name)}
        after = self._reader.with_texts(contents, texts) if texts else contents
        puts |= _puts_of(whole, contents, after)
        edited = {*puts, *(put.replaces for put in puts.values() if put is not None and put.replaces is not None)}
        _refuse_foreign(contents, puts, edited, jobs)
        _refuse_unreadable(after, puts)
        require_declares(contents.bundle, {key: after.bundle.bundle.find(key) for key in edited})
        _refuse_side_effects(self.folder.location, contents, after, texts, edited)
        files = tuple(FileChange.of(name, contents.text_of(name), texts[name]) for name in sorted(texts))
        return after, puts.keys(), files

    def _record(
        self, found: Loaded, now: datetime, author: str | None, *, may_delete_all: bool = False
    ) -> list[DefinitionVersion]:
        def author_of(file: str) -> str:
            return author or self.folder.owner_of(file) or UNKNOWN_AUTHOR

        versions = decide_versions(found, found.newest, author_of=author_of, origin=FOLDER_ORIGIN, now=now)
        place = self.folder.location
        if not may_delete_all:
            self._require_own_record(place, found)
            declared = sum(map(is_in_folder, found.newest.values()))
            require_few_deleted(place, versions, declared, self._unconfirmed_deletions)
        if author is not None:
            keys = [(each.kind, each.name) for each in versions]
            require_declares(None, {key: found.bundle.bundle.find(key) for key in keys})
        if not versions:
            return []
        if self.has_front:
            kind, name, file = versions[0].kind, versions[0].name, self.folder.shown(versions[0].file)
            known = found.newest.get((kind, name))
            raise EditedHereError(file=file, kind=kind, name=name, version=None if known is None else known.version)
        with self._database.begin() as connection:
            if not may_delete_all:
                require_not_replaced(connection, place, FOLDER_ORIGIN, versions)
                self._require_none_renamed(found, versions)
            put_place(connection, place, FOLDER_ORIGIN)
            return append_versions(connection, versions)

    def _require_none_renamed(self, contents: Loaded, versions: Sequence[NewDefinition]) -> None:
        """Require that no entity that is to be recorded as new is one that was recorded under another name."""
        gone = [contents.newest[each.kind, each.name] for each in versions if each.action is DefinitionAction.DELETED]
        come = [(each.kind, each.name) for each in versions if each.action is DefinitionAction.SUBMITTED and gone]
        found = find_renamed(
            filter(None, (find_version_entity(each, self.values) for each in gone)),
            filter(None, (contents.documents[key].entity for key in come)),
        )
        for old, new in found:
            place = contents.documents[new.key]
            raise RenamedInFilesError(
                location=self.folder.shown(place.file),
                kind=old.kind.value,
                old=old.name,
                new=new.name,
                is_of_job=place.job is not None,
            )

    def _require_own_record(self, place: str, contents: Contents) -> None:
        """Ask under the lock: two projects that begin at once have both found an empty record."""
        with self._database.read() as connection:
            is_claimed = bool(find_places(connection))
        if is_claimed:
            require_own_record(self._database, place, self._unconfirmed_deletions, contents.documents.keys)

    def _read(self) -> Loaded:
        with self._database.read() as connection:
            newest, revision = Definitions(connection).newest(), Definitions(connection).revision()
        is_there = self.folder.exists() or any(map(is_in_folder, newest.values()))
        contents = self._reader.read() if is_there else self._reader.empty()
        return Loaded(
            files=contents.files,
            documents=contents.documents,
            jobs=contents.jobs,
            bundle=contents.bundle,
            newest=newest,
            revision=revision,
        )

    def _position(self) -> tuple[int, int] | None:
        """Return what every change raises; None while one is being made."""
        with self._database.read() as connection:
            changes = Changes(connection)
            return None if changes.has_prepared() else (changes.last_number(), Definitions(connection).revision())


def _puts_of(whole: Mapping[str, str | None], before: Contents, after: Contents) -> dict[EntityKey, Put | None]:
    """Return what whole files declare, and what they have declared and do not any more."""
    puts: dict[EntityKey, Put | None] = {}
    for name in whole:
        puts |= dict.fromkeys(before.files[name].declared if name in before.files else ())
        for key in after.files[name].declared if name in after.files else ():
            puts[key] = Put(text="", source=after.files[name].parsed.name)
    return puts


def _refuse_foreign(
    before: Contents, puts: Mapping[EntityKey, Put | None], edited: Collection[EntityKey], jobs: Collection[str]
) -> None:
    """Refuse edits of what a job of an extension has made, unless it is one of `jobs`."""
    for key in sorted(edited):
        document, put = before.documents.get(key), puts.get(key)
        for job in (document.job if document else None, put.job if put else None):
            if job is not None and job not in jobs:
                raise JobOwnedError(kind=key[0], name=key[1], job=job)


def _refuse_unreadable(after: Contents, puts: Mapping[EntityKey, Put | None]) -> None:
    for key, put in puts.items():
        document = after.documents.get(key)
        if put is None and document is not None:
            raise DefinitionStoreError(
                location=document.file,
                reason=f"{label_of(key)} cannot be removed from it",
                next_step="Remove it by hand.",
            )
        if put is not None and (document is None or document.entity is None or key in after.bundle.broken):
            raise DefinitionsError(location=put.source or label_of(key), issues=after.issues_about(key))


def _refuse_side_effects(
    location: str,
    before: Contents,
    after: Contents,
    texts: Collection[str],
    edited: Collection[EntityKey],
) -> None:
    """Refuse edits that would also change other entities in the same files."""
    for name in texts:
        for contents, other in ((before, after), (after, before)):
            declared = contents.files[name].documents if name in contents.files else {}
            for key in declared.keys() - edited:
                twin = other.documents.get(key)
                if twin is None or twin.entity != declared[key].entity:
                    raise DefinitionStoreError(
                        location=location,
                        reason=f"the file {name!r} cannot be edited without changing {label_of(key)}",
                        next_step="Separate its documents with lines of three dashes.",
                    )


def open_store(database: Database, settings: Settings) -> DefinitionStore:
    """Open the store of the definitions that the settings name."""
    folder = open_folder(settings.entities_location)
    has_front = bool(settings.front or settings.colos)
    values, share = values_of(settings), settings.unconfirmed_deletions
    return DefinitionStore(database, folder, values, share, has_front=has_front)


def record_location(database: Database, settings: Settings, location: Location, as_of: datetime) -> bool:
    """Record the definitions of a location and the files of its workflows, unless they are already recorded.

    Returns:
        Whether the location equals the record; False if its files have changed meanwhile.

    Raises:
        DefinitionsError: the files cannot be read, or many of the declared entities have disappeared at once.
    """
    if not store_pinned_files(database, location.plan, settings.root):
        return False
    if location.declared is not None:
        record_declared(database, location.declared, as_of, settings)
        return True
    values = values_of(settings)
    if digest_files(read_declared_files(settings), values) != location.digest:
        return False
    store = open_store(database, settings)
    store.record_found(as_of)
    with database.read() as connection:
        is_new_place = store.folder.location not in find_places(connection)
    if is_new_place:
        with database.begin() as connection:
            put_place(connection, store.folder.location, FOLDER_ORIGIN)
    return digest_files(read_declared_files(settings), values) == location.digest


def record_declared(
    database: Database, entities: Sequence[AnyEntity], as_of: datetime, settings: Settings
) -> list[DefinitionVersion]:
    """Record entities that were built in Python: the new, the changed and the removed ones.

    Raises:
        MassDeletionError: many of them have disappeared at once.
        ReplacedDefinitionsError: another place has replaced this one.
    """
    place = place_of_python(settings)
    with database.changing_definitions():
        with database.read() as connection:
            newest = Definitions(connection).newest()
            is_new_place = place not in find_places(connection)
        known = [key for key, version in newest.items() if not is_gone(version) and version.origin == PYTHON_ORIGIN]
        versions = list(_decide_declared({each.key: each for each in entities}, known, newest, as_of))
        require_few_deleted(place, versions, len(known), settings.unconfirmed_deletions)
        if not versions and not is_new_place:
            return []
        with database.begin() as connection:
            require_not_replaced(connection, place, PYTHON_ORIGIN, versions)
            put_place(connection, place, PYTHON_ORIGIN)
            definitions = Definitions(connection)
            appended = definitions.append(versions)
            if appended:
                definitions.bump_revision()
    return appended


def _decide_declared(
    declared: Mapping[EntityKey, AnyEntity], known: Iterable[EntityKey], newest: Newest, as_of: datetime
) -> Iterator[NewDefinition]:
    """Yield the versions to record of entities that were built in Python; those that are `known` and not declared any
    more are deleted.
    """
    for key in dict.fromkeys((*declared, *known)):
        entity, last = declared.get(key), newest.get(key)
        text = None if entity is None else render_yaml(entity)
        digest = None if entity is None or text is None else digest_as_written(entity, text, DocumentFormat.YAML)
        action = DefinitionAction.UPDATED if digest is not None else DefinitionAction.DELETED
        if last is None or is_gone(last):
            action = DefinitionAction.SUBMITTED
        elif last.digest == digest:
            continue
        yield NewDefinition(
            kind=key[0],
            name=key[1],
            action=action,
            digest=digest,
            text=text,
            format=DocumentFormat.YAML,
            file="",
            author=UNKNOWN_AUTHOR,
            origin=PYTHON_ORIGIN,
            recorded_at=as_of,
        )
