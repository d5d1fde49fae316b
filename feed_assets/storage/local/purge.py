"""Delete directory trees of a local filesystem by open handles; links are removed, their targets stay."""

import errno
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from feed_assets.clock import Stopwatch
from feed_assets.storage.local.calls import OBSTACLES, LocalCalls

_THREADS = 2
_WORTH_THREADS = 24
_PROBED = 2
_SLOW = 20e-6
"""Seconds for one file or directory. Faster removals gain nothing from threads, which would compete for the GIL."""
_LEVELS = 100
_NO_FOLDER = frozenset({errno.ENOTDIR, errno.ELOOP})


class LocalPurge:
    """Empties one open directory that no other process uses. `obstacle` names the first entry that must stay."""

    def __init__(self, calls: LocalCalls, folder: int) -> None:
        self.files = 0
        self.obstacle: str | None = None
        self._calls = calls
        self._folder = folder
        self._lock = threading.Lock()
        self._moved_up = 0

    def run(self) -> bool:
        """Remove everything; return whether that succeeded."""
        with ThreadPoolExecutor(_THREADS) as pool:
            while True:
                moved_up = self._moved_up
                self._empty(self._folder, pool, _LEVELS)
                if self.obstacle is not None or self._moved_up == moved_up:
                    return self.obstacle is None

    def _empty(self, folder: int, pool: ThreadPoolExecutor | None, levels: int) -> None:
        names = self._calls.list_folder(folder)
        if pool is None or len(names) < _WORTH_THREADS:
            self._remove(folder, names, pool, levels)
            return
        watch, before, left = Stopwatch(), self.files, names[_PROBED:]
        self._remove(folder, names[:_PROBED], None, levels)
        if watch.seconds <= _SLOW * (self.files - before + _PROBED):
            self._remove(folder, left, None, levels)
            return
        shares = [left[number::_THREADS] for number in range(_THREADS)]
        list(pool.map(lambda share: self._remove(folder, share, None, levels), shares))

    def _remove(self, folder: int, names: Sequence[str], pool: ThreadPoolExecutor | None, levels: int) -> None:
        remove_file, files = self._calls.remove_file, 0
        is_folder = False
        for name in names:
            try:
                # The next entry after a folder is probably a folder too; opening it shows whether it is.
                if is_folder and self._remove_folder(folder, name, pool, levels):
                    continue
                is_folder = False
                remove_file(folder, name)
                files += 1
            except IsADirectoryError:
                is_folder = self._remove_folder(folder, name, pool, levels)
            except FileNotFoundError:
                continue
            except OSError as exc:
                self._note_obstacle(name, exc)
        with self._lock:
            self.files += files

    def _remove_folder(self, folder: int, name: str, pool: ThreadPoolExecutor | None, levels: int) -> bool:
        """Remove a directory and its content as far as possible; return False if it is not a directory."""
        if not levels:
            self._move_up(folder, name)
            return True
        try:
            opened = self._calls.open_folder(folder, name)
        except FileNotFoundError:
            return True
        except OSError as exc:
            if exc.errno in _NO_FOLDER:
                return False
            self._note_obstacle(name, exc)
            return True
        try:
            self._empty(opened, pool, levels - 1)
        finally:
            self._calls.close(opened)
        try:
            self._calls.remove_folder(folder, name)
        except FileNotFoundError:
            return True
        except OSError as exc:
            self._note_obstacle(name, exc)
        return True

    def _move_up(self, folder: int, name: str) -> None:
        """Move a directory that is too deep to the top for the next round; each level costs an open handle."""
        while True:
            with self._lock:
                self._moved_up += 1
                number = self._moved_up
            try:
                return self._calls.move(folder, name, self._folder, f".deep-{number}")
            except FileExistsError:  # left by an interrupted purge
                continue

    def _note_obstacle(self, name: str, exc: OSError) -> None:
        """Keep the obstacle of one name; re-raise errors that concern more than this name."""
        if exc.errno == errno.ENOTEMPTY and self.obstacle is not None:
            return
        if exc.errno not in OBSTACLES and exc.errno != errno.ENOTEMPTY:
            raise exc
        reason = OBSTACLES.get(exc.errno, "something came into it meanwhile")
        with self._lock:
            self.obstacle = self.obstacle or f"{name!r}: {reason}"
