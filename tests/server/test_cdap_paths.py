"""CDAP's paths: lineage of fields, runs, and what its table of cases does not ask of metadata."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from feed_assets.catalog.store import MetadataStore
from tests.instances.harness import LifecycleHarness, at, feed, process
from tests.lineage.test_columns import lifecycle
from tests.lineage.test_runs import NOON, ran, said
from tests.server.paths import serve_paths_of

__all__ = ["lifecycle"]
ROOT = "/v3/namespaces/default"
FIELDS = "/v3/namespaces/default/datasets/t/lineage/fields"
RUN = "/v3/namespaces/default/apps/count/workflows/count/runs/run-1/metadata"


def test_fields_are_followed_one_step_in_each_direction(lifecycle: LifecycleHarness) -> None:
    client = serve_paths_of(lifecycle, at("02"))

    def ask(path: str, **query: str) -> Any:
        return client.get(f"{FIELDS}{path}", params={"start": "0", "end": "now", **query}).json()

    def source(feed: str, *names: str) -> Any:
        return {"dataset": {"namespace": "default", "dataset": feed, "entity": "DATASET"}, "fields": [*names]}

    assert (ask(""), ask("", prefix="d")) == (["c"], [])
    assert ask("/c", direction="both") == {"incoming": [source("s", "a", "b")], "outgoing": [source("u", "total")]}
    (made,) = ask("/c/operations", direction="incoming")["incoming"]
    assert [each["program"]["application"] for each in made["programs"]] == ["insert"]
    read = [{"origin": "s", "name": name} for name in "ab"]
    told = {"name": "f(a, b)", "description": "direct"}
    assert made["operations"] == [{**told, "inputs": {"fields": read}, "outputs": {"fields": ["c"]}}]
    (found,) = ask("/c/operations")["outgoing"]
    assert [each["name"] for each in found["operations"]] == ["sum(c)"]


def test_a_run_shows_what_was_said_of_its_entities_then(tmp_path: Path) -> None:
    found = ran(tmp_path)
    client = serve_paths_of(found, NOON)
    before = client.get(RUN).json()
    entity = {"details": {"namespace": "default", "application": "count"}, "type": "application"}
    assert {"entityId": entity, "scope": "USER", "properties": {"ticket": "7"}, "tags": []} in before
    said(found, "feed/clicks", steward="bob")
    assert client.get(RUN).json() == before
    for wrong in (RUN.replace("run-1", "run-2"), RUN.replace("apps/count/workflows/count", "apps/other")):
        assert client.get(wrong).status_code == 404


def names(client: TestClient, **query: str) -> list[str]:
    found = client.get("/v3/namespaces/default/metadata/search", params=query).json()["results"]
    return [[*each["entity"]["details"].values()][-1] for each in found]


def test_what_people_describe_need_not_be_declared_and_a_missing_dataset_is_not_there(tmp_path: Path) -> None:
    client = serve_paths_of(LifecycleHarness.of(tmp_path, feed("clicks")), NOON)
    assert client.post(f"{ROOT}/dashboard/otd/metadata/tags", json=["a"]).status_code == 200
    assert client.post(f"{ROOT}/dashboard/_own/metadata/tags", json=["a"]).status_code == 200
    assert (names(client, query="a"), names(client, query="a", showHidden="true")) == (["otd"], ["_own", "otd"])
    for method in ("GET", "DELETE"):
        assert client.request(method, f"{ROOT}/datasets/no/metadata").status_code == 404
    assert client.request("GET", f"{ROOT}/datasets/clicks/field/url/metadata/tags").json() == []


def test_a_write_makes_one_change_and_one_that_says_nothing_new_none(tmp_path: Path) -> None:
    found = LifecycleHarness.of(tmp_path, feed("clicks"))
    client = serve_paths_of(found, NOON)
    for tags in (["a"], ["a"], ["a", "b"]):
        assert client.post(f"{ROOT}/datasets/clicks/metadata/tags", json=tags).status_code == 200
    with found.database.read() as connection:
        changes = [*MetadataStore(connection).iter_changes_of("feed/clicks")]
    said = [each.after["USER"]["tags"] for each in changes if each.author == "ann" and "USER" in each.after]
    assert said == [["a", "b"], ["a"]]


def test_tags_that_are_added_at_once_all_survive(tmp_path: Path) -> None:
    client = serve_paths_of(LifecycleHarness.of(tmp_path, feed("clicks")), NOON)
    path, tags = f"{ROOT}/datasets/clicks/metadata/tags", [f"t{number}" for number in range(10)]
    with client, ThreadPoolExecutor(10) as pool:  # in one loop, as in a server
        assert {each.status_code for each in pool.map(lambda tag: client.post(path, json=[tag]), tags)} == {200}
    assert client.get(f"{path}?scope=user").json() == tags


def test_a_new_version_of_an_application_keeps_what_was_said_and_its_end_keeps_its_datasets(tmp_path: Path) -> None:
    made = {"outputs": {"clicks": "now(0,0)"}}
    found = LifecycleHarness.of(tmp_path, feed("clicks"), process("load", **made))
    client = serve_paths_of(found, NOON)
    for entity in ("apps/load/versions/1", "datasets/clicks"):
        assert client.post(f"{ROOT}/{entity}/metadata/tags", json=["a"]).status_code == 200
    found.declare(feed("clicks"), process("load", description="the second one", **made))
    assert client.get(f"{ROOT}/apps/load/versions/2/metadata/tags?scope=user").json() == ["a"]
    found.declare(feed("clicks"))
    assert (names(client, query="tags:a"), client.get(f"{ROOT}/apps/load/metadata").status_code) == (["clicks"], 404)
