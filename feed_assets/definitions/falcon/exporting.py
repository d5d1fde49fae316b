"""Declared entities → Falcon documents, for people who still need them."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from feed_assets.definitions.folder import DefinitionFolder
from feed_assets.entities.bundle import AnyEntity
from feed_assets.entities.common import Kind, label_of
from feed_assets.entities.datasource import UPDATE_KEY, LoadType, find_argument
from feed_assets.entities.errors import AmbiguousNameError, DefinitionsError, EntityNotFoundError
from feed_assets.entities.feed import Feed
from feed_assets.issues import EntityKey, Issue
from feed_assets.json_form import Hidden, ShownKey
from feed_assets.loading.bundles import parse_file
from feed_assets.loading.entity_files import read_entity_files
from feed_assets.loading.falcon.writing import render_falcon
from feed_assets.loading.messages import closest
from feed_assets.loading.yaml_writer import content_of
from feed_assets.timing.expressions import NEXT_MONTH

_NEXT_MONTH = re.compile(rf"\b{NEXT_MONTH}\s*\(")  # nextMonth(-1,0,0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedDocument:
    """An entity's Falcon document and the name of its file."""

    key: ShownKey
    file: str
    text: str
    is_printed: Hidden[bool] = True

    @property
    def lines(self) -> list[str]:
        """The text, or the name of its file."""
        return self.text.splitlines() if self.is_printed else [f"{label_of(self.key)} → {self.file}"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReport:
    """The exported files and their folder; `replaced` are existing files that had other content."""

    folder: str
    documents: tuple[ExportedDocument, ...]
    replaced: tuple[str, ...] = ()
    is_written: bool = False

    @property
    def summary(self) -> str:
        """How many were written."""
        return f"{self.folder}: {len(self.documents)} documents{'' if self.is_written else ', not written'}"


def export_documents(
    location: str | Path, kind: Kind | None = None, name: str | None = None
) -> tuple[ExportedDocument, ...]:
    """Return the Falcon document of an entity, or of all. References such as `${env:NAME}` stay references.

    Raises:
        LocationUnreadableError: the location does not exist or cannot be read.
        EntityNotFoundError: no such entity is declared.
        AmbiguousNameError: no kind is given, and several have the name.
        DefinitionsError: a requested entity cannot be read; carries the issues.
    """
    kinds = tuple(Kind) if kind is None else (kind,)
    keys = {(each.value, name) for each in kinds}
    entities: dict[EntityKey, AnyEntity] = {}
    issues: list[Issue] = []
    names: list[str] = []
    for file in read_entity_files(location):
        parsed = parse_file(file, None)
        issues.extend(parsed.issues if name is None else ())
        for document in parsed.documents:
            names += [document.key[1]] if document.key is not None and document.key[0] in kinds else []
            if name is not None and document.key not in keys:
                continue
            issues.extend(document.issues)
            if document.entity is not None and document.entity.key[0] in kinds:
                entities[document.entity.key] = document.entity
    if issues:
        raise DefinitionsError(location=str(location), issues=issues)
    if name is not None and not entities:
        close = closest(name, names)
        raise EntityNotFoundError(kind=kind or "entity", name=name, suggestions=(close,) if close else ())
    if name is not None and len(entities) > 1:
        raise AmbiguousNameError(name=name, kinds=sorted(each for each, _ in entities))
    return tuple(_document(entities[each]) for each in sorted(entities, key=lambda key: (kinds.index(key[0]), key[1])))


def write_documents(
    documents: Collection[ExportedDocument], folder: DefinitionFolder, *, is_forced: bool, is_dry_run: bool
) -> ExportReport:
    """Write documents to `<kind>/<name>.xml` below a folder.

    Raises:
        DefinitionsError: a file exists with other content, and `is_forced` is False.
    """
    there = {document.file: folder.read_file(document.file) for document in documents}
    others = [
        document.file
        for document in documents
        if there[document.file] is not None and there[document.file] != document.text.encode()
    ]
    if others and not is_forced:
        raise DefinitionsError(
            location=folder.location,
            reason=f"{', '.join(others)} already {'exists' if len(others) == 1 else 'exist'} with another content",
            next_step="Remove them, or export with --force.",
        )
    if not is_dry_run:
        for document in documents:
            folder.write(document.file, document.text.encode())
    named = tuple(replace(document, is_printed=False) for document in documents)
    return ExportReport(folder=folder.location, documents=named, replaced=tuple(others), is_written=not is_dry_run)


def _iter_beyond(entity: AnyEntity) -> Iterator[str]:
    """Yield what chooses rows of an import or export, and has no element in Falcon's XML."""
    for cluster, on in entity.clusters.items() if isinstance(entity, Feed) else ():
        if on.import_ is not None:
            source, extract = on.import_.source, on.import_.source.extract
            said = {"query": source.query, "where": source.where}
            said |= {f"extract.{name}": getattr(extract, name) for name in ("by", "overlap", "key")}
            yield from (f"clusters.{cluster}.import.source.{name}" for name, value in said.items() if value)
        if on.export is not None:
            load, key = on.export.target.load.type, find_argument(on.export, UPDATE_KEY)
            if load is LoadType.REPLACE or (load is LoadType.INSERT) is bool(key):
                yield f"clusters.{cluster}.export.target.load.type: {load}{f' with {UPDATE_KEY}' if key else ''}"


def _document(entity: AnyEntity) -> ExportedDocument:
    if any(_NEXT_MONTH.search(text) for text in _iter_texts(content_of(entity))):
        reason = f"{NEXT_MONTH} is a function that Falcon does not have, and nothing of it says the same"
        step = "Keep it in YAML, or let an instance of the month after read lastMonth(0,0,0) to currentMonth(-1,0,0)."
        raise DefinitionsError(location=entity.label, reason=reason, next_step=step)
    if beyond := ", ".join(_iter_beyond(entity)):
        reason = f"{beyond}: Falcon would move other rows, since its XML cannot say that"
        raise DefinitionsError(location=entity.label, reason=reason, next_step="Keep it in YAML.")
    text = render_falcon(entity, has_references=True)
    return ExportedDocument(key=entity.key, file=f"{entity.kind.value}/{entity.name}.xml", text=text)


def _iter_texts(value: object) -> Iterator[str]:
    """Yield the texts of a value but for descriptions."""
    match value:
        case Mapping():
            yield from (text for key, each in value.items() if key != "description" for text in _iter_texts(each))
        case list():
            yield from (text for each in value for text in _iter_texts(each))
        case str():
            yield value
