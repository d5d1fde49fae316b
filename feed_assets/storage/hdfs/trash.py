"""Implement the trash of HDFS: each tree moves by one rename, and only its place records the state.

A tree from a path of n parts is at `.feed-assets/trash/<sweep>/tree/<n>/<path>`; the folders above that depth are only
parents. A purge begins with one rename of the sweep's folder into `.feed-assets/purging-trash/`.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

from feed_assets.storage.errors import InstanceNotFoundError
from feed_assets.storage.hdfs.client import HdfsClient
from feed_assets.storage.object.trash import ObjectTrash, TrashMove
from feed_assets.storage.object.tree import key_of, list_objects, walk_keys
from feed_assets.storage.paths import CONTROL_FOLDER, parse_path, parse_token
from feed_assets.storage.port import Kept
from feed_assets.storage.records import Moved, Outcome, Purged

_AREA, _PURGING = f"{CONTROL_FOLDER}/trash", f"{CONTROL_FOLDER}/purging-trash"
_STAYS = frozenset({errno.ENOTEMPTY, errno.ENOTDIR, errno.EACCES})


class HdfsMove(TrashMove):
    """The move of the instance at `path` in the sweep whose folder is `prefix`."""

    _client: HdfsClient

    def __init__(self, client: HdfsClient, *, prefix: str, path: str) -> None:
        super().__init__(client, prefix=prefix, path=path)
        self._prefix = prefix
        self._kept = kept_at(prefix, path)

    def find(self) -> None:
        """Return None: there are no records."""

    def put(self, flag: str | None) -> Moved:  # noqa: ARG002
        try:
            self._rename(self._path, self._kept)
        except FileNotFoundError:
            if self.settle():
                return self._answer(Outcome.ALREADY, "this sweep has already removed it")
            return self._answer(Outcome.VANISHED, "it does not exist")
        except FileExistsError:
            if self._client.status(self._path) is None:
                return self._answer(Outcome.ALREADY, "this sweep has already removed it")
            reason = "this sweep has already removed another one; the present one came later"
            return self._answer(Outcome.CHANGED, reason)
        except PermissionError as exc:
            return self._answer(Outcome.REFUSED, f"this user lacks the permission ({exc.strerror})")
        return self._answer(Outcome.MOVED, None)

    def keep(self, flag: str | None) -> Moved:  # noqa: ARG002
        if self.settle():
            return self._answer(Outcome.ALREADY, "this sweep has one already")
        before = list_objects(self._client, self._path)
        if not before.exists:
            return self._answer(Outcome.VANISHED, "it does not exist")
        draft = f"{self._prefix}/draft-{uuid4().hex}"
        for name in before.files:
            self._client.copy(key_of(self._path, name), key_of(draft, name), None)
        if list_objects(self._client, self._path) != before:
            self._client.remove_tree(draft)
            return self._answer(Outcome.CHANGED, "it changed while it was copied")
        self._rename(draft, self._kept)
        return self._answer(Outcome.MOVED, None)

    def restore(self) -> Moved:
        try:
            self._rename(self._kept, self._path)
        except FileNotFoundError:
            return self._answer(Outcome.LOST, "it is not in the trash")
        except FileExistsError:
            return self._answer(Outcome.OCCUPIED, "something else is in its place")
        except PermissionError as exc:
            return self._answer(Outcome.REFUSED, f"this user lacks the permission ({exc.strerror})")
        return self._answer(Outcome.MOVED, None)

    def settle(self) -> bool:
        """Return whether the trash has the instance; a rename is never half done."""
        return self._client.status(self._kept) is not None

    def _rename(self, key: str, to: str) -> None:
        """Rename a tree; make the missing parents like those from which it comes."""
        try:
            self._client.move(key, to)
        except FileNotFoundError:
            if self._client.status(key) is None:
                raise
            above = to.rpartition("/")[0]
            self._make(above, key.rpartition("/")[0], self._path.count("/"))
            self._client.move(key, to)

    def _make(self, folder: str, like: str, mirrored: int) -> None:
        """Create a folder and its parents; its last `mirrored` parts are also those of `like`."""
        if not folder or self._client.status(folder) is not None:
            return
        self._make(folder.rpartition("/")[0], like.rpartition("/")[0], mirrored - 1)
        self._client.make_folder(folder, like=self._client.status(like) if mirrored > 0 else None)


class HdfsTrash(ObjectTrash):
    """The trash of a store on HDFS."""

    _client: HdfsClient

    @contextmanager
    def reading(self, sweep: str, path: str) -> Iterator[Kept]:
        kept = kept_at(self._prefix(sweep), parse_path(self.store.root_url, path))
        with self.store._translated(""):
            found = list_objects(self._client, kept)
            if not found.exists:
                raise InstanceNotFoundError(store=self.store.root_url, path=path)
            yield [*found.files], lambda name: self._client.chunks(key_of(kept, name))

    def purge(self, sweep: str) -> Purged:
        purging = f"{_PURGING}/{parse_token(self.store.root_url, sweep)}"
        with self.store._translated(""):
            files = self._client.remove_tree(purging)
            if self._client.status(self._prefix(sweep)) is not None:
                try:
                    self._client.make_folder(_PURGING)
                    self._client.move(self._prefix(sweep), purging)
                except OSError as exc:
                    if exc.errno != errno.EDQUOT:
                        raise
                    purging = self._prefix(sweep)  # what is to make room needs none
                files += self._client.remove_tree(purging)
        return Purged(sweep=sweep, files=files, is_complete=True)

    def sweeps(self) -> list[str]:
        with self.store._translated(""):
            return sorted({name for area in (_AREA, _PURGING) for name in self._client.children(area).folders})

    def contents(self, sweep: str) -> Iterator[str]:
        trees = f"{self._prefix(sweep)}/tree"
        with self.store._translated(""):
            for depth in self._client.children(trees).folders:
                for found in walk_keys(self._client, f"{trees}/{depth}", int(depth), lambda _, names: names):
                    yield from (found.folder + name for name in found.names)

    def holds(self, sweep: str, path: str) -> bool:
        plain = self._plain(path)
        with self.store._translated(""):
            return isinstance(plain, str) and self._trash_move(sweep, plain).settle()

    def _remove_empty(self, folder: str) -> bool | None:
        with self.store._translated(""):
            try:
                return self._client.remove_folder(folder) or None
            except OSError as exc:
                if exc.errno not in _STAYS:
                    raise
        return False

    def _trash_move(self, sweep: str, plain: str) -> HdfsMove:
        return HdfsMove(self._client, prefix=self._prefix(sweep), path=plain)

    def _is_purging(self, sweep: str) -> bool:
        self._prefix(sweep)
        return False


def kept_at(prefix: str, path: str) -> str:
    """Return where the sweep with this folder keeps an instance.

    >>> kept_at(".feed-assets/trash/sweep-1", "weather/2013/11")
    '.feed-assets/trash/sweep-1/tree/3/weather/2013/11'
    """
    return f"{prefix}/tree/{path.count('/') + 1}/{path}"
