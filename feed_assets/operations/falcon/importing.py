"""Falcon's documents → files of our own, all of them or none, with a report on what became of each."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from feed_assets.definitions.folder import DefinitionFolder
from feed_assets.entities.bundle import AnyEntity
from feed_assets.entities.cluster import Cluster
from feed_assets.entities.common import label_of
from feed_assets.entities.feed import Feed
from feed_assets.entities.flows import find_targets
from feed_assets.entities.process import Process
from feed_assets.issues import EntityKey, Issue, Severity, split_error
from feed_assets.loading.documents import Note, NoteKind, PlainDocument
from feed_assets.loading.entity_documents import EntityDocument, read_entity
from feed_assets.loading.entity_files import EntityFile, decode_file
from feed_assets.loading.falcon.documents import read_falcon
from feed_assets.loading.falcon.writing import render_falcon
from feed_assets.loading.messages import render_path
from feed_assets.loading.yaml_writer import render_yaml
from feed_assets.operations.falcon.mapping import Addresses, ImportMapping
from feed_assets.storage.errors import StoreUnknownError
from feed_assets.storage.registry import open_store

VERSION = 1
"""Version of the JSON form."""


class FileFormat(StrEnum):
    """What files are written in."""

    YAML = "yaml"
    XML = "xml"

    def render(self, entity: AnyEntity) -> str:
        """The document of an entity whose references are as they were written."""
        return (
            render_yaml(entity, has_references=True)
            if self is FileFormat.YAML
            else render_falcon(entity, has_references=True)
        )


class Outcome(StrEnum):
    """What happens to a file: it comes into being, is replaced, is there already, or nothing."""

    NEW = "new"
    REPLACED = "replaced"
    UNCHANGED = "unchanged"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedFile:
    """One document: where it came from and goes to, what became of its parts, and what is wrong with it."""

    source: str
    key: EntityKey | None
    target: str | None
    outcome: Outcome
    notes: tuple[Note, ...] = ()
    issues: tuple[Issue, ...] = ()
    content: bytes = field(default=b"", repr=False)

    def to_json(self) -> dict[str, object]:
        """The JSON form."""
        return {
            "source": self.source,
            "kind": self.key[0] if self.key else None,
            "name": self.key[1] if self.key else None,
            "target": self.target,
            "outcome": self.outcome.value,
            "notes": [{"kind": note.kind.value, "message": note.message, "line": note.line} for note in self.notes],
            "issues": [issue.to_json() for issue in self.issues],
        }

    def render(self) -> Iterator[str]:
        """The lines for people."""
        label = label_of(self.key) if self.key else "no entity"
        target = f" → {self.target} ({self.outcome.value})" if self.target else f" ({self.outcome.value})"
        yield f"{self.source}: {label}{target}"
        for issue in self.issues:
            yield f"  error: {issue.render()}"
        for kind in NoteKind:
            for note in self.notes:
                if note.kind is kind:
                    line = f"line {note.line}: " if note.line and kind is not NoteKind.CARRIED else ""
                    yield f"  {kind.value}: {line}{note.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport:
    """What an import does or would do. Nothing is written where one of the files is refused."""

    folder: str
    files: tuple[ImportedFile, ...]
    unused: tuple[str, ...]
    is_written: bool

    @property
    def is_good(self) -> bool:
        """Whether nothing is refused."""
        return all(file.outcome is not Outcome.REFUSED for file in self.files)

    def to_json(self) -> dict[str, object]:
        """The JSON form, `version` 1."""
        return {
            "version": VERSION,
            "folder": self.folder,
            "written": self.is_written,
            "unused": list(self.unused),
            "files": [file.to_json() for file in self.files],
        }

    def render(self) -> Iterator[str]:
        """The lines for people."""
        for file in self.files:
            yield from file.render()
        for name in self.unused:
            yield f"unused: nothing here needs {name}"

    def render_summary(self) -> str:
        """One line: how many files, and the next step."""
        counts = [(outcome, sum(file.outcome is outcome for file in self.files)) for outcome in Outcome]
        shown = ", ".join(f"{count} {outcome.value}" for outcome, count in counts if count) or "no files"
        if not self.is_good:
            return f"{self.folder}: {shown}; nothing was written. Correct the errors and import again."
        next_step = f"Check what is listed, then: feed-assets validate {self.folder}"
        return f"{self.folder}: {shown}. {next_step}" if self.is_written else f"{self.folder}: {shown}, not written."


def import_documents(
    files: Iterable[EntityFile],
    folder: DefinitionFolder,
    mapping: ImportMapping,
    *,
    file_format: FileFormat = FileFormat.YAML,
    is_forced: bool = False,
    is_dry_run: bool = False,
) -> ImportReport:
    """Convert Falcon documents to files `<kind>/<name>.yaml` below a folder.

    Args:
        files: Falcon documents, whatever their names.
        folder: where the files go; it may be new.
        mapping: replacements for workflows and addresses.
        file_format: of what is written.
        is_forced: replace files that are there and say something else; otherwise they are refused.
        is_dry_run: write nothing.

    Raises:
        DefinitionStoreError: the folder refused; what was written is taken back.
    """
    importer = _Importer(folder, mapping, file_format, is_forced=is_forced)
    found = tuple(importer.read(file) for file in files)
    report = ImportReport(folder=folder.location, files=found, unused=importer.unused(), is_written=False)
    if is_dry_run or not report.is_good:
        return report
    _write_all(folder, [file for file in found if file.outcome in (Outcome.NEW, Outcome.REPLACED)])
    return replace(report, is_written=True)


def _write_all(folder: DefinitionFolder, files: Sequence[ImportedFile]) -> None:
    """Write files; if one fails, the folder is as it was."""
    before: dict[str, bytes | None] = {}
    try:
        for file in files:
            assert file.target is not None
            before[file.target] = folder.read_file(file.target)
            folder.write(file.target, file.content)
    except BaseException:
        for name, content in before.items():
            if content is None:
                folder.remove(name)
            else:
                folder.write(name, content)
        raise


class _Importer:
    def __init__(
        self, folder: DefinitionFolder, mapping: ImportMapping, file_format: FileFormat, *, is_forced: bool
    ) -> None:
        self._folder = folder
        self._mapping = mapping
        self._format = file_format
        self._is_forced = is_forced
        self._addresses = Addresses(urls=mapping.urls)
        self._replaced: set[str] = set()
        self._targets: dict[str, str] = {}

    def unused(self) -> tuple[str, ...]:
        """What the mapping names and no document has."""
        workflows = [f"the workflow for {name}" for name in self._mapping.workflows if name not in self._replaced]
        return tuple(
            workflows + [f"the address {url}" for url in self._mapping.urls if url not in self._addresses.used]
        )

    def read(self, file: EntityFile) -> ImportedFile:
        """What becomes of a document."""
        text = decode_file(file)
        if isinstance(text, Issue):
            return ImportedFile(source=file.name, key=None, target=None, outcome=Outcome.REFUSED, issues=(text,))
        document = read_falcon(text)
        changes = self._apply_mapping(document)
        read = read_entity(file.name, document, None)
        if read.entity is None:
            return ImportedFile(
                source=file.name, key=read.key, target=None, outcome=Outcome.REFUSED, issues=read.issues
            )
        notes = (*read.notes, *changes, *_iter_checks(read.entity, read))
        return self._placed(file, read, read.entity, notes)

    def _apply_mapping(self, document: PlainDocument) -> list[Note]:
        values = document.value
        if not isinstance(values, dict):
            return []
        notes = self._replace_workflow(document, values)
        for change in self._addresses.rewrite(values):
            message = f"{render_path(change.path)}: {change.before!r} → {change.after!r}"
            notes.append(Note(kind=NoteKind.MAPPED, message=message, line=_line_of(document, change.path)))
        return notes

    def _replace_workflow(self, document: PlainDocument, values: dict[str, Any]) -> list[Note]:
        name = values.get("name")
        workflow = self._mapping.workflows.get(str(name)) if values["kind"] == "process" else None
        old = values.get("workflow")
        if workflow is None or not isinstance(old, dict):
            return []
        self._replaced.add(str(name))
        engine = old.get("engine")
        values["workflow"] = workflow.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        line = _line_of(document, ("workflow",))
        message = f"workflow {engine} {old.get('path')!r} → {workflow.engine.value} {workflow.path!r}, as you asked"
        notes = [Note(kind=NoteKind.MAPPED, message=message, line=line)]
        late = values.get("late_process")
        inputs = late.get("inputs") if isinstance(late, dict) else None
        inputs = inputs if isinstance(inputs, dict) else {}
        for item, own in inputs.items():
            if isinstance(own, dict) and own.get("engine") == engine:
                inputs[item] = None
                message = f"late input {item}: the replacement is run again in the place of {own.get('path')!r}"
                notes.append(
                    Note(
                        kind=NoteKind.CHECK,
                        message=message,
                        line=_line_of(document, ("late_process", "inputs", item)),
                    )
                )
        return notes

    def _placed(
        self, file: EntityFile, read: EntityDocument, entity: AnyEntity, notes: tuple[Note, ...]
    ) -> ImportedFile:
        target = f"{entity.kind.value}/{entity.name}.{self._format.value}"
        content = self._format.render(entity).encode()
        done = ImportedFile(
            source=file.name, key=entity.key, target=target, outcome=Outcome.NEW, notes=notes, content=content
        )
        if (other := self._targets.setdefault(target, file.name)) != file.name:
            return self._refuse(done, read, f"{other} is {entity.label} too", "Import one of them.")
        there = self._folder.read_file(target)
        if there is None:
            return done
        if there == content:
            return replace(done, outcome=Outcome.UNCHANGED)
        if self._is_forced:
            return replace(done, outcome=Outcome.REPLACED)
        message = f"{target} is there already and says something else"
        return self._refuse(done, read, message, "Remove it, or import with --force.")

    def _refuse(self, file: ImportedFile, read: EntityDocument, message: str, remedy: str) -> ImportedFile:
        issue = Issue(
            severity=Severity.ERROR,
            code="import-target",
            entity=label_of(read.key) if read.key else None,
            message=message,
            remedy=remedy,
            source=read.sources.locate(),
        )
        return replace(file, outcome=Outcome.REFUSED, issues=(issue,))


def _line_of(document: PlainDocument, path: tuple[str | int, ...]) -> int | None:
    for length in range(len(path), -1, -1):
        if (place := document.positions.get(path[:length])) is not None:
            return place[0]
    return None


def _iter_checks(entity: AnyEntity, read: EntityDocument) -> Iterator[Note]:
    """What in an entity cannot work here as it stands."""
    if isinstance(entity, Process) and not entity.workflow.engine.runs_here:
        line = read.sources.locate(("workflow",)).line
        message = (
            f"engine {entity.workflow.engine.value}: the process is declared and validated, but cannot be scheduled. "
            f"Give it another workflow, --replace-workflow {entity.name}=sql:path.sql (or spark-submit:path.py, "
            "python:module:function), or workflows: in the mapping file"
        )
        yield Note(kind=NoteKind.UNABLE, message=message, line=line)
    addresses: dict[tuple[str, ...], str] = {}
    if isinstance(entity, Cluster):
        addresses["storage",] = entity.storage
    elif isinstance(entity, Feed):
        for name in find_targets(entity):
            if entity.table_on(name) is not None:
                message = f"the feed is a table on {name}: tables are not replicated, nothing is copied to it"
                yield Note(kind=NoteKind.UNABLE, message=message, line=read.sources.locate(("clusters", name)).line)
        for path, locations in (
            (("locations",), entity.locations),
            *((("clusters", name, "locations"), entry.locations) for name, entry in entity.clusters.items()),
        ):
            if locations is not None and locations.data is not None and "://" in locations.data:
                addresses[*path, "data"] = locations.data
    for at, address in addresses.items():
        if (reason := _unopened(address)) is not None:
            line = read.sources.locate(at).line
            message = f"{render_path(at)} {address!r}: {reason}; map it, urls: {{'{_root_of(address)}': 's3://bucket'}}"
            yield Note(kind=NoteKind.UNABLE, message=message, line=line)


def _unopened(address: str) -> str | None:
    """Why no storage adapter opens an address; None where one does, or nobody can say yet."""
    root = _root_of(address)
    if "${" in root:
        return None
    try:
        open_store(root if not root.startswith("file://") else address.partition("${")[0], {})
    except StoreUnknownError as exc:
        return split_error(exc).message.partition(": ")[2] or str(exc)
    return None


def _root_of(address: str) -> str:
    """Scheme and authority."""
    scheme, _, rest = address.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}"
