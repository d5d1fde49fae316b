"""The contents of the definition files: entities, their texts, and what is quarantined.

Unchanged files are not parsed again.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from feed_assets.definitions.folder import DefinitionFolder, DocumentSpan, digest_as_written, find_documents, format_of
from feed_assets.entities.bundle import AnyEntity
from feed_assets.entities.common import label_of
from feed_assets.issues import EntityKey, Issue
from feed_assets.loading.bundles import LoadedBundle, ParsedFile, decode_file, gather_files, parse_file
from feed_assets.loading.entity_files import EntityFile, References, Values, digest_used_files, references_of
from feed_assets.loading.job_files import Job
from feed_assets.log.definitions.records import DocumentFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDocument:
    """The document of an entity: its text without markers, and its file (the path in the folder).

    `entity` is None if the document could not be read. `job` is the name of the job of an extension that has made it.
    """

    key: EntityKey
    file: str
    job: str | None = None
    format: DocumentFormat
    text: str = field(repr=False)
    entity: AnyEntity | None = field(repr=False)
    span: DocumentSpan = field(repr=False)
    _digests: list[str] = field(default_factory=list, init=False, repr=False, compare=False)

    @property
    def digest(self) -> str | None:
        """The sha256 of the document as written (see `digest_as_written`); None if it could not be read."""
        if self.entity is None:
            return None
        if not self._digests:
            self._digests.append(digest_as_written(self.entity, self.text, self.format))
        return self._digests[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """A file, under its path below the folder; `text` is None if the content is not text."""

    name: str
    raw: EntityFile = field(repr=False)
    text: str | None = field(repr=False)
    parsed: ParsedFile = field(repr=False)
    documents: Mapping[EntityKey, StoredDocument] = field(repr=False)
    references: References = field(repr=False)

    @property
    def declared(self) -> tuple[EntityKey, ...]:
        """The keys of its documents; a key declared twice appears twice."""
        return tuple(document.key for document in self.parsed.documents if document.key is not None)

    @property
    def hides_entities(self) -> bool:
        """Whether mistakes in the file may conceal entities that are declared there."""
        return bool(self.parsed.issues) or any(document.key is None for document in self.parsed.documents)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredJob:
    """A job of an extension, with its file, the text there, and its entities."""

    job: Job
    file: str
    text: str | None = field(repr=False)
    keys: tuple[EntityKey, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantined:
    """A file with mistakes, under its name in messages, and the entities excluded because of them."""

    file: str
    keys: tuple[EntityKey, ...]
    issues: tuple[Issue, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """All files at one moment, with the entities they declare. The first document of an entity counts. `bundle` has the
    entities and the issues; `documents` are the texts, including those of entities that cannot be used. `jobs` of
    extensions have made some of them.
    """

    files: Mapping[str, StoredFile]
    documents: Mapping[EntityKey, StoredDocument]
    jobs: Mapping[str, StoredJob]
    bundle: LoadedBundle

    @property
    def quarantined(self) -> tuple[Quarantined, ...]:
        """The files with mistakes. All other files are in use."""
        issues: dict[str, list[Issue]] = defaultdict(list)
        for issue in self.bundle.issues:
            if issue.source is not None:
                issues[issue.source.file].append(issue)
        found = []
        for file in self.files.values():
            keys = tuple(sorted(self.bundle.broken.intersection(file.declared)))
            if file.parsed.name in issues or keys:
                found.append(Quarantined(file=file.parsed.name, keys=keys, issues=tuple(issues[file.parsed.name])))
        return tuple(found)

    def text_of(self, name: str) -> str | None:
        """Return the text of a file; None without one."""
        return self.files[name].text if name in self.files else None

    def files_of(self, key: EntityKey) -> list[str]:
        """Return the files that declare an entity; a file that declares it twice appears twice."""
        return [file.name for file in self.files.values() for declared in file.declared if declared == key]

    def issues_about(self, key: EntityKey) -> tuple[Issue, ...]:
        """Return the issues that exclude an entity: its own mistakes, or else those of files that may conceal it."""
        own = tuple(issue for issue in self.bundle.issues if issue.entity == label_of(key))
        return own or tuple(issue for issue in self.bundle.issues if issue.entity is None)


class ContentsReader:
    """A reader of the files of a folder. Keeps what it has parsed; threads may share it."""

    def __init__(self, folder: DefinitionFolder, values: Values) -> None:
        self._folder = folder
        self._values = values
        self._kept: dict[str, StoredFile] = {}
        self._last: tuple[tuple[EntityFile, ...], frozenset[tuple[str, str | None]], Contents | None]
        self._last = (), frozenset(), None

    def read(self) -> Contents:
        """Read all files in their present state.

        Raises:
            LocationUnreadableError: the location does not exist or cannot be read.
        """
        raw = self._folder.read()
        seen, used, contents = self._last
        if contents is None or raw is not seen or not self._values.hold(used):
            files = [self._stored(self._folder.name_of(file.name), file) for file in raw]
            self._kept = {file.name: file for file in files}
            contents, used = self._gathered(files), frozenset(pair for file in files for pair in file.references)
            self._last = raw, used, contents
        return contents

    def empty(self) -> Contents:
        """Return the contents of a location that does not exist yet."""
        return self._gathered(())

    def with_texts(self, contents: Contents, texts: Mapping[str, str | None]) -> Contents:
        """Return the contents with some texts replaced; None removes a file."""
        files = dict(contents.files)
        for name, text in texts.items():
            if text is None:
                files.pop(name, None)
            else:
                files[name] = self._stored(name, EntityFile(name=self._folder.shown(name), content=text.encode()))
                self._kept[name] = files[name]
        return self._gathered([files[name] for name in sorted(files)])

    def _stored(self, name: str, file: EntityFile) -> StoredFile:
        kept = self._kept.get(name)
        references = references_of(file, self._values)
        if kept is not None and kept.raw == file and kept.references == references:
            return kept
        parsed = parse_file(file, self._values)
        text = None if isinstance(decode_file(file), Issue) else file.content.decode()
        return StoredFile(
            name=name,
            raw=file,
            text=text,
            parsed=parsed,
            documents={} if text is None else _documents(name, text, parsed),
            references=references,
        )

    def _gathered(self, files: Sequence[StoredFile]) -> Contents:
        documents: dict[EntityKey, StoredDocument] = {}
        for file in files:
            for key, document in file.documents.items():
                documents.setdefault(key, document)
        digest = digest_used_files((file.raw, file.references) for file in files)
        return Contents(
            files={file.name: file for file in files},
            documents=documents,
            jobs={
                file.parsed.job.name: StoredJob(job=file.parsed.job, file=file.name, text=file.text, keys=file.declared)
                for file in files
                if file.parsed.job is not None
            },
            bundle=gather_files((file.parsed for file in files), digest),
        )


def _documents(name: str, text: str, parsed: ParsedFile) -> dict[EntityKey, StoredDocument]:
    entities: dict[EntityKey, AnyEntity | None] = {}
    for document in parsed.documents:
        if document.key is not None:
            entities.setdefault(document.key, document.entity)
    return {
        key: StoredDocument(
            key=key,
            file=name,
            format=format_of(name),
            text=text[span.body_start : span.body_end].removeprefix("\ufeff"),
            entity=entities[key],
            span=span,
            job=parsed.job.name if parsed.job else None,
        )
        for key, span in find_documents(parsed, text).items()
    }
