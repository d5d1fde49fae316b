"""What stands in the place of an output: foreign content is refused, adopted or replaced; nothing is lost."""

import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from feed_assets.engines.port import Work
from feed_assets.entities.copies.options import EXISTING
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import FeedEventKind, FeedInstanceStatus, ProcessInstanceStatus
from feed_assets.log.removals.records import Sweep, SweepState
from feed_assets.log.removals.store import Sweeps
from feed_assets.retention.sweeps.purging import find_purgeable, purge_sweeps
from feed_assets.retention.sweeps.undoing import undo_sweep
from feed_assets.storage.errors import ForeignContentError, StorageError
from tests.instances.harness import START, LifecycleHarness, at, feed, process

NOON = at("12:00")


def counting(tmp_path: Path, state: str | None = None, **counts: Any) -> LifecycleHarness:
    entity = process("count", inputs={"clicks": "now(0,0)"}, outputs={"counts": "now(0,0)"})
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks"), feed("counts", **counts), entity, state=state)
    lifecycle.land("clicks", START)
    return lifecycle


def put(lifecycle: LifecycleHarness, **files: str) -> Path:
    """Somebody else writes into the place of the output."""
    folder = lifecycle.folder("counts", START)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.csv").write_text(text)
    return folder


def texts(folder: Path) -> dict[str, str]:
    return {file.stem: file.read_text() for file in folder.glob("*.csv")}


def sweeps_of(lifecycle: LifecycleHarness) -> list[Sweep]:
    with lifecycle.database.read() as connection:
        return Sweeps(connection).newest(10)


def refuse(_: Work) -> Mapping[str, str]:
    raise AssertionError("there is nothing to compute")


def test_a_first_run_over_foreign_content_is_refused_before_it_computes(tmp_path: Path) -> None:
    lifecycle = counting(tmp_path)
    folder = put(lifecycle, theirs="theirs")
    lifecycle.job = refuse
    with pytest.raises(ForeignContentError, match=r"foreign content: 1 files .*`existing: adopt`.*`existing: replace`"):
        lifecycle.run("count", START, NOON)
    assert texts(folder) == {"theirs": "theirs"}
    row = lifecycle.instances("count")[START]
    assert (row.status, "foreign content" in (row.reason or "")) == (ProcessInstanceStatus.FAILED, True)
    assert sweeps_of(lifecycle) == []


def test_foreign_content_that_comes_during_the_work_is_refused_too(tmp_path: Path) -> None:
    lifecycle = counting(tmp_path)

    def job(work: Work) -> Mapping[str, str]:
        put(lifecycle, theirs="theirs")
        return {target.name: "made" for target in work.outputs}

    lifecycle.job = job
    with pytest.raises(ForeignContentError):
        lifecycle.run("count", START, NOON)
    assert texts(lifecycle.folder("counts", START)) == {"theirs": "theirs"}
    assert lifecycle.staged() == []


def test_an_empty_directory_is_no_content(tmp_path: Path) -> None:
    lifecycle = counting(tmp_path)
    folder = put(lifecycle)
    lifecycle.run("count", START, NOON)
    assert texts(folder) == {"part-0": "made"}


def test_what_is_replaced_by_declaration_is_a_sweep_that_can_be_listed_and_purged(
    tmp_path: Path, state_url: str
) -> None:
    lifecycle = counting(tmp_path, state_url, existing="replace")
    folder = put(lifecycle, theirs="theirs")
    (done,) = lifecycle.run("count", START, NOON)
    assert texts(folder) == {"part-0": "made"}
    (sweep,) = sweeps_of(lifecycle)
    assert (sweep.state, sweep.origin, sweep.paths, sweep.instances) == (SweepState.DONE, "publication", 1, 0)
    assert (done.details["displaced_files"], done.details["displaced_to"]) == (1, sweep.sweep_id)
    undone = undo_sweep(lifecycle.sweep_context(NOON), sweep.sweep_id)
    assert (undone.restored, [each.path for each in undone.left]) == (0, ["counts/2013-11-01/00-00"])
    assert texts(folder) == {"part-0": "made"}
    context = lifecycle.sweep_context(NOON)
    (purged,) = purge_sweeps(context, "primary", find_purgeable(context, "primary", NOON, at_once=True))
    assert (purged.obstacle, purged.sweep.state) == (None, SweepState.PURGED)


def test_what_the_last_manifest_does_not_name_is_told_and_can_be_undone(tmp_path: Path, state_url: str) -> None:
    lifecycle = counting(tmp_path, state_url)
    lifecycle.run("count", START, NOON)
    folder = put(lifecycle, mine="mine")
    (done,) = lifecycle.run("count", START, NOON, "run-2")
    assert texts(folder) == {"part-0": "made"}
    (sweep,) = sweeps_of(lifecycle)
    assert (done.details["displaced_files"], done.details["displaced_to"]) == (1, sweep.sweep_id)
    produced = [event for event in lifecycle.events("counts") if event.kind is FeedEventKind.PRODUCED]
    assert produced[-1].payload["displaced_to"] == sweep.sweep_id
    assert lifecycle.feed_statuses("counts") == {START: FeedInstanceStatus.AVAILABLE}
    undone = undo_sweep(lifecycle.sweep_context(NOON), sweep.sweep_id)
    assert (undone.restored, undone.sweep.state) == (1, SweepState.UNDONE)
    assert texts(folder) == {"part-0": "made", "mine": "mine"}
    assert lifecycle.feed_statuses("counts") == {START: FeedInstanceStatus.AVAILABLE}


def test_what_another_instance_has_at_a_former_place_is_not_replaced(tmp_path: Path) -> None:
    """Five hours west, the output has the path of the one five hours before, which stays and is read there."""
    lifecycle = counting(tmp_path)
    lifecycle.run("count", START, NOON)
    folder = put(lifecycle)
    west = feed("counts").model_copy(update={"path_timezone": "Etc/GMT+5"})
    entity = process("count", inputs={"clicks": "now(0,0)"}, outputs={"counts": "now(0,0)"})
    lifecycle.declare(feed("clicks"), west, entity)
    later = START + timedelta(hours=5)
    lifecycle.land("clicks", later)
    job, lifecycle.job = lifecycle.job, refuse
    why = r"its path is that of instance 2013-11-01T00:00Z, which came before .* Give the feed another location"
    with pytest.raises(StorageError, match=why):
        lifecycle.run("count", later, NOON)
    assert lifecycle.folder("counts", later) == folder
    assert texts(folder) == {"part-0": "made"}
    assert lifecycle.instances("count")[later].status is ProcessInstanceStatus.FAILED
    with lifecycle.database.begin() as connection:
        FeedInstances(connection).put(
            [replace(lifecycle.feed_instances("counts")[START], status=FeedInstanceStatus.EVICTED)]
        )
    lifecycle.job = job
    lifecycle.run("count", later, NOON, "run-2")
    assert lifecycle.feed_statuses("counts")[later] is FeedInstanceStatus.AVAILABLE


def test_an_instance_that_the_record_knows_is_replaced_without_its_manifest(tmp_path: Path) -> None:
    lifecycle = counting(tmp_path)
    lifecycle.run("count", START, NOON)
    folder = put(lifecycle, mine="mine")
    (folder / ".feed-assets.manifest.json").unlink()
    lifecycle.run("count", START, NOON, "run-2")
    assert texts(folder) == {"part-0": "made"}
    assert len(sweeps_of(lifecycle)) == 1


def test_adopted_content_becomes_the_instance_and_nothing_is_computed(tmp_path: Path) -> None:
    lifecycle = counting(tmp_path, existing="adopt", flag="_DONE")
    folder = put(lifecycle, theirs="theirs")
    (folder / "_metadata").write_text("1")
    lifecycle.job = refuse
    (done,) = lifecycle.run("count", START, NOON)
    assert (texts(folder), done.content.files, done.details["existing"]) == ({"theirs": "theirs"}, 1, "adopted")
    assert {file.name for file in folder.iterdir()} >= {"_DONE", "_metadata", ".feed-assets.manifest.json"}
    assert lifecycle.feed_statuses("counts") == {START: FeedInstanceStatus.AVAILABLE}
    lifecycle.job = lambda work: {target.name: "made" for target in work.outputs}
    lifecycle.run("count", START, NOON, "run-2")
    assert texts(folder) == {"part-0": "made"}
    assert sweeps_of(lifecycle) == []


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (b"below/part.csv", "'below/part.csv' cannot be adopted: files in folders"),
        (b"part-\xff.csv", "it is not UTF-8"),
    ],
)
def test_what_no_reader_sees_is_not_adopted(tmp_path: Path, name: bytes, reason: str) -> None:
    lifecycle = counting(tmp_path, existing="adopt")
    file = Path(os.fsdecode(os.fsencode(put(lifecycle, theirs="theirs")) + b"/" + name))
    file.parent.mkdir(exist_ok=True)
    file.write_text("1")
    with pytest.raises(StorageError, match=reason):
        lifecycle.run("count", START, NOON)
    assert (file.read_text(), lifecycle.feed_statuses("counts")) == ("1", {})


@pytest.mark.parametrize("more", [{"partitions": ["below"]}, {"options": {"recursiveFileLookup": "true"}}])
def test_a_feed_whose_readers_look_into_folders_adopts_them(tmp_path: Path, more: Mapping[str, Any]) -> None:
    lifecycle = counting(tmp_path, existing="adopt", **more)
    folder = put(lifecycle, theirs="theirs")
    (folder / "below").mkdir()
    (folder / "below" / "part.csv").write_text("1")
    (done,) = lifecycle.run("count", START, NOON)
    assert done.content.files == 2


def test_a_person_adopts_for_one_instance(tmp_path: Path) -> None:
    lifecycle = counting(tmp_path)
    folder = put(lifecycle, theirs="theirs")
    lifecycle.put_instances("count", [START], ProcessInstanceStatus.READY)
    with lifecycle.database.begin() as connection:
        ProcessInstances(connection).transition(
            ("count", "primary", START), set(ProcessInstanceStatus), overrides={EXISTING: "adopt"}, updated_at=START
        )
    lifecycle.run("count", START, NOON)
    assert texts(folder) == {"theirs": "theirs"}
