"""The local trash and walk in hostile trees: links, mount points and odd names, also ones that appear in between."""

import os
import random
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from feed_assets.storage.errors import PathRefusedError
from feed_assets.storage.local import calls as local_calls
from feed_assets.storage.local.store import LocalStore
from feed_assets.storage.records import Moved, Outcome
from tests.drills import drill_seed, sized
from tests.storage.trees import Tree, WatchedCalls, land, memory_folder, read_tree
from tests.transfer.archives import archive

ATTACKS = sized(40, 1000)
SWEEP = "sweep-1"
pytestmark = pytest.mark.usefixtures("system")


@pytest.fixture
def folder() -> Iterator[Path]:
    with memory_folder() as folder:
        (folder / "root").mkdir()
        land(folder / "outside", "2013-11-01", secret=b"secret")
        land(folder / "outside", "2013-11-01/05", secret=b"secret")
        yield folder


@pytest.fixture
def root(folder: Path) -> Path:
    return folder / "root"


@pytest.fixture
def outside(folder: Path) -> Path:
    return folder / "outside"


def everything(_: str, names: Sequence[str]) -> Sequence[str]:
    return names


def walk(root: Path, base: str, depth: int) -> list[str]:
    return sorted(LocalStore(root).walk(base, depth, everything))


def put(root: Path, *paths: str) -> list[Outcome]:
    return outcomes(LocalStore(root).trash().put(SWEEP, paths))


def outcomes(moved: list[Moved]) -> list[Outcome]:
    return [one.outcome for one in moved]


def swap_for_link(path: Path, target: Path) -> None:
    """Put a link in the place of a directory, which goes aside."""
    path.rename(path.with_name(f".{path.name}.aside"))
    path.symlink_to(target)


def test_links_are_not_walked_wherever_they_lead(root: Path, outside: Path) -> None:
    land(root, "weather/2013-11-01/05")
    for name, target in {"in": "2013-11-01", "out": outside, "up": "..", "nowhere": "x", "self": "self"}.items():
        (root / "weather" / name).symlink_to(target)
        (root / "weather/2013-11-01" / name).symlink_to(target)
    assert walk(root, "weather", 1) == ["weather/2013-11-01"]
    assert walk(root, "weather", 2) == ["weather/2013-11-01/05"]


@pytest.mark.parametrize("base", ["link", "link/2013-11-01", "weather/link", "weather/link/05"])
def test_a_base_with_a_link_in_it_is_refused(root: Path, outside: Path, base: str) -> None:
    land(root, "weather/2013-11-01/05")
    (root / "link").symlink_to(outside)
    (root / "weather/link").symlink_to("2013-11-01")
    with pytest.raises(PathRefusedError, match="symbolic link"):
        walk(root, base, 1)


def test_a_root_that_is_a_link_itself_is_the_root(folder: Path, root: Path) -> None:
    land(root, "weather/2013-11-01")
    (folder / "alias").symlink_to(root)
    assert walk(folder / "alias", "weather", 1) == ["weather/2013-11-01"]
    assert put(folder / "alias", "weather/2013-11-01") == [Outcome.MOVED]
    assert not (root / "weather/2013-11-01").exists()


def test_a_directory_that_is_swapped_for_a_link_during_the_walk_is_not_followed(root: Path, outside: Path) -> None:
    for day in ("2013-11-01", "2013-11-02"):
        land(root, f"weather/{day}/05")

    def choose(path: str, names: Sequence[str]) -> Sequence[str]:
        if not path:
            swap_for_link(root / "weather/2013-11-01", outside / "2013-11-01")
        return sorted(names)

    assert list(LocalStore(root).walk("weather", 2, choose)) == ["weather/2013-11-02/05"]


def test_a_folder_that_is_swapped_while_it_is_walked_is_walked_as_it_was_opened(root: Path, outside: Path) -> None:
    land(root, "weather/2013-11-01/04")

    def choose(path: str, names: Sequence[str]) -> Sequence[str]:
        if path == "2013-11-01":
            swap_for_link(root / "weather/2013-11-01", outside / "2013-11-01")
        return names

    assert list(LocalStore(root).walk("weather", 2, choose)) == ["weather/2013-11-01/04"]
    assert put(root, "weather/2013-11-01/04") == [Outcome.REFUSED]


@pytest.mark.parametrize("path", ["weather/link", "weather/link/05", "link/2013-11-01", "weather/2013-11-01/in/05"])
def test_nothing_is_moved_through_a_link_and_no_link_is_moved(root: Path, outside: Path, path: str) -> None:
    land(root, "weather/2013-11-01/05")
    (root / "weather/link").symlink_to(outside / "2013-11-01")
    (root / "weather/2013-11-01/in").symlink_to("../2013-11-01")
    (root / "link").symlink_to(outside)
    before = read_tree(root), read_tree(outside)
    (moved,) = LocalStore(root).trash().put(SWEEP, [path])
    assert (moved.outcome, "symbolic link" in (moved.reason or "")) == (Outcome.REFUSED, True)
    (measure,) = LocalStore(root).measure([path])
    assert "symbolic link" in (measure.obstacle or "")
    assert (read_tree(root), read_tree(outside)) == before


def test_nothing_is_restored_through_a_link(root: Path, outside: Path) -> None:
    land(root, "weather/2013-11-01/05")
    store = LocalStore(root)
    store.trash().put(SWEEP, ["weather/2013-11-01/05"])
    swap_for_link(root / "weather/2013-11-01", outside)
    before = read_tree(outside)
    assert outcomes(store.trash().restore(SWEEP, ["weather/2013-11-01/05"])) == [Outcome.REFUSED]
    assert read_tree(outside) == before
    assert list(store.trash().contents(SWEEP)) == ["weather/2013-11-01/05"]


def test_a_link_that_stands_at_the_place_of_an_instance_is_not_overwritten(root: Path, outside: Path) -> None:
    land(root, "weather/05")
    trash = LocalStore(root).trash()
    trash.put(SWEEP, ["weather/05"])
    (root / "weather/05").symlink_to(outside / "nothing")
    assert outcomes(trash.restore(SWEEP, ["weather/05"])) == [Outcome.OCCUPIED]
    assert (root / "weather/05").is_symlink()


def test_an_empty_directory_at_the_place_of_an_instance_is_not_overwritten(root: Path) -> None:
    land(root, "weather/05")
    trash = LocalStore(root).trash()
    trash.put(SWEEP, ["weather/05"])
    (root / "weather/05").mkdir()
    assert outcomes(trash.restore(SWEEP, ["weather/05"])) == [Outcome.OCCUPIED]
    assert outcomes(trash.put(SWEEP, ["weather/05"])) == [Outcome.CHANGED]
    assert list(trash.contents(SWEEP)) == ["weather/05"]


def test_a_link_that_is_swapped_in_right_before_the_move_is_put_back(root: Path, outside: Path) -> None:
    land(root, "weather/04")
    land(root, "weather/05")

    def swap(call: str, *arguments: object) -> None:
        if (call, arguments[1:2]) == ("move", ("05",)) and (root / "weather/05").is_dir():
            swap_for_link(root / "weather/05", outside / "2013-11-01/secret")

    before = read_tree(outside)
    trash = LocalStore(root, WatchedCalls(swap)).trash()
    assert outcomes(trash.put(SWEEP, ["weather/04", "weather/05"])) == [Outcome.MOVED, Outcome.REFUSED]
    assert (root / "weather/05").is_symlink()
    assert list(trash.contents(SWEEP)) == ["weather/04"]
    assert trash.purge(SWEEP).is_complete
    assert read_tree(outside) == before


def test_a_link_that_was_taken_and_cannot_go_back_is_in_the_trash(root: Path, outside: Path) -> None:
    land(root, "weather/05")

    def swap(call: str, *arguments: object) -> None:
        if (call, arguments[1:2]) == ("move", ("05",)):
            if (root / "weather/05").is_dir():
                swap_for_link(root / "weather/05", outside / "2013-11-01/secret")
            else:
                land(root, "weather/05", later=b"")

    trash = LocalStore(root, WatchedCalls(swap)).trash()
    assert outcomes(trash.put(SWEEP, ["weather/05"])) == [Outcome.MOVED]
    assert (root / "weather/05/later").exists()
    (root / "weather/05").rename(root / "weather/06")
    assert outcomes(LocalStore(root).trash().restore(SWEEP, ["weather/05"])) == [Outcome.MOVED]
    assert (root / "weather/05").is_symlink()


def test_a_parent_that_is_swapped_in_right_before_the_move_leads_nowhere_else(root: Path, outside: Path) -> None:
    land(root, "weather/2013-11-01/05")

    def swap(call: str, *arguments: object) -> None:
        if call == "move" and not (root / "weather/2013-11-01").is_symlink():
            swap_for_link(root / "weather/2013-11-01", outside / "2013-11-01")

    before = read_tree(outside)
    LocalStore(root, WatchedCalls(swap)).trash().put(SWEEP, ["weather/2013-11-01/05"])
    assert read_tree(outside) == before


def test_what_was_taken_from_a_folder_goes_back_when_another_one_is_put_in_its_place(root: Path, outside: Path) -> None:
    for day in ("03", "04", "05"):
        land(root, f"weather/{day}")
    aside = root / ".weather.aside"

    def swap(call: str, *arguments: object) -> None:
        if (call, arguments[1:2]) == ("move", ("04",)) and not aside.exists():
            swap_for_link(root / "weather", outside)

    before, inside = read_tree(outside), read_tree(root / "weather")
    trash = LocalStore(root, WatchedCalls(swap)).trash()
    moved = trash.put(SWEEP, ["weather/03", "weather/04", "weather/06", "weather/05"])
    assert outcomes(moved) == [Outcome.REFUSED, Outcome.REFUSED, Outcome.VANISHED, Outcome.REFUSED]
    assert moved[0].reason == "its folder was moved or replaced meanwhile"
    assert read_tree(aside) == inside
    assert read_tree(outside) == before
    assert list(trash.contents(SWEEP)) == []


def test_what_cannot_go_back_to_a_folder_that_was_moved_is_in_the_trash(root: Path) -> None:
    land(root, "weather/03")
    land(root, "weather/04")

    def swap(call: str, *arguments: object) -> None:
        if (call, arguments[1:2]) == ("move", ("04",)) and (root / "weather").exists():
            (root / "weather").rename(root / "moved")
            land(root, "moved/03", later=b"")

    trash = LocalStore(root, WatchedCalls(swap)).trash()
    assert outcomes(trash.put(SWEEP, ["weather/03", "weather/04"])) == [Outcome.MOVED, Outcome.REFUSED]
    assert list(trash.contents(SWEEP)) == ["weather/03"]
    assert sorted(place.name for place in (root / "moved").iterdir()) == ["03", "04"]


def test_a_purge_removes_links_and_not_what_they_lead_to(root: Path, outside: Path) -> None:
    land(root, "weather/05/sub")
    for place in ("weather/05", "weather/05/sub"):
        (root / place / "out").symlink_to(outside)
        (root / place / "file").symlink_to(outside / "2013-11-01/secret")
        (root / place / "nowhere").symlink_to("nowhere")
        os.link(outside / "2013-11-01/secret", root / place / "hard")
    before = read_tree(outside)
    store = LocalStore(root)
    (measure,) = store.measure(["weather/05"])
    assert (measure.obstacle, measure.files) == (None, 10)
    assert put(root, "weather/05") == [Outcome.MOVED]
    purged = store.trash().purge(SWEEP)
    assert (purged.is_complete, purged.files) == (True, 10)
    assert read_tree(outside) == before


def test_a_directory_that_is_swapped_for_a_link_during_a_purge_is_not_entered(root: Path, outside: Path) -> None:
    land(root, "weather/05/sub/deep")
    aside = root.parent / "aside"
    put(root, "weather/05")

    def swap(call: str, *arguments: object) -> None:
        for trashed in root.glob(".feed-assets/purging-trash/*/tree/2/weather/05/sub"):
            if not aside.exists() and not trashed.is_symlink() and call in ("remove_file", "list_folder"):
                trashed.rename(aside)
                trashed.symlink_to(outside)

    before = read_tree(outside)
    assert LocalStore(root, WatchedCalls(swap)).trash().purge(SWEEP).is_complete
    assert aside.exists()
    assert read_tree(outside) == before


def test_an_archive_refuses_links(root: Path, outside: Path, folder: Path) -> None:
    land(root, "weather/05")
    (root / "weather/05/link").symlink_to(outside / "2013-11-01/secret")
    with pytest.raises(PathRefusedError):
        LocalStore(root).all_files("weather/05")
    moved = archive(LocalStore(root), "weather/05", LocalStore(folder / "archive"), "05", SWEEP)
    assert moved.outcome is Outcome.REFUSED
    assert (root / "weather/05/link").is_symlink()
    assert not (folder / "archive/05").exists()


def test_what_is_neither_file_nor_directory_stays_and_goes_with_its_directory(root: Path) -> None:
    land(root, "weather/05")
    os.mkfifo(root / "weather/05/pipe")
    os.mkfifo(root / "weather/pipe")
    listener = socket.socket(socket.AF_UNIX)
    with listener, _working_in(root / "weather"):
        listener.bind("socket")
    assert walk(root, "weather", 1) == ["weather/05"]
    assert put(root, "weather/pipe", "weather/socket", "weather/05") == [
        Outcome.REFUSED,
        Outcome.REFUSED,
        Outcome.MOVED,
    ]
    assert LocalStore(root).trash().purge(SWEEP).is_complete
    assert sorted(read_tree(root)) == ["weather", "weather/pipe", "weather/socket"]


def test_names_of_255_bytes_and_names_that_are_no_text_go_and_come_back(root: Path) -> None:
    names = ["x" * 255, "ü" * 127, os.fsdecode(b"\xff\xfe"), "2013-11-01\n", " ", "\u0661", "\\", "a\tb"]
    for name in names:
        land(root, f"weather/{name}/{name}")
    paths = [f"weather/{name}/{name}" for name in names]
    before = read_tree(root)
    store = LocalStore(root)
    assert walk(root, "weather", 2) == sorted(paths)
    assert put(root, *paths) == [Outcome.MOVED] * len(paths)
    assert sorted(store.trash().contents(SWEEP)) == sorted(paths)
    assert len(store.trash().remove_empty_parents("weather", paths)) == len(paths)
    assert outcomes(store.trash().restore(SWEEP, paths)) == [Outcome.MOVED] * len(paths)
    assert read_tree(root) == before


@pytest.mark.parametrize("path", ["x" * 256, "/".join(["x" * 200] * 25)])
def test_names_that_are_too_long_are_refused_or_missing_and_stop_nothing(root: Path, path: str) -> None:
    land(root, "weather/05")
    refused = put(root, path, "weather/05")
    assert refused[0] in (Outcome.REFUSED, Outcome.VANISHED)
    assert refused[1] is Outcome.MOVED
    (measure,) = LocalStore(root).measure([path])
    assert measure.obstacle or not measure.exists


def test_a_very_deep_instance_is_refused_when_measured_and_can_be_purged(root: Path) -> None:
    land(root, "weather/05")
    handle = os.open(root / "weather/05", os.O_RDONLY)
    for _ in range(600):
        os.mkdir("deep", dir_fd=handle)
        below = os.open("deep", os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = below
    os.close(handle)
    store = LocalStore(root)
    assert "deep" in (store.measure(["weather/05"])[0].obstacle or "")
    assert put(root, "weather/05") == [Outcome.MOVED]
    assert store.trash().purge(SWEEP).is_complete
    assert store.trash().sweeps() == []


def test_only_empty_parents_strictly_below_the_base_are_removed(root: Path, outside: Path) -> None:
    paths = ["a/b/2013/11/01", "a/b/2013/12/01", "a/b/2014/01/01", "a/b/2015/01/01", "other/2013/01"]
    for path in paths:
        land(root, path)
    (root / "a/b/2014/01/note").write_text("stays")
    (root / "a/b/2015/link").symlink_to(outside)
    put(root, *paths)
    trash = LocalStore(root).trash()
    removed = trash.remove_empty_parents("a/b", [*paths, "a/b", "a", "a/bc/2013", "../x", "a/b/../../other/2013/01"])
    assert removed == ["a/b/2013/11", "a/b/2013/12", "a/b/2015/01", "a/b/2013"]
    assert (root / "other/2013").is_dir()
    assert sorted(path for path in read_tree(root) if path.startswith("a")) == [
        "a",
        "a/b",
        "a/b/2014",
        "a/b/2014/01",
        "a/b/2014/01/note",
        "a/b/2015",
        "a/b/2015/link",
    ]


def test_no_parent_is_removed_through_a_link(root: Path, outside: Path) -> None:
    (outside / "empty/2013").mkdir(parents=True)
    (root / "weather").mkdir()
    (root / "weather/link").symlink_to(outside / "empty")
    (root / "base").symlink_to(outside)
    trash = LocalStore(root).trash()
    assert trash.remove_empty_parents("weather", ["weather/link/2013/01"]) == []
    assert trash.remove_empty_parents("base", ["base/empty/2013/01"]) == []
    assert (outside / "empty/2013").is_dir()
    assert (root / "weather/link").is_symlink()


def test_parents_get_the_rights_that_they_had(root: Path) -> None:
    land(root, "weather/2013/11/05")
    (root / "weather/2013").chmod(0o2770)
    (root / "weather/2013/11").chmod(0o711)
    trash = LocalStore(root).trash()
    trash.put(SWEEP, ["weather/2013/11/05"])
    assert trash.remove_empty_parents("weather", ["weather/2013/11/05"]) == ["weather/2013/11", "weather/2013"]
    trash.restore(SWEEP, ["weather/2013/11/05"])
    assert [oct((root / path).stat().st_mode & 0o7777) for path in ("weather/2013", "weather/2013/11")] == [
        "0o2770",
        "0o711",
    ]


@contextmanager
def _working_in(folder: Path) -> Iterator[None]:
    """With a working directory, because the addresses of sockets are short."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@contextmanager
def mounted(folder: Path, *arguments: str | Path) -> Iterator[None]:
    """With something mounted somewhere below a folder, at the last argument."""
    done = subprocess.run(["mount", *map(str, arguments)], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"mounting is not permitted here: {done.stderr.strip()}")
    try:
        yield
    finally:
        mounts = Path("/proc/self/mountinfo").read_text("utf-8").splitlines()
        for point in reversed([mount.split()[4] for mount in mounts]):
            if point.startswith(f"{folder.resolve()}/"):
                subprocess.run(["umount", point], check=True)


def mount_tmpfs(outside: Path, at: Path) -> tuple[str | Path, ...]:
    return ("-t", "tmpfs", "none", at)


def mount_same(outside: Path, at: Path) -> tuple[str | Path, ...]:
    return ("--bind", outside, at)


MOUNTS = pytest.mark.parametrize("mount", [mount_tmpfs, mount_same])


@MOUNTS
def test_what_is_mounted_is_neither_measured_nor_moved(
    root: Path, outside: Path, mount: Callable[[Path, Path], Sequence[str | Path]]
) -> None:
    land(root, "weather/05/sub")
    land(root, "weather/06")
    land(root, "weather/05_backup")
    for point, paths in {
        "weather/05": ["weather/05", "weather/05/sub"],
        "weather/05/sub": ["weather/05", "weather/05/sub"],
    }.items():
        with mounted(root, *mount(outside, root / point)):
            land(root, f"{point}/mounted")
            measures = LocalStore(root).measure([*paths, "weather/06"])
            assert [bool(one.obstacle) for one in measures if one.exists] == [True] * (len(measures) - 1) + [False]
            assert set(put(root, *paths)) <= {Outcome.REFUSED, Outcome.VANISHED}
            assert (root / point / "mounted/data").exists()
    assert put(root, "weather/05", "weather/06") == [Outcome.MOVED, Outcome.MOVED]
    assert sorted(path for path in read_tree(root) if path.count("/") == 1) == ["weather/05_backup"]


def test_another_filesystem_is_not_walked_and_not_written_to(root: Path, outside: Path) -> None:
    land(root, "weather/2013")
    land(root, "weather/2014")
    store = LocalStore(root)
    with mounted(root, "-t", "tmpfs", "none", root / "weather/2013"):
        land(root, "weather/2013/05")
        assert walk(root, "weather", 2) == ["weather/2014/_SUCCESS", "weather/2014/data"]
        with pytest.raises(PathRefusedError, match="mounted"):
            walk(root, "weather/2013", 1)
        assert put(root, "weather/2013/05") == [Outcome.REFUSED]
        assert store.trash().remove_empty_parents("weather", ["weather/2013/05/x"]) == []
    put(root, "weather/2014")
    (root / "weather").rename(root / "aside")
    (root / "weather").mkdir()
    with mounted(root, "-t", "tmpfs", "none", root / "weather"):
        assert outcomes(store.trash().restore(SWEEP, ["weather/2014"])) == [Outcome.REFUSED]
    assert list(store.trash().contents(SWEEP)) == ["weather/2014"]


@MOUNTS
def test_a_purge_takes_nothing_while_something_is_mounted_in_it(
    root: Path, outside: Path, mount: Callable[[Path, Path], Sequence[str | Path]]
) -> None:
    land(root, "weather/05/sub/mount")
    land(root, "weather/06")
    put(root, "weather/05", "weather/06")
    trash = LocalStore(root).trash()
    point = root / f".feed-assets/trash/{SWEEP}/tree/2/weather/05/sub/mount"
    with mounted(root, *mount(outside, point)):
        land(point, "mounted")
        before = read_tree(outside)
        purged = trash.purge(SWEEP)
        assert (purged.is_complete, purged.files) == (False, 0)
        assert "mounted" in (purged.obstacle or "")
        assert read_tree(outside) == before
        assert (point / "mounted/data").exists()
    assert trash.purge(SWEEP).is_complete
    assert trash.sweeps() == []


@MOUNTS
def test_what_is_mounted_after_a_purge_has_begun_is_not_entered(
    root: Path, outside: Path, mount: Callable[[Path, Path], Sequence[str | Path]], request: pytest.FixtureRequest
) -> None:
    if mount is mount_same and "portable" in request.node.name:
        pytest.skip("without openat2 a directory of the same filesystem that is mounted later is not noticed")
    land(root, "weather/05/sub/mount")
    put(root, "weather/05")
    point = root / f".feed-assets/purging-trash/{SWEEP}/tree/2/weather/05/sub/mount"
    with ExitStack() as stack:

        def interfere(call: str, *_: object) -> None:
            if call == "list_folder" and point.exists() and not local_calls.find_mounts(str(root)):
                stack.enter_context(mounted(root, *mount(outside, point)))
                land(point, "mounted")

        before = {**read_tree(outside), **({} if mount is mount_tmpfs else {"mounted": "/"})}
        trash = LocalStore(root, WatchedCalls(interfere)).trash()
        purged = trash.purge(SWEEP)
        assert (purged.is_complete, bool(purged.obstacle)) == (False, True)
        assert trash.sweeps() == [SWEEP]
        assert (point / "mounted/data").exists()
        assert before.items() <= read_tree(outside).items()
    assert LocalStore(root).trash().purge(SWEEP).is_complete
    assert trash.sweeps() == []


class Attacker:
    """Fills a root with expired instances among things that look like them, and changes it when it is called."""

    def __init__(self, rng: random.Random, root: Path, outside: Path) -> None:
        self._rng = rng
        self._root = root
        self._outside = outside
        self._lock = threading.Lock()
        self.is_active = True
        self.expired: dict[str, Tree] = {}
        self.kept: dict[str, Tree] = {}
        for name in (f"2013-11-{day:02}" for day in range(1, 7)):
            self._fill(self.expired, f"weather/{name}")
        for name in LOOK_ALIKES:
            self._fill(self.kept, f"weather/{name}")
        for number, target in enumerate((outside, "2013-11-01", "..", outside / "2013-11-01/secret", "nowhere")):
            (root / f"weather/2013-10-0{number + 1}").symlink_to(target)

    def __call__(self, *_: object) -> None:
        with self._lock:
            if self.is_active and self._rng.random() < 0.15:
                with suppress(OSError):
                    self._rng.choice((self._swap, self._swap_back, self._swap_parent))()

    def choose(self, _: str, names: Sequence[str]) -> list[str]:
        self()
        return [name for name in names if f"weather/{name}" in self.expired]

    def find_instances(self, folder: Path) -> dict[str, list[Tree]]:
        """Every directory below a folder in which an instance was laid, by the path where that was."""
        found: dict[str, list[Tree]] = {}
        for place, _, files in os.walk(folder):
            if "id" in files:
                found.setdefault(Path(place, "id").read_text(errors="surrogateescape"), []).append(read_tree(place))
        return found

    def _fill(self, to: dict[str, Tree], path: str) -> None:
        place = self._root / path
        place.mkdir(parents=True)
        (place / "id").write_text(path, errors="surrogateescape")
        for number in range(self._rng.randrange(4)):
            kind = self._rng.choice(("file", "folder", "link", "hard", "pipe"))
            inside = place / f"{kind}-{number}"
            match kind:
                case "file":
                    inside.write_bytes(self._rng.randbytes(9))
                case "folder":
                    land(inside, "deep/er")
                    (inside / "deep/out").symlink_to(self._outside)
                case "link":
                    inside.symlink_to(self._rng.choice((self._outside, Path("../2013-11-05"), Path("nowhere"))))
                case "hard":
                    os.link(self._outside / "2013-11-01/secret", inside)
                case "pipe":
                    os.mkfifo(inside)
        to[path] = read_tree(place)

    def _swap(self) -> None:
        if (self._root / "weather").is_symlink():
            return
        swap_for_link(self._root / self._rng.choice([*self.expired, *self.kept]), self._outside / "2013-11-01")

    def _swap_back(self) -> None:
        for place in (self._root / "weather").glob(".*.aside"):
            original = place.with_name(place.name[1:].removesuffix(".aside"))
            if original.is_symlink():
                original.unlink()
                place.rename(original)

    def _swap_parent(self) -> None:
        aside = self._root / ".weather.aside"
        if aside.exists():
            (self._root / "weather").unlink()
            aside.rename(self._root / "weather")
        else:
            swap_for_link(self._root / "weather", self._outside)


LOOK_ALIKES = (
    "2013-11-01_backup", "2013-11-1", "2013-11-31", "+013-11-01", "2013-11-01\n", "2013-11-01 ", "\u0662013-11-01",
    "2013-11-0", "2013-11-011", ".2013-11-01", "2013-11-01.tmp", "2013-12-01", "x" * 255, os.fsdecode(b"2013-11-\xff"),
)  # fmt: skip


@pytest.mark.sample
def test_exactly_what_was_named_goes_whatever_is_changed_in_between(folder: Path) -> None:
    moved_at_all = 0
    first = drill_seed()
    for seed in range(first, first + ATTACKS):
        root = folder / f"root-{seed}"
        root.mkdir()
        outside = folder / "outside"
        attacker = Attacker(random.Random(seed), root, outside)
        everything_laid = {**attacker.expired, **attacker.kept}
        before = read_tree(outside)
        store = LocalStore(root, WatchedCalls(attacker))
        trash = store.trash()

        with suppress(PathRefusedError):
            assert set(store.walk("weather", 1, attacker.choose)) <= attacker.expired.keys()
        moved = trash.put(SWEEP, [*attacker.expired, "weather/2013-10-01", "weather/../weather/2013-12-01"])
        assert {one.outcome for one in moved} <= {Outcome.MOVED, Outcome.REFUSED, Outcome.VANISHED}
        restored = trash.restore(SWEEP, list(attacker.expired)[:2])
        trash.remove_empty_parents("", list(attacker.expired))

        attacker.is_active = False
        found = attacker.find_instances(root)
        assert found == {path: [tree] for path, tree in everything_laid.items()}, f"seed {seed}"
        in_trash = attacker.find_instances(root / ".feed-assets") if (root / ".feed-assets").exists() else {}
        assert in_trash.keys() <= attacker.expired.keys(), f"seed {seed}"
        assert in_trash.keys() >= {one.path for one in moved[2:] if one.outcome is Outcome.MOVED}
        assert not in_trash.keys() & {one.path for one in restored if one.outcome is Outcome.MOVED}
        moved_at_all += len(in_trash)

        attacker.is_active = True
        purged = trash.purge(SWEEP)
        attacker.is_active = False
        assert purged.is_complete
        left = {path: [tree] for path, tree in everything_laid.items() if path not in in_trash}
        assert attacker.find_instances(root) == left, f"seed {seed}"
        assert read_tree(outside) == before, f"seed {seed}"
    assert moved_at_all > ATTACKS
