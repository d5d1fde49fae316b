"""`If-Match`: changes of a definition or of metadata that somebody else has changed since."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from feed_assets.server import preconditions
from tests.cli.project import must
from tests.server.project import open_project, serve

DEFINITION = "/api/v1/entity/definition?kind=process&name=counting"
METADATA = "/api/v1/metadata/get?entity=feed/clicks"


@pytest.fixture
def client(tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    database = open_project(tmp_path, monkeypatch, state=database_url)
    yield serve(database)
    database.close()


def put(client: TestClient, steward: str, tag: str) -> int:
    said = {"entity": "feed/clicks", "properties": {"steward": steward}}
    return client.post("/api/v1/metadata/put", json=said, headers={"If-Match": tag}).status_code


def update(client: TestClient, text: str, tag: str, verb: str = "entity/update") -> Any:
    return client.post(f"/api/v1/{verb}", content=text, headers={"If-Match": tag})


@pytest.mark.both_databases
def test_metadata_are_changed_only_as_they_were_seen(client: TestClient) -> None:
    tag = client.get(METADATA).headers["etag"]
    assert (put(client, "ann", tag), put(client, "bob", tag)) == (200, 412)
    assert "steward=ann" in must("metadata", "history", "feed/clicks").stdout
    assert "bob" not in client.get(METADATA).text
    assert [put(client, "bob", each) for each in ("*", f"W/{client.get(METADATA).headers['etag']}")] == [200, 412]
    assert put(client, "eve", f'"other" , {client.get(METADATA).headers["etag"]}') == 200
    tag = client.get(METADATA).headers["etag"]
    for first, last, status in (('"other"', '"older"', 412), ('"other"', tag, 200), ("", "", 400)):
        several = [("If-Match", first), ("If-Match", last)]
        said = {"entity": "feed/clicks", "tags": ["several"]}
        assert client.post("/api/v1/metadata/tag", json=said, headers=several).status_code == status


def test_an_answer_that_is_there_already_is_not_sent_again(client: TestClient) -> None:
    tag = client.get(METADATA).headers["etag"]
    told = ("*", tag, f'"other", W/{tag}', f"x{tag}", f"{tag}x", '"other"', "")
    statuses = [client.get(METADATA, headers={"If-None-Match": each}).status_code for each in told]
    assert statuses == [304, 304, 304, 200, 200, 200, 200]
    several = [("If-None-Match", '"other"'), ("If-None-Match", tag)]
    assert client.get(METADATA, headers=several).status_code == 304


@pytest.mark.both_databases
def test_a_definition_is_changed_only_as_it_was_seen(client: TestClient) -> None:
    seen = client.get(DEFINITION)
    first, second = (f"{seen.text}description: {word}\n" for word in ("first", "second"))
    assert update(client, first, seen.headers["etag"]).status_code == 200
    refused = update(client, second, seen.headers["etag"])
    assert (refused.status_code, "Read it again" in refused.json()["detail"]) == (412, True)
    assert update(client, second, seen.headers["etag"], "apply?yes=true").status_code == 412
    wanted = {"kind": "process", "names": ["counting"]}
    headers = {"If-Match": seen.headers["etag"]}
    assert client.post("/api/v1/entity/delete", json=wanted, headers=headers).status_code == 412
    assert client.get(DEFINITION).text == first
    assert update(client, second, client.get(DEFINITION).headers["etag"], "apply?yes=true").status_code == 202
    assert client.get(DEFINITION).text == second


@pytest.mark.parametrize("form", ["written", "yaml", "json"])
def test_the_tag_of_each_form_of_a_definition_is_known(client: TestClient, form: str) -> None:
    text, tag = client.get(DEFINITION).text, client.get(f"{DEFINITION}&format={form}").headers["etag"]
    assert update(client, f"{text}description: x\n", tag).status_code == 200
    assert update(client, f"{text}description: y\n", tag).status_code == 412


def test_the_tag_of_a_table_of_metadata_is_known_and_tags_have_quotes(client: TestClient) -> None:
    tag = client.get(f"{METADATA}&output=csv").headers["etag"]
    assert (put(client, "ann", tag), put(client, "bob", tag)) == (200, 412)
    refused = update(client, client.get(DEFINITION).text, client.get(DEFINITION).headers["etag"].strip('"'))
    assert (refused.status_code, "with their quotes" in refused.json()["detail"]) == (400, True)


def test_if_match_is_refused_where_it_would_say_nothing(client: TestClient) -> None:
    told = client.post("/api/v1/entity/suspend", json={"names": ["counting"]}, headers={"If-Match": "*"})
    assert (told.status_code, "If-Match is for" in told.text) == (400, True)
    assert update(client, "kind: feed\nname: nothing\n", "*").status_code == 422


@pytest.mark.both_databases
def test_a_change_between_the_look_and_the_lock_is_seen(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = preconditions.call

    def call_later(door: Any, operation: Any, given: Any) -> Any:
        if operation.name == "metadata put":
            must("metadata", "put", "feed/clicks", "steward=eve")
        if operation.name == "entity update":
            must("entity", "update", "changed.yaml")
        return ask(door, operation, given)

    monkeypatch.setattr(preconditions, "call", call_later)
    seen = client.get(DEFINITION)
    Path("changed.yaml").write_text(f"{seen.text}description: eve\n")
    assert put(client, "ann", client.get(METADATA).headers["etag"]) == 412
    assert update(client, f"{seen.text}description: ann\n", seen.headers["etag"]).status_code == 412
    assert "eve" in client.get(DEFINITION).text
    assert "eve" in client.get(METADATA).text
