"""What requests are answered: statuses that say what came of them, and answers to what acts."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from feed_assets import errors
from feed_assets.errors import FeedAssetsError
from feed_assets.server.answers import refuse, status_of
from feed_assets.sql.database import Database
from tests.cli.project import must
from tests.server.project import open_project, serve


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Database]]:
    folder = tmp_path_factory.mktemp("served")
    with pytest.MonkeyPatch.context() as patch:
        yield folder, open_project(folder, patch)


@pytest.fixture
def client(project: tuple[Path, Database]) -> TestClient:
    return serve(project[1])


def test_definitions_are_planned_and_applied_by_their_digest(
    client: TestClient, project: tuple[Path, Database]
) -> None:
    told = client.get("/api/v1/entity/definition?kind=process&name=counting")
    changed = f"{told.text}description: by a request\n"
    planned = client.post("/api/v1/plan", content=changed)
    (project[0] / "by-request.yaml").write_text(changed)
    assert planned.text == must("plan", "by-request.yaml", "--output", "json").stdout
    assert "give yes=true, or the digest of" in client.post("/api/v1/apply", content=changed).json()["detail"]
    refused = client.post("/api/v1/apply?digest=00000000", content=changed)
    assert (refused.status_code, "outdated" in refused.text) == (409, True)
    applied = client.post(f"/api/v1/apply?digest={planned.json()['digest'][:8]}", content=changed)
    assert (applied.status_code, applied.json()["outcomes"][0]["outcome"]) == (202, "updated")


def test_a_bundle_and_a_document_are_imported_from_the_body(client: TestClient, project: tuple[Path, Database]) -> None:
    must("bundle", "export", "--all", "--to", str(project[0] / "all.zip"))
    content = (project[0] / "all.zip").read_bytes()
    told = client.post("/api/v1/bundle/import", content=content)
    assert {each["outcome"] for each in told.json()["entities"]} == {"unchanged"}
    refused = client.post("/api/v1/bundle/import", content=content[:-30])
    assert (refused.status_code, "body: it is no bundle" in refused.text) == (422, True)
    document = must("metadata", "export").stdout
    assert client.post("/api/v1/metadata/import?dry_run=true", content=document).status_code == 200


OF_CLASSES: Mapping[int, str] = {
    400: """AmbiguousNameError, FrequencyError, DateTimeError, TimeZoneError, InstanceError, WindowError,
        UnknownNameError, TemplateError, TableAddressError, MetadataRefusedError, InstanceQueryError, PartitionKeyError,
        NewEntityError, NoSiteError""",
    403: "AccessRefusedError",
    404: """EntityNotFoundError, VersionNotFoundError, NoAssetError, InstanceNotThereError, InstanceNotFoundError,
        NoProcessInstanceError, UnknownReceiverError""",
    422: "DuplicateEntityError, FileRefusedError, ColumnsError, PatternError, TranslationError, AssetKeyClashError",
    503: """SettingsError, NoAnswerError, LocationUnreadableError, StateUnreachableError, StateSchemaError,
        StorageAwayError, StorageFullError, ServiceAwayError, WebserverError, RunsNotStoppedError, FeedsUnsweptError,
        FeedsUnrestoredError""",
}
"""The statuses of the leaves of the tree of errors; all others are conflicts."""


def leaves() -> Iterator[type[FeedAssetsError]]:
    """The classes of the drawn tree below which there are none."""
    for path in Path(errors.__file__).parent.rglob("errors.py"):
        import_module(".".join(path.relative_to(Path(errors.__file__).parents[1]).with_suffix("").parts))
    open_ones = [FeedAssetsError]
    while open_ones:
        kind = open_ones.pop()
        below = [each for each in kind.__subclasses__() if each.__module__.startswith("feed_assets.")]
        open_ones += below
        if not below and kind.__name__ != "RequestRefusedError":
            yield kind


def test_each_leaf_of_the_tree_of_errors_has_its_status() -> None:
    told = {name.strip(): status for status, names in OF_CLASSES.items() for name in names.split(",")}
    found = {kind.__name__: int(status_of(kind.__new__(kind))) for kind in leaves()}
    assert told.keys() <= found.keys()
    assert {name: status for name, status in found.items() if status != told.get(name, 409)} == {}


def test_what_is_away_says_when_to_ask_again_and_our_mistakes_say_nothing_but_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    away = refuse(ConnectionError("10.0.0.1 is away"))
    assert (away.status_code, away.headers["retry-after"]) == (503, "5")
    mistake = refuse(ValueError("a path: /srv/project"))
    assert (mistake.status_code, b"/srv" in mistake.body) == (500, False)
    assert "a path: /srv/project" in caplog.text
    assert b"/srv" not in refuse(PermissionError(13, "Permission denied", "/srv/x")).body


def test_a_json_body_has_the_parameters_of_what_can_do_without_a_file(client: TestClient) -> None:
    wanted = {"kind": "process", "name": "counting", "instance": ["2013-11-03T05:00Z"], "dry_run": True}
    asked = "/api/v1/instance/rerun?name=counting&instance=2013-11-03T05:00Z&dry_run=true"
    told = client.post("/api/v1/instance/rerun", json=wanted)
    assert "no tick has created" in told.text
    assert [client.post(asked, json={}).text, client.post(asked).text] == [told.text] * 2
    assert client.post("/api/v1/plan", json={"prune": False}).json()["version"] == 2
    assert client.post("/api/v1/batch/end", json={"process": "counting"}).status_code == 409  # it is not external
    for path in ("entity/submit", "bundle/import", "metadata/import"):
        refused = client.post(f"/api/v1/{path}", json={"dry_run": True})
        assert (refused.status_code, refused.json()["detail"].partition(". ")[2]) == (
            400,
            "Give its parameters in the query.",
        )


@pytest.mark.parametrize(
    ("method", "path", "given", "said"),
    [
        (
            "POST",
            "feed/notify",
            {"data": {"feed": "clicks"}},
            "The body must be a JSON object of parameters: Expecting",
        ),
        ("POST", "feed/notify", {"json": [1]}, "The body must be a JSON object of parameters: it is another value."),
        (
            "POST",
            "feed/notify",
            {"json": {"feed": "clicks", "instance": "2013-11-03", "payload": "x"}},
            """payload: 'x' is not a JSON object, like {"rows": 12}""",
        ),
        ("GET", "instance/list?name=counting&num_results=a", {}, "num_results: 'a' is not a whole number."),
        ("GET", "search?text=a&cursor=x", {}, "a cursor needs an order. Write sort 'entity-name asc'."),
        (
            "POST",
            "entity/submit",
            {"content": "kind: cluster\nname: primary\nstorage: file:///elsewhere\n"},
            "Change it: POST /api/v1/apply, as by feed-assets apply body.yaml",
        ),
    ],
)
def test_what_is_wrong_is_told_in_the_words_of_requests(
    client: TestClient, method: str, path: str, given: Mapping[str, Any], said: str
) -> None:
    assert said in client.request(method, f"/api/v1/{path}", **given).json()["detail"]


@pytest.mark.parametrize(
    ("method", "path", "status", "said"),
    [
        ("GET", "retention/show?plan=nothing", 404, "it does not exist"),
        ("POST", "hold/release?name=nothing", 404, "it does not exist"),
        ("POST", "notify/test?name=nobody", 404, "no receiver of this name"),
        ("GET", "entity/definition?name=counting&version=99", 404, "version 99"),
        ("GET", "sla/alerts?start=2013-11-03T00:00Z&end=2013-11-04T00:00Z&clusters=mars", 404, "not declared"),
        ("POST", "batch/init?process=counting", 409, "external"),
        ("POST", "metadata/put?entity=Feed/x&properties=a=1", 400, "the kind 'Feed'"),
        ("GET", "entity/list?kind=feed&filter_by=STATUS:x", 400, "filter_by: there is no"),
    ],
)
def test_what_is_not_there_is_told_apart_from_what_is_refused(
    client: TestClient, method: str, path: str, status: int, said: str
) -> None:
    told = client.request(method, f"/api/v1/{path}")
    assert (told.status_code, said in told.json()["detail"]) == (status, True), told.text


def test_only_what_was_made_is_created(client: TestClient) -> None:
    wanted = {
        "name": "audit",
        "feed": "clicks",
        "start": "2013-11-03T01:00Z",
        "end": "2013-11-03T02:00Z",
        "reason": "r",
    }
    assert client.post("/api/v1/hold/add", json={**wanted, "dry_run": True}).status_code == 200
    assert client.post("/api/v1/hold/add", json=wanted).status_code == 201
    content = must("entity", "definition", "feed", "clicks").stdout
    assert client.post("/api/v1/entity/submit", content=content).status_code == 200, "nothing was made"


def test_a_call_that_has_failed_tells_its_result(client: TestClient, project: tuple[Path, Database]) -> None:
    wrong = (project[0] / "all.yaml").read_text().replace("counting", "other").replace("clicks", "klicks")
    refused = client.post("/api/v1/apply?dry_run=true", content=wrong)
    assert refused.status_code == 409, refused.text
    assert refused.json()["result"]["issues"]
    assert client.post("/api/v1/plan", content=wrong).status_code == 200


def test_a_notice_with_a_key_is_taken_once(client: TestClient, project: tuple[Path, Database]) -> None:
    (day := project[0] / "data" / "clicks" / "2013-11-03" / "05").mkdir(parents=True, exist_ok=True)
    (day / "part-0").write_text("1")
    notice = {"feed": "clicks", "instance": "2013-11-03T05:00Z"}
    told = [
        client.post("/api/v1/feed/notify", json=notice, headers={"Idempotency-Key": key})
        for key in ("k-1", "k-1", "k-2")
    ]
    assert [each.status_code for each in told] == [200, 200, 200], told[0].text
    assert [each.json()["outcome"] for each in told] == ["recorded", "recorded", "known already"]
    assert told[0].content == told[1].content
    for key, headers in (
        (None, [("Idempotency-Key", "k-1")] * 2),
        ("k-2", [("Idempotency-Key", "k-1")]),
        (None, [("Idempotency-Key", "")]),
    ):
        refused = client.post("/api/v1/feed/notify", json={**notice, "key": key}, headers=headers)
        assert (refused.status_code, "several keys" in refused.text) == (400, True), refused.text
    for other in ("hold/release?name=x", "metadata/remove?entity=feed/clicks", "batch/end?process=counting"):
        refused = client.post(f"/api/v1/{other}", headers={"Idempotency-Key": "k-1"})
        told = "Idempotency-Key is for feed notify and batch init" in refused.text
        assert (refused.status_code, told) == (400, True), refused.text
    taken = client.post("/api/v1/batch/init?process=counting", headers={"Idempotency-Key": "k-1"})
    assert (taken.status_code, "external" in taken.text) == (409, True), "it has this header"
