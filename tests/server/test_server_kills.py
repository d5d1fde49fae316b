"""A server that is killed at random moments: of definitions, files, versions and journal agree, and what is asked
again with its key has one effect.
"""

import http.client
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
import yaml
from sqlalchemy import select

from feed_assets.cli.door import CONSOLE
from feed_assets.cli.remote import Question, send
from feed_assets.engines.errors import ServiceError
from feed_assets.log.instances.tables import attempts
from feed_assets.log.tables import feed_events
from feed_assets.sql.database import open_database
from tests.cli.project import must, prepare, shown
from tests.databases import create_schema
from tests.definitions.verbs.harness import CLICKS
from tests.drills import drill_seed, sized
from tests.projects import declare, enter

APPLIED = sized(6, 100)
LONGEST_LIFE = sized(0.2, 1.0)
"""Seconds between an answer and the end of a server."""
TOLD = sized(20, 100)
ORDERS = """
{kind: cluster, name: here, storage: "file://${PROJECT_ROOT}/data"}
---
kind: feed
name: orders
instances: as-they-come
format: csv
locations: {data: "/orders/${YEAR}${MONTH}${DAY}/${HOUR}${MINUTE}${SECOND}"}
clusters: {here: {validity: {start: 2026-01-01T00:00Z}}}
---
kind: process
name: pick
clusters: {here: {validity: {start: 2026-01-01T00:00Z}}}
trigger: {from: earliest}
inputs: {orders: {feed: orders, take: new}}
workflow: {engine: external}
"""


class _Applying:
    """Applies one change after the other, each with another feed and another text of the feed that stays."""

    def __init__(self) -> None:
        self.tried = 0
        self.made: list[int] = []
        self.answered = Event()

    def go_on(self, server: str) -> None:
        """Apply until the server is no more."""
        while True:
            self.tried += 1
            name = f"n{self.tried}"
            added = {**CLICKS, "name": name, "locations": {"data": f"/{name}/${{YEAR}}-${{MONTH}}-${{DAY}}/${{HOUR}}"}}
            body = yaml.safe_dump_all([{**CLICKS, "description": f"after {name}"}, added]).encode()
            question = Question("POST", "/api/v1/apply?yes=true", {"Content-Type": "application/yaml"}, body)
            try:
                told = send(server, question, {"Accept": CONSOLE})
            except ServiceError:
                return
            assert told["exit_code"] == 0, told
            self.made.append(self.tried)
            self.answered.set()


@pytest.mark.long
@pytest.mark.sample
@pytest.mark.timeout(1800)
def test_no_kill_of_a_server_loses_or_halves_a_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    enter(tmp_path, monkeypatch)
    prepare(tmp_path)
    must("entity", "submit", "all.yaml")
    seed = drill_seed()
    chance, applying, kills = random.Random(seed), _Applying(), 0
    while len(applying.made) < APPLIED:
        with _serving(tmp_path) as (server, address):
            applying.answered.clear()
            client = Thread(target=applying.go_on, args=[address])
            client.start()
            assert applying.answered.wait(60), f"seed {seed}: no answer"
            time.sleep(chance.uniform(0.0, LONGEST_LIFE))
            server.send_signal(signal.SIGKILL)
            client.join()
        kills += 1
        written = must("entity", "definition", "feed", "clicks").stdout  # which ends a change that was broken off
        must("entity", "verify-store")
        there = {
            int(each["name"][1:])
            for each in shown("entity", "list", "--num-results", "1000")["entities"]
            if each["name"].startswith("n")
        }
        assert {*applying.made} <= there <= {*range(1, applying.tried + 1)}, f"seed {seed}, kill {kills}"
        assert f"after n{max(there)}\n" in written, f"seed {seed}, kill {kills}"
    print(f"seed {seed}: {kills} kills in {applying.tried} changes, of which {len(applying.made)} were answered")


@contextmanager
def _serving(folder: Path) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    command = [sys.executable, "-m", "feed_assets", "serve", "--port", "0"]
    environ = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, cwd=folder, env=environ, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server, server.stdout.readline().split()[1]
        finally:
            server.kill()


class _Telling:
    """Gives each request with its key again until it is answered, by one server after the other."""

    def __init__(self) -> None:
        self.told = list[tuple[int, Any]]()
        self.taken = list[tuple[int, Any]]()
        self._at_work: Any = None

    def tell(self, server: str) -> None:
        """Give notices."""
        while True:
            number = len(self.told)
            instance = f"2026-03-01T{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}Z"
            asked = {"feed": "orders", "instance": instance, "trust": True}
            self.told.append(_post(server, "feed/notify", asked, f"told {number}"))

    def take(self, server: str) -> None:
        """Take a batch after the other, and end each."""
        while True:
            if self._at_work is None:
                answer = _post(server, "batch/init", {"process": "pick", "max": 1}, f"taken {len(self.taken)}")
                if answer[0] == 409:
                    continue  # nothing is pending
                self.taken.append(answer)
                self._at_work = {"process": "pick", **{name: answer[1][name] for name in ("batch", "attempt")}}
            _post(server, "batch/end", self._at_work)
            self._at_work = None


def _post(server: str, name: str, asked: Any, key: str = "") -> tuple[int, Any]:
    headers = {"Content-Type": "application/json", **({"Idempotency-Key": key} if key else {})}
    with closing(http.client.HTTPConnection(server.split("//")[1], timeout=60)) as connection:
        connection.request("POST", f"/api/v1/{name}", json.dumps(asked), headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


@pytest.mark.drill
@pytest.mark.server
@pytest.mark.timeout(1800)
def test_what_is_asked_again_with_its_key_after_a_kill_has_one_effect(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enter(tmp_path, monkeypatch)
    url = create_schema(postgres_url)
    declare(tmp_path, ORDERS, schedule="automatic", state=url)
    telling, chance = _Telling(), random.Random(drill_seed())

    def go_on(ask: Any, address: str) -> None:
        with suppress(OSError, http.client.HTTPException):
            ask(address)

    while len(telling.told) < TOLD:
        with _serving(tmp_path) as (server, address):
            clients = [Thread(target=go_on, args=[ask, address]) for ask in (telling.tell, telling.take)]
            for each in clients:
                each.start()
            time.sleep(chance.uniform(0.5, 3.0))
            server.send_signal(signal.SIGKILL)
            for each in clients:
                each.join()
    assert {(status, answer["outcome"]) for status, answer in telling.told} == {(200, "recorded")}
    assert {status for status, _ in telling.taken} == {201}
    database = open_database(url)
    with database.read() as connection:
        events = Counter(connection.scalars(select(feed_events.c.nominal_time)))
        runs = list(connection.scalars(select(attempts.c.run_id)))
    database.close()
    assert ({*events.values()}, len(events) - len(telling.told) in (0, 1)) == ({1}, True)
    assert len({*runs}) == len(runs)
    assert len(runs) - len(telling.taken) in (0, 1), "at most one has not been answered"
    batches = [answer["batch"] for _, answer in telling.taken]
    assert len({*batches}) == len(batches)
