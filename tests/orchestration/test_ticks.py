"""Ticks of the arrival sensor against a real Dagster instance, without a daemon."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from dagster import (
    AssetCheckEvaluation,
    AssetKey,
    AssetMaterialization,
    DagsterInstance,
    DagsterRunStatus,
    RunRequest,
    SensorResult,
    SkipReason,
)
from dagster._core.test_utils import create_run_for_test
from sqlalchemy import text

from feed_assets.context.operation import open_context, resolve_subject
from feed_assets.explain.explanations import explain
from feed_assets.log.events import EventLog
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import (
    Cause,
    FeedEventKind,
    FeedInstance,
    FeedInstanceStatus,
    NewFeedEvent,
    ProcessInstanceStatus,
    ProcessKey,
)
from feed_assets.orchestration import names
from feed_assets.orchestration.runs.listed_instances import run_replication_tick
from feed_assets.orchestration.sensors import log_events
from feed_assets.orchestration.sensors.tick_cursors import ReportedEvent, TickCursor, parse_cursor
from feed_assets.orchestration.sensors.ticks import log_exhausted
from feed_assets.plan.records import Plan
from feed_assets.rebuild.rebuilding import rebuild_state
from feed_assets.settings import STATE_FILE
from feed_assets.sql.errors import StateSchemaError
from feed_assets.sql.tables import VERSION_TABLE
from feed_assets.timing.dates import render_datetime
from tests.orchestration.dagster_home import Home
from tests.orchestration.hand_ticked import NOON, LocationHarness
from tests.orchestration.small import ENTITIES, START, key, land

THREE_AT_ONCE = ENTITIES.replace("timeout: months(60)", "timeout: months(60)\n    parallel: 3")


def arrivals(result: SensorResult) -> list[str | None]:
    return [event.partition for event in result.asset_events if isinstance(event, AssetMaterialization)]


def test_an_arrival_leads_to_the_page_of_its_instance(tmp_path: Path, instance: DagsterInstance) -> None:
    (tmp_path / "feed_assets.yaml").write_text("server: {url: 'https://feeds.example.org/'}\n")
    harness = LocationHarness(Home(folder=tmp_path), instance)
    land(harness.home.data, 3, 1)
    (told,) = [each for each in harness.tick().asset_events if isinstance(each, AssetMaterialization)]
    assert told.metadata["feed_assets/page"].value == "https://feeds.example.org/ui/feed/numbers/at/2026-01-01T03:00Z"


def test_an_arrival_and_the_run_that_it_makes_ready_are_one_tick(harness: LocationHarness) -> None:
    land(harness.home.data, 3, 1)
    result = harness.tick()
    assert arrivals(result) == [key(3)]
    (request,) = result.run_requests or ()
    assert request.partition_key == key(3)
    assert request.asset_selection == [AssetKey(["here", "sums"])]
    assert request.tags["feed_assets/process"] == "summing"
    assert request.tags["feed_assets"] == "1 new: 2026-01-01T03:00Z of summing"
    assert min(name for name in request.tags if not name.startswith("dagster/")) == "feed_assets"
    assert harness.counts() == {ProcessInstanceStatus.WAITING: 12, ProcessInstanceStatus.READY: 1}


def test_the_location_is_shown_as_made_and_its_check_is_of_that(harness: LocationHarness) -> None:
    """What was never made is shown as missing."""
    for _ in range(2):
        harness.tick()
    records = harness.instance.fetch_materializations(names.location_key(None), limit=9).records
    made = [each.asset_materialization for each in records]
    assert [each and each.metadata[names.META_DIGEST].value for each in made] == [harness.location.digest]


def test_files_that_have_changed_since_they_were_loaded_are_told_once(
    harness: LocationHarness, caplog: pytest.LogCaptureFixture
) -> None:
    (file, *_) = (harness.home.folder / "entities").iterdir()
    file.write_text(file.read_text().replace("months(60)", "months(61)"))
    (check,) = [each for each in harness.tick().asset_events if isinstance(each, AssetCheckEvaluation)]
    assert not check.passed
    assert "have changed since Dagster loaded them" in (check.description or "")
    context = open_context(harness.settings, harness.runtime.database(harness.instance))
    (found,) = explain(context, resolve_subject(context, "sums", START)).items
    assert "have changed since Dagster loaded them" in found.render()
    assert harness.tick().run_requests in (None, [])
    (told,) = [message for message in caplog.messages if "have changed since Dagster loaded them" in message]
    assert "Reload the code location" in told
    harness.reopen()
    (check,) = [each for each in harness.tick().asset_events if isinstance(each, AssetCheckEvaluation)]
    assert check.passed
    assert len([message for message in caplog.messages if "have changed since" in message]) == 1


def test_a_run_says_what_it_has_and_why(harness: LocationHarness) -> None:
    for hour in (3, 4, 5):
        land(harness.home.data, hour, 1)
    database = harness.runtime.database(harness.instance)
    harness.tick()
    with database.begin() as connection:
        keys = [ProcessKey("summing", "here", START + timedelta(hours=hour)) for hour in (3, 4, 5)]
        for number, (each, cause) in enumerate(zip(keys, (None, Cause.COMMAND, Cause.LATE_DATA), strict=True)):
            ProcessInstances(connection).transition(
                each,
                set(ProcessInstanceStatus),
                status=ProcessInstanceStatus.READY,
                cause=cause,
                cause_detail="run again by ann via loader" if cause is Cause.COMMAND else None,
                attempt=number,
                request_key=None,
                requested_at=None,
                updated_at=NOON,
            )
    (request,) = harness.tick().run_requests or ()
    span = "2026-01-01T04:00Z to 2026-01-01T05:00Z"  # what is new comes after them
    assert request.tags["feed_assets"] == f"1 rerun, 1 late: {span} of summing"
    assert request.tags["feed_assets/user"] == "ann via loader"


def test_neighbours_share_a_run(harness: LocationHarness) -> None:
    for hour in (3, 4, 5):
        land(harness.home.data, hour, 1)
    (request,) = harness.tick().run_requests or ()
    assert request.partition_key is None
    assert request.tags["dagster/asset_partition_range_start"] == key(3)
    assert request.tags["dagster/asset_partition_range_end"] == key(5)
    assert request.tags["feed_assets"] == "3 new: 2026-01-01T03:00Z to 2026-01-01T05:00Z of summing"


def test_never_more_runs_than_parallel_are_asked_for(harness: LocationHarness) -> None:
    for hour in (3, 5):
        land(harness.home.data, hour, 1)
    assert len(harness.tick().run_requests or ()) == 1
    land(harness.home.data, 7, 1)
    harness.at(NOON + timedelta(seconds=30))
    assert not harness.tick().run_requests


def test_a_second_tick_asks_for_nothing_and_tells_nothing_again(harness: LocationHarness) -> None:
    land(harness.home.data, 3, 1)
    harness.tick()
    again = harness.tick()
    assert not again.run_requests
    assert not again.asset_events


def test_a_tick_whose_cursor_was_lost_tells_again_and_asks_for_nothing(harness: LocationHarness) -> None:
    land(harness.home.data, 3, 1)
    harness.tick()
    harness.cursor = None
    again = harness.tick()
    assert arrivals(again) == [key(3)]
    assert not again.run_requests


@pytest.mark.parametrize("later", [1, 4])
def test_after_a_restore_from_a_backup_all_that_lies_on_storage_is_told(harness: LocationHarness, later: int) -> None:
    """The restored log ends before the cursor, or has other events under the numbers that the cursor knows."""
    land(harness.home.data, 1, 1)
    harness.tick()
    state = Path(harness.instance.root_directory) / STATE_FILE
    backup = state.with_suffix(".backup")
    with closing(sqlite3.connect(state)) as source, closing(sqlite3.connect(backup)) as target:
        source.backup(target)
    for hour in (2, 3, 4):
        land(harness.home.data, hour, 1)
        harness.at(NOON + timedelta(minutes=15 * hour))
        assert arrivals(harness.tick()) == [key(hour)]
    harness.runtime.database(harness.instance).close()
    for file in state.parent.glob(f"{STATE_FILE}-*"):
        file.unlink()
    backup.replace(state)
    harness.reopen()
    for hour in range(5, 5 + later):
        land(harness.home.data, hour, 1)
    harness.at(NOON + timedelta(hours=2))
    told = harness.tick()
    assert set(arrivals(told)) >= {key(hour) for hour in range(2, 5 + later)}
    assert "feed-assets state rebuild" in str(told.skip_reason)
    assert arrivals(harness.tick()) == []


def test_a_restored_state_launches_nothing_until_it_is_rebuilt(tmp_path: Path, instance: DagsterInstance) -> None:
    harness = LocationHarness(Home(folder=tmp_path), instance, THREE_AT_ONCE)
    database = harness.runtime.database(harness.instance)
    land(harness.home.data, 1, 1)
    harness.tick()
    newest = parse_cursor(harness.cursor).reported[0]
    harness.cursor = TickCursor(reported=(replace(newest, digest="of another"),)).render()
    land(harness.home.data, 2, 1)
    harness.at(NOON + timedelta(minutes=15))
    held = harness.tick()
    assert not held.run_requests
    (check,) = [event for event in held.asset_events if isinstance(event, AssetCheckEvaluation)]
    assert not check.passed
    assert "restored from a backup" in str(check.metadata["failures"])
    assert not harness.tick().run_requests
    asked = run_replication_tick(harness.runtime, harness.layout, "here", harness.instance)
    assert isinstance(asked, SkipReason)
    assert "restored from a backup" in str(asked.skip_message)
    rebuild_state(harness.settings, database, author="ann")
    told = harness.tick()
    assert key(2) in [request.partition_key for request in told.run_requests or ()]
    (check,) = [event for event in told.asset_events if isinstance(event, AssetCheckEvaluation)]
    assert check.passed


def test_a_state_that_was_rebuilt_before_the_daemon_began_is_not_held(
    tmp_path: Path, instance: DagsterInstance
) -> None:
    harness = LocationHarness(Home(folder=tmp_path), instance, THREE_AT_ONCE)
    land(harness.home.data, 1, 1)
    harness.tick()
    newest = parse_cursor(harness.cursor).reported[0]
    harness.cursor = TickCursor(reported=(replace(newest, digest="of another"),)).render()
    rebuild_state(harness.settings, harness.runtime.database(harness.instance), author="ann")
    land(harness.home.data, 2, 1)
    harness.at(NOON + timedelta(minutes=15))
    assert key(2) in [request.partition_key for request in harness.tick().run_requests or ()]


def test_what_a_run_has_published_is_told_if_dagster_does_not_know_the_run(
    tmp_path: Path, instance: DagsterInstance
) -> None:
    shifted = ENTITIES.replace('{feed: sums, instance: "now(0,0)"}', '{feed: sums, instance: "now(1,0)"}')
    harness = LocationHarness(Home(folder=tmp_path), instance, shifted)
    harness.tick()
    known = create_run_for_test(instance).run_id
    origins = {2: f"run:{known}", 3: "run:lost", 4: "rebuild"}
    published = [
        NewFeedEvent(
            feed="sums",
            cluster="here",
            nominal_time=START + timedelta(hours=hour),
            kind=FeedEventKind.PRODUCED,
            origin=origin,
            recorded_at=NOON,
            payload={"process": "summing"},
        )
        for hour, origin in origins.items()
    ]
    with harness.runtime.database(instance).begin() as connection:
        EventLog(connection).append(published)
    told = [event for event in harness.tick().asset_events if isinstance(event, AssetMaterialization)]
    assert [event.partition for event in told if event.asset_key.path[-1] == "sums"] == [key(3), key(4)]
    assert [event.partition for event in told if event.asset_key.path[-1] == "summing"] == [key(2), key(3)]


def test_what_a_run_has_published_is_told_again_when_the_run_was_deleted(harness: LocationHarness) -> None:
    """At once by the first look, and until Dagster shows the partition; what a known run made is left to the run."""
    instance, runs = harness.instance, [create_run_for_test(harness.instance).run_id for _ in range(2)]
    published = [
        NewFeedEvent(
            feed="sums",
            cluster="here",
            nominal_time=START + timedelta(hours=hour),
            kind=FeedEventKind.PRODUCED,
            origin=f"run:{run}",
            recorded_at=NOON,
        )
        for hour, run in enumerate(runs)
    ]
    with harness.runtime.database(instance).begin() as connection:
        seqs = EventLog(connection).append(published)
        FeedInstances(connection).put(
            FeedInstance(
                feed=event.feed,
                cluster=event.cluster,
                nominal_time=event.nominal_time,
                status=FeedInstanceStatus.AVAILABLE,
                updated_at=NOON,
                event_seq=seq,
            )
            for event, seq in zip(published, seqs, strict=True)
        )
    harness.tick()
    assert materializations(harness.tick()) == []
    instance.delete_run(runs[0])
    (told,) = materializations(harness.tick())
    assert (told.asset_key.path[-1], told.partition) == ("sums", key(0))
    instance.report_runless_asset_event(told)
    assert materializations(harness.tick()) == []


def test_the_look_at_what_was_told_goes_round(harness: LocationHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_events, "LOOKED_A_TICK", 2)
    for hour in range(3):
        land(harness.home.data, hour, 1)
    harness.tick()
    looked = []
    for _ in range(3):
        harness.tick()
        looked.append(parse_cursor(harness.cursor).looked)
    assert looked in ([0, 2, 0], [2, 0, 2])


def materializations(told: SensorResult) -> list[AssetMaterialization]:
    return [event for event in told.asset_events if isinstance(event, AssetMaterialization)]


def test_a_tick_refuses_a_state_that_another_release_has_migrated_since(harness: LocationHarness) -> None:
    harness.tick()
    with harness.runtime.database(harness.instance).begin() as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    land(harness.home.data, 3, 1)
    with pytest.raises(StateSchemaError):
        harness.tick()


def test_a_request_that_dagster_never_saw_is_made_again(harness: LocationHarness) -> None:
    land(harness.home.data, 3, 1)
    (first,) = harness.tick().run_requests or ()
    harness.at(NOON + timedelta(seconds=61))
    (second,) = harness.tick().run_requests or ()
    assert second.partition_key == first.partition_key
    assert second.run_key != first.run_key


def test_a_run_that_is_cancelled_before_it_began_is_requested_again_and_says_what_stops_it(
    harness: LocationHarness,
) -> None:
    for hour in (3, 4, 5):
        land(harness.home.data, hour, 1)
    (first,) = harness.tick().run_requests or ()
    run = create_run_for_test(harness.instance, job_name="any", tags=dict(first.tags), status=DagsterRunStatus.CANCELED)
    harness.at(NOON + timedelta(seconds=61))
    (second,) = harness.tick().run_requests or ()
    assert ends_of(second) == ends_of(first) == (key(3), key(5))
    (said,) = [entry.message for entry in harness.instance.all_logs(run.run_id)]
    assert "3 instances had not begun" in said
    assert "feed-assets entity suspend process summing --clusters here" in said


def ends_of(request: RunRequest) -> tuple[str, str]:
    return request.tags["dagster/asset_partition_range_start"], request.tags["dagster/asset_partition_range_end"]


def test_files_without_the_flag_wait(harness: LocationHarness) -> None:
    land(harness.home.data, 3, 1)
    (harness.home.data / "numbers" / "2026-01-01" / "03" / "_SUCCESS").unlink()
    assert not harness.tick().run_requests
    land(harness.home.data, 3, 1)
    harness.at(NOON + timedelta(hours=2))
    assert harness.tick().run_requests


def test_the_check_on_the_location_is_reported_once(harness: LocationHarness) -> None:
    checks = [event for event in harness.tick().asset_events if isinstance(event, AssetCheckEvaluation)]
    assert [check.passed for check in checks] == [True]
    assert not [event for event in harness.tick().asset_events if isinstance(event, AssetCheckEvaluation)]


def test_pools_hold_as_many_runs_as_parallel_says(tmp_path: Path, instance: DagsterInstance) -> None:
    harness = LocationHarness(
        Home(folder=tmp_path), instance, ENTITIES.replace("name: summing", "name: summing\n    parallel: 3")
    )
    harness.tick()
    (pool,) = instance.event_log_storage.get_pool_limits()
    assert (pool.name, pool.limit, pool.from_default) == ("process/here/summing", 3, False)


def test_priority_and_queue_of_a_process_are_tags_of_its_runs(tmp_path: Path, instance: DagsterInstance) -> None:
    properties = "name: summing\n    properties: {jobPriority: HIGH, queueName: reports}"
    harness = LocationHarness(Home(folder=tmp_path), instance, ENTITIES.replace("name: summing", properties))
    land(harness.home.data, 0, 1)
    (request,) = harness.tick().run_requests or ()
    assert (request.tags["dagster/priority"], request.tags["feed_assets/queue"]) == ("100000000", "reports")


def test_keys_of_odd_frequencies_are_added_as_their_instances_come_into_being(
    tmp_path: Path, instance: DagsterInstance
) -> None:
    odd = ENTITIES.replace("hours(1)", "hours(5)")
    harness = LocationHarness(Home(folder=tmp_path), instance, odd)
    (request,) = harness.tick().dynamic_partitions_requests or ()
    assert list(request.partition_keys) == [key(0), key(5), key(10)]
    instance.add_dynamic_partitions(request.partitions_def_name, list(request.partition_keys))
    assert not harness.tick().dynamic_partitions_requests
    harness.at(NOON + timedelta(hours=4))
    (later,) = harness.tick().dynamic_partitions_requests or ()
    assert list(later.partition_keys) == [key(15)]


def test_a_cursor_goes_both_ways_and_a_strange_one_is_refused() -> None:
    events = (ReportedEvent(seq=7, digest="a"), ReportedEvent(seq=2, digest="b"))
    cursor = TickCursor(reported=events, location="d", health="h", looked=3)
    assert parse_cursor(cursor.render()) == cursor
    earlier = '{"version": 1, "told": 7, "checked": "d"}'
    assert parse_cursor(earlier) == TickCursor(reported=(ReportedEvent(seq=7),), location="d")
    with pytest.raises(ValueError, match="does not have version 1"):
        parse_cursor('{"version": 2}')


def test_row_79_used_up_retries_are_an_error_in_the_log_of_the_sensor(caplog: pytest.LogCaptureFixture) -> None:
    failed = tuple(ProcessKey("summing", "here", NOON + timedelta(hours=n)) for n in range(2))
    plan = Plan(digest="", clusters={}, feeds={}, processes={})
    log_exhausted(plan, failed)
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    expected = ", ".join(render_datetime(key.nominal_time) for key in failed)
    assert record.getMessage() == f"process 'summing' on here: all retries of instances {expected} have failed"
