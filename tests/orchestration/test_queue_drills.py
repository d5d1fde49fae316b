"""Batches under the real daemon, on both databases: what comes is taken once, whoever is killed meanwhile."""

import json
import os
import random
import time
from collections import Counter
from contextlib import closing
from itertools import chain
from pathlib import Path

import pytest

from feed_assets.lifecycle.triggers.routing import find_routed
from feed_assets.state.event_log import EventLog
from feed_assets.state.records import ProcessInstanceStatus
from tests.drills import drill_seed
from tests.orchestration.dagster_home import Home, state_of, wait_until
from tests.orchestration.dev_server import DevServer, Role, dev_server
from tests.orchestration.queued import (
    DATABASES,
    batches_of,
    events_by_batch,
    places,
    queued_home,
    seen_by_work,
    signals,
    taker,
    wait_until_followed,
    writers,
)
from tests.orchestration.test_reloading import command

pytestmark = [pytest.mark.drill, pytest.mark.daemon, pytest.mark.spark, pytest.mark.server]

JOINED = signals(["d1", "d2", "d3"]) + taker("joined", "{when: {all: [d1, d2, d3]}}")
SUCCEEDED = ProcessInstanceStatus.SUCCEEDED
SEVERAL_TICKS_SECONDS = 15.0
WRITERS = 16
ROUNDS = 20


@pytest.mark.parametrize("is_killed", [False, True], ids=["", "killed"])
@pytest.mark.parametrize("database", DATABASES)
def test_a_batch_takes_all_that_has_come_when_the_last_name_comes(
    tmp_path: Path, database: str, is_killed: bool
) -> None:
    """The example of AF-10."""
    with queued_home(tmp_path, database, JOINED) as home, dev_server(home, is_bare=True) as server:

        def come(feed: str) -> None:
            command(home, "feed", "notify", feed)
            if is_killed:
                start_again(server)

        wait_until_followed(home, "joined")
        for feed in ("d1", "d1", "d1", "d2"):
            come(feed)
        wait_until(lambda: pending(home, "joined") == 4, home.log)
        said = json.loads(command(home, "queue", "show", "joined", "--output", "json"))
        assert "2 of 3" in said["queue"]["lacks"], said
        assert len(said["events"]) == 4
        assert not batches_of(home, "joined")
        come("d3")
        wait_until(lambda: statuses(home, "joined") == [SUCCEEDED], home.log)
        (batch,) = batches_of(home, "joined")
        shown = json.loads(
            command(home, "batch", "show", "joined", f"{batch.nominal_time:%Y-%m-%dT%H:%M:%SZ}", "--output", "json")
        )
        assert (shown["status"], Counter(each["feed"] for each in shown["events"])) == (
            "SUCCEEDED",
            {"d1": 3, "d2": 1, "d3": 1},
        )
        come("d1")
        wait_until(lambda: pending(home, "joined") == 1, home.log)
        time.sleep(SEVERAL_TICKS_SECONDS)
        assert statuses(home, "joined") == [SUCCEEDED]
        assert {tuple(events) for _, events in seen_by_work(home, "joined")} == {(1, 2, 3, 4, 5)}
        command(home, "queue", "verify")


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("database", DATABASES)
def test_sixteen_programs_give_notice_at_once_and_each_batch_has_sixteen_events(tmp_path: Path, database: str) -> None:
    """airflow#56541: 15 of 16 there, and the last one lost."""
    feeds = [f"s{number}" for number in range(WRITERS)]
    entities = signals(feeds) + taker("gathered", f"{{when: {{all: [{', '.join(feeds)}]}}}}", parallel=12)
    with (
        queued_home(tmp_path, database, entities) as home,
        home.daemon(),
        writers(home, WRITERS) as programs,
    ):
        wait_until_followed(home, "gathered")
        for number in range(1, ROUNDS + 1):
            programs.give(*(f"feed notify {feed}" for feed in feeds))
            wait_until(lambda: len(batches_of(home, "gathered")) == number, home.log)  # noqa: B023
        wait_until(lambda: statuses(home, "gathered") == [SUCCEEDED] * ROUNDS, home.log)
        batches = events_by_batch(home, "gathered")
        assert [len(events) for events in batches] == [WRITERS] * ROUNDS
        assert sorted(chain.from_iterable(batches)) == list(range(1, WRITERS * ROUNDS + 1))
        command(home, "queue", "verify")


TAKERS = (
    signals(["a", "b"])
    + taker("joined", "{when: {all: [a, b]}, batch: {min: 2}}")
    + taker("single", "{when: a, batch: {max: 3}}", parallel=2)
)
KILLS = int(os.environ.get("FEED_ASSETS_KILLS", "200"))
KILLED = (Role.DAEMON, Role.CODE_SERVER, Role.WORKER)
DROPPED = 0.2


@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("database", DATABASES)
def test_whoever_is_killed_each_event_is_in_one_batch_pending_or_dropped(tmp_path: Path, database: str) -> None:
    seed = drill_seed()
    chance, killed = random.Random(seed), Counter[str]()
    with (
        queued_home(tmp_path, database, TAKERS, seconds=1.5) as home,
        dev_server(home, is_bare=True) as server,
        writers(home, 3) as programs,
    ):
        for process in ("joined", "single"):
            wait_until_followed(home, process)
        for _ in range(KILLS):
            said = programs.give(*(f"feed notify {feed}" for feed in chance.choices("aab", k=chance.randint(1, 3))))
            assert all("recorded" in each for each in said), said
            time.sleep(chance.uniform(0, 4))
            killed[kill_one(server, chance)] += 1
            programs.give("feed notify a", *([drop_of(home, chance)] if chance.random() < DROPPED else []))
            look_after(home, server)
            command(home, "queue", "verify")
        programs.give("feed notify b")
        wait_until(lambda: is_settled(home, server), home.log)
        command(home, "queue", "verify")
        for process, feeds in (("joined", "ab"), ("single", "a")):
            counted, due = places(home, process, *feeds)
            assert counted == Counter(due), process
            taken = {f"{row.nominal_time:%Y-%m-%dT%H:%M:%S}" for row in batches_of(home, process)}
            seen = seen_by_work(home, process)
            assert {at for at, _ in seen} == taken
            of_batches = {tuple(events) for events in events_by_batch(home, process)}
            assert {tuple(events) for _, events in seen} == of_batches
            print(f"{database}, {process}: {len(due)} events, {len(taken)} batches in {len(seen)} attempts")
        print(f"seed {seed}: killed {dict(killed)}, started {server.started} times")


def kill_one(server: DevServer, chance: random.Random) -> str:
    """Kill the daemon, the code server or a worker, whichever there is; return what it was."""
    while True:
        role = chance.choice(KILLED)
        alive = server.processes()[role]
        if alive and server.kill(chance.choice(alive)):
            return role.value
        server.revive()


def drop_of(home: Home, chance: random.Random) -> str:
    """The command that drops one of the newest events, if it is not taken yet."""
    process, feeds = chance.choice([("joined", "ab"), ("single", "a")])
    _, due = places(home, process, *feeds)
    return f"queue drop {process} --event {due[-1]} --reason mistaken"


def look_after(home: Home, server: DevServer) -> None:
    """Start what is lacking, until a tick has routed all that has come."""

    def is_routed() -> bool:
        server.revive()
        with closing(state_of(home)) as database, database.read() as connection:
            return find_routed(connection, "here") == EventLog(connection).last_seq()

    wait_until(is_routed, home.log)


def is_settled(home: Home, server: DevServer) -> bool:
    """Whether all that can run has run."""
    server.revive()
    found = [status for process in ("joined", "single") for status in statuses(home, process)]
    return set(found) == {SUCCEEDED} and pending(home, "single") == 0


def start_again(server: DevServer) -> None:
    """Kill the daemon, and start what is lacking."""
    for worker in server.processes()[Role.DAEMON]:
        server.kill(worker)
    server.revive()


def statuses(home: Home, process: str) -> list[ProcessInstanceStatus]:
    """The statuses of the batches, the oldest first."""
    return [batch.status for batch in batches_of(home, process)]


def pending(home: Home, process: str) -> int:
    """How many events `queue show` counts as pending."""
    found: int = json.loads(command(home, "queue", "show", process, "--output", "json"))["queue"]["pending"]
    return found
