"""Requests to the application in this process: what it calls, and what it answers."""

import io
import json
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event, Semaphore
from typing import Any

import pytest
from starlette.testclient import TestClient

from feed_assets.cli.door import CONSOLE, TERMINAL
from feed_assets.operation import Does, Operation
from feed_assets.operation_list import list_operations
from feed_assets.server import application
from feed_assets.server.routes import DOCUMENT, PAGE, find_rights, list_routes
from feed_assets.sql.database import Database
from feed_assets.sql.errors import StateUnreachableError
from tests.cli.project import must, run
from tests.server.project import open_project, serve

WHY = "/api/v1/why?name=counting&instance=2013-11-03T11:00Z"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Database]]:
    folder = tmp_path_factory.mktemp("served")
    with pytest.MonkeyPatch.context() as patch:
        yield folder, open_project(folder, patch)


@pytest.fixture
def client(project: tuple[Path, Database]) -> TestClient:
    return serve(project[1])


def test_an_answer_is_what_the_command_prints_as_json(client: TestClient) -> None:
    answer = client.get(WHY)
    assert answer.status_code == 200
    assert answer.text == must("why", "counting", "2013-11-03T11:00Z", "--output", "json").stdout


def test_every_operation_has_a_right_and_a_route_or_a_reason() -> None:
    for each in list_operations().items:
        found = [route for route in list_routes() if route.name == each.name]
        assert bool(found) is not bool(each.no_route), each.name
        for route in found:
            assert find_rights({"method": route.method, "path": route.path}) == (each.right,)
    assert find_rights({"method": "HEAD", "path": "/api/v1/entity/list"}) == (Does.READS,)
    assert find_rights({"method": "POST", "path": "/api/v1/entity/list"}) == ()


@pytest.mark.parametrize(
    ("method", "path", "status", "said"),
    [
        ("GET", "/api/v1/why?name=nobody&instance=2013-11-03T11:00Z", 404, "no feed or process 'nobody'"),
        ("GET", "/api/v1/why", 400, "The parameter name is missing."),
        ("GET", "/api/v1/why?name=counting&nam=counting", 400, "no parameter 'nam'. Do you mean name?"),
        ("GET", "/api/v1/why?name=a&name=b", 400, "has one value; 2 were given"),
        (
            "GET",
            "/api/v1/instance/list?name=counting&num_results=0",
            400,
            "parameter num_results: 0 is not in the",
        ),
        ("GET", "/api/v1/settings?path=/etc", 400, "no parameter 'path'"),
        ("POST", "/api/v1/entity/validate?files=all.yaml", 400, "no parameter 'files'"),
        ("GET", "/api/v1/admin/messages?follow=true", 400, "no parameter 'follow'"),
        ("GET", "/api/v1/entity/list?author=eve", 400, "no parameter 'author'"),
        ("POST", "/api/v1/entity/list", 405, "not by POST"),
        ("GET", "/nowhere", 404, "nothing at /nowhere"),
        ("POST", "/api/v1/feed/take", 404, "A server does not offer feed take. It may take minutes."),
        ("POST", "/health", 405, "/health is asked by GET or HEAD, not by POST."),
    ],
)
def test_what_is_wrong_is_told_in_one_form(client: TestClient, method: str, path: str, status: int, said: str) -> None:
    answer = client.request(method, path)
    assert answer.headers["content-type"] == "application/problem+json"
    told = answer.json()
    assert (answer.status_code, told["status"]) == (status, status)
    assert said in told["detail"]


def test_a_request_acts_in_the_name_of_its_author(client: TestClient) -> None:
    told = client.post("/api/v1/entity/suspend", json={"kind": "process", "names": ["counting"]})
    assert (told.status_code, told.json()["outcomes"][0]["outcome"]) == (200, "suspended")
    assert "SUSPENDED" in must("entity", "status", "counting", "--output", "json").stdout
    client.post("/api/v1/entity/resume", json={"names": ["counting"]})


def test_a_body_is_a_file_or_a_zip_of_files(client: TestClient, project: tuple[Path, Database]) -> None:
    content = (project[0] / "all.yaml").read_bytes()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name in ("all.yaml", "../../other.yaml"):
            archive.writestr(name, content)
    said = json.loads(run("entity", "validate", "all.yaml", "--output", "json").stdout)
    assert client.post("/api/v1/entity/validate", content=content).json() == said
    refused = client.post("/api/v1/entity/validate", content=packed.getvalue())
    assert refused.status_code == 422
    assert "../../other.yaml" in refused.text  # a label: the path is never opened


@pytest.mark.parametrize("packed_by", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_zip_that_cannot_be_read_is_refused_in_one_form(client: TestClient, packed_by: int) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", packed_by) as archive:
        archive.writestr("a.yaml", b"kind: feed\n" * 99)
    whole, entry = packed.getvalue(), packed.getvalue().index(b"PK\x01\x02")
    damaged = whole[:38] + b"\xff" * 9 + whole[47:]
    encrypted = whole[: entry + 8] + b"\x01" + whole[entry + 9 :]
    nameless = whole[: entry + 28] + b"\0" + whole[entry + 29 :]
    for content in (damaged, encrypted, nameless, whole[:-30]):
        for path, status, said in (
            ("entity/validate", 400, "The body is no zip that can be read: "),
            ("bundle/import", 422, "body: it is no bundle: "),
        ):
            refused = client.post(f"/api/v1/{path}", content=content)
            assert (refused.status_code, said in refused.text, "ZipInfo" in refused.text) == (status, True, False)


def test_what_has_names_is_an_object_and_a_file_of_another_kind_is_the_body(client: TestClient) -> None:
    told = client.post("/api/v1/metadata/put", json={"entity": "feed/counts", "properties": {"a": "b=c"}})
    assert told.json()["additions"] == {"USER": {"properties": {"a": "b=c"}, "tags": []}}
    mutation = {"entity": "feed/counts", "remove": {"properties": ["a"]}}
    removed = client.post("/api/v1/metadata/import", json={"mutations": [mutation]}).json()["entities"]
    assert [each["deletions"] for each in removed] == [told.json()["additions"]]
    refused = client.post("/api/v1/metadata/import", content=b"{")
    assert "the body" in refused.json()["detail"]


def test_wrong_definitions_are_told_with_file_and_line(client: TestClient) -> None:
    refused = client.post("/api/v1/entity/submit", content=b"kind: feed\nname: x\nfrequency: 7\n")
    assert refused.status_code == 422
    assert {(each["source"]["file"], each["source"]["line"]) for each in refused.json()["issues"]} >= {("body.yaml", 3)}


def test_a_console_gets_what_the_command_prints(client: TestClient) -> None:
    answer = client.get(WHY.replace("counting", "nobody"), headers={"Accept": CONSOLE})
    printed = run("why", "nobody", "2013-11-03T11:00Z")
    assert answer.json() == {"out": printed.stdout, "err": printed.stderr, "exit_code": printed.exit_code}


def test_an_unchanged_answer_is_not_sent_again(client: TestClient) -> None:
    tag = client.get(WHY).headers["etag"]
    again = client.get(WHY, headers={"If-None-Match": tag})
    assert (again.status_code, again.content) == (304, b"")


def test_definitions_are_read_again_when_a_file_has_changed(client: TestClient, project: tuple[Path, Database]) -> None:
    assert client.get("/api/v1/why?name=more&instance=2013-11-03T11:00Z").status_code == 404
    (file,) = (project[0] / "entities").rglob("counting.yaml")
    more = file.with_name("more.yaml")
    more.write_text(file.read_text().replace("name: counting", "name: more").replace("counts", "counts"))
    try:
        assert client.get("/api/v1/instance/list?name=more").status_code in (200, 422)
    finally:
        more.unlink()
    assert client.get("/api/v1/instance/list?name=more").status_code == 404


def test_properties_are_an_object_or_texts(client: TestClient) -> None:
    for given in ({"steward": "ann"}, ["steward=ann"]):
        told = client.post("/api/v1/metadata/put", json={"entity": "feed/clicks", "properties": given, "dry_run": True})
        assert told.json()["additions"]["USER"]["properties"] == {"steward": "ann"}, told.text


def test_a_plain_text_that_is_json_says_so(client: TestClient) -> None:
    types = [
        client.get(f"/api/v1/{path}").headers["content-type"]
        for path in (
            "metadata/export",
            "entity/definition?name=counting",
            "entity/definition?name=counting&format=json",
        )
    ]
    assert types == ["application/json", "text/plain; charset=utf-8", "application/json"]


def test_the_document_is_served_with_its_tag(client: TestClient) -> None:
    answer = client.get("/openapi.json")
    assert answer.json()["openapi"] == "3.1.0"
    assert client.get("/openapi.json", headers={"If-None-Match": answer.headers["etag"]}).status_code == 304
    page = client.get("/docs")
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    assert "/api/v1/why" in page.text
    assert client.get("/").text == page.text.replace("docs", "")
    assert "<pre>curl --header &quot;Authorization: Bearer" not in page.text
    with_token = client.get("/docs", headers={"Authorization": "Bearer x"})
    assert "<pre>curl --header &quot;Authorization: Bearer $FEED_ASSETS_TOKEN&quot; " in with_token.text


def test_everybody_hears_that_the_database_is_away_and_not_where_it_is(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(_: Database) -> None:
        raise StateUnreachableError(database="postgresql://secret:5432", reason="it is down", next_step="Start it.")

    monkeypatch.setattr(Database, "read", read)
    told = client.get("/health")
    assert (told.status_code, told.headers["retry-after"]) == (503, "5")
    assert told.json()["detail"] == "The database does not answer."
    assert "next_step" not in told.json()


def test_a_state_that_is_moved_away_is_told_and_made_by_no_request(
    client: TestClient, project: tuple[Path, Database]
) -> None:
    file, away = project[0] / "state.db", project[0] / "away.db"
    file.rename(away)
    assert [client.get(each).status_code for each in ("/health", WHY, "/metrics")] == [503] * 3
    assert not file.exists()
    away.rename(file)
    assert [client.get(each).status_code for each in ("/health", WHY)] == [200] * 2


def test_each_of_several_requests_at_once_is_recorded_once(client: TestClient, project: tuple[Path, Database]) -> None:
    file = project[0] / "actions.jsonl"
    before = file.read_text().count('"action": "why"')
    with client, ThreadPoolExecutor(8) as threads:
        told = list(threads.map(lambda _: client.get(WHY).status_code, range(40)))
    assert told == [200] * 40
    assert file.read_text().count('"action": "why"') - before == 40


def test_what_is_left_out_for_its_errors_is_told(client: TestClient, project: tuple[Path, Database]) -> None:
    broken = project[0] / "entities" / "broken.yaml"
    broken.write_text("kind: feed\nname: torn\nfrequency: [\n")
    try:
        listed, missed = (
            client.get("/api/v1/why?name=counting&instance=2013-11-03T11:00Z"),
            client.get("/api/v1/why?name=torn&instance=2013-11-03"),
        )
    finally:
        broken.unlink()
    assert "left out because of errors" in listed.headers["feed-assets-notes"]
    assert "broken.yaml" in listed.headers["feed-assets-notes"]
    (note,) = missed.json()["notes"]
    assert "broken.yaml" in note
    assert "feed-assets-notes" not in client.get(WHY).headers


def test_changed_settings_are_told_with_every_answer(client: TestClient, project: tuple[Path, Database]) -> None:
    file = project[0] / "feed_assets.yaml"
    before = file.read_text()
    file.write_text(f"{before}strict: false\n")
    try:
        note = client.get(WHY).headers["feed-assets-notes"]
    finally:
        file.write_text(before)
    assert "has changed since the server was started" in note


def test_a_path_with_more_words_of_its_own_is_meant(client: TestClient) -> None:
    tags = "/v3/namespaces/default/datasets/clicks/metadata/tags"
    assert client.post(tags, json=["metadata", "hot"]).status_code == 200
    assert client.delete(f"{tags}/metadata").status_code == 200
    assert client.get(f"{tags}?scope=USER").json() == ["hot"]


def test_a_cluster_is_a_namespace_of_paths_that_others_know_as_in_their_lineage(client: TestClient) -> None:
    found = [
        client.get(f"/v3/namespaces/{each}/datasets/clicks/metadata").status_code for each in ("primary", "nobody")
    ]
    assert found == [200, 404]


def test_a_missing_parameter_is_called_as_the_path_calls_it(client: TestClient) -> None:
    assert client.get("/api/v2/assets/events").json()["detail"] == "The parameter asset_id is missing."


def test_the_document_and_the_page_are_made_once(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[str]()
    for each in (application._render_document, application._render_page):
        each.cache_clear()

    def count(name: str, function: Any) -> Any:
        return lambda *given, **named: made.append(name) or function(*given, **named)

    for name in ("JSONResponse", "render_page"):
        monkeypatch.setattr(application, name, count(name, getattr(application, name)))
    for path in (DOCUMENT, PAGE, DOCUMENT, PAGE):
        assert client.get(path).status_code == 200
    assert made == ["JSONResponse", "render_page"]
    assert "http://elsewhere/api" in client.get(PAGE, headers={"Host": "elsewhere"}).text


@pytest.mark.parametrize("columns", ["9" * 5000, "0", "-1", "", "\xb2", "80"])
def test_whatever_the_width_of_a_terminal_it_is_answered(client: TestClient, columns: str) -> None:
    headers = {"Accept": CONSOLE, TERMINAL: f"columns={columns}".encode("latin-1")}
    answer = client.get("/api/v1/entity/list", headers=headers)
    assert (answer.status_code, answer.json()["exit_code"]) == (200, 0)


def test_long_questions_hold_up_no_notification(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    call, began, released, held = application.call_if_match, Semaphore(0), Event(), list[bool]()

    def wait(door: Any, operation: Operation, *given: Any) -> Any:
        if operation.does is Does.READS:
            began.release()
            held.append(released.wait(20))
        return call(door, operation, *given)

    monkeypatch.setattr(application, "call_if_match", wait)
    told = {"feed": "clicks", "instance": "2013-11-03T11:00Z", "dry_run": True}
    with client, ThreadPoolExecutor(60) as pool:
        answers = [pool.submit(client.get, "/api/v1/token/list") for _ in range(60)]
        for _ in range(16):
            began.acquire()
        assert client.get("/health").status_code == 200
        assert client.post("/api/v1/feed/notify", json=told).status_code < 500
        released.set()
        assert {each.result().status_code for each in answers} == {200}
    assert (len(held), set(held)) == (60, {True})
