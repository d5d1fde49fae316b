"""Load entity files into a bundle, with the issues found and the source position of every field."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from feed_assets.entities.bundle import AnyEntity, Bundle
from feed_assets.entities.common import label_of
from feed_assets.entities.graph import DependencyGraph
from feed_assets.issues import BLOCKED, EntityKey, FieldSources, Issue, Severity, Source, SourceMap, internal_error
from feed_assets.loading.entity_documents import EntityDocument, iter_entities
from feed_assets.loading.entity_files import MAX_FILE_BYTES, EntityFile, Values, digest_files
from feed_assets.loading.job_files import Job, find_job, refuse_edited

MAX_MISTAKES = 200
"""Mistakes in one file after which the rest of the file is skipped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedFile:
    """The documents parsed from one file, and the issues that concern the file as a whole. `job` has made the file."""

    name: str
    documents: tuple[EntityDocument, ...] = ()
    issues: tuple[Issue, ...] = ()
    job: Job | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedBundle:
    """The entities of a location.

    `bundle` contains the entities that could be read. `broken` contains the keys of entities that are declared but
    could not be read; `salvaged` are these as far as their locations are readable. `digest` covers the files and the
    values they refer to; it changes whenever the bundle can change.
    """

    bundle: Bundle
    issues: tuple[Issue, ...]
    sources: SourceMap
    broken: frozenset[EntityKey]
    digest: str
    salvaged: tuple[AnyEntity, ...] = ()


def load_files(files: Iterable[EntityFile], values: Values) -> LoadedBundle:
    """Return the bundle of files that have already been read."""
    files = tuple(files)
    return gather_files((parse_file(file, values) for file in files), digest_files(files, values))


def parse_file(file: EntityFile, values: Values | None) -> ParsedFile:
    """Parse the entities of one file. The result depends only on the arguments, so it can be cached.

    Without `values`, references to outside values stay as written.
    """
    text = decode_file(file)
    if isinstance(text, Issue):
        return ParsedFile(name=file.name, issues=(text,))
    documents: list[EntityDocument] = []
    mistakes = 0
    found = iter_entities(file.name, text, values)
    while True:
        try:
            document = next(found, None)
        except Exception as exc:  # noqa: BLE001
            issue = internal_error("reading the file", exc, entity=None, source=Source(file=file.name))
            return ParsedFile(name=file.name, documents=tuple(documents), issues=(issue,))
        if document is None:
            break
        documents.append(document)
        mistakes += len(document.issues)
        if mistakes > MAX_MISTAKES:
            message = f"there are more than {MAX_MISTAKES} mistakes in the file; it is not read further"
            issue = _issue("more-mistakes", message, "Correct those above first.", document.sources.locate())
            return ParsedFile(name=file.name, documents=tuple(documents), issues=(issue,))
    job = find_job(file.name, text)
    if job is not None and job.is_edited:
        documents = refuse_edited(job, documents)
    return ParsedFile(name=file.name, documents=tuple(documents), job=job)


def decode_file(file: EntityFile) -> str | Issue:
    """Return the text of a file, or an issue that says why it cannot be used."""
    if file.problem is not None:
        message = f"the file cannot be read: {file.problem}"
        return _issue("file-unreadable", message, "Check its rights, or remove it.", Source(file=file.name))
    if len(file.content) > MAX_FILE_BYTES:
        message = f"the file has more than {MAX_FILE_BYTES:,} bytes"
        return _issue("file-too-big", message, "Split it into several files.", Source(file=file.name))
    try:
        return file.content.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        line = file.content.count(b"\n", 0, exc.start) + 1
        message = f"the file is not UTF-8 text: {exc.reason}"
        return _issue("file-encoding", message, "Save it as UTF-8.", Source(file=file.name, line=line))


def gather_files(files: Iterable[ParsedFile], digest: str) -> LoadedBundle:
    """Combine parsed files into one bundle."""
    entities: dict[EntityKey, AnyEntity] = {}
    issues: list[Issue] = []
    sources: dict[EntityKey, FieldSources] = {}
    broken: set[EntityKey] = set()
    salvaged: list[AnyEntity] = []
    for file in files:
        issues += file.issues
        for document in file.documents:
            issues += document.issues
            key, found = document.key, document.entity or document.salvaged
            first = sources.setdefault(key, document.sources) if key is not None else None
            if key is not None and first is not None and first is not document.sources:
                message = f"there is another {label_of(key)} at {first.locate(('name',)).render()}"
                at = document.sources.locate(("name",))
                issues.append(_issue("duplicate-entity", message, "Rename one of them.", at, key))
            if key is not None and document.entity is not None and first is document.sources:
                entities[key] = document.entity
                continue
            if key is not None:
                broken.add(key)
            if found is not None:
                salvaged.append(found)
    return LoadedBundle(
        bundle=Bundle(entities=tuple(entity for key, entity in entities.items() if key not in broken)),
        issues=tuple(issues),
        sources=SourceMap(sources, is_partial=any(issue.entity is None for issue in issues)),
        broken=frozenset(broken),
        digest=digest,
        salvaged=tuple(each for each in salvaged if each.key not in entities or each.key in broken),
    )


def usable_bundle(loaded: LoadedBundle, issues: Iterable[Issue]) -> tuple[Bundle, tuple[Issue, ...]]:
    """Return the bundle without entities that have errors and without everything that depends on them.

    Also returns an issue for each such dependent. `issues` come from validation; issues from loading are already in
    `loaded`.
    """
    with_errors = {issue.entity for issue in issues if issue.severity is Severity.ERROR}
    refused = loaded.broken | {entity.key for entity in loaded.bundle.entities if entity.label in with_errors}
    graph = DependencyGraph.of(loaded.bundle)
    blocked = sorted(graph.dependents_of(refused) - refused)
    found = tuple(_blocked_issue(loaded, graph, key, refused) for key in blocked)
    return loaded.bundle.without(refused.union(blocked)), found


def _blocked_issue(
    loaded: LoadedBundle, graph: DependencyGraph, key: EntityKey, refused: Collection[EntityKey]
) -> Issue:
    causes = tuple(label_of(cause) for cause in sorted(graph.dependencies_of([key]).intersection(refused)))
    return Issue(
        severity=Severity.ERROR,
        code=BLOCKED,
        entity=label_of(key),
        message=f"it is left out, blocked by errors of {' and '.join(causes)}",
        remedy="Correct those first.",
        source=loaded.sources.locate(key),
        follows=causes,
    )


def _issue(code: str, message: str, remedy: str, source: Source, key: EntityKey | None = None) -> Issue:
    return Issue(
        severity=Severity.ERROR,
        code=code,
        entity=label_of(key) if key else None,
        message=message,
        remedy=remedy,
        source=source,
    )
