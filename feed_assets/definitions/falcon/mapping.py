"""The import mapping for Falcon documents: replacements for workflows that cannot run here, and for addresses."""

from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import Field, ValidationError

from feed_assets.engines.registry import ENGINE_NAMES
from feed_assets.entities.common import EntityModel
from feed_assets.entities.differences import FieldChange
from feed_assets.entities.errors import DefinitionsError
from feed_assets.entities.fields import FilledText, Name
from feed_assets.entities.maps import EMPTY, Map
from feed_assets.entities.workflow import Workflow, WorkflowEngine
from feed_assets.errors import WrongUsageError
from feed_assets.issues import FieldPath, FieldSources, Issue, Severity
from feed_assets.loading.bundles import decode_file
from feed_assets.loading.entity_files import EntityFile
from feed_assets.loading.messages import render_path
from feed_assets.loading.yaml_nodes import iter_documents

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
        return None
