"""Copy instances to an archive: every file is read back and compared before the copy becomes visible."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Protocol

from feed_assets.storage.errors import InstanceNotFoundError, PathRefusedError, StorageError
from feed_assets.storage.manifests import SupportsWrite, read_entry
from feed_assets.storage.paths import path_name
from feed_assets.storage.port import InstanceStore
from feed_assets.storage.records import ManifestEntry, Moved, Outcome, Purged

_THREADS = 8


class Intake(Protocol):
    """A hidden place of a store in which copies become whole; from there they are restored as from a trash."""

    def fill(self, token: str, to_path: str, copied: "Copied", flag: str | None) -> None:
        """Write a copy for `to_path` and check it against what was read. Nothing else is in the place of `token`."""

    def resume(self, token: str, to_path: str) -> None:
        """Finish what broke off while a copy was put in its place, where that is not done in a single step."""

    def restore(self, sweep: str, paths: Sequence[str]) -> list[Moved]: ...

    def purge(self, sweep: str) -> Purged: ...


class Copied:
    """An instance that is copied: `files` are all of it, relative to it, in order."""

    def __init__(self, store: InstanceStore, path: str) -> None:
        self.files = store.all_files(path)
        self._store = store
        self._path = path

    def read(self, file: str, copy: SupportsWrite | None = None) -> ManifestEntry:
        """Read one file to its end; `copy` is given every chunk."""
        with self._store.open(self._path, file) as stream:
            return read_entry(file, stream, copy)

    def read_all(self) -> list[ManifestEntry]:
        with ThreadPoolExecutor(_THREADS) as pool:
            return list(pool.map(self.read, self.files))


def receive_instance(
    store: InstanceStore, intake: Intake, source: InstanceStore, path: str, to_path: str, flag: str | None
) -> Moved:
    """Copy all of an instance of another store to a path of this one: see `Trash.receive`."""
    token = path_name(to_path)
    try:
        intake.resume(token, to_path)
    except PathRefusedError as exc:
        return Moved(path=to_path, outcome=Outcome.REFUSED, reason=exc.reason)
    before = source.measure([path])[0]
    there = store.measure([to_path])[0]
    for obstacle in (before.obstacle, there.obstacle):
        if obstacle is not None:
            return Moved(path=to_path, outcome=Outcome.REFUSED, reason=obstacle)
    try:
        copied = Copied(source, path)
        if there.exists:
            return _compare(copied, Copied(store, to_path), to_path)
        intake.purge(token)
        intake.fill(token, to_path, copied, flag)
        if source.measure([path])[0].fingerprint != before.fingerprint:
            return _changed(to_path)
        moved = intake.restore(token, [to_path])[0]
        if moved.outcome is Outcome.LOST and not copied.files:
            return Moved(path=to_path, outcome=Outcome.ALREADY, reason="an object store has no empty folders")
        return replace(moved, bytes=before.bytes, files=before.files) if moved.outcome is Outcome.MOVED else moved
    except InstanceNotFoundError:
        if before.exists:
            return _changed(to_path)
        return Moved(path=to_path, outcome=Outcome.VANISHED, reason="it does not exist")
    except PathRefusedError as exc:
        return Moved(path=to_path, outcome=Outcome.REFUSED, reason=exc.reason)
    finally:
        intake.purge(token)


def check_copy(store: str, path: str, read: ManifestEntry, written: ManifestEntry) -> None:
    """Raise `StorageError` unless what was written is what had been read."""
    if (read.size, read.checksum) != (written.size, written.checksum):
        raise StorageError(
            store=store,
            path=path,
            reason=f"the copy of {read.path!r} is not what was read",
            next_step="Check the storage for faults, and repeat.",
        )


def _compare(copied: Copied, there: Copied, to_path: str) -> Moved:
    if copied.files == there.files and copied.read_all() == there.read_all():
        return Moved(path=to_path, outcome=Outcome.ALREADY, reason="an equal copy already exists")
    return Moved(path=to_path, outcome=Outcome.OCCUPIED, reason="something else is in its place")


def _changed(to_path: str) -> Moved:
    return Moved(path=to_path, outcome=Outcome.CHANGED, reason="it changed while it was copied")
