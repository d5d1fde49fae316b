"""`feed-assets simulate --events`: what is taken, when, and what is left, for statements about Airflow and BDRE.

One simulation of a day and a half has all of them: each has feeds and a process of its own.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from feed_assets.testing import SimulatedEvent, simulate
from tests.cli.project import must, run

ON = {"primary": {"validity": {"start": "2026-01-01T00:00Z"}}}
BEFORE = {"primary": {"validity": {"start": "2025-12-01T00:00Z"}}}
RANGE = ("--from", "2026-01-01T00:00Z", "--to", "2026-01-02T06:00Z", "--every", "hours(1)", "--run-time", "minutes(10)")
HOURLY = {"frequency": "hours(1)", "locations": {"data": "/hours/${YEAR}-${MONTH}-${DAY}-${HOUR}"}}
FOLDER = Path(__file__).parent
CASES: dict[str, Any] = yaml.safe_load((FOLDER / "stories.yaml").read_text("utf-8"))
TRIGGERS = {name: case["trigger"] for name, case in CASES.items() if "trigger" in case}
WINDOWS = {name: case["window"] for name, case in CASES.items() if "window" in case}
EVENTS = [line.split() for line in (FOLDER / "events.txt").read_text("utf-8").splitlines()]
"""The time, the feed, and a marking; or a process and what is done to it."""


def entities() -> Iterator[dict[str, Any]]:
    yield {"kind": "cluster", "name": "primary", "storage": "file:///data"}
    signals = {event[1] for event in EVENTS} - {"af-12"}
    for name in sorted(signals):
        yield {"kind": "feed", "name": name, "signal": True, "clusters": BEFORE}
    yield {"kind": "feed", "name": "hours", "clusters": ON, **HOURLY}
    work = {"kind": "process", "clusters": ON, "workflow": {"path": "jobs:run"}}
    for name, trigger in TRIGGERS.items():
        yield {**work, "name": name, "trigger": trigger}
    for name, rule in WINDOWS.items():
        window = {"feed": "hours", "start": "today(0,0)", "end": "today(23,0)", **rule}
        yield {**work, "name": name, "frequency": "days(1)", "timeout": "days(2)", "inputs": {"hours": window}}


def events() -> Iterator[dict[str, str]]:
    for event in EVENTS:
        at, name, word = (*event, "")[:3]
        if word in ("suspend", "resume"):
            yield from ({"at": at, "process": each, "do": word} for each in TRIGGERS if each.startswith(name))
        else:
            yield {"at": at, "feed": name, **({"marking": word} if word else {})}
    for hour in range(24):
        instance = f"2026-01-01T{hour:02}:00Z"
        yield {"at": instance.replace(":00Z", ":30Z"), "feed": "hours", "instance": instance}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("simulated")
    (folder / "feed_assets.yaml").write_text("entities: entities\n")
    (folder / "entities").mkdir()
    (folder / "entities/all.yaml").write_text(yaml.safe_dump_all(entities()))
    (folder / "events.jsonl").write_text("\n".join(map(json.dumps, events())))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield folder


@pytest.fixture(scope="module")
def log(project: Path) -> list[dict[str, Any]]:
    """The lines of the simulation as JSON."""
    result = must("simulate", *RANGE, "--events", str(project / "events.jsonl"), "--output", "json")
    found: list[dict[str, Any]] = json.loads(result.stdout)["log"]
    return found


def story_of(log: Sequence[Mapping[str, Any]], process: str) -> list[str]:
    """What is taken of a process's events when, passed over, and left: each event by its feed, without the prefix of
    the statement, and its time.
    """
    comes = {line["event"]: line for line in log if line["event"] is not None}

    def named(numbers: Sequence[int]) -> str:
        return " ".join(
            f"{comes[each]['entity'].split('-')[-1]}@{comes[each]['at'][11:16]}" for each in sorted(numbers)
        )

    story = []
    for line in log:
        if line["entity"] == process and line["what"] == "run" and process in WINDOWS:
            story.append(f"{line['at'][:13]} {line['what']} {line['nominal_time'][:10]}")
        if line["entity"] != process or not line["queue"]:
            continue
        taken, passed, pending = (
            named([event for share in line["queue"] for event in share[use]]) for use in ("taken", "passed", "pending")
        )
        day = "" if line["at"].startswith("2026-01-01") else "next day "
        texts = {"takes": taken, "passes": passed, "leaves": pending}
        parts = [f"{verb} {text}" for verb, text in texts.items() if text]
        story.append(f"{day}{line['at'][11:16]} {line['what']} {', '.join(parts)}".strip())
    return story


@pytest.mark.parametrize("process", CASES)
def test_a_simulation_tells_what_is_taken_when_and_what_is_left(log: list[dict[str, Any]], process: str) -> None:
    assert story_of(log, process) == CASES[process]["story"]


SHORT = ("simulate", "--from", "2026-01-01T00:00Z", "--to", "2026-01-01T03:00Z", "--every", "hours(1)")
CSV = """at,feed,instance,content,payload,marking,again,process,do
2026-01-01T00:10Z,hours,2026-01-01T00:00Z,1,"{""rows"": 2}",first,,,
2026-01-01T00:20Z,,,,,,,af-51-trigger,suspend
2026-01-01T00:30Z,hours,2026-01-01T00:00Z,1,,,true,,
2026-01-01T01:10Z,hours,2026-01-01T00:00Z,2,,,true,,
2026-01-01T01:20Z,,,,,,,af-51-trigger,resume
"""


def test_a_file_of_csv_is_told_in_lines_for_people(project: Path) -> None:
    (project / "events.csv").write_text(CSV)
    result = must(*SHORT, "--events", "events.csv")
    lines = [line for line in result.stdout.splitlines() if "af-51-trigger" in line or "hours" in line.split(" on ")[0]]
    assert [line for line in lines if "asked for" not in line and " run " not in line] == [
        "2026-01-01T00:10Z arrived hours 2026-01-01T00:00Z on primary: event 1, marked first",
        "2026-01-01T00:20Z suspended af-51-trigger on primary",
        "2026-01-01T00:30Z arrived hours 2026-01-01T00:00Z on primary: known already",
        "2026-01-01T01:10Z arrived hours 2026-01-01T00:00Z on primary: event 2, other content",
        "2026-01-01T01:20Z resumed af-51-trigger on primary",
        "2026-01-01T02:00Z batch cut af-51-trigger 2026-01-01T02:00Z on primary: "
        "takes 2 events: hours 1, 2; leaves nothing",
    ]


def test_a_test_of_users_reads_the_same_file(project: Path) -> None:
    (project / "few.jsonl").write_text('{"at": "2026-01-01T00:10Z", "feed": "bd-12-d1"}\n' * 4)
    period = {"start": "2026-01-01T00:00Z", "end": "2026-01-01T01:00Z"}
    with simulate({}, **period, every=timedelta(hours=1), folder=project, events=project / "few.jsonl") as simulated:
        (batch,) = [line for line in simulated.log if line.what is SimulatedEvent.CUT and line.entity == "bd-12"]
    assert [(share.taken, share.pending) for share in batch.queue] == [((1, 2, 3), (4,))]


def test_an_arrival_of_a_feed_that_is_never_polled_is_told(project: Path) -> None:
    (project / "arrivals.csv").write_text(
        "feed,cluster,instance,at\nbd-12-d1,primary,2026-01-01T00:00:05Z,2026-01-01T00:30Z\n"
    )
    result = run(*SHORT, "--arrivals", "arrivals.csv")
    assert "2026-01-01T01:00Z batch cut bd-12 2026-01-01T01:00Z on primary: takes 1 event: bd-12-d1 1" in result.stdout


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"at": "2026-01-01T01:00Z"}', "it names neither a feed nor a process"),
        ('{"at": "2026-01-01T01:00Z", "feed": "hours", "process": "af-10"}', "it names a feed and a process"),
        ('{"feed": "bd-12-d1"}', "it has no at"),
        ('{"at": "soon", "feed": "bd-12-d1"}', "'soon' is not a date and time"),
        ('{"at": "2026-01-01T01:00Z", "feed": "bd-12"}', "'bd-12' is not an external feed"),
        ('{"at": "2026-01-01T01:00Z", "feed": "bd-12-d1", "cluster": "other"}', "is not an external feed on other"),
        ('{"at": "2026-01-01T01:00Z", "feed": "bd-12-d1", "mark": "x"}', "it has mark, which a feed has not"),
        ('{"at": "2026-01-01T01:00Z", "feed": "bd-12-d1", "marking": ""}', "marking is not a text"),
        ('{"at": "2026-01-01T01:00Z", "feed": "bd-12-d1", "payload": [1]}', "its payload is no object of JSON"),
        ('{"at": "2026-01-01T01:00Z", "feed": "bd-12-d1", "again": "x"}', "again is true or false"),
        ('{"at": "2026-01-01T01:00Z", "feed": "bd-12-d1", "content": "2"}', "has no data, and no content"),
        ('{"at": "2026-01-01T01:00Z", "feed": "hours"}', "it has no instance, and feed 'hours' has instances at"),
        (
            '{"at": "2026-01-01T01:00Z", "feed": "hours", "instance": "2026-01-01T00:30Z"}',
            "2026-01-01T00:30Z is not an instance of feed 'hours'",
        ),
        (
            '{"at": "2026-01-01T01:00Z", "feed": "hours", "instance": "2026-01-01T02:00Z"}',
            "instance 2026-01-01T02:00Z of feed 'hours' is in the future then",
        ),
        ('{"at": "2026-01-01T01:00Z", "process": "bd", "do": "suspend"}', "'bd' is not a process"),
        ('{"at": "2026-01-01T01:00Z", "process": "bd-12", "do": "kill"}', "'kill' cannot be done to a process"),
        ("[]", "it is no object of JSON"),
        ("{", "'{' is not JSON"),
    ],
)
def test_a_line_that_cannot_happen_is_refused_with_its_number(project: Path, line: str, reason: str) -> None:
    (project / "wrong.jsonl").write_text(f'{{"at": "2026-01-01T01:00Z", "feed": "bd-12-d1"}}\n\n{line}\n')
    result = must(*SHORT, "--events", "wrong.jsonl", code=1)
    assert "wrong.jsonl:3: " in result.stderr
    assert reason in result.stderr
