"""Pages of lineage: a picture, a table of the same, and where both lead."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from starlette.testclient import TestClient

from feed_assets.lineage.records import Node, NodeKind
from feed_assets.server.ui.lineage import _find_address
from tests.cli.project import must
from tests.cli.test_golden import record_instances
from tests.definitions.verbs.harness import CLICKS
from tests.server.project import open_project, serve


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    database = open_project(tmp_path, monkeypatch)
    with serve(database) as client:
        yield client
    database.close()


def test_a_group_is_a_picture_whose_boxes_lead_to_entities(client: TestClient) -> None:
    cluster = re.search(r'href="(/ui/cluster/[^"/]+)"', client.get("/ui/entities?kind=cluster").text)
    assert cluster is not None
    name = cluster[1].rpartition("/")[2]
    assert f'href="/ui/lineage/cluster/{name}"' in client.get(cluster[1]).text
    text = client.get(f"/ui/lineage/cluster/{name}").text
    assert '<svg xmlns="http://www.w3.org/2000/svg" class="lineage"' in text
    assert re.search(r'<a href="/ui/feed/clicks"><g class="', text)
    assert "style=" not in text


def test_a_window_says_when_nothing_has_touched_a_feed_and_keeps_its_state(client: TestClient) -> None:
    text = client.get("/ui/feed/clicks/lineage?start=2013-11-01&direction=up&levels=2").text
    assert "nothing has touched feed &#39;clicks&#39; from 2013-11-01T00:00Z" in text
    assert '<option value="up" selected>' in text
    assert 'name="levels" value="2"' in text


def test_what_is_wrong_is_told_beside_the_form(client: TestClient) -> None:
    for page in ("/ui/feed/nothing/lineage", "/ui/feed/clicks/lineage?start=yesterdayish", "/ui/lineage/owner/nobody"):
        text = client.get(page).text
        assert 'role="alert"' in text or "<h1>Bad Request" in text


def test_columns_of_a_feed_have_a_page_with_words(client: TestClient) -> None:
    assert client.get("/ui/feed/clicks/columns").status_code == 200
    text = client.get("/ui/feed/clicks/column/<script>").text
    assert "<script" not in text
    assert "Nothing is said of it." in text


def test_a_column_that_a_feed_does_not_have_is_not_found_and_its_columns_are_offered(
    client: TestClient, tmp_path: Path
) -> None:
    typed = {
        **CLICKS,
        "name": "typed",
        "schema": "origin string",
        "locations": {"data": "/typed/${YEAR}-${MONTH}-${DAY}/${HOUR}"},
    }
    (tmp_path / "typed.yaml").write_text(yaml.safe_dump(typed))
    must("entity", "submit", "typed.yaml")
    assert client.get("/ui/feed/typed/column/origin").status_code == 200
    absent = client.get("/ui/feed/typed/column/orign")
    assert absent.status_code == 404
    assert "Did you mean" in absent.text
    assert 'href="/ui/feed/typed/columns"' in absent.text.partition('role="alert"')[2]


def test_a_process_in_a_window_leads_to_its_runs_and_a_run_is_shown_as_it_was(
    client: TestClient, tmp_path: Path
) -> None:
    record_instances(tmp_path)
    window = client.get("/ui/feed/clicks/lineage?start=2013-11-03&end=2013-11-04&levels=3").text
    assert '<a href="#process-counting-primary"><g class=""' in window
    assert '<section id="process-counting-primary">' in window
    assert 'href="/ui/run/run-1"' in window
    run = client.get("/ui/run/run-1").text
    assert 'href="/ui/feed/clicks/at/2013-11-03T00:00Z"' in run
    assert '<dt title="program/clicks-read">program: clicks-read</dt><dd>1000</dd>' in run
    assert '<dt title="falconInputFeeds">feeds of the inputs</dt><dd>clicks</dd>' in run
    assert 'href="/ui/process/counting/lineage?instance=2013-11-03T00%3A00Z"' in run
    picture = client.get("/ui/process/counting/lineage?instance=2013-11-03T00:00Z").text
    assert '<a href="/ui/run/run-1"><g class="green"' in picture
    assert "attempt 1" in picture


@pytest.mark.parametrize(
    ("kind", "name", "more", "address"),
    [
        ("event", "a", {"nominal_time": datetime(2013, 11, 1, tzinfo=UTC)}, "/ui/feed/a/at/2013-11-01T00:00Z"),
        ("attempt", "p", {"run_id": "r-1"}, "/ui/run/r-1"),
        ("process", "a@east", {}, "/ui/feed/a"),
        ("column", "a.b.c", {}, "/ui/feed/a/column/b.c"),
        ("column", "a.*", {}, "/ui/feed/a/columns"),
        ("owner", "ann", {}, "/ui/lineage/owner/ann"),
        ("file", "javascript:alert(1)", {}, ""),
    ],
)
def test_a_node_leads_to_its_page(kind: str, name: str, more: dict[str, object], address: str) -> None:
    assert _find_address([Node(id="n", kind=NodeKind(kind), name=name, **more)]) == address  # type: ignore[arg-type]
