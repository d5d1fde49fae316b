"""What the local store says of trees, of its trash and of what stands in the way, word by word."""

import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from time import sleep

import pytest

from feed_assets.storage.errors import PathRefusedError, StorageError
from feed_assets.storage.local import trash as local_trash
from feed_assets.storage.local.calls import LocalCalls
from feed_assets.storage.local.store import LocalStore
from feed_assets.storage.local.walk import LocalMeasure, obstacle_of
from feed_assets.storage.records import Moved, Outcome, Purged
from tests.storage.trees import FailAt, WatchedCalls, land, memory_folder

SWEEP = "sweep-1"
RIGHTS = "this user lacks the permission"
pytestmark = pytest.mark.usefixtures("system")


@pytest.fixture
def root() -> Iterator[Path]:
    with memory_folder() as folder:
        (folder / "root").mkdir()
        yield folder / "root"


def test_a_purge_where_the_root_is_not_there_purges_nothing_and_says_so(root: Path) -> None:
    trash = LocalStore(str(root.parent / "away")).trash()
    obstacle = "the root of the storage is not there; mount the storage, or correct the cluster's address"
    assert trash.purge(SWEEP) == Purged(sweep=SWEEP, files=0, is_complete=False, obstacle=obstacle)


def test_what_stands_in_the_way_is_told_with_where_it_stands(root: Path) -> None:
    land(root, "weather/05/sub/low")
    (root / "weather/link").symlink_to("05")
    (root / "weather/file").write_bytes(b"12")
    os.mkfifo(root / "weather/pipe")

    def measured(*paths: str, call: str = "", name: str = "", number: int = 0) -> list[tuple[str, bool, str | None]]:
        def fail(now: str, *arguments: object) -> None:
            if now == call and arguments[-1] == name:
                raise OSError(number, os.strerror(number))

        measures = LocalStore(root, WatchedCalls(fail)).measure(paths)
        return [(one.path, one.exists, one.obstacle) for one in measures]

    assert measured("weather/link", "weather/file", "weather/pipe", "/weather/file/x") == [
        ("weather/link", True, "it is a symbolic link"),
        ("weather/file", True, None),
        ("weather/pipe", True, "it is neither a directory nor a file"),
        ("/weather/file/x", True, "its path contains a file or a symbolic link"),
    ]
    ((path, is_there, obstacle),) = measured("/weather/link/sub")
    assert (path, is_there) == ("/weather/link/sub", True)
    assert "its path contains" in (obstacle or "")
    for name, place in {"05": "", "sub": " ('sub' in it)", "low": " ('sub/low' in it)"}.items():
        found = measured("weather/05", call="open_folder", name=name, number=errno.EACCES)
        assert found == [("weather/05", True, f"{RIGHTS}{place}")]
        gone = measured("weather/05", call="open_folder", name=name, number=errno.ENOENT)
        assert gone == [("weather/05", True, None if name == "05" else "it changes while it is read")]
        with pytest.raises(StorageError):
            measured("weather/05", call="open_folder", name=name, number=errno.EIO)


@pytest.mark.parametrize(("number", "told"), [(errno.ENOENT, "it changes while it is read"), (errno.EACCES, RIGHTS)])
def test_a_folder_that_cannot_be_listed_is_an_obstacle(root: Path, number: int, told: str) -> None:
    land(root, "weather/05/sub")
    for nth, place in ((1, ""), (2, " ('sub' in it)" if number == errno.EACCES else "")):
        failing = FailAt(nth, OSError(number, os.strerror(number)))
        calls = WatchedCalls(lambda call, *_, failing=failing: failing() if call == "scan_folder" else None)
        (measure,) = LocalStore(root, calls).measure(["weather/05"])
        assert measure.obstacle == f"{told}{place}"


def test_a_folder_is_opened_once_for_paths_that_follow_one_another(root: Path) -> None:
    paths = [f"{feed}/{hour:02d}" for feed in ("flights", "weather") for hour in range(3)]
    for path in paths:
        land(root, path)
    opened: list[object] = []
    calls = WatchedCalls(lambda call, *of: opened.append(of[1]) if call == "open_folder" else None)
    assert all(measure.exists for measure in LocalStore(root, calls).measure(paths))
    assert sorted(str(name) for name in opened if name in ("flights", "weather")) == ["flights", "weather"]


def test_what_the_table_of_mounts_has_is_an_obstacle(root: Path) -> None:
    land(root, "weather/05/sub")
    calls = LocalCalls()
    with calls.opened(calls.open_root(str(root)), "") as opened:
        measuring = LocalMeasure(calls, opened, ("weather/05/sub",))
        found = measuring.find("weather/05")
        assert found is not None
        assert found.obstacle == "something is mounted on it or in it"
        measuring.close()


def test_what_the_system_refuses_is_told_with_its_reason(root: Path) -> None:
    (root / "file").write_bytes(b"")

    def lose(call: str, *_: object) -> None:
        if call == "open_root":
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(root))

    for store, reason in (
        (LocalStore(root / "file/store"), f"Not a directory ({root}/file/store)"),
        (LocalStore(root, WatchedCalls(lose)), f"No such file or directory ({root})"),
    ):
        with pytest.raises(StorageError) as caught:
            store.trash().describe(SWEEP, {})
        about = f"{store.root_url}: '.feed-assets/trash/{SWEEP}'"
        assert str(caught.value).startswith(f"{about}: the filesystem refused: {reason}")


def test_a_description_is_text_for_people(root: Path) -> None:
    LocalStore(root).trash().describe(SWEEP, {"feed": "weather"})
    assert (root / f".feed-assets/trash/{SWEEP}/sweep.json").read_text() == '{\n "feed": "weather"\n}'


def test_hidden_files_among_documents_are_none(root: Path) -> None:
    traces = LocalStore(root).traces()
    traces.keep("one", b"{}")
    (root / ".feed-assets/holds/._one.json").write_bytes(b"")
    assert traces.names() == ["one"]


def test_a_link_counts_as_a_file_without_bytes_and_is_told_by_its_path(root: Path) -> None:
    land(root, "weather/05/sub", data=b"123")
    (root / "weather/05/sub/link").symlink_to("data")
    store = LocalStore(root)
    (measure,) = store.measure(["weather/05"])
    assert (measure.bytes, measure.files, measure.obstacle, len(measure.fingerprint)) == (3, 2, None, 32)
    with pytest.raises(PathRefusedError, match="'sub/link'"):
        store.all_files("weather/05")
    (root / "weather/alone").symlink_to("05/sub/data")
    (alone,) = store.measure(["weather/alone"])
    assert (alone.bytes, alone.files, alone.obstacle) == (0, 1, "it is a symbolic link")


def test_a_file_that_was_written_in_place_with_its_old_size_and_time_has_another_fingerprint(root: Path) -> None:
    file = root / "weather/05/part-0.csv"
    file.parent.mkdir(parents=True)
    file.write_text("old")
    store, status = LocalStore(root), file.stat()
    (before,) = store.measure(["weather/05"])
    sleep(0.01)
    file.write_text("new")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    (after,) = store.measure(["weather/05"])
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (status.st_ino, status.st_mtime_ns)
    assert before.fingerprint != after.fingerprint


@pytest.mark.parametrize(("depth", "is_measured"), [(200, True), (201, False)])
def test_an_instance_may_be_two_hundred_folders_deep(root: Path, depth: int, is_measured: bool) -> None:
    (root / "weather/05" / "/".join("x" * depth)).mkdir(parents=True)
    (measure,) = LocalStore(root).measure(["weather/05"])
    assert measure.obstacle == (None if is_measured else "it is more than 200 directories deep")


def test_what_stays_is_not_asked_for_again_further_up_and_what_is_gone_is_not_told(root: Path) -> None:
    land(root, "X/b/c/05")
    asked: list[str] = []
    trash = LocalStore(root, WatchedCalls(lambda call, *of: asked.append(of[1]) if call == "remove_folder" else None))
    paths = ["X/b/c/05/00", "X/b/d/05/00", "X/b/d/06/00"]
    assert trash.trash().remove_empty_parents("X", paths) == []
    assert asked == ["05", "d"]
    for base in ("", "/", "//"):
        asked.clear()
        assert trash.trash().remove_empty_parents(base, paths[:1]) == []
        assert asked == ["05"]
    (root / "y/z").mkdir(parents=True)
    assert trash.trash().remove_empty_parents("X", ["y/z/05"]) == []
    with pytest.raises(PathRefusedError, match=root.as_uri()):
        trash.trash().remove_empty_parents("..", paths)
    assert LocalStore(root / "nothing").trash().remove_empty_parents("", paths) == []
    assert trash.trash().remove_empty_parents("/", ["y/z/05"]) == ["y/z", "y"]


def test_a_trash_tells_only_of_what_it_has_itself_put_there(root: Path) -> None:
    trash = LocalStore(root).trash()
    assert list(LocalStore(root / "nothing").trash().contents(SWEEP)) == []
    assert LocalStore(root / "nothing").trash().find_description(SWEEP) is None
    land(root, "weather/05")
    trash.put(SWEEP, ["weather/05"])
    for other in ("notes", "2_"):
        land(root, f".feed-assets/trash/{SWEEP}/tree/{other}/a")
    assert list(trash.contents(SWEEP)) == ["weather/05"]
    description = root / f".feed-assets/trash/{SWEEP}/sweep.json"
    for text, expected in {"[1]": None, "{": None, '{"a": 1}': {"a": 1}}.items():
        description.write_text(text)
        assert trash.find_description(SWEEP) == expected


def test_what_stands_on_another_device_is_an_obstacle(root: Path) -> None:
    found = root.stat()
    assert obstacle_of(found, found.st_dev) is None
    assert obstacle_of(found, found.st_dev + 1) == "another filesystem is mounted there"


@pytest.mark.parametrize("area", ["trash", "purging-trash"])
def test_a_purge_says_that_something_is_mounted_in_it(root: Path, area: str, monkeypatch: pytest.MonkeyPatch) -> None:
    land(root, f".feed-assets/{area}/{SWEEP}/tree/1/05")
    with monkeypatch.context() as patch:
        patch.setattr(local_trash, "find_mounts", lambda _: (f".feed-assets/{area}/{SWEEP}/tree/1/05",))
        purged = LocalStore(root).trash().purge(SWEEP)
    assert purged == Purged(sweep=SWEEP, files=0, is_complete=False, obstacle="something is mounted in it")
    assert LocalStore(root).trash().purge(SWEEP) == Purged(sweep=SWEEP, files=2, is_complete=True)


def test_a_purge_says_that_another_one_is_under_way(root: Path) -> None:
    land(root, "weather/05")
    LocalStore(root).trash().put(SWEEP, ["weather/05"])

    def overtake(call: str, *_: object) -> None:
        if call == "move":
            land(root, f".feed-assets/purging-trash/{SWEEP}/tree")

    purged = LocalStore(root, WatchedCalls(overtake)).trash().purge(SWEEP)
    assert purged == Purged(sweep=SWEEP, files=0, is_complete=False, obstacle="another purge of it is in progress")
    assert LocalStore(root).trash().purge(SWEEP) == Purged(sweep=SWEEP, files=4, is_complete=True)


def test_what_disappears_before_a_purge_takes_it_was_nothing(root: Path) -> None:
    land(root, "weather/05")
    LocalStore(root).trash().put(SWEEP, ["weather/05"])
    there = root / f".feed-assets/trash/{SWEEP}"
    calls = WatchedCalls(lambda call, *_: there.rename(root / "aside") if call == "move" else None)
    assert LocalStore(root, calls).trash().purge(SWEEP) == Purged(sweep=SWEEP, files=0, is_complete=True)


def test_a_purge_waits_for_those_who_put_and_restore_and_these_not_for_one_another(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    land(root, "weather/05")
    trash = LocalStore(root).trash()
    trash.put(SWEEP, [])
    (lock,) = (root / ".feed-assets/locks").glob("trash-*")
    flock = fcntl.flock
    monkeypatch.setattr(fcntl, "flock", lambda handle, how: flock(handle, how | fcntl.LOCK_NB))
    with lock.open() as other:
        flock(other, fcntl.LOCK_SH)
        assert trash.put(SWEEP, ["weather/05"])[0].outcome is Outcome.MOVED
        with pytest.raises(StorageError):
            trash.purge(SWEEP)
        assert trash.restore(SWEEP, ["weather/05"])[0].outcome is Outcome.MOVED
    assert trash.purge(SWEEP).is_complete


def test_a_root_that_is_missing_holds_nothing_to_be_moved(root: Path) -> None:
    trash = LocalStore(root / "nothing").trash()
    for move, outcome in ((trash.put, Outcome.VANISHED), (trash.restore, Outcome.LOST)):
        assert move(SWEEP, ["/05/", "06"]) == [
            Moved(path=path, outcome=outcome, reason="it does not exist") for path in ("/05/", "06")
        ]
    with pytest.raises(PathRefusedError, match=f"^{trash.store.root_url}: 'a/b': "):
        trash.put("a/b", [])


def test_every_answer_of_the_trash_names_the_path_as_it_was_asked_for_and_says_why(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ["/weather//05/", "weather/06", "weather/07"]
    land(root, "weather/05")
    land(root, "weather/06")
    trash = LocalStore(root).trash()
    taken = "this sweep has already removed it"
    later = "this sweep has already removed another one; the present one came later"

    def answers(moved: list[Moved]) -> list[tuple[Outcome, str | None]]:
        assert [one.path for one in moved] == asked[: len(moved)]
        return [(one.outcome, one.reason) for one in moved]

    assert answers(trash.put(SWEEP, asked)) == [
        (Outcome.MOVED, None),
        (Outcome.MOVED, None),
        (Outcome.VANISHED, "it does not exist"),
    ]
    land(root, "weather/05")
    assert answers(trash.put(SWEEP, asked[:2])) == [(Outcome.CHANGED, later), (Outcome.ALREADY, taken)]
    assert answers(trash.restore(SWEEP, asked)) == [
        (Outcome.OCCUPIED, "something else is in its place"),
        (Outcome.MOVED, None),
        (Outcome.LOST, "it is not in the trash"),
    ]
    with monkeypatch.context() as patch:
        patch.setattr(local_trash, "find_mounts", lambda _: ("weather/05/sub",))
        mounted = (Outcome.REFUSED, "something is mounted on it or in it")
        assert answers(trash.put("sweep-2", asked[:2])) == [mounted, (Outcome.MOVED, None)]

    def forbid(call: str, *arguments: object) -> None:
        if (call, arguments[1:2]) == ("move", ("05",)):
            raise PermissionError(errno.EACCES, "Permission denied")

    refused = LocalStore(root, WatchedCalls(forbid)).trash().put("sweep-3", asked[:1])
    assert answers(refused) == [(Outcome.REFUSED, RIGHTS)]


def test_what_was_taken_and_should_not_have_been_is_given_back_with_the_reason(root: Path) -> None:
    land(root, "weather/05")

    def swap(call: str, *arguments: object) -> None:
        if (call, arguments[1:2]) == ("move", ("05",)) and (root / "weather/05").is_dir():
            (root / "weather/05").rename(root / "aside")
            (root / "weather/05").symlink_to("aside")

    (moved,) = LocalStore(root, WatchedCalls(swap)).trash().put(SWEEP, ["/weather/05"])
    assert moved == Moved(path="/weather/05", outcome=Outcome.REFUSED, reason="it is a symbolic link")
    land(root, "flights/04")
    land(root, "flights/05")

    def move(call: str, *arguments: object) -> None:
        if (call, arguments[1:2]) == ("move", ("05",)) and (root / "flights").exists():
            (root / "flights").rename(root / "elsewhere")

    moved_away = LocalStore(root, WatchedCalls(move)).trash().put(SWEEP, ["/flights/04", "flights/05"])
    assert moved_away == [
        Moved(path=path, outcome=Outcome.REFUSED, reason="its folder was moved or replaced meanwhile")
        for path in ("/flights/04", "flights/05")
    ]


def test_a_link_in_the_place_of_an_instance_is_seen_before_it_is_moved(root: Path) -> None:
    land(root, "weather/04")
    (root / "weather/05").symlink_to("04")
    moved: list[object] = []
    calls = WatchedCalls(lambda call, *of: moved.append(of[1]) if call == "move" else None)
    assert LocalStore(root, calls).trash().put(SWEEP, ["/weather/05"]) == [
        Moved(path="/weather/05", outcome=Outcome.REFUSED, reason="it is a symbolic link")
    ]
    assert moved == []


def test_the_folder_of_the_trash_is_opened_once_for_paths_of_one_folder(root: Path) -> None:
    opened: dict[int, int] = {}
    for count in (1, 2, 5):
        paths = [f"weather-{count}/{hour:02d}" for hour in range(count)]
        for path in paths:
            land(root, path)
        names: list[str] = []
        calls = WatchedCalls(lambda call, *_, names=names: names.append(call))
        assert {one.outcome for one in LocalStore(root, calls).trash().put(SWEEP, paths)} == {Outcome.MOVED}
        opened[count] = names.count("open_folder")
    assert opened[2] == opened[5]


def test_folders_of_the_trash_have_the_rights_of_those_they_stand_for_and_no_others_have(root: Path) -> None:
    land(root, "feeds/weather/2013/05")
    for path, mode in (("feeds", 0o700), ("feeds/weather", 0o750), ("feeds/weather/2013", 0o711)):
        (root / path).chmod(mode)
    (root / "feeds").chmod(0o700)
    trash = LocalStore(root).trash()
    assert trash.put(SWEEP, ["feeds/weather/2013/05"])[0].outcome is Outcome.MOVED
    tree = root / f".feed-assets/trash/{SWEEP}/tree"
    modes = {
        path: (tree / path).stat().st_mode & 0o777 for path in ("4/feeds", "4/feeds/weather", "4/feeds/weather/2013")
    }
    assert list(modes.values()) == [0o700, 0o750, 0o711]
    plain = (root / ".feed-assets").stat().st_mode
    assert {(tree / path).stat().st_mode for path in ("", "4")} == {plain}
    trash.remove_empty_parents("", ["feeds/weather/2013/05"])
    assert trash.restore(SWEEP, ["feeds/weather/2013/05"])[0].outcome is Outcome.MOVED
    assert [(root / path).stat().st_mode & 0o777 for path in ("feeds", "feeds/weather", "feeds/weather/2013")] == [
        0o700,
        0o750,
        0o711,
    ]


def test_a_parent_that_is_removed_during_a_restore_is_made_again(root: Path) -> None:
    land(root, "weather/2013/05")
    trash = LocalStore(root).trash()
    trash.put(SWEEP, ["weather/2013/05"])
    times = 0

    def remove(call: str, *arguments: object) -> None:
        nonlocal times
        if (call, arguments[1:2]) == ("move", ("05",)) and times < 3:
            times += 1
            (root / "weather/2013").rmdir()

    restored = LocalStore(root, WatchedCalls(remove)).trash().restore(SWEEP, ["weather/2013/05"])
    assert (times, restored[0].outcome) == (3, Outcome.MOVED)
    assert (root / "weather/2013/05/data").exists()
