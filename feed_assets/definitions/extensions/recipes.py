"""Read the recipe of an extension, check what is given to it, and fill it: parameters become documents of entities.

What is filled in are values, never text of YAML: a text that is `${param.name}` and nothing else becomes the value with
its type, in other text the value is written out.
"""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import ValidationError

from feed_assets.context.errors import VerbRefusedError
from feed_assets.definitions.extensions.records import (
    BUILD,
    ENTITIES,
    RECIPE,
    Extension,
    ParameterType,
    Recipe,
    RecipeParameter,
)
from feed_assets.entities.bundle import ENTITY_TYPES, AnyEntity
from feed_assets.entities.common import label_of
from feed_assets.entities.errors import DefinitionsError
from feed_assets.entities.fields import describe, to_plain_text
from feed_assets.errors import FeedAssetsError, describe_error
from feed_assets.issues import EntityKey, FieldPath, FieldSources, Issue, Severity, Source
from feed_assets.json_form import parse_json
from feed_assets.loading.bundles import decode_file
from feed_assets.loading.documents import PlainDocument
from feed_assets.loading.entity_documents import read_entity
from feed_assets.loading.entity_files import EntityFile, Values
from feed_assets.loading.messages import closest, explain
from feed_assets.loading.yaml_nodes import iter_documents, parse_scalar
from feed_assets.loading.yaml_writer import content_of
from feed_assets.masking import is_name_of_credential

_REFERENCE = re.compile(r"(\$?)\$\{((?:param|item)(?:\.[\w-]+)*\??)\}")  # ${param.name}, ${item.key}, ${item.where?}
_PROPERTY = re.compile(r"\s*[\w.-]+\s*=")  # jobName=nightly
_EACH, _PARAM, _ITEM, _JOB = "each", "param", "item", "job"
_ENVIRONMENT = "${env:"
_ABSENT = object()
_TYPES: Mapping[ParameterType, tuple[type, ...]] = {
    ParameterType.STRING: (str,),
    ParameterType.INTEGER: (int,),
    ParameterType.NUMBER: (int, float),
    ParameterType.BOOLEAN: (bool,),
    ParameterType.ARRAY: (list,),
    ParameterType.OBJECT: (dict,),
}
_WITH_PARTS = (ParameterType.ARRAY, ParameterType.OBJECT)


@dataclass(slots=True)
class _Issues:
    """The issues that are found, each at a place of a file."""

    found: list[Issue] = field(default_factory=list)

    def add(self, source: Source, code: str, message: str, remedy: str) -> None:
        issue = Issue(severity=Severity.ERROR, code=code, entity=None, message=message, remedy=remedy, source=source)
        self.found.append(issue)

    def refuse(self, location: str) -> None:
        if self.found:
            raise DefinitionsError(location=location, issues=self.found)

    def read(self, file: EntityFile) -> Iterator[tuple[PlainDocument, FieldSources]]:
        """Yield the documents of a YAML file, or lines NAME=VALUE as one, and note its mistakes."""
        text = decode_file(file)
        if isinstance(text, Issue):
            self.found.append(text)
            return
        lines = [line for line in text.splitlines() if line.strip() and line.lstrip()[0] not in "#!"]
        if lines and _PROPERTY.match(lines[0]):
            pairs = (line.partition("=") for line in lines)
            told = {name.strip(): value.strip() for name, _, value in pairs}
            yield PlainDocument(line=1, value=told), FieldSources(file=file.name, positions={})
            return
        for each in iter_documents(text):
            for problem in each.problems:
                source = Source(file=file.name, line=problem.line, column=problem.column)
                self.add(source, problem.code, problem.message, problem.remedy)
            if each.value is not None and not each.problems:
                yield each, FieldSources(file=file.name, positions=each.positions)


def read_recipe(files: Mapping[str, bytes], place: str) -> Recipe:
    """Read the recipe in the files of an extension; `place` stands before their names in messages.

    Raises:
        DefinitionsError: it has mistakes; carries the issues.
    """
    file, issues = f"{place}/{RECIPE}", _Issues()
    if RECIPE not in files or (BUILD in files) is any(each.startswith(ENTITIES) for each in files):
        reason = (
            f"it has no {RECIPE}" if RECIPE not in files else f"{ENTITIES} or {BUILD} makes entities, one of the two"
        )
        raise DefinitionsError(location=place, reason=reason, next_step="Name the folder of a recipe.")
    documents = list(issues.read(EntityFile(name=file, content=files[RECIPE])))
    issues.refuse(file)
    document, sources = documents[0] if documents else (PlainDocument(line=1), FieldSources(file=file, positions={}))
    try:
        recipe = Recipe.model_validate(document.value)
    except ValidationError as exc:
        for path, code, finding in explain(exc, Recipe):
            issues.add(sources.locate(path), code, finding.message, finding.remedy)
        raise DefinitionsError(location=file, issues=issues.found) from exc
    for name, each in recipe.parameters.items():
        if name == _JOB:
            issues.add(sources.locate(("parameters", name)), "value", f"{name!r} is the name of the job", "Rename it.")
        if each.default is not None and not _is_of(each.type, each.default):
            message = f"the default of parameter {name!r} is of another type than {each.type}"
            issues.add(sources.locate(("parameters", name, "default")), "value", message, "Correct one of them.")
    issues.refuse(file)
    return recipe


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What is given to a recipe, with the places of what a file has. A file gives it as a whole."""

    values: Mapping[str, object]
    sources: FieldSources = field(default_factory=lambda: FieldSources(file="--parameter", positions={}))
    is_whole: bool = False


def read_given(files: Iterable[EntityFile], others: Mapping[str, object]) -> Given:
    """Read files of parameters: YAML, JSON, or lines NAME=VALUE. What comes later takes precedence, and `others` last.

    Raises:
        DefinitionsError: they have mistakes; carries the issues.
    """
    given, issues = Given(values={}), _Issues()
    for file in files:
        documents = list(issues.read(file))
        issues.refuse(file.name)
        if len(documents) != 1 or not isinstance(told := documents[0][0].value, dict):
            reason = "it is no map of parameters"
            raise DefinitionsError(location=file.name, reason=reason, next_step="Write NAME: VALUE.")
        given = Given(values={**given.values, **told}, sources=documents[0][1], is_whole=True)
    return replace(given, values={**given.values, **others})


def check_given(recipe: Recipe, given: Given, job: str) -> dict[str, object]:
    """Return what is given to a recipe for a job, of the right types; without defaults.

    Raises:
        DefinitionsError: something is missing, unknown, of another type, or a secret; carries the issues.
    """
    found: dict[str, object] = {}
    issues = _Issues()
    for name, value in given.values.items():
        source, parameter = given.sources.locate((name,)), recipe.parameters.get(name)
        if parameter is None and not recipe.other_parameters:
            close = closest(name, recipe.parameters)
            remedy = f"Did you mean {close!r}?" if close else f"It has {', '.join(recipe.parameters) or 'none'}."
            message = f"extension {recipe.name!r} has no parameter {name!r}"
            issues.add(source, "unknown-parameter", message, remedy)
            continue
        found[name] = _typed(parameter, value)
        if parameter is not None and found[name] is _ABSENT:
            message = f"parameter {name!r} is of type {parameter.type}, not {describe(value)}"
            issues.add(source, "parameter-type", message, _remedy(parameter))
        for path in _iter_secrets(found[name], (name,)):
            message = f"{'.'.join(map(str, path))} would stand as it is in the file of the job"
            issues.add(given.sources.locate(path), "secret", message, "Write a reference instead: ${env:NAME}.")
    for name, parameter in recipe.parameters.items():
        if parameter.is_required and name not in found:
            message = f"parameter {name!r} is missing"
            issues.add(given.sources.locate(), "missing-parameter", message, _remedy(parameter))
    issues.refuse(f"job {job!r} of extension {recipe.name!r}")
    return found


def _remedy(parameter: RecipeParameter) -> str:
    example = to_plain_text(parameter.example)
    return f"Give it one of type {parameter.type}." if example is None else f"Give it for example {example}."


def _typed(parameter: RecipeParameter | None, value: object) -> object:
    """Return a value as its parameter wants it, be it said by a text; _ABSENT if it is another one."""
    if parameter is None:
        return value
    has_parts = parameter.type in _WITH_PARTS
    if isinstance(value, str) and _ENVIRONMENT in value and not has_parts:
        return value
    if isinstance(value, str) and parameter.type is not ParameterType.STRING:
        try:
            value = parse_json(value) if has_parts else parse_scalar(value)
        except ValueError:
            return _ABSENT
    if parameter.type is ParameterType.STRING:
        value = to_plain_text(value)
    return value if _is_of(parameter.type, value) else _ABSENT


def _is_of(of_type: ParameterType, value: object) -> bool:
    return isinstance(value, _TYPES[of_type]) and isinstance(value, bool) is (of_type is ParameterType.BOOLEAN)


def _iter_secrets(value: object, path: FieldPath) -> Iterator[FieldPath]:
    """Yield the paths of texts with names of passwords that are no references; a `key` may be that of a table."""
    match value:
        case str():
            name = str(path[-1])
            if is_name_of_credential(name) and name.lower() != "key" and _ENVIRONMENT not in value:
                yield path
        case dict() | list():
            for part, item in value.items() if isinstance(value, dict) else enumerate(value):
                yield from _iter_secrets(item, (*path, part))


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeEntity:
    """An entity that a recipe makes: as it is, and as plain values with their references to the environment."""

    entity: AnyEntity
    content: Mapping[str, Any]


def make_entities(extension: Extension, parameters: Mapping[str, object], values: Values, job: str) -> list[MadeEntity]:
    """Make the entities of a job of an extension. The recipe has the name of the job as the parameter `job`.

    Raises:
        DefinitionsError: a reference has no value, an entity has mistakes, or two have one name; carries the issues.
        VerbRefusedError: the function of the extension fails, or there is nothing to make.
    """
    place = f"job {job!r} of extension {extension.name!r}"
    recipe, issues, made = extension.recipe, _Issues(), dict[EntityKey, MadeEntity]()
    defaults = {name: each.default for name, each in recipe.parameters.items()}
    given = {**defaults, **parameters, _JOB: job}
    for file, document in _build(extension, given) if BUILD in extension.files else _fill(extension, given, issues):
        read = read_entity(file, document, values)
        issues.found += read.issues
        if read.key is not None and read.entity is not None and isinstance(document.value, dict):
            if read.key in made:
                message = f"the extension makes two of {label_of(read.key)}"
                issues.add(read.sources.locate(("name",)), "duplicate-entity", message, "Name them by parameters.")
            made[read.key] = MadeEntity(entity=read.entity, content=document.value)
    issues.refuse(place)
    if not made:
        reason, next_step = "nothing is made of these parameters", "Correct them; to remove a job, delete it."
        raise VerbRefusedError(subject=place, reason=reason, next_step=next_step)
    return list(made.values())


def _fill(extension: Extension, given: Mapping[str, object], issues: _Issues) -> Iterator[tuple[str, PlainDocument]]:
    """Yield the filled documents of an extension, each with its file."""
    for name in sorted(each for each in extension.files if each.startswith(ENTITIES)):
        file = f"{extension.name}/{name}"
        for document, sources in issues.read(EntityFile(name=file, content=extension.files[name])):
            value = document.value
            each = value.pop(_EACH, None) if isinstance(value, dict) else None
            items = [None] if each is None else given.get(str(each).removeprefix(f"{_PARAM}."), "")
            if not isinstance(items, list | None):
                message = f"{each!r} names no parameter that is an array"
                issues.add(sources.locate((_EACH,)), "value", message, f"Write each: {_PARAM}.NAME.")
            for item in items if isinstance(items, list) else ():
                values = {_PARAM: given} if each is None else {_PARAM: given, _ITEM: item}
                filling, before = _Filling(sources, values, issues), len(issues.found)
                filled = filling.fill(value, (), ())
                if len(issues.found) == before:
                    yield file, PlainDocument(line=document.line, value=filled, positions=filling.positions)


class _Filling:
    """Fills one document. `positions` are those of the filled values."""

    def __init__(self, sources: FieldSources, values: Mapping[str, object], issues: _Issues) -> None:
        self._sources = sources
        self._values = values
        self._issues = issues
        self.positions: dict[FieldPath, tuple[int, int]] = {}

    def fill(self, value: object, path: FieldPath, to: FieldPath) -> Any:
        """Return a copy of the value at `path`, which stands at the path `to` then. What has no value is left out."""
        if (position := self._sources.positions.get(path)) is not None:
            self.positions[to] = position
        match value:
            case str():
                whole = _REFERENCE.fullmatch(value)
                if whole is None or whole[1]:
                    return self._write(value, path)
                found = self._find(whole[2], path)
                return _ABSENT if found is None else found
            case dict():
                keys = {key: self._write(key, (*path, key)) for key in value}
                filled = {new: self.fill(value[key], (*path, key), (*to, new)) for key, new in keys.items()}
                return {key: item for key, item in filled.items() if item is not _ABSENT}
            case list():
                items = [self.fill(item, (*path, place), (*to, place)) for place, item in enumerate(value)]
                return [item for item in items if item is not _ABSENT]
            case _:
                return value

    def _write(self, text: str, path: FieldPath) -> str:
        return _REFERENCE.sub(lambda each: each[0][1:] if each[1] else self._render(each[2], path), text)

    def _render(self, name: str, path: FieldPath) -> str:
        value = self._find(name, path)
        if value is not _ABSENT and not isinstance(value, str | bool | int | float):
            message = f"${{{name}}} is {describe(value)}, and stands inside a text"
            self._issues.add(
                self._sources.locate(path), "unresolved", message, "Let it stand alone, or give it a text."
            )
        return str(to_plain_text(value))

    def _find(self, name: str, path: FieldPath) -> object:
        found: object = self._values
        for part in name.removesuffix("?").split("."):
            if not isinstance(found, Mapping) or part not in found:
                if name.endswith("?"):
                    return None
                close = closest(part, found) if isinstance(found, Mapping) else None
                remedy = f"Did you mean {close!r}?" if close else "Give it one, or write ? behind it."
                self._issues.add(self._sources.locate(path), "unresolved", f"${{{name}}} has no value", remedy)
                return _ABSENT
            found = found[part]
        return found


def _build(extension: Extension, given: Mapping[str, object]) -> Iterator[tuple[str, PlainDocument]]:
    """Yield what the function of an extension returns: entities, or what a file would say of them. What it prints is no
    result, and it ends no program.
    """
    file, known = f"{extension.name}/{BUILD}", tuple(ENTITY_TYPES.values())
    try:
        with redirect_stdout(sys.stderr):
            made: Iterable[Any] = list(_load_code(extension, file).build(dict(given)))
    except FeedAssetsError:
        raise
    except (Exception, SystemExit) as exc:
        raise VerbRefusedError(
            subject=f"extension {extension.name!r}",
            reason=f"the function build in {file} has failed: {describe_error(exc)}",
            next_step="Correct the function, or the parameters.",
        ) from exc
    for each in made:
        content = {"kind": each.kind.value, **content_of(each)} if isinstance(each, known) else each
        yield file, PlainDocument(line=1, value=content)


def _load_code(extension: Extension, file: str) -> ModuleType:
    if extension.module is not None:
        return import_module(f"{extension.module}.{BUILD.removesuffix('.py')}")
    from feed_assets.engines.python_engine import PinnedLoader

    loader = PinnedLoader(Path(file), extension.files[BUILD])
    module = module_from_spec(ModuleSpec(f"extension_{extension.name}", loader, origin=file))
    loader.exec_module(module)
    return module
