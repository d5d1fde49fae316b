"""How copies stand, by the record alone. Rows are features of Falcon."""

from datetime import timedelta
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest

from feed_assets.context.errors import InstanceQueryError
from feed_assets.entities.errors import EntityNotFoundError
from feed_assets.json_form import render_document
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import Cause, ProcessInstanceStatus
from feed_assets.replication import status as status_module
from feed_assets.replication.status import NOT_DUE, ReplicationStatus, Sync, find_status
from tests.context.contexts import context_of
from tests.instances.harness import START, at, feed, hours
from tests.replication.copies import query, status
from tests.replication.test_flows import FLOW, HOUR, harness_of, land_slice, pass_time, replicated, slices


def test_row_68_each_instance_has_its_bytes_files_and_time(tmp_path: Path) -> None:
    lifecycle = harness_of(tmp_path, replicated())
    lifecycle.land("clicks", START, text="12345")
    lifecycle.land("clicks", START, text="678")
    pass_time(lifecycle, at("01T00:05"))
    found = status(lifecycle, at("01T00:10"))
    (row,) = found.instances
    assert (row.source, row.target, row.status, row.sync) == ("primary", "backup", "SUCCEEDED", Sync.IN_SYNC)
    assert row.figures is not None
    assert (row.figures.bytes, row.figures.files, row.figures.verification) == (8, 2, "transferred")
    assert row.figures.seconds > 0
    assert row.figures.bandwidth > 0
    assert row.figures.copied_at == at("01T00:05")
    assert row.copied_digest == row.target_digest
    (flow,) = found.flows
    assert (flow.bytes, flow.files, flow.counts) == (8, 2, {Sync.IN_SYNC: 1})
    (instance,) = render_document(found)["instances"]
    assert {"bytes", "files", "seconds", "bandwidth", "resumed", "verification"} <= instance["figures"].keys()


def test_row_68_nothing_is_asked_of_storage(tmp_path: Path) -> None:
    lifecycle = harness_of(tmp_path, replicated())
    lifecycle.land("clicks", START)
    pass_time(lifecycle, at("01T00:05"))
    before = status(lifecycle, at("01T00:10"))
    for side in ("primary", "backup"):
        rmtree(tmp_path / side)
    lifecycle.looked.clear()
    assert status(lifecycle, at("01T00:10")) == before
    assert lifecycle.looked == []


def test_the_lag_is_from_the_newest_copy_to_the_newest_at_the_source(tmp_path: Path) -> None:
    lifecycle = harness_of(tmp_path, replicated())
    lifecycle.land("clicks", *hours(2))
    pass_time(lifecycle, at("01T01:05"))
    lifecycle.land("clicks", *hours(4)[2:])
    lifecycle.arrive(at("01T03:05"))
    lifecycle.ready(at("01T03:05"), "backup")
    found = status(lifecycle, at("01T03:10"))
    (flow,) = found.flows
    assert (flow.newest, flow.newest_source, flow.lag) == (START + HOUR, START + 3 * HOUR, 2 * HOUR)
    assert flow.counts == {Sync.IN_SYNC: 2, Sync.MISSING: 2}
    assert [row.status for row in found.instances] == ["READY", "READY", "SUCCEEDED", "SUCCEEDED"]


def test_every_copy_is_counted_and_a_page_of_them_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_module, "AT_ONCE", 5)
    lifecycle = harness_of(tmp_path, replicated())
    lifecycle.land("clicks", *hours(12))
    pass_time(lifecycle, at("01T11:05"))
    told: list[tuple[object, ...]] = []

    def shown(**more: Any) -> ReplicationStatus:
        context = context_of(lifecycle, at("01T11:10"))
        return find_status(context, query(**more), page=2, progress=lambda *counts: told.append(counts))

    newest = shown()
    assert newest.flows[0].counts == {Sync.IN_SYNC: 12}
    assert [row.nominal_time for row in newest.instances] == [START + 11 * HOUR, START + 10 * HOUR]
    assert (newest.total, newest.has_more) == (12, True)
    assert told == [("status", 5, 12), ("status", 10, 12), ("status", 12, 12)]
    oldest = shown(start=START + 4 * HOUR)
    assert ([row.nominal_time for row in oldest.instances], oldest.total) == ([START + 4 * HOUR, START + 5 * HOUR], 8)


def test_a_source_that_has_changed_since_leaves_its_copy_behind(tmp_path: Path) -> None:
    lifecycle = harness_of(tmp_path, replicated(late_arrival={"cut_off": "hours(12)"}))
    lifecycle.land("clicks", START)
    pass_time(lifecycle, at("01T00:05"))
    lifecycle.land("clicks", START, text="late")
    lifecycle.look_for_late(at("01T04"), "primary")
    lifecycle.look_for_late(at("01T04"), "backup")
    (row,) = status(lifecycle, at("01T04:01"), end=at("01T01")).instances
    assert row.sync is Sync.BEHIND
    pass_time(lifecycle, at("01T04:05"))
    (row,) = status(lifecycle, at("01T04:10"), end=at("01T01")).instances
    assert (row.sync, row.attempts) == (Sync.IN_SYNC, 2)
    assert row.figures is not None
    assert row.figures.bytes == len("late")


def test_what_failed_says_why_and_what_waits_has_no_source(tmp_path: Path) -> None:
    lifecycle = harness_of(tmp_path, replicated())
    lifecycle.land("clicks", START)
    (tmp_path / "backup").mkdir()
    (tmp_path / "backup" / "clicks").write_text("in the way")
    pass_time(lifecycle, at("01T01:05"))
    waiting, failed = status(lifecycle, at("01T01:10")).instances
    assert (failed.nominal_time, failed.sync, failed.status) == (START, Sync.FAILED, "FAILED")
    assert "Check that the storage is reachable" in (failed.reason or "")
    assert (waiting.sync, waiting.status, waiting.figures) == (Sync.WAITING, "WAITING", None)


def test_a_delay_that_has_not_passed_is_no_reason_to_worry(tmp_path: Path) -> None:
    lifecycle = harness_of(tmp_path, replicated({"primary": {"delay": "hours(1)"}}, frequency="hours(2)"))
    lifecycle.land("clicks", START, START + 2 * HOUR)
    pass_time(lifecycle, START + 2 * HOUR + timedelta(minutes=30))
    newest, oldest = status(lifecycle, START + 2 * HOUR + timedelta(minutes=30)).instances
    assert (newest.status, newest.sync, oldest.sync) == (NOT_DUE, Sync.NOT_DUE, Sync.IN_SYNC)


def test_flows_are_chosen_by_target_and_source_or_by_their_name(tmp_path: Path) -> None:
    lifecycle = harness_of(tmp_path, slices())
    for cluster in ("east", "west"):
        land_slice(lifecycle, cluster, START)
    pass_time(lifecycle, at("01T00:05"))
    as_of = at("01T00:10")
    assert [flow.source for flow in status(lifecycle, as_of).flows] == ["east", "west"]
    assert [flow.source for flow in status(lifecycle, as_of, source="west").flows] == ["west"]
    assert [flow.source for flow in status(lifecycle, as_of, feed="clicks@east", targets=["backup"]).flows] == ["east"]
    assert {row.sync for row in status(lifecycle, as_of).instances} == {Sync.IN_SYNC}


def test_what_is_no_copy_is_refused_with_what_there_is(tmp_path: Path) -> None:
    lifecycle = harness_of(tmp_path, replicated(targets={"backup": {}, "other": {}}), feed("counts"))
    as_of = at("01T00:10")
    with pytest.raises(EntityNotFoundError, match=r"there is no feed 'klicks'. Did you mean 'clicks'"):
        status(lifecycle, as_of, feed="klicks")
    with pytest.raises(InstanceQueryError, match="feed 'counts': it is not replicated"):
        status(lifecycle, as_of, feed="counts")
    with pytest.raises(InstanceQueryError, match=r"is not copied to it. It is copied to backup, other"):
        status(lifecycle, as_of, targets=["mars"])
    with pytest.raises(InstanceQueryError, match=r"is not copied from it. It is copied from primary"):
        status(lifecycle, as_of, source="backup")
    with pytest.raises(InstanceQueryError, match="is not copied from it"):
        status(lifecycle, as_of, feed="clicks@mars")


def test_a_killed_copy_counts_as_failed(tmp_path: Path) -> None:
    lifecycle = harness_of(tmp_path, replicated())
    pass_time(lifecycle, at("01T00:05"))
    with lifecycle.database.begin() as connection:
        ProcessInstances(connection).transition(
            (FLOW, "backup", START),
            {ProcessInstanceStatus.WAITING},
            status=ProcessInstanceStatus.KILLED,
            cause=Cause.COMMAND,
            cause_detail="x",
            updated_at=START,
        )
    (row,) = status(lifecycle, at("01T00:10")).instances
    assert (row.sync, row.reason) == (Sync.FAILED, "x")
