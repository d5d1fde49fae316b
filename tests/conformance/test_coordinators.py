"""What Falcon tells Oozie about a process, and Oozie's defaults, against what the instances of a process are here."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from feed_assets.entities.feed import Feed
from feed_assets.entities.process import Process
from tests.lifecycle.harness import LifecycleHarness, at, feed, process

Case = dict[str, Any]
TABLE = "coordinators.json"
START, END = at("2013-03-09T10:00"), at("2013-03-12T00:00")  # the clocks of Los Angeles change on 10 March
ZONE = "America/Los_Angeles"
READ_AT = at("2013-03-10T10:00")
NONE = "NONE"


def daily_feed(name: str) -> Feed:
    return feed(name, "days(1)", start=START - timedelta(days=1), timezone=ZONE, partitions=["country"])


def reader(**more: Any) -> Process:
    whole = {"inputs": {"a": "now(0,0)", "b": "now(0,0)"}, "outputs": {"c": "now(0,0)", "d": "now(0,0)"}, **more}
    return process("p", "days(1)", start=START, end=END, timezone=ZONE, **whole)


@contextmanager
def lifecycle(entity: Process) -> Iterator[LifecycleHarness]:
    """Two feeds that are read, with an instance on each day, and two that are written."""
    with tempfile.TemporaryDirectory() as root:
        made = LifecycleHarness.of(Path(root), *map(daily_feed, "abcd"), entity)
        yield made
        made.database.close()


def times_of(name: str) -> list[str]:
    """The nominal times of the process, or of a feed that it reads, as far as they have come into being."""
    with lifecycle(reader()) as made:
        made.tick(END + timedelta(days=30))
        found = made.instances("p") if name == "p" else made.feed_instances(name)
    return [time.strftime("%dT%H") for time in found]


def properties_of(entity: Process) -> dict[str, str]:
    """What the job of an instance is told, with the roots of the paths left out."""
    with lifecycle(entity) as made:
        first = made.process("p").sequence.start
        for name in "ab":
            made.land(name, first)
        made.arrive(first)
        told = made.properties_of("p", first, first)
        return {name: value.replace(f"{made.root.as_uri()}/primary", "") for name, value in told.items()}


def check_mapping(case: Case) -> None:
    match case["field"]:
        case "end" | "frequency" | "timezone":  # daily, at the same local time, up to the end
            assert times_of("p") == ["09T10", "10T09", "11T09"]
        case "dataset initial-instance" | "dataset frequency" | "dataset timezone":
            assert times_of("a")[:4] == ["08T10", "09T10", "10T09", "11T09"]
        case "input name" | "input start":
            shifted = reader(inputs={"a": "yesterday(2,0)", "b": "now(0,0)"})
            with lifecycle(shifted) as made:
                made.land("a", START - timedelta(days=1))
                made.land("b", START)
                made.arrive(START)
                told = made.properties_of("p", START, START)
                assert told["a"] == made.folder("a", START - timedelta(days=1)).as_uri()
                assert told["b"] == made.folder("b", START).as_uri()
        case "input names / output names":
            told = properties_of(reader())
            assert told["falconInputs"] == case["expected"]["inputs"]
            assert told["feedNames"] == "c,d"
        case "optional input":
            with lifecycle(reader(optional=["b"])) as made:
                made.land("a", START)
                assert [time for request in made.tick(START) for time in request.nominal_times] == [START]
        case "no inputs / no outputs":
            told = properties_of(reader(inputs={}, outputs={}))
            assert {told["falconInputs"], told["falconInPaths"], told["feedNames"]} == {NONE} == {case["expected"]}
        case "input with partition":
            written = reader().model_dump(mode="json", exclude_defaults=True)
            written["inputs"]["a"]["partition"] = "US"
            assert properties_of(Process.model_validate(written))["a"] == "/a/2013-03-09/02-00/US"
        case field:
            raise LookupError(field)


def check_default(case: Case) -> None:
    """An instance that lacks its inputs times out after the timeout that is written."""
    assert case["control"] == "timeout"
    value = case["value"]
    with lifecycle(reader(timeout=value if "(" in value else f"minutes({value})")) as made:
        made.ready(START)
        (deadline,) = [row.deadline_at for row in made.instances("p").values()]
        assert deadline == START + timedelta(minutes=case["expected"])


RUNNERS = {"coordinator_mapping": check_mapping, "engine_default": check_default}


def test_each_case_of_the_table_holds_or_is_listed_with_a_reason(case: Case, judge: Callable[[Case], None]) -> None:
    judge(case)


def test_the_list_of_differences_names_only_what_is_in_the_table(unknown_differences: set[str]) -> None:
    assert unknown_differences == set()
