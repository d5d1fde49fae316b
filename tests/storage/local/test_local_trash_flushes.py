"""What the local trash brings to disk, and when: once a call, every directory that was touched."""

import os
from contextlib import suppress
from pathlib import Path

import pytest

from feed_assets.storage.errors import StorageError
from feed_assets.storage.local import tree
from feed_assets.storage.local.store import LocalStore
from feed_assets.storage.records import Outcome
from tests.storage.trees import WatchedCalls, land

SWEEP = "sweep-1"
TREE = f".feed-assets/trash/{SWEEP}/tree"


class Disk:
    """Remembers which directories were flushed, and what was changed before that."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.flushed: list[str] = []
        self.unflushed = 0
        self.store = LocalStore(root, WatchedCalls(self))

    def __call__(self, call: str, *arguments: object) -> None:
        if call.startswith("flush_"):
            name = os.path.relpath(Path(f"/proc/self/fd/{arguments[0]}").readlink(), self.root)
            self.flushed.append("everything" if call == "flush_all" else name)
            self.unflushed = 0
        elif call in ("move", "make_folder", "replace", "write_file"):
            self.unflushed += 1


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    for path in ("weather/2013/11", "weather/2013/12", "weather/2014/01"):
        land(tmp_path / "root", path)
    return Disk(tmp_path / "root")


def test_both_sides_of_every_move_and_all_new_folders_are_flushed_once_at_the_end(disk: Disk) -> None:
    disk.store.trash().put(SWEEP, ["weather/2013/11", "weather/2013/12"])
    assert disk.unflushed == 0
    trash = [".feed-assets", ".feed-assets/trash", f".feed-assets/trash/{SWEEP}", TREE, f"{TREE}/3"]
    assert sorted(disk.flushed) == sorted([*trash, f"{TREE}/3/weather", f"{TREE}/3/weather/2013", "weather/2013"])


def test_a_repeat_flushes_what_an_earlier_call_may_not_have_flushed(disk: Disk) -> None:
    disk.store.trash().put(SWEEP, ["weather/2013/11"])
    disk.flushed.clear()
    assert disk.store.trash().put(SWEEP, ["weather/2013/11"])[0].outcome is Outcome.ALREADY
    assert sorted(disk.flushed) == [f"{TREE}/3/weather/2013", "weather/2013"]


def test_a_restore_flushes_both_sides_and_the_parents_that_it_made(disk: Disk) -> None:
    trash = disk.store.trash()
    trash.put(SWEEP, ["weather/2014/01"])
    trash.remove_empty_parents("weather", ["weather/2014/01"])
    disk.flushed.clear()
    trash.restore(SWEEP, ["weather/2014/01"])
    assert sorted(disk.flushed) == [f"{TREE}/3/weather/2014", "weather", "weather/2014"]


def test_many_directories_are_flushed_together(disk: Disk) -> None:
    paths = [f"weather/{year}/01" for year in range(2020, 2030)]
    for path in paths:
        land(disk.root, path)
    disk.store.trash().put(SWEEP, paths)
    assert disk.flushed == ["everything"]


def test_a_description_is_on_disk_before_anything_is_moved(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "flush_file", lambda path: disk.flushed.append(os.path.relpath(path, disk.root)))
    disk.store.trash().describe(SWEEP, {})
    assert disk.unflushed == 0
    assert f".feed-assets/trash/{SWEEP}" in disk.flushed
    assert ".feed-assets/trash" in disk.flushed


def test_a_description_is_not_written_where_the_root_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="No such file or directory"):
        LocalStore(tmp_path / "unmounted").trash().describe(SWEEP, {})
    assert not (tmp_path / "unmounted").exists()


def test_a_purge_is_on_disk_before_anything_is_removed(disk: Disk) -> None:
    disk.store.trash().put(SWEEP, ["weather/2013/11"])
    disk.flushed.clear()
    removed: list[list[str]] = []

    def watch(call: str, *arguments: object) -> None:
        disk(call, *arguments)
        if call == "remove_file":
            removed.append(list(disk.flushed))

    assert LocalStore(disk.root, WatchedCalls(watch)).trash().purge(SWEEP).is_complete
    assert removed
    assert {".feed-assets/trash", ".feed-assets/purging-trash"} <= set(removed[0])


def test_removing_nothing_flushes_nothing(disk: Disk) -> None:
    disk.store.trash().put(SWEEP, ["weather/1999/01", "nothing"])
    disk.store.trash().restore(SWEEP, ["weather/1999/01"])
    disk.store.trash().purge(SWEEP)
    assert disk.flushed == []


def test_every_handle_is_closed_again(disk: Disk) -> None:
    def handles() -> list[str]:
        """What is open below the root; of what else is open, the garbage collector may close something meanwhile."""
        found = []
        for file in Path("/proc/self/fd").iterdir():
            with suppress(FileNotFoundError):
                found.append(file.readlink())
        return [str(link) for link in found if link.is_relative_to(disk.root)]

    paths = ["weather/2013/11", "weather/2014/01", "nothing/01", "../x"]
    assert handles() == []
    for _ in range(3):
        trash = disk.store.trash()
        list(disk.store.walk("weather", 2, lambda _, names: names))
        next(disk.store.walk("weather", 2, lambda _, names: names), None)
        disk.store.measure(paths)
        trash.describe(SWEEP, {})
        trash.put(SWEEP, paths)
        next(trash.contents(SWEEP), None)
        trash.remove_empty_parents("weather", paths)
        trash.restore(SWEEP, paths)
        trash.purge(SWEEP)
    assert handles() == []
