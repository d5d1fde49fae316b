"""Paths that others know: what they call, and how they answer."""

from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from feed_assets.operation import Does
from feed_assets.server.aliases.table import ALIASES
from feed_assets.server.routes import find_rights, list_routes
from feed_assets.sql.database import Database
from tests.server.project import open_project, serve

FEED = "/v3/namespaces/default/datasets/counts/metadata"
WEB = {"owner": "web"}
CLICKS = {"entity": {"details": {"namespace": "default", "dataset": "clicks"}, "type": "dataset"}, "scope": "USER"}


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
        assert not each.called.find_rights(each.parameters.values())[1:], each.path
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


ROWS: tuple[tuple[str, str, Any, Any], ...] = (
    ("A4", "POST datasets/clicks/metadata/properties?async=false", {"a": "1", "b": "2"}, 200),
    ("A4", "POST datasets/clicks/metadata/properties", {"a": "3"}, 200),
    ("A5", "POST datasets/clicks/metadata/tags", ["x", "y"], 200),
    ("A5", "POST apps/counting/versions/7/metadata/tags", ["x"], 200),
    ("A2", "GET streams/clicks/metadata/properties?scope=uSeR", None, {"a": "3", "b": "2", "owner": "web"}),
    ("A3", "GET datasets/clicks/metadata/tags?scope=user", None, ["x", "y"]),
    ("A3", "GET apps/counting/workflows/counting/metadata/tags?scope=user", None, ["x"]),
    ("A8", "DELETE datasets/clicks/metadata/properties/a", None, 200),
    ("A8", "DELETE datasets/clicks/metadata/properties/a", None, 200),
    ("A10", "DELETE datasets/clicks/metadata/tags/x", None, 200),
    ("A10", "DELETE datasets/clicks/metadata/tags/nothing", None, 200),
    (
        "A1",
        "GET datasets/clicks/metadata?scope=user&type=dataset",
        None,
        [{**CLICKS, "properties": {"b": "2", **WEB}, "tags": ["y"]}],
    ),
    ("A11", "GET metadata/search?query=tags:y&target=dataset", None, 1),
    ("A12", "GET /v3/metadata/search?query=tags:y", None, 1),
    ("A7", "DELETE datasets/clicks/metadata/properties", None, 200),
    ("A2", "GET datasets/clicks/metadata/properties?scope=user", None, WEB),
    ("A9", "DELETE datasets/clicks/metadata/tags", None, 200),
    ("A6", "DELETE apps/counting/metadata?async=true", None, 200),
    ("A3", "GET apps/counting/metadata/tags?scope=user", None, []),
    ("A11", "GET metadata/search?query=tags:y", None, 0),
    ("A13", "GET datasets/clicks/lineage?start=now-7d&end=now&levels=1", None, 200),
    ("A14", "GET datasets/clicks/lineage/fields?start=0&end=now&prefix=u", None, []),
    ("A15", "GET datasets/clicks/lineage/fields/url?start=0&end=now&direction=incoming", None, {"incoming": []}),
    (
        "A16",
        "GET datasets/clicks/lineage/fields/url/operations?start=0&end=now",
        None,
        {"incoming": [], "outgoing": []},
    ),
    ("A17", "GET apps/counting/workflows/counting/runs/none/metadata", None, 404),
)
"""Requests by the rows of CDAP's table, one after the other, with the status, the answer, or how much is found."""


def test_each_row_of_cdaps_table_is_answered(client: TestClient) -> None:
    for row, line, body, expected in ROWS:
        method, _, path = line.partition(" ")
        url = path if path.startswith("/") else f"/v3/namespaces/default/{path}"
        answer = client.request(method, url, json=body)
        if expected in (200, 404):
            assert answer.status_code == expected, (row, line, answer.text)
        elif isinstance(expected, int):
            assert answer.json()["total"] == expected, (row, line, answer.text)
        else:
            assert answer.json() == expected, (row, line, answer.text)
    assert {row for row, *_ in ROWS} == {f"A{number}" for number in range(1, 18)}


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
    for spaces in ("", "&namespaces=nowhere&namespaces=default"):
        found = client.get(f"/v3/metadata/search?query=counts&target=dataset{spaces}").json()["results"]
        assert [each["entity"]["details"] for each in found] == [{"namespace": "default", "dataset": "counts"}]
    assert client.get("/v3/metadata/search?query=counts&entityScope=System").json() == {
        **nothing.json(),
        "entityScopes": ["SYSTEM"],
    }
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
        ("GET", "/v3/metadata/search?responseFormat=v6", "", 400),
        ("GET", "/v3/metadata/search?entityScope=all", "", 400),
        ("GET", "/v3/metadata/search?namespaces=one&namespaces=two", "", 400),
        ("GET", "/v3/namespaces/default/apps/a/runs/b/metadata?scope=user", "", 400),
        ("GET", "/v3/namespaces/default/apps/a/runs/b/metadata", "", 404),
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
