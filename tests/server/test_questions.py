"""Requests and the database: it goes away and comes back, a client goes away, and answers hold nothing of it."""

import asyncio
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from sqlalchemy import text
from starlette.testclient import TestClient

from feed_assets.server import application
from feed_assets.server.aliases import endpoint
from feed_assets.server.application import build_application
from feed_assets.settings import load_settings
from feed_assets.sql import database as databases
from feed_assets.sql.database import Database, open_database
from feed_assets.sql.errors import StateUnreachableError
from feed_assets.sql.questions import Question, asking
from tests.server.project import open_project, serve

WHY = "/api/v1/why?name=counting&instance=2013-11-03T11:00Z"
ENDLESS = {
    "sqlite": "SELECT count(*) FROM (WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c)",
    "postgresql": "SELECT pg_sleep(3600)",
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    opened = open_project(tmp_path, monkeypatch)
    yield opened
    opened.close()


def look_for_ever(database: Database, began: Event) -> None:
    with database.read() as connection:
        began.set()
        connection.execute(text(ENDLESS[database.dialect]))


@pytest.mark.both_databases
def test_a_question_is_stopped_from_another_thread_and_the_next_one_is_answered(database: Database) -> None:
    question, began, raised = Question(), Event(), list[StateUnreachableError]()

    def ask() -> None:
        with asking(question):
            try:
                look_for_ever(database, began)
            except StateUnreachableError as exc:
                raised.append(exc)

    thread = Thread(target=ask)
    thread.start()
    assert began.wait(60)
    while thread.is_alive():  # it may be between its beginning and its statement
        question.stop()
        thread.join(0.01)
    assert re.search("interrupted|canceling statement", str(raised))
    with pytest.raises(StateUnreachableError, match="who has asked is gone"), asking(question), database.read():
        pass
    with database.read() as connection:
        assert connection.scalar(text("SELECT 1")) == 1


@pytest.mark.parametrize(("module", "url"), [(application, WHY), (endpoint, "/v3/metadata/search?query=a")])
def test_a_client_that_goes_away_stops_its_question(
    project: Database, monkeypatch: pytest.MonkeyPatch, module: Any, url: str
) -> None:
    began, ended = Event(), list[str]()

    def ask(*_: Any) -> Any:
        try:
            look_for_ever(project, began)
        except StateUnreachableError as exc:
            ended.append(str(exc))
            return application.Outcome("", "", 2, exc)

    monkeypatch.setattr(module, "call_if_match", ask)
    served, sent = build_application(load_settings(), project), list[Any]()
    messages = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> Any:
        if messages:
            return messages.pop()
        await asyncio.to_thread(began.wait, 60)
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    path, _, query = url.partition("?")
    scope = {"type": "http", "method": "GET", "path": path, "query_string": query.encode(), "headers": []}
    asyncio.run(served(scope, receive, send))
    assert [re.search("interrupted", each) is not None for each in ended] == [True]


def test_no_connection_is_open_while_an_answer_is_sent(project: Database) -> None:
    inner, counts = build_application(load_settings(), project), list[int]()

    async def watched(scope: Any, receive: Any, send: Any) -> None:
        async def count(message: Any) -> None:
            counts.append(project._engine.pool.checkedout())  # type: ignore[attr-defined]
            await send(message)

        await inner(scope, receive, count if scope["type"] == "http" else send)

    client = TestClient(watched)
    for path in (WHY, "/api/v1/entity/list", "/api/v1/entity/definition?name=counting", "/metrics", "/health"):
        assert client.get(path).status_code == 200
    client.post("/api/v1/metadata/put", json={"entity": "feed/clicks", "properties": {"steward": "ann"}})
    assert len(counts) >= 12
    assert set(counts) == {0}


def test_a_locked_database_is_away_and_comes_back(project: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(databases, "LOCK_WAIT_SECONDS", 0.05)
    settings = load_settings()
    assert settings.state is not None
    hasty = open_database(settings.state)
    client, put = serve(hasty), {"entity": "feed/clicks", "properties": {"steward": "ann"}}
    holder = sqlite3.connect(str(project._engine.url.database), isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    away = client.post("/api/v1/metadata/put", json=put)
    assert (away.status_code, away.headers["retry-after"], "locked" in away.text) == (503, "5", True)
    told = client.post("/api/entities/suspend/process/counting")
    assert (told.status_code, told.headers["retry-after"], told.json()["status"]) == (503, "5", "FAILED")
    assert client.get("/health").status_code == 200, "it can be read"
    holder.execute("ROLLBACK")
    holder.close()
    assert client.post("/api/v1/metadata/put", json=put).status_code == 200
    hasty.close()


@pytest.mark.both_databases
def test_lost_connections_are_opened_again(database: Database, project: Database) -> None:
    client = TestClient(build_application(load_settings(), database))
    assert client.get("/health").json() == {"status": "ok"}
    if database.dialect == "postgresql":
        with pytest.raises(StateUnreachableError), database.read() as connection:
            connection.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))
    else:
        database.close()
    assert client.get("/health").json() == {"status": "ok"}
