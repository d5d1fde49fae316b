"""A wrong value in any field of any entity: our own words, one sentence for one mistake, and no exception."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from feed_assets.loading.documents import PlainDocument
from feed_assets.loading.entity_documents import read_entity

FOLDER = Path(__file__).parents[1] / "validation/documents"
DOCUMENTS: list[dict[str, Any]] = list(yaml.safe_load_all((FOLDER / "everything.yaml").read_text("utf-8")))
FOREIGN = ("Input should", "Field required", "Value error", "Assertion", "Extra inputs", "pydantic", "another value")
WRONG: tuple[object, ...] = (None, -7, "", "x y", [], {}, [None], {"a": {"b": []}}, "9" * 5_000, float("nan"))
IDS = [f"{document['kind']} {document['name']}" for document in DOCUMENTS]


def _paths(value: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from _paths(item, (*path, key))


def _with(document: dict[str, Any], path: tuple[Any, ...], value: object) -> dict[str, Any]:
    changed: Any = copy.deepcopy(document)
    place = changed
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    found: dict[str, Any] = changed
    return found


def _read(document: dict[str, Any]) -> list[tuple[str, str]]:
    found = read_entity("a.yaml", PlainDocument(line=1, value=document), None)
    return [(issue.code, issue.render()) for issue in found.issues]


@pytest.mark.parametrize("document", DOCUMENTS, ids=IDS)
def test_a_wrong_value_is_refused_in_our_own_words(document: dict[str, Any]) -> None:
    for path in _paths(document):
        for value in WRONG if path else ():
            for code, text in _read(_with(document, path, value)):
                assert code != "internal-error", text
                assert not any(word in text for word in FOREIGN), text
                assert len(text) < 2_100


@pytest.mark.parametrize("document", DOCUMENTS, ids=IDS)
def test_a_misspelt_key_is_one_mistake(document: dict[str, Any]) -> None:
    for path in _paths(document):
        *above, key = path or (0,)
        if isinstance(key, str) and key not in ("kind", "name") and len(key) > 2:
            changed: Any = copy.deepcopy(document)
            place = changed
            for part in above:
                place = place[part]
            place[f"{key}x"] = place.pop(key)
            assert len(_read(changed)) <= 1, _read(changed)


def _cluster(**changes: object) -> list[tuple[str, str]]:
    interfaces = {name: {"endpoint": "file:///d", "version": "1"} for name in ("readonly", "write", "execute")}
    return _read({"kind": "cluster", "name": "c", "interfaces": {**interfaces, **changes}})


def test_an_unknown_kind_of_interface_is_named() -> None:
    ((code, text),) = _cluster(registri={"endpoint": "thrift://h:1", "version": "1"})
    assert (code, text.partition("interfaces: ")[2]) == (
        "value",
        "'registri' is not one of readonly, write, execute, workflow, messaging, registry, spark. "
        "Did you mean 'registry'?",
    )


@pytest.mark.parametrize("name", ["write", "registry", "spark"])
def test_a_wrong_interface_is_not_a_second_mistake_of_what_follows_from_it(name: str) -> None:
    ((_, text),) = _cluster(**{name: {"endpoint": "", "version": "1"}})
    assert f"interfaces.{name}.endpoint: the text is empty" in text


def test_a_list_with_a_wrong_item_is_not_empty() -> None:
    late = {"policy": "final", "delay": "hours(1)", "inputs": {"1": None}}
    document = next(each for each in DOCUMENTS if each["kind"] == "process")
    assert len(_read({**document, "late_process": late})) == 1
