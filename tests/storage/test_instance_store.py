"""The contract of `InstanceStore`, on every implementation."""

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from feed_assets.storage.errors import (
    ForeignContentError,
    InstanceNotFoundError,
    ManifestError,
    PathRefusedError,
    StagingLostError,
    StorageError,
)
from feed_assets.storage.records import Availability, Clearing, Displaced, Manifest, Outcome
from feed_assets.storage.registry import open_store
from tests.storage.harnesses import (
    REPLACING,
    FencedOut,
    StoreHarness,
    allow,
    content_names,
    forbid,
    publish,
    read_all,
    read_file,
    stage,
)

HOUR = "weather/2013/11/03/05"
DATA = {"part-0.csv": b"a,b\n1,2\n", "part-1.csv": b"a,b\n3,4\n"}
SIZE = 16
FUTURE = datetime.now(UTC) + timedelta(days=1)
PAST = datetime.now(UTC) - timedelta(days=1)


def availability(harness: StoreHarness, path: str, flag: str | None) -> Availability:
    return harness.store.look([path], flag)[0].availability


def test_a_root_that_can_be_made_is_in_order_and_is_not_made(harness: StoreHarness) -> None:
    harness.store.check_root()
    assert harness.names() == set()


@pytest.mark.parametrize("flag", [None, "", "_SUCCESS"])
def test_nothing_is_missing(harness: StoreHarness, flag: str | None) -> None:
    (look,) = harness.store.look([HOUR], flag)
    assert (look.availability, look.bytes, look.files, look.modified_at) == (Availability.MISSING, 0, 0, None)


def test_data_without_a_configured_flag_are_available(harness: StoreHarness) -> None:
    harness.land(HOUR, DATA)
    (look,) = harness.store.look([HOUR], None)
    assert (look.availability, look.bytes, look.files) == (Availability.AVAILABLE, SIZE, 2)
    assert look.modified_at is not None
    assert look.modified_at.utcoffset() == timedelta(0)


def test_data_without_their_flag_are_partial(harness: StoreHarness) -> None:
    harness.land(HOUR, DATA)
    assert availability(harness, HOUR, "_SUCCESS") is Availability.PARTIAL


@pytest.mark.parametrize("flag", ["_SUCCESS", "READY", "done/flag.txt"])
def test_data_with_their_flag_are_available_and_the_flag_is_no_content(harness: StoreHarness, flag: str) -> None:
    harness.land(HOUR, {**DATA, flag: b""})
    (look,) = harness.store.look([HOUR], flag)
    assert (look.availability, look.bytes, look.files) == (Availability.AVAILABLE, SIZE, 2)
    assert content_names(harness.store, HOUR, flag) == ("part-0.csv", "part-1.csv")
    assert harness.store.manifest(HOUR, flag).files == 2


def test_a_flag_alone_makes_an_instance_available(harness: StoreHarness) -> None:
    harness.land(HOUR, {"_SUCCESS": b""})
    (look,) = harness.store.look([HOUR], "_SUCCESS")
    assert (look.availability, look.bytes, look.files) == (Availability.AVAILABLE, 0, 0)


def test_files_without_bytes_are_empty(file_harness: StoreHarness) -> None:
    file_harness.land(HOUR, {"part-0.csv": b""})
    assert availability(file_harness, HOUR, None) is Availability.EMPTY


def test_marker_files_are_no_content(file_harness: StoreHarness) -> None:
    file_harness.land(HOUR, {"_metadata": b"123", ".part-0.csv.crc": b"123", "_temporary/0/part-0.csv": b"123"})
    assert availability(file_harness, HOUR, None) is Availability.EMPTY
    file_harness.land(HOUR, {"_kind=a/part-0.csv": b"12"})
    assert file_harness.store.look([HOUR], None)[0].bytes == 2


def test_a_file_in_place_of_the_directory_is_one_file_without_flag(file_harness: StoreHarness) -> None:
    file_harness.put(HOUR, b"123")
    (look,) = file_harness.store.look([HOUR], None)
    assert (look.availability, look.bytes, look.files) == (Availability.AVAILABLE, 3, 1)
    assert availability(file_harness, HOUR, "_SUCCESS") is Availability.PARTIAL
    with pytest.raises(StorageError):
        file_harness.store.manifest(HOUR)


def test_what_would_be_below_a_file_is_missing(file_harness: StoreHarness) -> None:
    file_harness.put("weather", b"123")
    assert availability(file_harness, HOUR, None) is Availability.MISSING
    assert file_harness.store.scan(HOUR, None, None, datetime.now(UTC)).availability is Availability.MISSING
    assert file_harness.store.published_manifest(HOUR) is None


def test_a_neighbour_with_the_same_beginning_is_another_instance(harness: StoreHarness) -> None:
    harness.land(f"{HOUR}_backup", DATA)
    assert availability(harness, HOUR, None) is Availability.MISSING


def test_many_looks_answer_in_the_order_asked_and_repeat_the_path_as_asked(harness: StoreHarness) -> None:
    hours = [f"/weather/2013/11/03/{hour:02}/" for hour in range(24)]
    for hour in (3, 7, 23):
        harness.land(hours[hour].strip("/"), {"x": b"1" * hour})
    asked = [*reversed(hours), "elsewhere", hours[3]]
    looks = harness.store.look(asked, None)
    assert [look.path for look in looks] == asked
    assert [look.bytes for look in looks] == [
        *(hour if hour in (3, 7, 23) else 0 for hour in reversed(range(24))),
        0,
        3,
    ]
    assert harness.store.look([], None) == []


def test_looks_are_never_stale(harness: StoreHarness) -> None:
    for size in range(1, 4):
        harness.land(HOUR, {f"part-{size}": b"1"})
        assert harness.store.look([HOUR], None)[0].bytes == size
        assert harness.store.look([HOUR, *(f"weather/2013/11/03/{n}" for n in range(10, 15))], None)[0].bytes == size
    harness.remove(f"{HOUR}/part-1")
    assert harness.store.look([HOUR], None)[0].bytes == 2


def test_a_new_instance_is_published_whole(harness: StoreHarness) -> None:
    manifest = harness.store.publish(
        stage(harness.store, HOUR, DATA), flag="_SUCCESS", guard=allow, extra={"run": "r1", "fence": "7"}
    )
    assert [(entry.path, entry.size) for entry in manifest.entries] == [("part-0.csv", 8), ("part-1.csv", 8)]
    assert (manifest.bytes, manifest.files, manifest.extra) == (SIZE, 2, {"run": "r1", "fence": "7"})
    assert harness.names() == {f"{HOUR}/{name}" for name in (*DATA, "_SUCCESS", ".feed-assets.manifest.json")}
    assert read_all(harness.store, HOUR) == DATA
    assert harness.store.published_manifest(HOUR) == manifest
    assert harness.store.manifest(HOUR).digest == manifest.digest
    assert availability(harness, HOUR, "_SUCCESS") is Availability.AVAILABLE


def test_a_publication_replaces_the_whole_instance(harness: StoreHarness) -> None:
    publish(harness.store, HOUR, {**DATA, "sub/part-2.csv": b"5"}, flag="_OLD")
    publish(harness.store, HOUR, {"part-9.csv": b"new"})
    assert read_all(harness.store, HOUR) == {"part-9.csv": b"new"}
    assert harness.names() == {f"{HOUR}/{name}" for name in ("part-9.csv", "_SUCCESS", ".feed-assets.manifest.json")}


def test_a_first_publication_over_foreign_content_is_refused_and_changes_nothing(harness: StoreHarness) -> None:
    harness.land(HOUR, {**DATA, "_OTHER": b"1"})
    before = harness.names()
    with pytest.raises(ForeignContentError, match=r"it is foreign content: \d+ files .*`existing: adopt`"):
        publish(harness.store, HOUR, {"part-0.csv": b"new"}, flag=None)
    assert harness.names() == before
    assert read_all(harness.store, HOUR) == dict(DATA)
    assert harness.store.trash().sweeps() == []


@pytest.mark.parametrize(
    "clearing", [REPLACING, Clearing(sweep=REPLACING.sweep, is_known=True)], ids=["decided", "on record"]
)
def test_what_is_replaced_by_decision_goes_to_the_trash_and_can_come_back(
    harness: StoreHarness, clearing: Clearing
) -> None:
    harness.land(HOUR, {**DATA, "_OTHER": b"1"})
    before, store = harness.names(), harness.store
    publish(store, HOUR, {"part-0.csv": b"new"}, flag=None, clearing=clearing)
    assert read_all(store, HOUR) == {"part-0.csv": b"new"}
    trash = store.trash()
    assert (trash.sweeps(), list(trash.contents(REPLACING.sweep))) == ([REPLACING.sweep], [HOUR])
    assert trash.restore(REPLACING.sweep, [HOUR])[0].outcome is Outcome.OCCUPIED
    trash.put("evicted", [HOUR])
    assert trash.restore(REPLACING.sweep, [HOUR])[0].outcome is Outcome.MOVED
    assert read_all(store, HOUR) == dict(DATA)
    assert {name.rpartition("/")[2] for name in before} == {name.rpartition("/")[2] for name in harness.names()}


def test_files_that_the_last_manifest_does_not_name_go_to_the_trash(file_harness: StoreHarness) -> None:
    store, told = file_harness.store, []
    publish(store, HOUR, {**DATA, "_metadata": b"1"})
    file_harness.land(HOUR, {"mine.csv": b"mine", "sub/_notes": b"notes"})
    publish(store, HOUR, {"part-0.csv": b"new"}, clearing=Clearing(sweep="displaced-1", announce=told.append))
    assert read_all(store, HOUR) == {"part-0.csv": b"new"}
    mine = (f"{HOUR}/mine.csv", f"{HOUR}/sub/_notes")
    assert told == [Displaced(sweep="displaced-1", store=store.root_url, path=HOUR, paths=mine, files=2)]
    assert set(store.trash().contents("displaced-1")) == set(mine)
    assert [moved.outcome for moved in store.trash().restore("displaced-1", mine)] == [Outcome.MOVED] * 2
    assert read_file(store, HOUR, "mine.csv") == b"mine"


def test_a_publication_over_our_own_moves_nothing_to_the_trash(harness: StoreHarness) -> None:
    for number in range(3):
        files = {"part-0.csv": b"%d" % number, f"_hidden-{number}": b"1", ".x.crc": b"2"}
        publish(harness.store, HOUR, files, token=f"run-{number}")
    assert harness.store.trash().sweeps() == []


def test_a_guard_that_forbids_a_publication_displaces_nothing(file_harness: StoreHarness) -> None:
    store = file_harness.store
    publish(store, HOUR, DATA)
    file_harness.land(HOUR, {"mine.csv": b"mine"})
    with pytest.raises(FencedOut):
        store.publish(stage(store, HOUR, {}, "run-2"), flag="_SUCCESS", guard=forbid, extra={})
    assert f"{HOUR}/mine.csv" in file_harness.names()
    assert store.trash().sweeps() == []


def test_files_that_are_no_content_are_published_with_the_content(harness: StoreHarness) -> None:
    publish(harness.store, HOUR, {**DATA, "_metadata": b"1"})
    assert f"{HOUR}/_metadata" in harness.names()


@pytest.mark.parametrize(("flag", "expected"), [(None, Availability.EMPTY), ("_SUCCESS", Availability.AVAILABLE)])
def test_an_empty_output_is_published(file_harness: StoreHarness, flag: str | None, expected: Availability) -> None:
    publish(file_harness.store, HOUR, DATA, flag=flag)
    manifest = publish(file_harness.store, HOUR, {}, flag=flag)
    assert (manifest.bytes, manifest.files) == (0, 0)
    assert availability(file_harness, HOUR, flag) is expected
    assert file_harness.store.published_manifest(HOUR) == manifest


def test_a_writer_may_remove_the_staged_directory(harness: StoreHarness) -> None:
    staging = stage(harness.store, HOUR, {})
    staging.local_path.rmdir()
    assert harness.store.publish(staging, flag="_SUCCESS", guard=allow, extra={}).files == 0
    assert availability(harness, HOUR, "_SUCCESS") is Availability.AVAILABLE


@pytest.mark.parametrize("before", [None, {"old.csv": b"old"}])
def test_a_publication_that_is_fenced_out_changes_nothing(
    harness: StoreHarness, before: dict[str, bytes] | None
) -> None:
    if before is not None:
        publish(harness.store, HOUR, before)
    seen = harness.names()
    staging = stage(harness.store, HOUR, DATA, "run-2")
    with pytest.raises(FencedOut):
        harness.store.publish(staging, flag="_SUCCESS", guard=forbid, extra={})
    assert harness.names() == seen
    assert not staging.local_path.exists()
    if before is not None:
        assert read_all(harness.store, HOUR) == before
    with pytest.raises(StagingLostError):
        harness.store.publish(staging, flag="_SUCCESS", guard=allow, extra={})


def test_nothing_is_visible_when_the_guard_is_asked(harness: StoreHarness) -> None:
    publish(harness.store, HOUR, {"old.csv": b"old"})
    seen = harness.names()

    def guard() -> None:
        assert harness.names() == seen
        assert read_all(harness.store, HOUR) == {"old.csv": b"old"}

    harness.store.publish(stage(harness.store, HOUR, DATA, "run-2"), flag="_SUCCESS", guard=guard, extra={})
    assert read_all(harness.store, HOUR) == DATA


def test_what_is_staged_is_seen_by_nobody(harness: StoreHarness) -> None:
    stage(harness.store, HOUR, DATA)
    assert harness.names() == set()
    assert [look.availability for look in harness.store.look([HOUR, "weather", "weather/2013"], None)] == [
        "MISSING"
    ] * 3


def test_staging_again_begins_empty(harness: StoreHarness) -> None:
    stage(harness.store, HOUR, {"wrong.csv": b"1"})
    publish(harness.store, HOUR, DATA)
    assert read_all(harness.store, HOUR) == DATA


def test_staging_again_for_the_same_writer_keeps_its_files(harness: StoreHarness) -> None:
    stage(harness.store, HOUR, DATA, "run-2")
    new, again = (harness.store.stage(HOUR, token, is_again=True) for token in ("run-3", "run-2"))
    assert harness.store.staged_files(HOUR, "run-3") == {}
    assert harness.store.staged_files(HOUR, "run-2").keys() == DATA.keys()
    for place in (new, again):
        harness.store.publish(place, flag="_SUCCESS", guard=allow, extra={})
    assert read_all(harness.store, HOUR) == DATA


def test_one_token_stages_several_instances_apart(harness: StoreHarness) -> None:
    one, two = stage(harness.store, "a/1", {"x": b"1"}), stage(harness.store, "b/1", {"y": b"2"})
    harness.store.publish(one, flag=None, guard=allow, extra={})
    harness.store.publish(two, flag=None, guard=allow, extra={})
    assert (read_all(harness.store, "a/1"), read_all(harness.store, "b/1")) == ({"x": b"1"}, {"y": b"2"})


def test_a_repeat_of_the_same_work_converges(harness: StoreHarness) -> None:
    first = publish(harness.store, HOUR, DATA)
    assert publish(harness.store, HOUR, DATA) == first
    assert read_all(harness.store, HOUR) == DATA


def test_discarding_twice_removes_the_staging_once(harness: StoreHarness) -> None:
    publish(harness.store, HOUR, DATA)
    staging = stage(harness.store, HOUR, {"x": b"1"}, "run-2")
    for _ in range(2):
        harness.store.discard(staging)
    assert not staging.local_path.exists()
    assert read_all(harness.store, HOUR) == DATA


def test_equal_content_has_equal_digests_and_a_rewrite_of_equal_size_another(harness: StoreHarness) -> None:
    harness.land("a", {"x": b"12", "s/y": b"3"})
    harness.land("b", {"s/y": b"3", "x": b"12", "_SUCCESS": b"", ".hidden": b"1"})
    harness.land("c", {"x": b"21", "s/y": b"3"})
    harness.land("d", {"z": b"12", "s/y": b"3"})
    harness.land("e", {"x": b"12", "t/y": b"3"})
    digests = [harness.store.manifest(path, "_SUCCESS").digest for path in "abcde"]
    assert digests[0] == digests[1] == digests[3]
    assert len(set(digests)) == 3


def test_late_data_change_the_computed_manifest_and_not_the_published_one(harness: StoreHarness) -> None:
    published = publish(harness.store, HOUR, DATA)
    harness.land(HOUR, {"late.csv": b"5,6"})
    assert harness.store.manifest(HOUR).files == 3
    assert harness.store.published_manifest(HOUR) == published


def test_what_we_did_not_publish_has_no_published_manifest(harness: StoreHarness) -> None:
    assert harness.store.published_manifest(HOUR) is None
    harness.land(HOUR, DATA)
    assert harness.store.published_manifest(HOUR) is None


def test_a_damaged_manifest_file_is_told(harness: StoreHarness) -> None:
    publish(harness.store, HOUR, DATA)
    harness.put(f"{HOUR}/.feed-assets.manifest.json", b'{"version": 1')
    with pytest.raises(ManifestError, match=harness.spelled(HOUR)):
        harness.store.published_manifest(HOUR)


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_what_is_no_file_in_the_place_of_a_manifest_is_a_damaged_one(
    make: Callable[[Path], None], tmp_path: Path
) -> None:
    store = open_store(f"file://{tmp_path}", {})
    publish(store, HOUR, DATA)
    manifest = tmp_path / HOUR / ".feed-assets.manifest.json"
    manifest.unlink()
    make(manifest)
    with pytest.raises(ManifestError, match="its manifest file cannot be read"):
        store.published_manifest(HOUR)


def test_reading_what_is_not_there_names_it(harness: StoreHarness, tmp_path: Path) -> None:
    with pytest.raises(InstanceNotFoundError, match=harness.spelled(HOUR)):
        harness.store.manifest(HOUR)
    with pytest.raises(InstanceNotFoundError, match=harness.spelled(HOUR)):
        harness.store.fetch(HOUR, tmp_path / "copy")
    harness.land(HOUR, DATA)
    with pytest.raises(InstanceNotFoundError, match=r"part-7\.csv"):
        read_file(harness.store, HOUR, "part-7.csv")


def test_an_instance_is_fetched_with_its_content_only(harness: StoreHarness, tmp_path: Path) -> None:
    files = {**DATA, "k=1/ü x.csv": b"5"}
    manifest = publish(harness.store, HOUR, {**files, "_metadata": b"1"})
    assert harness.store.fetch(HOUR, tmp_path / "copy", "_SUCCESS").digest == manifest.digest
    copied = {
        item.relative_to(tmp_path / "copy").as_posix(): item.read_bytes()
        for item in (tmp_path / "copy").rglob("*")
        if item.is_file()
    }
    assert copied == files
    with pytest.raises(StorageError, match="holds something already"):
        harness.store.fetch(HOUR, tmp_path / "copy")


@pytest.mark.parametrize("path", ["ä/ü ö/日本", "a b/c  d", "k=1/x=2013-11-03T05:00", "100%/a+b&c", "[x]/{y}*?"])
def test_paths_and_files_may_have_any_name(harness: StoreHarness, path: str) -> None:
    if "?" in path and harness.store.local_path(path) is None:
        path = path.replace("?", "")
    if harness.store.root_url.startswith("hdfs"):
        path = path.replace(":", "")
    publish(harness.store, path, {f"{path} .csv": b"1"})
    assert read_all(harness.store, path) == {f"{path} .csv": b"1"}
    assert availability(harness, path, "_SUCCESS") is Availability.AVAILABLE
    publish(harness.store, path, {"y": b"2"}, token="run-2")
    assert read_all(harness.store, path) == {"y": b"2"}
    assert harness.store.url(path) == f"{harness.store.root_url}/{path}"


@pytest.mark.parametrize(
    "path", ["", "/", "..", "a/../b", "./a", "a/.", ".feed-assets", "a/.feed-assets/staging", "a\0b", "//"]
)
def test_paths_that_are_none_of_ours_are_refused(one_of_each: StoreHarness, path: str) -> None:
    for ask in (
        lambda: one_of_each.store.manifest(path),
        lambda: one_of_each.store.stage(path, "run-1"),
        lambda: one_of_each.store.url(path),
        lambda: one_of_each.store.local_path(path),
        lambda: one_of_each.store.recover(path),
    ):
        with pytest.raises(PathRefusedError):
            ask()


@pytest.mark.parametrize("path", ["", "a/../b", ".feed-assets"])
def test_a_path_that_is_refused_is_an_obstacle_of_its_own_look(one_of_each: StoreHarness, path: str) -> None:
    publish(one_of_each.store, HOUR, DATA)
    refused, there = one_of_each.store.look([path, HOUR], None)
    assert (refused.path, refused.availability) == (path, Availability.PARTIAL)
    assert refused.obstacle is not None
    assert (there.availability, there.obstacle) == (Availability.AVAILABLE, None)


@pytest.mark.parametrize("token", ["", "..", "a/b", ".hidden", "a b"])
def test_tokens_that_are_no_plain_name_are_refused(one_of_each: StoreHarness, token: str) -> None:
    with pytest.raises(PathRefusedError, match="token"):
        one_of_each.store.stage(HOUR, token)


def test_a_symbolic_link_is_not_published(harness: StoreHarness) -> None:
    staging = stage(harness.store, HOUR, DATA)
    (staging.local_path / "link").symlink_to("part-0.csv")
    with pytest.raises(PathRefusedError, match="symbolic link"):
        harness.store.publish(staging, flag=None, guard=allow, extra={})
    assert harness.names() == set()


def test_the_files_of_a_staging_are_known_until_it_is_discarded(harness: StoreHarness) -> None:
    staging = stage(harness.store, HOUR, {"x": b"1", "below/y": b"22"}, "run-2")
    assert harness.store.staged_files(HOUR, "run-2") == {"x": 1, "below/y": 2}
    assert harness.store.staged_files(HOUR, "run-3") == {}
    harness.store.discard(staging)
    assert harness.store.staged_files(HOUR, "run-2") == {}


def test_of_a_staging_the_files_that_are_kept_are_published_under_their_new_names(harness: StoreHarness) -> None:
    files = {"judged/rules=/part-0": b"1", "judged/rules=a,b/part-0": b"22", "part-1": b"333", ".part-1.crc": b"4"}
    staging = stage(harness.store, HOUR, files, "run-2")
    names = {"judged/rules=/part-0": "part-0", "judged/rules=a,b/part-0": "1-part-0"}
    harness.store.keep_staged(HOUR, "run-2", names)
    assert harness.store.staged_files(HOUR, "run-2") == {"part-0": 1, "1-part-0": 2}
    manifest = harness.store.publish(staging, flag=None, guard=allow, extra={})
    assert [entry.path for entry in manifest.entries] == ["1-part-0", "part-0"]


def test_the_url_of_a_staging_is_below_the_root_whether_or_not_it_is_made(harness: StoreHarness) -> None:
    url = harness.store.staging_url(HOUR, "run-2")
    assert "/.feed-assets/" in url
    root, scheme = harness.store.url(HOUR).split("://")[0], url.split("://")[0]
    assert scheme == ("file" if root == "thrift" else root), "a table's files are in the storage of its cluster"
    place = harness.store.stage(HOUR, "run-2")
    assert place.url.split("://")[1] == url.split("://")[1] or place.url == f"file://{place.local_path}"
    assert harness.store.staging_url(HOUR, "run-2") == url


def test_only_stagings_without_a_recent_change_are_swept(harness: StoreHarness) -> None:
    publish(harness.store, HOUR, DATA)
    staging = stage(harness.store, HOUR, {"x": b"1"}, "run-2")
    stage(harness.store, "other", {"x": b"1"}, "run-2")
    assert harness.store.sweep_staging(PAST) == 0
    assert staging.local_path.exists()
    assert harness.store.sweep_staging(FUTURE) == 2
    assert not staging.local_path.exists()
    assert read_all(harness.store, HOUR) == DATA
    with pytest.raises(StagingLostError, match="run-2"):
        harness.store.publish(staging, flag=None, guard=allow, extra={})
    assert harness.store.sweep_staging(FUTURE) == 0


def test_recovering_where_nothing_broke_off_does_nothing(harness: StoreHarness) -> None:
    assert harness.store.recover(HOUR) is False
    publish(harness.store, HOUR, DATA)
    assert harness.store.recover(HOUR) is False
    assert read_all(harness.store, HOUR) == DATA


def test_thousands_of_files_and_a_large_one_are_published_and_read(harness: StoreHarness) -> None:
    count = {"file": 3000, "memory": 500, "thrift": 500}.get(harness.store.root_url.partition(":")[0], 70)
    files = {f"k={number % 7}/part-{number:05}": b"%d" % number for number in range(1, count)}
    files["k=0/large"] = bytes(5_000_000)  # more than paramiko has under way at once
    manifest = publish(harness.store, HOUR, files)
    assert manifest.files == count
    (look,) = harness.store.look([HOUR], "_SUCCESS")
    assert (look.files, look.bytes) == (count, manifest.bytes)
    assert harness.store.manifest(HOUR) == Manifest.of(manifest.entries)
