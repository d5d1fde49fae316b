"""Batches under the real daemon, on both databases: what comes is taken once, whoever is killed meanwhile.

`FEED_ASSETS_SEED` repeats the choices of the last one.
"""

import json
import os
import random
import time
from collections import Counter
from itertools import chain
from pathlib import Path

import pytest
from dagster import AssetMaterialization

from feed_assets.log.records import ProcessInstanceStatus
from tests.drills import drill_seed
from tests.orchestration.dagster_home import materialized, wait_until
from tests.orchestration.dev_server import DevServer, Role, dev_server
from tests.orchestration.queued import (
    DATABASES,
    VALIDITY,
    events_by_batch,
    is_routed,
    pending,
    places,
    programs,
    queued_home,
    seen_by_work,
    signals,
    statuses,
    taker,
    wait_until_followed,
)

pytestmark = [pytest.mark.drill, pytest.mark.daemon, pytest.mark.spark, pytest.mark.server, pytest.mark.timeout(3600)]

JOINED = signals("d1", "d2", "d3", "other") + taker("joined", "{when: {all: [d1, d2, d3]}}")
SUCCEEDED = ProcessInstanceStatus.SUCCEEDED
PROGRAMS = 16
ROUNDS = 20


@pytest.mark.parametrize("is_killed", [False, True], ids=["alive", "killed"])
@pytest.mark.parametrize("database", DATABASES)
def test_a_batch_takes_all_that_has_come_when_the_last_name_comes(
    tmp_path: Path, database: str, is_killed: bool
) -> None:
    """The example of AF-10."""
    with (
        queued_home(tmp_path, database, JOINED) as home,
        dev_server(home, is_bare=True) as server,
        programs(home, 1) as program,
    ):

        def come(feed: str) -> None:
            program.require(f"feed notify {feed}")
            if is_killed:
                for daemon in server.processes()[Role.DAEMON]:
                    server.kill(daemon)
                wait_until(server.revive, home.log)
            wait_until(lambda: is_routed(home), home.log)

        wait_until_followed(home, "joined")
        for feed in ("d1", "d1", "d1", "d2"):
            come(feed)
        (text,) = program.require("queue show joined --output json")
        shown = json.loads(text)
        assert shown["queue"]["lacks"].startswith("2 of 3"), shown
        assert [each["feed"] for each in shown["events"]] == ["d1", "d1", "d1", "d2"]
        assert not statuses(home, "joined")
        come("d3")
        wait_until(lambda: statuses(home, "joined") == [SUCCEEDED], home.log)
        come("d1")
        come("other")  # the tick that has routed d1 has ended before
        assert (statuses(home, "joined"), pending(home, "joined")) == ([SUCCEEDED], 1)
        ((batch, events),) = events_by_batch(home, "joined").items()
        (text,) = program.require(f"batch show joined {batch} --output json")
        taken = Counter(each["feed"] for each in json.loads(text)["events"])
        assert taken == {"d1": 3, "d2": 1, "d3": 1}
        assert set(seen_by_work(home, "joined")) == {(batch, events)}
        program.require("queue verify")


@pytest.mark.parametrize("database", DATABASES)
def test_sixteen_programs_give_notice_at_once_and_each_batch_has_sixteen_events(tmp_path: Path, database: str) -> None:
    """airflow#56541: fifteen of sixteen are there, and the last one is lost."""
    feeds = [f"s{number}" for number in range(PROGRAMS)]
    entities = signals(*feeds) + taker("gathered", f"{{when: {{all: [{', '.join(feeds)}]}}}}", parallel=4)
    with queued_home(tmp_path, database, entities) as home, home.daemon(), programs(home, PROGRAMS) as sixteen:
        wait_until_followed(home, "gathered")
        for number in range(1, ROUNDS + 1):
            sixteen.require(*(f"feed notify {feed}" for feed in feeds))
            wait_until(lambda: len(statuses(home, "gathered")) == number, home.log)  # noqa: B023
        wait_until(lambda: statuses(home, "gathered") == [SUCCEEDED] * ROUNDS, home.log)
        (text,) = sixteen.require(f"batch list gathered --num-results {ROUNDS} --output json")
        assert [each["events"] for each in json.loads(text)["batches"]] == [PROGRAMS] * ROUNDS
        taken = events_by_batch(home, "gathered")
        assert sorted(chain.from_iterable(taken.values())) == list(range(1, PROGRAMS * ROUNDS + 1))
        assert set(seen_by_work(home, "gathered")) == set(taken.items())
        sixteen.require("queue verify")


OUTSIDE = (
    signals("approval")
    + f"""
---
{{kind: feed, name: rates, asset: [team, rates], {VALIDITY}}}
---
kind: feed
name: orders
instances: as-they-come
locations: {{data: "/orders/${{YEAR}}-${{MONTH}}-${{DAY}}/${{HOUR}}${{MINUTE}}${{SECOND}}"}}
clusters: {{here: {{type: source, validity: {{start: 2026-01-01T00:00Z}}}}}}
"""
    + "".join(taker(f"on-{feed}", f"{{when: {feed}}}") for feed in ("approval", "rates", "orders"))
)


@pytest.mark.parametrize("database", DATABASES)
def test_what_comes_from_outside_runs_once_what_waits_for_it(tmp_path: Path, database: str) -> None:
    """AF-74, AF-45, AF-46: an approval, an asset that is not ours, and a file of which notice is given twice."""
    processes = ("on-approval", "on-rates", "on-orders")
    with (
        queued_home(tmp_path, database, OUTSIDE) as home,
        home.instance() as instance,
        home.daemon(),
        programs(home, 1) as program,
    ):
        wait_until_followed(home, *processes)
        folder = home.data / "orders" / "2026-01-02" / "030405"
        folder.mkdir(parents=True)
        (folder / "part.csv").write_text("n\n1\n")
        for said in ("recorded", "known already"):  # with a key the second has the answer of the first
            assert "recorded" in program.require("feed notify approval --author ann --key ticket-7")[0]
            assert said in program.require(f"feed notify orders --author shop --path {folder}")[0]
        instance.report_runless_asset_event(AssetMaterialization(["team", "rates"]))
        origins = {}
        for process in processes:
            wait_until(lambda: statuses(home, process) == [SUCCEEDED], home.log)  # noqa: B023
            ((batch, events),) = events_by_batch(home, process).items()
            assert seen_by_work(home, process) == [(batch, events)]
            (text,) = program.require(f"batch show {process} {batch} --output json")
            (origins[process],) = (event["origin"] for event in json.loads(text)["events"])
        assert origins == dict(zip(processes, ("notice:ann", "asset:team/rates", "notice:shop"), strict=True))
        assert materialized(instance, "here", "orders") == {"2026-01-02-03:04:05"}
        program.require("queue verify")


INBOX = f"""
---
kind: feed
name: orders
instances: as-they-come
inbox: {{directory: /in, settle: seconds(1)}}
locations: {{data: "/orders/${{YEAR}}-${{MONTH}}-${{DAY}}/${{HOUR}}${{MINUTE}}${{SECOND}}"}}
{VALIDITY}
""" + taker("load", "{when: orders}")
DELIVERIES = 30


@pytest.mark.parametrize("database", DATABASES)
def test_whoever_is_killed_each_file_of_an_inbox_is_in_one_instance(tmp_path: Path, database: str) -> None:
    """Every third file comes once more under its name, every fifth under another."""
    chance, killed = random.Random(drill_seed()), Counter[str]()
    with (
        queued_home(tmp_path, database, INBOX) as home,
        dev_server(home, is_bare=True) as server,
        programs(home, 1) as program,
    ):
        wait_until_followed(home, "load")
        inbox = home.data / "in"
        inbox.mkdir()

        def deliver(name: str, content: int) -> None:
            (inbox / ".coming").write_text(f"order {content}")
            os.utime(inbox / ".coming", (0, 0))
            (inbox / ".coming").rename(inbox / name)

        for number in range(DELIVERIES):
            for part in range(3):
                deliver(f"{number}-{part}.csv", 3 * number + part)
            if number % 3 == 0:
                wait_until(lambda: not server.revive() and not (inbox / f"{number}-0.csv").exists(), home.log)  # noqa: B023
                deliver(f"{number}-0.csv", 3 * number)
            if number % 5 == 0:
                deliver(f"copy-{number}.csv", 3 * number + 1)
            time.sleep(chance.uniform(0, 2))
            killed[kill_one(server, chance)] += 1
            wait_until(lambda: not server.revive() and server.is_up(), home.log)
        copies = {f"copy-{number}.csv" for number in range(0, DELIVERIES, 5)}
        wait_until(lambda: not server.revive() and {path.name for path in inbox.iterdir()} == copies, home.log)
        wait_until(lambda: is_routed(home) and pending(home, "load") == 0, home.log)
        wait_until(lambda: not server.revive() and set(statuses(home, "load")) == {SUCCEEDED}, home.log)
        (text,) = program.require("feed files orders --output json")
        listed = json.loads(text)["files"]
        names = sorted(Path(file["url"]).name for file in listed)
        assert names == sorted(f"{number}-{part}.csv" for number in range(DELIVERIES) for part in range(3))
        assert sorted(file.relative_to(home.data) for file in home.data.glob("orders/*/*/*.csv")) == sorted(
            Path(file["url"].removeprefix("file://")).relative_to(home.data) for file in listed
        )
        taken = events_by_batch(home, "load")
        assert sorted(chain.from_iterable(taken.values())) == sorted({file["event"] for file in listed})
        (text,) = program.require("feed take orders --dry-run --output json")
        assert {file["status"] for file in json.loads(text)["inboxes"][0]["files"]} == {"DUPLICATE"}
        program.require("queue verify")
        print(f"{database}: {len(names)} files in {len(taken)} batches, killed {dict(killed)}")


TAKERS = (
    signals("a", "b")
    + taker("joined", "{when: {all: [a, b]}, batch: {min: 2}}")
    + taker("single", "{when: a, batch: {max: 10}}", parallel=2)
)
KILLS = 200
KILLED = (Role.DAEMON, Role.CODE_SERVER, Role.WORKER)
DROPPED = 0.2


@pytest.mark.timeout(6 * 3600)
@pytest.mark.parametrize("database", DATABASES)
def test_whoever_is_killed_each_event_is_in_one_batch_pending_or_dropped(tmp_path: Path, database: str) -> None:
    chance, killed = random.Random(drill_seed()), Counter[str]()
    with (
        queued_home(tmp_path, database, TAKERS, seconds=1.5) as home,
        dev_server(home, is_bare=True) as server,
        programs(home, 3) as three,
    ):
        wait_until_followed(home, "joined", "single")
        for _ in range(KILLS):
            three.require(*(f"feed notify {feed}" for feed in chance.choices("aab", k=chance.randint(1, 3))))
            if chance.random() < DROPPED:
                process = chance.choice(["joined", "single"])
                newest = places(home, process)[1][-1:]
                three.give(*(f"queue drop {process} --event {event} --reason mistaken" for event in newest))
            time.sleep(chance.uniform(0, 4))
            killed[kill_one(server, chance)] += 1
            wait_until(lambda: not server.revive() and server.is_up() and is_routed(home), home.log)
            three.require("queue verify")
        wait_until(lambda: not server.revive() and pending(home, "single") == 0, home.log)
        for process in ("joined", "single"):
            wait_until(lambda: not server.revive() and set(statuses(home, process)) == {SUCCEEDED}, home.log)  # noqa: B023
            counted, routed = places(home, process)
            assert counted == Counter(routed), process
            taken, seen = events_by_batch(home, process), seen_by_work(home, process)
            assert set(seen) == set(taken.items())
            print(f"{database}, {process}: {len(routed)} events, {len(taken)} batches in {len(seen)} attempts")
        three.require("queue verify")
        print(f"killed {dict(killed)}, started {server.started} times")


def kill_one(server: DevServer, chance: random.Random) -> str:
    """Kill the daemon, the code server or a worker, whichever there is; return what it was."""
    while True:
        role = chance.choice(KILLED)
        alive = server.processes()[role]
        if alive and server.kill(chance.choice(alive)):
            return role.value
        server.revive()
