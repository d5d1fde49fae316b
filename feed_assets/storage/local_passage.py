"""The way of trees between their places below a root and the hidden folder that keeps them, one rename each."""

import errno
import os
from contextlib import suppress

from feed_assets.storage.local_calls import OBSTACLES, LocalCalls, touches_mount
from feed_assets.storage.local_walk import obstacle_of
from feed_assets.storage.records import Moved, Outcome

_TRIES = 20
_WORTH_FLUSHING_ALL = 8
_GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EXDEV})


class Passage:
    """Moves trees between the root (an open directory) and a hidden folder `keep` below it.

    The folder of an instance is opened anew from the root before each rename; the hidden side stays open while paths
    of one folder follow one another. `flush` brings the directories that were touched to disk.
    """

    def __init__(self, calls: LocalCalls, root: int, keep: str, mounts: tuple[str, ...]) -> None:
        self._calls = calls
        self._root = root
        self._keep = keep
        self._mounts = mounts
        self._device = os.fstat(root).st_dev
        self._touched: set[str] = set()
        self._kept: tuple[str, int] | None = None

    def close(self) -> None:
        if self._kept is not None:
            self._calls.close(self._kept[1])
            self._kept = None

    def put(self, path: str, plain: str) -> Moved:
        """Move the tree at `plain`, which was asked for as `path`, into the hidden folder."""
        try:
            return self._put(path, plain)
        except OSError as exc:
            return _refuse(path, exc)

    def restore(self, path: str, plain: str) -> Moved:
        """Move a tree from the hidden folder back to its place."""
        try:
            return self._restore(path, plain)
        except FileExistsError:
            return Moved(path=path, outcome=Outcome.OCCUPIED, reason="something stands in its place")
        except OSError as exc:
            return _refuse(path, exc)

    def make(self, path: str) -> None:
        """Make a folder below the root, if it is missing."""
        self._calls.close(self._ensure(path, "", 0))
        self._touched.add(path)

    def flush(self) -> None:
        """Bring to disk what was done, once."""
        if len(self._touched) > _WORTH_FLUSHING_ALL:
            self._calls.flush_all(self._root)
        else:
            for path in sorted(self._touched):
                try:
                    with self._calls.opened(self._root, path) as folder:
                        self._calls.flush_folder(folder)
                except OSError as exc:
                    if exc.errno not in _GONE:
                        raise
        self._touched.clear()

    def _put(self, path: str, plain: str) -> Moved:
        parent, _, name = plain.rpartition("/")
        if self._mounts and touches_mount(plain, self._mounts):
            return Moved(path=path, outcome=Outcome.REFUSED, reason="something is mounted on it or in it")
        try:
            folder = self._calls.open_folder(self._root, parent)
        except FileNotFoundError:
            return self._miss(path, parent, name)
        try:
            return self._take(path, parent, name, folder)
        except FileNotFoundError:
            return self._miss(path, parent, name)
        finally:
            self._calls.close(folder)

    def _take(self, path: str, parent: str, name: str, folder: int) -> Moved:
        """Move what stands in an open folder, and look at it where nobody can exchange it any more."""
        if self._kept is None or self._kept[0] != parent:
            found = self._calls.find(folder, name)
            if found is None:
                return self._miss(path, parent, name)
            if (reason := obstacle_of(found, self._device)) is not None:
                return Moved(path=path, outcome=Outcome.REFUSED, reason=reason)
        kept = self._open_kept(parent, make=True)
        try:
            self._calls.move(folder, name, kept, name)
        except FileExistsError:
            reason = "this sweep has taken another one away before; what stands there came later"
            return Moved(path=path, outcome=Outcome.CHANGED, reason=reason)
        taken = self._calls.find(kept, name)
        reason = None if taken is None else obstacle_of(taken, self._device)
        if reason is None:
            return Moved(path=path, outcome=Outcome.MOVED)
        with suppress(FileExistsError):
            self._calls.move(kept, name, folder, name)
        return Moved(path=path, outcome=Outcome.REFUSED, reason=reason)

    def _miss(self, path: str, parent: str, name: str) -> Moved:
        """Answer for a path at which nothing stands."""
        try:
            if self._calls.find(self._open_kept(parent, make=False), name) is not None:
                return Moved(path=path, outcome=Outcome.ALREADY, reason="this sweep has taken it away before")
        except FileNotFoundError:
            pass
        return Moved(path=path, outcome=Outcome.VANISHED, reason="nothing is there")

    def _restore(self, path: str, plain: str) -> Moved:
        parent, _, name = plain.rpartition("/")
        for _ in range(_TRIES):
            try:
                kept = self._open_kept(parent, make=False)
            except FileNotFoundError:
                break
            if self._calls.find(kept, name) is None:
                break
            try:
                folder = self._ensure(parent, self._kept_parent(parent), parent.count("/") + 1)
                try:
                    self._calls.move(kept, name, folder, name)
                finally:
                    self._calls.close(folder)
            except FileNotFoundError:  # an empty parent was removed meanwhile
                continue
            return Moved(path=path, outcome=Outcome.MOVED)
        return Moved(path=path, outcome=Outcome.LOST, reason="it is not in the trash")

    def _kept_parent(self, parent: str) -> str:
        """The hidden folder that keeps the trees of a folder."""
        return f"{self._keep}/{parent.count('/') + 2}/{parent}" if parent else f"{self._keep}/1"

    def _open_kept(self, parent: str, *, make: bool) -> int:
        """The open hidden folder for the trees of a folder; the last one stays open."""
        if self._kept is not None and self._kept[0] == parent:
            return self._kept[1]
        self.close()
        kept = self._kept_parent(parent)
        if make:
            opened = self._ensure(kept, parent, parent.count("/") + 1)
        else:
            opened = self._calls.open_folder(self._root, kept)
        self._kept = (parent, opened)
        self._touched.update((parent, kept))
        return opened

    def _ensure(self, path: str, like: str, mirrored: int) -> int:
        """Open a folder below the root; make what is missing of it.

        The last `mirrored` parts of `path` are those of `like`, too, and get the rights that they have there.
        """
        try:
            return self._calls.open_folder(self._root, path)
        except FileNotFoundError:
            if not path:
                raise
        above, _, name = path.rpartition("/")
        folder = self._ensure(above, like.rpartition("/")[0], mirrored - 1)
        try:
            self._calls.make_folder(folder, name, self._stat(like) if mirrored > 0 else None)
            self._touched.add(above)
            return self._calls.open_folder(folder, name)
        finally:
            self._calls.close(folder)

    def _stat(self, path: str) -> os.stat_result | None:
        try:
            with self._calls.opened(self._root, path) as folder:
                return os.fstat(folder)
        except OSError:
            return None


def _refuse(path: str, exc: OSError) -> Moved:
    """Answer for a path that something stands in the way of; what is not the fault of one path goes on."""
    if exc.errno not in OBSTACLES:
        raise exc
    return Moved(path=path, outcome=Outcome.REFUSED, reason=OBSTACLES[exc.errno])
