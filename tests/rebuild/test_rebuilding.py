"""A state that is lost, or older than what lies on storage, is rebuilt from storage."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from shutil import rmtree

import pytest
from sqlalchemy import update

from feed_assets.clock import FrozenClock
from feed_assets.context.operation import OperationContext
from feed_assets.entities.bundle import AnyEntity
from feed_assets.log.definitions.records import Rename
from feed_assets.log.definitions.store import Definitions
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.instances.tables import attempts
from feed_assets.log.records import FeedEventKind, FeedInstanceStatus, ProcessInstanceStatus, ProcessKey, WatermarkKind
from feed_assets.rebuild.rebuilding import Rebuilt, rebuild_instances
from feed_assets.storage.paths import MANIFEST_NAME
from tests.instances.harness import START, LifecycleHarness, feed, process
from tests.retention.harness import hourly

ENTITIES = (
    feed("clicks"),
    feed("counts"),
    feed("extras"),
    feed("shifted"),
    process("count", inputs={"clicks": "now(0,0)"}, outputs={"counts": "now(0,0)", "extras": "now(0,0)"}),
    process("shift", inputs={"counts": "now(0,0)"}, outputs={"shifted": "now(1,0)"}),
    process("ping", inputs={"clicks": "now(0,0)"}),
)
NOW = START + timedelta(hours=8, minutes=5)
TIMES = hourly(START, 9)


def rebuild(lifecycle: LifecycleHarness, *, dry_run: bool = False) -> Rebuilt:
    clock = FrozenClock(NOW)
    context = OperationContext(
        timeline=lifecycle.timeline,
        database=lifecycle.database,
        stores=lifecycle.stores,
        clock=clock,
        real_clock=clock,
        as_of=NOW,
    )
    return rebuild_instances(context, dry_run=dry_run)


def run_all(lifecycle: LifecycleHarness) -> list[tuple[str, datetime]]:
    """Run what ticks ask for, until they ask for nothing; the process instances that were run, in order."""
    ran: list[tuple[str, datetime]] = []
    while requests := lifecycle.tick(NOW):
        lifecycle.launch(requests, NOW)
        ran += [(request.process.process, time) for request in requests for time in request.nominal_times]
    return sorted(ran)


@pytest.fixture
def finished(tmp_path: Path) -> LifecycleHarness:
    """Nine hours have arrived, and everything has run."""
    lifecycle = LifecycleHarness.of(tmp_path, *ENTITIES)
    lifecycle.land("clicks", *TIMES)
    assert len(run_all(lifecycle)) == 3 * len(TIMES)
    return lifecycle


def lost(lifecycle: LifecycleHarness, *entities: AnyEntity) -> LifecycleHarness:
    """The same storage with an empty state."""
    return LifecycleHarness.of(
        lifecycle.root, *(entities or ENTITIES), state=f"sqlite:///{lifecycle.root / 'empty.db'}"
    )


def test_nothing_runs_again_after_the_state_was_lost(finished: LifecycleHarness) -> None:
    lifecycle = lost(finished)
    planned = rebuild(lifecycle, dry_run=True)
    assert lifecycle.events() == []
    rebuilt = rebuild(lifecycle)
    assert (planned.feeds, planned.is_empty) == (rebuilt.feeds, False)
    watermark = lifecycle.watermark(WatermarkKind.PROCESS, "count")
    assert watermark is not None
    assert watermark.next_time == START + timedelta(hours=9)
    assert run_all(lifecycle) == []
    for name in ("clicks", "counts", "extras", "shifted"):
        assert lifecycle.feed_statuses(name) == finished.feed_statuses(name)
    for name in ("count", "shift"):
        assert lifecycle.statuses(name) == finished.statuses(name)
        for time, row in lifecycle.instances(name).items():
            before = finished.instances(name)[time]
            assert (row.run_id, row.inputs, row.release) == (before.run_id, before.inputs, before.release)
    assert {event.kind for event in lifecycle.events("counts")} == {FeedEventKind.PRODUCED}
    assert lifecycle.statuses("ping") == {}
    assert rebuild(lifecycle).is_empty


def test_what_a_process_wrote_under_a_former_name_is_its_own(finished: LifecycleHarness) -> None:
    counting = process("tally", inputs={"clicks": "now(0,0)"}, outputs={"counts": "now(0,0)", "extras": "now(0,0)"})
    lifecycle = lost(finished, *(each for each in ENTITIES if each.name != "count"), counting)
    with lifecycle.database.begin() as connection:
        former = Rename(kind="process", former="count", name="tally", renamed_at=NOW, author="ann")
        Definitions(connection).put_rename(former)
    rebuild(lifecycle)
    assert run_all(lifecycle) == []
    assert set(lifecycle.statuses("tally").values()) == {ProcessInstanceStatus.SUCCEEDED}


def test_what_is_not_on_storage_runs(finished: LifecycleHarness) -> None:
    for name, hour in (("counts", 3), ("extras", 5)):
        rmtree(finished.folder(name, TIMES[hour]))
    lifecycle = lost(finished)
    rebuild(lifecycle)
    assert run_all(lifecycle) == [("count", TIMES[3]), ("count", TIMES[5])]
    assert set(lifecycle.statuses("count").values()) == {ProcessInstanceStatus.SUCCEEDED}


def test_instances_before_the_oldest_on_storage_are_not_made_again(finished: LifecycleHarness) -> None:
    for time in TIMES[:4]:
        for name in ("clicks", "counts", "extras", "shifted"):
            rmtree(finished.folder(name, time), ignore_errors=True)
    lifecycle = lost(finished)
    rebuilt = rebuild(lifecycle)
    assert {each.process: each.begins_at for each in rebuilt.processes}["count"] == TIMES[4]
    assert run_all(lifecycle) == []
    assert min(lifecycle.statuses("count")) == TIMES[4]


def test_a_process_whose_validity_has_ended_has_no_instance_left_to_read_its_inputs(tmp_path: Path) -> None:
    end = TIMES[-1] + timedelta(hours=1)
    counting = process("count", inputs={"clicks": "now(0,0)"}, outputs={"counts": "now(0,0)"}, end=end)
    entities = (feed("clicks", end=end), feed("counts", end=end), counting)
    lifecycle = LifecycleHarness.of(tmp_path, *entities)
    lifecycle.land("clicks", *TIMES)
    run_all(lifecycle)
    rebuilt = lost(lifecycle, *entities)
    rebuild(rebuilt)
    watermark = rebuilt.watermark(WatermarkKind.PROCESS, "count")
    assert watermark == lifecycle.watermark(WatermarkKind.PROCESS, "count")
    assert watermark is not None
    assert watermark.next_time is None


def test_content_that_no_manifest_names_is_left_out(finished: LifecycleHarness) -> None:
    lifecycle = lost(finished)
    later = START + timedelta(hours=9)
    lifecycle.land("counts", later)
    (found,) = [each for each in rebuild(lifecycle).feeds if each.feed == "shifted"]
    assert (found.complete, found.recorded, found.unknown) == (9, 9, 0)
    lifecycle.land("counts", TIMES[0] - timedelta(hours=1))
    assert rebuild(lifecycle).is_empty


def numbered(text: str) -> str:
    return json.dumps({**json.loads(text), "bytes": 1 << 63})


def worded(text: str) -> str:
    return json.dumps({**json.loads(text), "extra": {"process": "a\0b"}})


@pytest.mark.parametrize(
    "damage", [lambda text: text[:-9], lambda _: "[" * 200_000, lambda _: '{"version": 1}', numbered, worded]
)
def test_a_damaged_manifest_keeps_nothing_else_from_being_recorded(
    damage: Callable[[str], str], finished: LifecycleHarness
) -> None:
    file = finished.folder("counts", TIMES[3]) / MANIFEST_NAME
    whole = file.read_text()
    file.write_text(damage(whole))
    lifecycle = lost(finished)
    for is_news in (True, False):
        rebuilt = rebuild(lifecycle)
        counts = next(each for each in rebuilt.feeds if each.feed == "counts")
        assert (rebuilt.is_complete, rebuilt.is_empty) == (False, not is_news)
        assert [lifecycle.feed("counts").path(TIMES[3]) in fault for fault in counts.damaged] == [True]
        assert (counts.complete, counts.recorded, counts.unknown) == (9, 8 if is_news else 0, 0)
    assert set(lifecycle.feed_statuses("counts")) == set(TIMES) - {TIMES[3]}
    file.write_text(whole)
    mended = rebuild(lifecycle)
    assert (mended.is_complete, lifecycle.feed_statuses("counts")) == (True, finished.feed_statuses("counts"))


def test_a_state_from_a_backup_gets_what_came_after_it(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, *ENTITIES)
    lifecycle.land("clicks", *TIMES[:4])
    lifecycle.launch(lifecycle.tick(START + timedelta(hours=3, minutes=5)), START + timedelta(hours=3, minutes=5))
    with (
        closing(sqlite3.connect(tmp_path / "state.db")) as state,
        closing(sqlite3.connect(tmp_path / "empty.db")) as backup,
    ):
        state.backup(backup)
    lifecycle.land("clicks", *TIMES[4:])
    run_all(lifecycle)
    restored = lost(lifecycle)
    rebuild(restored)
    assert restored.feed_statuses("counts") == lifecycle.feed_statuses("counts")
    assert {time for time, status in restored.statuses("count").items() if status == "SUCCEEDED"} == set(TIMES)
    assert {name for name, _ in run_all(restored)} <= {"ping"}


def test_an_instance_that_waited_for_its_repetition_has_succeeded_if_a_later_run_wrote_it(
    finished: LifecycleHarness,
) -> None:
    later = {TIMES[2]: ProcessInstanceStatus.READY, TIMES[3]: ProcessInstanceStatus.FAILED}
    with finished.database.begin() as connection:
        for time, status in later.items():
            key = ProcessKey("count", "primary", time)
            ProcessInstances(connection).transition(key, {ProcessInstanceStatus.SUCCEEDED}, status=status)
        connection.execute(update(attempts).values(run_id="earlier").where(attempts.c.nominal_time.in_(later)))
    rebuild(finished)
    for time in later:
        row = finished.instances("count")[time]
        assert (row.status, row.attempt) == (ProcessInstanceStatus.SUCCEEDED, 2)
    assert run_all(finished) == []
    assert rebuild(finished).is_empty


def test_an_instance_that_was_evicted_and_one_that_runs_stay_as_they_are(finished: LifecycleHarness) -> None:
    lifecycle = lost(finished)
    rebuild(lifecycle)
    with lifecycle.database.begin() as connection:
        row = lifecycle.feed_instances("counts")[TIMES[2]]
        FeedInstances(connection).put([replace(row, status=FeedInstanceStatus.EVICTED)])
        key = ProcessKey("count", "primary", TIMES[3])
        any_status = {ProcessInstanceStatus.SUCCEEDED}
        ProcessInstances(connection).transition(key, any_status, status=ProcessInstanceStatus.READY)
    assert rebuild(lifecycle).is_empty


def test_an_instance_that_ran_when_the_backup_was_made_has_succeeded_if_its_run_wrote_it(
    finished: LifecycleHarness,
) -> None:
    with finished.database.begin() as connection:
        for time, run_id in ((TIMES[2], None), (TIMES[3], "another")):
            key, row = ProcessKey("count", "primary", time), finished.instances("count")[time]
            ProcessInstances(connection).transition(
                key, {row.status}, status=ProcessInstanceStatus.RUNNING, run_id=run_id or row.run_id
            )
    rebuild(finished)
    statuses = finished.statuses("count")
    assert statuses[TIMES[2]] is ProcessInstanceStatus.SUCCEEDED
    assert statuses[TIMES[3]] is ProcessInstanceStatus.RUNNING


def test_an_instance_whose_run_was_taken_for_dead_after_the_restore_has_succeeded_if_that_run_wrote_it(
    finished: LifecycleHarness,
) -> None:
    again = {TIMES[2]: ProcessInstanceStatus.READY, TIMES[3]: ProcessInstanceStatus.FAILED}
    with finished.database.begin() as connection:
        for time, status in again.items():
            key = ProcessKey("count", "primary", time)
            ProcessInstances(connection).transition(key, {ProcessInstanceStatus.SUCCEEDED}, status=status)
        connection.execute(update(attempts).values(status="FAILED").where(attempts.c.nominal_time.in_(again)))
    rebuild(finished)
    assert {finished.statuses("count")[time] for time in again} == {ProcessInstanceStatus.SUCCEEDED}
    assert run_all(finished) == []
    assert rebuild(finished).is_empty
