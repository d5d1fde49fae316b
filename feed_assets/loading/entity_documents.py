"""Turn one document into one entity, or into the issues that explain why it is not one."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

from pydantic import ValidationError

from feed_assets.entities.bundle import ENTITY_TYPES, AnyEntity
from feed_assets.entities.common import Kind, LocationKind, Validity, label_of
from feed_assets.entities.fields import LONGEST_NAME
from feed_assets.issues import EntityKey, FieldPath, FieldSources, Issue, Severity, Source, internal_error
from feed_assets.loading.documents import Note, PlainDocument
from feed_assets.loading.entity_files import Interpolation, MissingValue, Values
from feed_assets.loading.messages import alternatives, closest, explain
from feed_assets.loading.yaml_nodes import iter_documents
from feed_assets.masking import remember_credentials

MISSING_KEY = "missing-key"
MAX_MISTAKES = 50
"""Mistakes of one entity that are reported; further ones are dropped."""
_KIND = "kind"
_LOCATIONS, _TABLE, _CLUSTERS, _VALIDITY, _STORAGE = "locations", "table", "clusters", "validity", "storage"
_ANY_VALIDITY = {"start": "1970-01-01T00:00Z"}


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityDocument:
    """The result of reading a document: the entity, or None and the issues.

    `key` is None unless kind and name are known. `notes` say how the parts of a Falcon document were imported.
    `salvaged` is an entity with mistakes, reduced to its locations as far as these can be read.
    """

    key: EntityKey | None
    entity: AnyEntity | None
    issues: tuple[Issue, ...]
    sources: FieldSources
    notes: tuple[Note, ...] = ()
    salvaged: AnyEntity | None = None


def is_falcon(file: str) -> bool:
    """Return whether a file is a Falcon document, judging by its name.

    >>> is_falcon("entities/clicks.xml"), is_falcon("entities/clicks.yaml")
    (True, False)
    """
    return file.endswith(".xml")


def iter_entities(file: str, text: str, values: Values | None) -> Iterator[EntityDocument]:
    """Yield the entities of a file, in order. Documents without content are skipped.

    A file whose name ends with `.xml` is one Falcon document; any other file is YAML. Without `values`, references to
    outside values stay as written.
    """
    documents: Iterable[PlainDocument] = iter_documents(text)
    if is_falcon(file):
        from feed_assets.loading.falcon.documents import read_falcon  # measured: it takes 8 ms, and few files need it

        documents = [read_falcon(text)]
    for document in documents:
        if document.value is not None or document.problems:
            yield read_entity(file, document, values)


def read_entity(file: str, document: PlainDocument, values: Values | None) -> EntityDocument:
    """Read the entity of a parsed document. Whatever happens then is an issue of this document alone."""
    reader = _Reader(file, document, values)
    try:
        return reader.read()
    except Exception as exc:  # noqa: BLE001
        return reader.broken_off(exc)


class _Reader:
    def __init__(self, file: str, document: PlainDocument, values: Values | None) -> None:
        self._document = document
        self._values = values
        self._sources = FieldSources(file=file, positions=document.positions)
        self._key = _key_of(document.value)
        self._label = label_of(self._key) if self._key else None
        self._issues: list[Issue] = []

    def read(self) -> EntityDocument:
        for problem in self._document.problems:
            source = Source(file=self._sources.file, line=problem.line, column=problem.column)
            self._add(problem.code, problem.message, problem.remedy, source)
        entity = None
        if self._document.value is not None:
            found = self._entity(self._document.value)
            entity = None if self._issues else found
        return EntityDocument(
            key=self._key,
            entity=entity,
            issues=tuple(self._issues),
            sources=self._sources,
            notes=tuple(self._document.notes),
            salvaged=self._salvage() if self._issues else None,
        )

    def broken_off(self, error: Exception) -> EntityDocument:
        """Return the result of a reading that an exception ended."""
        issue = internal_error("reading it", error, entity=self._label, source=self._sources.locate())
        return EntityDocument(key=self._key, entity=None, issues=(*self._issues, issue), sources=self._sources)

    def _salvage(self) -> AnyEntity | None:
        """Return what can be read of the locations of an entity with mistakes."""
        value = self._document.value if self._document.value is not None else self._document.readable
        key = _key_of(value)
        if key is None:
            return None
        kind = Kind(key[0])
        filled = value
        if self._values is not None:
            filled = Interpolation(self._values, with_variables=kind is Kind.CLUSTER).fill(value)
        return salvage(kind, key[1], filled) if isinstance(filled, dict) else None

    def _entity(self, value: object) -> AnyEntity | None:
        if not isinstance(value, dict):
            message = "a document is a map with the key 'kind'"
            self._add("no-entity", message, "Write kind: feed and the keys of a feed.")
            return None
        kind = self._kind(value)
        if kind is None:
            return None
        content: object = {key: item for key, item in value.items() if key != _KIND}
        remember_credentials(content)
        if self._values is None:
            return self._checked(kind, content)
        filling = Interpolation(self._values, with_variables=kind is Kind.CLUSTER)
        filled = filling.fill(content)
        for missing in filling.missing:
            self._report_missing(missing)
        return None if filling.missing else self._checked(kind, filled)

    def _checked(self, kind: Kind, content: object) -> AnyEntity | None:
        try:
            return ENTITY_TYPES[kind].model_validate(content)
        except ValidationError as exc:
            for path, code, finding in islice(explain(exc, ENTITY_TYPES[kind]), MAX_MISTAKES):
                if self._document.problems and self._document.is_presence_checked and not _is_scalar(content, path):
                    continue  # a part is incomplete, and the problems have said what it lacks
                self._add(code, finding.message, finding.remedy, self._sources.locate(path))
            if exc.error_count() > MAX_MISTAKES:
                message = f"it has {exc.error_count() - MAX_MISTAKES:,} further mistakes"
                self._add("more-mistakes", message, "Correct the others first.")
            return None

    def _kind(self, value: dict[str, object]) -> Kind | None:
        choices = [kind.value for kind in Kind]
        if _KIND not in value:
            self._add(MISSING_KEY, "'kind' is missing", f"Add kind: {alternatives(choices)}.")
            return None
        written = value[_KIND]
        if isinstance(written, str) and written in choices:
            return Kind(written)
        close = closest(str(written), choices)
        remedy = f"Did you mean {close!r}?" if close else f"Kinds are {', '.join(choices)}."
        self._add("unknown-kind", f"{written!r} is not a kind of entity", remedy, self._sources.locate((_KIND,)))
        return None

    def _report_missing(self, missing: MissingValue) -> None:
        source = self._sources.locate(missing.path)
        if missing.is_environment:
            message = f"${{env:{missing.name}}} has no value: the environment has no {missing.name}"
            self._add("env-missing", message, f"Export {missing.name}.", source)
            return
        assert self._values is not None, "something was looked for"
        close = closest(missing.name, self._values.variables)
        meant = f"Did you mean ${{{close}}}? Else write" if close else "Write"
        tried = ", ".join(self._values.places_tried(missing.name))
        message = f"${{{missing.name}}} has no value, tried in this order: {tried}"
        remedy = f"{meant} {missing.name} under variables: in feed_assets.yaml, or export it."
        self._add("variable-missing", message, remedy, source)

    def _add(self, code: str, message: str, remedy: str, source: Source | None = None) -> None:
        if "\\xa0" in message:
            remedy = "It has no-break spaces, as copied from a web page: write blanks."
        self._issues.append(
            Issue(
                severity=Severity.ERROR,
                code=code,
                entity=self._label,
                message=message,
                remedy=remedy,
                source=source or self._sources.locate(),
            )
        )


def _is_scalar(content: object, path: FieldPath) -> bool:
    """Return whether the value at a path is written, and neither a map nor a list."""
    for part in path:
        entries = dict(enumerate(content)) if isinstance(content, list) else content
        if not isinstance(entries, dict) or part not in entries:
            return False
        content = entries[part]
    return not isinstance(content, dict | list)


def _key_of(value: object) -> EntityKey | None:
    if not isinstance(value, dict):
        return None
    kind, name = value.get(_KIND), value.get("name")
    if not (isinstance(kind, str) and isinstance(name, str) and len(name) <= LONGEST_NAME):
        return None
    return (kind, name) if kind in list(Kind) else None


def salvage(kind: Kind, name: str, value: Mapping[str, object]) -> AnyEntity | None:
    """Return the entity of a mistaken document with its readable locations, so that its data stay protected while it is
    left out; None if it has none.

    These are the locations and tables of a feed, the directories of a mirror, and the storage of a cluster. Of the rest
    only validities have a meaning.

    >>> mistaken = {"locations": {"data": "/b/${YEAR}"}, "clusters": {"east": {}}, "frequncy": 1}
    >>> salvage(Kind.FEED, "b", mistaken).data_on("east")
    '/b/${YEAR}'
    """
    content = _salvaged(kind, value)
    if content is None:
        return None
    try:
        return ENTITY_TYPES[kind].model_validate({"name": name, **content})
    except ValidationError:
        return None


def _salvaged(kind: Kind, value: Mapping[str, object]) -> dict[str, object] | None:
    match kind:
        case Kind.CLUSTER:
            return {_STORAGE: value[_STORAGE]} if _STORAGE in value else None
        case Kind.FEED:
            return {"frequency": "days(1)", **_clusters(value), **_places(value)}
        case Kind.PROCESS:
            workflow = value.get("workflow")
            mirror = workflow.get("mirror") if isinstance(workflow, Mapping) else None
            if not isinstance(mirror, Mapping):
                return None
            sides = {side: mirror.get(side) for side in ("source", "target")}
            work = {"engine": "directory-mirror", "mirror": sides}
            return {"frequency": "days(1)", **_clusters(value, with_places=False), "workflow": work}
        case _:
            return None


def _clusters(value: Mapping[str, object], *, with_places: bool = True) -> dict[str, object]:
    clusters = value.get(_CLUSTERS)
    entries = clusters if isinstance(clusters, Mapping) else {}
    return {
        _CLUSTERS: {
            name: {_VALIDITY: _validity(entry), **(_places(entry) if with_places else {})}
            for name, entry in entries.items()
        }
    }


def _validity(entry: object) -> object:
    written = entry.get(_VALIDITY) if isinstance(entry, Mapping) else None
    with suppress(ValidationError):
        Validity.model_validate(written)
        return written
    return _ANY_VALIDITY


def _places(value: object) -> dict[str, object]:
    if not isinstance(value, Mapping):
        return {}
    locations, table = value.get(_LOCATIONS), value.get(_TABLE)
    texts = locations if isinstance(locations, Mapping) else {}
    found = {kind.value: texts[kind.value] for kind in LocationKind if isinstance(texts.get(kind.value), str)}
    return {**({_LOCATIONS: found} if found else {}), **({_TABLE: table} if isinstance(table, str) else {})}
