"""What Airflow does with the events of datasets, against triggers and windows here.

A queue row of theirs is a pending event here, and a partition an instance.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from starlette.testclient import TestClient

from feed_assets.entities.bundle import AnyEntity
from feed_assets.entities.errors import EntityNotFoundError
from feed_assets.entities.process import Process
from feed_assets.instances.lists.ranges import InstanceFilter
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import ProcessInstanceStatus
from feed_assets.server.aliases import airflow
from feed_assets.sql.database import Database
from feed_assets.timing.errors import InstanceError
from feed_assets.triggers.input_windows import input_states
from feed_assets.triggers.queues import QueuedEvent
from tests.conformance.what_comes import Flow, flow, signal, taking
from tests.context import contexts
from tests.context.contexts import listed
from tests.databases import open_migrated
from tests.instances.harness import START, feed, process
from tests.projects import declare, enter
from tests.server.paths import serve_paths
from tests.server.project import serve

Case = dict[str, Any]
TABLE = "airflow.json"
ASSETS = "/api/v2/assets"
DAY = timedelta(days=1)
EVERY_DAY = "days(1)"


def evaluate(case: Case) -> None:
    """Let the feeds of each row of the table come for processes of their own, and see which of these run."""
    (step,) = case["steps"]
    entities: list[AnyEntity] = []
    come: list[str] = []
    for row, statuses in enumerate(step["statuses"]):
        names = [f"d{number}-{row}" for number in range(len(statuses))]
        entities += map(signal, names)
        entities += (taking(f"{quantifier}-{row}", {quantifier: names}) for quantifier in step["evaluate"])
        come += (name for name, is_updated in zip(names, statuses, strict=True) if is_updated)
    with flow(*entities) as found:
        for name in come:
            found.come(name)
        ran = {batch.process for batch in found.tick()}
    for quantifier in step["evaluate"]:
        rows = [f"{quantifier}-{row}" in ran for row in range(len(step["statuses"]))]
        assert rows == case["expect"][quantifier]


def record_event(case: Case) -> None:
    given, expect = case["given"], case["expect"]
    consumers = [taking("p", "d1")] if given.get("consumers") != [] else []
    with flow(signal("d1"), feed("made"), *consumers, skipping("made")) as found:
        match given:
            case {"dataset": "not registered"}:
                with pytest.raises(EntityNotFoundError):
                    found.come("unknown")
            case {"task": _}:
                found.lifecycle.ready(found.now)
                assert ProcessInstanceStatus.SKIPPED in found.lifecycle.statuses("skipping").values()
            case {"consumers": []}:
                found.come("d1")
            case _:
                raise LookupError(given)
        found.tick()
        assert found.events("d1", "made", "unknown") == expect["events"]
        if "queue_rows" in expect:
            assert len(found.pending("p") if consumers else []) == expect["queue_rows"]


def skipping(output: str) -> Process:
    """A producer whose instances are skipped when they are late."""
    return process("skipping", outputs={output: "now(0,0)"}, catch_up="none")


def create_runs(case: Case) -> None:
    given, expect = case["given"], case["expect"]
    match given:
        case {"consumers": consumers, "both on": name}:
            assert expect["runs"] == create_spanning(consumers, name, given["events"], expect["single"])
        case {"consumer": "is_active False or paused"}:
            with flow(signal("ds1"), taking("p", "ds1", on_pause="drop")) as found:
                found.suspend("p")
                found.come("ds1")
                assert len(found.tick()) == expect["runs"]
                assert len(found.pending("p")) == expect["queue_rows"]
        case {"consumer": text}:
            quantifier, names = re.fullmatch(r"(\w+)\((.*)\)", text).groups()  # type: ignore[union-attr]
            with flow(*map(signal, names.split(",")), taking("p", {quantifier: names.split(",")})) as found:
                for name in case["steps"][0]["events"]:
                    found.come(name)
                batches = found.tick()
                assert len(batches) == expect["runs"]
                assert sum(len(found.taken(batch)) for batch in batches) == expect["consumed"]
        case _:
            raise LookupError(given)


def create_spanning(
    consumers: Mapping[str, Sequence[str]], name: str, texts: Sequence[str], expect: Mapping[str, Any]
) -> dict[str, int]:
    """Let instances of some days come, see what the process `single` has taken, and return how often each runs."""
    names = sorted({each for when in consumers.values() for each in when})
    processes = (taking(consumer, list(when)) for consumer, when in consumers.items())
    with flow(*(feed(each, EVERY_DAY) for each in names), *processes) as found:
        for text in texts:
            day = re.search(r"day (\d+)–", text)
            assert day is not None
            found.come(name, START + int(day[1]) * DAY)
        batches = {batch.process: batch for batch in found.tick()}
        assert found.lifecycle.statuses("single") == {batches["single"].nominal_time: ProcessInstanceStatus.READY}
        taken = found.taken(batches["single"])
        assert len(taken) == len(expect["consumed"])
        first, end = span_of(taken)
        assert [f"day{(moment - START).days}" for moment in (first, end)] == expect["data_interval"]
        assert expect["mark"] == "deleted"
        assert not found.pending("single")
        assert len(found.pending("multi")) == len(texts)
    return {consumer: int(consumer in batches) for consumer in consumers}


def span_of(events: Sequence[QueuedEvent]) -> tuple[datetime, datetime]:
    """Return the time that the daily instances of a batch span."""
    times = [event.nominal_time for event in events]
    return min(times), max(times) + DAY


def span_events(case: Case) -> None:
    """The days of a batch's events are those of its instances, whichever comes first."""
    days = {"yesterday": START, "now": START + DAY, "tomorrow": START + 2 * DAY}
    with flow(feed("ds1", EVERY_DAY), taking("p", "ds1")) as found:
        for text in reversed(case["given"]["events"]):
            found.come("ds1", days[re.search(r"interval (\w+)\.\.", text)[1]])  # type: ignore[index]
        (batch,) = found.tick()
        assert span_of(found.taken(batch)) == (days[case["expect"]["start"]], days[case["expect"]["end"]])


def hour(key: str) -> datetime:
    """The instance that is a key: `K1`, `k1`, `2024-01-01` or a place in a list."""
    return START + timedelta(hours=int(re.findall(r"\d+", key)[-1]))


def align_partitions(case: Case) -> None:
    given, expect, steps = case["given"], case["expect"], case["steps"]
    match given:
        case {"assets": names}:
            with flow(*map(feed, names), gathering(names)) as found:
                for name, key in steps[0]["events"]:
                    found.come(name, hour(key))
                assert ready(found) == [hour(run["partition_key"]) for run in expect["runs"]]
                for key, received in expect["pending"].items():
                    assert received == "/".join(map(str, come_of(found, hour(key))))
        case {"allowed": keys}:
            places = {key: START + timedelta(hours=number) for number, key in enumerate(keys)}
            end = START + timedelta(hours=len(keys))
            with flow(feed("a", end=end), gathering("a", end=end)) as found:
                for key in steps[0]["events"]:
                    if key in places:
                        found.come("a", places[key])
                        continue
                    with pytest.raises(InstanceError):
                        found.come("a", end)
                assert ready(found) == [places[key] for key in expect["run keys"]]
        case {"pending": pending, "finished": finished}:
            show_pending(pending, finished, expect)
        case {"pending created": created}:
            with flow(feed("a"), gathering("a", parallel=1)) as found:
                for key, _ in created:
                    found.come("a", hour(key))
                assert len(ready(found)) == expect["pending_partition_count"]
                (request,) = found.lifecycle.request(found.now)
                assert request.nominal_times[0] == hour(expect["shown"])
        case {"consumers": ["plain", "partitioned"]}:
            separate(case)
        case _:
            assert [await_all(step["expected"], step["received"]) for step in steps] == expect["results"]


def gathering(names: Sequence[str], **more: Any) -> Process:
    """A process each of whose instances reads one of each feed."""
    return process("p", inputs=dict.fromkeys(names, "now(0,0)"), **{"end": hour("9"), "parallel": 9, **more})


def ready(found: Flow) -> list[datetime]:
    """The instances of `p` that may run."""
    found.lifecycle.ready(found.now)
    return found.lifecycle.times("p", ProcessInstanceStatus.READY)


def come_of(found: Flow, time: datetime) -> tuple[int, int]:
    """How many inputs of an instance of `p` have come, and how many there are."""
    with found.lifecycle.database.read() as connection:
        record = found.lifecycle.process("p")
        states = input_states(connection, found.lifecycle.plan, record, [time], found.now)[time]
    return sum(state.is_satisfied for state in states), len(states)


def await_all(expected: Sequence[str], received: Sequence[str]) -> bool:
    """Whether an instance runs whose window has the expected keys, when some have come."""
    last = max(map(hour, expected), default=START)
    inputs = {"a": f"now({1 - len(expected)},0) now(0,0)"} if expected else {}
    reader = process("p", inputs=inputs, start=last, end=last + timedelta(hours=1))
    with flow(feed("a"), reader) as found:
        for key in received:
            found.come("a", hour(key))
        return ready(found) == [last]


def separate(case: Case) -> None:
    """Let an instance come, and then a signal, for a consumer of each."""
    with flow(feed("a"), taking("plain", "a"), gathering("a")) as found:
        found.come("a", hour("1"))
        assert case["expect"]["runs"] == {"plain": 1, "partitioned": len(ready(found))}
        assert not found.tick(), "an event with a key is no news for a plain consumer"


def show_pending(pending: Sequence[str], finished: Sequence[str], expect: Mapping[str, Any]) -> None:
    """List what waits: not what has ended, and a page at a time."""
    waiting = InstanceFilter(statuses=frozenset({ProcessInstanceStatus.WAITING}))
    totals, sizes = expect["totals"], expect["page size"]
    times = sorted(map(hour, [*pending, *finished]))
    with flow(feed("a"), gathering("a", start=times[0], end=times[-1] + timedelta(hours=1))) as found:
        for key in finished:
            found.come("a", hour(key))
        ready(found)
        assert found.lifecycle.launch(found.lifecycle.request(found.now), found.now) == sorted(map(hour, finished))
        page = listed(found.later(), "p", start=START, filter=waiting)
        assert [row.nominal_time for row in page.instances] == sorted(map(hour, pending))
        assert page.total == totals[0]
        with pytest.raises(EntityNotFoundError):
            listed(found.later(), "nonexistent")
    with flow(feed("a"), gathering("a", end=START + timedelta(hours=totals[2]))) as found:
        ready(found)
        page = listed(found.later(), "p", start=START, filter=waiting, results=sizes[2], offset=2)
        assert (page.total, len(page.instances)) == (totals[2], sizes[2])


@contextmanager
def served(*entities: Mapping[str, object]) -> Iterator[tuple[TestClient, Database]]:
    """A project with feeds and processes on one cluster, by HTTP."""
    cluster = {"kind": "cluster", "name": "primary", "storage": "file://${PROJECT_ROOT}/data"}
    defaults = {"clusters": {"primary": {"validity": {"start": "2013-11-01T00:00Z"}}}}
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        enter(Path(folder), patch)
        declare(Path(folder), cluster, *({**defaults, **each} for each in entities))
        with closing(open_migrated(f"sqlite:///{folder}/state.db")) as database:
            yield serve(database), database


def comes(name: str) -> Mapping[str, object]:
    return {"kind": "feed", "name": name, "signal": True}


def hourly(kind: str, name: str, **more: object) -> Mapping[str, object]:
    return {"kind": kind, "name": name, "frequency": "hours(1)", **more}


def ask_by_http(case: Case) -> None:
    """Airflow's own paths: `/datasets` is `/assets` by now, and ids are names."""
    match case:
        case {"given": {"datasets": _}, "expect": {"counts": counts}}:
            with (
                served(*(comes(f"d{number}") for number in range(199))) as (client, _),
                pytest.MonkeyPatch.context() as patch,
            ):
                patch.setattr(airflow, "_asset", lambda _, name, *__: {"id": name})  # else each asks for its events
                sizes = [len(client.get(f"{ASSETS}{query}").json()["assets"]) for query in ("", "?limit=180")]
            if sizes[0] != counts[0]:
                pytest.fail(f"a page has {sizes[0]} by default")
            assert sizes == counts
        case {"given": {"events": _}, "steps": steps}:
            makers = [process(f"dag{number}", outputs={f"d{number}": "now(0,0)"}) for number in (1, 2)]
            with flow(feed("d1"), feed("d2"), *makers) as found:
                for number in (1, 2):
                    found.lifecycle.run(f"dag{number}", START, START + DAY, f"run-{number}")
                answers = [serve_paths(found.later).get(_path(each["GET"])).json() for each in steps]
            assert [[each["source_dag_id"] for each in answer["asset_events"]] for answer in answers] == [["dag2"]] * 2
        case {"given": {"asset": _}, "steps": steps, "expect": expect}:
            with served(comes("d1")) as (client, _):
                asked = [{**each["body"], "asset_id": "d1"} for each in steps]
                answers = [client.post(f"{ASSETS}/events", json=each) for each in asked]
                assert [each.status_code for each in answers] == expect["status"]
                told = answers[-1].json()
                assert told["extra"]["password"] == expect["extra.password"]
                assert client.get(f"{ASSETS}/d1").json()["last_asset_event"]["id"] == told["id"]
        case {"given": {"producers": producers}, "expect": expect}:
            materialize(producers, expect)
        case {"given": {}, "steps": steps, "expect": expect}:
            with served(comes("d1")) as (client, _):
                assert [client.get(_path(each["GET"])).status_code for each in steps] == expect["status"]
        case _:
            raise LookupError(case)


def materialize(producers: Mapping[str, int], expect: Mapping[str, Any]) -> None:
    """Ask for assets with so many producers each, one after the other in time."""
    day = "2013-11-0{}T00:00Z"
    makers = [
        hourly(
            "process",
            f"{name}-{maker}",
            outputs={"made": {"feed": name, "instance": "now(0,0)"}},
            workflow={"engine": "sql", "path": "made.sql"},
            clusters={"primary": {"validity": {"start": day.format(1 + maker), "end": day.format(2 + maker)}}},
        )
        for name, count in producers.items()
        for maker in range(count)
    ]
    place = "/${YEAR}-${MONTH}-${DAY}/${HOUR}"
    feeds = [hourly("feed", name, locations={"data": f"/{name}{place}"}) for name in producers]
    with served(*feeds, *makers) as (client, database):
        Path("made.sql").write_text("select 1 as n")
        with database.begin() as connection:
            ProcessInstances(connection).add_waiting([contexts.row("asset1-0", START, ProcessInstanceStatus.KILLED)])
        answers = [client.post(f"{ASSETS}/{name}/materialize") for name in producers]
    assert [each.status_code for each in answers] == expect["status"]
    assert expect["run 1"].items() <= answers[0].json().items()


def _path(theirs: str) -> str:
    return theirs.replace("/datasets", ASSETS).replace("dataset_id=", "asset_id=d")


RUNNERS = {
    "rest": ask_by_http,
    "condition": evaluate,
    "event": record_event,
    "runs": create_runs,
    "time": span_events,
    "partition": align_partitions,
}


def test_each_case_of_the_table_holds_or_is_listed_with_a_reason(case: Case, judge: Callable[[Case], None]) -> None:
    judge(case)


def test_the_list_of_differences_names_only_what_is_in_the_table(unknown_differences: set[str]) -> None:
    assert unknown_differences == set()
