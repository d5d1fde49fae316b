"""Implement the trash of a local filesystem: each tree moves by one rename, and only its location records the state.

A tree from a path of n parts is at `.feed-assets/trash/<sweep>/tree/<n>/<path>`; the directories above that depth are
only parents. A purge begins with one rename of the sweep's folder into `.feed-assets/purging-trash/`. Put and restore
hold a shared lock of the sweep; the start of a purge holds it exclusively.
"""

import errno
import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial

from feed_assets.storage.errors import InstanceNotFoundError, PathRefusedError
from feed_assets.storage.local.calls import OBSTACLES, LocalCalls, find_mounts, touches_mount
from feed_assets.storage.local.files import iter_files, opened, read_chunks
from feed_assets.storage.local.purge import LocalPurge
from feed_assets.storage.local.trash_mover import TrashMover, TrashPlace
from feed_assets.storage.local.tree import make_directories
from feed_assets.storage.local.walk import walk_below
from feed_assets.storage.paths import CONTROL_FOLDER, parse_path, parse_token, path_name
from feed_assets.storage.port import InstanceStore, Kept, Trash
from feed_assets.storage.records import Moved, Outcome, Purged

_AREA = f"{CONTROL_FOLDER}/trash"
_PURGING = f"{CONTROL_FOLDER}/purging-trash"
_STAYS = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY})


class LocalTrash(Trash):
    """The trash of a store at `root`, an absolute directory."""

    def __init__(self, store: InstanceStore, root: str, calls: LocalCalls) -> None:
        self.store = store
        self._root = root
        self._calls = calls

    def put(self, sweep: str, paths: Sequence[str], *, flag: str | None = None) -> list[Moved]:  # noqa: ARG002
        return self._move(sweep, paths, TrashMover.put, Outcome.VANISHED)

    def keep(self, sweep: str, path: str, *, flag: str | None = None) -> Moved:  # noqa: ARG002
        return self._move(sweep, [path], TrashMover.keep, Outcome.VANISHED)[0]

    @contextmanager
    def reading(self, sweep: str, path: str) -> Iterator[Kept]:
        plain = parse_path(self.store.root_url, path)
        with self._opened(f"{self._folder(sweep)}/tree/{plain.count('/') + 1}/{plain}") as folder:
            if folder is None:
                raise InstanceNotFoundError(store=self.store.root_url, path=path)
            yield [name for name, _ in iter_files(folder)], partial(_read, folder)

    def restore(self, sweep: str, paths: Sequence[str]) -> list[Moved]:
        return self._move(sweep, paths, TrashMover.restore, Outcome.LOST)

    def purge(self, sweep: str) -> Purged:
        folder = self._folder(sweep)
        with self._opened() as root:
            if root is None:
                obstacle = "the root of the storage is not there; mount the storage, or correct the cluster's address"
                return Purged(sweep=sweep, files=0, is_complete=False, obstacle=obstacle)
            mounts = find_mounts(self._root)
            if touches_mount(folder, mounts) or touches_mount(f"{_PURGING}/{sweep}", mounts):
                return Purged(sweep=sweep, files=0, is_complete=False, obstacle="something is mounted in it")
            earlier = self._remove(root, sweep)
            if not earlier.is_complete:
                return earlier
            try:
                self._start_purge(root, sweep, folder)
            except FileExistsError:
                return replace(earlier, is_complete=False, obstacle="another purge of it is in progress")
            now = self._remove(root, sweep)
        return replace(now, files=earlier.files + now.files)

    def sweeps(self) -> list[str]:
        found: set[str] = set()
        for area in (_AREA, _PURGING):
            with self._opened(area) as folder:
                if folder is not None:
                    found.update(self._calls.list_folder(folder))
        return sorted(found)

    def contents(self, sweep: str) -> Iterator[str]:
        with self._opened(f"{self._folder(sweep)}/tree") as folder:
            if folder is None:
                return
            for depth in self._calls.list_folder(folder):
                if depth.isdecimal():
                    with self._calls.opened(folder, depth) as opened:
                        for found in walk_below(self._calls, opened, int(depth), lambda _, names: names):
                            yield from (found.folder + name for name in found.names)

    def holds(self, sweep: str, path: str) -> bool:
        for place in self._parse([path])[0]:
            kept = f"{self._folder(sweep)}/tree/{place.plain.count('/') + 1}/{place.parent}"
            with self._opened(kept.rstrip("/")) as folder:
                return folder is not None and self._calls.find(folder, place.name) is not None
        return False

    def _folder(self, sweep: str) -> str:
        return f"{_AREA}/{parse_token(self.store.root_url, sweep)}"

    def _move(
        self,
        sweep: str,
        paths: Sequence[str],
        move: Callable[[TrashMover, Sequence[TrashPlace]], Iterator[Moved]],
        nothing: Outcome,
    ) -> list[Moved]:
        self._folder(sweep)
        places, refused = self._parse(paths)
        with self._opened() as root:
            if root is None:
                return [Moved(path=path, outcome=nothing, reason="it does not exist") for path in paths]
            with self._moving(root, sweep) as mover:
                moved = list(move(mover, places))
                mover.flush()
        if not refused:
            return moved
        rest = iter(moved)
        return [refused[path] if path in refused else next(rest) for path in paths]

    def _parse(self, paths: Sequence[str]) -> tuple[list[TrashPlace], dict[str, Moved]]:
        """Return the places of valid paths, and the results for invalid paths."""
        places: list[TrashPlace] = []
        refused: dict[str, Moved] = {}
        for path in paths:
            try:
                parent, _, name = parse_path(self.store.root_url, path).rpartition("/")
            except PathRefusedError as exc:
                refused[path] = Moved(path=path, outcome=Outcome.REFUSED, reason=exc.reason)
            else:
                places.append(TrashPlace(path, parent, name))
        return places, refused

    def _start_purge(self, root: int, sweep: str, folder: str) -> None:
        """Move the folder of a sweep, if it exists, out of the reach of restores."""
        try:
            self._calls.close(self._calls.open_folder(root, folder))
        except FileNotFoundError:
            return
        with self._moving(root, sweep, fcntl.LOCK_EX) as mover:
            mover.make(_PURGING)
            with (
                self._calls.opened(root, _AREA) as area,
                self._calls.opened(root, _PURGING) as purging,
            ):
                try:
                    self._calls.move(area, sweep, purging, sweep)
                except FileNotFoundError:
                    return
                self._calls.flush_folder(purging)
                self._calls.flush_folder(area)

    def _remove(self, root: int, sweep: str) -> Purged:
        """Delete the folder of a sweep whose purge has begun, if there is one."""
        try:
            with self._calls.opened(root, _PURGING) as purging:
                with self._calls.opened(purging, sweep) as purged_folder:
                    purge = LocalPurge(self._calls, purged_folder)
                    is_complete = purge.run()
                if is_complete:
                    self._calls.remove_folder(purging, sweep)
        except FileNotFoundError:
            return Purged(sweep=sweep, files=0, is_complete=True)
        return Purged(sweep=sweep, files=purge.files, is_complete=is_complete, obstacle=purge.obstacle)

    def _remove_empty(self, folder: str) -> bool | None:
        parent, _, name = folder.rpartition("/")
        with self._opened() as root, suppress(FileNotFoundError):
            if root is None:
                return None
            try:
                with self._calls.opened(root, parent) as above:
                    self._calls.remove_folder(above, name)
            except OSError as exc:
                if exc.errno in _STAYS or exc.errno in OBSTACLES:
                    return False
                raise
            return True
        return None

    @contextmanager
    def _opened(self, path: str = "") -> Iterator[int | None]:
        """Open a folder below the root; yield None if it or the root does not exist. Translates OS errors."""
        try:
            with ExitStack() as stack:
                folder = None
                with suppress(FileNotFoundError):
                    root = self._calls.open_root(self._root)
                    stack.callback(self._calls.close, root)
                    folder = stack.enter_context(self._calls.opened(root, path)) if path else root
                yield folder
        except OSError as exc:
            raise self.store._refused("", exc) from exc

    @contextmanager
    def _moving(self, root: int, sweep: str, lock: int = fcntl.LOCK_SH) -> Iterator[TrashMover]:
        """Hold the lock of a sweep: shared for moves, exclusive for the start of a purge."""
        folder = f"{self._root}/{CONTROL_FOLDER}/locks"
        make_directories(folder)
        with ExitStack() as stack:
            name = f"{folder}/trash-{path_name(sweep)[:2]}"
            descriptor = os.open(name, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
            stack.callback(os.close, descriptor)
            fcntl.flock(descriptor, lock)
            mover = TrashMover(self._calls, root, f"{self._folder(sweep)}/tree", find_mounts(self._root))
            stack.callback(mover.close)
            yield mover


def _read(folder: int, file: str) -> Iterator[bytes | memoryview]:
    with opened(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW, folder) as descriptor:
        yield from read_chunks(descriptor)
