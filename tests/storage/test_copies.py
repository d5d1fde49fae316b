"""What copies ask of every kind of storage: what is told of a source, and stagings that outlive their writers."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from feed_assets.storage.copy_port import Staging
from feed_assets.storage.errors import InstanceChangingError, InstanceNotFoundError, StagingLostError, StorageError
from feed_assets.storage.local import staging as local_staging
from feed_assets.storage.local.store import LocalStore
from feed_assets.storage.records import Availability
from tests.storage.assemblies import FILES, FLAG, PATH, TOKEN, MiB, prepared, put, read_back, staged
from tests.storage.harnesses import (
    REPLACING,
    FencedOut,
    StoreHarness,
    allow,
    client_of,
    forbid,
    local_harness,
    publish,
    read_all,
)

LATER = 4_000_000_000_000_000_000
"""Nanoseconds since 1970 of a day when all of these files are old."""


def opened(harness: StoreHarness, files: dict[str, bytes] | None = None) -> Staging:
    """A staging with files that are put and recorded."""
    staging = harness.store.staging(PATH, TOKEN)
    staging.open()
    for name, data in (files or {}).items():
        put(staging, name, data)
    if files:
        staging.record([staged(name, data) for name, data in files.items()])
    return staging


def recorded(harness: StoreHarness) -> set[str]:
    staging = harness.store.staging(PATH, TOKEN)
    staging.open()
    found = {file.path for file in staging.recorded()}
    staging.close()
    return found


def test_a_survey_tells_all_content_files_in_order_and_reads_none(file_harness: StoreHarness) -> None:
    file_harness.land(PATH, {**FILES, "_hidden": b"h", "s/.crc": b"c", FLAG: b""})
    store = file_harness.store
    survey = store.survey(PATH, FLAG, LATER)
    assert survey.availability is Availability.AVAILABLE
    assert [(file.path, file.size) for file in survey.files] == [("a.csv", 3), ("empty.csv", 0), ("s/b.csv", 2)]
    assert all(file.is_settled and file.version and not file.checksum for file in survey.files)
    assert (survey.mark, store.mark(PATH)) == ("", "")
    everything = store.survey(PATH, FLAG, LATER, everything=True)
    assert {file.path for file in everything.files} == {*FILES, "_hidden", "s/.crc"}


def test_a_survey_of_a_publication_knows_its_checksums_and_its_mark(file_harness: StoreHarness) -> None:
    manifest = publish(file_harness.store, PATH, FILES)
    store = file_harness.store
    survey = store.survey(PATH, FLAG, LATER)
    assert {file.path: file.checksum for file in survey.files} == {e.path: e.checksum for e in manifest.entries}
    assert survey.mark == store.mark(PATH)
    assert (survey.mark == "") is file_harness.store.root_url.startswith("sftp")
    if not survey.mark:  # it tells times only, so that nothing is a mark
        return
    publish(file_harness.store, PATH, {**FILES, "a.csv": b"bbb"}, token="run-2")
    assert store.mark(PATH) != survey.mark


def test_a_file_that_was_written_after_the_publication_has_another_sign_and_no_checksum(
    file_harness: StoreHarness,
) -> None:
    publish(file_harness.store, PATH, FILES)
    store = file_harness.store
    before = {file.path: file for file in store.survey(PATH, FLAG, LATER).files}
    file_harness.put(f"{PATH}/a.csv", b"aaaa")
    after = {file.path: file for file in store.survey(PATH, FLAG, LATER).files}
    assert after["a.csv"][:3] != before["a.csv"][:3]  # "where times are whole seconds, the size tells it"
    assert (after["a.csv"].checksum, after["s/b.csv"]) == ("", before["s/b.csv"])


def test_what_is_not_there_or_has_no_flag_has_no_files(file_harness: StoreHarness) -> None:
    store = file_harness.store
    file_harness.put("elsewhere", b"")
    assert store.survey(PATH, FLAG, LATER).availability is Availability.MISSING
    file_harness.land(PATH, FILES)
    survey = store.survey(PATH, FLAG, LATER)
    assert (survey.availability, survey.files) == (Availability.PARTIAL, ())
    assert len(store.survey(PATH, None, LATER).files) == 3


def test_the_head_of_a_publication_is_found_with_its_flags_only(file_harness: StoreHarness) -> None:
    store = file_harness.store
    assert store.find_publication(PATH, [FLAG]) is None
    file_harness.land(PATH, {**FILES, FLAG: b""})
    assert store.find_publication(PATH, [FLAG]) is None
    manifest = publish(file_harness.store, PATH, FILES, clearing=REPLACING)
    head = store.find_publication(PATH, [FLAG])
    assert head is not None
    assert (head.digest, head.files, head.bytes) == (manifest.digest, 3, 5)
    assert store.find_publication(PATH, [FLAG, f"s/{FLAG}"]) is None


def test_files_are_read_from_their_beginning_to_their_end(file_harness: StoreHarness) -> None:
    large = bytes(range(256)) * (9 * 4096) + b"end"
    file_harness.land(PATH, {**FILES, "large": large})
    with file_harness.store.reading(PATH) as reading:
        for name, data in {**FILES, "large": large}.items():
            assert b"".join(bytes(chunk) for chunk in reading.chunks(name)) == data
        with pytest.raises(InstanceNotFoundError):
            list(reading.chunks("nothing"))


def test_a_copy_is_put_together_and_published_with_manifest_and_flag(file_harness: StoreHarness) -> None:
    staging = opened(file_harness, FILES)
    assert file_harness.names() == set()
    staging.prepare(prepared(FILES))
    file_harness.store.flush([staging])
    staging.publish(allow)
    file_harness.store.flush([staging])
    staging.remove()
    assert read_all(file_harness.store, PATH) == FILES
    published = file_harness.store.published_manifest(PATH)
    assert published is not None
    assert published.extra == {"by": "a copy"}
    assert file_harness.store.look([PATH], FLAG)[0].availability is Availability.AVAILABLE
    assert recorded(file_harness) == set()


def test_a_staging_outlives_its_writer_with_what_was_recorded(file_harness: StoreHarness) -> None:
    opened(file_harness, FILES).close()
    assert recorded(file_harness) == set(FILES)


def test_what_was_put_and_not_recorded_is_not_told(file_harness: StoreHarness) -> None:
    staging = opened(file_harness, FILES)
    put(staging, "unrecorded.csv", b"u")
    staging.close()
    assert recorded(file_harness) == set(FILES)


def test_what_is_dropped_is_forgotten_also_when_it_is_written_again(file_harness: StoreHarness) -> None:
    staging = opened(file_harness, FILES)
    staging.drop(["a.csv"])
    put(staging, "a.csv", b"bbb")
    staging.close()
    assert recorded(file_harness) == {"s/b.csv", "empty.csv"}
    with pytest.raises(InstanceNotFoundError):
        read_back(opened(file_harness), "nothing")


def test_the_latest_record_of_a_file_counts_as_long_as_it_has_that_size(file_harness: StoreHarness) -> None:
    staging = opened(file_harness, FILES)
    put(staging, "a.csv", b"longer")
    assert {file.path for file in staging.recorded()} == {"s/b.csv", "empty.csv"}
    staging.record([staged("a.csv", b"longer", version="2")])
    assert {(file.path, file.size, file.version) for file in staging.recorded()} == {
        ("a.csv", 6, "2"),
        ("s/b.csv", 2, "1"),
        ("empty.csv", 0, "1"),
    }
    staging.close()


@pytest.mark.parametrize("size", [3, 20 * MiB])
def test_a_file_that_breaks_off_or_has_another_size_is_not_there(file_harness: StoreHarness, size: int) -> None:
    staging = opened(file_harness, {"former.csv": b"former"})

    def breaking() -> Iterator[bytes]:
        yield b"x" * (size - 1)
        raise FencedOut

    for file in ("new.csv", "former.csv"):
        with pytest.raises(FencedOut):
            staging.put(file, size, breaking())
        for wrong in (size - 1, size + 1):
            with pytest.raises(StorageError, match="bytes instead of"):
                staging.put(file, size, [b"x" * wrong])
    with pytest.raises(InstanceNotFoundError):
        read_back(staging, "new.csv")
    assert read_back(staging, "former.csv") == b"former"
    staging.prepare(prepared({"former.csv": b"former"}))
    staging.publish(allow)
    staging.remove()
    assert read_all(file_harness.store, PATH) == {"former.csv": b"former"}


def test_a_guard_that_forbids_leaves_the_staging_for_the_next(file_harness: StoreHarness) -> None:
    publish(file_harness.store, PATH, {"old.csv": b"old"})
    staging = opened(file_harness, FILES)
    staging.prepare(prepared(FILES))
    with pytest.raises(FencedOut):
        staging.publish(forbid)
    staging.close()
    assert read_all(file_harness.store, PATH) == {"old.csv": b"old"}
    assert recorded(file_harness) == set(FILES)


def test_files_are_adopted_from_what_stands_and_nothing_else_stays(file_harness: StoreHarness) -> None:
    publish(file_harness.store, PATH, {"a.csv": b"aaa", "s/gone.csv": b"gone", "_meta": b"m"})
    staging = opened(file_harness, {"new.csv": b"new"})
    assert file_harness.store.standing(PATH).files == {"a.csv": 3, "s/gone.csv": 4, "_meta": 1, FLAG: 0}
    put(staging, "stray.csv", b"stray")
    staging.adopt(["a.csv"])
    assert (read_back(staging, "a.csv"), read_back(staging, "new.csv")) == (b"aaa", b"new")
    staging.prepare(prepared({"a.csv": b"aaa", "new.csv": b"new"}))
    staging.publish(allow)
    staging.remove()
    assert {name for name in file_harness.names() if "manifest" not in name} == {
        f"{PATH}/{name}" for name in ("a.csv", "new.csv", FLAG)
    }
    assert read_all(file_harness.store, PATH) == {"a.csv": b"aaa", "new.csv": b"new"}


@pytest.mark.parametrize("wrong", [{"a.csv": b"aaaa"}, {"other.csv": b""}])
def test_a_staging_that_is_not_what_it_should_be_is_not_prepared(
    file_harness: StoreHarness, wrong: dict[str, bytes]
) -> None:
    staging = opened(file_harness, FILES)
    with pytest.raises(StorageError, match="bytes instead of"):
        staging.prepare(prepared({**FILES, **wrong}))


def test_who_takes_over_shuts_the_former_writers_out(file_harness: StoreHarness) -> None:
    store = file_harness.store
    number = store.staging(PATH, TOKEN).open()
    writer = store.staging(PATH, TOKEN)
    writer.join(number)
    writer.close()
    assert store.staging(PATH, TOKEN).open() != number
    with pytest.raises(StagingLostError):
        store.staging(PATH, TOKEN).join(number)


def test_large_files_come_in_chunks_from_several_writers(file_harness: StoreHarness) -> None:
    data = bytes(range(256)) * (4096 * 9) + b"end"
    store = file_harness.store
    first = store.staging(PATH, TOKEN)
    generation = first.open()
    for name in ("one", "deep/two"):
        writer = store.staging(PATH, TOKEN)
        writer.join(generation)
        writer.put(name, len(data), (data[start : start + MiB] for start in range(0, len(data), MiB)))
        writer.record([staged(name, data)])
        writer.close()
    assert {file.path for file in first.recorded()} == {"one", "deep/two"}
    assert read_back(first, "one") == read_back(first, "deep/two") == data
    first.prepare(prepared({"one": data, "deep/two": data}))
    first.publish(allow)
    first.remove()
    assert read_all(file_harness.store, PATH) == {"one": data, "deep/two": data}


def test_a_file_that_is_put_again_has_nothing_of_before(file_harness: StoreHarness) -> None:
    staging = opened(file_harness)
    for data in (b"o" * (9 * MiB), b"n" * (9 * MiB)):
        put(staging, "large", data)
        assert read_back(staging, "large") == data


def test_a_staging_of_a_copy_is_swept_as_any_other(file_harness: StoreHarness) -> None:
    opened(file_harness, FILES).close()
    assert file_harness.store.sweep_staging(datetime(2000, 1, 1, tzinfo=UTC)) == 0
    assert recorded(file_harness) != set()
    assert file_harness.store.sweep_staging(datetime(2100, 1, 1, tzinfo=UTC)) == 1
    assert recorded(file_harness) == set()


def test_a_broken_off_publication_is_recovered_unless_its_staging_is_gone(file_harness: StoreHarness) -> None:
    assert not file_harness.store.recover(PATH)
    if file_harness.store.local_path(PATH) is not None:
        return
    file_harness.put(client_of(file_harness.store).marker(PATH), b'{"version": 1, "token": "run-9"}')
    with pytest.raises(StorageError, match="run-9"):
        file_harness.store.recover(PATH)
    staging = opened(file_harness, FILES)
    staging.prepare(prepared(FILES))
    staging.publish(allow)
    assert read_all(file_harness.store, PATH) == FILES


def test_writers_that_do_not_end_are_not_waited_for_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_staging, "PATIENCE", 0.0)
    store = LocalStore(tmp_path)
    number = store.staging(PATH, TOKEN).open()
    writer, other = store.staging(PATH, TOKEN), store.staging(PATH, TOKEN)
    writer.join(number)
    other.join(number)
    with pytest.raises(InstanceChangingError, match="another process"):
        store.staging(PATH, TOKEN).open()
    writer.close()
    other.close()
    sealed = store.staging(PATH, TOKEN)
    sealed.seal()
    with pytest.raises(InstanceChangingError, match="another process"):
        store.staging(PATH, TOKEN).open()
    sealed.close()
    store.staging(PATH, TOKEN).open()


def test_an_adopted_file_is_not_recorded_because_it_is_no_copy(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    publish(store, PATH, FILES)
    staging = store.staging(PATH, TOKEN)
    staging.open()
    put(staging, "a.csv", b"xxx")
    staging.record([staged("a.csv", b"xxx")])
    staging.adopt(["a.csv"])
    assert staging.recorded() == []
    put(staging, "a.csv", b"yyy")
    assert read_all(store, PATH)["a.csv"] == b"aaa"
    staging.close()


def test_folders_that_nothing_is_left_in_do_not_come_along(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    staging = store.staging(PATH, TOKEN)
    staging.open()
    put(staging, "stray/deep/a.csv", b"x")
    put(staging, "b.csv", b"b")
    staging.prepare(prepared({"b.csv": b"b"}))
    staging.publish(allow)
    staging.remove()
    assert not (tmp_path / PATH / "stray").exists()


def test_a_link_in_a_staging_is_not_followed(tmp_path: Path) -> None:
    staging = opened(local_harness(LocalStore(tmp_path), tmp_path), {"a.csv": b"aaa"})
    (there,) = tmp_path.rglob("a.csv")
    there.rename(tmp_path / "aside.csv")
    there.symlink_to(tmp_path / "aside.csv")
    with pytest.raises(StorageError):
        read_back(staging, "a.csv")
    staging.close()
