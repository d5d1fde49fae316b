"""Feeds that are replicated: from what arrives at a source to what stands at a target. Rows are features of Falcon."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from feed_assets.definitions.verbs.schedules import apply_end_of_work, apply_schedules, decide_schedules
from feed_assets.entities.common import Kind
from feed_assets.entities.feed import Feed
from feed_assets.instances.attempts.attempt_inputs import freeze_inputs
from feed_assets.instances.attempts.attempts import Published, begin_attempt
from feed_assets.instances.late.contents import record_contents, scan_contents
from feed_assets.instances.late.lateness import LateVerdict
from feed_assets.log.agenda import AgendaKind
from feed_assets.log.definitions.records import ScheduleState
from feed_assets.log.definitions.schedules import load_schedules
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import (
    Cause,
    FeedEventKind,
    FeedInstanceStatus,
    FeedKey,
    ProcessInstanceStatus,
    ProcessKey,
    WatermarkKind,
)
from feed_assets.replication import flows
from feed_assets.replication.flows import FlowRunner
from feed_assets.triggers.input_windows import InputState, input_states_many
from tests.instances.harness import START, LifecycleHarness, at, feed, hours, process

FLOW = "clicks@primary"
HOUR = timedelta(hours=1)


def replicated(
    sources: Mapping[str, Mapping[str, Any]] = {"primary": {}},
    targets: Mapping[str, Mapping[str, Any]] = {"backup": {}},
    *,
    frequency: str = "hours(1)",
    flag: str | None = None,
    **more: Any,
) -> Feed:
    """The feed `clicks` on sources and targets, with what each says of its own."""
    plain = {"validity": {"start": START}}
    clusters = {
        **{name: {**plain, "type": "source", **own} for name, own in sources.items()},
        **{name: {**plain, "type": "target", **own} for name, own in targets.items()},
    }
    return Feed.model_validate(
        {
            "name": "clicks",
            "frequency": frequency,
            "format": "csv",
            "availability_flag": flag,
            "locations": {"data": "/clicks/${YEAR}-${MONTH}-${DAY}/${HOUR}-${MINUTE}"},
            "clusters": clusters,
            **more,
        }
    )


def harness_of(root: Path, *entities: Any) -> LifecycleHarness:
    declared = {name for entity in entities if isinstance(entity, Feed) for name in entity.clusters}
    return LifecycleHarness.of(root, *entities, clusters=sorted(declared))


def pass_time(lifecycle: LifecycleHarness, as_of: datetime, *clusters: str) -> None:
    """What arrives, and a tick of each cluster with the runs that it asks for."""
    for cluster in lifecycle.plan.clusters:
        lifecycle.arrive(as_of, cluster)
    for cluster in clusters or sorted(lifecycle.plan.clusters):
        lifecycle.launch(lifecycle.tick(as_of, cluster), as_of)


def files(lifecycle: LifecycleHarness, time: datetime, cluster: str = "backup") -> dict[str, str]:
    """What an instance holds on a cluster, hidden files left out."""
    folder = lifecycle.folder("clicks", time, cluster)
    found = (file for file in folder.rglob("*") if file.is_file() and not file.name.startswith((".", "_")))
    return {str(file.relative_to(folder)): file.read_text() for file in found}


def test_row_59_an_instance_is_copied_once_its_flag_is_there_and_the_flag_comes_last(tmp_path: Path) -> None:
    lifecycle = harness_of(tmp_path, replicated(flag="_DONE"))
    lifecycle.land("clicks", START)
    pass_time(lifecycle, at("01T00:05"))
    assert lifecycle.statuses(FLOW, "backup") == {START: ProcessInstanceStatus.WAITING}
    lifecycle.flag("clicks", START)
    pass_time(lifecycle, at("01T00:10"))
    assert lifecycle.statuses(FLOW, "backup") == {START: ProcessInstanceStatus.SUCCEEDED}
    assert files(lifecycle, START) == files(lifecycle, START, "primary") != {}
    assert (lifecycle.folder("clicks", START, "backup") / "_DONE").exists()
    assert lifecycle.feed_statuses("clicks", "backup") == {START: FeedInstanceStatus.AVAILABLE}
    (event,) = [event for event in lifecycle.events("clicks") if event.cluster == "backup"]
    assert event.kind is FeedEventKind.REPLICATED


def test_a_feed_without_a_flag_has_one_at_its_replicas(tmp_path: Path) -> None:
    lifecycle = harness_of(tmp_path, replicated())
    lifecycle.land("clicks", START)
    pass_time(lifecycle, at("01T00:05"))
    assert (lifecycle.folder("clicks", START, "backup") / "_SUCCESS").exists()
    assert not (lifecycle.folder("clicks", START) / "_SUCCESS").exists()


def test_row_60_each_target_has_a_flow_of_its_own(tmp_path: Path) -> None:
    lifecycle = harness_of(tmp_path, replicated(targets={"backup": {}, "other": {}}))
    lifecycle.land("clicks", START)
    pass_time(lifecycle, at("01T00:05"), "primary", "backup")
    assert lifecycle.statuses(FLOW, "backup") == {START: ProcessInstanceStatus.SUCCEEDED}
    assert lifecycle.statuses(FLOW, "other") == {}
    pass_time(lifecycle, at("01T00:10"), "other")
    assert files(lifecycle, START, "other") == files(lifecycle, START, "backup") == files(lifecycle, START, "primary")


def slices() -> Feed:
    """Two sources that bring their own part each."""
    sources = {"east": {"partition": "${cluster.name}"}, "west": {"partition": "${cluster.name}"}}
    return replicated(sources, flag="_DONE", partitions=["cluster"])


def land_slice(lifecycle: LifecycleHarness, cluster: str, time: datetime) -> None:
    for part in ("east", "west"):
        lifecycle.land("clicks", time, text=f"{part} of {cluster}", cluster=cluster, below=part)
    lifecycle.flag("clicks", time, cluster=cluster)


def test_row_61_several_sources_bring_their_slices_and_the_instance_is_there_with_the_last(tmp_path: Path) -> None:
    lifecycle = harness_of(tmp_path, slices())
    land_slice(lifecycle, "east", START)
    pass_time(lifecycle, at("01T00:05"))
    assert lifecycle.feed_statuses("clicks", "backup") == {START: FeedInstanceStatus.PARTIAL}
    folder = lifecycle.folder("clicks", START, "backup")
    assert (folder / "east" / "_DONE").exists()
    assert not (folder / "_DONE").exists()
    land_slice(lifecycle, "west", START)
    pass_time(lifecycle, at("01T00:10"))
    assert sorted(files(lifecycle, START).values()) == ["east of east", "west of west"]
    assert (folder / "west" / "_DONE").exists()
    assert (folder / "_DONE").exists()
    assert lifecycle.feed_statuses("clicks", "backup") == {START: FeedInstanceStatus.AVAILABLE}


def test_row_62_a_target_takes_its_slice_only(tmp_path: Path) -> None:
    targets = {name: {"partition": "${cluster.colo}"} for name in ("backup", "other")}
    lifecycle = harness_of(tmp_path, replicated(targets=targets, partitions=["colo"]))
    for name in targets:
        lifecycle.land("clicks", START, text=name, below=f"{name}-colo")
    pass_time(lifecycle, at("01T00:05"))
    assert list(files(lifecycle, START, "backup").values()) == ["backup"]
    assert list(files(lifecycle, START, "other").values()) == ["other"]


def test_row_63_a_delay_holds_a_copy_back(tmp_path: Path) -> None:
    lifecycle = harness_of(tmp_path, replicated({"primary": {"delay": "hours(1)"}}, frequency="hours(2)"))
    times = [START, START + 2 * HOUR]
    lifecycle.land("clicks", *times)
    pass_time(lifecycle, START + 2 * HOUR + timedelta(minutes=59))
    assert list(lifecycle.statuses(FLOW, "backup")) == [START]
    pass_time(lifecycle, START + 3 * HOUR)
    assert lifecycle.statuses(FLOW, "backup") == dict.fromkeys(times, ProcessInstanceStatus.SUCCEEDED)


def test_row_64_a_target_has_its_own_path(tmp_path: Path) -> None:
    own = {"backup": {"locations": {"data": "/copies/clicks-${YEAR}${MONTH}${DAY}${HOUR}${MINUTE}"}}}
    lifecycle = harness_of(tmp_path, replicated(targets=own))
    lifecycle.land("clicks", START)
    pass_time(lifecycle, at("01T00:05"))
    assert (tmp_path / "backup" / "copies" / "clicks-201311010000" / "part-0.csv").read_text() == "data"


def test_row_66_an_empty_instance_is_copied_with_its_flag(tmp_path: Path) -> None:
    lifecycle = harness_of(tmp_path, replicated(flag="_DONE"))
    lifecycle.flag("clicks", START)
    pass_time(lifecycle, at("01T00:05"))
    assert files(lifecycle, START) == {}
    assert (lifecycle.folder("clicks", START, "backup") / "_DONE").exists()
    assert lifecycle.feed_statuses("clicks", "backup") == {START: FeedInstanceStatus.AVAILABLE}


def test_only_where_both_are_valid_there_is_something_to_copy(tmp_path: Path) -> None:
    source = {"primary": {"validity": {"start": START + 2 * HOUR, "end": START + 9 * HOUR}}}
    target = {"backup": {"validity": {"start": START, "end": START + 5 * HOUR}}}
    lifecycle = harness_of(tmp_path, replicated(source, target))
    pass_time(lifecycle, at("02"))
    assert list(lifecycle.statuses(FLOW, "backup")) == [START + n * HOUR for n in (2, 3, 4)]


def test_a_replica_is_read_where_it_is(tmp_path: Path) -> None:
    count = process("count", inputs={"clicks": "now(0,0)"}, outputs={"counts": "now(0,0)"}, clusters=["backup"])
    counts = feed("counts", clusters=["backup"])
    lifecycle = harness_of(tmp_path, replicated(), counts, count)
    lifecycle.land("clicks", START)
    pass_time(lifecycle, at("01T00:05"), "primary", "backup")
    pass_time(lifecycle, at("01T00:06"), "primary", "backup")
    assert lifecycle.statuses("count", "backup") == {START: ProcessInstanceStatus.SUCCEEDED}


def test_row_68_what_was_copied_is_on_record(tmp_path: Path) -> None:
    lifecycle = harness_of(tmp_path, replicated())
    lifecycle.land("clicks", START, text="12345")
    pass_time(lifecycle, at("01T00:05"))
    (event,) = [event for event in lifecycle.events("clicks") if event.kind is FeedEventKind.REPLICATED]
    copy = event.payload["copy"]
    assert (copy["copied_bytes"], copy["copied_files"], copy["verification"]) == (5, 1, "transferred")
    assert copy["copy_seconds"] > 0
    assert copy["source"].endswith("/primary/clicks/2013-11-01/00-00")


def test_what_is_run_again_copies_nothing_and_says_nothing(tmp_path: Path) -> None:
    lifecycle = harness_of(tmp_path, replicated())
    lifecycle.land("clicks", START)
    pass_time(lifecycle, at("01T00:05"))
    before = lifecycle.events("clicks")
    (done,) = lifecycle.copy(FLOW, [START], at("01T00:10")).values()
    assert isinstance(done, Published)
    assert (done.details["copy"], done.details["copied_bytes"]) == ("unchanged", 0)
    assert lifecycle.events("clicks") == before


def test_copies_give_way_between_those_that_are_made_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flows, "BYTES_AT_ONCE", 0)
    lifecycle = harness_of(tmp_path, replicated())
    for time in hours(3):
        lifecycle.land("clicks", time)
    lifecycle.tick(at("01T03:00"))
    lifecycle.tick(at("01T03:00"), "backup")
    asked: list[Sequence[datetime]] = []
    ended: list[datetime] = []

    def gives_way(rest: Sequence[datetime]) -> bool:
        asked.append(rest)
        return len(rest) == 1

    runner, flow = lifecycle.runner(at("01T03:00")), lifecycle.process(FLOW, "backup")
    copier = FlowRunner(context=runner.context, gives_way=gives_way)
    assert not copier.run(flow, hours(3), lambda _: None, lambda time, _: ended.append(time))
    assert ended == hours(3)[:2]
    assert asked == [hours(3), hours(3)[1:], hours(3)[2:]]


def test_row_75_what_comes_late_to_the_source_reaches_the_replica_before_the_cut_off(tmp_path: Path) -> None:
    lifecycle = harness_of(tmp_path, replicated(late_arrival={"cut_off": "hours(12)"}))
    lifecycle.land("clicks", START)
    pass_time(lifecycle, at("01T00:05"))
    lifecycle.land("clicks", START, text="late")
    as_of = at("01T04")
    assert lifecycle.look_for_late(as_of, "backup").verdicts == (LateVerdict.RERUN,)
    pass_time(lifecycle, as_of)
    assert sorted(files(lifecycle, START).values()) == ["data", "late"]
    for hour in (9, 12):
        lifecycle.look_for_late(at(f"01T{hour:02}"), "backup")
    lifecycle.land("clicks", START, text="too late")
    lifecycle.look_for_late(at("01T13"), "backup")
    pass_time(lifecycle, at("01T13"))
    assert sorted(files(lifecycle, START).values()) == ["data", "late"]


def published(tmp_path: Path, **more: Any) -> LifecycleHarness:
    """What a process on the source makes has been copied once to two targets."""
    make = process("make", inputs={"raw": "now(0,0)"}, outputs={"clicks": "now(0,0)"}, end=START + HOUR)
    targets: dict[str, Any] = {"backup": {}, "other": {}}
    lifecycle = harness_of(tmp_path, feed("raw"), replicated(targets=targets, **more), make)
    lifecycle.land("raw", START)
    republish(lifecycle, "first", at("01T00:05"))
    return lifecycle


def republish(lifecycle: LifecycleHarness, text: str, as_of: datetime) -> None:
    """The process makes other content, and ticks pass on both sides."""
    lifecycle.job = lambda work: {target.name: text for target in work.outputs}
    if lifecycle.instances("make"):
        lifecycle.run("make", START, as_of, lifecycle.run_id())
    for _ in range(2):
        pass_time(lifecycle, as_of, "primary", "backup", "other")


def test_what_is_published_anew_is_copied_anew_to_every_target_and_equal_content_is_not(tmp_path: Path) -> None:
    lifecycle = published(tmp_path)
    republish(lifecycle, "second", at("09"))
    assert {*files(lifecycle, START).values()} == {*files(lifecycle, START, "other").values()} == {"second"}
    assert lifecycle.instances(FLOW, "backup")[START].attempt == 2
    republish(lifecycle, "second", at("10"))
    assert lifecycle.instances(FLOW, "backup")[START].attempt == 2
    assert lifecycle.late_check(FLOW, START, AgendaKind.UPDATE, "backup") is None


def test_a_correction_while_the_older_content_is_copied_is_copied_after_it(tmp_path: Path) -> None:
    lifecycle = published(tmp_path)
    lifecycle.job = lambda work: {target.name: "second" for target in work.outputs}
    lifecycle.run("make", START, at("02"), lifecycle.run_id())
    requests = lifecycle.tick(at("02"), "backup")
    key = ProcessKey(FLOW, "backup", START)
    with lifecycle.database.begin() as connection:
        begin_attempt(connection, lifecycle.process(FLOW, "backup"), START, "run-1", at("02"))
        freeze_inputs(connection, key, states_of(lifecycle, connection), {}, at("02"))
    lifecycle.job = lambda work: {target.name: "third" for target in work.outputs}
    lifecycle.run("make", START, at("02"), lifecycle.run_id())
    assert lifecycle.tick(at("02"), "backup") == []
    with lifecycle.database.begin() as connection:
        ended = {"status": ProcessInstanceStatus.SUCCEEDED, "ended_at": at("02")}
        ProcessInstances(connection).transition(key, {ProcessInstanceStatus.RUNNING}, **ended)
    assert [request.nominal_times for request in requests] == [(START,)]
    pass_time(lifecycle, at("02T00:01"), "backup")
    assert {*files(lifecycle, START).values()} == {"third"}


def states_of(lifecycle: LifecycleHarness, connection: Connection) -> tuple[InputState, ...]:
    found = input_states_many(connection, lifecycle.plan, {(FLOW, "backup"): [START]}, at("02"))
    return found[FLOW, "backup"][START]


def test_a_replica_that_gets_other_content_is_late_data_for_what_reads_it(tmp_path: Path) -> None:
    own = {"late_process": {"policy": "periodic", "delay": "hours(1)", "inputs": {"clicks": {"path": "jobs:run"}}}}
    count = process(
        "count",
        inputs={"clicks": "now(0,0)"},
        outputs={"counts": "now(0,0)"},
        clusters=["backup"],
        end=START + HOUR,
        **own,
    )
    make = process("make", inputs={"raw": "now(0,0)"}, outputs={"clicks": "now(0,0)"}, end=START + HOUR)
    counts, late = feed("counts", clusters=["backup"]), {"late_arrival": {"cut_off": "days(3)"}}
    lifecycle = harness_of(tmp_path, feed("raw"), replicated(targets={"backup": {}}, **late), make, counts, count)
    lifecycle.land("raw", START)
    republish(lifecycle, "first", at("01T00:05"))
    republish(lifecycle, "second", at("01T05"))
    assert lifecycle.look_for_late(at("01T06"), "backup").verdicts.count(LateVerdict.RERUN) == 1
    pass_time(lifecycle, at("01T06"), "backup")
    assert lifecycle.instances("count", "backup")[START].attempt == 2


def test_what_others_change_after_the_cut_off_stays_behind_and_says_so_until_it_is_copied_by_hand(
    tmp_path: Path,
) -> None:
    lifecycle = harness_of(tmp_path, replicated(late_arrival={"cut_off": "hours(12)"}))
    lifecycle.land("clicks", START)
    pass_time(lifecycle, at("01T00:05"))
    changed_by_others(lifecycle, at("01T13"))
    pass_time(lifecycle, at("01T13"), "backup")
    row = lifecycle.instances(FLOW, "backup")[START]
    assert (row.attempt, row.cause) == (1, Cause.UPDATE_REFUSED)
    assert row.reason == (
        "updated: clicks 2013-11-01T00:00Z changed; not copied: it came after the cut-off of late data"
    )
    assert lifecycle.late_check(FLOW, START, AgendaKind.UPDATE, "backup") is not None
    lifecycle.copy(FLOW, [START], at("02"))
    lifecycle.tick(at("02T01"), "backup")
    assert lifecycle.late_check(FLOW, START, AgendaKind.UPDATE, "backup") is None


def changed_by_others(lifecycle: LifecycleHarness, as_of: datetime) -> None:
    """Others add a file, and a look records it."""
    lifecycle.land("clicks", START, text="more")
    record = lifecycle.feed("clicks")
    contents = scan_contents(lifecycle.context(as_of), {FeedKey(*record.key, START): record})
    with lifecycle.database.begin() as connection:
        record_contents(connection, contents.values(), as_of)


def test_a_failed_copy_of_a_correction_is_kept_as_behind_until_it_succeeds(tmp_path: Path) -> None:
    lifecycle = published(tmp_path)
    lifecycle.job = lambda work: {target.name: "second" for target in work.outputs}
    lifecycle.run("make", START, at("02"), lifecycle.run_id())
    blocked = (tmp_path / "backup" / "clicks").rename(tmp_path / "aside").parent / "backup" / "clicks"
    blocked.write_text("in the way")
    for hour in range(4):
        pass_time(lifecycle, at(f"02T{hour:02}"), "backup")
    assert lifecycle.statuses(FLOW, "backup")[START] is ProcessInstanceStatus.FAILED
    assert lifecycle.late_check(FLOW, START, AgendaKind.UPDATE, "backup") is not None
    blocked.unlink()
    (tmp_path / "aside").rename(blocked)
    lifecycle.copy(FLOW, [START], at("03"))
    lifecycle.tick(at("03T01"), "backup")
    assert {*files(lifecycle, START).values()} == {"second"}
    assert lifecycle.late_check(FLOW, START, AgendaKind.UPDATE, "backup") is None


def test_row_81_a_copy_that_fails_is_tried_three_times_from_five_minutes_on(tmp_path: Path) -> None:
    lifecycle = harness_of(tmp_path, replicated())
    lifecycle.land("clicks", START)
    (tmp_path / "backup").mkdir()
    blocked = tmp_path / "backup" / "clicks"
    blocked.write_text("in the way")
    begun = []
    for minute in range(5, 120):
        as_of = START + timedelta(minutes=minute)
        begun += [as_of for request in lifecycle.tick(as_of, "primary") + lifecycle.tick(as_of, "backup") if request]
        if begun and begun[-1] == as_of:
            (failed,) = lifecycle.copy(FLOW, [START], as_of).values()
            assert isinstance(failed, Exception)
    waited = [later - earlier for earlier, later in pairwise(begun)]
    assert waited == [timedelta(minutes=minutes) for minutes in (5, 10, 20)]
    assert lifecycle.statuses(FLOW, "backup")[START] is ProcessInstanceStatus.FAILED
    blocked.unlink()
    (done,) = lifecycle.copy(FLOW, [START], at("01T03")).values()
    assert isinstance(done, Published)


@pytest.mark.parametrize("order", ["FIFO", "LIFO"])
def test_a_flow_has_the_order_and_the_slots_that_the_feed_says(tmp_path: Path, order: str) -> None:
    lifecycle = harness_of(tmp_path, replicated(replication={"order": order, "parallel": 2}))
    lifecycle.land("clicks", *hours(4))
    lifecycle.arrive(at("01T04"))
    (first, second) = lifecycle.tick(at("01T04"), "backup")
    asked = sorted(first.nominal_times + second.nominal_times)
    assert asked == hours(4)
    assert (first.first < second.first) is (order == "FIFO")


def test_a_flow_is_suspended_and_goes_on_with_its_feed(tmp_path: Path) -> None:
    lifecycle = harness_of(tmp_path, replicated())
    lifecycle.land("clicks", *hours(2))
    schedule(lifecycle, ScheduleState.SUSPENDED, START)
    pass_time(lifecycle, at("01T00:05"))
    assert lifecycle.statuses(FLOW, "backup") == {}
    schedule(lifecycle, ScheduleState.SCHEDULED, at("01T01"))
    pass_time(lifecycle, at("01T01:05"))
    assert lifecycle.statuses(FLOW, "backup") == dict.fromkeys(hours(2), ProcessInstanceStatus.SUCCEEDED)


def schedule(lifecycle: LifecycleHarness, wanted: ScheduleState, now: datetime) -> None:
    with lifecycle.database.begin() as connection:
        view = load_schedules(connection)
        rows = decide_schedules(view, Kind.FEED, "clicks", ["backup"], wanted, author="ann", now=now)
        apply_schedules(connection, view, rows, now)


def test_a_feed_that_is_deleted_ends_its_copies(tmp_path: Path) -> None:
    lifecycle = harness_of(tmp_path, replicated())
    pass_time(lifecycle, at("01T00:05"))
    with lifecycle.database.begin() as connection:
        apply_end_of_work(connection, Kind.FEED, "clicks", ["backup"], reason="deleted", now=at("01T00:06"))
    assert lifecycle.statuses(FLOW, "backup") == {START: ProcessInstanceStatus.KILLED}
    assert lifecycle.watermark(WatermarkKind.PROCESS, FLOW, "backup") is None
