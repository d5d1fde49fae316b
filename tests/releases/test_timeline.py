"""Instances follow the definitions that govern them: their windows, their feeds, their deadlines and their runs."""

import logging
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from feed_assets.definitions.lists.history import governing_version
from feed_assets.definitions.store import record_declared
from feed_assets.entities.cluster import Cluster
from feed_assets.entities.process import Process
from feed_assets.instances.gates.plan_changes import apply_plan
from feed_assets.instances.gates.requests import LaunchMode, apply_requests, decide_launch_mode
from feed_assets.log.definitions.records import Member
from feed_assets.log.definitions.tables import definitions
from feed_assets.log.records import ProcessInstanceStatus
from feed_assets.plan.location import declare_location
from feed_assets.releases.store import Releases
from feed_assets.releases.timeline import ReleaseTimeline
from feed_assets.settings import Settings
from tests.instances.harness import START, LifecycleHarness, at, counted_statements, feed, hours, process

WAITING, READY = ProcessInstanceStatus.WAITING, ProcessInstanceStatus.READY
TIMEDOUT, SUCCEEDED = ProcessInstanceStatus.TIMEDOUT, ProcessInstanceStatus.SUCCEEDED
KEY = ("count", "primary")
CLICKS = feed("clicks", start=at("2013-10-30"))
VIEWS = feed("views", start=at("2013-10-30"))


def counting(window: str = "now(0,0)", **more: Any) -> Process:
    return process("count", **{"inputs": {"clicks": window}, **more})


def busy(tmp_path: Path, declared: Process | None = None) -> LifecycleHarness:
    """It is 02:10: the first hour has been counted, and the next two wait for clicks."""
    lifecycle = LifecycleHarness.of(tmp_path, CLICKS, VIEWS, declared or counting())
    lifecycle.land("clicks", START)
    lifecycle.launch(lifecycle.tick(at("01T00:10")), at("01T00:20"))
    lifecycle.tick(at("01T02:10"))
    assert lifecycle.times("count", WAITING) == hours(3)[1:]
    return lifecycle


def test_events_open_the_gates_of_instances_by_the_windows_that_govern_them(tmp_path: Path) -> None:
    lifecycle = busy(tmp_path)
    lifecycle.declare(CLICKS, VIEWS, counting("now(-2,0) now(-2,0)"))
    lifecycle.tick(at("01T04:10"))
    assert lifecycle.times("count", WAITING) == hours(5)[1:]

    lifecycle.land("clicks", at("01T02:00"))
    lifecycle.arrive(at("01T04:20"))
    lifecycle.ready(at("01T04:20"))

    assert lifecycle.times("count", READY) == [at("01T02:00"), at("01T04:00")]
    assert lifecycle.times("count", WAITING) == [at("01T01:00"), at("01T03:00")]


def test_an_input_that_was_added_is_not_waited_for_by_older_instances(tmp_path: Path) -> None:
    lifecycle = busy(tmp_path)
    lifecycle.declare(CLICKS, VIEWS, counting(inputs={"clicks": "now(0,0)", "views": "now(0,0)"}))
    lifecycle.land("clicks", *hours(4))
    lifecycle.arrive(at("01T03:10"))
    lifecycle.ready(at("01T03:10"))
    assert lifecycle.times("count", READY) == hours(3)[1:]
    assert lifecycle.times("count", WAITING) == [at("01T03:00")]


def test_an_input_that_was_removed_is_still_waited_for_by_older_instances(tmp_path: Path) -> None:
    both = {"clicks": "now(0,0)", "views": "now(0,0)"}
    lifecycle = LifecycleHarness.of(tmp_path, CLICKS, VIEWS, counting(inputs=both))
    lifecycle.land("clicks", *hours(6))
    lifecycle.land("views", START)
    lifecycle.launch(lifecycle.tick(at("01T00:10")), at("01T00:20"))
    lifecycle.tick(at("01T01:10"))
    lifecycle.declare(CLICKS, VIEWS, counting())
    lifecycle.tick(at("01T02:10"))
    assert lifecycle.times("count", WAITING) == [at("01T01:00")]
    lifecycle.land("views", at("01T01:00"))
    lifecycle.arrive(at("01T02:30"))
    lifecycle.ready(at("01T02:30"))
    assert at("01T01:00") in lifecycle.times("count", READY)


def test_a_deadline_is_the_one_of_the_definition_that_governs(tmp_path: Path) -> None:
    lifecycle = busy(tmp_path, counting(timeout="hours(5)"))
    lifecycle.declare(CLICKS, VIEWS, counting(timeout="hours(1)"))
    lifecycle.tick(at("01T03:10"))
    lifecycle.tick(at("01T04:20"))
    assert lifecycle.times("count", TIMEDOUT) == [at("01T03:00")]
    lifecycle.tick(at("01T09:20"))
    assert lifecycle.times("count", TIMEDOUT)[:3] == [at("01T01:00"), at("01T02:00"), at("01T03:00")]


def test_what_is_no_partition_any_more_is_run_in_the_other_way(tmp_path: Path) -> None:
    lifecycle = busy(tmp_path)
    lifecycle.declare(CLICKS, VIEWS, counting(frequency="hours(2)", parallel=4))
    lifecycle.land("clicks", *hours(5))
    lifecycle.arrive(at("01T04:10"))
    lifecycle.ready(at("01T04:10"))
    assert lifecycle.times("count", READY) == hours(5)[1:]

    def asked(mode: LaunchMode) -> list[datetime]:
        found = apply_requests(lifecycle.open_tick(at("01T04:10")), 9, mode=mode)
        return sorted(time for request in found for time in request.nominal_times)

    assert asked(LaunchMode.PARTITIONS) == [at("01T02:00"), at("01T04:00")]
    assert asked(LaunchMode.INSTANCES) == [at("01T01:00"), at("01T03:00")]
    assert asked(LaunchMode.INSTANCES) == asked(LaunchMode.PARTITIONS) == []


def test_a_run_of_partitions_has_none_between_that_another_definition_brings(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, CLICKS, VIEWS, counting(frequency="minutes(30)"))
    halves = lifecycle.process("count")
    lifecycle.declare(CLICKS, VIEWS, counting())
    whole = lifecycle.process("count")
    assert decide_launch_mode(halves, whole, range(3, 4)) is LaunchMode.PARTITIONS
    assert decide_launch_mode(halves, whole, range(3, 5)) is LaunchMode.INSTANCES
    assert decide_launch_mode(whole, halves, range(4, 5)) is LaunchMode.PARTITIONS
    assert decide_launch_mode(whole, halves, range(5, 6)) is LaunchMode.INSTANCES


def test_an_idle_tick_reads_one_row_more_for_all_of_this(tmp_path: Path) -> None:
    lifecycle = busy(tmp_path)
    lifecycle.declare(CLICKS, VIEWS, counting("now(-1,0) now(0,0)"))
    lifecycle.tick(at("01T02:20"))
    with counted_statements() as statements:
        apply_plan(lifecycle.database, lifecycle.timeline, at("01T02:21"))
    assert len([text for text in statements if "SELECT" in text]) == 1
    with counted_statements() as statements:
        lifecycle.ready(at("01T02:21"))
    assert not [text for text in statements if "fa_releases" in text or "fa_definitions" in text]


def test_what_governed_and_cannot_be_read_any_more_gives_way_to_what_is_declared(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lifecycle = busy(tmp_path)
    lifecycle.declare(CLICKS, VIEWS, counting("now(-1,0) now(0,0)"))
    with lifecycle.database.begin() as connection:
        is_first = (definitions.c.kind == "process") & (definitions.c.version == 1)
        connection.execute(update(definitions).where(is_first).values(text="kind: process\nname: count\nwhat: ever\n"))
    lifecycle.use(lifecycle.plan)
    with caplog.at_level(logging.WARNING):
        active = lifecycle.active_release("count", at("01T01:00"))
    assert active is not None
    assert active.record is lifecycle.process("count")
    assert "the definitions of release 1 cannot be read or run any more" in caplog.text


def test_times_outside_of_what_governs_can_be_asked_for_by_what_is_declared(tmp_path: Path) -> None:
    lifecycle = busy(tmp_path)
    lifecycle.declare(CLICKS, VIEWS, counting(frequency="minutes(30)"))
    with lifecycle.database.read() as connection:
        assert lifecycle.timeline.find(connection, KEY, at("01T00:30")) is None
    active = lifecycle.active_release("count", at("01T00:30"))
    assert active is not None
    assert (active.release, active.version, active.record) == (2, 2, lifecycle.process("count"))
    assert lifecycle.active_release("count", at("01T00:10")) is None


def test_a_run_is_stamped_with_the_release_that_governed_it(tmp_path: Path) -> None:
    lifecycle = busy(tmp_path)
    assert [row.release for row in lifecycle.instances("count").values()] == [1, None, None]


def declare_on(lifecycle: LifecycleHarness, version: int, reference: int, conf: Mapping[str, str]) -> None:
    """Declare the cluster and the process with these versions, as the commands for clusters write them."""
    cluster = Cluster(
        name="primary",
        colo="primary-colo",
        storage=f"file://{lifecycle.root}/primary",
        version=version,
        spark={"conf": conf},  # type: ignore[arg-type]
    )
    content = counting().model_dump(by_alias=True)
    content["clusters"]["primary"]["version"] = reference
    location = declare_location([cluster, CLICKS, VIEWS, Process.model_validate(content)])
    record_declared(lifecycle.database, location.declared or (), lifecycle.now, Settings())
    lifecycle.use(location.plan)


def test_row_105_a_changed_cluster_counts_once_its_new_version_is_referred_to(tmp_path: Path) -> None:
    lifecycle = busy(tmp_path)
    with lifecycle.database.read() as connection:
        (before,) = Releases(connection).of(*KEY)
    conf = {"spark.sql.shuffle.partitions": "7"}

    declare_on(lifecycle, 1, 0, conf)
    with lifecycle.database.read() as connection:
        (lagging,) = Releases(connection).of(*KEY)
    assert lagging.members == before.members
    active = lifecycle.active_release("count", at("01T01:00"))
    assert active is not None
    assert dict(active.plan.clusters["primary"].spark_conf) == {}

    declare_on(lifecycle, 1, 1, conf)
    with lifecycle.database.read() as connection:
        first, second = Releases(connection).of(*KEY)
    assert (first.members, second.effective_from) == (before.members, at("01T03:00"))
    later = lifecycle.active_release("count", at("01T03:00"))
    assert later is not None
    assert dict(later.plan.clusters["primary"].spark_conf) == conf


def test_two_timelines_of_one_database_agree(tmp_path: Path) -> None:
    lifecycle = busy(tmp_path)
    lifecycle.declare(CLICKS, VIEWS, counting("now(-1,0) now(0,0)"))
    other = ReleaseTimeline(lifecycle.plan)
    with lifecycle.database.read() as connection:
        other.refresh(connection, lifecycle.now)
        mine = [each.release for each in lifecycle.timeline.spans(connection, KEY)]
        assert [each.release for each in other.spans(connection, KEY)] == mine == [1, 2]
        single = ReleaseTimeline(lifecycle.plan)
        single.refresh_one(connection, KEY)
        assert [each.release for each in single.spans(connection, KEY)] == mine


def test_numbers_that_a_restored_database_gives_again_are_no_memory(tmp_path: Path) -> None:
    lifecycle = busy(tmp_path)
    with (
        closing(sqlite3.connect(tmp_path / "state.db")) as state,
        closing(sqlite3.connect(tmp_path / "restored.db")) as backup,
    ):
        state.backup(backup)
    restored = LifecycleHarness.of(tmp_path, CLICKS, VIEWS, counting(), state=f"sqlite:///{tmp_path / 'restored.db'}")
    for each, window in ((lifecycle, "now(-1,0) now(0,0)"), (restored, "now(-2,0) now(0,0)")):
        each.tick(at("01T02:10"))
        each.declare(CLICKS, VIEWS, counting(window))
        each.tick(at("01T04:10"))
        each.declare(CLICKS, VIEWS, counting("now(-3,0) now(0,0)"))
    timeline = lifecycle.timeline
    for each in (lifecycle, restored):
        fresh = ReleaseTimeline(timeline.plan)
        with each.database.read() as connection:
            for reader in (timeline, fresh):
                reader.refresh(connection, each.now)
            spans = timeline.spans(connection, KEY)
            assert [(span.release, span.version) for span in spans] == [(1, 1), (2, 2), (3, 3)]
            assert [span.record for span in spans] == [span.record for span in fresh.spans(connection, KEY)]
            second = [Member(kind="process", name="count", version=2)]
            assert timeline.load_recorded(connection, second).bundle == fresh.load_recorded(connection, second).bundle


def test_history_tells_which_definition_made_an_instance_and_which_will_make_it(tmp_path: Path) -> None:
    lifecycle = busy(tmp_path)
    lifecycle.declare(CLICKS, VIEWS, counting(tags={"team": "a"}))
    lifecycle.declare(CLICKS, VIEWS, counting("now(-1,0) now(0,0)", tags={"team": "a"}))

    def governing(time: datetime) -> tuple[int, int] | None:
        found = governing_version(lifecycle.database, *KEY, time)
        return (found.row.release, found.versions[0].version) if found.row else None

    assert governing(START) == (1, 1)  # it ran before the tags were written
    assert governing(at("01T01:00")) == (1, 2)
    assert governing(at("01T03:00")) == (2, 3)
    assert governing(at("2013-10-31")) is None
