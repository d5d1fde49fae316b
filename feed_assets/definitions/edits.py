"""Requested edits of definitions, and the file texts that result from them."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias, assert_never

from feed_assets.definitions.contents import Contents
from feed_assets.definitions.errors import DefinitionStoreError
from feed_assets.definitions.folder import Splice, edit_text, find_documents, format_of, only_document
from feed_assets.entities.bundle import AnyEntity
from feed_assets.entities.common import label_of
from feed_assets.entities.errors import DefinitionsError
from feed_assets.issues import EntityKey, Issue
from feed_assets.loading.bundles import parse_file
from feed_assets.loading.entity_files import EntityFile, Values
from feed_assets.log.definitions.records import DocumentFormat

_SUBMITTED = "submitted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Put:
    """Declare an entity by the text of one document, replacing its earlier declaration.

    The document stays in its file. A new entity gets its own file, `<kind>/<name>.yaml`, or `<name>.yaml` in `folder`.
    `source` is the name of the text in messages. It stands where the entity that it `replaces` stood, if there is one.
    `job` is the job of an extension in whose file the text was found.
    """

    text: str = field(repr=False)
    format: DocumentFormat = DocumentFormat.YAML
    source: str | None = None
    folder: str | None = None
    replaces: EntityKey | None = None
    job: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Remove:
    """Undeclare an entity. Has no effect on an entity that is not declared."""

    key: EntityKey


@dataclass(frozen=True, slots=True, kw_only=True)
class PutFile:
    """Write the file of a job as a whole: it declares what its text says, and nothing else. None removes it."""

    name: str
    text: str | None = field(repr=False)


Edit: TypeAlias = Put | Remove | PutFile


KeyedDocuments = Mapping[EntityKey, tuple[Put, AnyEntity]]
"""Documents by the entity that they declare."""


def read_documents(files: Sequence[EntityFile], values: Values) -> KeyedDocuments:
    """Read the documents of users' files.

    Raises:
        DefinitionsError: a document is not a valid entity, or two declare the same one; carries the issues.
    """
    found: dict[EntityKey, tuple[Put, AnyEntity]] = {}
    for file in files:
        parsed = parse_file(file, values)
        issues: list[Issue] = [*parsed.issues, *(issue for each in parsed.documents for issue in each.issues)]
        if issues or not parsed.documents:
            reason = None if issues else "it declares nothing"
            raise DefinitionsError(location=file.name, issues=issues, reason=reason)
        text, job = file.content.decode("utf-8-sig"), parsed.job.name if parsed.job else None
        spans = find_documents(parsed, text)
        for document in parsed.documents:
            assert document.key is not None
            assert document.entity is not None
            if document.key in found:
                raise DefinitionsError(
                    location=file.name,
                    reason=f"{label_of(document.key)} is declared twice",
                    next_step="Give one document for each entity.",
                )
            span = spans[document.key]
            body = text[span.body_start : span.body_end]
            put = Put(text=body, format=format_of(file.name), source=file.name, job=job)
            found[document.key] = (put, document.entity)
    return found


def resolve_edits(edits: Iterable[Edit], values: Values) -> dict[EntityKey, Put | None]:
    """Return the edit of each entity: its document's body, or None to remove it. The last edit of an entity counts.
    Whole files are left out.

    Raises:
        DefinitionsError: a text does not name the entity that it declares; carries the issues.
        DefinitionStoreError: a text contains no document or several.
    """
    puts: dict[EntityKey, Put | None] = {}
    for edit in edits:
        match edit:
            case Remove():
                puts[edit.key] = None
            case Put():
                body = only_document(edit.text, edit.format)
                puts[_key_of(body, edit, values)] = replace(edit, text=body)
            case PutFile():
                pass
            case _:
                assert_never(edit)
    return puts


def apply_edits(
    contents: Contents, puts: Mapping[EntityKey, Put | None], only_file: str | None
) -> dict[str, str | None]:
    """Return the new texts of the files that change, by name; None for a file to be removed.

    Raises:
        DefinitionStoreError: an entity is declared twice, or a file cannot be edited.
    """
    splices: dict[str, list[Splice]] = defaultdict(list)
    for key, put in puts.items():
        for name, splice in _splices_of(contents, key, put, only_file):
            splices[name].append(splice)
    texts = {name: _edited(contents, name, found) for name, found in splices.items()}
    return {name: text for name, text in texts.items() if text != contents.text_of(name)}


def _splices_of(
    contents: Contents, key: EntityKey, put: Put | None, only_file: str | None
) -> Iterable[tuple[str, Splice]]:
    places = contents.files_of(key)
    if len(places) > 1:
        raise DefinitionStoreError(
            location=label_of(key),
            reason=f"it is declared {len(places)} times, in {' and '.join(sorted(set(places)))}",
            next_step="Remove one of them from the files by hand.",
        )
    document = contents.documents.get(put.replaces if put is not None and put.replaces is not None else key)
    if document is not None:
        if put is None or put.format is not document.format:
            yield document.file, Splice(span=document.span, body=None)
        else:
            yield document.file, Splice(span=document.span, body=put.text)
            return
    if put is not None:
        yield _new_file(key, put, only_file), Splice(span=None, body=put.text)


def _new_file(key: EntityKey, put: Put, only_file: str | None) -> str:
    if only_file is None:
        folder = key[0] if put.folder is None else put.folder
        return f"{folder}/{key[1]}.{put.format.value}".removeprefix("/")
    if put.format is not format_of(only_file):
        raise DefinitionStoreError(
            location=label_of(key),
            reason=f"it is written as {put.format.value}, but all definitions are in the file {only_file!r}",
            next_step="Write it as YAML, or set 'entities' to a folder.",
        )
    return only_file


def _edited(contents: Contents, name: str, splices: list[Splice]) -> str | None:
    file = contents.files.get(name)
    if file is not None and file.text is None:
        issues = file.parsed.issues
        raise DefinitionsError(location=name, issues=issues, next_step="Correct the file by hand first.")
    if format_of(name) is DocumentFormat.XML:
        return next((splice.body for splice in reversed(splices) if splice.body is not None), None)
    return edit_text(contents.text_of(name), splices)


def _key_of(body: str, edit: Put, values: Values) -> EntityKey:
    source = edit.source or f"{_SUBMITTED}.{edit.format.value}"
    named = source if format_of(source) is edit.format else f"{source}.{edit.format.value}"
    parsed = parse_file(EntityFile(name=named, content=body.encode()), values)
    keys = [document.key for document in parsed.documents]
    if len(keys) == 1 and keys[0] is not None:
        return keys[0]
    issues = [*parsed.issues, *(issue for document in parsed.documents for issue in document.issues)]
    raise DefinitionsError(
        location=source,
        issues=issues,
        reason="it does not declare an entity",
        next_step="Start it with kind: and name:.",
    )
