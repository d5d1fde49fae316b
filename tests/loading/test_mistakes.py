"""A wrong value in any field of any entity: our own words, one sentence for one mistake, and no exception."""

import copy
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from feed_assets.entities.bundle import Bundle
from feed_assets.entities.cluster import Cluster
from feed_assets.entities.common import Kind
from feed_assets.entities.feed import Feed
from feed_assets.issues import Issue, Severity, Source, SourceMap
from feed_assets.loading.bundles import gather_files, load_files, parse_file
from feed_assets.loading.documents import Note, NoteKind, PlainDocument
from feed_assets.loading.entity_documents import read_entity
from feed_assets.loading.entity_files import EntityFile, Values
from feed_assets.loading.falcon import documents
from feed_assets.validation.rules import _RULES_OF, validate_bundle
from feed_assets.validation.scope import Complaint, Rule

FOLDER = Path(__file__).parents[1] / "validation/documents"
TEXT = (FOLDER / "everything.yaml").read_text("utf-8").replace(", on:", ', "on":')  # true in YAML 1.1, text for ours
DOCUMENTS: list[dict[str, Any]] = list(yaml.safe_load_all(TEXT))
FOREIGN = ("Input should", "Field required", "Value error", "Assertion", "Extra inputs", "pydantic", "another value")
WRONG: tuple[object, ...] = (None, -7, "", "x y", [], {}, [None], {"a": {"b": []}}, "9" * 5_000, float("nan"))
NO_VALUES = Values(variables={}, environ={})
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


DIGITS = "9" * 5_000
HUGE = (DIGITS, f"days({DIGITS})", f"now({DIGITS},0)", f"{DIGITS}GB", f"{DIGITS}-01-01T00:00Z", "/${YEAR}" + DIGITS)


def test_a_number_of_any_length_is_a_mistake_of_its_entity_alone() -> None:
    bystander = {"kind": "cluster", "name": "other", "storage": "file:///other"}
    chance = random.Random(1)
    for document in DOCUMENTS:
        for value in HUGE[:: 1 + len(DOCUMENTS) // 5]:
            path = chance.choice([each for each in _paths(document) if each and each != ("kind",)])
            file = _file(_with(document, path, value), bystander)
            found = gather_files([parse_file(file, None)], "").bundle.find_cluster("other")
            assert found is not None, path


def _file(*documents: dict[str, Any]) -> EntityFile:
    return EntityFile(name="a.yaml", content=yaml.safe_dump_all(documents, sort_keys=False).encode())


def test_an_exception_in_reading_an_entity_is_its_own_issue(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(value: object) -> None:
        raise ZeroDivisionError(value)

    monkeypatch.setattr(Feed, "model_validate", fail)
    feed = {"kind": "feed", "name": "clicks"}
    loaded = load_files([_file(feed, {"kind": "cluster", "name": "c", "storage": "file:///d"})], NO_VALUES)
    assert [(issue.code, issue.entity) for issue in loaded.issues] == [("internal-error", "feed 'clicks'")]
    assert [entity.name for entity in loaded.bundle.entities] == ["c"]
    assert loaded.broken == {("feed", "clicks")}


def test_an_exception_in_reading_a_file_is_an_issue_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(text: str) -> None:
        raise RecursionError(text)

    monkeypatch.setattr(documents, "read_falcon", fail)
    cluster = _file({"kind": "cluster", "name": "c", "storage": "file:///d"})
    loaded = load_files([EntityFile(name="b.xml", content=b"<feed/>"), cluster], NO_VALUES)
    assert [(issue.code, issue.source) for issue in loaded.issues] == [("internal-error", Source(file="b.xml"))]
    assert [entity.name for entity in loaded.bundle.entities] == ["c"]


def test_an_exception_in_a_rule_is_an_issue_of_the_entity(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object, cluster: Cluster) -> Iterator[Complaint]:
        if cluster.name == "a":
            raise ZeroDivisionError
        yield from ()

    monkeypatch.setitem(_RULES_OF, Kind.CLUSTER, (Rule(code="broken", kind=Kind.CLUSTER, check=fail),))  # type: ignore[misc]
    bundle = Bundle(entities=tuple(Cluster(name=name, storage=f"memory://{name}") for name in "ab"))
    (issue,) = validate_bundle(bundle, SourceMap())
    assert (issue.entity, issue.message) == ("cluster 'a'", "the rule broken failed: ZeroDivisionError")


def test_a_mistake_of_a_process_is_no_second_one_of_the_feed_that_it_writes() -> None:
    validity = {"start": "2026-01-01T00:00Z"}
    daily = {"frequency": "days(1)", "clusters": {"c": {"validity": validity}}}
    feed = {"kind": "feed", "name": "good", "locations": {"data": "/g/${YEAR}-${MONTH}-${DAY}"}, **daily}
    process = {"kind": "process", "name": "p", "outputs": {"good": {"feed": "good", "instance": "now(0,0)"}}, **daily}
    documents = [
        {"kind": "cluster", "name": "c", "storage": "memory://d"},
        {**feed, "quality": {"rules": {"plausible": "price > 0"}}},
        {**process, "workflow": {"engine": "sql", "path": "p.sql"}, "ordr": "FIFO"},
    ]
    loaded = load_files([_file(*documents)], NO_VALUES)
    found = validate_bundle(loaded.bundle, loaded.sources)
    assert [issue.entity for issue in (*loaded.issues, *found)] == ["process 'p'"]


def test_messages_are_cut_wherever_they_are_made() -> None:
    long = "x" * 5_000
    issue = Issue(severity=Severity.ERROR, code="a", entity=None, message=long, remedy=long)
    assert (len(issue.message), len(issue.remedy)) == (1_000, 1_000)
    assert len(Note(kind=NoteKind.CHECK, message=long).message) == 1_000
