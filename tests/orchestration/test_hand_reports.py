"""Buttons of Dagster's UI that change what it shows: a materialization that somebody reports, and a wipe."""

from datetime import timedelta
from pathlib import Path
from shutil import rmtree

import pytest
from dagster import (
    AssetKey,
    AssetMaterialization,
    AssetObservation,
    DagsterEventType,
    DagsterInstance,
    EventRecordsFilter,
    SensorResult,
)

from feed_assets.context.safe_mode import is_restored
from feed_assets.definitions.verbs.context import open_entity_context
from feed_assets.definitions.verbs.renaming import rename
from feed_assets.log.events import EventLog
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import FeedEventKind, ProcessInstanceStatus, ProcessKey
from feed_assets.orchestration.location.asset_places import note_places
from feed_assets.orchestration.sensors import log_events
from tests.orchestration.dagster_home import Home, materialized
from tests.orchestration.hand_ticked import NOON, LocationHarness
from tests.orchestration.small import START, key, land

NUMBERS, SUMS = AssetKey(["here", "numbers"]), AssetKey(["here", "sums"])


@pytest.fixture
def harness(tmp_path: Path, instance: DagsterInstance) -> LocationHarness:
    return LocationHarness(Home(folder=tmp_path), instance)


def tick(harness: LocationHarness) -> SensorResult:
    """A tick, whose events Dagster stores."""
    result = harness.tick()
    for event in result.asset_events:
        harness.instance.report_runless_asset_event(event)
    return result


def observations(harness: LocationHarness) -> list[AssetObservation]:
    """What a tick tells by observations."""
    kind, storage = DagsterEventType.ASSET_OBSERVATION, harness.instance.event_log_storage
    before = storage.get_event_records(EventRecordsFilter(kind), limit=1)
    tick(harness)
    after = EventRecordsFilter(kind, after_cursor=before[0].storage_id if before else 0)
    found = (each.asset_observation for each in storage.get_event_records(after, ascending=True))
    return [each for each in found if each is not None]


def report(harness: LocationHarness, asset: AssetKey, *hours: int) -> None:
    """What the button does: an event without a run, and without metadata."""
    for hour in hours:
        harness.instance.report_runless_asset_event(AssetMaterialization(asset, partition=key(hour)))


def origins(harness: LocationHarness) -> list[tuple[FeedEventKind, str]]:
    with harness.runtime.database(harness.instance).read() as connection:
        return [(each.kind, each.origin) for each in EventLog(connection).read(0, 100)]


def test_a_reported_materialization_is_looked_at_at_once_and_recorded(harness: LocationHarness) -> None:
    tick(harness)
    land(harness.home.data, 1, 5)
    report(harness, NUMBERS, 1)
    result = tick(harness)
    assert origins(harness) == [(FeedEventKind.ARRIVED, "notice:dagster")]
    assert [request.partition_key for request in result.run_requests or ()] == [key(1)]
    assert not tick(harness).asset_events
    assert len(origins(harness)) == 1


def test_a_reported_materialization_of_what_is_not_there_is_contradicted_once(harness: LocationHarness) -> None:
    tick(harness)
    report(harness, NUMBERS, 1, 13)
    report(harness, SUMS, 1)
    harness.instance.report_runless_asset_event(AssetMaterialization(NUMBERS, partition="2031-01-01-00:00"))
    told = {(each.asset_key, each.partition): str(each.description) for each in observations(harness)}
    assert list(told) == [(NUMBERS, key(1)), (NUMBERS, key(13)), (SUMS, key(1))]
    assert told[NUMBERS, key(1)] == (
        "it was reported as materialized, but feed numbers on here at 2026-01-01T01:00Z is MISSING: "
        f"file://{harness.home.data}/numbers/2026-01-01/01 did not exist at 2026-01-01T12:05:00Z, "
        "and neither did its flag _SUCCESS"
    )
    assert told[NUMBERS, key(13)].endswith("its nominal time is in the future")
    assert told[SUMS, key(1)].endswith("is MISSING: it has not been produced")
    assert origins(harness) == []
    assert not observations(harness)


def test_what_the_record_has_of_a_wiped_asset_is_told_again(
    harness: LocationHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_events, "RETOLD_A_TICK", 2)
    for hour in range(3):
        land(harness.home.data, hour, 1)
    tick(harness)
    assert materialized(harness.instance, "here", "numbers") == {key(0), key(1), key(2)}
    rmtree(harness.home.data / "numbers" / "2026-01-01" / "02")
    before = origins(harness)
    harness.instance.wipe_assets([NUMBERS])
    assert materialized(harness.instance, "here", "numbers") == set()
    harness.tick()
    assert materialized(harness.instance, "here", "numbers") == {key(0), key(1)}
    harness.tick()
    assert materialized(harness.instance, "here", "numbers") == {key(0), key(1), key(2)}
    assert not tick(harness).asset_events
    assert origins(harness) == before


def test_a_report_of_dagster_itself_is_no_report(harness: LocationHarness) -> None:
    land(harness.home.data, 1, 5)
    tick(harness)
    land(harness.home.data, 2, 5)
    harness.at(START + timedelta(days=1))
    tick(harness)
    assert {origin for _, origin in origins(harness)} == {"arrival"}


def test_what_the_record_has_of_a_renamed_feed_is_told_again_under_its_new_asset(
    harness: LocationHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_events, "RETOLD_A_TICK", 2)
    for hour in range(3):
        land(harness.home.data, hour, 1)
    tick(harness)
    database = harness.runtime.database(harness.instance)
    with database.begin() as connection:
        keys = [ProcessKey("summing", "here", START + timedelta(hours=hour)) for hour in range(12)]
        killed, every = ProcessInstanceStatus.KILLED, set(ProcessInstanceStatus)
        ProcessInstances(connection).transition_many(keys, every, status=killed, request_key=None, updated_at=NOON)
    note_places(database, harness.layout)
    before = origins(harness)
    context = open_entity_context(harness.settings, database, author="ann", now=NOON, skip_checks=True)
    rename(context, None, "numbers", "figures")
    harness.reopen()
    (told,) = [each for each in observations(harness) if each.asset_key == NUMBERS]
    assert told.partition is None
    assert told.description == (
        "feed 'numbers' was renamed to 'figures' at 2026-01-01T12:05:00+00:00 and is the asset here/figures now; "
        "this asset keeps its history"
    )
    assert materialized(harness.instance, "here", "figures") == {key(0), key(1)}
    assert NUMBERS not in {each.asset_key for each in observations(harness)}
    assert materialized(harness.instance, "here", "figures") == {key(0), key(1), key(2)}
    assert materialized(harness.instance, "here", "numbers") == {key(0), key(1), key(2)}
    assert not tick(harness).asset_events
    assert origins(harness) == before
    with harness.runtime.database(harness.instance).read() as connection:
        assert not is_restored(connection)
