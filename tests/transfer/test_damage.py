"""A flipped byte is never published, wherever it flips; sources that change, vanish or empty themselves."""

import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from feed_assets.entities.copies.options import RemovedFiles, Verification
from feed_assets.plan.copy_records import CopyOptions
from feed_assets.storage.errors import StorageError
from feed_assets.storage.manifests import render_manifest
from feed_assets.storage.paths import MANIFEST_NAME
from feed_assets.storage.records import Availability, Manifest
from feed_assets.transfer.auditing import audit_copy
from feed_assets.transfer.errors import (
    CopyDamagedError,
    SourceChangingError,
    SourceDamagedError,
    SourceEmptiedError,
    SourceNotAvailableError,
    TargetDamagedError,
)
from feed_assets.transfer.requests import CopyStatus
from tests.drills import sampled
from tests.transfer.sides import FLAG, PATH, SMALL, SOON, Pair, local_place, pattern
from tests.transfer.watching import Data, Watch, nothing, watched_stores

FILES = {**SMALL, "large.bin": pattern(9 << 20)}
ALL_BUT_NONE = [Verification.TRANSFERRED, Verification.WHOLE]


@pytest.fixture
def watch(any_pair: Pair) -> Watch:
    watch = Watch()
    any_pair.stores = watched_stores(watch)
    return watch


def flip(data: Data) -> bytes:
    """The same bytes, but for one bit."""
    return bytes(data[:-1]) + bytes([data[-1] ^ 1])


class Flipper:
    """Flips a bit in each of the first `times` portions of a file."""

    def __init__(self, file: str, times: int) -> None:
        self.file = file
        self.left = times

    def __call__(self, file: str, data: Data) -> Data:
        if file != self.file or not self.left:
            return data
        self.left -= 1
        return flip(data)


@pytest.mark.parametrize("verification", sampled(ALL_BUT_NONE, Verification.TRANSFERRED))
@pytest.mark.parametrize("file", ["part-0.csv", "large.bin"])
def test_what_flips_on_its_way_into_the_target_is_copied_again(
    any_pair: Pair, watch: Watch, file: str, verification: Verification
) -> None:
    any_pair.source.land(FILES)
    watch.writing = Flipper(file, 1)
    copied = any_pair.copy(verification=verification)
    assert (copied.status, copied.tries) == (CopyStatus.COPIED, 2)
    expected = sum(map(len, FILES.values())) + len(FILES[file])
    assert (watch.written, watch.read) == (expected, expected)
    any_pair.require_equal()


@pytest.mark.parametrize("is_published", [True, False])
@pytest.mark.parametrize("file", sampled(["part-0.csv", "large.bin"], "part-0.csv"))
def test_a_target_that_flips_always_is_never_published(
    any_pair: Pair, watch: Watch, file: str, is_published: bool
) -> None:
    (any_pair.source.publish if is_published else any_pair.source.land)(FILES)
    watch.writing = Flipper(file, 1000)
    with pytest.raises(CopyDamagedError, match=f"{file}.*3 times"):
        any_pair.copy()
    assert not any_pair.target.has_instance()
    watch.writing = Flipper(file, 0)
    any_pair.copy()
    any_pair.require_equal()


@pytest.mark.parametrize("verification", Verification)
@pytest.mark.parametrize("file", sampled(["part-0.csv", "large.bin"], "large.bin"))
def test_what_flipped_at_a_published_source_is_never_published(
    any_pair: Pair, file: str, verification: Verification
) -> None:
    any_pair.source.publish(FILES)
    flip_at_source(any_pair, file)
    (outcome,) = any_pair.copy_many([any_pair.request()], verification=verification)
    if isinstance(outcome, SourceDamagedError):
        assert outcome.file == file
        assert not any_pair.target.has_instance()
    else:
        # A storage with times of its own tells that the file was written since, or nothing was to be verified.
        assert outcome.status is CopyStatus.COPIED
        assert any_pair.source.root is None
        assert any_pair.target.read()[file] == flip(FILES[file])


@pytest.mark.parametrize("file", ["part-0.csv", "large.bin"])
def test_a_source_with_checksums_of_an_earlier_version_is_compared_by_those(pair: Pair, file: str) -> None:
    manifest = pair.source.publish(FILES)
    older = Manifest.of(
        [each._replace(checksum=f"sha256:{sha256(FILES[each.path]).hexdigest()}") for each in manifest.entries]
    )
    pair.source.harness.put(f"{PATH}/{MANIFEST_NAME}", render_manifest(older))
    assert pair.copy(verification=Verification.WHOLE).tries == 1
    published = pair.target.store.published_manifest(PATH)
    assert published is not None
    assert published.digest == older.digest
    flip_at_source(pair, file)
    with pytest.raises(SourceDamagedError, match=file):
        pair.copy(overwrite=True)
    pair.target.harness.put(f"{PATH}/{file}", flip(FILES[file]))
    sides = pair.source.side(), pair.target.side()
    assert audit_copy(pair.stores, *sides, CopyOptions(), pair.clock, deep=True).rotten == (file,)


def flip_at_source(pair: Pair, file: str) -> None:
    """Flip a bit as a disk does it: no time tells."""
    if pair.source.root is None:
        pair.source.harness.put(f"{PATH}/{file}", flip(FILES[file]))
        return
    place = pair.source.root / PATH / file
    before = place.stat()
    with place.open("r+b") as stream:
        stream.write(flip(FILES[file]))
    os.utime(place, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_what_flips_while_it_is_read_from_a_published_source_is_copied_again(any_pair: Pair, watch: Watch) -> None:
    any_pair.source.publish(SMALL)
    watch.reading = Flipper("part-0.csv", 1)
    assert any_pair.copy().tries == 2
    any_pair.require_equal()


@pytest.mark.parametrize("verification", ALL_BUT_NONE)
def test_what_flips_in_the_staging_is_found_when_it_is_read_back(pair: Pair, verification: Verification) -> None:
    pair.source.publish(FILES)
    watch = Watch()
    pair.stores = watched_stores(watch)
    flipped: list[str] = []

    def flip_large(call: str, _file: str) -> None:
        if call == "seal" and not flipped:
            assert pair.target.root is not None
            (place,) = pair.target.root.glob(".feed-assets/staging/*/*/data/large.bin")
            place.write_bytes(flip(place.read_bytes()))
            flipped.append("large.bin")

    watch.before = flip_large
    assert pair.copy(verification=verification).tries == 2
    pair.require_equal()


def test_only_the_verification_of_the_whole_instance_finds_what_rotted_at_the_target(any_pair: Pair) -> None:
    any_pair.source.publish(SMALL)
    any_pair.copy()
    any_pair.target.harness.put(f"{PATH}/part-0.csv", flip(SMALL["part-0.csv"]))
    any_pair.source.publish({**SMALL, "x.csv": b"y"}, token="run-2")
    if any_pair.target.root is None:
        assert any_pair.copy(verification=Verification.WHOLE).files == 2
    else:
        copied = any_pair.copy()
        assert copied.files == 1
        any_pair.source.publish({**SMALL, "x.csv": b"z"}, token="run-3")
        copied = any_pair.copy(verification=Verification.WHOLE)
        assert (copied.files, copied.tries) == (2, 2)
    any_pair.require_equal()


def test_the_whole_instance_is_read_back_also_what_was_not_transferred(any_pair: Pair, watch: Watch) -> None:
    any_pair.source.publish(SMALL)
    any_pair.copy()
    any_pair.source.publish({**SMALL, "x.csv": b"y"}, token="run-2")
    watch.reset()
    copied = any_pair.copy(verification=Verification.WHOLE)
    assert (copied.files, copied.kept, watch.written) == (1, 3, 1)
    assert watch.read_back == sum(map(len, SMALL.values()))


def test_without_verification_nothing_is_read_back(any_pair: Pair, watch: Watch) -> None:
    any_pair.source.publish(SMALL)
    any_pair.copy(verification=Verification.NONE)
    assert watch.read_back == 0
    any_pair.require_equal()


def test_what_rotted_at_the_target_and_this_source_does_not_have_is_not_taken_for_good(pair: Pair) -> None:
    pair.target.publish({"region=us/a.csv": b"us"})
    pair.source.publish({"region=eu/a.csv": b"eu"})
    assert pair.target.root is not None
    (pair.target.root / PATH / "region=us/a.csv").write_bytes(b"xx")
    with pytest.raises(TargetDamagedError, match=r"region=us/a\.csv"):
        pair.copy(sub_path="region=eu", verification=Verification.WHOLE)
    assert pair.target.names() == {"region=us/a.csv", FLAG}


def change_at(pair: Pair, watch: Watch, call: str, *, times: int, files: dict[str, bytes]) -> None:
    """Let others write into the source before a call."""
    left = [times]

    def write(name: str, _file: str) -> None:
        if name == call and left[0]:
            left[0] -= 1
            pair.source.land({name: data + str(left[0]).encode() for name, data in files.items()}, flag=None)

    watch.before = write


CHANGES = [{"x.csv": b"other"}, {"new.csv": b"new"}, {"large.bin": pattern(9 << 20, 7)[:-1]}]


@pytest.mark.parametrize("call", ["source.chunks", "read_back", "seal"])
@pytest.mark.parametrize("files", CHANGES, ids=["rewritten", "added", "large"])
@pytest.mark.parametrize("clock", sampled(["later", "soon"], "soon"))
def test_a_source_that_changes_during_the_copy_is_copied_again(
    pair: Pair, call: str, files: dict[str, bytes], clock: str
) -> None:
    watch = Watch()
    pair.stores = watched_stores(watch)
    pair.clock = SOON if clock == "soon" else pair.clock
    pair.source.land(FILES)
    change_at(pair, watch, call, times=1, files=files)
    assert pair.copy().tries == 2
    pair.require_equal()


def test_a_source_that_changes_always_is_never_published(pair: Pair) -> None:
    watch = Watch()
    pair.stores = watched_stores(watch)
    pair.source.land(FILES)
    change_at(pair, watch, "seal", times=1000, files={"x.csv": b"x"})
    with pytest.raises(SourceChangingError, match="3 times"):
        pair.copy()
    assert pair.target.availability() is Availability.MISSING
    watch.before = nothing
    watch.reset()
    assert pair.copy().tries == 1
    assert watch.read < 1000  # what did not change was used again
    pair.require_equal()


def test_files_that_go_during_the_copy_are_a_change(pair: Pair) -> None:
    watch = Watch()
    pair.stores = watched_stores(watch)
    pair.source.land(FILES)

    def remove(call: str, _file: str) -> None:
        if call == "source.chunks" and (pair.source.root or Path()).joinpath(PATH, "x.csv").exists():
            pair.source.harness.remove(f"{PATH}/x.csv")

    watch.before = remove
    assert pair.copy().tries == 2
    assert "x.csv" not in pair.target.read()
    pair.require_equal()


def test_a_source_that_is_gone_during_the_copy_is_a_failure(pair: Pair) -> None:
    watch = Watch()
    pair.stores = watched_stores(watch)
    pair.source.land(FILES)
    assert pair.source.root is not None

    def vanish(call: str, _file: str) -> None:
        if call == "seal":
            assert pair.source.root is not None
            pair.source.root.rename(pair.source.root.with_name("unmounted"))

    watch.before = vanish
    with pytest.raises(StorageError, match="root is not there"):
        pair.copy()
    assert pair.target.availability() is Availability.MISSING


@pytest.mark.parametrize("flag", [FLAG, None])
def test_an_unmounted_source_is_not_an_empty_one(pair: Pair, flag: str | None) -> None:
    pair.source.publish(SMALL, flag=flag)
    pair.copy(flag=flag)
    assert pair.source.root is not None
    pair.source.root.rename(pair.source.root.with_name("unmounted"))
    with pytest.raises(StorageError, match="root is not there"):
        pair.copy(flag=flag)
    pair.source.root.mkdir()
    with pytest.raises(SourceNotAvailableError):
        pair.copy(flag=flag)
    (pair.source.root / PATH).mkdir(parents=True)
    with pytest.raises(SourceNotAvailableError if flag else SourceEmptiedError):
        pair.copy(flag=flag, removed_files=RemovedFiles.REMOVE)
    assert pair.target.read() == SMALL
    if not flag:
        emptied = pair.copy(flag=flag, removed_files=RemovedFiles.REMOVE, allow_emptying=True)
        assert emptied.removed == tuple(sorted(SMALL))


def test_a_source_that_proves_that_it_is_empty_empties_its_target(any_pair: Pair) -> None:
    any_pair.source.publish(SMALL)
    any_pair.copy()
    any_pair.source.publish({}, token="run-2")
    assert any_pair.copy().removed == tuple(sorted(SMALL))
    assert any_pair.target.names() == {FLAG}


@pytest.mark.parametrize("prepare", [lambda _: None, lambda pair: pair.source.land(SMALL, flag=None)])
def test_a_source_without_its_flag_is_not_copied(any_pair: Pair, prepare: Callable[[Pair], None]) -> None:
    prepare(any_pair)
    with pytest.raises(SourceNotAvailableError):
        any_pair.copy()
    assert any_pair.target.availability() is Availability.MISSING


def test_one_that_fails_does_not_touch_the_others(pair: Pair, tmp_path: Path) -> None:
    pair.source.publish(SMALL)
    pair.source.publish(FILES, path="clicks/06")
    nowhere = local_place(tmp_path / "other")

    def forbid() -> None:
        raise ValueError("not now")

    requests = [
        pair.request(),
        pair.request("clicks/07"),
        pair.request("clicks/06", guard=forbid),
        pair.request("clicks/06", source=nowhere.side("clicks/06")),
    ]
    outcomes = pair.copy_many(requests)
    assert [type(outcome).__name__ for outcome in outcomes] == [
        "Copied",
        "SourceNotAvailableError",
        "ValueError",
        "SourceNotAvailableError",
    ]
    assert pair.target.availability("clicks/06") is Availability.MISSING
    again = pair.copy("clicks/06")
    assert again.resumed == again.bytes
    pair.require_equal("clicks/06")
