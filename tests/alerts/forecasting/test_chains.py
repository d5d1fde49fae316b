"""What a forecast reads: earlier instances, and what an instance waits for upstream."""

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from feed_assets.alerts.deadlines.due_times import DeadlineKey, iter_deadlines, open_deadlines
from feed_assets.alerts.forecasting import chains
from feed_assets.alerts.forecasting.chains import Chain, ChainReader, OpenDeadline
from feed_assets.alerts.forecasting.forecasts import Forecast, find_coming, forecast
from feed_assets.entities.common import Kind
from feed_assets.log.messages.levels import SlaLevel
from feed_assets.log.records import ProcessInstanceStatus
from tests.alerts.forecasting.past import DAY, HOUR, MINUTE, came, days, ran
from tests.instances.harness import START, LifecycleHarness, counted_statements, feed, process

SLA = {"low": "hours(2)", "high": "hours(4)"}
DONE = {"should_start_in": "hours(2)", "should_end_in": "hours(3)"}
TODAY = START + 30 * DAY
LOW, HIGH = SlaLevel.LOW, SlaLevel.HIGH
RUNNING, READY = ProcessInstanceStatus.RUNNING, ProcessInstanceStatus.READY


@pytest.fixture
def lifecycle(tmp_path: Path, state_url: str) -> LifecycleHarness:
    """Clicks come each day, are counted, and the counts reported. One day in three is three hours late."""
    made = LifecycleHarness.of(
        tmp_path,
        feed("clicks", "days(1)", sla=SLA),
        feed("counts", "days(1)", sla=SLA),
        feed("reports", "days(1)", sla=SLA),
        process("count", "days(1)", inputs={"clicks": "now(0,0)"}, outputs={"counts": "now(0,0)"}, sla=DONE),
        process("report", "days(1)", inputs={"counts": "now(0,0)"}, outputs={"reports": "now(0,0)"}, sla=DONE),
        state=state_url,
    )
    late = {time: 3 * HOUR if n % 3 == 0 else 30 * MINUTE for n, time in enumerate(days(0, 30))}
    came(made, "clicks", late)
    for time, delay in late.items():
        ran(made, "count", time, delay, delay + 5 * MINUTE, delay + 25 * MINUTE)
        ran(made, "report", time, delay + 25 * MINUTE, delay + 26 * MINUTE, delay + 36 * MINUTE)
    return made


def forecast_of(
    lifecycle: LifecycleHarness, kind: Kind, name: str, level: SlaLevel, as_of: datetime, time: datetime = TODAY
) -> Forecast:
    with lifecycle.database.read() as connection:
        lifecycle.timeline.refresh(connection, as_of)
        deadlines = open_deadlines(connection, lifecycle.timeline, kind, name, "primary", level)
        assert deadlines is not None
        reader = ChainReader(connection=connection, timeline=lifecycle.timeline, as_of=as_of)
        return forecast(reader, [(deadlines, time)])[0]


def test_a_feed_is_compared_with_those_that_were_as_late(lifecycle: LifecycleHarness) -> None:
    early = forecast_of(lifecycle, Kind.FEED, "clicks", LOW, TODAY - HOUR)
    assert (
        early.reason
        == "9 of the 29 earlier ones missed, 1 of 4 on the same weekday at the same hour, 2 of 6 among the last few"
    )
    assert early.probability == pytest.approx(0.31, abs=0.03)
    late = forecast_of(lifecycle, Kind.FEED, "clicks", LOW, TODAY + HOUR)
    assert late.reason.startswith("9 of the 9 that were as late as this one missed, 1 of 1 on the same weekday")
    assert late.probability == pytest.approx(0.965, abs=0.01)
    none = forecast_of(lifecycle, Kind.FEED, "clicks", HIGH, TODAY + 200 * MINUTE)
    assert (none.probability, none.reason) == (0.5, "none of the 29 earlier ones was as late as this one")


def test_a_process_waits_for_what_is_missing_upstream_then_in_the_queue_and_for_its_work(
    lifecycle: LifecycleHarness,
) -> None:
    early = forecast_of(lifecycle, Kind.PROCESS, "count", HIGH, TODAY + MINUTE)
    assert early.reason == (
        "waits for clicks 2013-12-01T00:00Z, which usually comes in 0:29:00; then usually 0:20:00 of work"
    )
    assert early.probability == pytest.approx(0.35, abs=0.05)
    late = forecast_of(lifecycle, Kind.PROCESS, "count", HIGH, TODAY + HOUR)
    assert late.probability is not None
    assert late.probability > 0.95
    begin = forecast_of(lifecycle, Kind.PROCESS, "count", LOW, TODAY + HOUR)
    assert begin.reason == "waits for clicks 2013-12-01T00:00Z, which usually comes in 2:00:00"


def test_the_chain_goes_up_through_what_makes_the_inputs(lifecycle: LifecycleHarness) -> None:
    as_of = TODAY + HOUR
    down = forecast_of(lifecycle, Kind.PROCESS, "report", HIGH, as_of)
    assert down.reason.startswith("waits for counts 2013-12-01T00:00Z, which usually comes in 2:25:00")
    assert down.probability is not None
    assert down.probability > 0.95
    made = forecast_of(lifecycle, Kind.FEED, "counts", HIGH, as_of)
    assert made.reason.startswith("process count 2013-12-01T00:00Z makes it, which waits for clicks 2013-12-01T00:00Z")


def test_what_waits_for_too_much_is_forecast_by_its_own_past(
    lifecycle: LifecycleHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chains, "BRANCHES", 0)
    found = forecast_of(lifecycle, Kind.PROCESS, "report", HIGH, TODAY + HOUR)
    assert found.reason.startswith("waits for counts; its inputs are usually there in 2:25:00"), "counts have no events"
    assert found.probability is not None
    assert found.probability > 0.95


def test_what_has_come_upstream_counts_at_once(lifecycle: LifecycleHarness) -> None:
    before = forecast_of(lifecycle, Kind.PROCESS, "report", HIGH, TODAY + HOUR)
    came(lifecycle, "clicks", {TODAY: 59 * MINUTE})
    ran(lifecycle, "count", TODAY, 59 * MINUTE, 60 * MINUTE, None, RUNNING)
    after = forecast_of(lifecycle, Kind.PROCESS, "report", HIGH, TODAY + HOUR)
    assert before.probability is not None
    assert after.probability is not None
    assert after.probability < 0.1 < 0.9 < before.probability


def test_waiting_in_the_queue_and_working_are_measured_from_their_beginning(lifecycle: LifecycleHarness) -> None:
    came(lifecycle, "clicks", {TODAY: 30 * MINUTE})
    ran(lifecycle, "count", TODAY, 30 * MINUTE, status=READY)
    queued = forecast_of(lifecycle, Kind.PROCESS, "count", HIGH, TODAY + 32 * MINUTE)
    assert queued.reason == ("has been ready for 0:02:00 and usually begins in 0:03:00; then usually 0:20:00 of work")
    ran(lifecycle, "report", TODAY, 40 * MINUTE, 41 * MINUTE, None, RUNNING)
    working = forecast_of(lifecycle, Kind.PROCESS, "report", HIGH, TODAY + 46 * MINUTE)
    assert working.reason == "has been at work for 0:05:00 and usually ends in 0:05:00"
    assert working.probability is not None
    assert working.probability < 0.05
    stuck = forecast_of(lifecycle, Kind.PROCESS, "report", HIGH, TODAY + 2 * HOUR)
    assert (stuck.probability, stuck.earlier) == (0.5, 30)


def test_what_has_failed_for_good_is_not_waited_for(lifecycle: LifecycleHarness) -> None:
    ran(lifecycle, "count", TODAY, MINUTE, 2 * MINUTE, 3 * MINUTE, ProcessInstanceStatus.KILLED)
    found = forecast_of(lifecycle, Kind.PROCESS, "count", HIGH, TODAY + HOUR)
    assert found.reason == "is KILLED and is not retried"
    assert found.probability is not None
    assert found.probability > 0.95


def test_below_twenty_earlier_ones_there_is_not_enough_history(lifecycle: LifecycleHarness) -> None:
    # Of the feed, the first instance was there before its first event.
    for kind, name, enough in ((Kind.FEED, "clicks", 21), (Kind.PROCESS, "count", 20)):
        then = START + enough * DAY
        assert forecast_of(lifecycle, kind, name, HIGH, then, then).probability is not None
        few = forecast_of(lifecycle, kind, name, HIGH, then - DAY, then - DAY)
        assert few.probability is None
        assert few.reason == "not enough history: 19 earlier instances, and 20 are needed"


def test_those_that_are_to_come_and_are_not_there(lifecycle: LifecycleHarness) -> None:
    came(lifecycle, "clicks", {TODAY: HOUR})
    with lifecycle.database.read() as connection:
        deadlines = open_deadlines(connection, lifecycle.timeline, Kind.FEED, "clicks", "primary", LOW)
        assert deadlines is not None

        def coming(as_of: datetime, within: timedelta) -> list[datetime]:
            return [time for _, time in find_coming(connection, [deadlines], as_of, as_of + within, 9)]

        assert coming(TODAY + HOUR, DAY) == []
        assert coming(TODAY + HOUR, 26 * HOUR) == [TODAY + DAY]
        assert coming(TODAY + DAY + 2 * HOUR, HOUR) == [], "its deadline is now"
        assert coming(TODAY + HOUR, 90 * DAY) == [TODAY + n * DAY for n in range(1, 10)]


def test_what_is_to_come_is_asked_for_at_once(lifecycle: LifecycleHarness) -> None:
    names = [(Kind.FEED, "clicks"), (Kind.FEED, "reports"), (Kind.PROCESS, "count"), (Kind.PROCESS, "report")]
    keys = [DeadlineKey(kind, name, "primary", level) for kind, name in names for level in SlaLevel]

    def count(few: list[DeadlineKey]) -> int:
        with lifecycle.database.read() as connection, counted_statements() as statements:
            deadlines = [*iter_deadlines(connection, lifecycle.timeline, few)]
            found = find_coming(connection, deadlines, TODAY, TODAY + 5 * DAY, 99)
        assert len({(each.kind, each.name, each.level) for each, _ in found}) == len(few)
        return len(statements)

    assert count(keys) == count([keys[0], keys[-1]]) <= 5


def test_earlier_instances_that_a_reader_knows_are_not_asked_for_again(lifecycle: LifecycleHarness) -> None:
    high = OpenDeadline(
        kind=Kind.PROCESS, name="count", cluster="primary", nominal_time=TODAY, level=HIGH, due_at=TODAY + HOUR
    )
    with lifecycle.database.read() as connection:
        reader = ChainReader(connection=connection, timeline=lifecycle.timeline, as_of=TODAY)
        for deadline, is_asked in ((high, True), (replace(high, level=LOW), False)):
            with counted_statements() as statements:
                reader.read([deadline])
            assert any("fa_attempts" in each for each in statements) is is_asked


def test_the_statements_of_a_forecast_do_not_grow_with_history(lifecycle: LifecycleHarness) -> None:
    def count(time: datetime) -> int:
        with counted_statements() as statements:
            forecast_of(lifecycle, Kind.PROCESS, "report", HIGH, time + HOUR, time)
        return len(statements)

    before = count(TODAY)
    came(lifecycle, "clicks", dict.fromkeys(days(30, 60), HOUR))
    for time in days(30, 60):
        ran(lifecycle, "count", time, HOUR, HOUR, HOUR)
        ran(lifecycle, "report", time, HOUR, HOUR, HOUR)
    assert count(START + 90 * DAY) == before <= 14


def test_forecasts_are_read_side_by_side_as_they_are_alone(lifecycle: LifecycleHarness) -> None:
    deadlines = [
        OpenDeadline(kind=kind, name=name, cluster="primary", nominal_time=time, level=level, due_at=time + 2 * HOUR)
        for time in days(30, 10)
        for kind, name in ((Kind.PROCESS, "report"), (Kind.FEED, "counts"))
        for level in SlaLevel
    ]

    def read(some: list[OpenDeadline]) -> tuple[list[Chain], int]:
        with lifecycle.database.read() as connection, counted_statements() as statements:
            reader = ChainReader(connection=connection, timeline=lifecycle.timeline, as_of=TODAY)
            return reader.read(some), len(statements)

    alone = [chain for each in deadlines for chain in read([each])[0]]
    (few, asked), (many, asked_for_many) = read(deadlines[:10]), read(deadlines)
    assert (few, many) == (alone[:10], alone)
    assert asked_for_many <= asked <= 14, "one may ask for what another needs next"
