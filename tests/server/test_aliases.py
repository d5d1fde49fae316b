"""Paths that others know: what they call, and how they answer."""

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from feed_assets.operation import Does
from feed_assets.server.aliases.table import ALIASES
from feed_assets.server.routes import find_rights, list_routes
from feed_assets.sql.database import Database
from tests.server.project import open_project, serve

FEED = "/v3/namespaces/default/datasets/counts/metadata"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with pytest.MonkeyPatch.context() as patch:
        yield open_project(tmp_path_factory.mktemp("served"), patch)


@pytest.fixture
def client(project: Database) -> TestClient:
    return serve(project)


def test_each_path_calls_an_operation_that_is_offered_and_needs_its_right() -> None:
    offered = {each.name for each in list_routes()}
    for each in ALIASES:
        path = each.path.replace(":path", "").replace("{", "a").replace("}", "")
        assert each.operation in offered, each.path
        assert find_rights({"method": each.method, "path": path}) == (each.called.right,), each.path
        assert not each.called.find_rights(each.names.values())[1:], each.path
    assert find_rights({"method": "HEAD", "path": FEED}) == (Does.READS,)
    assert find_rights({"method": "PUT", "path": FEED}) == ()


def test_metadata_are_written_and_read_as_in_cdap(client: TestClient) -> None:
    written = client.post(f"{FEED}/properties", json={"a": "b", "c": "d=e"})
    assert (written.status_code, written.text) == (200, "The metadata of feed/counts are changed.")
    assert client.post(f"{FEED}/tags", json=["x", "y"]).status_code == 200
    assert client.delete(f"{FEED}/properties/a").status_code == 200
    assert client.get(f"{FEED}/properties?scope=user").json() == {"c": "d=e"}
    user, system = client.get(FEED).json()
    entity = {"details": {"namespace": "default", "dataset": "counts"}, "type": "dataset"}
    assert user == {"entity": entity, "scope": "USER", "properties": {"c": "d=e"}, "tags": ["x", "y"]}
    assert (system["scope"], system["properties"]["entity-name"]) == ("SYSTEM", "counts")
    assert client.get(f"{FEED}/properties?scope=user&responseFormat=v6").json() == {
        "properties": [{"name": "c", "scope": "USER", "value": "d=e"}],
        "tags": [],
    }
    assert client.delete(FEED).status_code == 200
    assert client.get(f"{FEED}?scope=USER").json() == [{**user, "properties": {}, "tags": []}]


def test_metadata_are_changed_only_as_they_were_seen(client: TestClient) -> None:
    seen = client.get("/api/v1/metadata/get?entity=feed/views").headers["etag"]
    views = FEED.replace("counts", "views")
    assert client.post(f"{views}/tags", json=["seen"], headers={"If-Match": '"other"'}).status_code == 412
    statuses = [client.post(f"{views}/tags", json=[tag], headers={"If-Match": seen}).status_code for tag in "ab"]
    assert (statuses, client.get(f"{views}/tags?scope=user").json()) == ([200, 412], ["a"])


def test_what_is_not_there_is_found_nowhere_and_has_no_lineage(client: TestClient) -> None:
    nothing = client.get("/v3/namespaces/nowhere/metadata/search")
    assert (nothing.status_code, nothing.json()["total"]) == (200, 0)
    assert client.get("/v3/metadata/search?namespaces=nowhere").json() == nothing.json()
    found = client.get("/v3/metadata/search?query=counts&target=dataset").json()["results"]
    assert [each["entity"]["details"] for each in found] == [{"namespace": "default", "dataset": "counts"}]
    empty = client.get("/v3/namespaces/default/streams/nothing/lineage?start=7&end=now").json()
    assert (empty["start"], empty["relations"]) == (7, [])


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", f"{FEED}?scope=foo", "", 400),
        ("GET", f"{FEED}?scopes=user", "", 400),
        ("GET", f"{FEED}?responseFormat=v7", "", 400),
        ("GET", FEED.replace("default", "other"), "", 404),
        ("GET", FEED.replace("counts", "nothing"), "", 404),
        ("POST", f"{FEED}/properties", "", 400),
        ("POST", f"{FEED}/properties", "null", 400),
        ("POST", f"{FEED}/properties", "{", 400),
        ("POST", f"{FEED}/properties", '{"a$": "b"}', 400),
        ("POST", f"{FEED}/properties", '{"a": {"b": "c"}}', 400),
        ("POST", f"{FEED}/tags", '{"a": "b"}', 400),
        ("POST", FEED.replace("counts", "nothing") + "/tags", '["a"]', 404),
        ("PUT", f"{FEED}/tags", "", 405),
        ("GET", "/v3/metadata/search?cursorRequested=true", "", 400),
        ("GET", "/v3/metadata/search?sort=size+asc", "", 400),
        ("GET", "/v3/metadata/search?target=nothing", "", 400),
        ("GET", "/v3/namespaces/default/datasets/counts/lineage?start=0", "", 400),
        ("GET", "/v3/namespaces/default/datasets/counts/lineage?start=0&end=now&levels=0", "", 400),
        ("GET", "/v3/namespaces/default/datasets/counts/lineage?start=0&end=now&rollup=workflow", "", 400),
        ("GET", "/v3/namespaces/default/datasets/counts/lineage?start=99999999999999999999&end=now", "", 400),
    ],
)
def test_what_is_wrong_is_refused_as_in_cdap(
    client: TestClient, method: str, path: str, body: str, status: int
) -> None:
    refused = client.request(method, path, content=body)
    assert (refused.status_code, refused.json()["status"]) == (status, status), refused.text
