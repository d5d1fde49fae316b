"""What is late, asked by a person: alerts, history, acknowledgements, backlog, and the words of `why`."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from feed_assets.alerts.deadlines.alerts import SlaList, acknowledge, find_alerts, find_backlog, find_history
from feed_assets.alerts.deadlines.queries import LateQuery, SlaQuery
from feed_assets.alerts.deadlines.records import LateInstance, Recovery
from feed_assets.alerts.delivery.store import ReceiverState, ReceiverStates
from feed_assets.context.errors import InstanceQueryError
from feed_assets.context.heartbeat import note_tick
from feed_assets.context.operation import OperationContext, resolve_subject
from feed_assets.entities.common import Kind
from feed_assets.entities.errors import EntityNotFoundError
from feed_assets.explain.explanations import explain
from feed_assets.explain.records import ReasonCode
from feed_assets.log.audit import Audit
from feed_assets.log.definitions.records import ScheduleState
from feed_assets.log.messages.levels import SlaLevel
from feed_assets.log.messages.outbox import Outbox
from feed_assets.orchestration.sensors.deadlines import find_causes
from feed_assets.settings import load_settings
from feed_assets.timing.dates import render_datetime
from tests.alerts.deadlines.looks import look, schedule, told
from tests.context.contexts import about, context_of, listed
from tests.instances.harness import START, LifecycleHarness, at, feed, process

SLA = {"low": "hours(1)", "high": "hours(3)"}
DONE = {"should_start_in": "hours(1)", "should_end_in": "hours(3)"}
ALL = SlaQuery(start=at("01"), end=at("30"))


@pytest.fixture
def harness(tmp_path: Path) -> LifecycleHarness:
    """Clicks that should come, and are counted in time; nothing comes before five o'clock but the first hour."""
    lifecycle = LifecycleHarness.of(
        tmp_path,
        feed("clicks", sla=SLA),
        feed("weather"),
        feed("counts"),
        process("count", inputs={"clicks": "now(0,0)"}, outputs={"counts": "now(0,0)"}, sla=DONE),
    )
    look(lifecycle, START)
    lifecycle.land("clicks", START)
    lifecycle.tick(at("01T00:10"))
    lifecycle.run("count", START, at("01T00:20"))
    lifecycle.tick(at("01T04:58"))
    look(lifecycle, "01T04:59")
    return lifecycle


def context(harness: LifecycleHarness, as_of: str = "01T04:59") -> OperationContext:
    return context_of(harness, at(as_of))


def lines(found: SlaList) -> list[str]:
    return [f"{row.kind} {row.nominal_time:%H} {row.level}" for row in found.rows]


def test_row_82_an_instance_past_low_is_low_past_high_is_high_and_gone_once_it_is_there(
    harness: LifecycleHarness,
) -> None:
    of_feeds = SlaQuery(start=at("01"), end=at("30"), kind=Kind.FEED)
    assert lines(find_alerts(context(harness), of_feeds)) == ["feed 01 high", "feed 02 low", "feed 03 low"]
    harness.land("clicks", at("01T01"), at("01T02"), at("01T03"), at("01T04"))
    harness.arrive(at("01T05:10"))
    look(harness, "01T05:11")
    assert lines(find_alerts(context(harness), of_feeds)) == []
    history = find_history(context(harness), of_feeds).rows
    assert [(row.level.value, row.told_at is not None, row.recovered_by) for row in history] == [
        ("high", True, Recovery.ARRIVED),
        ("low", True, Recovery.ARRIVED),
        ("high", False, Recovery.ARRIVED),  # it came before anybody was told
        ("low", True, Recovery.ARRIVED),
        ("low", True, Recovery.ARRIVED),
        ("low", False, Recovery.ARRIVED),
    ]


def test_row_83_an_instance_that_has_not_ended_in_time_is_high(harness: LifecycleHarness) -> None:
    found = find_alerts(context(harness), SlaQuery(start=at("01"), end=at("30"), kind=Kind.PROCESS))
    assert lines(found) == ["process 01 high", "process 02 low", "process 03 low"]


def test_row_84_both_ends_of_the_range_count_and_a_name_selects(harness: LifecycleHarness) -> None:
    query = SlaQuery(start=at("01T01"), end=at("01T02"), name="clicks")
    assert lines(find_alerts(context(harness), query)) == ["feed 01 high", "feed 02 low"]
    assert lines(find_alerts(context(harness), SlaQuery(start=at("01T02"), end=at("01T02")))) == [
        "feed 02 low",
        "process 02 low",
    ]
    only_low = SlaQuery(start=at("01"), end=at("30"), name="clicks", level=SlaLevel.LOW)
    assert lines(find_alerts(context(harness), only_low)) == ["feed 02 low", "feed 03 low"]


def test_what_cannot_be_asked_is_refused_in_a_sentence(harness: LifecycleHarness) -> None:
    with pytest.raises(EntityNotFoundError, match="clocks"):
        find_alerts(context(harness), SlaQuery(start=START, end=START, name="clocks"))
    with pytest.raises(InstanceQueryError, match="ends before its start"):
        find_alerts(context(harness), SlaQuery(start=at("02"), end=at("01")))
    with pytest.raises(InstanceQueryError, match=r"'east': it is not declared\. Declared are primary"):
        find_history(context(harness), SlaQuery(start=START, end=START, clusters=("east",)))


def test_a_named_entity_that_does_not_run_or_has_no_sla_says_so(harness: LifecycleHarness) -> None:
    schedule(harness, "count", ScheduleState.SUSPENDED, "01T04:59")
    by_name = SlaQuery(start=at("01"), end=at("30"), name="count")
    assert find_alerts(context(harness), by_name).notes == (
        "process 'count' on primary is SUSPENDED: its deadlines do not count",
    )
    weather = LateQuery(end=at("30"), name="weather")
    no_sla, silence = find_alerts(context(harness), weather).notes
    assert no_sla == "feed 'weather' on primary has no SLA"
    assert silence.startswith("no tick of cluster primary has ever come")
    note_tick(harness.database, "primary", datetime.now(UTC))
    assert find_alerts(context(harness), weather).notes == (no_sla,)
    assert find_alerts(context(harness), LateQuery(end=at("30"))) == find_alerts(context(harness), ALL)
    assert find_alerts(context(harness), ALL).notes == ()


def test_row_86_the_backlog_is_the_sum_of_the_minutes_and_0_after_recovery(harness: LifecycleHarness) -> None:
    harness.tick(at("01T06:40"))
    look(harness, "01T06:41")
    (found,) = find_backlog(context(harness, "01T06:45"))
    missed = [at("01T01"), at("01T02"), at("01T03")]
    by_hand = sum((at("01T06:45") - time) // timedelta(minutes=1) for time in missed)
    assert (found.minutes, found.instances, found.oldest) == (by_hand, 3, at("01T01"))
    with pytest.raises(InstanceQueryError, match="cluster 'east': it is not declared"):
        find_backlog(context(harness, "01T06:45"), clusters=["east"])
    assert by_hand == 345 + 285 + 225
    harness.land("clicks", *missed)
    harness.tick(at("01T06:50"))
    for number, time in enumerate(missed):
        harness.run("count", time, at("01T06:55"), f"run-{number}")
    look(harness, "01T06:56")
    (found,) = find_backlog(context(harness, "01T06:57"), "count", ["primary"])
    assert (found.minutes, found.instances, found.oldest) == (0, 0, None)


def test_acknowledged_instances_are_left_out_until_they_miss_the_next_deadline(harness: LifecycleHarness) -> None:
    query = SlaQuery(start=at("01T02"), end=at("01T02"), name="clicks")
    tried = acknowledge(context(harness).by("ann", dry_run=True), query)
    assert [row.acknowledged_by for row in tried.rows] == ["ann"]
    assert find_alerts(context(harness), query).acknowledged == 0
    assert len(acknowledge(context(harness).by("ann"), query).rows) == 1
    assert acknowledge(context(harness).by("bob"), query).rows == ()
    found = find_alerts(context(harness), query)
    assert (found.rows, found.acknowledged) == ((), 1)
    assert [row.acknowledged_by for row in find_alerts(context(harness), query, with_acknowledged=True).rows] == ["ann"]
    look(harness, "01T05:30")
    assert lines(find_alerts(context(harness), query)) == ["feed 02 high"]
    with pytest.raises(InstanceQueryError, match="feed 'weather': none is late from"):
        acknowledge(context(harness).by("ann"), SlaQuery(start=START, end=START, kind=Kind.FEED, name="weather"))
    with harness.database.read() as connection:
        noted = [entry for entry in Audit(connection).newest(9) if entry.action == "sla ack"]
    assert [(entry.author, entry.target) for entry in noted] == [("ann", "feed 'clicks' on primary")]


def test_a_list_of_instances_has_the_highest_deadline_by_which_each_is_late(harness: LifecycleHarness) -> None:
    of_feed = listed(context(harness), "clicks", Kind.FEED, start=START, end=at("01T05"))
    assert [row.sla and row.sla.value for row in of_feed.instances] == [None, "high", "low", "low", None]
    of_process = listed(context(harness), "count", start=START, end=at("01T05"))
    assert [row.sla and row.sla.value for row in of_process.instances] == [None, "high", "low", "low", None]


def test_why_says_how_late_an_instance_is_until_when_it_is_due_and_who_was_told(
    harness: LifecycleHarness, tmp_path: Path
) -> None:
    settings = load_settings({"notify": {"ops": {"url": "mailto:ops@example.org"}}}, environ={}, start=tmp_path)
    with harness.database.begin() as connection:
        ReceiverStates(connection).add([ReceiverState(name="ops", cursor=0, seen_at=START)])
    told = (ReasonCode.DEADLINE, ReasonCode.TOLD, ReasonCode.NOT_TOLD)

    def said(kind: Kind, name: str, time: str) -> list[str]:
        asking = replace(context(harness, "01T05:30"), settings=settings)
        (found,) = explain(asking, resolve_subject(asking, name, at(time), kind=kind)).items
        return [reason.text for reason in found.reasons if reason.code in told]

    assert said(Kind.FEED, "clicks", "01T03") == [
        "it is late by 1:30:00: it was due at 2013-11-01T04:00Z (LOW); a message of the topic sla tells of it, written "
        "at 2013-11-01T04:59:00Z",
        "ops is not told of its lateness (LOW) yet",
        "it is late after 2013-11-01T06:00Z (HIGH)",
    ]
    with harness.database.begin() as connection:
        ReceiverStates(connection).advance(["ops"], Outbox(connection).last_seq())
    assert "told of its lateness (LOW): ops" in said(Kind.FEED, "clicks", "01T03")
    assert said(Kind.FEED, "clicks", "01T00") == []
    assert said(Kind.PROCESS, "count", "01T04") == [
        "it is late after 2013-11-01T05:00Z (LOW)",
        "it is late after 2013-11-01T07:00Z (HIGH)",
    ]
    harness.land("clicks", at("01T03"))
    harness.arrive(at("01T05:40"))
    look(harness, "01T05:41")
    assert said(Kind.FEED, "clicks", "01T03")[0].startswith(
        "it was late by 1:40:00: it was due at 2013-11-01T04:00Z (LOW), and it has arrived; a message"
    )


def test_root_causes_are_those_of_why_and_nothing_that_cannot_be_explained_ends_the_look(
    harness: LifecycleHarness,
) -> None:
    instances = [
        LateInstance("process", "count", "primary", at("01T01")),
        LateInstance("feed", "clicks", "primary", at("01T01")),
        LateInstance("feed", "gone", "primary", at("01T01")),
    ]
    found = find_causes(context(harness), instances)
    assert list(found) == instances[:2]
    assert found[instances[0]].startswith(f"count 2013-11-01T01:00Z for clicks {render_datetime(at('01T01'))}: ")
    assert "did not exist" in found[instances[1]]
    assert find_causes(context(harness), []) == {}


def test_the_time_of_a_suspension_also_moves_what_why_says(harness: LifecycleHarness) -> None:
    schedule(harness, "count", ScheduleState.SUSPENDED, "01T05:30")
    schedule(harness, "count", ScheduleState.SCHEDULED, "01T07:30")
    (found,) = about(explain, context(harness, "01T07:31"), "count", at("01T04")).items
    texts = [reason.text for reason in found.reasons if reason.code is ReasonCode.DEADLINE]
    assert "it is late after 2013-11-01T09:00Z (HIGH)" in texts
    look(harness, "01T08:59")
    assert [line[:34] for line in told(harness) if line.startswith("missed high process")] == [
        "missed high process count: 01T01",
        "missed high process count: 01T02, ",
    ]
    look(harness, "01T09:01")
    assert "missed high process count: 01T04" in told(harness)
