"""`feed-assets simulate`."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from feed_assets import testing
from feed_assets.simulate.parts import LogLine, SimulatedEvent, group_lines, render_group
from tests.cli.project import must, run

ENTITIES = """
kind: cluster
name: primary
storage: file:///data
---
kind: feed
name: clicks
frequency: days(1)
locations: {data: "/clicks/${YEAR}/${MONTH}/${DAY}"}
late_arrival: {cut_off: days(5)}
clusters: {primary: {validity: {start: 2015-01-01T00:00Z}}}
---
kind: feed
name: counts
frequency: days(1)
locations: {data: "/counts/${YEAR}/${MONTH}/${DAY}"}
clusters: {primary: {validity: {start: 2015-01-01T00:00Z}}}
---
kind: process
name: count
frequency: days(1)
clusters: {primary: {validity: {start: 2015-01-01T00:00Z}}}
inputs: {clicks: {feed: clicks, start: "now(0,0)", end: "now(0,0)"}}
outputs: {counts: {feed: counts, instance: "now(0,0)"}}
workflow: {path: "jobs:count"}
late_process: {policy: periodic, delay: days(1), inputs: [clicks]}
"""
ARRIVALS = """feed,cluster,instance,at,content
clicks,primary,2015-01-01T00:00Z,2015-01-01T02:00Z,1
clicks,primary,2015-01-01T00:00Z,2015-01-02T05:00Z,2
clicks,primary,2015-01-02T00:00Z,2015-01-03T01:00Z,1
"""
RANGE = ["--from", "2015-01-01T00:00Z", "--to", "2015-01-05T00:00Z", "--every", "hours(4)"]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "feed_assets.yaml").write_text("entities: entities\n")
    (tmp_path / "entities").mkdir()
    (tmp_path / "entities/all.yaml").write_text(ENTITIES)
    (tmp_path / "arrivals.csv").write_text(ARRIVALS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_project_with_errors_is_not_simulated_without_what_they_leave_out(place: Path) -> None:
    (place / "entities/all.yaml").write_text(ENTITIES.replace("feed: counts", "feed: nosuch"))
    result = run("simulate", *RANGE)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "entities/all.yaml:24: process 'count': there is no feed 'nosuch'" in result.stderr


def test_files_of_workflows_are_those_of_the_project_wherever_the_test_runs(
    place: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    sql = ENTITIES.replace('workflow: {path: "jobs:count"}', "workflow: {engine: sql, path: count.sql}")
    (place / "entities/all.yaml").write_text(sql)
    (place / "count.sql").write_text("select 1")
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    arrived = {"clicks": ["2015-01-01T00:00Z"]}
    with testing.simulate(arrived, start="2015-01-01T00:00Z", end="2015-01-02T00:00Z", folder=place) as done:
        assert done.ran("count") == ["2015-01-01T00:00Z"]
    assert [record.getMessage() for record in caplog.records if "has changed" in record.getMessage()] == []


def test_what_comes_from_outside_is_judged_and_let_in_before_it_is_read(place: Path) -> None:
    judged = ENTITIES.replace(
        "name: clicks\n", 'name: clicks\nquality: {rules: {named: "page IS NOT NULL"}, min_rows: 9}\n'
    )
    assert judged != ENTITIES
    (place / "entities/all.yaml").write_text(judged)
    arrived = {"clicks": ["2015-01-01T00:00Z"]}
    with testing.simulate(arrived, start="2015-01-01T00:00Z", end="2015-01-02T00:00Z", folder=place) as done:
        assert done.ran("count") == ["2015-01-01T00:00Z"]
        assert [line.entity for line in done.log if line.what == "judged"] == ["clicks"]


INBOX = """
kind: cluster
name: primary
storage: file:///data
---
kind: feed
name: drops
instances: as-they-come
inbox: {directory: /in}
locations: {data: "/drops/${YEAR}/${MONTH}/${DAY}/${HOUR}${MINUTE}${SECOND}"}
clusters: {primary: {validity: {start: 2015-01-01T00:00Z}}}
quality: {rules: {named: "page IS NOT NULL"}}
---
kind: feed
name: loaded
instances: as-they-come
locations: {data: "/loaded/${YEAR}/${MONTH}/${DAY}/${HOUR}${MINUTE}${SECOND}"}
clusters: {primary: {validity: {start: 2015-01-01T00:00Z}}}
---
kind: process
name: load
clusters: {primary: {validity: {start: 2015-01-01T00:00Z}}}
trigger: {from: earliest}
inputs: {drops: {feed: drops, take: new}}
outputs: {loaded: {feed: loaded, instance: "now(0,0)"}}
workflow: {path: "jobs:load"}
"""


def test_what_an_inbox_brings_is_judged_before_a_batch_takes_it(place: Path) -> None:
    (place / "entities/all.yaml").write_text(INBOX)
    arrived = {"drops": ["2015-01-01T01:00:00Z"]}
    with testing.simulate(arrived, start="2015-01-01T00:00Z", end="2015-01-02T00:00Z", folder=place) as done:
        what = [(str(line.what), line.entity) for line in done.log]
        assert what.index(("judged", "drops")) < what.index(("run", "load"))
        assert len(done.ran("load")) == 1


def test_the_log_says_what_ran_when_what_was_late_and_what_never_ran(place: Path) -> None:
    result = must("simulate", *RANGE, "--arrivals", "arrivals.csv", "--output", "json")
    assert list(place.glob("**/*.db")) == []
    log = [(line["what"], line["entity"], line["nominal_time"]) for line in json.loads(result.stdout)["log"]]
    assert [line for line in log if line[0] in ("run", "run again", "never ran")] == [
        ("run", "count", "2015-01-01T00:00Z"),
        ("run again", "count", "2015-01-01T00:00Z"),
        ("run", "count", "2015-01-02T00:00Z"),
        ("never ran", "count", "2015-01-03T00:00Z"),
        ("never ran", "count", "2015-01-04T00:00Z"),
        ("never ran", "count", "2015-01-05T00:00Z"),
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("clicks,primary,2015-01-01T07:00Z,2015-01-01T02:00Z", "2015-01-01T07:00Z is not an instance of feed 'clicks'"),
        ("counts,primary,2015-01-01T00:00Z,2015-01-01T02:00Z", "feed 'counts' on primary is not an external feed"),
        ("clicks,primary,2015-01-01T00:00Z,", "it has no at"),
        ("clicks,primary,yesterday,2015-01-01T02:00Z", "'yesterday' is not a date and time"),
    ],
)
def test_a_line_that_says_nothing_is_refused_with_its_number(place: Path, line: str, reason: str) -> None:
    (place / "arrivals.csv").write_text(f"{ARRIVALS}{line}\n")
    result = must("simulate", *RANGE, "--arrivals", "arrivals.csv", code=1)
    assert f"arrivals.csv:5: {reason}" in result.stderr


def test_with_faults_workers_die_and_clocks_are_set_and_yet_everything_ends(place: Path) -> None:
    log = {}
    for faults in ("0", "0.2"):
        options = ["--late", "0", "--missing", "0", "--again", "0", "--faults", faults, "--to", "2015-01-09T00:00Z"]
        result = must("simulate", *RANGE, *options, "--output", "json")
        log[faults] = [line["what"] for line in json.loads(result.stdout)["log"]]
    assert {"worker died", "clock set", "daemon restarted"} <= set(log["0.2"]) - set(log["0"])
    assert log["0.2"].count("run") == log["0"].count("run")


def test_what_ends_for_one_cause_is_one_line_with_its_range_and_number() -> None:
    noon, hour = datetime(2015, 1, 1, 12, tzinfo=UTC), timedelta(hours=1)

    def line(what: SimulatedEvent, hours: int, at: datetime = noon, **more: str) -> LogLine:
        return LogLine(at=at, what=what, entity="count", cluster="primary", nominal_time=noon + hours * hour, **more)

    lines = [
        *(line(SimulatedEvent.TIMED_OUT, n) for n in range(72)),
        line(SimulatedEvent.RUN, 72),
        *(line(SimulatedEvent.FAILED, 80 + n, noon + n * hour, note="no column b") for n in range(3)),
        line(SimulatedEvent.FAILED, 83, noon + 3 * hour, note="no memory"),
        *(line(SimulatedEvent.MISSED, 84 + n, noon + 9 * hour, note="WAITING") for n in range(2)),
    ]
    groups = [*group_lines(lines)]
    assert sorted(each for group in groups for each in map(lines.index, group)) == [*range(len(lines))]
    assert [*map(render_group, groups)] == [
        "2015-01-01T12:00Z timed out count 2015-01-01T12:00Z to 2015-01-04T11:00Z on primary: 72 instances",
        "2015-01-01T12:00Z run count 2015-01-04T12:00Z on primary",
        "2015-01-01T12:00Z failed count 2015-01-04T20:00Z on primary: no column b",
        "2015-01-01T15:00Z failed count 2015-01-04T23:00Z on primary: no memory",
        "2015-01-01T21:00Z never ran count 2015-01-05T00:00Z to 2015-01-05T01:00Z on primary: WAITING (2 instances)",
        "2015-01-01T13:00Z failed count 2015-01-04T21:00Z to 2015-01-04T22:00Z on primary: no column b (2 instances)",
    ]
