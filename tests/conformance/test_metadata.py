"""What CDAP does with the metadata of its entities, against ours.

Its applications, programs and services are processes here, its datasets feeds. A request becomes the operation that a
route will call: a write is a document, which is refused where CDAP answers with 400. Values are as strict as CDAP's.
"""

import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import click

from feed_assets.catalog.documents import import_metadata
from feed_assets.catalog.editing import get_metadata, remove_metadata
from feed_assets.catalog.search.records import SearchQuery
from feed_assets.catalog.search.search import search
from feed_assets.catalog.store import MetadataStore, render_metadata
from feed_assets.catalog.writing import Target, write_metadata
from feed_assets.cli.options import ChoiceType
from feed_assets.context.operation import OperationContext
from feed_assets.entities.errors import EntityNotFoundError, MetadataRefusedError
from feed_assets.entities.feed import Feed
from feed_assets.entities.metadata import (
    Create,
    Directive,
    Drop,
    MetadataKey,
    MetadataKind,
    MetadataValue,
    Mutation,
    Origin,
    Remove,
    Scope,
    Update,
)
from feed_assets.setting_sections import MetadataSettings
from tests.context.contexts import context_of
from tests.instances.harness import START, LifecycleHarness, at, feed, process, validity

Case = dict[str, Any]
Said = Mapping[str, Mapping[str, Any]]
TABLE = "metadata.json"

APP, DATASET, SERVICE, WORKER = "process/AppWithDataset", "feed/myds", "process/PingService", "process/wk1"
PATHS = {"apps/AppWithDataset": APP, "datasets/myds": DATASET, "datasets/{d}": DATASET, "services/PingService": SERVICE}
GET = re.compile(r"GET .*?/(\w+/[\w{}]+)/metadata(?:/(properties|tags))?(?:\?scope=(\w+))?")
POST = re.compile(r"POST .*?/(\w+/\w+)/metadata/(properties|tags)")
DELETE = re.compile(r"DELETE .*?/(\w+/\w+)/metadata(?:/(properties|tags))?(?:/(\w+))?")
KINDS = {"properties": MetadataKind.PROPERTY, "tags": MetadataKind.TAG}
CUSTOM = Target(path="dashboard/otd", kind="dashboard", name="otd", is_declared=False)
NOW = at("03T12:00")


@dataclass(slots=True)
class Catalog:
    """The entities of a case, and who asks for them."""

    lifecycle: LifecycleHarness
    now: datetime = NOW

    @property
    def context(self) -> OperationContext:
        return context_of(self.lifecycle, self.now, metadata=MetadataSettings(strict=True))

    def request(self, line: str, body: object = None) -> tuple[int, Any]:
        """What a request is answered with: a status, and for GET a body."""
        try:
            return 200, self._answer(line, body)
        except (MetadataRefusedError, click.BadParameter):
            return 400, None
        except EntityNotFoundError:
            return 404, None

    def _answer(self, line: str, body: object) -> object:
        if found := POST.fullmatch(line):
            self.write(PATHS[found[1]], update={found[2]: body})
            return None
        if found := DELETE.fullmatch(line):
            names = [found[3]] if found[3] else None
            kinds = [KINDS[found[2]]] if found[2] else list(MetadataKind)
            remove_metadata(self.context.by("ann"), PATHS[found[1]], names=names, kinds=kinds)
            return None
        found = GET.fullmatch(line)
        assert found is not None, line
        scopes = [ChoiceType(Scope, Scope).convert(found[3], None, None)] if found[3] else Scope
        said = [self.said(PATHS[found[1]], scope) for scope in scopes]
        match found[2]:
            case "properties":
                return {name: value for each in said for name, value in each["properties"].items()}
            case "tags":
                return [tag for each in said for tag in each["tags"]]
            case _:
                return said

    def write(self, path: str, **mutation: object) -> None:
        document = {"mutations": [{"entity": path, **mutation}]}
        import_metadata(self.context.by("ann"), "document", json.dumps(document))

    def said(self, path: str, scope: Scope) -> dict[str, Any]:
        """A record: what a scope says of an entity."""
        found = get_metadata(self.context, path, scope).metadata
        properties = {each.name: each.value for each in found if each.kind is MetadataKind.PROPERTY}
        tags = [each.name for each in found if each.kind is MetadataKind.TAG]
        return {"scope": scope.value, "properties": properties, "tags": tags}

    def mutate(self, *mutations: Mutation, target: Target = CUSTOM) -> None:
        """Change what no person may write, too."""
        with self.lifecycle.database.begin() as connection:
            write_metadata(connection, target, mutations, author="ann", origin=Origin.PERSON, now=self.now)

    def read(self, target: Target = CUSTOM) -> dict[str, Any]:
        with self.lifecycle.database.read() as connection:
            entity = MetadataStore(connection).find(target.path)
            return render_metadata(MetadataStore(connection).read(entity.id)) if entity is not None else {}

    def found(self, query: str) -> list[str]:
        return [each.name for each in search(self.context, SearchQuery(text=query)).results]


@contextmanager
def catalog() -> Iterator[Catalog]:
    with tempfile.TemporaryDirectory() as folder:
        apps = [process(each.partition("/")[2]) for each in (APP, SERVICE, WORKER)]
        lifecycle = LifecycleHarness.of(Path(folder), feed("myds"), *apps)
        try:
            yield Catalog(lifecycle)
        finally:
            lifecycle.database.close()


def values(said: Said) -> dict[MetadataKey, MetadataValue]:
    """Metadata as a table writes them: by scope, with properties and tags."""
    found = {}
    for scope, parts in said.items():
        for name, value in parts.get("properties", {}).items():
            found[MetadataKey(Scope(scope), MetadataKind.PROPERTY, name)] = MetadataValue(value, Origin.PERSON, "ann")
        for tag in parts.get("tags", ()):
            found[MetadataKey(Scope(scope), MetadataKind.TAG, tag)] = MetadataValue("", Origin.PERSON, "ann")
    return found


def key(text: str) -> MetadataKey:
    """`property USER key2`, as a table writes it."""
    kind, scope, name = text.split()
    return MetadataKey(Scope(scope), MetadataKind(kind), name)


def plain(said: Said) -> dict[str, Any]:
    """Metadata in one order, without what is empty."""
    filled = {
        scope: {name: sorted(part) if name == "tags" else part for name, part in parts.items() if part}
        for scope, parts in said.items()
    }
    return {scope: parts for scope, parts in filled.items() if parts}


def annotate(case: Case) -> None:
    expect = case["expect"]
    with catalog() as found:
        if "USER" in case["given"]:
            path = WORKER
            found.write(path, update=case["given"]["USER"])
            for step in case["steps"]:
                if step["op"] == "update":
                    found.write(path, update={"properties": step["USER.properties"]})
                else:
                    removed = [key(name) for name in step["names"]]
                    of_kind = {kind: [each.name for each in removed if each.kind is KINDS[kind]] for kind in KINDS}
                    found.write(path, remove=of_kind)
            assert found.said(path, Scope.USER) == {"scope": "USER", **expect["USER"]}
            assert {query: found.found(query) for query in expect["search"]} == expect["search"]
            return
        before = found.said(APP, Scope.USER)
        for step in case["steps"]:
            status, answer = found.request(step["request"], step.get("body"))
            assert status == step.get("status", expect.get("status", 200))
        match expect:
            case {"body": body}:
                assert answer == body
            case {"body_as_set": tags}:
                assert (sorted(answer), len(answer)) == (sorted(tags), len(set(tags)))
            case {"records": count, "record": record}:
                assert (len(answer), answer[0]) == (count, record)
            case _:
                assert found.said(APP, Scope.USER) == before


BATCH: Sequence[Mutation] = (
    Update(values({"USER": {"tags": ["tag1", "tag2"]}})),
    Drop(),
    Create(values({"SYSTEM": {"properties": {"creation-time": "1", "description": "a", "other": "x"}}})),
    Update(values({"USER": {"tags": ["tag3"], "properties": {"key": "value"}}})),
    Remove([key("property SYSTEM other"), key("tag USER tag2")]),
    Create(
        values({"SYSTEM": {"properties": {"creation-time": "2"}}}),
        {key("property SYSTEM creation-time"): Directive.PRESERVE, key("property SYSTEM description"): Directive.KEEP},
    ),
)


def merge(case: Case) -> None:
    expect = case["expect"]
    with catalog() as found:
        match case["steps"][0]["op"]:
            case "create":
                step = case["steps"][0]
                directives = {key(name): Directive(word) for name, word in step["directives"].items()}
                found.mutate(Update(values(case["given"]["metadata"])))
                found.mutate(Create(values(step["metadata"]), directives))
                assert plain(found.read()) == plain(expect)
            case "sequence vs batch":
                assert expect == {"batch_changes": "equal to sequential changes"}
                other = Target(path="dashboard/other", kind="dashboard", name="other", is_declared=False)
                for each in BATCH:
                    found.mutate(each)
                found.mutate(*BATCH, target=other)
                assert found.read() == found.read(other)
                assert found.read()["SYSTEM"]["properties"] == {"creation-time": "1", "description": "a"}
            case _:
                version, snapshot = (f"artifact/artifact/version/{each}" for each in ("42", "SNAPSHOT"))
                found.write(version, create={"tags": ["tag1"], "properties": {"a": "b"}})
                before = found.said(version, Scope.USER)
                assert found.said(snapshot, Scope.USER) == {"scope": "USER", "properties": {}, "tags": []}
                found.write(snapshot, drop=True)
                assert found.said(version, Scope.USER) == before


REMOVALS = (
    Remove(scopes=[Scope.USER]),
    Remove(scopes=[Scope.SYSTEM]),
    Remove(kinds=[MetadataKind.TAG]),
    Remove(kinds=[MetadataKind.PROPERTY]),
    Remove(scopes=[Scope.SYSTEM], kinds=[MetadataKind.PROPERTY]),
    Remove(scopes=[Scope.USER], kinds=[MetadataKind.TAG]),
)


def delete(case: Case) -> None:
    given, expect = case["given"], case["expect"]
    with catalog() as found:
        match given:
            case {"USER.properties": properties}:
                found.write(DATASET, update={"properties": properties})
                assert found.request(case["steps"][0]["request"])[0] == case["steps"][0]["status"]
                assert found.said(DATASET, Scope.USER)["properties"] == expect["GET properties"]
            case {"tags": {"app": of_app, "PingService": of_service}}:
                found.write(APP, update={"tags": of_app})
                found.write(SERVICE, update={"tags": of_service})
                assert [found.request(step["request"])[0] for step in case["steps"]] == [200, 200, 200]
                assert sorted(found.said(APP, Scope.USER)["tags"]) == sorted(expect["app tags"])
                assert found.said(SERVICE, Scope.USER)["tags"] == expect["PingService tags"]
            case {"metadata": said}:
                left = []
                for removal in REMOVALS:
                    found.mutate(Update(values(said)))
                    found.mutate(removal)
                    left.append(plain(found.read()))
                system, user = ({scope: said[scope]} for scope in ("SYSTEM", "USER"))
                of_both = [{s: {part: said[s][part]} for s in said} for part in ("properties", "tags")]
                assert left == [
                    *(system, user, *of_both),
                    {"SYSTEM": {"tags": said["SYSTEM"]["tags"]}, **user},
                    {"USER": {"properties": said["USER"]["properties"]}, **system},
                ]
            case {"program": _}:
                found.write(SERVICE, update={"properties": {"sKey": "sValue", "sK": "sV"}})
                found.lifecycle.declare(feed("myds"), process("AppWithDataset"))
                assert found.read(Target(path=SERVICE, kind="process", name="PingService", is_declared=True)) == {}
                assert (found.found("sValue"), expect["properties"]) == ([], {})
                assert found.request("GET /v3/services/PingService/metadata/properties")[0] == 404
            case _:
                for path in (APP, DATASET):
                    found.write(path, update={"tags": ["tag1", "tag2"]})
                assert sorted(found.found("tag1")) == ["AppWithDataset", "myds"]
                found.lifecycle.declare()
                assert {query: found.found(query) for query in expect} == expect


def refuse(case: Case) -> None:
    with catalog() as found:
        before = found.read(Target(path=APP, kind="process", name="AppWithDataset", is_declared=True))
        for step in case["steps"]:
            assert found.request(step["request"], step.get("body"))[0] == case["expect"]["status"]
        assert found.read(Target(path=APP, kind="process", name="AppWithDataset", is_declared=True)) == before


def read_scope(case: Case) -> None:
    with catalog() as found:
        status, properties = found.request(case["steps"][0]["request"])
        assert status == case["expect"]["status"]
        assert properties["entity-name"] == "myds"


def describe(case: Case) -> None:
    """Its `type` is our format, and its `ttl` our retention. Its tags say how it is read; ours, who writes it."""
    first, second = case["expect"]["first"], case["expect"]["second"]
    assert second == "same creation-time plus ttl=100000"
    with catalog() as found:
        found.lifecycle.now = NOW
        found.lifecycle.declare(dataset(first["description"]))
        before = found.said(DATASET, Scope.SYSTEM)
        said = before["properties"]
        assert (said["description"], said["entity-name"], said["format"]) == (first["description"], "myds", "csv")
        assert datetime.fromisoformat(said["creation-time"]) == START
        found.lifecycle.now = NOW + timedelta(hours=2)
        found.lifecycle.declare(dataset(first["description"], retention={"limit": "minutes(100000)"}))
        after = found.said(DATASET, Scope.SYSTEM)
        assert after["properties"].items() - said.items() == {
            ("retention", "minutes(100000)"),
            ("version", "3"),
            ("update-time", "2013-11-03T14:00Z"),
        }
        assert after["tags"] == before["tags"] == ["external"]


def dataset(description: str, **policy: object) -> Feed:
    return Feed(
        name="myds",
        description=description,
        frequency="hours(1)",
        format="csv",
        locations={"data": "/myds/${YEAR}-${MONTH}-${DAY}-${HOUR}"},
        clusters={"primary": {**validity(START, None), **policy}},
    )


def change_together(case: Case) -> None:
    """Each thread creates, updates and removes; what others have said is kept."""
    assert (case["given"]["tags"], case["expect"]) == (["r0..r9"], {"tags": "c0..c9 and t0..t9, no r*"})
    names = [f"{letter}{number}" for letter in "crt" for number in range(10)]
    with catalog() as found:
        found.write(APP, update={"tags": names[10:20]})

        def change(number: int) -> None:
            found.write(APP, create={"tags": [f"c{number}"]}, keep={"tags": names})
            found.write(APP, update={"tags": [f"t{number}"]})
            found.write(APP, remove={"tags": [f"r{number}"]})

        with ThreadPoolExecutor(10) as pool:
            assert list(pool.map(change, range(10))) == [None] * 10
        assert found.said(APP, Scope.USER)["tags"] == sorted([*names[:10], *names[20:]])
        with found.lifecycle.database.read() as connection:
            changes = list(MetadataStore(connection).iter_changes_of(APP))
        assert all(newer.before == older.after for newer, older in pairwise(changes))


RUNNERS = {
    "annotate": annotate,
    "merge": merge,
    "delete": delete,
    "invalid": refuse,
    "scope": read_scope,
    "system": describe,
    "concurrency": change_together,
}


def test_each_case_of_the_table_holds_or_is_listed_with_a_reason(case: Case, judge: Callable[[Case], None]) -> None:
    judge(case)


def test_the_list_of_differences_names_only_what_is_in_the_table(unknown_differences: set[str]) -> None:
    assert unknown_differences == set()
