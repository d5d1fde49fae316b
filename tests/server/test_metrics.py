"""Metrics at `/metrics`: what Prometheus asks of a server, and what it is answered."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from feed_assets.metrics.collecting import Scraper
from feed_assets.metrics.records import Metrics
from feed_assets.sql.database import Database
from feed_assets.sql.errors import StateUnreachableError
from tests.cli.project import must
from tests.server.project import open_project, serve

OPEN = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    database = open_project(tmp_path, monkeypatch)
    yield database
    database.close()


@pytest.fixture
def client(database: Database) -> TestClient:
    return serve(database)


def test_metrics_are_those_that_the_command_prints_and_follow_changed_definitions(client: TestClient) -> None:
    asked, printed = client.get("/metrics").text, must("metrics").stdout
    found, known = ({each.name for each in text_string_to_metric_families(text)} for text in (asked, printed))
    assert found == known
    assert 'entity="counting"' in asked
    must("entity", "delete", "process", "counting")
    assert 'entity="counting"' not in client.get("/metrics").text


@pytest.mark.parametrize(
    ("accept", "form"),
    [("*/*", "text/plain; version=0.0.4"), (OPEN, "application/openmetrics-text; version=1.0.0")],
)
def test_the_form_is_the_one_that_is_accepted(client: TestClient, accept: str, form: str) -> None:
    answer = client.get("/metrics", headers={"Accept": accept})
    assert (answer.status_code, answer.headers["content-type"].startswith(form)) == (200, True)


def test_a_scrape_that_fails_is_answered_and_the_next_one_is_tried_again(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    obstacles = [StateUnreachableError(database="postgresql://state", reason="it is down", next_step="Start it.")]
    scrape = Scraper.scrape

    def scrape_later(self: Scraper) -> Metrics:
        if obstacles:
            raise obstacles.pop()
        return scrape(self)

    monkeypatch.setattr(Scraper, "scrape", scrape_later)
    client = serve(database)
    failed = client.get("/metrics")
    assert (failed.status_code, failed.headers["retry-after"], "it is down" in failed.text) == (503, "5", True)
    assert client.get("/metrics").status_code == 200
