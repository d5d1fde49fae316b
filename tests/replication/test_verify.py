"""Replicas compared with their manifests and their sources: what is missing, rotten, extra and behind."""

import os
import socket
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from shutil import rmtree

import pytest

from feed_assets.json_form import render_document
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.leases import Leases
from feed_assets.log.records import FeedInstanceStatus, ProcessInstanceStatus, ProcessKey
from feed_assets.replication import auditing
from feed_assets.replication.auditing import CopyVerdict
from tests.instances.harness import START, LifecycleHarness, at, hours
from tests.replication.copies import LATER, verdicts, verified
from tests.replication.test_flows import FLOW, HOUR, harness_of, land_slice, pass_time, replicated, slices

NOON = at("01T12")
FOUR = hours(4)


@pytest.fixture
def lifecycle(tmp_path: Path) -> LifecycleHarness:
    """Four hours of clicks, all of them copied."""
    return copied(harness_of(tmp_path, replicated(flag="_DONE")))


def copied(lifecycle: LifecycleHarness) -> LifecycleHarness:
    lifecycle.land("clicks", *FOUR)
    lifecycle.land("clicks", *FOUR, text="more")
    lifecycle.flag("clicks", *FOUR)
    pass_time(lifecycle, at("01T03:05"))
    return lifecycle


def replica(lifecycle: LifecycleHarness, time: datetime) -> Path:
    return lifecycle.folder("clicks", time, "backup")


def part(lifecycle: LifecycleHarness, time: datetime) -> Path:
    """One file of a replica."""
    return min(replica(lifecycle, time).glob("*.csv"))


def found(lifecycle: LifecycleHarness, *, deep: bool = False) -> dict[datetime, CopyVerdict]:
    return verdicts(lifecycle, at("01T04"), start=START, deep=deep)


def test_what_is_as_it_should_be_is_in_sync(lifecycle: LifecycleHarness) -> None:
    result = verified(lifecycle, at("01T04"), start=START)
    assert {each.verdict for each in result.copies} == {CopyVerdict.IN_SYNC}
    assert (result.findings, result.bytes) == ((), 0)
    assert verified(lifecycle, at("01T04"), start=START, deep=True).bytes == 4 * len("datamore")


def test_without_a_range_every_instance_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auditing, "AT_ONCE", 5)
    lifecycle = harness_of(tmp_path, replicated(flag="_DONE"))
    times = hours(30)
    lifecycle.land("clicks", *times)
    lifecycle.flag("clicks", *times)
    pass_time(lifecycle, at("02T06:05"))
    rmtree(replica(lifecycle, START))
    told = verdicts(lifecycle, at("02T05:30"))
    assert told == {START: CopyVerdict.MISSING} | dict.fromkeys(times[1:], CopyVerdict.IN_SYNC)
    assert len(verdicts(lifecycle, at("02T05:30"), results=10)) == 10


def test_a_replica_that_was_removed_is_missing(lifecycle: LifecycleHarness) -> None:
    rmtree(replica(lifecycle, START))
    assert found(lifecycle) == {START: CopyVerdict.MISSING, **dict.fromkeys(FOUR[1:], CopyVerdict.IN_SYNC)}


def test_a_file_that_was_removed_or_cut_off_is_found_without_reading(lifecycle: LifecycleHarness) -> None:
    part(lifecycle, START).unlink()
    part(lifecycle, START + HOUR).write_text("d")
    (replica(lifecycle, START + 2 * HOUR) / "_DONE").unlink()
    first, second, third, _ = verified(lifecycle, at("01T04"), start=START).copies
    assert {first.verdict, second.verdict, third.verdict} == {CopyVerdict.ROTTEN}
    assert first.audit is not None
    assert second.audit is not None
    assert third.audit is not None
    assert (len(first.audit.lost), len(second.audit.rotten), third.audit.lost) == (1, 1, ("_DONE",))
    assert "1 lost (part-" in first.reason


def test_a_flipped_byte_is_found_where_every_byte_is_read(lifecycle: LifecycleHarness) -> None:
    part(lifecycle, START).write_text("dat4")
    assert set(found(lifecycle).values()) == {CopyVerdict.IN_SYNC}
    assert found(lifecycle, deep=True)[START] is CopyVerdict.ROTTEN


def test_a_file_that_no_copy_has_brought_is_extra(lifecycle: LifecycleHarness) -> None:
    (replica(lifecycle, START) / "mine.csv").write_text("1")
    (replica(lifecycle, START) / "_notes").write_text("readers pass it over")
    first, *_ = verified(lifecycle, at("01T04"), start=START).copies
    assert (first.verdict, first.audit and first.audit.extra) == (CopyVerdict.EXTRA, ("mine.csv",))


def test_where_removed_files_are_kept_an_extra_file_is_none(tmp_path: Path) -> None:
    lifecycle = copied(harness_of(tmp_path, replicated(flag="_DONE", replication={"removed_files": "keep"})))
    (replica(lifecycle, START) / "mine.csv").write_text("1")
    assert set(found(lifecycle).values()) == {CopyVerdict.IN_SYNC}


def test_a_source_that_has_changed_leaves_its_replica_behind(lifecycle: LifecycleHarness) -> None:
    lifecycle.land("clicks", START, text="late")
    first, second, *_ = verified(lifecycle, at("01T04"), start=START).copies
    assert (first.verdict, second.verdict) == (CopyVerdict.BEHIND, CopyVerdict.IN_SYNC)
    assert first.audit is not None
    assert len(first.audit.behind) == 1


def test_an_instance_that_no_source_ever_had_is_extra(lifecycle: LifecycleHarness) -> None:
    for time in (START + 4 * HOUR, START + 9 * HOUR):
        lifecycle.land("clicks", time, cluster="backup")
    result = verified(lifecycle, NOON, start=START)
    assert [(each.source, each.target, each.nominal_time, each.verdict) for each in result.findings] == [
        (None, "backup", START + hour * HOUR, CopyVerdict.EXTRA) for hour in (4, 9)
    ]


def test_an_instance_outside_of_what_is_copied_is_extra(tmp_path: Path) -> None:
    source = {"primary": {"validity": {"start": START + 2 * HOUR}}}
    lifecycle = harness_of(tmp_path, replicated(source))
    lifecycle.land("clicks", START + 2 * HOUR)
    pass_time(lifecycle, at("01T02:05"))
    lifecycle.land("clicks", START + HOUR, cluster="backup")
    assert verdicts(lifecycle, at("01T03"), start=START) == {
        START + HOUR: CopyVerdict.EXTRA,
        START + 2 * HOUR: CopyVerdict.IN_SYNC,
    }


def test_what_the_source_has_no_more_is_kept_and_still_compared_with_its_manifest(lifecycle: LifecycleHarness) -> None:
    for time in FOUR[:3]:
        rmtree(lifecycle.folder("clicks", time))
    part(lifecycle, START).unlink()
    rmtree(replica(lifecycle, START + HOUR))
    assert found(lifecycle) == {
        START: CopyVerdict.ROTTEN,
        START + HOUR: CopyVerdict.MISSING,
        START + 2 * HOUR: CopyVerdict.KEPT,
        START + 3 * HOUR: CopyVerdict.IN_SYNC,
    }


def test_what_retention_has_evicted_is_not_missing(lifecycle: LifecycleHarness) -> None:
    set_status(lifecycle, START, "backup", FeedInstanceStatus.EVICTED)
    set_status(lifecycle, START + HOUR, "primary", FeedInstanceStatus.EVICTED)
    rmtree(replica(lifecycle, START))
    assert found(lifecycle)[START] is CopyVerdict.EVICTED
    assert found(lifecycle)[START + HOUR] is CopyVerdict.KEPT


def set_status(lifecycle: LifecycleHarness, time: datetime, cluster: str, status: FeedInstanceStatus) -> None:
    with lifecycle.database.begin() as connection:
        instances = FeedInstances(connection)
        row = instances.get("clicks", cluster, time)
        assert row is not None
        instances.put([replace(row, status=status)])


def test_what_waits_and_what_runs_is_no_finding(lifecycle: LifecycleHarness) -> None:
    lifecycle.land("clicks", START + 4 * HOUR)
    pass_time(lifecycle, at("01T05:05"))
    with lifecycle.database.begin() as connection:
        ProcessInstances(connection).transition(
            ProcessKey(FLOW, "backup", START),
            {ProcessInstanceStatus.SUCCEEDED},
            status=ProcessInstanceStatus.RUNNING,
        )
    rmtree(replica(lifecycle, START))
    leases = Leases(lifecycle.database)
    lease = leases.acquire(f"process/{FLOW}", "backup", START, "somebody", LATER, HOUR)
    result = verified(lifecycle, at("01T05:06"), start=START)
    assert [each.verdict for each in result.copies if each.verdict is not CopyVerdict.IN_SYNC] == [
        CopyVerdict.RUNNING,
        CopyVerdict.WAITING,
        CopyVerdict.WAITING,
    ]
    assert result.findings == ()
    leases.release_many([lease])
    (dead,) = verified(lifecycle, at("01T05:06"), start=START).findings
    assert (dead.nominal_time, dead.verdict, dead.status) == (START, CopyVerdict.MISSING, "RUNNING")


def test_an_instance_that_nobody_has_copied_is_missing(tmp_path: Path) -> None:
    lifecycle = harness_of(tmp_path, replicated())
    lifecycle.land("clicks", START)
    assert verdicts(lifecycle, at("01T00:05")) == {START: CopyVerdict.MISSING}


def test_an_unmounted_storage_is_unknown_and_nothing_is_taken_for_missing(
    lifecycle: LifecycleHarness, tmp_path: Path
) -> None:
    for side in ("primary", "backup"):
        (tmp_path / side).rename(tmp_path / "away")
        assert set(found(lifecycle).values()) == {CopyVerdict.UNKNOWN}
        (tmp_path / "away").rename(tmp_path / side)


def test_what_the_record_has_forgotten_is_unrecorded(lifecycle: LifecycleHarness) -> None:
    set_status(lifecycle, START, "backup", FeedInstanceStatus.MISSING)
    assert found(lifecycle)[START] is CopyVerdict.UNRECORDED


def test_slices_are_compared_each_with_its_source(tmp_path: Path) -> None:
    lifecycle = harness_of(tmp_path, slices())
    (tmp_path / "west").mkdir()
    land_slice(lifecycle, "east", START)
    pass_time(lifecycle, at("01T00:05"))
    assert sides(lifecycle) == {"east": CopyVerdict.IN_SYNC, "west": CopyVerdict.WAITING}
    land_slice(lifecycle, "west", START)
    pass_time(lifecycle, at("01T00:10"))
    assert sides(lifecycle) == {"east": CopyVerdict.IN_SYNC, "west": CopyVerdict.IN_SYNC}
    next((replica(lifecycle, START) / "west").glob("*.csv")).write_text("west of mars")
    assert sides(lifecycle, deep=True) == {"east": CopyVerdict.IN_SYNC, "west": CopyVerdict.ROTTEN}
    (replica(lifecycle, START) / "west" / "mine.csv").write_text("1")
    assert sides(lifecycle) == {"east": CopyVerdict.IN_SYNC, "west": CopyVerdict.EXTRA}
    rmtree(replica(lifecycle, START) / "west")
    assert sides(lifecycle) == {"east": CopyVerdict.IN_SYNC, "west": CopyVerdict.ROTTEN}


def sides(lifecycle: LifecycleHarness, *, deep: bool = False) -> dict[str | None, CopyVerdict]:
    return {each.source: each.verdict for each in verified(lifecycle, at("01T00:15"), deep=deep).copies}


def test_the_json_form_names_the_files(lifecycle: LifecycleHarness) -> None:
    part(lifecycle, START).unlink()
    document = render_document(verified(lifecycle, at("01T04"), start=START))
    assert document["counts"] == {"rotten": 1, "in sync": 3}
    first = document["copies"][0]
    assert (first["verdict"], list(first["files"])) == ("rotten", ["lost"])


def test_pipes_and_sockets_in_a_source_are_reported(
    lifecycle: LifecycleHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(lifecycle.folder("clicks", START))  # the path of a socket is short
    os.mkfifo("pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
    first, *_ = verified(lifecycle, at("01T04"), start=START).copies
    assert (first.verdict, first.reason) == (CopyVerdict.IN_SYNC, "not copied, since no file: pipe, socket")
