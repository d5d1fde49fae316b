"""A server that is killed at random moments while definitions are applied: files, versions and journal agree."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest
import yaml

from feed_assets.cli.door import CONSOLE
from feed_assets.cli.remote import Question, send
from feed_assets.engines.errors import ServiceError
from tests.cli.project import must, prepare, shown
from tests.definitions.verbs.harness import CLICKS
from tests.drills import drill_seed, sized
from tests.projects import enter

APPLIED = sized(6, 100)
LONGEST_LIFE = sized(0.2, 1.0)
"""Seconds between an answer and the end of a server."""


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
