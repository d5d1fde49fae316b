"""`feed-assets sla`: what is late, asked on a terminal."""

from pathlib import Path

import pytest

from feed_assets.alerts.deadlines.records import Recovery, SlaMiss
from feed_assets.alerts.deadlines.store import SlaMisses
from feed_assets.log.messages.levels import SlaLevel
from tests.cli.pasting import TIME, Pasting, counted, declare, of, paste
from tests.cli.project import ok, refused, rows, run
from tests.databases import open_migrated
from tests.definitions.verbs.harness import CLICKS, CLUSTER, COUNTING, COUNTS
from tests.instances.harness import at

__all__ = ["counted", "paste"]

START = "2013-11-03T00:00Z"


@pytest.fixture
def late(counted: Path) -> Path:
    """Two hours of clicks are late, and a third was; it is noon."""
    sla = {"low": "hours(1)", "high": "hours(3)"}
    ended = {**COUNTING, "sla": {"should_end_in": "hours(2)"}}
    declare(counted, CLUSTER, {**CLICKS, "sla": sla}, COUNTS, ended)

    def miss(hour: int, level: SlaLevel = SlaLevel.LOW, **more: object) -> SlaMiss:
        values: dict[str, object] = {
            "kind": "feed",
            "name": "clicks",
            "cluster": "primary",
            "nominal_time": at(f"03T{hour:02}"),
            "level": level,
            "due_at": at(f"03T{hour + 1:02}"),
            "missed_at": at(f"03T{hour + 1:02}:01"),
            "told_at": at(f"03T{hour + 1:02}:01"),
        }
        return SlaMiss(**(values | more))  # type: ignore[arg-type]

    came = miss(3, recovered_at=at("03T04:30"), recovered_by=Recovery.ARRIVED)
    with open_migrated(f"sqlite:///{counted}/state.db").begin() as connection:
        high = miss(5, SlaLevel.HIGH, due_at=at("03T08"))
        ended_late = miss(6, SlaLevel.HIGH, kind="process", name="counting", due_at=at("03T08"))
        SlaMisses(connection).add([miss(5), high, miss(10), came, ended_late])
    return counted


def test_alerts_are_listed_with_the_highest_deadline_that_each_has_missed(late: Path) -> None:
    listed = run("sla", "alerts", "--start", START, "--kind", "feed")
    assert [row[:7] for row in rows(ok(listed))] == [
        ["feed", "clicks", "primary", TIME, "HIGH", "2013-11-03T08:00Z", "4:00"],
        ["feed", "clicks", "primary", "2013-11-03T10:00Z", "LOW", "2013-11-03T11:00Z", "1:00"],
    ]
    assert len(rows(ok(run("sla", "alerts", "--start", START, "--end", TIME)))) == 1
    assert len(rows(ok(run("sla", "alerts", "--start", START, "--level", "LOW")))) == 1


def test_acknowledged_ones_are_left_out_and_counted(late: Path) -> None:
    one = ("--start", "2013-11-03T10:00Z", "--name", "clicks")
    assert "would acknowledge 1" in run("sla", "ack", *one, "--dry-run").stderr
    assert "acknowledged 1" in run("sla", "ack", *one).stderr
    listed = run("sla", "alerts", "--start", START, "--kind", "feed")
    assert len(rows(listed.stdout)) == 1
    assert "1 acknowledged ones are left out; --acknowledged shows them" in listed.stderr
    assert len(rows(ok(run("sla", "alerts", "--start", START, "--kind", "feed", "--acknowledged")))) == 2


def test_a_list_of_instances_and_why_say_how_late_they_are(late: Path) -> None:
    listed = rows(ok(run("instance", "list", "feed", "clicks", "--start", TIME, "--end", "2013-11-03T06:00Z")))
    assert listed[0][7].startswith("late (HIGH)")
    said = ok(run("why", "clicks", TIME))
    assert "it is late by 4:00:00: it was due at 2013-11-03T08:00Z (HIGH); a message of the topic sla tells" in said


@of("alerts.deadlines.alerts.acknowledge: sla history")
def test_where_nothing_is_late_the_history_is_offered(late: Path, paste: Pasting) -> None:
    said = refused(run("sla", "ack", "--start", "2013-11-03T11:00Z"))
    paste(said, "sla history")
