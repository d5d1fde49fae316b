"""What CDAP answers about lineage in a window of time, again by its own path.

Runs stand in a database as attempts with their inputs and the events of their outputs.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from starlette.testclient import TestClient

from feed_assets.lineage.windows import Access, DataAccess
from feed_assets.log.events import EventLog
from feed_assets.log.instances.attempts import Attempts
from feed_assets.log.records import (
    Attempt,
    FeedEventKind,
    FrozenInput,
    NewFeedEvent,
    ProcessInstanceStatus,
    ProcessKey,
)
from tests.conformance.test_lineage import Case, second
from tests.instances.harness import LifecycleHarness, feed
from tests.lineage.accesses import data, program, read_accesses
from tests.server.paths import serve_paths_of

TABLE = "lineage.json"
PATH = "/v3/namespaces/{}/datasets/{}/lineage"
LAST = 2 * 10**9


@contextmanager
def project() -> Iterator[LifecycleHarness]:
    with TemporaryDirectory() as folder:
        found = LifecycleHarness.of(Path(folder), *(feed(f"D{number}") for number in range(1, 8)))
        yield found
        found.database.close()


def record(lifecycle: LifecycleHarness, accesses: Iterable[DataAccess], stop: float | None = None) -> None:
    """The attempt of a run, which may have ended."""
    touched = [*accesses]
    name, run, at = touched[0].program.name, touched[0].run, touched[0].at
    read = [
        FrozenInput(name=each.data.name, feed=each.data.name, nominal_times=(at,), digests=(None,))
        for each in touched
        if each.access is Access.READ
    ]
    written = [
        NewFeedEvent(
            feed=each.data.name,
            cluster="primary",
            nominal_time=at,
            kind=FeedEventKind.PRODUCED,
            origin=f"run:{run}",
            recorded_at=at,
        )
        for each in touched
        if each.access is Access.WRITE
    ]
    key, running = ProcessKey(name, "primary", at), ProcessInstanceStatus.RUNNING
    with lifecycle.database.begin() as connection:
        outputs = tuple(EventLog(connection).append(written))
        begun = Attempt(
            **key._asdict(),
            attempt=1,
            run_id=run,
            status=running,
            started_at=at,
            inputs=tuple(read),
            outputs=outputs,
        )
        Attempts(connection).begin(begun)
        if stop is not None:
            Attempts(connection).end(key, ProcessInstanceStatus.SUCCEEDED, second(stop), None)


def ask(lifecycle: LifecycleHarness, name: str, namespace: str = "default", **query: object) -> Any:
    client: TestClient = serve_paths_of(lifecycle, second(LAST))
    return client.get(PATH.format(namespace, name), params={key: str(value) for key, value in query.items()})


def count_runs(case: Case) -> None:
    """Every run writes one dataset. What is suspended has ended its attempt; its record is tested without a server."""
    ((start, end),) = (step["query"] for step in case["steps"])
    end = LAST if end == "max" else end
    with project() as found:

        def begin(run: str, moment: int, stop: float | None) -> None:
            record(found, [DataAccess(data("D1"), program(f"P{run}"), Access.WRITE, run, second(moment))], stop)

        starts = case["given"].get("run starts (s)") or {str(number): (number + 1) * 10 for number in range(99)}
        stopped = set() if "run starts (s)" in case["given"] else {str(number) for number in range(0, 99, 3)}
        for run, moment in starts.items():
            begin(run, moment, moment + 0.01 if run in stopped else None)
        answer = ask(found, "D1", start=start, end=end).json()
    runs = {run for relation in answer["relations"] for run in relation["runs"]}
    match case["expect"]["runs"]:
        case [*expected]:
            assert runs == set(expected)
        case "all 99":
            assert runs == set(starts)
        case "none":
            assert not runs
        case text:
            (first, last) = map(int, re.findall(r"(\d+),(\d+)\)", text)[0])
            since = 10 if "plus" in text else first
            assert runs == {run for run, at in starts.items() if (first if run in stopped else since) <= at < last}


def draw(case: Case) -> None:
    with project() as found:
        accesses = [*read_accesses(case["given"]["accesses"])]
        for _, of_run in groupby(accesses, key=lambda each: each.run):
            record(found, of_run)

        def lineage(step: Any) -> tuple[list[str], Any]:
            namespace, _, name = step["lineage"].rpartition(".")
            query = {key: value for key, value in step.items() if key in ("levels", "rollup")}
            answer = ask(
                found,
                name.replace("dataset", "D"),
                namespace or "default",
                start=0,
                end=LAST,
                **{"levels": 100, **query},
            )
            assert answer.status_code == 200
            document = answer.json()
            relations = [
                (*(each[part].rpartition(".")[2] for part in ("data", "program")), access, *each["runs"])
                for each in document["relations"]
                for access in each["accesses"]
            ]
            return sorted(",".join(each[:3]) for each in relations), document

        answers = [lineage(step)[0] for step in case["steps"]]
    match case["expect"]:
        case {"relations": [*expected]}:
            assert answers == [sorted(",".join(each[:3]) for each in expected)] * len(answers)
        case {"levels 100": whole, "levels 1": near}:
            assert answers == [sorted(whole), sorted(whole), sorted(near)]
        case {"relations": int(count), "identical": True, "levels 1 of D5": near}:
            assert answers[0] == answers[1] == answers[2]
            assert (len(answers[0]), answers[3]) == (count, sorted(near))


def refuse(case: Case) -> None:
    (step,) = case["steps"]
    with project() as found:
        assert ask(found, "dummy", **step["query"]).status_code == case["expect"]["status"]


def refuse_fields(case: Case) -> None:
    with project() as found:
        for step, status in zip(case["steps"], case["expect"]["status"], strict=True):
            query = {name: value for name, value in step.items() if value is not None}
            answer = serve_paths_of(found, second(LAST)).get(f"{PATH.format('default', 'test')}/fields/a", params=query)
            assert answer.status_code == status


RUNNERS = {"window": count_runs, "graph": draw, "refused": refuse, "fields": refuse_fields}


def test_each_case_of_the_table_holds_by_http(case: Case, judge: Callable[[Case], None]) -> None:
    judge(case)
