"""Falcon's features of replication that are about more than one flow: options, and archives. Others: `test_flows`."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from feed_assets.entities.cluster import Cluster
from feed_assets.entities.feed import Feed
from feed_assets.instances.attempts.attempts import Published
from feed_assets.log.records import FeedInstanceStatus
from feed_assets.storage.errors import StorageError
from feed_assets.storage.registry import open_store
from feed_assets.transfer.errors import FilesFailedError
from tests.instances.harness import START, LifecycleHarness, at
from tests.object_servers import BUCKET
from tests.retention.harness import RetentionHarness, hourly
from tests.transfer.watching import Watch, watched_stores

FLOW = "clicks@primary"


def replicated(properties: Mapping[str, str] | None = None, **targets: Mapping[str, Any]) -> Feed:
    """The feed `clicks`, from `primary` to `backup` or what is given."""
    validity = {"validity": {"start": START}}
    clusters = {
        "primary": {**validity, "type": "source", "retention": {"limit": "hours(4)"}},
        **{name: {**validity, "type": "target", **own} for name, own in (targets or {"backup": {}}).items()},
    }
    return Feed.model_validate(
        {
            "name": "clicks",
            "frequency": "hours(1)",
            "format": "csv",
            "availability_flag": "_DONE",
            "locations": {"data": "/clicks/${YEAR}-${MONTH}-${DAY}/${HOUR}"},
            "clusters": clusters,
            "properties": dict(properties or {}),
        }
    )


@pytest.mark.parametrize("kind", ["file", pytest.param("s3", marks=pytest.mark.server)])
def test_row_58_what_a_target_on_other_storage_keeps_longer_is_an_archive(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    options = request.getfixturevalue("s3_options") if kind == "s3" else {}
    url = f"s3://{BUCKET}/archive-58" if kind == "s3" else f"file://{tmp_path}/archive"
    archive = Cluster(name="archive", storage=url, storage_options=options)
    own = {"locations": {"data": "/cold/${YEAR}/${MONTH}/${DAY}/${HOUR}"}, "retention": {"limit": "days(90)"}}
    harness = RetentionHarness.of(tmp_path, archive, replicated(archive=own), clusters=("primary",))
    lifecycle, times = harness.lifecycle, hourly(START, 8)
    harness.land("clicks", *times)
    lifecycle.flag("clicks", *times)
    harness.arrive(at("01T07:05"))
    while requests := lifecycle.tick(at("01T07:05"), "archive"):
        lifecycle.launch(requests, at("01T07:05"))
    harness.wait(at("01T09:00"))
    harness.sweep_now()
    gone = [time for time in times if time < at("01T05:00")]
    assert {
        time for time, status in lifecycle.feed_statuses("clicks").items() if status is FeedInstanceStatus.EVICTED
    } == {*gone}
    assert not any(lifecycle.folder("clicks", time).exists() for time in gone)
    store = open_store(url, options)
    kept = [time for time in times if "_DONE" in store.all_files(f"cold/{time:%Y/%m/%d/%H}")]
    assert kept == times
    assert set(lifecycle.feed_statuses("clicks", "archive").values()) == {FeedInstanceStatus.AVAILABLE}


def copied(lifecycle: LifecycleHarness, minute: int) -> dict[str, Any]:
    """Copy the first instance again; what is told of it."""
    (done,) = lifecycle.copy(FLOW, [START], at("01T01:00") + timedelta(minutes=minute)).values()
    assert isinstance(done, Published), done
    return dict(done.details)


def landed(tmp_path: Path, **properties: str) -> LifecycleHarness:
    """Two files and the flag, copied once."""
    lifecycle = LifecycleHarness.of(tmp_path, replicated(properties), clusters=("primary", "backup"))
    folder = lifecycle.folder("clicks", START)
    folder.mkdir(parents=True)
    for name in ("a.csv", "b.csv", "_DONE"):
        (folder / name).write_text(name)
    lifecycle.arrive(at("01T00:05"))
    lifecycle.launch(lifecycle.tick(at("01T00:05"), "backup"), at("01T00:05"))
    return lifecycle


def names(lifecycle: LifecycleHarness, cluster: str = "backup") -> set[str]:
    return {file.name for file in lifecycle.folder("clicks", START, cluster).glob("*.csv")}


@pytest.mark.parametrize(("value", "left"), [("true", {"a.csv"}), ("false", {"a.csv", "b.csv"})])
def test_row_65_a_removed_file_goes_at_the_target_or_stays(tmp_path: Path, value: str, left: set[str]) -> None:
    lifecycle = landed(tmp_path, removeDeletedFiles=value)
    (lifecycle.folder("clicks", START) / "b.csv").unlink()
    copied(lifecycle, 1)
    assert names(lifecycle) == left


def test_row_65_what_others_wrote_stays_where_nothing_is_said(tmp_path: Path) -> None:
    lifecycle = landed(tmp_path)
    (lifecycle.folder("clicks", START) / "b.csv").unlink()
    copied(lifecycle, 1)
    assert names(lifecycle) == {"a.csv", "b.csv"}


@pytest.mark.parametrize(("value", "files"), [("true", 2), ("false", 1)])
def test_row_65_overwrite_transfers_what_is_there_already(tmp_path: Path, value: str, files: int) -> None:
    lifecycle = landed(tmp_path, overwrite=value)
    (lifecycle.folder("clicks", START) / "b.csv").write_text("another text")
    assert copied(lifecycle, 1)["copied_files"] == files


def test_row_65_times_and_permissions_are_preserved(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(
        tmp_path, replicated({"preserveTimes": "true", "preservePermission": "true"}), clusters=("primary", "backup")
    )
    folder = lifecycle.folder("clicks", START)
    folder.mkdir(parents=True)
    (folder / "a.csv").write_text("a")
    (folder / "a.csv").chmod(0o640)
    (folder / "_DONE").touch()
    lifecycle.arrive(at("01T00:05"))
    lifecycle.launch(lifecycle.tick(at("01T00:05"), "backup"), at("01T00:05"))
    sides = [(lifecycle.folder("clicks", START, name) / "a.csv").stat() for name in ("primary", "backup")]
    assert len({(side.st_mtime_ns, side.st_mode) for side in sides}) == 1


def test_row_65_with_ignored_errors_a_copy_names_all_that_failed_and_publishes_nothing(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, replicated({"ignoreErrors": "true"}), clusters=("primary", "backup"))
    folder = lifecycle.folder("clicks", START)
    folder.mkdir(parents=True)
    for name in ("a.csv", "b.csv", "c.csv", "_DONE"):
        (folder / name).write_text(name)
    lifecycle.arrive(at("01T00:05"))
    watch = Watch()
    watch.before = fail_to_read
    lifecycle.stores = watched_stores(watch)
    (failed,) = lifecycle.copy(FLOW, [START], at("01T00:05")).values()
    assert isinstance(failed, FilesFailedError), failed
    assert "a.csv" in str(failed)
    assert "b.csv" in str(failed)
    assert not lifecycle.folder("clicks", START, "backup").exists()


def fail_to_read(call: str, file: str) -> None:
    if call == "source.chunks" and file in ("a.csv", "b.csv"):
        raise StorageError(store="source", path=file, reason="Input/output error", next_step="Look at the disk.")


def test_row_65_checksums_bandwidth_and_tasks_are_those_that_the_properties_say(tmp_path: Path) -> None:
    lifecycle = landed(tmp_path, skipChecksum="true", maxMaps="3", mapBandwidth="2", parallel="4", order="LIFO")
    record = lifecycle.process(FLOW, "backup")
    assert (record.copied.options.max_tasks, record.copied.options.task_bandwidth) == (3, 2_000_000)
    assert (record.parallel, record.order) == (4, "LIFO")
    (event,) = [event for event in lifecycle.events("clicks") if event.cluster == "backup"]
    assert event.payload["copy"]["verification"] == "none"
