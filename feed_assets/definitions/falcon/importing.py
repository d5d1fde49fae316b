"""Falcon documents → entity files, all or none, with a report on each document; and the mapping with replacements for
workflows that cannot run here, and for addresses.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from pydantic import Field, ValidationError

from feed_assets.command_lines import command_line
from feed_assets.definitions.falcon.reviewing import compare_script, iter_differences
from feed_assets.definitions.folder import DefinitionFolder
from feed_assets.engines.registry import ENGINE_NAMES
from feed_assets.entities.bundle import AnyEntity, Bundle
from feed_assets.entities.cluster import Cluster
from feed_assets.entities.common import EntityModel, label_of
from feed_assets.entities.differences import FieldChange
from feed_assets.entities.errors import DefinitionsError
from feed_assets.entities.feed import Feed
from feed_assets.entities.fields import FilledText, Name
from feed_assets.entities.maps import EMPTY, Map
from feed_assets.entities.process import Process
from feed_assets.entities.workflow import Workflow, WorkflowEngine
from feed_assets.errors import WrongUsageError
from feed_assets.issues import EntityKey, FieldPath, FieldSources, Issue, Severity, SourceMap, split_error
from feed_assets.json_form import Hidden, ShownKey
from feed_assets.loading.bundles import decode_file, gather_files, parse_file
from feed_assets.loading.documents import Note, NoteKind, PlainDocument
from feed_assets.loading.entity_documents import EntityDocument, read_entity
from feed_assets.loading.entity_files import EntityFile
from feed_assets.loading.falcon.documents import read_falcon
from feed_assets.loading.falcon.writing import render_falcon
from feed_assets.loading.messages import render_path
from feed_assets.loading.yaml_nodes import iter_documents
from feed_assets.loading.yaml_writer import render_yaml
from feed_assets.log.definitions.records import DocumentFormat
from feed_assets.storage.errors import StoreUnknownError
from feed_assets.storage.registry import open_store
from feed_assets.validation.entities.metadata import iter_without_effect
from feed_assets.validation.rules import validate_bundle

_WASB = re.compile(r"wasb(s?)://([^/]*?)(?:\.blob\.([^/]*))?(/.*)?")  # wasb://box@one.blob.core.windows.net/data
_TOLD = ("engine-not-here", "no-effect", "storage-not-here")
"""Warnings that the notes have already."""
_WORDS: Mapping[str, str] = {
    "extra_forbidden": "there is no such key",
    "missing": "it is missing",
    "enum": "there is no such choice",
}


class ImportMapping(EntityModel):
    """Replacement `workflows` by process name; `urls` maps prefixes of addresses to their replacements.

    >>> ImportMapping(workflows={"daily": {"engine": "sql", "path": "daily.sql"}}).workflows["daily"].engine.value
    'sql'
    """

    workflows: Map[Name, Workflow] = EMPTY
    urls: Map[FilledText, FilledText] = Field(default=EMPTY)

    def with_workflows(self, workflows: Mapping[str, Workflow]) -> "ImportMapping":
        """Return the mapping with more workflows, which take precedence."""
        return ImportMapping(workflows={**self.workflows, **workflows}, urls=self.urls)


def parse_mapping(file: EntityFile) -> ImportMapping:
    """Parse the mapping of a YAML file.

    Raises:
        DefinitionsError: the file is not a valid mapping; carries the issues.
    """
    text = decode_file(file)
    if isinstance(text, Issue):
        raise _refused(file, [text])
    document = next(iter_documents(text), None)
    if document is None:
        return ImportMapping()
    sources = FieldSources(file=file.name, positions=document.positions)
    issues = [_issue(sources, (), problem.message, problem.remedy, code=problem.code) for problem in document.problems]
    if issues:
        raise _refused(file, issues)
    try:
        return ImportMapping.model_validate(document.value if document.value is not None else {})
    except ValidationError as exc:
        raise _refused(file, [_mistake(sources, details["loc"], details) for details in exc.errors()]) from exc


def parse_workflows(texts: Mapping[str, str]) -> dict[str, Workflow]:
    """Return the workflows of processes by their names; each is written ENGINE:PATH.

    Raises:
        WrongUsageError: one is not, or its engine has no path.
    """
    engines = [name for name in ENGINE_NAMES if WorkflowEngine(name).has_path]
    found: dict[str, Workflow] = {}
    for name, text in texts.items():
        engine, _, path = text.partition(":")
        if not path.strip() or engine not in engines:
            wrong = f"{name}={text}"
            raise WrongUsageError(f"{wrong!r} is not NAME=ENGINE:PATH with an engine of {', '.join(engines)}.")
        found[name] = Workflow(engine=WorkflowEngine(engine), path=path)
    return found


def _mistake(sources: FieldSources, location: tuple[str | int, ...], details: Mapping[str, Any]) -> Issue:
    path = tuple(part for part in location if part != "[key]")
    context = details.get("ctx", {})
    what = context.get("message") or _WORDS.get(details["type"], "the value does not fit")
    where = render_path(path)
    remedy = "Write workflows: {name: {engine: sql, path: file.sql}} and urls: {old: new}."
    return _issue(sources, path, f"{where}: {what}" if where else what, remedy)


def _issue(sources: FieldSources, path: FieldPath, message: str, remedy: str, code: str = "import-map") -> Issue:
    return Issue(
        severity=Severity.ERROR,
        code=code,
        entity=None,
        message=message.removesuffix("."),
        remedy=remedy,
        source=sources.locate(path),
    )


def _refused(file: EntityFile, issues: list[Issue]) -> DefinitionsError:
    return DefinitionsError(location=file.name, issues=issues)


@dataclass(slots=True, kw_only=True)
class Addresses:
    """The mapped prefixes of addresses; records the ones that were used."""

    urls: Mapping[str, str]
    used: set[str] = field(default_factory=set)

    def rewrite(self, values: MutableMapping[str, Any]) -> list[FieldChange]:
        """Replace addresses in plain values, in place.

        >>> values = {"storage": "hdfs://nn:8020/data", "catalog": "hdfs://nn:80201"}
        >>> Addresses(urls={"hdfs://nn:8020": "s3://lake"}).rewrite(values)[0].after, values["catalog"]
        ('s3://lake/data', 'hdfs://nn:80201')
        """
        return list(self._below(values, ()))

    def _below(self, holder: Any, path: FieldPath) -> Iterator[FieldChange]:
        items = list(holder.items()) if isinstance(holder, dict) else list(enumerate(holder))
        for key, value in items:
            here = (*path, key)
            if isinstance(value, dict | list):
                yield from self._below(value, here)
            elif isinstance(value, str) and (changed := self._changed(value)) is not None:
                holder[key] = changed
                yield FieldChange(path=here, before=value, after=changed)

    def _changed(self, text: str) -> str | None:
        for old in sorted(self.urls, key=len, reverse=True):
            begin = old.rstrip("/")
            rest = text.removeprefix(begin)
            if text.startswith(begin) and (not rest or rest.startswith("/")):
                self.used.add(old)
                return self.urls[old].rstrip("/") + rest if rest else self.urls[old]
        if (found := _WASB.fullmatch(text)) is not None:
            return f"abfs{found[1]}://{found[2]}{f'.dfs.{found[3]}' if found[3] else ''}{found[4] or ''}"
        return None


class ImportOutcome(StrEnum):
    """The effect of an import on a file: created, replaced, unchanged or refused."""

    NEW = "new"
    REPLACED = "replaced"
    UNCHANGED = "unchanged"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedFile:
    """One document: its source and target, the treatment of its parts, its issues, and the lines of the difference
    between its Hive script and the SQL that runs here.
    """

    source: str
    key: ShownKey | None
    target: str | None
    outcome: ImportOutcome
    notes: tuple[Note, ...] = ()
    issues: tuple[Issue, ...] = ()
    difference: tuple[str, ...] = ()
    content: Hidden[bytes] = field(default=b"", repr=False)

    def render(self) -> Iterator[str]:
        """Yield the lines for people."""
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
        yield from (f"    {line}" for line in self.difference)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport:
    """The effects of an import, or of its dry run. If a file is refused, nothing is written."""

    folder: str
    files: tuple[ImportedFile, ...]
    unused: tuple[str, ...]
    is_written: bool

    @property
    def has_failed(self) -> bool:
        """Whether a file is refused."""
        return any(file.outcome is ImportOutcome.REFUSED for file in self.files)

    @property
    def lines(self) -> Iterator[str]:
        """The lines for people."""
        for file in self.files:
            yield from file.render()
        for name in self.unused:
            yield f"unused: no document needs {name}"

    @property
    def summary(self) -> str:
        """The number of files, and the next step."""
        counts = [(outcome, sum(file.outcome is outcome for file in self.files)) for outcome in ImportOutcome]
        shown = ", ".join(f"{count} {outcome.value}" for outcome, count in counts if count) or "no files"
        if self.has_failed:
            return f"{self.folder}: {shown}; nothing was written. Correct the errors and import again."
        next_step = f"Review the list, then run: {command_line('validate', self.folder)}"
        return f"{self.folder}: {shown}. {next_step}" if self.is_written else f"{self.folder}: {shown}, not written."


def import_documents(
    files: Iterable[EntityFile],
    folder: DefinitionFolder,
    mapping: ImportMapping,
    *,
    file_format: DocumentFormat = DocumentFormat.YAML,
    is_forced: bool = False,
    is_dry_run: bool = False,
) -> ImportReport:
    """Convert Falcon documents to files `<kind>/<name>.yaml` below a folder.

    Args:
        files: Falcon documents, whatever their names.
        folder: the target folder; it may be new.
        mapping: replacements for workflows and addresses.
        file_format: the format of the written files.
        is_forced: replace existing files with other content, instead of refusing them.
        is_dry_run: write nothing.

    Raises:
        DefinitionStoreError: the folder refused a file; the written ones are undone.
    """
    importer = _Importer(folder, mapping, file_format, is_forced=is_forced)
    found = importer.review([importer.read(file) for file in files])
    report = ImportReport(folder=folder.location, files=found, unused=importer.unused(), is_written=False)
    if is_dry_run or report.has_failed:
        return report
    _write_all(folder, [file for file in found if file.outcome in (ImportOutcome.NEW, ImportOutcome.REPLACED)])
    return replace(report, is_written=True)


def _write_all(folder: DefinitionFolder, files: Sequence[ImportedFile]) -> None:
    """Write files; if one fails, restore the folder."""
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
        self, folder: DefinitionFolder, mapping: ImportMapping, file_format: DocumentFormat, *, is_forced: bool
    ) -> None:
        self._folder = folder
        self._mapping = mapping
        self._format = file_format
        self._is_forced = is_forced
        self._addresses = Addresses(urls=mapping.urls)
        self._replaced: set[str] = set()
        self._targets: dict[str, str] = {}
        self._entities: dict[EntityKey, AnyEntity] = {}
        self._sources: dict[EntityKey, FieldSources] = {}

    def review(self, files: Sequence[ImportedFile]) -> tuple[ImportedFile, ...]:
        """Return the files with what differs from Falcon, and what `validate` would say, beside what the folder has."""
        there = self._folder.read() if self._folder.exists() else ()
        known = gather_files((parse_file(each, None) for each in there), "").bundle
        brought, sources = self._entities, SourceMap(self._sources)
        bundle = Bundle(entities=tuple({**{each.key: each for each in known.entities}, **brought}.values()))
        notes: dict[str | None, list[Note]] = defaultdict(list)
        for issue in validate_bundle(bundle, sources, only=brought):
            if issue.code not in _TOLD:
                kind = NoteKind.REFUSED if issue.severity is Severity.ERROR else NoteKind.CHECK
                line = issue.source.line if issue.source is not None else None
                notes[issue.entity].append(Note(kind=kind, message=f"{issue.message}. {issue.remedy}", line=line))
        for key, entity in brought.items():
            for path, message in iter_differences(entity, bundle):
                line = self._sources[key].locate(path).line
                notes[entity.label].append(Note(kind=NoteKind.CHECK, message=message, line=line))
        scripts = {key: entity for key, entity in brought.items() if isinstance(entity, Process)}
        return tuple(
            replace(
                file,
                notes=(*file.notes, *notes[label_of(file.key)]),
                difference=compare_script(scripts[file.key], file.source) if file.key in scripts else (),
            )
            if file.key in brought
            else file
            for file in files
        )

    def unused(self) -> tuple[str, ...]:
        """Return the entries of the mapping that no document uses."""
        workflows = [f"the workflow for {name}" for name in self._mapping.workflows if name not in self._replaced]
        return tuple(
            workflows + [f"the address {url}" for url in self._mapping.urls if url not in self._addresses.used]
        )

    def read(self, file: EntityFile) -> ImportedFile:
        """Convert one document."""
        text = decode_file(file)
        if isinstance(text, Issue):
            return ImportedFile(source=file.name, key=None, target=None, outcome=ImportOutcome.REFUSED, issues=(text,))
        document = read_falcon(text)
        self._apply_mapping(document)
        read = read_entity(file.name, document, None)
        if read.entity is None:
            return ImportedFile(
                source=file.name, key=read.key, target=None, outcome=ImportOutcome.REFUSED, issues=read.issues
            )
        self._entities[read.entity.key], self._sources[read.entity.key] = read.entity, read.sources
        notes = (*read.notes, *_iter_checks(read.entity, read))
        return self._placed(file, read, read.entity, notes)

    def _apply_mapping(self, document: PlainDocument) -> None:
        """Replace what the mapping replaces, and make the notes of the document say what it now is."""
        values = document.value
        if not isinstance(values, dict):
            return
        replaced = self._replace_workflow(document, values)
        document.notes += replaced
        for change in self._addresses.rewrite(values):
            before, after = repr(change.before), repr(change.after)
            document.notes = [
                replace(note, message=note.message.replace(before, after))
                if note.path and note.path == change.path[: len(note.path)]
                else note
                for note in document.notes
            ]
            message = f"{render_path(change.path)}: {before} → {after}"
            document.notes.append(Note(kind=NoteKind.MAPPED, message=message, line=_line_of(document, change.path)))

    def _replace_workflow(self, document: PlainDocument, values: dict[str, Any]) -> list[Note]:
        name = values.get("name")
        workflow = self._mapping.workflows.get(str(name)) if values["kind"] == "process" else None
        old = values.get("workflow")
        if workflow is None or not isinstance(old, dict):
            return []
        self._replaced.add(str(name))
        document.notes = [note for note in document.notes if not _is_about_workflow(note)]
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
                message = f"late input {item}: the replacement runs again instead of {own.get('path')!r}"
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
        render = render_yaml if self._format is DocumentFormat.YAML else render_falcon
        content = render(entity, has_references=True).encode()
        done = ImportedFile(
            source=file.name, key=entity.key, target=target, outcome=ImportOutcome.NEW, notes=notes, content=content
        )
        if (other := self._targets.setdefault(target, file.name)) != file.name:
            return self._refuse(done, read, f"{other} also declares {entity.label}", "Import one of them.")
        there = self._folder.read_file(target)
        if there is None:
            return done
        if there == content:
            return replace(done, outcome=ImportOutcome.UNCHANGED)
        if self._is_forced:
            return replace(done, outcome=ImportOutcome.REPLACED)
        message = f"{target} already exists and differs"
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
        return replace(file, outcome=ImportOutcome.REFUSED, issues=(issue,))


def _is_about_workflow(note: Note) -> bool:
    return note.path[:1] in (("workflow",), ("spark_attributes",)) or note.path[:2] == ("late_process", "inputs")


def _line_of(document: PlainDocument, path: tuple[str | int, ...]) -> int | None:
    for length in range(len(path), -1, -1):
        if (place := document.positions.get(path[:length])) is not None:
            return place[0]
    return None


def _iter_checks(entity: AnyEntity, read: EntityDocument) -> Iterator[Note]:
    """Yield the parts of an entity that cannot work here as they are."""
    if isinstance(entity, Process) and not entity.workflow.engine.is_supported:
        line = read.sources.locate(("workflow",)).line
        message = (
            f"engine {entity.workflow.engine.value}: the process is declared and validated, but cannot be scheduled. "
            f"Give it another workflow, --replace-workflow {entity.name}=sql:path.sql (or spark-submit:path.py, "
            "python:module:function), or workflows: in the mapping file"
        )
        yield Note(kind=NoteKind.UNABLE, message=message, line=line)
    if isinstance(entity, Feed | Process):
        for path, effect in iter_without_effect(entity):
            message = f"{render_path(path)} has no effect yet: {effect}"
            yield Note(kind=NoteKind.UNABLE, message=message, line=read.sources.locate(path).line)
    addresses: dict[tuple[str, ...], str] = {}
    if isinstance(entity, Cluster):
        addresses["storage",] = entity.storage
    elif isinstance(entity, Feed):
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
    """Return why no storage adapter opens an address; None if one does, or if the address is not resolved yet."""
    root = _root_of(address)
    if "${" in root:
        return None
    try:
        open_store(root if not root.startswith("file://") else address.partition("${")[0], {})
    except StoreUnknownError as exc:
        return split_error(exc).message.partition(": ")[2] or str(exc)
    return None


def _root_of(address: str) -> str:
    """Return scheme and authority."""
    scheme, _, rest = address.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}"
