"""Declared entities → Falcon documents, for people who still need them."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from feed_assets.definitions.folder import DefinitionFolder
from feed_assets.entities.bundle import AnyEntity
from feed_assets.entities.common import Kind, label_of
from feed_assets.entities.errors import DefinitionsError, EntityNotFoundError
from feed_assets.issues import EntityKey, Issue
from feed_assets.json_form import ShownKey
from feed_assets.loading.bundles import parse_file
from feed_assets.loading.entity_files import read_entity_files
from feed_assets.loading.falcon.writing import render_falcon
from feed_assets.loading.messages import closest

"""Version of the JSON form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedDocument:
    """An entity's Falcon document and the name of its file."""

    key: ShownKey
    file: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReport:
    """The exported files and their folder; `replaced` are existing files that had other content."""

    folder: str | None
    documents: tuple[ExportedDocument, ...]
    replaced: tuple[str, ...] = ()
    is_written: bool = False


def export_documents(location: str | Path, key: EntityKey | None) -> tuple[ExportedDocument, ...]:
    """Return the Falcon document of an entity, or of all. References such as `${env:NAME}` stay references.

    Raises:
        LocationUnreadableError: the location does not exist or cannot be read.
        EntityNotFoundError: no such entity is declared.
        DefinitionsError: a requested entity cannot be read; carries the issues.
    """
    entities: dict[EntityKey, AnyEntity] = {}
    issues: list[Issue] = []
    for file in read_entity_files(location):
        parsed = parse_file(file, None)
        issues.extend(parsed.issues if key is None else ())
        for document in parsed.documents:
            if key is not None and document.key != key:
                continue
            issues.extend(document.issues)
            if document.entity is not None:
                entities[document.entity.key] = document.entity
    if issues:
        raise DefinitionsError(location=str(location), issues=issues)
    if key is not None and key not in entities:
        raise EntityNotFoundError(kind=key[0], name=key[1], suggestions=_suggest(location, key))
    return tuple(_document(entities[each]) for each in sorted(entities, key=_order_of))


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
    return ExportReport(
        folder=folder.location, documents=tuple(documents), replaced=tuple(others), is_written=not is_dry_run
    )


def _document(entity: AnyEntity) -> ExportedDocument:
    text = render_falcon(entity, has_references=True)
    return ExportedDocument(key=entity.key, file=f"{entity.kind.value}/{entity.name}.xml", text=text)


def _order_of(key: EntityKey) -> tuple[int, str]:
    return (list(Kind).index(Kind(key[0])), key[1])


def _suggest(location: str | Path, key: EntityKey) -> tuple[str, ...]:
    close = closest(key[1], (name for kind, name in _declared(location) if kind == key[0]))
    return (close,) if close else ()


def _declared(location: str | Path) -> Iterator[EntityKey]:
    for file in read_entity_files(location):
        yield from (document.key for document in parse_file(file, None).documents if document.key)


def describe(documents: Collection[ExportedDocument]) -> Iterator[str]:
    """Yield a line for each document."""
    for document in documents:
        yield f"{label_of(document.key)} → {document.file}"
