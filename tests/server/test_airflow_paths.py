"""Airflow's paths: each row of its table, and that what is told there makes consumers run."""

from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import ProcessInstanceStatus
from feed_assets.operation import Operation
from feed_assets.server.aliases import airflow, endpoint
from feed_assets.server.aliases.airflow import AIRFLOW
from feed_assets.server.aliases.records import Asked
from feed_assets.server.errors import RequestRefusedError
from feed_assets.sql.database import Database
from tests.conformance.what_comes import Flow, flow, signal, taking
from tests.context.contexts import row
from tests.instances.harness import START, at, feed, process
from tests.server.paths import serve_paths
from tests.server.project import open_project, serve

ROOT = "/api/v2"
QUEUED = ("/assets/d1/queuedEvents", "/dags/p/assets/queuedEvents", "/dags/p/assets/d1/queuedEvents")


@pytest.fixture
def found() -> Iterator[Flow]:
    """`p` takes d1 with d2, `q` takes d1; `maker` makes a feed every hour."""
    takers = (taking("p", {"all": ["d1", "d2"]}), taking("q", {"any": ["d1"]}))
    made = (feed("made"), process("maker", outputs={"made": "now(0,0)"}))
    with flow(*map(signal, ("d1", "d2")), *made, *takers) as found:
        yield found


@pytest.fixture
def client(found: Flow) -> TestClient:
    return serve_paths(found.later)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with pytest.MonkeyPatch.context() as patch:
        yield open_project(tmp_path_factory.mktemp("served"), patch)


def tell(client: TestClient, **body: Any) -> Any:
    return client.post(f"{ROOT}/assets/events", json=body)


def test_an_event_from_outside_makes_consumers_run_and_is_told_apart(found: Flow, client: TestClient) -> None:
    told = tell(client, asset_id="d1", extra={"a": 1})
    assert told.status_code == 200
    assert told.json()["extra"] == {"a": 1, "from_rest_api": True}
    sources = [name for name in told.json() if name.startswith("source_") and name != "source_map_index"]
    assert [told.json()[name] for name in sources] == [None] * 3
    assert [batch.process for batch in found.tick()] == ["q"]
    (event,) = client.get(f"{ROOT}/assets/events?asset_id=d1").json()["asset_events"]
    assert event["id"] == told.json()["id"]
    assert [(run["dag_id"], run["state"]) for run in event["created_dagruns"]] == [("q", "queued")]


def test_an_event_with_a_key_is_told_once(found: Flow, client: TestClient) -> None:
    for _ in range(2):
        told = client.post(f"{ROOT}/assets/events", json={"asset_id": "d1"}, headers={"Idempotency-Key": "seven"})
        assert told.status_code == 200
    assert found.events("d1") == 1


def test_events_are_filtered_and_paged(found: Flow, client: TestClient) -> None:
    found.lifecycle.run("maker", START, at("01T05:00"), "run-1")
    found.lifecycle.run("maker", at("01T01:00"), at("01T06:00"), "run-2")

    def runs(query: str) -> list[str]:
        events = client.get(f"{ROOT}/assets/events?asset_id=made&{query}").json()["asset_events"]
        return [each["source_run_id"] for each in events]

    assert runs("") == ["run-2", "run-1"]
    assert (runs("limit=1&offset=1"), runs("source_run_id=run-1")) == (["run-1"], ["run-1"])
    assert (runs("source_dag_id=maker&limit=1"), runs("source_task_id=other")) == (["run-2"], [])
    assert (runs("timestamp_lt=2013-11-01T06:00:00Z"), runs("timestamp_gte=2013-11-01T06:00")) == (["run-1"], ["run-2"])
    assert runs("source_map_index=3") == []


@pytest.mark.parametrize("path", QUEUED)
def test_what_is_queued_is_shown_and_dropped(found: Flow, client: TestClient, path: str) -> None:
    assert client.get(ROOT + path).status_code == 404
    for name in ("d1", "d1"):
        tell(client, asset_id=name)
    found.tick()
    shown = client.get(ROOT + path).json()
    mark = {"asset_id": "d1", "dag_id": "p", "created_at": client.get(f"{ROOT}/assets/events?asset_id=d1").json()}
    mark["created_at"] = mark["created_at"]["asset_events"][-1]["timestamp"]
    assert shown == (mark if path == QUEUED[2] else {"queued_events": [mark], "total_entries": 1})
    for method in ("GET", "DELETE"):
        assert client.request(method, f"{ROOT}{path}?before=2013-01-01T00:00:00Z").status_code == 404
    dropped = client.delete(ROOT + path)
    assert (dropped.status_code, dropped.content, found.pending("p")) == (204, b"", [])
    assert [client.request(method, ROOT + path).status_code for method in ("GET", "DELETE")] == [404, 404]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"asset_id": "nothing"}, 404),
        ({"asset_id": "d1", "asset": "d1"}, 422),
        ({"asset_id": 7}, 422),
        ({"extra": {}}, 422),
        ({"asset_id": "d1", "extra": [1]}, 422),
        ({"asset_id": "made", "partition_key": "soon"}, 422),
        ({"asset_id": "made", "partition_key": "2013-11-01-00:00"}, 409),
    ],
)
def test_a_wrong_event_is_refused_and_nothing_is_recorded(
    found: Flow, client: TestClient, body: Any, status: int
) -> None:
    assert tell(client, **body).status_code == status
    assert found.events("d1", "made") == 0


def test_assets_are_listed_with_who_makes_and_takes_them(project: Database) -> None:
    client = serve(project)
    page = client.get(f"{ROOT}/assets?limit=1&offset=1&order_by=-name").json()
    assert ([each["id"] for each in page["assets"]], page["total_entries"]) == (["counts"], 3)
    clicks = client.get(f"{ROOT}/assets/clicks").json()
    assert client.get(f"{ROOT}/assets?uri_pattern=lick&dag_ids=counting").json()["assets"] == [clicks]
    assert clicks["scheduled_dags"] == [{"dag_id": "counting"}]
    (counts,) = page["assets"]
    assert counts["producing_tasks"] == [{"dag_id": "counting", "task_id": "counting"}]
    assert client.get(f"{ROOT}/assets?dag_ids=nobody").json() == {"assets": [], "total_entries": 0}
    for query, status in (("?order_by=owner", 400), ("?limit=x", 422), ("?offset=-1", 422), ("/nothing", 404)):
        assert client.get(f"{ROOT}/assets{query}").status_code == status


def test_a_list_asks_once_for_all_entities_and_once_for_each_asset_that_it_shows(
    project: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, call = [], endpoint._call

    def note(door: Any, operation: Operation, *given: Any) -> Any:
        asked.append(operation.name)
        return call(door, operation, *given)

    monkeypatch.setattr(endpoint, "_call", note)
    monkeypatch.setattr(airflow, "_PAGE", 2)
    shown = serve(project).get(f"{ROOT}/assets?limit=9").json()
    assert ([each["id"] for each in shown["assets"]], shown["total_entries"]) == (["clicks", "counts"], 3)
    assert asked == ["entity list", "feed events", "feed events"]


def test_the_one_process_that_makes_an_asset_runs_again(project: Database) -> None:
    client = serve(project)

    def materialize(name: str, **body: str) -> Any:
        return client.post(f"{ROOT}/assets/{name}/materialize", json=body)

    for name, status in (("nothing", 404), ("clicks", 404), ("counts", 409)):  # of counts there is no instance yet
        assert materialize(name).status_code == status
    with project.begin() as connection:
        killed = row("counting", at("03T05:00"), ProcessInstanceStatus.KILLED)
        ProcessInstances(connection).add_waiting([killed])
    assert materialize("counts", dag_run_id="mine").status_code == 422
    assert materialize("counts", partition_key="2013-11-03T06:00Z").status_code == 404
    ran = materialize("counts").json()
    assert (ran["dag_id"], ran["logical_date"], ran["state"]) == ("counting", "2013-11-03T05:00Z", "queued")
    assert materialize("counts").status_code == 409  # it waits already


def test_of_several_makers_none_is_chosen() -> None:
    makers = [{"name": name, "tags": ["Output"]} for name in ("one", "two")]
    (materialize,) = (each for each in AIRFLOW if each.path.endswith("materialize"))
    asked = Asked(values={"asset_id": "twice"}, now=START, ask=lambda *_, **__: {"dependencies": makers})
    with pytest.raises(RequestRefusedError, match="made by one and two") as refused:
        materialize.given(asked)
    assert refused.value.status == 409
