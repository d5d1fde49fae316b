"""Batches under the real daemon, on both databases: what comes is taken once, whoever is killed meanwhile."""

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path

import pytest

from feed_assets.state.records import ProcessInstanceStatus
from tests.drills import drill_seed
from tests.orchestration.dagster_home import Home, end_group, wait_until
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
from tests.orchestration.workers import worker_of

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
    with queued_home(tmp_path, database, JOINED) as home, daemon(home) as restart:

        def come(feed: str) -> None:
            command(home, "feed", "notify", feed)
            if is_killed:
                restart()

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
    with queued_home(tmp_path, database, entities) as home, daemon(home), writers(home, WRITERS) as programs:
        wait_until_followed(home, "gathered")
        for number in range(1, ROUNDS + 1):
            programs.give(*(f"feed notify {feed}" for feed in feeds))
            wait_until(lambda: len(batches_of(home, "gathered")) == number, home.log)  # noqa: B023
        wait_until(lambda: statuses(home, "gathered") == [SUCCEEDED] * ROUNDS, home.log)
        batches = events_by_batch(home, "gathered")
        assert [len(events) for events in batches] == [WRITERS] * ROUNDS
        assert sorted(sum(batches, [])) == list(range(1, WRITERS * ROUNDS + 1))
        command(home, "queue", "verify")


@contextmanager
def daemon(home: Home) -> Iterator[Callable[[], None]]:
    """The daemon with its code server; yields what kills the daemon and starts another."""
    command_line = ("dagster._daemon", "run", "-w", "workspace.yaml")
    started = [home.start(*command_line)]

    def restart() -> None:
        os.kill(started[-1].pid, signal.SIGKILL)
        started[-1].wait(60)
        started.append(home.start(*command_line))

    try:
        yield restart
    finally:
        for process in started:
            end_group(process)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def statuses(home: Home, process: str) -> list[ProcessInstanceStatus]:
    """The statuses of the batches, the oldest first."""
    return [batch.status for batch in batches_of(home, process)]


def pending(home: Home, process: str) -> int:
    """How many events `queue show` counts as pending."""
    found: int = json.loads(command(home, "queue", "show", process, "--output", "json"))["queue"]["pending"]
    return found
