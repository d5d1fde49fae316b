"""Former versions of what processes publish in one place: kept in the trash, counted, brought back."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from feed_assets.context.operation import resolve_subject
from feed_assets.engines.port import Work
from feed_assets.entities.feed import Feed
from feed_assets.explain.versions import explain_version
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.records import FeedEventKind, FeedInstance, FeedInstanceStatus
from feed_assets.log.removals.records import Sweep, SweepState
from feed_assets.log.removals.store import Sweeps
from feed_assets.replication.queries import CopyQuery
from feed_assets.replication.status import Sync, find_status
from feed_assets.retention.sweeps.purging import find_purgeable, purge_sweeps
from feed_assets.retention.sweeps.undoing import undo_sweep
from tests.instances.harness import START, LifecycleHarness, hours, process, validity

COUNTS = "counts"


def counts(*targets: str, **retention: object) -> Feed:
    roles = {"primary": "source", **dict.fromkeys(targets, "target")}
    kept = {"retention": retention} if retention else {}
    return Feed(
        name=COUNTS,
        instances="current",
        format="csv",
        availability_flag="_SUCCESS",
        locations={"data": "/ref/counts"},
        clusters={name: validity(START, None) | {"type": role} | kept for name, role in roles.items()},
    )


def counting(root: Path, state: str | None = None, scheme: str = "file", **retention: object) -> LifecycleHarness:
    entity = process("count", outputs={COUNTS: "now(0,0)"})
    lifecycle = LifecycleHarness.of(root, counts(**retention), entity, state=state, scheme=scheme)
    lifecycle.job = of_hour
    return lifecycle


def of_hour(work: Work) -> Mapping[str, str]:
    return {COUNTS: f"of {work.nominal_time:%H}"}


def publish(lifecycle: LifecycleHarness, *times: datetime) -> None:
    for time in times:
        lifecycle.run("count", time, time + timedelta(minutes=1), f"run-{time:%H}")


def present(lifecycle: LifecycleHarness) -> str:
    with lifecycle.store().reading("ref/counts") as reading:
        return b"".join(map(bytes, reading.chunks("part-0.csv"))).decode()


def row(lifecycle: LifecycleHarness) -> FeedInstance:
    with lifecycle.database.read() as connection:
        found = FeedInstances(connection).get(COUNTS, "primary", START)
    assert found is not None
    return found


def sweeps_of(lifecycle: LifecycleHarness) -> list[Sweep]:
    with lifecycle.database.read() as connection:
        return Sweeps(connection).newest(10)


@pytest.mark.parametrize("scheme", ["file", "memory"])
def test_the_newest_former_versions_stay_and_older_ones_are_purged(tmp_path: Path, state_url: str, scheme: str) -> None:
    lifecycle = counting(tmp_path, state_url, scheme, versions=2)
    publish(lifecycle, *hours(4))
    assert present(lifecycle) == "of 03"
    context = lifecycle.sweep_context(START + timedelta(days=1))
    (old,) = find_purgeable(context, "primary", context.clock.now())
    (purged,) = purge_sweeps(context, "primary", [old])
    assert (purged.obstacle, purged.sweep.state) == (None, SweepState.PURGED)
    trash = lifecycle.store().trash()
    assert [each.sweep_id for each in sweeps_of(lifecycle) if each.sweep_id in trash.sweeps()] == [
        each.sweep_id for each in sweeps_of(lifecycle)[:2]
    ]
    kinds = [event.kind for event in lifecycle.events(COUNTS)]
    assert kinds == [FeedEventKind.PRODUCED, *[FeedEventKind.EVICTED, FeedEventKind.PRODUCED] * 3]
    assert lifecycle.feed_statuses(COUNTS) == {START: FeedInstanceStatus.AVAILABLE}


@pytest.mark.parametrize("scheme", ["file", "memory"])
def test_a_version_comes_back_and_the_present_one_goes_to_the_trash(
    tmp_path: Path, state_url: str, scheme: str
) -> None:
    lifecycle = counting(tmp_path, state_url, scheme, versions=3)
    publish(lifecycle, START)
    first = row(lifecycle)
    publish(lifecycle, *hours(3)[1:])
    newest = row(lifecycle)
    (_, of_first) = sweeps_of(lifecycle)
    now = START + timedelta(hours=5)
    undone = undo_sweep(lifecycle.sweep_context(now), of_first.sweep_id)
    assert (undone.restored, undone.left, undone.sweep.state) == (1, (), SweepState.UNDONE)
    assert present(lifecycle) == "of 00"
    back = row(lifecycle)
    assert (back.status, back.manifest_digest, back.bytes) == (
        FeedInstanceStatus.AVAILABLE,
        first.manifest_digest,
        first.bytes,
    )
    last = lifecycle.events(COUNTS)[-1]
    assert (last.kind, last.seq, last.manifest_digest) == (
        FeedEventKind.CHANGED,
        back.event_seq,
        first.manifest_digest,
    )
    assert (last.is_of_data, last.payload["sweep"]) == (True, of_first.sweep_id)
    context = lifecycle.context(now)
    told = explain_version(context, resolve_subject(context, COUNTS, START + timedelta(minutes=1)))
    assert told.parts[0].items[0].reasons[-1].text == "it was brought back at 2013-11-01T05:00:00Z"
    of_newest = next(each for each in sweeps_of(lifecycle) if each.created_at == now)
    undo_sweep(lifecycle.sweep_context(now + timedelta(hours=1)), of_newest.sweep_id)
    assert (present(lifecycle), row(lifecycle).manifest_digest) == ("of 02", newest.manifest_digest)
    due = find_purgeable(lifecycle.sweep_context(now), "primary", now + timedelta(hours=2))
    assert {each.sweep_id for each in due} == {of_first.sweep_id, of_newest.sweep_id}


def test_a_version_that_comes_back_at_a_replica_is_behind_its_source(tmp_path: Path) -> None:
    count = process("count", outputs={COUNTS: "now(0,0)"})
    lifecycle = LifecycleHarness.of(tmp_path, counts("backup", versions=1), count, clusters=("primary", "backup"))
    lifecycle.job = of_hour
    for time in hours(2):
        publish(lifecycle, time)
        lifecycle.copy(f"{COUNTS}@primary", [START], time + timedelta(minutes=2))
    (sweep,) = [each for each in sweeps_of(lifecycle) if each.cluster == "backup"]
    undo_sweep(lifecycle.sweep_context(START + timedelta(hours=3)), sweep.sweep_id)
    (flow,) = find_status(lifecycle.context(START + timedelta(hours=4)), CopyQuery(feed=COUNTS)).flows
    assert flow.counts == {Sync.BEHIND: 1}


def test_an_older_instance_leaves_a_version_that_was_brought_back(tmp_path: Path) -> None:
    lifecycle = counting(tmp_path, versions=3)
    publish(lifecycle, *hours(3))
    (of_second, _) = sweeps_of(lifecycle)
    undo_sweep(lifecycle.sweep_context(START + timedelta(hours=5)), of_second.sweep_id)
    assert present(lifecycle) == "of 01"
    assert lifecycle.run("count", START, START + timedelta(hours=6), "older") == ()
    assert present(lifecycle) == "of 01"
    assert lifecycle.run("count", hours(3)[2], START + timedelta(hours=6), "newer")
    assert present(lifecycle) == "of 02"


def test_without_versions_none_is_kept_and_a_lower_number_ends_those_that_are(tmp_path: Path) -> None:
    lifecycle = counting(tmp_path, versions=2)
    publish(lifecycle, *hours(3))
    lifecycle.declare(counts(), process("count", outputs={COUNTS: "now(0,0)"}))
    publish(lifecycle, *hours(4)[3:])
    found = sweeps_of(lifecycle)
    context = lifecycle.sweep_context(START + timedelta(hours=5))
    due = find_purgeable(context, "primary", context.clock.now())
    assert {each.sweep_id for each in due} == {each.sweep_id for each in found}
    assert len(found) == 2


def test_what_others_wrote_over_it_is_no_version(tmp_path: Path) -> None:
    lifecycle = counting(tmp_path, versions=2)
    publish(lifecycle, START)
    folder = lifecycle.folder(COUNTS, START)
    for file in folder.iterdir():
        file.unlink()
    (folder / "theirs.csv").write_text("theirs")
    publish(lifecycle, *hours(2)[1:])
    (sweep,) = sweeps_of(lifecycle)
    assert list(lifecycle.store().trash().contents(sweep.sweep_id)) == ["ref/counts"]
    assert present(lifecycle) == "of 01"


def test_a_version_that_was_damaged_in_the_trash_is_not_published(tmp_path: Path) -> None:
    lifecycle = counting(tmp_path, versions=2)
    publish(lifecycle, *hours(2))
    (sweep,) = sweeps_of(lifecycle)
    (kept,) = (tmp_path / "primary/.feed-assets/trash").rglob("counts/part-0.csv")
    kept.write_text("other")
    with pytest.raises(Exception, match=r"part-0\.csv.* is not what was published"):
        undo_sweep(lifecycle.sweep_context(START + timedelta(hours=3)), sweep.sweep_id)
    assert (present(lifecycle), list((tmp_path / "primary/.feed-assets/staging").glob("*"))) == ("of 01", [])
