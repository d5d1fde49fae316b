"""The contract of `Trash`, on every implementation whose instances are directories."""

import inspect

import pytest

from feed_assets.storage.errors import InstanceNotFoundError, PathRefusedError
from feed_assets.storage.port import InstanceStore
from feed_assets.storage.records import Availability, Moved, Outcome, Purged
from tests.storage.harnesses import StoreHarness, content_names, publish, read_file

HOURS = ["weather/2013/11/01/00", "weather/2013/11/01/01", "weather/2013/11/02/00"]
DATA = {"sub/part-1.csv": b"a,b\n3,4\n", "_SUCCESS": b"", ".part-0.crc": b"\0\1"}
FLAG = "_SUCCESS"


def snapshot(harness: StoreHarness) -> dict[str, bytes]:
    """Everything that everybody sees."""
    found = {}
    for name in harness.names():
        path, _, file = name.rpartition("/")
        found[name] = read_file(harness.store, path, file)
    return found


def outcomes(moved: list[Moved]) -> list[Outcome]:
    return [one.outcome for one in moved]


def land_hours(harness: StoreHarness) -> dict[str, bytes]:
    """The hours, and neighbours that look like them: a snapshot."""
    for number, hour in enumerate(HOURS):
        harness.land(hour, {**DATA, "number": str(number).encode()})
    for neighbour in ("weather/2013/11/01/00_backup", "weather/2013/11/01/0", "other/00"):
        harness.land(neighbour, {"x": b"1"})
    return snapshot(harness)


@pytest.fixture
def landed(harness: StoreHarness) -> dict[str, bytes]:
    return land_hours(harness)


def test_what_is_put_away_is_gone_and_what_stands_beside_it_stays(
    harness: StoreHarness, landed: dict[str, bytes]
) -> None:
    trash = harness.store.trash()
    moved = trash.put("sweep-1", HOURS[:2], flag=FLAG)
    assert [one.path for one in moved] == HOURS[:2]
    assert outcomes(moved) == [Outcome.MOVED] * 2
    assert all(one.reason is None for one in moved)
    gone = tuple(f"{hour}/" for hour in HOURS[:2])
    assert snapshot(harness) == {name: data for name, data in landed.items() if not name.startswith(gone)}
    looks = harness.store.look(HOURS, FLAG)
    assert [look.availability for look in looks] == [Availability.MISSING] * 2 + [Availability.AVAILABLE]
    assert sorted(trash.contents("sweep-1")) == HOURS[:2]
    assert trash.sweeps() == ["sweep-1"]


def test_bytes_and_files_are_told_only_where_they_are_known(harness: StoreHarness, landed: dict[str, bytes]) -> None:
    (moved,) = harness.store.trash().put("sweep-1", HOURS[:1])
    assert (moved.bytes, moved.files) in ((None, None), (11, 4))


def test_what_is_restored_is_what_it_was_byte_for_byte(harness: StoreHarness, landed: dict[str, bytes]) -> None:
    trash = harness.store.trash()
    for _ in range(2):
        assert outcomes(trash.put("sweep-1", HOURS, flag=FLAG)) == [Outcome.MOVED] * 3
        trash.remove_empty_parents("weather", HOURS)
        assert outcomes(trash.restore("sweep-1", HOURS)) == [Outcome.MOVED] * 3
        assert snapshot(harness) == landed
        assert list(trash.contents("sweep-1")) == []
    assert outcomes(trash.restore("sweep-1", HOURS)) == [Outcome.LOST] * 3
    assert harness.store.look(HOURS[:1], FLAG)[0].availability is Availability.AVAILABLE


def test_published_instances_keep_flag_and_manifest_on_their_way(harness: StoreHarness) -> None:
    manifest = publish(harness.store, HOURS[0], {"part-0.csv": b"1"})
    before = snapshot(harness)
    trash = harness.store.trash()
    trash.put("sweep-1", HOURS[:1], flag=FLAG)
    assert harness.store.published_manifest(HOURS[0]) is None
    trash.restore("sweep-1", HOURS[:1])
    assert harness.store.published_manifest(HOURS[0]) == manifest
    assert snapshot(harness) == before


def test_what_is_kept_is_there_twice_until_it_is_replaced(harness: StoreHarness) -> None:
    old = {"part-0.csv": b"old", "sub/part-1.csv": b"older"}
    publish(harness.store, HOURS[0], old)
    before = snapshot(harness)
    trash = harness.store.trash()
    assert trash.keep("sweep-1", HOURS[0], flag=FLAG).outcome is Outcome.MOVED
    assert snapshot(harness) == before
    publish(harness.store, HOURS[0], {"part-0.csv": b"new"}, token="run-2")
    assert trash.keep("sweep-1", HOURS[0], flag=FLAG).outcome is Outcome.ALREADY
    assert trash.keep("sweep-1", HOURS[1], flag=FLAG).outcome is Outcome.VANISHED
    assert list(trash.contents("sweep-1")) == HOURS[:1]
    with trash.reading("sweep-1", HOURS[0]) as (names, chunks):
        assert {name: b"".join(chunks(name)) for name in names} == {
            name.removeprefix(f"{HOURS[0]}/"): data for name, data in before.items()
        }
    assert trash.purge("sweep-1").is_complete
    with pytest.raises(InstanceNotFoundError), trash.reading("sweep-1", HOURS[0]):
        pass
    assert content_names(harness.store, HOURS[0], FLAG) == ("part-0.csv",)


def test_a_repeat_says_that_it_is_done(harness: StoreHarness, landed: dict[str, bytes]) -> None:
    trash = harness.store.trash()
    trash.put("sweep-1", HOURS[:2])
    again = trash.put("sweep-1", HOURS[:3])
    assert outcomes(again) == [Outcome.ALREADY, Outcome.ALREADY, Outcome.MOVED]
    assert again[0].reason


def test_one_path_twice_in_a_call_is_moved_once(harness: StoreHarness, landed: dict[str, bytes]) -> None:
    trash = harness.store.trash()
    moved = trash.put("sweep-1", [HOURS[0], f"/{HOURS[0]}/", HOURS[0]])
    assert [one.path for one in moved] == [HOURS[0], f"/{HOURS[0]}/", HOURS[0]]
    assert outcomes(moved) == [Outcome.MOVED, Outcome.ALREADY, Outcome.ALREADY]
    assert outcomes(trash.restore("sweep-1", [HOURS[0], HOURS[0]])) == [Outcome.MOVED, Outcome.LOST]


def test_what_is_not_there_has_vanished(harness: StoreHarness, landed: dict[str, bytes]) -> None:
    trash = harness.store.trash()
    assert outcomes(trash.put("sweep-1", ["weather/1999", "nothing/at/all", HOURS[0]])) == [
        Outcome.VANISHED,
        Outcome.VANISHED,
        Outcome.MOVED,
    ]
    assert outcomes(trash.put("sweep-2", [HOURS[0]])) == [Outcome.VANISHED]
    assert outcomes(trash.restore("sweep-2", [HOURS[0]])) == [Outcome.LOST]
    assert list(trash.contents("sweep-2")) == []


def test_a_path_that_is_none_is_refused_and_the_others_are_moved(
    harness: StoreHarness, landed: dict[str, bytes]
) -> None:
    trash = harness.store.trash()
    none = ["", "/", ".", "..", "weather/../other/00", ".feed-assets", "weather/.feed-assets/x", "nul\0"]
    moved = trash.put("sweep-1", [HOURS[0], *none, HOURS[1]])
    assert outcomes(moved) == [Outcome.MOVED, *[Outcome.REFUSED] * len(none), Outcome.MOVED]
    assert [one.path for one in moved] == [HOURS[0], *none, HOURS[1]]
    assert all(one.reason for one in moved[1:-1])
    assert outcomes(trash.restore("sweep-1", none)) == [Outcome.REFUSED] * len(none)
    assert outcomes(trash.restore("sweep-1", HOURS[:2])) == [Outcome.MOVED] * 2
    assert snapshot(harness) == landed


def test_what_came_after_a_sweep_is_not_taken_by_its_repeat(harness: StoreHarness, landed: dict[str, bytes]) -> None:
    trash = harness.store.trash()
    trash.put("sweep-1", HOURS[:1])
    harness.land(HOURS[0], {"new": b"new"})
    (again,) = trash.put("sweep-1", HOURS[:1])
    assert (again.outcome, bool(again.reason)) == (Outcome.CHANGED, True)
    assert content_names(harness.store, HOURS[0]) == ("new",)
    assert outcomes(trash.put("sweep-2", HOURS[:1])) == [Outcome.MOVED]
    assert outcomes(trash.restore("sweep-1", HOURS[:1])) == [Outcome.MOVED]
    assert snapshot(harness) == landed
    assert sorted(trash.contents("sweep-2")) == HOURS[:1]


def test_nothing_is_overwritten_by_a_restore(file_harness: StoreHarness) -> None:
    landed = land_hours(file_harness)
    trash = file_harness.store.trash()
    trash.put("sweep-1", HOURS[:2])
    file_harness.land(HOURS[0], {"new": b"new"})
    restored = trash.restore("sweep-1", HOURS[:2])
    assert outcomes(restored) == [Outcome.OCCUPIED, Outcome.MOVED]
    assert restored[0].reason
    assert file_harness.store.all_files(HOURS[0]) == ("new",)
    assert list(trash.contents("sweep-1")) == HOURS[:1]
    file_harness.remove(f"{HOURS[0]}/new")
    trash.remove_empty_parents("", [f"{HOURS[0]}/new"])
    assert outcomes(trash.restore("sweep-1", HOURS[:1])) == [Outcome.MOVED]
    assert snapshot(file_harness) == landed


def test_a_file_in_place_of_a_directory_goes_and_comes_back(file_harness: StoreHarness) -> None:
    file_harness.put("weather/05", b"123")
    file_harness.put("weather/05.txt", b"456")
    trash = file_harness.store.trash()
    assert outcomes(trash.put("sweep-1", ["weather/05"])) == [Outcome.MOVED]
    assert file_harness.names() == {"weather/05.txt"}
    assert list(trash.contents("sweep-1")) == ["weather/05"]
    assert outcomes(trash.restore("sweep-1", ["weather/05"])) == [Outcome.MOVED]
    assert snapshot(file_harness) == {"weather/05": b"123", "weather/05.txt": b"456"}


def test_names_of_all_kinds_go_and_come_back(harness: StoreHarness) -> None:
    names = ["a b", "c%20d", "é", "2013\n", "[x]*?", "x:y", "'\"", "-rf", "a" * 200]
    if not harness.store.root_url.startswith(("file", "sftp", "hdfs", "thrift")):  # whose client cannot
        names.remove("2013\n")
    if harness.store.root_url.startswith("hdfs"):
        names.remove("x:y")
    paths = [f"odd/{name}" for name in names]
    for path in paths:
        harness.land(path, {"a b/ü?.csv": path.encode(), "*": b"1"})
    before = snapshot(harness)
    trash = harness.store.trash()
    assert outcomes(trash.put("sweep-1", paths)) == [Outcome.MOVED] * len(paths)
    assert harness.names() == set()
    assert sorted(trash.contents("sweep-1")) == sorted(paths)
    assert outcomes(trash.restore("sweep-1", paths)) == [Outcome.MOVED] * len(paths)
    assert snapshot(harness) == before


def test_a_purge_is_for_good_and_of_one_sweep_only(harness: StoreHarness, landed: dict[str, bytes]) -> None:
    trash = harness.store.trash()
    trash.describe("sweep-1", {"reason": "test"})
    trash.put("sweep-1", HOURS[:2])
    trash.put("sweep-2", HOURS[2:3])
    assert trash.sweeps() == ["sweep-1", "sweep-2"]
    purged = trash.purge("sweep-1")
    assert (purged.sweep, purged.is_complete, purged.obstacle) == ("sweep-1", True, None)
    assert purged.files >= 8
    assert trash.sweeps() == ["sweep-2"]
    assert list(trash.contents("sweep-1")) == []
    assert trash.find_description("sweep-1") is None
    assert outcomes(trash.restore("sweep-1", HOURS[:2])) == [Outcome.LOST] * 2
    assert outcomes(trash.restore("sweep-2", HOURS[2:3])) == [Outcome.MOVED]
    assert trash.purge("sweep-1") == Purged(sweep="sweep-1", files=0, is_complete=True)


def test_a_purge_of_what_was_never_there_is_complete(harness: StoreHarness) -> None:
    publish(harness.store, "other", {"x": b"1"})
    before = harness.names()
    trash = harness.store.trash()
    assert trash.purge("sweep-1") == Purged(sweep="sweep-1", files=0, is_complete=True)
    assert trash.sweeps() == []
    assert list(trash.contents("sweep-1")) == []
    assert trash.remove_empty_parents("weather", HOURS) == []
    assert outcomes(trash.put("sweep-1", HOURS[:1])) == [Outcome.VANISHED]
    assert harness.names() == before


def test_a_trash_explains_itself(harness: StoreHarness) -> None:
    harness.land(HOURS[0], {"data": b"1"})
    trash = harness.store.trash()
    assert trash.find_description("sweep-1") is None
    trash.describe("sweep-1", {"feed": "wetter \udc80 ü", "items": [1, {"path": "x"}]})
    assert trash.find_description("sweep-1") == {"feed": "wetter \udc80 ü", "items": [1, {"path": "x"}]}
    trash.describe("sweep-1", {"feed": "flights"})
    assert trash.find_description("sweep-1") == {"feed": "flights"}
    assert trash.sweeps() == ["sweep-1"]
    assert harness.names() == {f"{HOURS[0]}/data"}


@pytest.mark.parametrize("sweep", ["", "..", "a/b", ".hidden", "x" * 201, "a\n"])
def test_a_sweep_is_one_plain_name(harness: StoreHarness, sweep: str) -> None:
    trash = harness.store.trash()
    with pytest.raises(PathRefusedError):
        trash.describe(sweep, {})
    with pytest.raises(PathRefusedError):
        trash.put(sweep, HOURS)
    with pytest.raises(PathRefusedError):
        trash.restore(sweep, HOURS)
    with pytest.raises(PathRefusedError):
        trash.purge(sweep)
    with pytest.raises(PathRefusedError):
        list(trash.contents(sweep))


def test_an_instance_can_be_published_again_where_one_was_taken_away(
    harness: StoreHarness, landed: dict[str, bytes]
) -> None:
    trash = harness.store.trash()
    trash.put("sweep-1", HOURS[:1], flag=FLAG)
    trash.remove_empty_parents("weather", HOURS[:1])
    publish(harness.store, HOURS[0], {"new": b"new"})
    assert harness.store.look(HOURS[:1], FLAG)[0].availability is Availability.AVAILABLE
    assert outcomes(trash.restore("sweep-1", HOURS[:1])) == [Outcome.OCCUPIED]


def test_paths_within_and_above_one_another_do_not_mix(file_harness: StoreHarness) -> None:
    landed = land_hours(file_harness)
    trash = file_harness.store.trash()
    below, above = HOURS[0], HOURS[0].rpartition("/")[0]
    assert outcomes(trash.put("sweep-1", [below])) == [Outcome.MOVED]
    assert outcomes(trash.put("sweep-1", [above])) == [Outcome.MOVED]
    assert sorted(trash.contents("sweep-1")) == [above, below]
    assert outcomes(trash.restore("sweep-1", [above])) == [Outcome.MOVED]
    assert outcomes(trash.restore("sweep-1", [below])) == [Outcome.MOVED]
    assert snapshot(file_harness) == landed


def test_a_store_itself_cannot_take_an_instance_away() -> None:
    takes = {"documents", "flush", "stage", "staging", "keep_staged", "publish", "discard", "recover", "sweep_staging"}
    methods = {name for name, _ in inspect.getmembers(InstanceStore, inspect.isfunction) if not name.startswith("_")}
    reads = {
        "all_files", "check_root", "deliveries", "fetch", "find_obstacle", "find_publication", "listings", "local_path",
        "look", "manifest", "mark", "measure", "place", "published_manifest", "reading", "receive_from", "require_root",
        "scan", "snapshots", "spark_url", "staged_files", "staging_url", "standing", "standing_files", "survey",
        "survey_all", "traces", "trash", "url", "walk", "walk_folders",
    }  # fmt: skip
    assert methods == takes | reads
