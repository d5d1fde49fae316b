"""What CDAP answers about lineage in a window of time: which runs count, how far it leads, and what it refuses.

Its datasets are feeds here, its programs processes, its namespaces clusters. Runs stand in a database as attempts.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from feed_assets.context.operation import OperationContext
from feed_assets.errors import FeedAssetsError
from feed_assets.lineage.windows import find_window_lineage, gather_relations, walk_relations
from feed_assets.log.instances.attempts import Attempts
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import Attempt, ProcessInstance, ProcessInstanceStatus, ProcessKey
from feed_assets.sql.database import Database
from feed_assets.timing.sequence import parse_time
from tests.databases import open_migrated
from tests.instances.harness import LifecycleHarness, feed
from tests.lineage.accesses import data, read_accesses, written

Case = dict[str, Any]
TABLE = "lineage.json"

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
RUNNING, SUSPENDED, SUCCEEDED, KILLED = (
    ProcessInstanceStatus.RUNNING,
    ProcessInstanceStatus.SUSPENDED,
    ProcessInstanceStatus.SUCCEEDED,
    ProcessInstanceStatus.KILLED,
)


def second(number: float) -> datetime:
    return EPOCH + timedelta(seconds=number)


@contextmanager
def runs() -> Iterator[Database]:
    with TemporaryDirectory() as folder:
        database = open_migrated(f"sqlite:///{folder}/state.db")
        yield database
        database.close()


def record(database: Database, run: str, start: int, stop: float | None, status: ProcessInstanceStatus) -> None:
    """A run as it is recorded: one that is suspended was broken off, and its instance waits to go on."""
    key, moment = ProcessKey(run, "primary", EPOCH), second(stop or start)
    with database.begin() as connection:
        attempts = Attempts(connection)
        attempts.begin(Attempt(**key._asdict(), attempt=1, run_id=run, status=RUNNING, started_at=second(start)))
        if stop is not None:
            attempts.end(key, KILLED if status is SUSPENDED else status, moment, None)
        row = ProcessInstance(**key._asdict(), status=status, updated_at=moment, attempt=1)
        ProcessInstances(connection).add_waiting([row])


def active(database: Database, start: int, end: int) -> set[str]:
    with database.read() as connection:
        return {each.process for each in Attempts(connection).active(["primary"], second(start), second(end))}


def count_runs(case: Case) -> None:
    ((start, end),) = (step["query"] for step in case["steps"])
    end = 10**9 if end == "max" else end
    with runs() as database:
        if "run starts (s)" in case["given"]:
            for run, moment in case["given"]["run starts (s)"].items():
                record(database, run, moment, None, RUNNING)
            assert active(database, start, end) == set(case["expect"]["runs"])
            return
        kinds = (SUCCEEDED, SUSPENDED, RUNNING)
        for number in range(99):
            moment, status = (number + 1) * 10, kinds[number % 3]
            record(database, str(number), moment, None if status is RUNNING else moment + 0.01, status)
        found = active(database, start, end)
    match case["expect"]["runs"]:
        case "all 99":
            expected = set(range(99))
        case "none":
            expected = set()
        case "all of the three kinds with start in [1,450)":
            expected = {number for number in range(99) if 1 <= (number + 1) * 10 < 450}
        case "stopped with start in [300,600) plus suspended/running with start in [10,600)":
            since = (300, 10, 10)
            expected = {number for number in range(99) if since[number % 3] <= (number + 1) * 10 < 600}
        case other:
            raise LookupError(other)
    assert found == set(map(str, expected))


def draw(case: Case) -> None:
    relations = gather_relations(read_accesses(case["given"]["accesses"]))

    def lineage(step: Mapping[str, Any]) -> list[str]:
        namespace, _, name = step["lineage"].rpartition(".")
        root = data(name.replace("dataset", "D"), namespace or "primary")
        return sorted(map(written, walk_relations(relations, [root], step.get("levels", 100))))

    found = [lineage(step) for step in case["steps"]]
    match case["expect"]:
        case {"relations": [*expected]}:
            texts = sorted(",".join(each[:3]) for each in expected)
            assert found == [texts] * len(found)
            by_text = {written(each): list(each.runs) for each in relations}
            assert all(by_text[",".join(each[:3])] == each[3:] for each in expected)
        case {"levels 100": whole, "levels 1": near}:
            assert found == [sorted(whole), sorted(whole), sorted(near)]
        case {"relations": int(count), "identical": True, "levels 1 of D5": near}:
            assert found[0] == found[1] == found[2]
            assert (len(found[0]), found[3]) == (count, sorted(near))
        case {"rollup": rollup}:
            assert found[0] == sorted(rollup)


def refuse(case: Case) -> None:
    (step,) = case["steps"]

    def ask(context: OperationContext) -> None:
        given = {name: parse_second(value) for name, value in step["query"].items()}
        find_window_lineage(context, "dummy", **{"start": None, **given})

    with TemporaryDirectory() as folder, pytest.raises(FeedAssetsError):
        ask(LifecycleHarness.of(Path(folder), feed("dummy")).context(second(1000)))
    assert case["expect"] == {"status": 400}


def parse_second(number: int) -> datetime:
    return second(number) if number >= 0 else parse_time(str(number), lambda: EPOCH, lambda: ZoneInfo("UTC"))


RUNNERS = {"window": count_runs, "graph": draw, "refused": refuse}


def test_each_case_of_the_table_holds_or_is_listed_with_a_reason(case: Case, judge: Callable[[Case], None]) -> None:
    judge(case)


def test_the_list_of_differences_names_only_what_is_in_the_table(unknown_differences: set[str]) -> None:
    assert unknown_differences == set()
