"""What a listing tells, once for all storages."""

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from feed_assets.storage.listing import (
    SETTLING,
    Entry,
    Listing,
    availability_of,
    look_of,
    moment,
    nanoseconds,
    scan_listing,
    source_files,
)
from feed_assets.storage.records import Availability, ManifestEntry

NOW = nanoseconds(datetime(2024, 1, 1, tzinfo=UTC))
OLD = NOW - SETTLING - 1
CONTENT = [Entry("b", 2, "v2", OLD, OLD, 0o640), Entry("a", 1, "v1", NOW - 1, NOW - 1), Entry("c", 0, "tag")]


@pytest.mark.parametrize(
    ("flag", "has_flag", "size", "expected"),
    [
        (None, False, 1, Availability.AVAILABLE),
        (None, False, 0, Availability.EMPTY),
        ("f", True, 0, Availability.AVAILABLE),
        ("f", False, 9, Availability.PARTIAL),
    ],
)
def test_availability_is_that_of_the_flag_or_of_bytes(
    flag: str | None, has_flag: bool, size: int, expected: Availability
) -> None:
    flags = [Entry("f", 0, "v")] if has_flag else []
    assert availability_of(Listing(entries=[Entry("a", size, "v"), *flags]), flag) is expected


def test_a_look_counts_content_and_knows_the_newest_change() -> None:
    look = look_of("x", Listing(entries=[*CONTENT, Entry("_f", 0, "v", OLD, OLD)], modified=OLD), "_f")
    assert (look.bytes, look.files, look.availability) == (3, 3, Availability.AVAILABLE)
    assert look.modified_at == moment(NOW - 1)
    assert look_of("x", Listing(), None).modified_at is None


def test_what_is_being_published_is_partial_whatever_is_there() -> None:
    for flag in ("a", None):
        assert look_of("x", Listing(entries=CONTENT, is_marked=True), flag).availability is Availability.PARTIAL


def test_files_of_a_source_are_in_order_and_settled_once_a_later_write_would_show() -> None:
    files = source_files(CONTENT, {}, 0, NOW)
    assert [(file.path, file.is_settled, file.checksum) for file in files] == [
        ("a", False, ""),
        ("b", True, ""),
        ("c", True, ""),
    ]
    assert (files[1].version, files[1].modified, files[1].mode) == ("v2", OLD, 0o640)


@pytest.mark.parametrize(
    ("entry", "published_at", "expected"),
    [
        (ManifestEntry("b", 2, "blake3:2"), OLD, "blake3:2"),
        (ManifestEntry("b", 2, "sha256:2"), NOW, "sha256:2"),
        (ManifestEntry("b", 3, "blake3:2"), NOW, ""),
        (ManifestEntry("b", 2, "blake3:2"), OLD - 1, ""),
        (ManifestEntry("b", 2, "etag:2"), NOW, ""),
    ],
    ids=["same", "sha256", "another size", "written since", "no checksum of content"],
)
def test_a_manifest_is_believed_of_files_that_were_not_written_since(
    entry: ManifestEntry, published_at: int, expected: str
) -> None:
    (_, file, _) = source_files(CONTENT, {"b": entry}, published_at, NOW)
    assert file.checksum == expected


def read_them(files: Sequence[str]) -> list[ManifestEntry]:
    return [ManifestEntry(file, 1, f"blake3:{file}") for file in files]


def test_a_scanned_file_has_no_version_while_another_write_could_have_the_same() -> None:
    scan = scan_listing(Listing(entries=CONTENT), None, None, moment(NOW), read_them)
    assert {file.path: file.version for file in scan.files} == {"b": "v2", "a": "", "c": "tag"}


def test_a_scan_reads_what_neither_an_earlier_one_nor_the_storage_tells() -> None:
    now = datetime(2024, 1, 1, tzinfo=UTC)
    content = [*CONTENT, Entry("d", 4, "v4", checksum="etag:4")]
    asked: list[Sequence[str]] = []

    def read(files: Sequence[str]) -> list[ManifestEntry]:
        asked.append(files)
        return [ManifestEntry(file, 1, f"blake3:{file}") for file in files]

    listing = Listing(entries=content)
    first = scan_listing(listing, None, None, now, read)
    assert [(file.path, file.checksum) for file in first.files] == [
        ("a", "blake3:a"),
        ("b", "blake3:b"),
        ("c", "blake3:c"),
        ("d", "etag:4"),
    ]
    second = scan_listing(listing, None, first, now, read)
    assert (asked, first.read, second.read, second.digest) == ([["b", "a", "c"], ["a"]], 3, 1, first.digest)
    assert scan_listing(listing, "_f", None, now, read).files == ()
    assert len(asked) == 2
