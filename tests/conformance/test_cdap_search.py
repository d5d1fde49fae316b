"""What CDAP's searches find, against searches here.

Its datasets are feeds and its programs processes where the program must say something of them; elsewhere they are
entities of other kinds, which are there because somebody describes them.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from feed_assets.entities.errors import MetadataRefusedError
from feed_assets.entities.metadata import Scope
from tests.catalog.described import Described, described
from tests.instances.harness import feed, process

Case = dict[str, Any]
TABLE = "cdap_search.json"


@contextmanager
def world(*entities: Any) -> Iterator[Described]:
    with tempfile.TemporaryDirectory() as root, described(Path(root), *entities) as found:
        yield found


def find(found: Described, text: str, **more: Any) -> list[str]:
    """What a query of the table finds, which may end with a scope."""
    text, _, scope = text.partition(" scope ")
    return found.find(text, scope=Scope(scope) if scope else None, **more)


def find_words(case: Case) -> None:
    """Search for words of properties and tags."""
    with world() as found:
        for path, properties, tags in _said(case["given"]):
            for name, value in properties.items():
                match name.split("."), value:
                    case [scope, key], str():
                        (found.tell if scope == Scope.SYSTEM else found.say)(path, {key: value})
                    case [scope], Mapping():
                        (found.tell if scope == Scope.SYSTEM else found.say)(path, value)
                    case _:
                        found.say(path, {name: value})
            found.say(path, {}, tags)
        _compare(found, case)


def _said(given: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any], Sequence[str]]]:
    """Yield path, properties and tags of each entity of the namespace `ns1`."""
    for name, said in given.items():
        match name.split():
            case ["tags"]:
                for each, tags in said.items():
                    words = each.removesuffix("(ns1)").split()
                    path = "dataset/ds1/file/f1" if words[0] == "file" else f"entity/{words[0]}"
                    if "(ns2)" not in each:
                        yield path, {}, tags
            case [kind, entity]:
                yield f"{kind}/{entity}", said, ()
            case [entity] if isinstance(said, str):
                dataset, _, key = entity.partition(".")
                yield f"dataset/{dataset}", {key: said}, ()
            case [entity]:
                yield f"entity/{entity}", said, ()


def _compare(found: Described, case: Case) -> None:
    results = case["expect"]["results"]
    for step in case["steps"]:
        text = step["search"]
        match results:
            case Mapping():
                expected = results[text]
            case "wk1 and ds2 for each":
                expected = ["wk1", "ds2"]
            case "myDs for both":
                expected = ["myDs"]
            case _:
                raise LookupError(results)
        assert sorted(find(found, text)) == sorted(expected), text


def find_kinds(case: Case) -> None:
    """Search among kinds of entities that somebody made up."""
    with world() as found:
        for path in ("dataset/ds", "dataset/ds/field/valley", "hype/one"):
            found.say(path, {}, ["foo", "bar"])
        assert case["given"]["custom"] == "type hype and type field plus dataset, all tagged foo bar"
        kinds = [
            sorted(each.kind for each in found.page(step["search"], kinds=step.get("types", ())).results)
            for step in case["steps"]
        ]
        assert kinds == case["expect"]["results"]


def sort(case: Case) -> None:
    with world() as found:
        for name in case["given"].get("datasets created in order", ["any"]):
            found.say(f"dataset/{name}", {"a": "b"})
        for step, names in zip(case["steps"], case["expect"].get("orders", [None]), strict=True):
            try:
                assert found.find(step.get("query", "*"), sort=step["sort"], kinds=["dataset"]) == names
            except MetadataRefusedError:
                assert case["expect"]["status"] == 400


def turn_pages(case: Case) -> None:
    with world() as found:
        for number in range(case["given"]["datasets"]):
            found.say(f"dataset/ds{number:02}", {"a": "b"})
        cursor, counts, cursors = None, [], []
        for step in case["steps"]:
            assert (step.get("cursor") == "previous") is (cursor is not None)
            page = found.page(limit=step["limit"], kinds=["dataset"], sort="entity-name asc", cursor=cursor, cursors=1)
            cursor = next(iter(page.cursors), None)
            counts.append(len(page.results))
            cursors.append(cursor and "set")
        assert (counts, cursors) == (case["expect"]["counts"], case["expect"]["cursor"])


def show_scopes(case: Case) -> None:
    """Search for declared entities, and for one that is there because somebody describes it."""
    paths = {"app": "process/app", "dataset": "feed/dataset", "field": "feed/dataset/field/field"}
    with world(feed("dataset"), process("app", outputs={"dataset": "now(0,0)"})) as found:
        for name, said in case["given"].items():
            properties = {key: value for key, value in said["USER"].items() if key != "tags"}
            found.say(paths[name], properties, said["USER"]["tags"])
        for step in case["steps"]:
            expect = case["expect"][step["search"]]
            results = {each.name: each.metadata for each in found.page(step["search"]).results}
            assert sorted(results) == sorted(expect["entities"])
            for name, metadata in results.items():
                said = case["given"][name]["USER"]
                assert {**metadata["USER"]["properties"], "tags": metadata["USER"]["tags"]} == said
                system = metadata.get("SYSTEM")
                assert system is None if expect["SYSTEM"] is None else system["properties"]


RUNNERS = {"words": find_words, "kinds": find_kinds, "sort": sort, "pages": turn_pages, "scopes": show_scopes}


def test_each_case_of_the_table_holds_or_is_listed_with_a_reason(case: Case, judge: Callable[[Case], None]) -> None:
    judge(case)


def test_the_list_of_differences_names_only_what_is_in_the_table(unknown_differences: set[str]) -> None:
    assert unknown_differences == set()
