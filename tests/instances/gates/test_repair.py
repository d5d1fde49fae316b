"""Replicas that are not what they should be, copied again: what is done, what is left alone, and what is told of it."""

from datetime import datetime
from pathlib import Path
from shutil import rmtree

import pytest

from feed_assets.context.errors import InstanceQueryError
from feed_assets.instances.gates.reconciliation import RunState, apply_reconciliation, find_commands, find_launched
from feed_assets.log.audit import Audit
from feed_assets.log.definitions.records import ScheduleState
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.leases import Leases
from feed_assets.log.records import FeedEventKind, FeedInstanceStatus, ProcessInstanceStatus, ProcessKey
from feed_assets.log.run_names import name_repair
from feed_assets.replication.auditing import CopyVerdict
from feed_assets.replication.repairing import RepairOutcome, repair
from tests.context.contexts import context_of
from tests.instances.harness import START, LifecycleHarness, at
from tests.replication.copies import outcomes, query, repaired, verdicts
from tests.replication.test_flows import (
    FLOW,
    HOUR,
    files,
    harness_of,
    land_slice,
    pass_time,
    replicated,
    schedule,
    slices,
)
from tests.replication.test_verify import FOUR, copied, part, replica, set_status

AS_OF = at("01T04")


@pytest.fixture
def lifecycle(tmp_path: Path) -> LifecycleHarness:
    """Four hours of clicks, all of them copied."""
    return copied(harness_of(tmp_path, replicated(flag="_DONE")))


def damage(lifecycle: LifecycleHarness) -> None:
    """One instance that is missing, one with a flipped byte, one with a file too much, one behind."""
    rmtree(replica(lifecycle, START))
    part(lifecycle, START + HOUR).write_text("dat4")
    (replica(lifecycle, START + 2 * HOUR) / "mine.csv").write_text("1")
    lifecycle.land("clicks", START + 3 * HOUR, text="late")


def test_everything_that_is_found_is_copied_again_and_nothing_else(tmp_path: Path) -> None:
    lifecycle = copied(harness_of(tmp_path, replicated(flag="_DONE", replication={"removed_files": "remove"})))
    damage(lifecycle)
    untouched = part(lifecycle, START + 3 * HOUR)
    inode = untouched.stat().st_ino
    done = repaired(lifecycle, AS_OF, start=START, deep=True)
    assert outcomes(done) == dict.fromkeys(FOUR, RepairOutcome.REPAIRED)
    assert done.is_complete
    for time in FOUR:
        assert files(lifecycle, time) == files(lifecycle, time, "primary")
        assert (replica(lifecycle, time) / "_DONE").exists()
    copied_files = {each.copy.nominal_time: (each.files, each.removed) for each in done.copies}
    assert list(copied_files.values()) == [(2, 0), (1, 0), (0, 1), (1, 0)]
    assert untouched.stat().st_ino == inode
    assert set(verdicts(lifecycle, AS_OF, start=START, deep=True).values()) == {CopyVerdict.IN_SYNC}


def test_a_repeat_finds_nothing_to_do(lifecycle: LifecycleHarness) -> None:
    rmtree(replica(lifecycle, START))
    assert outcomes(repaired(lifecycle, AS_OF, start=START)) == {START: RepairOutcome.REPAIRED}
    events = lifecycle.events()
    again = repaired(lifecycle, AS_OF, start=START)
    assert (again.copies, again.is_complete) == ((), True)
    assert lifecycle.events() == events


def test_a_dry_run_says_what_would_be_copied_and_changes_nothing(lifecycle: LifecycleHarness) -> None:
    damage(lifecycle)
    events, instances = lifecycle.events(), lifecycle.instances(FLOW, "backup")
    done = repaired(lifecycle, AS_OF, start=START, deep=True, dry_run=True)
    planned = {each.copy.nominal_time: (each.outcome, each.bytes, each.files) for each in done.copies}
    assert planned[START] == (RepairOutcome.PLANNED, len("datamore"), 2)
    assert planned[START + HOUR] == (RepairOutcome.PLANNED, len("data"), 1)
    assert planned[START + 3 * HOUR] == (RepairOutcome.PLANNED, len("late"), 1)
    assert (lifecycle.events(), lifecycle.instances(FLOW, "backup")) == (events, instances)
    assert not replica(lifecycle, START).exists()
    assert "would repair 3 of 4 findings: 16 bytes in 4 files" in done.summary


def test_a_repair_is_an_attempt_and_its_event_is_one_that_sensors_tell(lifecycle: LifecycleHarness) -> None:
    rmtree(replica(lifecycle, START))
    repaired(lifecycle, AS_OF, start=START)
    row = lifecycle.instances(FLOW, "backup")[START]
    assert (row.status, row.attempt) == (ProcessInstanceStatus.SUCCEEDED, 2)
    assert (row.run_id or "").startswith("repair:ann:")
    event = lifecycle.events("clicks")[-1]
    assert (event.kind, event.cluster, event.origin) == (FeedEventKind.REPLICATED, "backup", row.run_id)
    assert event.payload["copy"]["copied_files"] == 2  # type: ignore[index]
    with lifecycle.database.read() as connection:
        (entry,) = Audit(connection).newest(1)
    assert (entry.author, entry.action, entry.target) == ("ann", "replication repair", "feed 'clicks'")
    assert entry.details["instances"] == 1


def test_what_no_source_has_is_told_and_left_alone(lifecycle: LifecycleHarness) -> None:
    rmtree(lifecycle.folder("clicks", START))
    part(lifecycle, START).unlink()
    lifecycle.land("clicks", START + 9 * HOUR, cluster="backup")
    before = files(lifecycle, START)
    done = repaired(lifecycle, at("01T12"), start=START)
    assert outcomes(done) == {START: RepairOutcome.LEFT, START + 9 * HOUR: RepairOutcome.LEFT}
    assert not done.is_complete
    assert "the source no longer has it" in done.copies[0].reason
    assert files(lifecycle, START) == before
    assert replica(lifecycle, START + 9 * HOUR).exists()


def test_an_extra_file_stays_where_nothing_is_declared_of_removed_files(lifecycle: LifecycleHarness) -> None:
    (replica(lifecycle, START) / "mine.csv").write_text("1")
    done = repaired(lifecycle, AS_OF, start=START)
    assert outcomes(done) == {START: RepairOutcome.LEFT}
    assert "they stay at the target" in done.copies[0].reason
    assert (replica(lifecycle, START) / "mine.csv").exists()


def test_a_rotten_file_that_the_source_does_not_have_is_never_taken_for_good(tmp_path: Path) -> None:
    lifecycle = copied(harness_of(tmp_path, replicated(flag="_DONE", replication={"removed_files": "keep"})))
    (file,) = [each for each in replica(lifecycle, START).glob("*.csv") if each.read_text() == "more"]
    (lifecycle.folder("clicks", START) / file.name).unlink()
    file.write_text("m0re")
    (other,) = [each for each in replica(lifecycle, START).glob("*.csv") if each.read_text() == "data"]
    other.unlink()
    done = repaired(lifecycle, AS_OF, start=START, deep=True)
    assert outcomes(done) == {START: RepairOutcome.REPAIRED}
    assert not done.is_complete
    assert other.read_text() == "data"
    assert verdicts(lifecycle, AS_OF, start=START, deep=True)[START] is CopyVerdict.ROTTEN


def test_what_is_evicted_is_not_brought_back(lifecycle: LifecycleHarness) -> None:
    set_status(lifecycle, START, "backup", FeedInstanceStatus.EVICTED)
    rmtree(replica(lifecycle, START))
    assert repaired(lifecycle, AS_OF, start=START).copies == ()
    assert not replica(lifecycle, START).exists()


def put_status(
    lifecycle: LifecycleHarness, time: datetime, status: ProcessInstanceStatus, run_id: str | None = None
) -> None:
    with lifecycle.database.begin() as connection:
        ProcessInstances(connection).transition(
            ProcessKey(FLOW, "backup", time), set(ProcessInstanceStatus), status=status, run_id=run_id
        )


def test_what_others_hold_is_left_to_them_and_what_is_suspended_stays_so(lifecycle: LifecycleHarness) -> None:
    for time in FOUR[:2]:
        rmtree(replica(lifecycle, time))
    put_status(lifecycle, START, ProcessInstanceStatus.SUSPENDED)
    leases = Leases(lifecycle.database)
    leases.acquire("feed/clicks", "backup", START + HOUR, "somebody", AS_OF, HOUR)
    done = repaired(lifecycle, AS_OF, start=START)
    assert outcomes(done) == {START: RepairOutcome.LEFT, START + HOUR: RepairOutcome.FAILED}
    assert "somebody" in done.copies[1].reason
    assert not replica(lifecycle, START + HOUR).exists()
    assert lifecycle.statuses(FLOW, "backup")[START] is ProcessInstanceStatus.SUSPENDED


def test_a_suspended_feed_refuses_a_repair(lifecycle: LifecycleHarness) -> None:
    rmtree(replica(lifecycle, START))
    schedule(lifecycle, ScheduleState.SUSPENDED, AS_OF)
    with pytest.raises(InstanceQueryError, match=r"suspended on backup.*feed-assets entity resume feed clicks"):
        repaired(lifecycle, AS_OF, start=START)
    assert not replica(lifecycle, START).exists()


def test_a_lost_instance_of_slices_is_whole_again_with_its_last_slice_only(tmp_path: Path) -> None:
    lifecycle = harness_of(tmp_path, slices())
    for cluster in ("east", "west"):
        land_slice(lifecycle, cluster, START)
    pass_time(lifecycle, at("01T00:05"))
    rmtree(replica(lifecycle, START))
    done = repaired(lifecycle, at("01T00:10"))
    assert [each.outcome for each in done.copies] == [RepairOutcome.REPAIRED] * 2
    changes = [event for event in lifecycle.events("clicks") if event.origin.startswith("repair:")]
    assert len(changes) == 2
    assert lifecycle.feed_statuses("clicks", "backup") == {START: FeedInstanceStatus.AVAILABLE}
    assert sorted(files(lifecycle, START).values()) == ["east of east", "west of west"]
    assert (replica(lifecycle, START) / "_DONE").exists()


def test_a_lost_instance_of_which_one_slice_is_gone_for_good_is_not_whole(tmp_path: Path) -> None:
    lifecycle = harness_of(tmp_path, slices())
    for cluster in ("east", "west"):
        for time in (START, START + HOUR):
            land_slice(lifecycle, cluster, time)
    pass_time(lifecycle, at("01T01:05"))
    rmtree(replica(lifecycle, START))
    rmtree(lifecycle.folder("clicks", START, "west"))
    done = repaired(lifecycle, at("01T01:10"))
    assert [each.outcome for each in done.copies] == [RepairOutcome.REPAIRED, RepairOutcome.LEFT]
    assert not (replica(lifecycle, START) / "_DONE").exists()
    assert (replica(lifecycle, START) / "east" / "_DONE").exists()
    assert lifecycle.feed_statuses("clicks", "backup") == {
        START: FeedInstanceStatus.PARTIAL,
        START + HOUR: FeedInstanceStatus.AVAILABLE,
    }


def test_what_cannot_be_looked_at_is_told_and_takes_no_other_along(lifecycle: LifecycleHarness) -> None:
    for time in FOUR[:2]:
        rmtree(replica(lifecycle, time))
    replica(lifecycle, START).write_text("in the way")
    done = repaired(lifecycle, AS_OF, start=START)
    assert outcomes(done) == {START: RepairOutcome.LEFT, START + HOUR: RepairOutcome.REPAIRED}
    assert (done.copies[0].copy.verdict, done.copies[0].reason) == (CopyVerdict.UNKNOWN, "it could not be checked")
    assert not done.is_complete
    assert files(lifecycle, START + HOUR) == files(lifecycle, START + HOUR, "primary")


def test_a_repair_in_progress_is_taken_for_alive_as_long_as_it_holds_its_leases(lifecycle: LifecycleHarness) -> None:
    name = name_repair("ann")
    put_status(lifecycle, START, ProcessInstanceStatus.RUNNING, name)
    lease = Leases(lifecycle.database).acquire(f"process/{FLOW}", "backup", START, name, AS_OF, HOUR)
    launched = find_launched(lifecycle.database, "backup", AS_OF)
    assert find_commands(lifecycle.database, launched, AS_OF) == {name: RunState.ALIVE}
    assert apply_reconciliation(lifecycle.context(AS_OF), launched, {name: RunState.ALIVE}, {}) == ()
    Leases(lifecycle.database).release_many([lease])
    commands = find_commands(lifecycle.database, launched, AS_OF)
    assert commands == {name: RunState.ENDED}
    assert apply_reconciliation(lifecycle.context(AS_OF), launched, commands, {}) == (
        ProcessKey(FLOW, "backup", START),
    )
    assert lifecycle.statuses(FLOW, "backup")[START] is ProcessInstanceStatus.READY


def test_ticks_leave_a_repair_alone_that_is_at_work(lifecycle: LifecycleHarness) -> None:
    rmtree(replica(lifecycle, START))
    states: list[RunState] = []

    def tick(what: str, *_: int) -> None:
        """What a sensor finds out about runs while files are copied."""
        if what != "verify":
            launched = find_launched(lifecycle.database, "backup", AS_OF)
            states.extend(find_commands(lifecycle.database, launched, AS_OF).values())

    done = repair(context_of(lifecycle, AS_OF).by("ann"), query(start=START), progress=tick)
    assert outcomes(done) == {START: RepairOutcome.REPAIRED}
    assert set(states) == {RunState.ALIVE}
