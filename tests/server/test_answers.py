"""What requests are answered: statuses that say what came of them, and answers to what acts."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

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
    assert "give yes, or the digest" in client.post("/api/v1/apply", content=changed).json()["detail"]
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
    assert (refused.status_code, "body: it is no bundle" in refused.text) == (409, True)
    document = must("metadata", "export").stdout
    assert client.post("/api/v1/metadata/import?dry_run=true", content=document).status_code == 200
