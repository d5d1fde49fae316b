"""What Falcon tells Oozie about a process, and Oozie's defaults, against what the instances of a process are here."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from feed_assets.entities.feed import Feed
from feed_assets.entities.process import Process
from tests.instances.harness import LifecycleHarness, at, feed, process

Case = dict[str, Any]
TABLE = "coordinators.json"
START, END = at("2013-03-09T10:00"), at("2013-03-12T00:00")  # the clocks of Los Angeles change on 10 March
ZONE = "America/Los_Angeles"
READ_AT = at("2013-03-10T10:00")


def daily_feed(name: str, frequency: str = "days(1)", **more: Any) -> Feed:
    whole = {"start": START - timedelta(days=1), "timezone": ZONE, "partitions": ["country"], **more}
    return feed(name, frequency, **whole)


def reader(frequency: str = "days(1)", **more: Any) -> Process:
    whole = {
        "inputs": {"a": "now(0,0)", "b": "now(0,0)"},
        "outputs": {"c": "now(0,0)", "d": "now(0,0)"},
        "start": START,
        "end": END,
        "timezone": ZONE,
        **more,
    }
    return process("p", frequency, **whole)


def steps(start: datetime, end: datetime, hours: int, zone: str = ZONE) -> list[datetime]:
    """The times from a start, by steps of so many hours on the clock of a zone, before an end. A time of the hour that
    the clock leaves out has the offset that comes.
    """
    clock = start.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    times = (
        (clock + n * timedelta(hours=hours)).replace(tzinfo=ZoneInfo(zone), fold=1).astimezone(UTC) for n in range(99)
    )
    return [time for time in times if time < end]


@contextmanager
def lifecycle(entity: Process, *feeds: Feed) -> Iterator[LifecycleHarness]:
    """Two feeds that are read, with an instance on each day unless others are given, and two that are written."""
    names = {each.name for each in feeds}
    with tempfile.TemporaryDirectory() as root:
        made = LifecycleHarness.of(
            Path(root), *(daily_feed(name) for name in "abcd" if name not in names), *feeds, entity
        )
        yield made
        made.database.close()


def times_of(name: str, entity: Process, *feeds: Feed) -> list[datetime]:
    """The nominal times of the process, or of a feed that it reads, as far as they have come into being."""
    with lifecycle(entity, *feeds) as made:
        made.tick(END + timedelta(days=30))
        return list(made.instances("p") if name == "p" else made.feed_instances(name))


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
    """Each fact is held at the value that the entity has, and at another one."""
    match case["field"], case["expected"]:
        case "end", "validity end":
            for end in (END, END - timedelta(days=1)):
                assert times_of("p", reader(end=end)) == steps(START, end, 24)
        case "frequency", "${coord:<frequency>}":
            for hours in (24, 48):
                assert times_of("p", reader(f"days({hours // 24})")) == steps(START, END, hours)
        case "timezone", "process timezone":
            for zone in (ZONE, "UTC"):
                assert times_of("p", reader(timezone=zone)) == steps(START, END, 24, zone)
        case "dataset initial-instance", "feed validity start on that cluster":
            for start in (START - timedelta(days=1), START - timedelta(days=3)):
                assert times_of("a", reader(), daily_feed("a", start=start))[0] == start
        case "dataset frequency", "${coord:<feed frequency>}":
            for hours in (24, 48):
                found = times_of("a", reader(), daily_feed("a", f"days({hours // 24})"))
                assert found[:3] == steps(START - timedelta(days=1), END + timedelta(days=9), hours)[:3]
        case "dataset timezone", "feed timezone":
            for zone in (ZONE, "UTC"):
                found = times_of("a", reader(), daily_feed("a", timezone=zone))
                assert found[:4] == steps(START - timedelta(days=1), END + timedelta(days=9), 24, zone)[:4]
        case ("input name", "input name (twice: event and dataset)") | ("input start", "${<start expression>}"):
            for shift, expression in ((1, "yesterday(2,0)"), (0, "today(2,0)")):
                with lifecycle(reader(inputs={"a": expression, "b": "now(0,0)"})) as made:
                    made.land("a", START - timedelta(days=shift))
                    made.land("b", START)
                    made.arrive(START)
                    told = made.properties_of("p", START, START)
                    assert told["a"] == made.folder("a", START - timedelta(days=shift)).as_uri()
                    assert told["b"] == made.folder("b", START).as_uri()
        case "input names / output names", expected:
            told = properties_of(reader())
            assert {"inputs": told["falconInputs"], "outputs": told["feedNames"]} == {
                name: text if name == "inputs" else text.replace("a", "c").replace("b", "d")
                for name, text in expected.items()
            }
        case "optional input", "dataset declared, no input event: never waited for":
            for optional, expected in ((["b"], [START]), ([], [])):
                with lifecycle(reader(optional=optional)) as made:
                    made.land("a", START)
                    assert [time for request in made.tick(START) for time in request.nominal_times] == expected
        case "no inputs / no outputs", expected:
            told = properties_of(reader(inputs={}, outputs={}))
            assert [told[name] for name in ("falconInputs", "falconInPaths", "feedNames")] == [expected] * 3
        case "input with partition", "dataIn('<input>', '<partition>')":
            for partition in ("US", "CA"):
                written = reader().model_dump(mode="json", exclude_defaults=True)
                written["inputs"]["a"]["partition"] = partition
                assert properties_of(Process.model_validate(written))["a"] == f"/a/2013-03-09/02-00/{partition}"
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
