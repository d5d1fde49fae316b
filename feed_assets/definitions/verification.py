"""Verify that the store equals a serial history, by comparing its journal, its record and its files."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from feed_assets.definitions.contents import Contents, ContentsReader
from feed_assets.definitions.folder import DefinitionFolder, digest_as_written, find_version_entity
from feed_assets.definitions.journal import find_digest
from feed_assets.definitions.recording import decide_versions
from feed_assets.entities.common import label_of
from feed_assets.issues import EntityKey, Issue, Severity, Source
from feed_assets.loading.entity_files import Values
from feed_assets.log.definitions.changes import Changes
from feed_assets.log.definitions.records import Change, ChangeState, DefinitionAction, DefinitionVersion, NewDefinition
from feed_assets.log.definitions.store import Definitions
from feed_assets.sql.database import Database

_REPORT = "Report this, and keep the database and the folder as they are."
_RECORD = "Any command that changes definitions records it."


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreReport:
    """What contradicts a serial history of whole changes."""

    items: tuple[Issue, ...]

    @property
    def errors(self) -> int:
        """How many of the issues are no warnings."""
        return sum(each.severity is Severity.ERROR for each in self.items)

    @property
    def summary(self) -> str:
        """How many there are."""
        return f"{self.errors} errors, {len(self.items) - self.errors} warnings"

    @property
    def has_failed(self) -> bool:
        """Whether there are errors."""
        return self.errors > 0

    def document(self, name: str) -> Mapping[str, object]:
        """Return the members of the JSON form."""
        return {"errors": self.errors, name: self.items}


def verify_store(database: Database, folder: DefinitionFolder, values: Values, now: datetime) -> list[Issue]:
    """Return everything that contradicts a serial history of whole changes; empty for a good store.

    Replays the changes of the journal in the order of their numbers. Before a change, each file must be as the previous
    change left it. Each version must follow the previous one, match its digest, and belong to exactly one change. The
    result must equal the present files. Edits outside the store are warnings. Waits for a change in progress.

    Raises:
        LocationUnreadableError: the location does not exist or cannot be read.
    """
    with database.changing_definitions():
        with database.read() as connection:
            changes = Changes(connection).all()
            versions = Definitions(connection).all()
        reader = ContentsReader(folder, values)
        contents = reader.read() if folder.exists() else reader.empty()
        edited = {
            file: digest for file, digest in _last_digests(changes).items() if find_digest(folder, file) != digest
        }
    return [
        *_check_ends(changes),
        *_check_files(changes, folder, edited),
        *_check_versions(versions, changes, values),
        *_check_changes(versions, changes),
        *_check_contents(contents, versions, changes, edited, now),
    ]


def _check_ends(changes: Sequence[Change]) -> Iterator[Issue]:
    for position, change in enumerate(changes, start=1):
        if change.number != position:
            yield _wrong("journal-gap", f"the change {position} is missing in the journal", _REPORT)
            return
        if change.state is ChangeState.PREPARED:
            yield _wrong(
                "change-unfinished",
                f"the change {change.number} ({change.origin}, by {change.author}) is neither done nor undone",
                "Any command on definitions finishes it.",
            )


def _check_files(changes: Sequence[Change], folder: DefinitionFolder, edited: dict[str, str | None]) -> Iterator[Issue]:
    """Check that each file is before a change as the previous change left it."""
    left: dict[str, tuple[int, str | None]] = {}
    for change in changes:
        if change.state is not ChangeState.DONE:
            continue
        for each in change.files:
            number, digest = left.get(each.file, (0, each.before_digest))
            if digest != each.before_digest:
                message = f"the file was edited by other means between the changes {number} and {change.number}"
                yield _note("file-edited", message, "", folder.shown(each.file))
            left[each.file] = (change.number, each.after_digest)
    for file in sorted(edited):
        message = f"the file was edited by other means after the change {left[file][0]}"
        yield _note("file-edited", message, "", folder.shown(file))


def _check_versions(
    versions: Sequence[DefinitionVersion], changes: Sequence[Change], values: Values
) -> Iterator[Issue]:
    numbers = {change.change_id: change.number for change in changes}
    by_key: dict[EntityKey, list[DefinitionVersion]] = defaultdict(list)
    for version in versions:
        by_key[version.key].append(version)
    for key, history in by_key.items():
        last: DefinitionVersion | None = None
        last_number = 0
        for position, version in enumerate(history, start=1):
            number = numbers.get(version.change_id or "", last_number)
            if version.version != position:
                yield _wrong("version-missing", f"the version {position} is missing in the record", _REPORT, key)
                break
            if not _may_follow(last, version) or number < last_number:
                was = last.action.value if last else "nothing"
                message = f"the version {position} ({version.action.value}) cannot follow {was}"
                yield _wrong("version-order", message, _REPORT, key)
            yield from _check_text(version, values)
            last, last_number = version, number


def _may_follow(last: DefinitionVersion | None, version: DefinitionVersion) -> bool:
    is_declared = last is not None and last.action is not DefinitionAction.DELETED
    if version.action is DefinitionAction.RENAMED:
        return is_declared
    if version.action is DefinitionAction.SUBMITTED:
        return not is_declared
    return is_declared and last is not None and last.digest != version.digest


def _check_text(version: DefinitionVersion, values: Values) -> Iterator[Issue]:
    if version.text is None:
        if version.action is not DefinitionAction.DELETED or version.digest is not None:
            yield _wrong("version-text", f"the version {version.version} has no text", _REPORT, version.key)
        return
    entity = find_version_entity(version) or find_version_entity(version, values)
    if entity is None or entity.key != version.key:
        message = f"the text of version {version.version} cannot be read by this release"
        yield _wrong("version-unreadable", message, "", version.key, Severity.WARNING)
    elif digest_as_written(entity, version.text, version.format) != version.digest:
        message = f"the text of version {version.version} does not match its digest"
        yield _wrong("version-digest", message, _REPORT, version.key)


def _check_changes(versions: Sequence[DefinitionVersion], changes: Sequence[Change]) -> Iterator[Issue]:
    """Check that each change recorded exactly its announced versions, and that no version names an unknown change."""
    recorded: dict[str, list[NewDefinition]] = defaultdict(list)
    for version in versions:
        if version.change_id is not None:
            recorded[version.change_id].append(version)
    for change in changes:
        announced = change.versions if change.state is ChangeState.DONE else ()
        if _facts(announced) != _facts(recorded.pop(change.change_id, [])):
            message = f"the change {change.number} ({change.state.value}) recorded other versions than it announced"
            yield _wrong("change-versions", message, _REPORT)
    for change_id in sorted(recorded):
        yield _wrong("change-missing", f"versions name the change {change_id}, which the journal lacks", _REPORT)


def _facts(versions: Sequence[NewDefinition]) -> list[tuple[str, str, str, str]]:
    return sorted((each.kind, each.name, each.action.value, each.digest or "") for each in versions)


def _check_contents(
    contents: Contents,
    versions: Sequence[DefinitionVersion],
    changes: Sequence[Change],
    edited: dict[str, str | None],
    now: datetime,
) -> Iterator[Issue]:
    newest = {version.key: version for version in versions}
    store_files = _last_digests(changes).keys() - edited.keys()
    for lacking in decide_versions(contents, newest, author_of=lambda _: "", origin="", now=now):
        key = (lacking.kind, lacking.name)
        message = f"the record lacks an edit of the files: {lacking.action.value}"
        if lacking.file in store_files:
            yield _wrong("record-differs", f"{message}, though only the store has written its file", _REPORT, key)
        else:
            yield _wrong("not-recorded", message, _RECORD, key, Severity.WARNING)


def _last_digests(changes: Sequence[Change]) -> dict[str, str | None]:
    """Return the digest that the journal gives for each file."""
    done = (change for change in changes if change.state is ChangeState.DONE)
    return {each.file: each.after_digest for change in done for each in change.files}


def _wrong(
    code: str, message: str, remedy: str, key: EntityKey | None = None, severity: Severity = Severity.ERROR
) -> Issue:
    entity = label_of(key) if key else None
    return Issue(severity=severity, code=code, entity=entity, message=message, remedy=remedy)


def _note(code: str, message: str, remedy: str, file: str) -> Issue:
    return Issue(
        severity=Severity.WARNING, code=code, entity=None, message=message, remedy=remedy, source=Source(file=file)
    )
