"""One document → one entity, or the issues that say why not."""

from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import ValidationError

from feed_assets.entities.bundle import ENTITY_TYPES, AnyEntity
from feed_assets.entities.common import Kind, label_of
from feed_assets.issues import EntityKey, FieldSources, Finding, Issue, Severity, Source
from feed_assets.loading.interpolation import Interpolation, MissingValue, Values
from feed_assets.loading.messages import alternatives, closest, explain
from feed_assets.loading.yaml_nodes import YamlDocument, iter_documents

_KIND = "kind"


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityDocument:
    """What a document gave: the entity, or None and the issues; its key where kind and name are known."""

    key: EntityKey | None
    entity: AnyEntity | None
    issues: tuple[Issue, ...]
    sources: FieldSources


def iter_entities(file: str, text: str, values: Values) -> Iterator[EntityDocument]:
    """The entities of a file, in order; documents without content are skipped."""
    for document in iter_documents(text):
        if document.value is not None or document.problems:
            yield _Reader(file, document, values).read()


class _Reader:
    def __init__(self, file: str, document: YamlDocument, values: Values) -> None:
        self._document = document
        self._values = values
        self._sources = FieldSources(file=file, positions=document.positions)
        self._key = _key_of(document.value)
        self._label = label_of(self._key) if self._key else None
        self._issues: list[Issue] = []

    def read(self) -> EntityDocument:
        for problem in self._document.problems:
            source = Source(file=self._sources.file, line=problem.line, column=problem.column)
            self._add(problem.code, Finding(message=problem.message, remedy=problem.remedy), source)
        entity = None
        if self._document.value is not None:
            found = self._entity(self._document.value)
            entity = None if self._issues else found
        return EntityDocument(key=self._key, entity=entity, issues=tuple(self._issues), sources=self._sources)

    def _entity(self, value: object) -> AnyEntity | None:
        if not isinstance(value, dict):
            message = "a document is a map with the key 'kind'"
            self._add("no-entity", Finding(message=message, remedy="Write kind: feed and the keys of a feed."))
            return None
        kind = self._kind(value)
        if kind is None:
            return None
        filling = Interpolation(self._values, with_variables=kind is Kind.CLUSTER)
        filled = filling.fill({key: item for key, item in value.items() if key != _KIND})
        for missing in filling.missing:
            self._report_missing(missing)
        if filling.missing:
            return None
        try:
            return ENTITY_TYPES[kind].model_validate(filled)
        except ValidationError as exc:
            for path, code, finding in explain(exc, ENTITY_TYPES[kind]):
                hidden = Finding(message=filling.hide(finding.message), remedy=filling.hide(finding.remedy))
                self._add(code, hidden, self._sources.locate(path))
            return None

    def _kind(self, value: dict[str, object]) -> Kind | None:
        choices = [kind.value for kind in Kind]
        if _KIND not in value:
            finding = Finding(message="'kind' is missing", remedy=f"Add kind: {alternatives(choices)}.")
            self._add("missing-key", finding)
            return None
        written = value[_KIND]
        if isinstance(written, str) and written in choices:
            return Kind(written)
        close = closest(str(written), choices)
        remedy = f"Did you mean {close!r}?" if close else f"Kinds are {', '.join(choices)}."
        finding = Finding(message=f"{written!r} is not a kind of entity", remedy=remedy)
        self._add("unknown-kind", finding, self._sources.locate((_KIND,)))
        return None

    def _report_missing(self, missing: MissingValue) -> None:
        if missing.is_environment:
            finding = Finding(
                message=f"${{env:{missing.name}}} has no value: the environment has no {missing.name}",
                remedy=f"Export {missing.name}.",
            )
            self._add("env-missing", finding, self._sources.locate(missing.path))
            return
        finding = Finding(
            message=f"${{{missing.name}}} has no value: neither the settings' variables nor the environment have it",
            remedy=f"Write {missing.name} under variables: in feed_assets.yaml, or export it.",
        )
        self._add("variable-missing", finding, self._sources.locate(missing.path))

    def _add(self, code: str, finding: Finding, source: Source | None = None) -> None:
        self._issues.append(
            Issue(
                severity=Severity.ERROR,
                code=code,
                entity=self._label,
                message=finding.message,
                remedy=finding.remedy,
                source=source or self._sources.locate(),
            )
        )


def _key_of(value: object) -> EntityKey | None:
    if not isinstance(value, dict):
        return None
    kind, name = value.get(_KIND), value.get("name")
    if not (isinstance(kind, str) and isinstance(name, str)):
        return None
    return (kind, name) if kind in list(Kind) else None
