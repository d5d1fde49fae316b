"""The port to copying, for every kind of storage: what is told of a source, and stagings that outlive their writers."""

from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from feed_assets.storage import local_turns
from feed_assets.storage.copy_port import Assembly
from feed_assets.storage.errors import InstanceChangingError, InstanceNotFoundError, StagingLostError, StorageError
from feed_assets.storage.local import LocalStore
from feed_assets.storage.records import Availability
from tests.storage.assemblies import FILES, FLAG, PATH, TOKEN, MiB, note, prepared
from tests.storage.beds import Bed, FencedOut, allow, forbid, publish, read_all

LATER = 4_000_000_000_000_000_000
"""Nanoseconds since 1970 of a day when all of these files are old."""


def opened(bed: Bed, files: dict[str, bytes] | None = None) -> Assembly:
    """An assembly with files that are written and noted."""
    assembly = bed.store.copying().assembly(PATH, TOKEN)
    assembly.open()
    for name, data in (files or {}).items():
        assembly.put(name, data)
    if files:
        assembly.note([note(name, data) for name, data in files.items()])
    return assembly


def noted(bed: Bed) -> set[tuple[str, int]]:
    assembly = bed.store.copying().assembly(PATH, TOKEN)
    assembly.open()
    found = {(each.file, each.offset) for each in assembly.journal()}
    assembly.close()
    return found


def test_a_survey_tells_all_content_files_in_order_and_reads_none(file_bed: Bed) -> None:
    file_bed.land(PATH, {**FILES, "_hidden": b"h", "s/.crc": b"c", FLAG: b""})
    copying = file_bed.store.copying()
    survey = copying.survey(PATH, FLAG, LATER)
    assert survey.availability is Availability.AVAILABLE
    assert [(file.path, file.size) for file in survey.files] == [("a.csv", 3), ("empty.csv", 0), ("s/b.csv", 2)]
    assert all(file.is_settled and file.sign and not file.checksum for file in survey.files)
    assert (survey.mark, copying.mark(PATH)) == ("", "")
    everything = copying.survey(PATH, FLAG, LATER, everything=True)
    assert {file.path for file in everything.files} == {*FILES, "_hidden", "s/.crc"}


def test_a_survey_of_a_publication_knows_its_checksums_and_its_mark(file_bed: Bed) -> None:
    manifest = publish(file_bed.store, PATH, FILES)
    copying = file_bed.store.copying()
    survey = copying.survey(PATH, FLAG, LATER)
    assert {file.path: file.checksum for file in survey.files} == {e.path: e.checksum for e in manifest.entries}
    assert survey.mark == copying.mark(PATH) != ""
    publish(file_bed.store, PATH, {**FILES, "a.csv": b"bbb"}, token="run-2")
    assert copying.mark(PATH) != survey.mark


def test_a_file_that_was_written_after_the_publication_has_another_sign_and_no_checksum(file_bed: Bed) -> None:
    publish(file_bed.store, PATH, FILES)
    copying = file_bed.store.copying()
    before = {file.path: file for file in copying.survey(PATH, FLAG, LATER).files}
    file_bed.put(f"{PATH}/a.csv", b"aaaa")
    after = {file.path: file for file in copying.survey(PATH, FLAG, LATER).files}
    assert after["a.csv"].sign != before["a.csv"].sign
    assert (after["a.csv"].checksum, after["s/b.csv"]) == ("", before["s/b.csv"])


def test_what_is_not_there_or_has_no_flag_has_no_files(file_bed: Bed) -> None:
    copying = file_bed.store.copying()
    file_bed.put("elsewhere", b"")
    assert copying.survey(PATH, FLAG, LATER).availability is Availability.MISSING
    file_bed.land(PATH, FILES)
    survey = copying.survey(PATH, FLAG, LATER)
    assert (survey.availability, survey.files) == (Availability.PARTIAL, ())
    assert len(copying.survey(PATH, None, LATER).files) == 3


def test_the_head_of_a_publication_is_found_with_its_flags_only(file_bed: Bed) -> None:
    copying = file_bed.store.copying()
    assert copying.find_publication(PATH, [FLAG]) is None
    file_bed.land(PATH, {**FILES, FLAG: b""})
    assert copying.find_publication(PATH, [FLAG]) is None
    manifest = publish(file_bed.store, PATH, FILES)
    head = copying.find_publication(PATH, [FLAG])
    assert head is not None
    assert (head.digest, head.files, head.bytes) == (manifest.digest, 3, 5)
    assert copying.find_publication(PATH, [FLAG, f"s/{FLAG}"]) is None


def test_files_are_read_whole_and_in_stretches_and_no_further_than_they_go(file_bed: Bed) -> None:
    large = bytes(range(256)) * (9 * 4096) + b"end"
    file_bed.land(PATH, {**FILES, "large": large})
    with file_bed.store.copying().reading(PATH) as reading:
        assert {name: bytes(reading.read(name, len(data))) for name, data in FILES.items()} == FILES
        assert bytes(reading.read("a.csv", 2)) != b"aa"  # it has more
        assert b"".join(bytes(chunk) for chunk in reading.chunks("large", 0, len(large) + 1)) == large
        assert b"".join(bytes(chunk) for chunk in reading.chunks("large", 5, 3 * MiB)) == large[5 : 5 + 3 * MiB]
        assert list(reading.chunks("empty.csv", 0, 1)) == []
        assert list(reading.chunks("a.csv", 100, 10)) == []
        with pytest.raises(InstanceNotFoundError):
            reading.read("nothing", 1)


def test_a_copy_is_put_together_and_published_with_manifest_and_flag(file_bed: Bed) -> None:
    assembly = opened(file_bed, FILES)
    assert file_bed.names() == set()
    assembly.prepare(prepared(FILES))
    file_bed.store.copying().flush([assembly])
    assembly.publish(allow)
    file_bed.store.copying().flush([assembly])
    assembly.remove()
    assert read_all(file_bed.store, PATH) == FILES
    published = file_bed.store.published_manifest(PATH)
    assert published is not None
    assert published.extra == {"by": "a copy"}
    assert file_bed.store.look([PATH], FLAG)[0].availability is Availability.AVAILABLE
    assert noted(file_bed) == set()


def test_a_staging_outlives_its_writer_with_what_was_noted(file_bed: Bed) -> None:
    opened(file_bed, FILES).close()
    assert noted(file_bed) == {(name, 0) for name in FILES}


def test_what_was_written_and_not_noted_is_not_told(file_bed: Bed) -> None:
    assembly = opened(file_bed, FILES)
    assembly.put("unnoted.csv", b"u")
    assembly.close()
    assert noted(file_bed) == {(name, 0) for name in FILES}


def test_what_is_dropped_is_forgotten_also_when_it_is_written_again(file_bed: Bed) -> None:
    assembly = opened(file_bed, FILES)
    assembly.drop(["a.csv"])
    assembly.put("a.csv", b"bbb")
    assembly.close()
    assert noted(file_bed) == {("s/b.csv", 0), ("empty.csv", 0)}
    with pytest.raises(InstanceNotFoundError):
        opened(file_bed).read("nothing", 1)


def test_files_that_are_unlike_what_was_read_are_found_whatever_is_wrong_with_them(file_bed: Bed) -> None:
    files = {"same.csv": b"abc", "empty.csv": b"", "other.csv": b"abd", "longer.csv": b"abcd", "shorter.csv": b"ab"}
    assembly = opened(file_bed, files)
    meant = dict.fromkeys(files, b"abc") | {"empty.csv": b"", "gone.csv": b"abc", "gone/too.csv": b"", "not-there": b""}
    unlike = {"other.csv", "longer.csv", "shorter.csv", "gone.csv", "gone/too.csv", "not-there"}
    assert assembly.find_unlike(meant) == unlike
    assert assembly.find_unlike(files) == assembly.find_unlike({}) == set()
    assembly.close()


def test_a_guard_that_forbids_leaves_the_staging_for_the_next(file_bed: Bed) -> None:
    publish(file_bed.store, PATH, {"old.csv": b"old"})
    assembly = opened(file_bed, FILES)
    assembly.prepare(prepared(FILES))
    with pytest.raises(FencedOut):
        assembly.publish(forbid)
    assembly.close()
    assert read_all(file_bed.store, PATH) == {"old.csv": b"old"}
    assert noted(file_bed) == {(name, 0) for name in FILES}


def test_files_are_adopted_from_what_stands_and_nothing_else_stays(file_bed: Bed) -> None:
    publish(file_bed.store, PATH, {"a.csv": b"aaa", "s/gone.csv": b"gone", "_meta": b"m"})
    assembly = opened(file_bed, {"new.csv": b"new"})
    assert file_bed.store.copying().standing(PATH).files == {"a.csv": 3, "s/gone.csv": 4, "_meta": 1, FLAG: 0}
    assembly.put("stray.csv", b"stray")
    assembly.adopt(["a.csv"])
    assert (bytes(assembly.read("a.csv", 3)), bytes(assembly.read("new.csv", 3))) == (b"aaa", b"new")
    assembly.prepare(prepared({"a.csv": b"aaa", "new.csv": b"new"}))
    assembly.publish(allow)
    assembly.remove()
    assert {name for name in file_bed.names() if "manifest" not in name} == {
        f"{PATH}/{name}" for name in ("a.csv", "new.csv", FLAG)
    }
    assert read_all(file_bed.store, PATH) == {"a.csv": b"aaa", "new.csv": b"new"}


@pytest.mark.parametrize("wrong", [{"a.csv": b"aaaa"}, {"other.csv": b""}])
def test_a_staging_that_is_not_what_it_should_be_is_not_prepared(file_bed: Bed, wrong: dict[str, bytes]) -> None:
    assembly = opened(file_bed, FILES)
    with pytest.raises(StorageError, match="bytes instead of"):
        assembly.prepare(prepared({**FILES, **wrong}))


def test_who_takes_over_shuts_the_former_writers_out(file_bed: Bed) -> None:
    copying = file_bed.store.copying()
    number = copying.assembly(PATH, TOKEN).open()
    writer = copying.assembly(PATH, TOKEN)
    writer.join(number)
    writer.close()
    assert copying.assembly(PATH, TOKEN).open() != number
    with pytest.raises(StagingLostError):
        copying.assembly(PATH, TOKEN).join(number)


def test_large_files_come_in_stretches_in_any_order_from_several_writers(file_bed: Bed) -> None:
    data = bytes(range(256)) * (4096 * 18) + b"end"
    copying = file_bed.store.copying()
    first = copying.assembly(PATH, TOKEN)
    number, grain = first.open(), first.grain(len(data))
    if not grain:
        first.write("large", len(data), 0, [data])
    else:
        first.begin("large", len(data))
        unit = -(-8 * MiB // grain) * grain
        for offset in reversed(range(0, len(data), unit)):
            writer = copying.assembly(PATH, TOKEN)
            writer.join(number)
            part = data[offset : offset + unit]
            writer.write("large", len(data), offset, [part[:1000], part[1000:]])
            writer.note([note("large", part, offset=offset)])
            writer.close()
        assert noted(file_bed) == {("large", offset) for offset in range(0, len(data), unit)}
    first.complete("large", len(data))
    first.complete("large", len(data))
    assert b"".join(bytes(chunk) for chunk in first.chunks("large", 0, len(data) + 1)) == data
    first.prepare(prepared({"large": data}))
    first.publish(allow)
    first.remove()
    assert read_all(file_bed.store, PATH) == {"large": data}


def test_a_large_file_that_is_begun_anew_has_nothing_of_before(file_bed: Bed) -> None:
    old, new = b"o" * (9 * MiB), b"n" * (9 * MiB)
    assembly = opened(file_bed)
    for data in (old, new):
        if assembly.grain(len(data)):
            assembly.begin("large", len(data))
        assembly.write("large", len(data), 0, [data])
        assembly.complete("large", len(data))
    assert b"".join(bytes(chunk) for chunk in assembly.chunks("large", 0, len(new))) == new


def test_a_large_file_with_a_gap_is_not_complete(file_bed: Bed) -> None:
    assembly = opened(file_bed)
    if not assembly.grain(20 * MiB):
        return
    assembly.begin("large", 20 * MiB)
    assembly.write("large", 20 * MiB, 8 * MiB, [bytes(8 * MiB)])
    assembly.note([note("large", bytes(8 * MiB), offset=8 * MiB)])
    assert noted(file_bed) == {("large", 8 * MiB)}
    if file_bed.store.local_path(PATH) is None:  # elsewhere its size tells, and what has a gap is in no journal
        with pytest.raises(StorageError, match="parts of"):
            assembly.complete("large", 20 * MiB)


def test_a_staging_of_a_copy_is_swept_as_any_other(file_bed: Bed) -> None:
    opened(file_bed, FILES).close()
    assert file_bed.store.sweep_staging(datetime(2000, 1, 1, tzinfo=UTC)) == 0
    assert noted(file_bed) != set()
    assert file_bed.store.sweep_staging(datetime(2100, 1, 1, tzinfo=UTC)) == 1
    assert noted(file_bed) == set()


def test_a_broken_off_publication_is_recovered_unless_its_staging_is_gone(file_bed: Bed) -> None:
    copying = file_bed.store.copying()
    assert not copying.recover(PATH)
    if file_bed.store.local_path(PATH) is not None:
        return
    file_bed.put(f"{PATH}/.feed-assets.publishing.json", b'{"version": 1, "token": "run-9"}')
    assert not copying.recover(PATH)
    assembly = opened(file_bed, FILES)
    assembly.prepare(prepared(FILES))
    assembly.publish(allow)
    assert read_all(file_bed.store, PATH) == FILES


def test_writers_that_do_not_end_are_not_waited_for_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_turns, "PATIENCE", 0.0)
    copying = LocalStore(tmp_path).copying()
    number = copying.assembly(PATH, TOKEN).open()
    writer, other = copying.assembly(PATH, TOKEN), copying.assembly(PATH, TOKEN)
    writer.join(number)
    other.join(number)
    with pytest.raises(InstanceChangingError, match="another process"):
        copying.assembly(PATH, TOKEN).open()
    writer.close()
    other.close()
    sealed = copying.assembly(PATH, TOKEN)
    sealed.seal()
    with pytest.raises(InstanceChangingError, match="another process"):
        copying.assembly(PATH, TOKEN).open()
    sealed.close()
    copying.assembly(PATH, TOKEN).open()


def test_an_adopted_file_is_in_no_journal_because_it_is_no_copy(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    publish(store, PATH, FILES)
    assembly = store.copying().assembly(PATH, TOKEN)
    assembly.open()
    assembly.put("a.csv", b"xxx")
    assembly.note([note("a.csv", b"xxx")])
    assembly.adopt(["a.csv"])
    assert assembly.journal() == []
    assembly.put("a.csv", b"yyy")
    assert read_all(store, PATH)["a.csv"] == b"aaa"
    assembly.close()


def test_folders_that_nothing_is_left_in_do_not_come_along(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    assembly = store.copying().assembly(PATH, TOKEN)
    assembly.open()
    assembly.put("stray/deep/a.csv", b"x")
    assembly.put("b.csv", b"b")
    assembly.prepare(prepared({"b.csv": b"b"}))
    assembly.publish(allow)
    assembly.remove()
    assert not (tmp_path / PATH / "stray").exists()


def test_a_link_in_a_staging_is_unlike_what_it_leads_to(tmp_path: Path) -> None:
    assembly = LocalStore(tmp_path).copying().assembly(PATH, TOKEN)
    with closing(assembly):
        assembly.open()
        assembly.put("a.csv", b"aaa")
        (staged,) = tmp_path.rglob("a.csv")
        staged.rename(tmp_path / "aside.csv")
        staged.symlink_to(tmp_path / "aside.csv")
        assert assembly.find_unlike({"a.csv": b"aaa"}) == {"a.csv"}
