"""What people see in Dagster of instances that are late: a check, observations, and the metadata of what came late."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from dagster import (
    AssetCheckEvaluation,
    AssetCheckKey,
    AssetKey,
    DagsterInstance,
)

from feed_assets.alerts.deadlines.alerts import acknowledge, find_alerts
from feed_assets.alerts.deadlines.queries import SlaQuery
from feed_assets.instances.arrival.recording import record_arrival
from feed_assets.log.messages.outbox import Outbox
from feed_assets.log.records import FeedEventKind, NewFeedEvent
from feed_assets.orchestration.definitions import assemble_definitions, without_beta_warnings
from feed_assets.orchestration.location.reloading import build_context
from feed_assets.orchestration.sensors.deadlines import report_changed, run_sla_tick
from feed_assets.receivers import Topic
from tests.orchestration.dagster_home import Home
from tests.orchestration.hand_ticked import LocationHarness
from tests.orchestration.small import ENTITIES, START, key, land

NUMBERS = AssetKey(["here", "numbers"])
WITH_SLA = ENTITIES.replace(
    "    name: numbers\n", "    name: numbers\n    sla: {low: hours(1), high: hours(3), since: 2026-01-01T00:00Z}\n"
)


@pytest.fixture
def late(tmp_path: Path, instance: DagsterInstance) -> LocationHarness:
    """A feed with an SLA, of which the first hour has come and the next ones have not."""
    harness = LocationHarness(Home(folder=tmp_path), instance, WITH_SLA)
    land(harness.home.data, 0, 1)
    at(harness, 0, 30)
    return harness


def at(harness: LocationHarness, hours: int, minutes: int) -> str:
    """Tick both sensors at a time; return what the one for deadlines says."""
    harness.at(START + timedelta(hours=hours, minutes=minutes))
    for event in harness.tick().asset_events:
        if not isinstance(event, AssetCheckEvaluation):
            harness.instance.report_runless_asset_event(event)
    return run_sla_tick(harness.runtime, harness.layout, "here", harness.instance).skip_message or ""


def checks(instance: DagsterInstance) -> list[tuple[bool, str, str]]:
    """The results of the check, oldest first: passed, severity, sentence."""
    records = instance.event_log_storage.get_asset_check_execution_history(AssetCheckKey(NUMBERS, "on_time"), limit=99)
    found = [record.event.dagster_event.event_specific_data for record in reversed(records) if record.event]  # type: ignore[union-attr]
    return [(each.passed, each.severity.value, each.description or "") for each in found]  # type: ignore[union-attr]


def observations(instance: DagsterInstance) -> list[tuple[str | None, str]]:
    records = instance.fetch_observations(NUMBERS, limit=99).records
    return [
        (each.partition_key, str(each.asset_observation.metadata["feed_assets/sla"].value))  # type: ignore[union-attr]
        for each in reversed(records)
    ]


def test_the_check_turns_yellow_red_and_green_again_and_is_told_only_when_it_changes(late: LocationHarness) -> None:
    assert checks(late.instance) == [(True, "ERROR", "no instance is late")]
    assert at(late, 1, 59) == "no deadline has passed"
    assert at(late, 2, 1) == "1 missed, 1 shown at their partitions, 1 check reported"
    assert at(late, 2, 2) == "no deadline has passed"
    at(late, 4, 1)
    land(late.home.data, 1, 1)
    land(late.home.data, 2, 1)
    land(late.home.data, 3, 1)
    assert at(late, 4, 30) == "4 recovered, 1 check reported"
    assert checks(late.instance) == [
        (True, "ERROR", "no instance is late"),
        (False, "WARN", "1 instance late: 2026-01-01T01:00Z"),
        (False, "ERROR", "3 instances late, the oldest 2026-01-01T01:00Z"),
        (True, "ERROR", "no instance is late"),
    ]
    assert observations(late.instance) == [
        (key(1), "low missed: due at 2026-01-01T02:00Z"),
        (key(1), "high missed: due at 2026-01-01T04:00Z"),
        (key(2), "low missed: due at 2026-01-01T03:00Z"),
        (key(3), "low missed: due at 2026-01-01T04:00Z"),
    ]


def test_what_came_late_says_by_how_much(late: LocationHarness) -> None:
    land(late.home.data, 1, 1)
    at(late, 4, 30)
    records = late.instance.fetch_materializations(NUMBERS, limit=9).records
    said = {
        record.partition_key: record.asset_materialization.metadata.get("feed_assets/sla")  # type: ignore[union-attr]
        for record in records
    }
    assert said[key(0)] is None
    assert str(said[key(1)].value) == "0:30:00 after sla.high hours(3)"  # type: ignore[union-attr]


def test_what_was_due_before_the_deadline_was_declared_and_what_an_undo_restores_is_not_late(
    tmp_path: Path, instance: DagsterInstance
) -> None:
    """The first three hours are history: the SLA is declared without `since` when all of them are overdue."""
    harness = LocationHarness(Home(folder=tmp_path), instance, WITH_SLA.replace(", since: 2026-01-01T00:00Z", ""))
    land(harness.home.data, 0, 1)
    at(harness, 4, 30)
    for hour in (1, 5, 6):
        land(harness.home.data, hour, 1)
    at(harness, 7, 10)
    restored = NewFeedEvent(
        feed="numbers",
        cluster="here",
        nominal_time=START + timedelta(hours=5),
        kind=FeedEventKind.RESTORED,
        origin="an undo",
        recorded_at=START + timedelta(hours=7.2),
    )
    with harness.runtime.database(instance).begin() as connection:
        record_arrival(connection, restored)
    at(harness, 7, 20)
    records = instance.fetch_materializations(NUMBERS, limit=9).records
    said = {
        (record.partition_key, getattr(record.asset_materialization.metadata.get("feed_assets/sla"), "value", None))  # type: ignore[union-attr]
        for record in records
    }
    assert said == {
        (key(0), None),
        (key(1), None),
        (key(5), "1:10:00 after sla.low hours(1)"),
        (key(5), None),
        (key(6), "0:10:00 after sla.low hours(1)"),
    }


def test_the_check_can_be_executed(late: LocationHarness) -> None:
    at(late, 2, 1)
    with without_beta_warnings():
        definitions = assemble_definitions(late.runtime, late.layout, {})
        job = definitions.resolve_implicit_global_asset_job_def().get_subset(
            asset_selection=set(), asset_check_selection={AssetCheckKey(NUMBERS, "on_time")}
        )
    found = job.execute_in_process(instance=late.instance)
    (evaluation,) = found.get_asset_check_evaluations()
    assert (evaluation.passed, evaluation.severity.value) == (False, "WARN")
    assert key(1) in str(evaluation.metadata["feed_assets/sla"].value)


def test_who_acknowledges_what_is_late_silences_it_until_it_misses_the_next_deadline(late: LocationHarness) -> None:
    at(late, 2, 1)
    database = late.runtime.database(late.instance)
    context = build_context(late.runtime, late.runtime.timeline(), database, START + timedelta(hours=2, minutes=5))
    query = SlaQuery(start=START, end=context.as_of)
    assert len(acknowledge(context.by("ann"), query).rows) == 1
    assert find_alerts(context, query).rows == ()
    at(late, 2, 10)
    assert [each[:2] for each in checks(late.instance)][-1] == (True, "ERROR")
    at(late, 4, 1)
    assert [each[:2] for each in checks(late.instance)][-1] == (False, "ERROR")
    rows = find_alerts(context, query).rows
    assert ("high", None) in [(row.level.value, row.acknowledged_by) for row in rows]


def test_a_feed_that_loses_its_sla_while_it_is_late_turns_green_a_last_time(late: LocationHarness) -> None:
    at(late, 2, 1)
    feeds = {key: replace(record, sla=None) for key, record in late.layout.plan.feeds.items()}
    without = replace(late.layout, plan=replace(late.layout.plan, feeds=feeds, digest="without"))
    for _ in range(2):
        report_changed(late.open_tick("here"), without, late.instance, late.layout)
    assert checks(late.instance)[1:] == [
        (False, "WARN", "1 instance late: 2026-01-01T01:00Z"),
        (True, "ERROR", "no instance is late"),
    ]


def test_a_crash_before_it_is_recorded_shows_again_and_tells_once(
    late: LocationHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("feed_assets.alerts.deadlines.store.SlaMisses.mark_shown", dies)
        with pytest.raises(KeyboardInterrupt):
            at(late, 2, 1)
    at(late, 2, 2)
    assert observations(late.instance) == [(key(1), "low missed: due at 2026-01-01T02:00Z")] * 2
    with late.runtime.database(late.instance).read() as connection:
        (message,) = Outbox(connection).read(0, 9, Topic.SLA)
    assert "did not exist at" in str(message.payload.reason)  # type: ignore[union-attr]
