"""Copies of instances between stores of all kinds: exact, verified, and made before anything is taken away."""

import errno
import os
import stat
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from feed_assets.errors import FeedAssetsError
from feed_assets.storage.errors import InstanceNotFoundError, StorageError
from feed_assets.storage.local import files
from feed_assets.storage.local.reader import LocalReading
from feed_assets.storage.local.store import LocalStore
from feed_assets.storage.port import InstanceStore, StorePath
from feed_assets.storage.records import Availability, Moved, Outcome
from feed_assets.storage.registry import open_store
from tests.storage.harnesses import StoreHarness, client_of, publish, read_file
from tests.storage.trees import land
from tests.transfer.archives import archive as archive_to
from tests.transfer.archives import bring_back, receive

HOUR = "weather/2013/11/03/05"
OLD = "old/2013-11-03-05"
FLAG = "READY"
FILES = {"part-0.csv": b"a,b\n", "s/part 1?.csv": b"1,2\n", ".part-0.crc": b"\0\1", "_meta/x": b"", FLAG: b"by: us"}
SWEEP = "sweep-1"


@pytest.fixture(params=["local", "memory"])
def archive(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[InstanceStore]:
    if request.param == "local":
        yield open_store(str(tmp_path / "archive"), {})
    else:
        yield open_store(f"memory://archive-{tmp_path.name}", {})


def read(store: InstanceStore, path: str) -> dict[str, bytes]:
    found = {}
    for file in store.all_files(path):
        found[file] = read_file(store, path, file)
    return found


def archive_hour(harness: StoreHarness, archive: InstanceStore) -> Moved:
    return archive_to(harness.store, HOUR, archive, OLD, SWEEP, flag=FLAG)


def test_an_archived_instance_is_there_with_all_its_files_and_gone_here(
    file_harness: StoreHarness, archive: InstanceStore
) -> None:
    file_harness.land(HOUR, FILES)
    file_harness.land(f"{HOUR}_backup", {"x": b"1"})
    moved = archive_hour(file_harness, archive)
    assert (moved.path, moved.outcome, moved.reason) == (HOUR, Outcome.MOVED, None)
    assert read(archive, OLD) == FILES
    assert archive.look([OLD], FLAG)[0].availability is Availability.AVAILABLE
    assert file_harness.names() == {f"{HOUR}_backup/x"}
    assert archive.trash().sweeps() == []
    assert archive_hour(file_harness, archive).outcome is Outcome.ALREADY


def test_an_instance_without_files_goes_and_comes_back(tmp_path: Path, archive: InstanceStore) -> None:
    store = LocalStore(tmp_path / "here")
    (tmp_path / "here" / HOUR / "deep").mkdir(parents=True)
    outcome = archive_to(store, HOUR, archive, OLD, SWEEP).outcome
    assert outcome is Outcome.MOVED
    assert not (tmp_path / "here" / HOUR).exists()
    assert store.trash().restore(SWEEP, [HOUR])[0].outcome is Outcome.MOVED
    assert (tmp_path / "here" / HOUR / "deep").is_dir()


def test_what_was_archived_comes_back_from_the_trash_and_when_that_is_purged_from_the_archive(
    file_harness: StoreHarness, archive: InstanceStore
) -> None:
    manifest = publish(file_harness.store, HOUR, {"part-0.csv": b"1"}, flag=FLAG)
    before = read(file_harness.store, HOUR)
    trash = file_harness.store.trash()
    for is_purged in (False, True):
        archive_hour(file_harness, archive)
        if is_purged:
            assert trash.purge(SWEEP).is_complete
        moved = bring_back(file_harness.store, HOUR, archive, OLD, SWEEP, flag=FLAG)
        assert (moved.path, moved.outcome) == (HOUR, Outcome.MOVED)
        assert read(file_harness.store, HOUR) == before
        assert file_harness.store.published_manifest(HOUR) == manifest
        assert read(archive, OLD) == before
    assert bring_back(file_harness.store, HOUR, archive, OLD, SWEEP).outcome is Outcome.ALREADY
    assert trash.purge(SWEEP).is_complete
    assert trash.sweeps() == []


def test_nothing_is_overwritten_in_the_archive_and_nothing_is_then_taken_away(
    file_harness: StoreHarness, archive: InstanceStore
) -> None:
    file_harness.land(HOUR, FILES)
    publish(archive, OLD, {"other": b"other"}, flag=None)
    before = read(archive, OLD)
    moved = archive_hour(file_harness, archive)
    assert (moved.path, moved.outcome, bool(moved.reason)) == (HOUR, Outcome.OCCUPIED, True)
    assert read(file_harness.store, HOUR) == FILES
    assert read(archive, OLD) == before


def test_an_equal_copy_in_the_archive_is_taken_for_ours(file_harness: StoreHarness, archive: InstanceStore) -> None:
    file_harness.land(HOUR, FILES)
    assert receive(archive, file_harness.store, HOUR, OLD, flag=FLAG).outcome is Outcome.MOVED
    assert receive(archive, file_harness.store, HOUR, f"/{OLD}/", flag=FLAG).outcome is Outcome.ALREADY
    assert archive_hour(file_harness, archive).outcome is Outcome.MOVED
    assert file_harness.names() == set()


def test_nothing_is_overwritten_where_it_is_brought_back(file_harness: StoreHarness, archive: InstanceStore) -> None:
    file_harness.land(HOUR, FILES)
    archive_hour(file_harness, archive)
    file_harness.store.trash().purge(SWEEP)
    file_harness.land(HOUR, {"new": b"new"})
    assert bring_back(file_harness.store, HOUR, archive, OLD, SWEEP).outcome is Outcome.OCCUPIED
    assert read(file_harness.store, HOUR) == {"new": b"new"}


def test_what_is_nowhere_cannot_be_archived_or_brought_back(file_harness: StoreHarness, archive: InstanceStore) -> None:
    assert archive_hour(file_harness, archive).outcome is Outcome.VANISHED
    assert bring_back(file_harness.store, HOUR, archive, OLD, SWEEP).outcome is Outcome.LOST
    assert receive(archive, file_harness.store, HOUR, OLD).outcome is Outcome.VANISHED


@pytest.mark.parametrize("path", ["", "..", ".feed-assets/x", "a/../b"])
def test_a_path_that_is_none_is_refused_on_both_sides(tmp_path: Path, path: str) -> None:
    for store in (LocalStore(tmp_path / "root"), open_store(f"memory://{tmp_path.name}", {})):
        publish(store, HOUR, {"x": b"1"})
        assert archive_to(store, path, store, OLD, SWEEP).outcome is Outcome.REFUSED
        assert archive_to(store, HOUR, store, path, SWEEP).outcome is Outcome.REFUSED
        assert bring_back(store, path, store, OLD, SWEEP).outcome is Outcome.REFUSED
        assert bring_back(store, HOUR, store, OLD, SWEEP).outcome is Outcome.LOST
        assert store.look([HOUR], "_SUCCESS")[0].availability is Availability.AVAILABLE


def test_one_file_in_place_of_an_instance_is_archived_as_one(
    file_harness: StoreHarness, archive: InstanceStore
) -> None:
    file_harness.put(HOUR, b"123")
    assert archive_hour(file_harness, archive).outcome is Outcome.MOVED
    assert read(archive, OLD) == {"": b"123"}
    file_harness.store.trash().purge(SWEEP)
    assert bring_back(file_harness.store, HOUR, archive, OLD, SWEEP).outcome is Outcome.MOVED
    assert read(file_harness.store, HOUR) == {"": b"123"}


def test_what_does_not_hold_still_is_neither_archived_nor_taken_away(
    tmp_path: Path, archive: InstanceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, read_chunks = LocalStore(tmp_path / "root"), LocalReading.chunks
    publish(store, HOUR, {"x": b"1"})

    def change(reading: LocalReading, file: str) -> Iterator[bytes | memoryview]:
        (tmp_path / "root" / HOUR / "late").write_bytes(b"late")
        return read_chunks(reading, file)

    monkeypatch.setattr(LocalReading, "chunks", change)
    moved = archive_to(store, HOUR, archive, OLD, SWEEP)
    assert (moved.path, moved.outcome) == (HOUR, Outcome.CHANGED)
    assert not archive.measure([OLD])[0].exists
    assert (tmp_path / "root" / HOUR / "late").exists()
    assert store.trash().sweeps() == []


def test_what_vanishes_and_comes_again_while_it_is_archived_is_not_taken_away(
    tmp_path: Path, archive: InstanceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path / "root")

    def come(_: object, __: str) -> StorePath:
        publish(store, HOUR, {"x": b"1"})
        raise InstanceNotFoundError(store=store.root_url, path=HOUR)

    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "place", come)
        assert archive_to(store, HOUR, archive, OLD, SWEEP).outcome is Outcome.VANISHED
    assert read(store, HOUR)["x"] == b"1"


def test_what_comes_into_the_archive_just_before_the_copy_appears_stays_and_so_does_the_source(
    tmp_path: Path, archive: InstanceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, calls = LocalStore(tmp_path / "root"), count(1)
    publish(store, HOUR, {"x": b"1"})

    def come(_: object, path: str) -> StorePath:
        if next(calls) == 2:
            if isinstance(archive, LocalStore):
                land(tmp_path / "archive", OLD, x=b"of others")
            else:
                client_of(archive).put(f"{OLD}/x", b"of others")
        return StorePath(store=store, path=path)

    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "place", come)
        assert archive_to(store, HOUR, archive, OLD, SWEEP).outcome is Outcome.OCCUPIED
    assert read(archive, OLD) == {"x": b"of others"}
    assert read(store, HOUR)["x"] == b"1"


def test_a_store_that_refuses_is_an_error_and_nothing_is_taken_away(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "root")
    publish(store, HOUR, {"x": b"1"})
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError):
        archive_to(store, HOUR, LocalStore(tmp_path / "file/archive"), OLD, SWEEP)
    assert store.look([HOUR], "_SUCCESS")[0].availability is Availability.AVAILABLE


def test_a_copy_is_on_disk_in_a_hidden_place_before_it_is_anybodys_to_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, archive = LocalStore(tmp_path / "root"), LocalStore(tmp_path / "archive")
    publish(source, HOUR, {"x": b"123", "sub/y": b"12345"}, flag=None)
    flushed: dict[str, int] = {}

    def remember(handle: int) -> None:
        found = os.fstat(handle)
        place = os.path.relpath(Path(f"/proc/self/fd/{handle}").readlink(), tmp_path / "archive")
        _, is_staged, file = place.partition("/data")
        if is_staged:
            assert not (tmp_path / "archive" / OLD).exists()
        flushed[file or place] = found.st_size if stat.S_ISREG(found.st_mode) else -1

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", remember)
        assert receive(archive, source, HOUR, OLD).outcome is Outcome.MOVED
    assert {"/x": 3, "/sub/y": 5, "/sub": -1, "old": -1}.items() <= flushed.items()


def test_a_copy_that_is_damaged_on_its_way_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, archive = LocalStore(tmp_path / "root"), LocalStore(tmp_path / "archive")
    land(tmp_path / "root", HOUR, x=b"123")

    def damage(descriptor: int, data: bytes | memoryview) -> None:
        os.write(descriptor, b"9" * len(data))

    def fail(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    for place, name, disturb, words in (
        (files, "write_all", damage, "the copies of x differed from what was read"),
        (os, "fsync", fail, os.strerror(errno.EIO)),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(place, name, disturb)
            with pytest.raises(FeedAssetsError, match=words) as caught:
                archive_to(source, HOUR, archive, OLD, SWEEP)
        assert str(caught.value).startswith(archive.root_url)
        assert not (tmp_path / "archive/old").exists()
        assert (tmp_path / "root" / HOUR / "x").read_bytes() == b"123"
