"""A folder, a file or an fsspec URL → a bundle, what is wrong with it, and where everything stands."""

import hashlib
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from feed_assets.entities.bundle import AnyEntity, Bundle
from feed_assets.entities.common import label_of
from feed_assets.entities.graph import DependencyGraph
from feed_assets.errors import LocationUnreadableError
from feed_assets.issues import EntityKey, FieldSources, Issue, Severity, Source, SourceMap
from feed_assets.loading.entity_documents import EntityDocument, iter_entities
from feed_assets.loading.interpolation import Values

MAX_FILE_BYTES = 16 * 1024 * 1024
_SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityFile:
    """A file: the name that messages use, and its content."""

    name: str
    content: bytes


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
        location: a folder (all `*.yaml` and `*.yml` below it, hidden ones skipped), a file, or an fsspec URL of either.
        variables: values of `${NAME}` in clusters; the environment is asked for those that are missing here.
        environ: the environment, also for `${env:NAME}`; the process's own if None.

    Raises:
        LocationUnreadableError: the location does not exist or cannot be read.
    """
    files = read_entity_files(location)
    return load_files(files, Values(variables=variables, environ=os.environ if environ is None else environ))


def load_files(files: Iterable[EntityFile], values: Values) -> LoadedBundle:
    """The bundle of files that have been read."""
    gathered = _Gathered()
    files = tuple(files)
    for file in files:
        gathered.add_file(file, values)
    return gathered.loaded(digest_files(files, values))


def digest_files(files: Iterable[EntityFile], values: Values) -> str:
    """The sha256 of files and of the values that they refer to; needs no parsing, so a cache can be asked first."""
    digest = hashlib.sha256(b"1")
    for file in files:
        digest.update(f"\0{file.name}\0{len(file.content)}\0".encode())
        digest.update(file.content)
        for name, value in values.iter_used(file.content.decode("utf-8", "replace")):
            digest.update(f"\0{name}={value!r}".encode())
    return digest.hexdigest()


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

    def add_file(self, file: EntityFile, values: Values) -> None:
        if len(file.content) > MAX_FILE_BYTES:
            message = f"the file has {len(file.content):,} bytes, more than {MAX_FILE_BYTES:,}"
            self._note("file-too-big", message, "Split it into several files.", Source(file=file.name))
            return
        try:
            text = file.content.decode("utf-8-sig")
        except UnicodeDecodeError as exc:
            line = file.content.count(b"\n", 0, exc.start) + 1
            message = f"the file is not UTF-8 text: {exc.reason}"
            self._note("file-encoding", message, "Save it as UTF-8.", Source(file=file.name, line=line))
            return
        for document in iter_entities(file.name, text, values):
            self._add_document(document)

    def _add_document(self, document: EntityDocument) -> None:
        self.issues.extend(document.issues)
        key = document.key
        if key is None:
            return
        first = self.sources.setdefault(key, document.sources)
        if first is not document.sources:
            place = first.locate(("name",)).render()
            message = f"there is another {label_of(key)} at {place}"
            self._note("duplicate-entity", message, "Rename one of them.", document.sources.locate(("name",)), key)
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

    def _note(self, code: str, message: str, remedy: str, source: Source, key: EntityKey | None = None) -> None:
        self.issues.append(
            Issue(
                severity=Severity.ERROR,
                code=code,
                entity=label_of(key) if key else None,
                message=message,
                remedy=remedy,
                source=source,
            )
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
        yield EntityFile(name=_shown(location), content=location.read_bytes())
        return
    if not location.is_dir():
        raise FileNotFoundError(location)
    for file in sorted(_walk(location)):
        yield EntityFile(name=_shown(file), content=file.read_bytes())


def _walk(folder: Path) -> Iterator[Path]:
    for directory, folders, names in os.walk(folder, onerror=_raise):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            if _is_entity_file(name):
                yield Path(directory) / name


def _raise(error: OSError) -> None:
    raise error


def _is_entity_file(name: str) -> bool:
    return name.endswith(_SUFFIXES) and not name.startswith(".")


def _shown(file: Path) -> str:
    """The name of a file as seen from the working directory, if it stands below it."""
    absolute, here = file.absolute(), Path.cwd()
    return str(absolute.relative_to(here)) if absolute.is_relative_to(here) else str(file)


def _read_remote(url: str) -> Iterator[EntityFile]:
    import fsspec  # only URLs need it

    filesystem, root = fsspec.core.url_to_fs(url)
    if filesystem.isfile(root):
        yield EntityFile(name=url, content=filesystem.cat_file(root))
        return
    if not filesystem.isdir(root):
        raise FileNotFoundError(url)
    prefix = root.rstrip("/") + "/"
    for path in sorted(filesystem.find(root)):
        below = path.removeprefix(prefix)
        if _is_entity_file(below.rpartition("/")[2]) and "/." not in f"/{below}":
            yield EntityFile(name=f"{url.rstrip('/')}/{below}", content=filesystem.cat_file(path))
