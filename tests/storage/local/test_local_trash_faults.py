"""The local trash when any single system call fails, and when it is killed: nothing is lost, and a repeat converges."""

import errno
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

import feed_assets
from feed_assets.storage.errors import StorageError
from feed_assets.storage.local.store import LocalStore
from feed_assets.storage.port import InstanceStore, Trash
from feed_assets.storage.records import Outcome
from feed_assets.storage.registry import open_store
from tests.drills import drill_seed, sized
from tests.storage.harnesses import read_file
from tests.storage.trees import Died, FailAt, Tree, WatchedCalls, land, memory_folder, read_tree
from tests.transfer.archives import archive as archive_to
from tests.transfer.archives import bring_back, receive

PROJECT = Path(feed_assets.__path__[0]).parent
KILLS = sized(3, 40)
SWEEP = "sweep-1"
HOURS = ["weather/2013/11/01/05", "weather/2013/11/01/06", "weather/2013/11/02/05", "weather/2013/12/01", "daily"]

Errors = Callable[[], BaseException]
ERRORS = pytest.mark.parametrize(
    "error",
    [
        pytest.param(lambda: OSError(errno.EIO, "Input/output error"), id="EIO"),
        pytest.param(lambda: PermissionError(errno.EACCES, "Permission denied"), id="EACCES"),
        pytest.param(lambda: FileNotFoundError(errno.ENOENT, "No such file or directory"), id="ENOENT"),
        pytest.param(Died, id="died"),
    ],
)


@pytest.fixture
def folder() -> Iterator[Path]:
    with memory_folder() as folder:
        yield folder


@pytest.fixture
def root(folder: Path) -> Path:
    for hour in HOURS:
        land(folder / "root", hour, data=hour.encode(), _SUCCESS=b"")
        land(folder / "root", f"{hour}/sub", more=b"more")
    land(folder / "root", "weather/2013/11/01/05_backup")
    LocalStore(folder / "root").trash().describe(SWEEP, {"of": "these tests"})
    return folder / "root"


def failing_trashes(root: Path, error: Errors) -> Iterator[tuple[Trash, FailAt]]:
    """A trash whose first call fails, one whose second call fails, and so on, until none fails any more."""
    for number in count(1):
        failing = FailAt(number, error())
        yield LocalStore(root, WatchedCalls(failing)).trash(), failing
        if failing.left > 0:
            assert number > 5
            return


def attempt(work: Callable[[], object]) -> None:
    try:
        work()
    except (StorageError, Died):
        return


def part_of(tree: Tree, path: str) -> Tree:
    return {name: data for name, data in tree.items() if name == path or name.startswith(f"{path}/")}


def require_whole(root: Path, before: Tree) -> None:
    """Every instance is whole, at its place or in the trash, and what is none of ours is untouched."""
    now = read_tree(root)
    for hour in HOURS:
        kept = f".feed-assets/trash/{SWEEP}/tree/{hour.count('/') + 1}"
        trashed = read_tree(root / kept) if (root / kept).exists() else {}
        places = [part_of(now, hour), part_of(trashed, hour)]
        assert part_of(before, hour) in places
        assert {} in places
    backup = "weather/2013/11/01/05_backup"
    assert part_of(now, backup) == part_of(before, backup)


@ERRORS
def test_a_put_that_fails_anywhere_loses_nothing_and_its_repeat_converges(root: Path, error: Errors) -> None:
    before = read_tree(root)
    good = LocalStore(root).trash()
    for trash, _ in failing_trashes(root, error):
        attempt(lambda trash=trash: trash.put(SWEEP, HOURS))
        require_whole(root, before)
        assert {one.outcome for one in good.put(SWEEP, HOURS)} <= {Outcome.MOVED, Outcome.ALREADY}
        assert sorted(good.contents(SWEEP)) == sorted(HOURS)
        assert {one.outcome for one in good.restore(SWEEP, HOURS)} == {Outcome.MOVED}
        assert read_tree(root) == before


def test_a_folder_that_cannot_be_looked_at_again_is_no_folder_that_was_moved(root: Path) -> None:
    moves = 0

    def fail(call: str, *_: object) -> None:
        nonlocal moves
        moves += call == "move"
        if call == "open_folder" and moves == 2:
            raise OSError(errno.EIO, "Input/output error")

    with pytest.raises(StorageError, match="Input/output error"):
        LocalStore(root, WatchedCalls(fail)).trash().put(SWEEP, HOURS[:2])
    good = LocalStore(root).trash()
    assert sorted(good.contents(SWEEP)) == HOURS[:2]
    assert [one.outcome for one in good.put(SWEEP, HOURS[:2])] == [Outcome.ALREADY] * 2


@ERRORS
def test_a_put_that_fails_anywhere_can_be_undone_at_once(root: Path, error: Errors) -> None:
    before = read_tree(root)
    good = LocalStore(root).trash()
    for trash, _ in failing_trashes(root, error):
        attempt(lambda trash=trash: trash.put(SWEEP, HOURS))
        assert {one.outcome for one in good.restore(SWEEP, HOURS)} <= {Outcome.MOVED, Outcome.LOST}
        assert read_tree(root) == before


@ERRORS
def test_a_restore_that_fails_anywhere_loses_nothing_and_its_repeat_converges(root: Path, error: Errors) -> None:
    before = read_tree(root)
    good = LocalStore(root).trash()
    for trash, _ in failing_trashes(root, error):
        good.put(SWEEP, HOURS)
        good.remove_empty_parents("", HOURS)
        attempt(lambda trash=trash: trash.restore(SWEEP, HOURS))
        require_whole(root, before)
        assert {one.outcome for one in good.restore(SWEEP, HOURS)} <= {Outcome.MOVED, Outcome.LOST}
        assert read_tree(root) == before


@ERRORS
def test_a_purge_that_fails_anywhere_leaves_all_or_nothing_to_be_restored(root: Path, error: Errors) -> None:
    before = read_tree(root)
    good = LocalStore(root).trash()
    good.put("other", [HOURS[-1]])
    paths = HOURS[:-1]
    ends = set()
    for trash, _ in failing_trashes(root, error):
        for path in paths:
            land(root, path, data=path.encode(), _SUCCESS=b"")
            land(root, f"{path}/sub", more=b"more")
        good.put(SWEEP, paths)
        attempt(lambda trash=trash: trash.purge(SWEEP))
        restored = {one.outcome for one in good.restore(SWEEP, paths)}
        assert restored in ({Outcome.MOVED}, {Outcome.LOST})
        if restored == {Outcome.MOVED}:
            assert {**read_tree(root), **part_of(before, HOURS[-1])} == before
        ends |= restored
        assert good.purge(SWEEP).is_complete
        assert good.sweeps() == ["other"]
    assert ends == {Outcome.MOVED, Outcome.LOST}
    good.restore("other", HOURS)
    assert part_of(read_tree(root), HOURS[-1]) == part_of(before, HOURS[-1])


@ERRORS
def test_removing_parents_fails_anywhere_without_taking_anything_and_its_repeat_converges(
    root: Path, error: Errors
) -> None:
    good = LocalStore(root).trash()
    for trash, _ in failing_trashes(root, error):
        good.put(SWEEP, HOURS)
        attempt(lambda trash=trash: trash.remove_empty_parents("weather", HOURS))
        good.remove_empty_parents("weather", HOURS)
        assert sorted(path for path, data in read_tree(root).items() if data == "/") == [
            "weather",
            "weather/2013",
            "weather/2013/11",
            "weather/2013/11/01",
            "weather/2013/11/01/05_backup",
        ]
        good.restore(SWEEP, HOURS)


@ERRORS
def test_a_description_that_fails_anywhere_is_the_old_or_the_new_one(root: Path, error: Errors) -> None:
    good = LocalStore(root).trash()
    for trash, _ in failing_trashes(root, error):
        good.describe(SWEEP, {"version": "old"})
        attempt(lambda trash=trash: trash.describe(SWEEP, {"version": "new"}))
        assert good.find_description(SWEEP) in ({"version": "old"}, {"version": "new"})


@ERRORS
@pytest.mark.parametrize("archive", ["local", "memory"])
def test_archiving_fails_anywhere_without_losing_anything_and_its_repeat_converges(
    root: Path, folder: Path, error: Errors, archive: str
) -> None:
    hour = HOURS[0]
    before = read_tree(root)
    files = {name: data for name, data in part_of(before, hour).items() if isinstance(data, bytes)}
    for number in count(1):
        to = open_store(f"memory://{folder.name}-{number}" if archive == "memory" else str(folder / str(number)), {})
        failing = FailAt(number, error())
        store = LocalStore(root, WatchedCalls(failing))
        attempt(lambda store=store, to=to: archive_to(store, hour, to, "old/05", SWEEP))
        require_whole(root, before)
        if not part_of(read_tree(root), hour):
            assert read_files(to, "old/05") == {name.removeprefix(f"{hour}/"): data for name, data in files.items()}
        good = LocalStore(root).trash()
        assert archive_to(LocalStore(root), hour, to, "old/05", SWEEP).outcome in (Outcome.MOVED, Outcome.ALREADY)
        assert not part_of(read_tree(root), hour)
        assert good.purge(SWEEP).is_complete
        assert bring_back(LocalStore(root), hour, to, "old/05", SWEEP).outcome is Outcome.MOVED
        assert read_tree(root) == before
        if failing.left > 0:
            assert number > 20
            return


@ERRORS
def test_receiving_fails_anywhere_without_showing_a_part_and_its_repeat_converges(
    root: Path, folder: Path, error: Errors
) -> None:
    source = LocalStore(root)
    for number in count(1):
        to = folder / f"archive-{number}"
        failing = FailAt(number, error())
        to.mkdir()
        store = LocalStore(to, WatchedCalls(failing))
        attempt(lambda store=store: receive(store, source, HOURS[0], "old/05"))
        assert part_of(read_tree(to), "old/05/data") in ({}, {"old/05/data": HOURS[0].encode()})
        good = LocalStore(to)
        assert receive(good, source, HOURS[0], "old/05").outcome in (Outcome.MOVED, Outcome.ALREADY)
        assert read_files(good, "old/05") == read_files(source, HOURS[0])
        assert not any((to / ".feed-assets").glob("staging/*"))
        if failing.left > 0:
            return


def read_files(store: InstanceStore, path: str) -> dict[str, bytes]:
    found = {}
    for file in store.all_files(path):
        found[file] = read_file(store, path, file)
    return found


PUTTER = """
import sys
from feed_assets.storage.registry import open_store
trash = open_store(sys.argv[1], {}).trash()
paths = sorted(open_store(sys.argv[1], {}).walk("weather", 2, lambda _, names: names))
print("ready", flush=True)
for start in range(0, len(paths), 250):
    trash.put("sweep-1", paths[start:start + 250])
"""


@pytest.mark.sample
def test_a_putter_that_is_killed_leaves_every_instance_whole_and_the_next_one_goes_on(folder: Path) -> None:
    rng = random.Random(drill_seed())
    root = folder / "root"
    paths = [f"weather/{day:03}/{hour:02}" for day in range(100) for hour in range(24)]
    for path in paths:
        land(root, path)
    before = read_tree(root)
    good = LocalStore(root).trash()
    caught = 0
    for _ in range(KILLS):
        putter = subprocess.Popen(
            [sys.executable, "-c", PUTTER, str(root)], cwd=PROJECT, stdout=subprocess.PIPE, text=True
        )
        with putter:
            assert putter.stdout is not None
            assert putter.stdout.readline() == "ready\n"
            time.sleep(rng.uniform(0, 0.08))
            putter.kill()
        left = sorted(LocalStore(root).walk("weather", 2, lambda _, names: names))
        kept = sorted(good.contents(SWEEP))
        assert sorted([*left, *kept]) == paths
        caught += 0 < len(kept) < len(paths)
        trashed = read_tree(root / f".feed-assets/trash/{SWEEP}/tree/3") if kept else {}
        assert {**read_tree(root), **trashed} == before
        assert {one.outcome for one in good.put(SWEEP, paths)} <= {Outcome.MOVED, Outcome.ALREADY}
        assert {one.outcome for one in good.restore(SWEEP, paths)} == {Outcome.MOVED}
        assert read_tree(root) == before
