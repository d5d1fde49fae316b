"""A location that uses every field: it is accepted, and whichever value is spoilt is refused at its place."""

import copy
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from feed_assets.entities.bundle import ENTITY_TYPES
from feed_assets.entities.common import Kind
from feed_assets.issues import Issue, Severity
from feed_assets.loading.bundles import LoadedBundle, load_files
from feed_assets.loading.entity_files import EntityFile, Values
from feed_assets.loading.messages import keys_of, type_at
from feed_assets.validation.rules import validate_bundle

FILE = Path(__file__).parent / "documents" / "everything.yaml"
AS_OF = datetime(2015, 6, 1, 14, tzinfo=UTC)
NOT_HERE = {"clear-text-credential", "engine-not-here", "no-effect"}
KeyPath = tuple[str, ...]


LOADER, DUMPER = getattr(yaml, "CBaseLoader", yaml.BaseLoader), getattr(yaml, "CSafeDumper", yaml.SafeDumper)
DOCUMENTS: tuple[dict[str, Any], ...] = tuple(yaml.load_all(FILE.read_text("utf-8"), Loader=LOADER))


def _load(text: str) -> LoadedBundle:
    return load_files([EntityFile(name="a.yaml", content=text.encode())], Values(variables={}, environ={}))


def _issues(loaded: LoadedBundle) -> list[Issue]:
    return [*loaded.issues, *validate_bundle(loaded.bundle, loaded.sources)]


def _leaves(value: object, path: KeyPath = ()) -> Iterator[KeyPath]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _leaves(item, (*path, key))
    else:
        yield path


def _is_field(model: object, path: KeyPath) -> bool:
    """Whether the last part of a path is a field of a model, not a name that people chose."""
    return path[-1] in keys_of(type_at(model, path[:-1]))


SPOILT = [
    (number, path)
    for number, document in enumerate(DOCUMENTS)
    for path in _leaves(document)
    if path != ("kind",) and _is_field(ENTITY_TYPES[Kind(document["kind"])], path)
]


def test_a_location_with_every_field_is_in_order() -> None:
    loaded = _load(FILE.read_text("utf-8"))
    assert [issue.render() for issue in _issues(loaded) if issue.code not in NOT_HERE] == []
    assert len(loaded.bundle.entities) == len(DOCUMENTS)


def test_every_field_is_used() -> None:
    used: set[tuple[str, str, str]] = set()
    for document in DOCUMENTS:
        model = ENTITY_TYPES[Kind(document["kind"])]
        for path in _leaves(document):
            for length in range(1, len(path) + 1):
                holder = type_at(model, path[: length - 1])
                if path[length - 1] in keys_of(holder):
                    used.add((document["kind"], getattr(holder, "__name__", ""), path[length - 1]))
    expected = {
        (kind.value, holder.__name__, key)
        for kind, model in ENTITY_TYPES.items()
        for holder in _models_of(model)
        for key in keys_of(holder)
    }
    refused = {
        ("feed", "ImportSource", "query"),  # instead of a table
        ("feed", "Extract", "history"),  # of whole tables
        *(
            (kind, "ColumnMetadata", key)
            for kind in ENTITY_TYPES
            if kind is not Kind.FEED
            for key in ("properties", "tags")
        ),
    }
    assert expected - used == refused


def _models_of(model: type[Any]) -> set[type[Any]]:
    found, waiting = {model}, [model]
    while waiting:
        current = waiting.pop()
        for key in keys_of(current):
            for path in ((key,), (key, "x")):
                inner = type_at(current, path)
                if keys_of(inner) and inner not in found:
                    assert isinstance(inner, type)
                    found.add(inner)
                    waiting.append(inner)
    return found


@pytest.mark.parametrize(("number", "path"), SPOILT, ids=lambda part: ".".join(part) if isinstance(part, tuple) else "")
def test_a_spoilt_value_is_refused_at_its_place(number: int, path: KeyPath) -> None:
    document = copy.deepcopy(DOCUMENTS[number])
    place: Any = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = {"spoilt": {"spoilt": ["x"]}} if not isinstance(place[path[-1]], dict) else ["x"]
    label = f"{document['kind']} '{document['name']}'" if path != ("name",) else None
    text = yaml.dump_all([document], Dumper=DUMPER, sort_keys=False)
    if not (errors := _errors(_load(text).issues, label)):  # what can be read is refused by a rule, beside all others
        text = yaml.dump_all([*DOCUMENTS[:number], document, *DOCUMENTS[number + 1 :]], Dumper=DUMPER, sort_keys=False)
        errors = _errors(_issues(_load(text)), label)
    assert errors, path
    lines = text.splitlines()
    spoilt = [position + 1 for position, line in enumerate(lines) if "spoilt" in line or line.strip() == "- x"]
    shown = {issue.source.line for issue in errors if issue.source and issue.source.line}
    near = {line for position in spoilt for line in range(position - 1, position + 1)}
    assert shown & near, (path, [issue.render() for issue in errors])


def _errors(issues: list[Issue], label: str | None) -> list[Issue]:
    return [each for each in issues if each.severity is Severity.ERROR and (each.entity == label or label is None)]
