"""Replicas compared with their manifests and their sources: what is missing, rotten, extra and behind."""

import os
import socket
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from shutil import rmtree

import pytest

from feed_assets.json_form import render_document
from feed_assets.operations.replication import auditing
from feed_assets.operations.replication.auditing import CopyVerdict
from feed_assets.state.feed_instances import FeedInstances
from feed_assets.state.leases import Leases
from feed_assets.state.process_instances import ProcessInstances
from feed_assets.state.records import FeedInstanceStatus, ProcessInstanceStatus, ProcessKey
from tests.lifecycle.replication.test_flows import FLOW, HOUR, land_slice, pass_time, replicated, slices, world_of
from tests.lifecycle.world import START, World, at, hours
from tests.operations.replication.copies import LATER, verdicts, verified

NOON = at("01T12")
FOUR = hours(4)


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Four hours of clicks, all of them copied."""
    return copied(world_of(tmp_path, replicated(flag="_DONE")))


def copied(world: World) -> World:
    world.land("clicks", *FOUR)
    world.land("clicks", *FOUR, text="more")
    world.flag("clicks", *FOUR)
    pass_time(world, at("01T03:05"))
    return world


def replica(world: World, time: datetime) -> Path:
    return world.folder("clicks", time, "backup")


def part(world: World, time: datetime) -> Path:
    """One file of a replica."""
    return min(replica(world, time).glob("*.csv"))


def found(world: World, *, deep: bool = False) -> dict[datetime, CopyVerdict]:
    return verdicts(world, at("01T04"), start=START, deep=deep)


def test_what_is_as_it_should_be_is_in_sync(world: World) -> None:
    result = verified(world, at("01T04"), start=START)
    assert {each.verdict for each in result.copies} == {CopyVerdict.IN_SYNC}
    assert (result.findings, result.bytes) == ((), 0)
    assert verified(world, at("01T04"), start=START, deep=True).bytes == 4 * len("datamore")


def test_without_a_range_every_instance_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auditing, "AT_ONCE", 5)
    world = world_of(tmp_path, replicated(flag="_DONE"))
    times = hours(30)
    world.land("clicks", *times)
    world.flag("clicks", *times)
    pass_time(world, at("02T06:05"))
    rmtree(replica(world, START))
    told = verdicts(world, at("02T05:30"))
    assert told == {START: CopyVerdict.MISSING} | dict.fromkeys(times[1:], CopyVerdict.IN_SYNC)
    assert len(verdicts(world, at("02T05:30"), results=10)) == 10


def test_a_replica_that_was_removed_is_missing(world: World) -> None:
    rmtree(replica(world, START))
    assert found(world) == {START: CopyVerdict.MISSING, **dict.fromkeys(FOUR[1:], CopyVerdict.IN_SYNC)}


def test_a_file_that_was_removed_or_cut_off_is_found_without_reading(world: World) -> None:
    part(world, START).unlink()
    part(world, START + HOUR).write_text("d")
    (replica(world, START + 2 * HOUR) / "_DONE").unlink()
    first, second, third, _ = verified(world, at("01T04"), start=START).copies
    assert {first.verdict, second.verdict, third.verdict} == {CopyVerdict.ROTTEN}
    assert first.audit is not None
    assert second.audit is not None
    assert third.audit is not None
    assert (len(first.audit.lost), len(second.audit.rotten), third.audit.lost) == (1, 1, ("_DONE",))
    assert "1 lost (part-" in first.reason


def test_a_flipped_byte_is_found_where_every_byte_is_read(world: World) -> None:
    part(world, START).write_text("dat4")
    assert set(found(world).values()) == {CopyVerdict.IN_SYNC}
    assert found(world, deep=True)[START] is CopyVerdict.ROTTEN


def test_a_file_that_no_copy_has_brought_is_extra(world: World) -> None:
    (replica(world, START) / "mine.csv").write_text("1")
    (replica(world, START) / "_notes").write_text("readers pass it over")
    first, *_ = verified(world, at("01T04"), start=START).copies
    assert (first.verdict, first.audit and first.audit.extra) == (CopyVerdict.EXTRA, ("mine.csv",))


def test_where_removed_files_are_kept_an_extra_file_is_none(tmp_path: Path) -> None:
    world = copied(world_of(tmp_path, replicated(flag="_DONE", replication={"removed_files": "keep"})))
    (replica(world, START) / "mine.csv").write_text("1")
    assert set(found(world).values()) == {CopyVerdict.IN_SYNC}


def test_a_source_that_has_changed_leaves_its_replica_behind(world: World) -> None:
    world.land("clicks", START, text="late")
    first, second, *_ = verified(world, at("01T04"), start=START).copies
    assert (first.verdict, second.verdict) == (CopyVerdict.BEHIND, CopyVerdict.IN_SYNC)
    assert first.audit is not None
    assert len(first.audit.behind) == 1


def test_an_instance_that_no_source_ever_had_is_extra(world: World) -> None:
    for time in (START + 4 * HOUR, START + 9 * HOUR):
        world.land("clicks", time, cluster="backup")
    result = verified(world, NOON, start=START)
    assert [(each.source, each.target, each.nominal_time, each.verdict) for each in result.findings] == [
        (None, "backup", START + hour * HOUR, CopyVerdict.EXTRA) for hour in (4, 9)
    ]


def test_an_instance_outside_of_what_is_copied_is_extra(tmp_path: Path) -> None:
    source = {"primary": {"validity": {"start": START + 2 * HOUR}}}
    world = world_of(tmp_path, replicated(source))
    world.land("clicks", START + 2 * HOUR)
    pass_time(world, at("01T02:05"))
    world.land("clicks", START + HOUR, cluster="backup")
    assert verdicts(world, at("01T03"), start=START) == {
        START + HOUR: CopyVerdict.EXTRA,
        START + 2 * HOUR: CopyVerdict.IN_SYNC,
    }


def test_what_the_source_has_no_more_is_kept_and_still_compared_with_its_manifest(world: World) -> None:
    for time in FOUR[:3]:
        rmtree(world.folder("clicks", time))
    part(world, START).unlink()
    rmtree(replica(world, START + HOUR))
    assert found(world) == {
        START: CopyVerdict.ROTTEN,
        START + HOUR: CopyVerdict.MISSING,
        START + 2 * HOUR: CopyVerdict.KEPT,
        START + 3 * HOUR: CopyVerdict.IN_SYNC,
    }


def test_what_retention_has_evicted_is_not_missing(world: World) -> None:
    set_status(world, START, "backup", FeedInstanceStatus.EVICTED)
    set_status(world, START + HOUR, "primary", FeedInstanceStatus.EVICTED)
    rmtree(replica(world, START))
    assert found(world)[START] is CopyVerdict.EVICTED
    assert found(world)[START + HOUR] is CopyVerdict.KEPT


def set_status(world: World, time: datetime, cluster: str, status: FeedInstanceStatus) -> None:
    with world.database.begin() as connection:
        instances = FeedInstances(connection)
        row = instances.get("clicks", cluster, time)
        assert row is not None
        instances.put([replace(row, status=status)])


def test_what_waits_and_what_runs_is_no_finding(world: World) -> None:
    world.land("clicks", START + 4 * HOUR)
    pass_time(world, at("01T05:05"))
    with world.database.begin() as connection:
        ProcessInstances(connection).transition(
            ProcessKey(FLOW, "backup", START),
            {ProcessInstanceStatus.SUCCEEDED},
            status=ProcessInstanceStatus.RUNNING,
        )
    rmtree(replica(world, START))
    leases = Leases(world.database)
    lease = leases.acquire(f"process/{FLOW}", "backup", START, "somebody", LATER, HOUR)
    result = verified(world, at("01T05:06"), start=START)
    assert [each.verdict for each in result.copies if each.verdict is not CopyVerdict.IN_SYNC] == [
        CopyVerdict.RUNNING,
        CopyVerdict.WAITING,
        CopyVerdict.WAITING,
    ]
    assert result.findings == ()
    leases.release_many([lease])
    (dead,) = verified(world, at("01T05:06"), start=START).findings
    assert (dead.nominal_time, dead.verdict, dead.status) == (START, CopyVerdict.MISSING, "RUNNING")


def test_an_instance_that_nobody_has_copied_is_missing(tmp_path: Path) -> None:
    world = world_of(tmp_path, replicated())
    world.land("clicks", START)
    assert verdicts(world, at("01T00:05")) == {START: CopyVerdict.MISSING}


def test_an_unmounted_storage_is_unknown_and_nothing_is_taken_for_missing(world: World, tmp_path: Path) -> None:
    for side in ("primary", "backup"):
        (tmp_path / side).rename(tmp_path / "away")
        assert set(found(world).values()) == {CopyVerdict.UNKNOWN}
        (tmp_path / "away").rename(tmp_path / side)


def test_what_the_record_has_forgotten_is_unrecorded(world: World) -> None:
    set_status(world, START, "backup", FeedInstanceStatus.MISSING)
    assert found(world)[START] is CopyVerdict.UNRECORDED


def test_slices_are_compared_each_with_its_source(tmp_path: Path) -> None:
    world = world_of(tmp_path, slices())
    (tmp_path / "west").mkdir()
    land_slice(world, "east", START)
    pass_time(world, at("01T00:05"))
    assert sides(world) == {"east": CopyVerdict.IN_SYNC, "west": CopyVerdict.WAITING}
    land_slice(world, "west", START)
    pass_time(world, at("01T00:10"))
    assert sides(world) == {"east": CopyVerdict.IN_SYNC, "west": CopyVerdict.IN_SYNC}
    next((replica(world, START) / "west").glob("*.csv")).write_text("west of mars")
    assert sides(world, deep=True) == {"east": CopyVerdict.IN_SYNC, "west": CopyVerdict.ROTTEN}
    (replica(world, START) / "west" / "mine.csv").write_text("1")
    assert sides(world) == {"east": CopyVerdict.IN_SYNC, "west": CopyVerdict.EXTRA}
    rmtree(replica(world, START) / "west")
    assert sides(world) == {"east": CopyVerdict.IN_SYNC, "west": CopyVerdict.ROTTEN}


def sides(world: World, *, deep: bool = False) -> dict[str | None, CopyVerdict]:
    return {each.source: each.verdict for each in verified(world, at("01T00:15"), deep=deep).copies}


def test_the_json_form_names_the_files(world: World) -> None:
    part(world, START).unlink()
    document = render_document(verified(world, at("01T04"), start=START))
    assert document["counts"] == {"rotten": 1, "in sync": 3}
    first = document["copies"][0]
    assert (first["verdict"], list(first["files"])) == ("rotten", ["lost"])


def test_pipes_and_sockets_in_a_source_are_reported(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(world.folder("clicks", START))  # the path of a socket is short
    os.mkfifo("pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
    first, *_ = verified(world, at("01T04"), start=START).copies
    assert (first.verdict, first.reason) == (CopyVerdict.IN_SYNC, "not copied, since no file: pipe, socket")
