"""A folder, a file or an fsspec URL → a bundle, what is wrong with it, and where everything stands."""

import hashlib
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from feed_assets.entities.bundle import AnyEntity, Bundle
from feed_assets.entities.common import label_of
from feed_assets.entities.graph import DependencyGraph
from feed_assets.issues import EntityKey, FieldSources, Issue, Severity, Source, SourceMap
from feed_assets.loading.entity_documents import EntityDocument, iter_entities
from feed_assets.loading.errors import LocationUnreadableError
from feed_assets.loading.interpolation import Values

MAX_FILE_BYTES = 8 * 1024 * 1024
"""More is not even read."""
MAX_MISTAKES = 200
"""Mistakes in one file after which the rest of it is not read."""
_SUFFIXES = (".yaml", ".yml", ".xml")


References: TypeAlias = tuple[tuple[str, str | None], ...]
"""Names of values from outside, and the values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityFile:
    """A file: the name that messages use, and its content, or the reason why it could not be read."""

    name: str
    content: bytes
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedFile:
    """What the documents of a file gave, and what is wrong with the file as a whole."""

    name: str
    documents: tuple[EntityDocument, ...] = ()
    issues: tuple[Issue, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedBundle:
    """What a location holds.

    `bundle` has the entities that could be read; `broken` are the keys of those that were declared but could not;
    `digest` is of the files and of the values that they refer to, and changes whenever the bundle can change.
    """

    bundle: Bundle
    issues: tuple[Issue, ...]
    sources: SourceMap
    broken: frozenset[EntityKey]
    digest: str


def load_bundle(
    location: str | Path, *, variables: Mapping[str, str], environ: Mapping[str, str] | None = None
) -> LoadedBundle:
    """Read the entities of a location. What is wrong with their content is an issue, not an exception.

    Args:
        location: a folder (all `*.yaml`, `*.yml` and `*.xml` below it, hidden ones skipped), a file, or an fsspec URL
            of either.
        variables: values of `${NAME}` in clusters; the environment is asked for those that are missing here.
        environ: the environment, also for `${env:NAME}`; the process's own if None.

    Raises:
        LocationUnreadableError: the location does not exist or cannot be read.
    """
    files = read_entity_files(location)
    return load_files(files, Values(variables=variables, environ=os.environ if environ is None else environ))


def load_files(files: Iterable[EntityFile], values: Values) -> LoadedBundle:
    """The bundle of files that have been read."""
    files = tuple(files)
    return gather_files((parse_file(file, values) for file in files), digest_files(files, values))


def parse_file(file: EntityFile, values: Values | None) -> ParsedFile:
    """The entities of one file; it depends on nothing but the arguments, so it can be kept.

    Without `values` references to the outside stay as they are written.
    """
    text = decode_file(file)
    if isinstance(text, Issue):
        return ParsedFile(name=file.name, issues=(text,))
    documents: list[EntityDocument] = []
    mistakes = 0
    for document in iter_entities(file.name, text, values):
        documents.append(document)
        mistakes += len(document.issues)
        if mistakes > MAX_MISTAKES:
            message = f"there are more than {MAX_MISTAKES} mistakes in the file; it is not read further"
            issue = _issue("more-mistakes", message, "Correct those above first.", document.sources.locate())
            return ParsedFile(name=file.name, documents=tuple(documents), issues=(issue,))
    return ParsedFile(name=file.name, documents=tuple(documents))


def decode_file(file: EntityFile) -> str | Issue:
    """The text of a file, or why it cannot be used."""
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
    """The bundle of files that have been parsed."""
    gathered = _Gathered()
    for file in files:
        gathered.issues.extend(file.issues)
        for document in file.documents:
            gathered.add_document(document)
    return gathered.loaded(digest)


def digest_files(files: Iterable[EntityFile], values: Values) -> str:
    """The sha256 of files and of the values that they refer to; needs no parsing, so a cache can be asked first."""
    return digest_used_files((file, references_of(file, values)) for file in files)


def digest_used_files(files: Iterable[tuple[EntityFile, References]]) -> str:
    """`digest_files` of files whose references are known."""
    digest = hashlib.sha256(b"1")
    for file, references in files:
        digest.update(f"\0{file.name}\0{len(file.content)}\0".encode())
        digest.update(file.content if file.problem is None else f"\0{file.problem}".encode())
        for name, value in references:
            digest.update(f"\0{name}={value!r}".encode())
    return digest.hexdigest()


def references_of(file: EntityFile, values: Values) -> References:
    """What a file refers to, and the values it gets; may name references that are none of ours."""
    if b"${" not in file.content:
        return ()
    return tuple(values.iter_used(file.content.decode("utf-8", "replace")))


def usable_bundle(loaded: LoadedBundle, issues: Iterable[Issue]) -> tuple[Bundle, tuple[Issue, ...]]:
    """The bundle without entities that have errors, and without all that depend on those; an issue for each of the
    latter. `issues` are those of the validation; those of the loading are known.
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
    causes = " and ".join(label_of(cause) for cause in sorted(graph.dependencies_of([key]).intersection(refused)))
    return Issue(
        severity=Severity.ERROR,
        code="blocked-by",
        entity=label_of(key),
        message=f"it is left out, blocked by errors of {causes}",
        remedy="Correct those first.",
        source=loaded.sources.locate(key),
    )


class _Gathered:
    def __init__(self) -> None:
        self.entities: dict[EntityKey, AnyEntity] = {}
        self.issues: list[Issue] = []
        self.sources: dict[EntityKey, FieldSources] = {}
        self.broken: set[EntityKey] = set()

    def add_document(self, document: EntityDocument) -> None:
        self.issues.extend(document.issues)
        key = document.key
        if key is None:
            return
        first = self.sources.setdefault(key, document.sources)
        if first is not document.sources:
            place = first.locate(("name",)).render()
            message = f"there is another {label_of(key)} at {place}"
            source = document.sources.locate(("name",))
            self.issues.append(_issue("duplicate-entity", message, "Rename one of them.", source, key))
        if document.entity is None or first is not document.sources:
            self.broken.add(key)
        else:
            self.entities[key] = document.entity

    def loaded(self, digest: str) -> LoadedBundle:
        usable = tuple(entity for key, entity in self.entities.items() if key not in self.broken)
        return LoadedBundle(
            bundle=Bundle(entities=usable),
            issues=tuple(self.issues),
            sources=SourceMap(self.sources),
            broken=frozenset(self.broken),
            digest=digest,
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


def read_entity_files(location: str | Path) -> tuple[EntityFile, ...]:
    """The entity files of a location, by name.

    Raises:
        LocationUnreadableError: the location does not exist or cannot be read.
    """
    text = str(location)
    try:
        if "://" in text:
            return tuple(_read_remote(text))
        return tuple(_read_local(Path(text)))
    except FileNotFoundError as exc:
        raise LocationUnreadableError(
            location=text,
            reason="there is no such file or folder",
            next_step="Create it, or correct the setting 'entities'.",
        ) from exc
    except (OSError, ImportError, ValueError) as exc:
        raise LocationUnreadableError(
            location=text,
            reason=f"it cannot be read: {exc}",
            next_step="Check the address, the rights and the installed packages.",
        ) from exc


def _read_local(location: Path) -> Iterator[EntityFile]:
    if location.is_file():
        yield EntityFile(name=_shown(location), content=_read_start(location))
        return
    if not location.is_dir():
        raise FileNotFoundError(location)
    shown = _shown(location).rstrip("/")
    for below in sorted(_walk(location)):
        name = "/".join(below if shown == "." else (shown, *below))
        path = location.joinpath(*below)
        try:
            yield EntityFile(name=name, content=_read_start(path))
        except OSError as exc:
            if path.is_symlink() or not isinstance(exc, FileNotFoundError):  # else it was removed since it was listed
                yield EntityFile(name=name, content=b"", problem=exc.strerror or type(exc).__name__)


def _read_start(file: Path) -> bytes:
    """The content of a file; of one that is too big as much as shows that."""
    with file.open("rb") as stream:
        return stream.read(MAX_FILE_BYTES + 1)


def _walk(folder: Path) -> Iterator[tuple[str, ...]]:
    """The parts of the path of each file below the folder."""
    for directory, folders, names in os.walk(folder, onerror=_raise):
        folders[:] = [name for name in folders if not name.startswith(".")]
        parts = Path(directory).relative_to(folder).parts
        for name in names:
            path = Path(directory, name)
            if is_entity_file(name) and (path.is_file() or path.is_symlink()):
                yield (*parts, name)


def _raise(error: OSError) -> None:
    raise error


def is_entity_file(name: str) -> bool:
    """Whether a file of this name (without folders) is looked at."""
    return name.endswith(_SUFFIXES) and not name.startswith(".")


def _end_of(size: int | None) -> int | None:
    """Where reading ends: a file that is too big is not read whole."""
    return MAX_FILE_BYTES + 1 if size is not None and size > MAX_FILE_BYTES else None


def _shown(file: Path) -> str:
    """The name of a file as seen from the working directory, if it stands below it."""
    absolute, here = file.absolute(), Path.cwd()
    return str(absolute.relative_to(here)) if absolute.is_relative_to(here) else str(file)


def _read_remote(url: str) -> Iterator[EntityFile]:
    import fsspec  # only URLs need it

    filesystem, root = fsspec.core.url_to_fs(url)
    filesystem.invalidate_cache()
    if filesystem.isfile(root):
        size = filesystem.info(root)["size"]
        yield EntityFile(name=url, content=filesystem.cat_file(root, end=_end_of(size)))
        return
    if not filesystem.isdir(root):
        raise FileNotFoundError(url)
    prefix = root.rstrip("/") + "/"
    found = filesystem.find(root, detail=True)
    below = {path: path.removeprefix(prefix) for path in sorted(found)}
    paths = [path for path, name in below.items() if is_entity_file(name.rpartition("/")[2]) and "/." not in f"/{name}"]
    big = [path for path in paths if _end_of(found[path]["size"]) is not None]
    small = [path for path in paths if path not in big]
    contents = filesystem.cat(small, on_error="return") if small else {}
    contents |= {path: filesystem.cat_file(path, end=MAX_FILE_BYTES + 1) for path in big}
    for path in paths:
        content, name = contents[path], f"{url.rstrip('/')}/{below[path]}"
        if isinstance(content, bytes):
            yield EntityFile(name=name, content=content)
        elif not isinstance(content, OSError):
            raise content
        elif not isinstance(content, FileNotFoundError):  # else it was removed since it was listed
            yield EntityFile(name=name, content=b"", problem=content.strerror or str(content))
