"""CDAP's paths to lineage of fields and to runs."""

from pathlib import Path
from typing import Any

from tests.instances.harness import LifecycleHarness, at
from tests.lineage.test_columns import lifecycle
from tests.lineage.test_runs import NOON, ran, said
from tests.server.paths import serve_paths_of

__all__ = ["lifecycle"]
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
    assert client.get(RUN.replace("run-1", "run-2")).status_code == 404
