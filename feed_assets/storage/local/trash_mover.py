"""Move directory trees between their location and the store's hidden trash folder, each with a single rename."""

import errno
import os
import uuid
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from feed_assets.storage.local.calls import OBSTACLES, LocalCalls, touches_mount
from feed_assets.storage.local.files import clone_file, copy_tree
from feed_assets.storage.local.walk import obstacle_of
from feed_assets.storage.records import Moved, Outcome

_TRIES = 20
_WORTH_FLUSHING_ALL = 8
_GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EXDEV})


class TrashPlace(NamedTuple):
    """A path as given, and its plain form, split into folder and name."""

    path: str
    parent: str
    name: str

    @property
    def plain(self) -> str:
        return f"{self.parent}/{self.name}" if self.parent else self.name


class TrashMover:
    """Moves trees between the root (an open directory) and a hidden folder `keep` below it.

    A folder stays open for consecutive paths in it. After several trees were moved out of one folder, its path is
    checked again. If the path now leads to another directory, the trees are moved back. `flush` writes the changed
    directories to disk.
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

    def put(self, places: Sequence[TrashPlace]) -> Iterator[Moved]:
        """Move the trees at these places into the hidden folder; yield one result each, in order."""
        for parent, group in groupby(places, key=attrgetter("parent")):
            yield from self._put_all(parent, list(group))

    def keep(self, places: Sequence[TrashPlace]) -> Iterator[Moved]:
        """Copy the trees at these places into the hidden folder, by links if the filesystem has them."""
        for place in places:
            try:
                yield self._keep_one(place)
            except FileNotFoundError:
                yield self._missing_result(place)
            except OSError as exc:
                yield _refuse(place, exc)

    def restore(self, places: Sequence[TrashPlace]) -> Iterator[Moved]:
        """Move trees from the hidden folder back to their places; yield one result each, in order."""
        for place in places:
            try:
                yield self._restore(place)
            except FileExistsError:
                yield Moved(path=place.path, outcome=Outcome.OCCUPIED, reason="something else is in its place")
            except OSError as exc:
                yield _refuse(place, exc)

    def make(self, path: str) -> None:
        """Create a folder below the root, if it does not exist."""
        self._calls.close(self._ensure(path, "", 0))
        self._touched.add(path)

    def flush(self) -> None:
        """Flush all changes to disk at once."""
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

    def _put_all(self, parent: str, places: Sequence[TrashPlace]) -> list[Moved]:
        """Move trees of one folder."""
        try:
            folder = self._calls.open_folder(self._root, parent)
        except FileNotFoundError:
            return [self._missing_result(place) for place in places]
        except OSError as exc:
            return [_refuse(place, exc) for place in places]
        try:
            answers = [self._put(place, folder) for place in places]
            if len(places) == 1 or self._leads_to(parent, folder):
                return answers
            reason = "its folder was moved or replaced meanwhile"
            return [
                self._put_back(place, answer, folder, reason) for place, answer in zip(places, answers, strict=True)
            ]
        finally:
            self._calls.close(folder)

    def _put(self, place: TrashPlace, folder: int) -> Moved:
        if self._mounts and touches_mount(place.plain, self._mounts):
            return Moved(path=place.path, outcome=Outcome.REFUSED, reason="something is mounted on it or in it")
        try:
            return self._take(place, folder)
        except FileNotFoundError:
            return self._missing_result(place)
        except OSError as exc:
            return _refuse(place, exc)

    def _take(self, place: TrashPlace, folder: int) -> Moved:
        """Move one tree out of an open folder, and check it in the trash, where no other process can replace it."""
        path, name = place.path, place.name
        if self._kept is None or self._kept[0] != place.parent:
            found = self._calls.find(folder, name)
            if found is None:
                return self._missing_result(place)
            if (reason := obstacle_of(found, self._device)) is not None:
                return Moved(path=path, outcome=Outcome.REFUSED, reason=reason)
        kept = self._open_kept(place.parent, make=True)
        try:
            self._calls.move(folder, name, kept, name)
        except FileExistsError:
            if self._calls.find(folder, name) is None:
                return self._missing_result(place)
            reason = "this sweep has already removed another one; the present one came later"
            return Moved(path=path, outcome=Outcome.CHANGED, reason=reason)
        moved = Moved(path=path, outcome=Outcome.MOVED)
        taken = self._calls.find(kept, name)
        if taken is None or (reason := obstacle_of(taken, self._device)) is None:
            return moved
        return self._put_back(place, moved, folder, reason)

    def _keep_one(self, place: TrashPlace) -> Moved:
        kept = self._open_kept(place.parent, make=True)
        if self._calls.find(kept, place.name) is not None:
            return Moved(path=place.path, outcome=Outcome.ALREADY, reason="this sweep has one already")
        above, draft = self._keep.rpartition("/")[0], f"draft-{uuid.uuid4().hex}"
        self.make(f"{above}/{draft}")
        with self._calls.opened(self._root, place.plain) as folder:
            with self._calls.opened(self._root, f"{above}/{draft}") as copied:
                copy_tree(folder, copied, clone_file)
            self._calls.flush_all(self._root)
            with self._calls.opened(self._root, above) as sweep:
                self._calls.move(sweep, draft, kept, place.name)
        return Moved(path=place.path, outcome=Outcome.MOVED)

    def _leads_to(self, path: str, folder: int) -> bool:
        """Return whether a path below the root still leads to an open folder."""
        try:
            with self._calls.opened(self._root, path) as opened:
                return os.path.samestat(os.fstat(opened), os.fstat(folder))
        except OSError as exc:
            if exc.errno not in _GONE:
                raise
            return False

    def _put_back(self, place: TrashPlace, answer: Moved, folder: int, reason: str) -> Moved:
        """Move back a tree that must not be moved; if that is impossible, return the result of its move unchanged."""
        if answer.outcome is not Outcome.MOVED:
            return answer
        try:
            self._calls.move(self._open_kept(place.parent, make=False), place.name, folder, place.name)
        except (FileExistsError, FileNotFoundError):
            return answer
        return Moved(path=place.path, outcome=Outcome.REFUSED, reason=reason)

    def _missing_result(self, place: TrashPlace) -> Moved:
        """Return the result for a place where nothing exists."""
        try:
            if self._calls.find(self._open_kept(place.parent, make=False), place.name) is not None:
                return Moved(path=place.path, outcome=Outcome.ALREADY, reason="this sweep has already removed it")
        except FileNotFoundError:
            pass
        return Moved(path=place.path, outcome=Outcome.VANISHED, reason="it does not exist")

    def _restore(self, place: TrashPlace) -> Moved:
        path, parent, name = place.path, place.parent, place.name
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
        """Return the path of the hidden folder for the trees of a folder."""
        return f"{self._keep}/{parent.count('/') + 2}/{parent}" if parent else f"{self._keep}/1"

    def _open_kept(self, parent: str, *, make: bool) -> int:
        """Open the hidden folder for the trees of a folder; the last one stays open."""
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
        """Open a folder below the root and create its missing parts.

        The last `mirrored` parts of `path` are also the last parts of `like` and get the same permissions and owners.
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


def _refuse(place: TrashPlace, exc: OSError) -> Moved:
    """Turn an OS error about one path into a REFUSED result; re-raise errors that concern the whole store."""
    if exc.errno not in OBSTACLES:
        raise exc
    return Moved(path=place.path, outcome=Outcome.REFUSED, reason=OBSTACLES[exc.errno])
