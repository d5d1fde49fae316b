"""What protects instances: holds, leases, readers at work or still to come, late data, and copies elsewhere."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from feed_assets.entities.common import Locations
from feed_assets.entities.feed import Feed
from feed_assets.entities.process import Process
from feed_assets.instances.late.store import LateCheck, LateChecks
from feed_assets.log.agenda import AgendaKind
from feed_assets.log.events import EventLog
from feed_assets.log.instances.attempts import Attempts
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.leases import Leases
from feed_assets.log.records import (
    Attempt,
    FeedEventKind,
    FeedInstance,
    FeedInstanceStatus,
    FrozenInput,
    NewFeedEvent,
    ProcessInstance,
    ProcessInstanceStatus,
    Watermark,
    WatermarkKind,
)
from feed_assets.log.removals.holds import Holds
from feed_assets.log.removals.records import ItemOutcome
from feed_assets.log.removals.tables import holds
from feed_assets.log.watermarks import Watermarks
from feed_assets.releases.left_out import find_refused_writes
from feed_assets.retention.rules.protections import Protection, ProtectionKind, ProtectionQuery, find_protections
from feed_assets.retention.sweeps.sweeping import run_sweep
from tests.instances.harness import START, at, feed, process
from tests.retention.harness import RetentionHarness, hourly, kept_feed

TIMES = hourly(START, 6)
EARLIER = START - timedelta(days=1)
Found = Mapping[datetime, list[Protection]]


def protections(harness: RetentionHarness, times: list[datetime] = TIMES, name: str = "clicks") -> Found:
    query = ProtectionQuery(as_of=harness.now, real_now=harness.now, holder="me")
    with harness.lifecycle.database.read() as connection:
        return find_protections(connection, harness.lifecycle.timeline, harness.lifecycle.feed(name), times, query)


def kept(found: Found, kind: ProtectionKind) -> list[datetime]:
    return [time for time, reasons in sorted(found.items()) if kind in [each.kind for each in reasons]]


def counting(tmp_path: Path, state: str | None = None, window: str = "now(0,0)", **retention: Any) -> RetentionHarness:
    """Clicks that a process counts."""
    count = process("count", inputs={"clicks": window}, outputs={"counts": "now(0,0)"})
    harness = RetentionHarness.of(tmp_path, kept_feed(start=EARLIER, **retention), feed("counts"), count, state=state)
    harness.now = at("04")
    return harness


def put(harness: RetentionHarness, time: datetime, status: ProcessInstanceStatus, **more: Any) -> None:
    row = ProcessInstance(process="count", cluster="primary", nominal_time=time, status=status, updated_at=START)
    with harness.lifecycle.database.begin() as connection:
        ProcessInstances(connection).add_waiting([replace(row, **more)])


def reached(harness: RetentionHarness, next_time: datetime | None) -> None:
    """How far the process has come."""
    index = 0 if next_time is None else harness.lifecycle.process("count").sequence.index_at_or_after(next_time)
    watermark = Watermark(
        kind=WatermarkKind.PROCESS, entity="count", cluster="primary", next_index=index, next_time=next_time
    )
    with harness.lifecycle.database.begin() as connection:
        Watermarks(connection).put([watermark])


def end_all(harness: RetentionHarness) -> None:
    """Let all process instances that have come into being succeed."""
    with harness.lifecycle.database.begin() as connection:
        every = [("count", "primary", time) for time in harness.lifecycle.statuses("count")]
        ended = ProcessInstanceStatus.SUCCEEDED
        ProcessInstances(connection).transition_many(every, set(ProcessInstanceStatus), status=ended, updated_at=START)


def test_where_nothing_protects_nothing_is_kept(tmp_path: Path, state_url: str) -> None:
    assert protections(counting(tmp_path, state_url)) == {}


def test_several_holds_protect_what_they_are_on_until_all_are_gone(tmp_path: Path, state_url: str) -> None:
    harness = counting(tmp_path, state_url)
    harness.hold("audit", first=TIMES[1], last=TIMES[2])
    harness.hold("court", first=TIMES[2], last=TIMES[3], cluster="primary")
    harness.hold("elsewhere", cluster="backup")
    harness.hold("others", feed="counts")
    harness.hold("over", expires_at=at("03"))
    harness.hold("gone", released_at=at("03"))
    assert kept(protections(harness), ProtectionKind.HOLD) == TIMES[1:4]


def test_a_hold_on_every_feed_holds_every_feed(tmp_path: Path) -> None:
    harness = counting(tmp_path)
    harness.hold("everything", feed=None)
    assert kept(protections(harness), ProtectionKind.HOLD) == TIMES


def test_a_hold_that_cannot_be_read_holds_everything(tmp_path: Path, state_url: str) -> None:
    harness = counting(tmp_path, state_url)
    harness.hold("audit", feed="counts", first=START, last=START)
    with harness.lifecycle.database.begin() as connection:
        connection.execute(holds.update().values(version=2))
    assert kept(protections(harness), ProtectionKind.HOLD) == TIMES


def test_a_lease_protects_from_all_but_its_holder(tmp_path: Path, state_url: str) -> None:
    harness = counting(tmp_path, state_url)
    leases = Leases(harness.lifecycle.database)
    for time, holder, until in ((TIMES[0], "run-1", 5), (TIMES[1], "me", 5), (TIMES[2], "run-2", -5)):
        leases.acquire(
            "feed/clicks", "primary", time, holder, harness.now - timedelta(hours=1), timedelta(hours=1, minutes=until)
        )
    assert kept(protections(harness), ProtectionKind.LEASE) == TIMES[:1]


@pytest.mark.parametrize("status", ["RUNNING", "READY"])
def test_what_a_process_instance_at_work_reads_stays(tmp_path: Path, state_url: str, status: str) -> None:
    harness = counting(tmp_path, state_url, window="now(-1,0) now(0,0)")
    put(harness, TIMES[3], ProcessInstanceStatus(status))
    found = protections(harness)
    assert kept(found, ProtectionKind.READER) == TIMES[2:4]
    assert found[TIMES[2]][0].reason == f"instance 2013-11-01T03:00Z of process 'count' is {status}"


@pytest.mark.parametrize("status", ["WAITING", "SUCCEEDED", "FAILED", "SKIPPED", "KILLED"])
def test_what_only_instances_that_are_not_at_work_read_may_go(tmp_path: Path, status: str) -> None:
    harness = counting(tmp_path)
    put(harness, TIMES[3], ProcessInstanceStatus(status))
    assert protections(harness) == {}


def test_what_a_run_has_taken_stays_whatever_is_declared(tmp_path: Path, state_url: str) -> None:
    harness = counting(tmp_path, state_url)
    taken = FrozenInput(name="clicks", feed="clicks", nominal_times=(TIMES[5],), digests=(None,))
    put(harness, at("03"), ProcessInstanceStatus.RUNNING, run_id="run-1", attempt=1)
    begun: dict[str, Any] = {"process": "count", "cluster": "primary", "nominal_time": at("03"), "attempt": 1}
    running = Attempt(**begun, run_id="run-1", status=ProcessInstanceStatus.RUNNING, started_at=START, inputs=(taken,))
    with harness.lifecycle.database.begin() as connection:
        Attempts(connection).begin(running)
    harness.lifecycle.declare(kept_feed(start=EARLIER))
    assert kept(protections(harness), ProtectionKind.READER) == [TIMES[5]]


def test_what_an_older_release_reads_stays(tmp_path: Path, state_url: str) -> None:
    harness = counting(tmp_path, state_url, window="now(-2,0) now(0,0)")
    lifecycle = harness.lifecycle
    harness.land("clicks", *hourly(EARLIER, 36))
    lifecycle.launch(lifecycle.tick(at("02")), at("02"))
    narrow = process("count", inputs={"clicks": "now(0,0)"}, outputs={"counts": "now(0,0)"})
    harness.lifecycle.declare(kept_feed(start=EARLIER), feed("counts"), narrow)
    lifecycle.tick(at("04"))
    end_all(harness)
    with harness.lifecycle.database.begin() as connection:
        key = ("count", "primary", TIMES[4])
        ready = ProcessInstanceStatus.READY
        assert ProcessInstances(connection).transition(key, set(ProcessInstanceStatus), status=ready, updated_at=START)
    assert kept(protections(harness), ProtectionKind.READER) == TIMES[2:5]


def test_what_a_window_of_the_newest_reads_stays_while_somebody_is_at_work(tmp_path: Path) -> None:
    harness = counting(tmp_path, window="latest(-1) latest(0)")
    harness.land("clicks", *TIMES)
    harness.arrive(at("04"))
    end_all(harness)
    assert protections(harness) == {}
    put(harness, at("09"), ProcessInstanceStatus.READY)
    assert kept(protections(harness), ProtectionKind.READER) == TIMES[-2:]


def test_what_a_window_of_the_future_may_read_stays(tmp_path: Path) -> None:
    harness = counting(tmp_path, window="future(0,2)")
    put(harness, TIMES[1], ProcessInstanceStatus.READY)
    assert kept(protections(harness), ProtectionKind.READER) == TIMES[1:4]


def test_instances_stay_until_the_named_processes_have_read_them(tmp_path: Path, state_url: str) -> None:
    harness = counting(tmp_path, state_url, until_read_by=["count"])
    statuses = ["SUCCEEDED", "SKIPPED", "FAILED", "WAITING", "KILLED", "SUCCEEDED"]
    for time, status in zip(TIMES, statuses, strict=True):
        put(harness, time, ProcessInstanceStatus(status))
    reached(harness, at("04"))
    assert kept(protections(harness), ProtectionKind.UNREAD) == TIMES[2:5]


def test_what_is_still_to_be_read_stays_and_what_never_will_be_goes(tmp_path: Path, state_url: str) -> None:
    harness = counting(tmp_path, state_url, until_read_by=["count"])
    assert kept(protections(harness), ProtectionKind.UNREAD) == TIMES
    reached(harness, TIMES[4])
    assert kept(protections(harness), ProtectionKind.UNREAD) == TIMES[4:]
    reached(harness, None)
    assert protections(harness) == {}


def test_a_window_keeps_what_any_of_its_readers_has_not_read(tmp_path: Path) -> None:
    harness = counting(tmp_path, window="now(-2,0) now(0,0)", until_read_by=["count"])
    reached(harness, None)
    for time in TIMES:
        put(harness, time, ProcessInstanceStatus.FAILED if time == TIMES[4] else ProcessInstanceStatus.SUCCEEDED)
    assert kept(protections(harness), ProtectionKind.UNREAD) == TIMES[2:5]


def test_a_process_that_is_nowhere_declared_has_read_nothing(tmp_path: Path) -> None:
    harness = counting(tmp_path, until_read_by=["count"])
    reached(harness, None)
    record = harness.lifecycle.feed("clicks")
    assert record.retention is not None
    forgotten = replace(record, retention=replace(record.retention, until_read_by=("forgotten",)))
    query = ProtectionQuery(as_of=harness.now, real_now=harness.now, holder="me")
    with harness.lifecycle.database.read() as connection:
        found = find_protections(connection, harness.lifecycle.timeline, forgotten, TIMES, query)
    assert kept(found, ProtectionKind.UNREAD) == TIMES


def changed(entity: Feed, **more: Any) -> Feed:
    """A feed with other fields."""
    return Feed(**{**entity.model_dump(mode="json", exclude_defaults=True), **more})


def replicated(of_source: Mapping[str, Any]) -> Feed:
    """Clicks with a copy on another cluster that keeps them for 70 hours; `of_source` is retention at the source."""
    of_clusters = kept_feed().model_dump(mode="json", exclude_defaults=True)["clusters"]["primary"]
    return changed(
        kept_feed(),
        clusters={
            "primary": {**of_clusters, "type": "source", "retention": {"limit": "days(2)", **of_source}},
            "backup": {**of_clusters, "type": "target", "retention": {"limit": "hours(70)"}},
        },
    )


def check(kind: AgendaKind, name: str, time: datetime) -> LateCheck:
    return LateCheck(
        kind=kind,
        name=name,
        cluster="primary",
        nominal_time=time,
        planned_at=START,
        due_at=at("09"),
        cut_off_at=at("20"),
    )


def test_what_late_data_are_still_looked_for_in_stays(tmp_path: Path, state_url: str) -> None:
    harness = counting(tmp_path, state_url)
    with harness.lifecycle.database.begin() as connection:
        kind = AgendaKind.LATE_FEED
        LateChecks(connection).put([check(kind, "clicks", TIMES[1]), check(kind, "counts", TIMES[2])])
    assert kept(protections(harness), ProtectionKind.LATE_DATA) == TIMES[1:2]


def test_what_an_instance_reads_whose_late_data_are_looked_for_stays(tmp_path: Path, state_url: str) -> None:
    late: dict[str, Any] = {"late_process": {"policy": "periodic", "delay": "hours(1)", "inputs": ["clicks"]}}
    count = process("count", inputs={"clicks": "now(-1,0) now(0,0)"}, outputs={"counts": "now(0,0)"}, **late)
    clicks = changed(kept_feed(start=EARLIER), late_arrival={"cut_off": "hours(5)"})
    harness = RetentionHarness.of(tmp_path, clicks, feed("counts"), count, state=state_url)
    harness.now = at("04")
    with harness.lifecycle.database.begin() as connection:
        LateChecks(connection).put([check(AgendaKind.LATE_INPUTS, "count", TIMES[3])])
    assert kept(protections(harness), ProtectionKind.LATE_DATA) == TIMES[2:4]


def test_instances_stay_until_another_cluster_has_them(tmp_path: Path, state_url: str) -> None:
    clicks = replicated({"until_replicated_to": ["backup"]})
    harness = RetentionHarness.of(tmp_path, clicks, state=state_url, clusters=("primary", "backup"))
    harness.now = at("04")
    row = FeedInstance(
        feed="clicks", cluster="backup", nominal_time=START, status=FeedInstanceStatus.AVAILABLE, updated_at=START
    )
    statuses = ["AVAILABLE", "EVICTED", "PARTIAL", "MISSING"]
    with harness.lifecycle.database.begin() as connection:
        FeedInstances(connection).put(
            replace(row, nominal_time=time, status=FeedInstanceStatus(status))
            for time, status in zip(TIMES, statuses, strict=False)
        )
    assert kept(protections(harness), ProtectionKind.REPLICA) == TIMES[2:]


def copied(tmp_path: Path) -> RetentionHarness:
    """Clicks that another cluster must have first, and has; they are too old."""
    clicks = replicated({"until_replicated_to": ["backup"]})
    harness = RetentionHarness.of(tmp_path, clicks, clusters=("primary", "backup"))
    harness.land("clicks", *hourly(START, 60))
    harness.arrive(at("01T04"))
    ended = harness.lifecycle.copy("clicks@primary", TIMES[:3], at("01T04"))
    assert not [each for each in ended.values() if isinstance(each, Exception)]
    harness.wait(at("03T02:30"))
    return harness


def taken(harness: RetentionHarness) -> list[datetime]:
    (planned,) = harness.plan().feeds
    assert planned.survey is not None
    return [item.nominal_time for items in planned.survey.taken.values() for item in items]


def test_a_replica_that_has_the_content_lets_its_source_go(tmp_path: Path) -> None:
    harness = copied(tmp_path)
    assert taken(harness) == TIMES[:3]
    swept = harness.run(harness.planned())
    assert harness.outcomes(swept) == {ItemOutcome.EVICTED: 3}


def test_an_instance_stays_while_its_replica_has_older_content(tmp_path: Path) -> None:
    harness = copied(tmp_path)
    harness.land("clicks", TIMES[1], text="more")
    assert taken(harness) == [TIMES[0], TIMES[2]]
    (planned,) = harness.plan().feeds
    assert planned.survey is not None
    kept_now = {each.nominal_time: each.kept for each in planned.survey.protected}
    assert kept_now[TIMES[1]] == (
        Protection(
            ProtectionKind.REPLICA,
            "it stays until cluster 'backup' has it, where it is behind: its source has changed since it was copied",
        ),
    )


def test_an_instance_stays_that_changes_between_the_plan_and_the_sweep(tmp_path: Path) -> None:
    harness = copied(tmp_path)
    sweep = harness.planned()
    part = next(harness.lifecycle.folder("clicks", TIMES[1]).iterdir())
    part.write_text("DATA")
    results = harness.results(harness.run(sweep))
    assert results["clicks/2013-11-01/01"].outcome is ItemOutcome.KEPT
    assert "where it is behind" in (results["clicks/2013-11-01/01"].reason or "")
    assert part.read_text() == "DATA"


def test_a_replica_that_cannot_be_compared_keeps_its_source(tmp_path: Path) -> None:
    harness = copied(tmp_path)
    (tmp_path / "backup").rename(tmp_path / "unmounted")
    assert taken(harness) == []


def test_the_record_knows_that_a_replica_is_behind_even_if_it_was_evicted(tmp_path: Path) -> None:
    harness = copied(tmp_path)
    replicas, source = harness.lifecycle.feed_instances("clicks", "backup").values(), harness.rows()[TIMES[1]]
    change = NewFeedEvent(
        **source.key._asdict(), kind=FeedEventKind.CHANGED, origin="late data", recorded_at=at("01T09")
    )
    with harness.lifecycle.database.begin() as connection:
        (seq,) = EventLog(connection).append([change])
        evicted = [replace(row, status=FeedInstanceStatus.EVICTED) for row in replicas]
        FeedInstances(connection).put([*evicted, replace(source, manifest_digest="blake3:new", event_seq=seq)])
    assert kept(protections(harness, TIMES[:3]), ProtectionKind.REPLICA) == TIMES[1:2]


def test_copies_that_are_still_to_be_made_keep_the_source_where_they_are_made(tmp_path: Path) -> None:
    clicks = replicated({})
    harness = RetentionHarness.of(tmp_path, clicks, clusters=("primary", "backup"))
    harness.now = at("04")
    assert kept(protections(harness), ProtectionKind.REPLICA) == TIMES[2:]


def test_what_somebody_began_to_read_while_it_was_moved_is_put_back(
    tmp_path: Path, state_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = counting(tmp_path, state_url, limit="days(1)")
    harness.land("clicks", *hourly(START, 60))
    harness.arrive(at("03T12:00"))
    end_all(harness)
    before = harness.rows()
    sweep = harness.planned()
    context = harness.context()
    store = harness.lifecycle.store()
    original = store.trash

    def trash() -> Any:
        found = original()
        put_before = found.put

        def put_and_begin(*arguments: Any, **more: Any) -> Any:
            done = put_before(*arguments, **more)
            with harness.lifecycle.database.begin() as connection:
                ProcessInstances(connection).transition(
                    ("count", "primary", TIMES[2]),
                    set(ProcessInstanceStatus),
                    status=ProcessInstanceStatus.RUNNING,
                    run_id="run-9",
                    updated_at=START,
                )
            return done

        monkeypatch.setattr(found, "put", put_and_begin)
        return found

    monkeypatch.setattr(store, "trash", trash)
    done = run_sweep(context, sweep.sweep_id)
    result = harness.results(done)["clicks/2013-11-01/02"]
    assert (result.outcome, result.reason) == (
        ItemOutcome.KEPT,
        "reader: instance 2013-11-01T02:00Z of process 'count' is RUNNING",
    )
    assert (harness.root / "clicks/2013-11-01/02").is_dir()
    row = harness.rows()[TIMES[2]]
    assert (row.status, row.manifest_digest) == (FeedInstanceStatus.AVAILABLE, before[TIMES[2]].manifest_digest)
    assert [event.nominal_time for event in harness.events(FeedEventKind.RESTORED)] == [TIMES[2]]
    assert sum(count.evicted for count in done.counts) == len(harness.results(done)) - 1


@pytest.mark.parametrize(
    ("frequency", "place"),
    [("hours(1)", "/clicks/${YEAR}-${MONTH}-${DAY}/${HOUR}/pages"), ("days(1)", "/clicks/${YEAR}-${MONTH}-${DAY}")],
)
def test_a_feed_that_is_left_out_of_the_plan_protects_the_place_of_its_last_version(
    tmp_path: Path, frequency: str, place: str
) -> None:
    neighbour = feed("pages", frequency).model_copy(update={"locations": Locations(data=place)})
    harness = RetentionHarness.of(tmp_path, kept_feed(), feed("counts"))
    harness.land("clicks", *TIMES)
    harness.arrive(at("06"))
    harness.now = at("06") + timedelta(days=9)
    sweep = harness.approve(harness.planned("clicks"))
    lifecycle = harness.lifecycle
    plan = lifecycle.plan
    lifecycle.declare(kept_feed(), feed("counts"), neighbour)
    lifecycle.use(plan)
    assert kept(protections(harness), ProtectionKind.NEIGHBOUR) == TIMES
    harness.run(sweep)
    assert harness.outcomes(sweep) == {ItemOutcome.KEPT: len(TIMES)}
    lifecycle.declare(kept_feed(), feed("counts"))
    assert kept(protections(harness), ProtectionKind.NEIGHBOUR) == []


def mirror_to(directory: str) -> Process:
    sides = {"source": {"directory": "/models"}, "target": {"directory": directory}}
    return process("mirroring", workflow={"engine": "directory-mirror", "mirror": sides})


def test_a_mirror_that_is_left_out_of_the_plan_protects_what_it_has_written(tmp_path: Path) -> None:
    harness = RetentionHarness.of(tmp_path, kept_feed(), feed("counts"))
    lifecycle, plan = harness.lifecycle, harness.lifecycle.plan
    lifecycle.declare(mirror_to("/clicks/2013-11-01/02/inner"))
    lifecycle.use(plan)
    assert kept(protections(harness), ProtectionKind.NEIGHBOUR) == TIMES
    lifecycle.declare(mirror_to("/clicks-of-others"))
    lifecycle.use(plan)
    assert kept(protections(harness), ProtectionKind.NEIGHBOUR) == []


def refused_writes(harness: RetentionHarness, name: str) -> list[datetime]:
    lifecycle = harness.lifecycle
    with lifecycle.database.read() as connection:
        return sorted(
            find_refused_writes(connection, lifecycle.timeline, lifecycle.plan.processes[name, "primary"], TIMES)
        )


def test_nobody_writes_over_the_data_of_a_feed_that_is_left_out_of_the_plan(tmp_path: Path) -> None:
    summing = process("summing", outputs={"counts": "now(0,0)"})
    harness = RetentionHarness.of(tmp_path, kept_feed(), feed("counts"), summing, mirror_to("/models2"))
    lifecycle, plan = harness.lifecycle, harness.lifecycle.plan
    place = plan.feeds["counts", "primary"].template.text
    for locations, end, summed, mirrored in (
        (place, None, TIMES, []),
        (place, TIMES[2], TIMES[:2], []),
        ("/models2/${YEAR}${MONTH}${DAY}${HOUR}", None, [], TIMES),
        ("/others/${YEAR}${MONTH}${DAY}${HOUR}", None, [], []),
    ):
        neighbour = kept_feed("pages", locations={"data": locations}, end=end)
        lifecycle.declare(neighbour)
        lifecycle.use(plan)
        assert refused_writes(harness, "summing") == summed
        assert refused_writes(harness, "mirroring") == mirrored


def test_a_feed_elsewhere_that_is_left_out_of_the_plan_protects_nothing(tmp_path: Path) -> None:
    harness = RetentionHarness.of(tmp_path, kept_feed(), feed("counts"))
    plan = harness.lifecycle.plan
    harness.lifecycle.declare(kept_feed(), feed("counts"), feed("pages"))
    harness.lifecycle.use(plan)
    assert kept(protections(harness), ProtectionKind.NEIGHBOUR) == []


def test_a_hold_stays_on_the_place_of_a_feed_that_gets_another_name(tmp_path: Path) -> None:
    place = {"data": "/clicks/${YEAR}-${MONTH}-${DAY}/${HOUR}"}
    harness = RetentionHarness.of(tmp_path, kept_feed(), feed("counts"))
    harness.hold("audit", first=TIMES[1], last=TIMES[2])
    harness.lifecycle.declare(kept_feed("visits", locations=place), feed("counts"))
    found = protections(harness, name="visits")
    assert kept(found, ProtectionKind.HOLD) == TIMES[1:3]
    assert "the data of feed 'clicks' on primary, which was removed, is at it" in found[TIMES[1]][0].reason
    with harness.lifecycle.database.begin() as connection:
        Holds(connection).release("audit", harness.now, "ann")
    assert kept(protections(harness, name="visits"), ProtectionKind.HOLD) == []
