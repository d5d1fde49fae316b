"""What a scan of an instance's content tells and reads, on every implementation."""

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from feed_assets.storage.errors import InstanceNotFoundError, PathRefusedError
from feed_assets.storage.listing import Entry, Listing, scan_listing
from feed_assets.storage.local.store import LocalStore
from feed_assets.storage.object.client import entry_of
from feed_assets.storage.object.obstore_client import object_file
from feed_assets.storage.records import Availability, Manifest, ManifestEntry, Scan
from tests.storage.harnesses import StoreHarness, local_harness, publish, read_file

HOUR = "weather/2013/11/03/05"
FLAG = "_SUCCESS"
DATA = {"part-0.csv": b"a,b\n1,2\n", "part-1.csv": b"a,b\n3,4\n"}
LATER = datetime.now(UTC) + timedelta(days=1)


def scan(harness: StoreHarness, earlier: Scan | None = None, flag: str | None = None, now: datetime = LATER) -> Scan:
    return harness.store.scan(HOUR, flag, earlier, now)


def test_a_scan_knows_all_content_and_neither_flags_nor_hidden_files(harness: StoreHarness) -> None:
    harness.land(HOUR, {**DATA, "x=1/part-2.csv": b"5", FLAG: b"", ".part-0.crc": b"1", "_temporary/part-9": b"1"})
    found = scan(harness, flag=FLAG)
    assert found.availability is Availability.AVAILABLE
    assert [(file.path, file.size) for file in found.files] == [
        ("part-0.csv", 8),
        ("part-1.csv", 8),
        ("x=1/part-2.csv", 1),
    ]
    assert found.bytes == 17
    assert all(file.checksum for file in found.files)


def test_a_second_scan_reads_nothing_when_nothing_changed(harness: StoreHarness) -> None:
    harness.land(HOUR, DATA)
    first = scan(harness)
    second = scan(harness, first)
    assert (second.read, second.digest) == (0, first.digest)


def test_only_what_changed_is_read_again(harness: StoreHarness) -> None:
    harness.land(HOUR, DATA)
    first = scan(harness)
    harness.put(f"{HOUR}/part-1.csv", b"a,b\n3,4\n5,6\n")
    second = scan(harness, first)
    assert second.read <= 1
    assert second.digest != first.digest
    assert second.files[0] == first.files[0]


def test_a_file_more_and_a_file_less_are_another_content(harness: StoreHarness) -> None:
    harness.land(HOUR, DATA)
    first = scan(harness)
    harness.put(f"{HOUR}/part-2.csv", b"1")
    more = scan(harness, first)
    harness.remove(f"{HOUR}/part-2.csv")
    harness.remove(f"{HOUR}/part-1.csv")
    less = scan(harness, more)
    assert len({first.digest, more.digest, less.digest}) == 3


def test_a_rewrite_of_equal_size_is_another_content(harness: StoreHarness) -> None:
    harness.land(HOUR, DATA)
    now = datetime.now(UTC) if harness.store.root_url.startswith("sftp") else LATER  # which tells whole seconds only
    first = scan(harness, now=now)
    time.sleep(0.02)
    harness.put(f"{HOUR}/part-1.csv", b"a,b\n3,5\n")
    second = scan(harness, first, now=now)
    assert (second.bytes, len(second.files)) == (first.bytes, len(first.files))
    assert second.digest != first.digest


def test_a_file_written_again_with_the_same_bytes_is_no_other_content(harness: StoreHarness) -> None:
    harness.land(HOUR, DATA)
    first = scan(harness)
    time.sleep(0.02)
    harness.put(f"{HOUR}/part-1.csv", DATA["part-1.csv"])
    second = scan(harness, first)
    assert second.digest == first.digest


def test_what_changed_a_moment_ago_is_read_again(harness: StoreHarness) -> None:
    harness.land(HOUR, DATA)
    just_now = datetime.now(UTC)
    first = scan(harness, now=just_now)
    has_tags = harness.store.root_url.startswith(("s3", "gs", "abfs", "memory"))
    assert scan(harness, first, now=just_now).read == (0 if has_tags else first.read)


def test_a_published_instance_has_the_digest_of_its_manifest_wherever_it_is_read(harness: StoreHarness) -> None:
    manifest = publish(harness.store, HOUR, DATA)
    found = scan(harness, flag=FLAG)
    assert [file.path for file in found.files] == [entry.path for entry in manifest.entries]
    if found.read:
        assert found.digest == manifest.digest


def test_a_file_in_place_of_the_directory_is_scanned_as_one(file_harness: StoreHarness) -> None:
    file_harness.put(HOUR, b"123")
    found = scan(file_harness)
    assert [(file.path, file.size) for file in found.files] == [("", 3)]
    assert scan(file_harness, found).read == 0
    assert scan(file_harness, flag=FLAG).availability is Availability.PARTIAL


def test_scans_and_manifests_have_digests_of_one_kind() -> None:
    entry = ManifestEntry(path="a", size=1, checksum="sha256:1")
    file = Scan(availability=Availability.AVAILABLE, files=(), read=0)
    assert Manifest.of([]).digest == file.digest
    assert Manifest.of([entry]).digest != file.digest


def test_a_local_file_rewritten_with_its_old_size_and_time_is_noticed(tmp_path: Path) -> None:
    harness = local_harness(LocalStore(tmp_path), tmp_path)
    harness.land(HOUR, DATA)
    first = scan(harness)
    file = tmp_path / HOUR / "part-0.csv"
    times = file.stat().st_atime_ns, file.stat().st_mtime_ns
    time.sleep(0.02)
    file.write_bytes(b"a,b\n9,9\n")
    os.utime(file, ns=times)
    assert scan(harness, first).digest != first.digest


def test_a_touched_local_file_is_read_and_has_not_changed(tmp_path: Path) -> None:
    harness = local_harness(LocalStore(tmp_path), tmp_path)
    harness.land(HOUR, DATA)
    first = scan(harness)
    time.sleep(0.02)
    (tmp_path / HOUR / "part-0.csv").touch()
    second = scan(harness, first)
    assert (second.read, second.digest) == (1, first.digest)


def test_links_that_lead_out_of_the_root_are_passed_over(tmp_path: Path) -> None:
    harness = local_harness(LocalStore(tmp_path / "root"), tmp_path / "root")
    harness.land(HOUR, DATA)
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "root" / HOUR / "part-2.csv").symlink_to(tmp_path / "secret")
    assert [file.path for file in scan(harness).files] == ["part-0.csv", "part-1.csv"]


def test_a_link_in_place_of_the_directory_is_scanned_as_the_file_to_which_it_leads(tmp_path: Path) -> None:
    harness = local_harness(LocalStore(tmp_path / "root"), tmp_path / "root")
    harness.put("weather/data.csv", b"123")
    harness.put("file", b"123")
    place = tmp_path / "root" / HOUR
    place.parent.mkdir(parents=True)
    place.symlink_to(tmp_path / "root/weather/data.csv")
    found = scan(harness)
    assert harness.store.look([HOUR], None)[0].availability is Availability.AVAILABLE
    assert [file[:2] for file in found.files] == [("", 3)]
    assert found.digest == harness.store.scan("file", None, None, LATER).digest
    harness.put("weather/data.csv", b"12345")
    assert scan(harness, found).digest != found.digest
    (tmp_path / "secret").write_text("secret")
    place.unlink()
    place.symlink_to(tmp_path / "secret")
    for ask in (lambda: scan(harness), lambda: read_file(harness.store, HOUR, "")):
        with pytest.raises(PathRefusedError, match="out of the storage root"):
            ask()


@pytest.mark.parametrize("target", ["nothing", "data.csv/nothing"])
def test_a_link_to_nothing_in_place_of_the_directory_has_nothing_to_scan_and_is_told_by_a_look(
    tmp_path: Path, target: str
) -> None:
    harness = local_harness(LocalStore(tmp_path), tmp_path)
    harness.put("weather/data.csv", b"123")
    place = tmp_path / HOUR
    place.parent.mkdir(parents=True)
    place.symlink_to(tmp_path / "weather" / target)
    assert harness.store.look([HOUR], None)[0].obstacle == "a symbolic link leads to nothing"
    assert scan(harness).availability is Availability.MISSING
    assert harness.store.survey(HOUR, None, 0).availability is Availability.MISSING
    assert harness.store.published_manifest(HOUR) is None
    with pytest.raises(InstanceNotFoundError):
        harness.store.manifest(HOUR)


@pytest.mark.parametrize(
    ("etag", "checksum"),
    [
        ('"900150983cd24fb0d6963f7d28e17f72"', "etag:900150983cd24fb0d6963f7d28e17f72"),
        ('"900150983cd24fb0d6963f7d28e17f72-2"', ""),
        ("0x8DBF0D0D0D0D0D0", ""),
        (None, ""),
    ],
)
def test_only_tags_that_are_checksums_of_content_count_as_such(etag: str | None, checksum: str) -> None:
    meta = {"path": "a", "size": 1, "last_modified": LATER, "e_tag": etag, "version": None}
    assert object_file("a", meta).checksum == checksum


def test_an_object_without_a_tag_has_a_version_when_its_time_is_settled() -> None:
    file = entry_of("a", 1, LATER, f" {LATER}")

    def is_versioned(file: Entry, now: datetime) -> bool:
        scan = scan_listing(Listing(entries=[file]), None, None, now, lambda _: [ManifestEntry("a", 1, "blake3:1")])
        (scanned,) = scan.files
        return scanned.version == file.version

    settled = LATER + timedelta(seconds=2, microseconds=1)
    assert [is_versioned(file, now) for now in (LATER, settled - timedelta(microseconds=1), settled)] == [
        False,
        False,
        True,
    ]
    assert not is_versioned(entry_of("a", 1, None, file.version), settled)
    assert is_versioned(entry_of("a", 1, LATER, f"abc {LATER}"), LATER)
