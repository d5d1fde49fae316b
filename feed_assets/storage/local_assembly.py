"""Copies put together on a local filesystem: written by descriptor, journalled, adopted by hard links, exchanged.

The staging is a slot whose `slot.json` also has the inode of `data`, which tells where that stands after a crash, and
the number of the process that took it over; every writer holds a shared lock on it.
"""
# System calls on text and descriptors: half of them have no pathlib form, and this is a hot path.
# ruff: noqa: PTH102, PTH103, PTH110, PTH120, PTH208

import errno
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from feed_assets.storage.copy_port import Assembly, Prepared, Stored, Written
from feed_assets.storage.errors import InstanceChangingError, InstanceNotFoundError, StagingLostError, StorageError
from feed_assets.storage.local_files import (
    clone_file,
    is_at,
    iter_files,
    iter_names,
    parents,
    splice_file,
    start_writing,
    take_all_rights,
    write_all,
    write_file,
)
from feed_assets.storage.local_journal import LocalJournal
from feed_assets.storage.local_reading import read_chunks, read_whole
from feed_assets.storage.local_refusals import Refuse, Translated
from feed_assets.storage.local_slot import Slot
from feed_assets.storage.local_tree import make_directories
from feed_assets.storage.local_turns import find_turn, join_writers, take_first, take_over
from feed_assets.storage.manifests import render_manifest
from feed_assets.storage.paths import MANIFEST_NAME, PUBLISHING_NAME
from feed_assets.storage.records import Guard

_TRIES = 3
_NOT_EMPTY = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT})
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
_OLD = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_GRAIN = 1 << 16
_STORED = Stored()

Swap = Callable[[str, Slot, Guard], None]


class LocalAssembly(Assembly):
    """A slot below the root. `target` is the absolute path of the instance; `check` refuses it if it is outside."""

    can_splice = True

    def __init__(
        self,
        path: str,
        token: str,
        slot: Slot,
        target: str,
        store: str,
        check: Callable[[], None],
        swap: Swap,
        refuse: Refuse,
    ) -> None:
        self.path = path
        self.token = token
        self.slot = slot
        self.target = target
        self._store = store
        self._check = check
        self._swap = swap
        self._refuse = refuse
        self._lock: int | None = None
        self._folder: int | None = None
        self._journal = LocalJournal(slot.folder)
        self._made = {""}
        self._is_published = False

    def open(self, files: Collection[str] = (), *, is_vacant: bool = False) -> int:  # noqa: ARG002 - all is staged
        number, lock = self._open()
        os.close(lock)
        return number

    def seal(self) -> None:
        _, self._lock = self._open()

    def join(self, number: int) -> None:
        with self._translated():
            try:
                self._lock = join_writers(self.slot.sign, number)
            except FileNotFoundError:
                raise self._lost() from None

    def close(self) -> None:
        self._journal.close()
        for descriptor in (self._folder, self._lock):
            if descriptor is not None:
                os.close(descriptor)
        self._folder = self._lock = None
        self._made = {""}

    def journal(self) -> list[Written]:
        with self._translated():
            # A file with another link stands at the target, too: an earlier try has adopted it.
            sizes = {path: seen.st_size for path, seen in iter_files(self._data()) if seen.st_nlink == 1}
            found = {(note.file, note.offset, note.sign): note for note in self._journal.read()}
        return [note for note in found.values() if sizes.get(note.file, -1) >= note.offset + note.size]

    def note(self, written: Sequence[Written]) -> None:
        with self._translated():
            self._journal.note(written)

    def grain(self, size: int) -> int:
        return min(_GRAIN, max(size, 1))

    def put(self, file: str, data: bytes) -> Stored:
        try:
            descriptor = self._create(file)
            try:
                write_all(descriptor, data)
            finally:
                os.close(descriptor)
        except OSError as exc:
            raise self._refuse(f"{self.path}/{file}", exc) from exc
        return _STORED

    def begin(self, file: str, size: int) -> None:
        with self._translated(file):
            descriptor = self._create(file)
            try:
                os.ftruncate(descriptor, size)
            finally:
                os.close(descriptor)

    def write(self, file: str, size: int, offset: int, chunks: Iterable[bytes | memoryview]) -> None:
        with self._translated(file), self._writing(file) as descriptor:
            os.lseek(descriptor, offset, os.SEEK_SET)
            for chunk in chunks:
                write_all(descriptor, chunk)
            end = os.lseek(descriptor, 0, os.SEEK_CUR)
            if end > size:
                raise OSError(errno.EFBIG, f"more came than {size:,} bytes", file)
            start_writing(descriptor, offset, end - offset)

    def splice(self, file: str, offset: int, length: int, descriptor: int) -> int:
        with self._translated(file), self._writing(file) as own:
            count = splice_file(descriptor, own, offset, length)
            start_writing(own, offset, count)
            return count

    def complete(self, file: str, size: int) -> None:
        with self._translated(file):
            found = os.stat(file, dir_fd=self._data(), follow_symlinks=False).st_size
        if found != size:
            raise StorageError(
                store=self._store,
                path=f"{self.path}/{file}",
                reason=f"{found:,} bytes of its copy are there instead of {size:,}",
                next_step="Copy it again.",
            )

    def read(self, file: str, size: int) -> bytes:
        descriptor = self._open_staged(file)
        try:
            return read_whole(descriptor, size)
        except OSError as exc:
            raise self._refuse(f"{self.path}/{file}", exc) from exc
        finally:
            os.close(descriptor)

    def find_unlike(self, files: Mapping[str, bytes]) -> set[str]:
        unlike = set()
        with self._translated():
            folder = self._data()
        for file, data in files.items():  # many, so this is short
            try:
                descriptor = os.open(file, _OLD, dir_fd=folder)
                try:
                    if os.read(descriptor, len(data) + 1) != data:
                        unlike.add(file)
                finally:
                    os.close(descriptor)
            except OSError:
                unlike.add(file)
        return unlike

    def chunks(self, file: str, offset: int, size: int) -> Iterator[bytes | memoryview]:
        descriptor = self._open_staged(file)
        try:
            yield from read_chunks(descriptor, offset, size)
        except OSError as exc:
            raise self._refuse(f"{self.path}/{file}", exc) from exc
        finally:
            os.close(descriptor)

    def drop(self, files: Collection[str]) -> None:
        with self._translated():
            self._journal.forget(files)
            for file in files:
                with suppress(FileNotFoundError, NotADirectoryError):
                    os.unlink(file, dir_fd=self._data())

    def standing(self) -> dict[str, int]:
        """The files of what stands at the path now, with their sizes."""
        with self._translated(), self._standing() as folder:
            if folder is None:
                self._check()
                return {}
            found = {path: seen.st_size for path, seen in iter_files(folder)}
        return {path: size for path, size in found.items() if path not in (MANIFEST_NAME, PUBLISHING_NAME)}

    def adopt(self, files: Collection[str]) -> None:
        if not files:
            return
        with self._translated(), self._standing() as folder:
            if folder is None:
                raise FileNotFoundError(2, os.strerror(2), self.target)
            data = self._data()
            for file in files:
                self._make_parents(file)
                try:
                    clone_file(folder, data, file)
                except FileExistsError:  # an earlier try has left it
                    os.unlink(file, dir_fd=data)
                    clone_file(folder, data, file)

    def dress(self, file: str, modified: int | None, mode: int | None) -> None:
        with self._translated(file):
            if mode is not None:
                os.chmod(file, mode, dir_fd=self._data())
            if modified is not None:
                os.utime(file, ns=(modified, modified), dir_fd=self._data(), follow_symlinks=False)

    def prepare(self, prepared: Prepared) -> None:
        meant = {entry.path: entry.size for entry in (*prepared.manifest.entries, *prepared.hidden)}
        with self._translated():
            data = self._data()
            found = set(os.listdir(data))
            if not found <= prepared.checked:  # what was read back are files; here may be directories, too
                found = set(iter_names(data))
            for path in meant.keys() - (found & prepared.checked):
                there = os.stat(path, dir_fd=data, follow_symlinks=False).st_size if path in found else "no"
                if there != meant[path]:
                    reason = f"the copy of {path!r} has {there} bytes instead of {meant[path]:,}"
                    raise StorageError(
                        store=self._store, path=self.path, reason=reason, next_step="Copy the instance again."
                    )
            for path in found - meant.keys():
                os.unlink(path, dir_fd=data)
                self._remove_parents(path)
            for flag in prepared.flags:
                os.close(self._create(flag))
            write_file(f"{self.slot.data}/{MANIFEST_NAME}", render_manifest(prepared.manifest))
            with self._standing() as folder:
                if folder is not None:
                    take_all_rights(folder, data)

    def publish(self, guard: Guard) -> None:
        with self._translated():
            self._check()
            make_directories(os.path.dirname(self.target))
        self._swap(self.path, self.slot, guard)
        self._is_published = True

    def touched(self) -> Iterator[str]:
        """The files and directories that have to be flushed: of the staging, or of the publication that followed."""
        if self._is_published:
            yield from (os.path.dirname(self.target), self.slot.folder)
            return
        data = self.slot.data
        folders = {data}
        for path, seen in iter_files(self._data()):
            if seen.st_nlink == 1:
                yield f"{data}/{path}"
            folders.update(f"{data}/{parent}" for parent in parents(path))
        yield from sorted(folders)
        yield from (self.slot.sign, self.slot.folder, os.path.dirname(self.slot.folder))

    def remove(self) -> None:
        self.close()
        with self._translated():
            self.slot.remove()

    def _open(self) -> tuple[int, int]:
        """Make the slot or take it over; its number, and the descriptor that holds its lock."""
        with self._translated(), suppress(TimeoutError):
            for _ in range(_TRIES):
                with suppress(FileNotFoundError, FileExistsError):
                    if self._is_open():
                        return take_over(self.slot.sign)
                    return self._make()
        raise self._busy()

    def _is_open(self) -> bool:
        """Whether there is a slot to go on with; what an ended publication has left is removed."""
        turn = find_turn(self.slot.sign)
        if turn is None and not os.path.exists(self.slot.folder):
            return False
        with suppress(FileNotFoundError):
            if turn is not None and (turn.path, turn.inode) == (self.path, os.lstat(self.slot.data).st_ino):
                return True
        self.slot.remove()
        return False

    def _make(self) -> tuple[int, int]:
        above = os.path.dirname(self.slot.folder)
        try:
            os.mkdir(above)
        except FileNotFoundError:
            os.makedirs(above, exist_ok=True)
        except FileExistsError:
            pass
        os.mkdir(self.slot.folder)
        os.mkdir(self.slot.data)
        return take_first(self.slot.sign, self.path, os.lstat(self.slot.data).st_ino)

    def _data(self) -> int:
        if self._folder is None:
            try:
                self._folder = os.open(self.slot.data, _FOLDER)
            except FileNotFoundError:
                raise self._lost() from None
        return self._folder

    def _open_staged(self, file: str) -> int:
        try:
            return os.open(file, _OLD, dir_fd=self._data())
        except (FileNotFoundError, NotADirectoryError):
            raise InstanceNotFoundError(store=self._store, path=f"{self.path}/{file}") from None
        except OSError as exc:
            raise self._refuse(f"{self.path}/{file}", exc) from exc

    def _create(self, file: str) -> int:
        """Make an empty file, in place of one that is there: who has that one open writes nowhere."""
        for _ in range(3):
            try:
                return os.open(file, _NEW, 0o666, dir_fd=self._data())
            except FileNotFoundError:
                self._make_parents(file)
            except FileExistsError:
                os.unlink(file, dir_fd=self._data())
        return os.open(file, _NEW, 0o666, dir_fd=self._data())

    def _make_parents(self, file: str) -> None:
        parent = file.rpartition("/")[0]
        if parent in self._made:
            return
        parts = parent.split("/")
        for count in range(1, len(parts) + 1):
            with suppress(FileExistsError):
                os.mkdir("/".join(parts[:count]), dir_fd=self._data())
        self._made.add(parent)

    def _remove_parents(self, file: str) -> None:
        """Remove the directories of a file that is gone, as far as they are empty."""
        for parent in parents(file):
            try:
                os.rmdir(parent, dir_fd=self._data())
            except OSError as exc:
                if exc.errno not in _NOT_EMPTY:
                    raise
                return
            self._made.discard(parent)

    @contextmanager
    def _writing(self, file: str) -> Iterator[int]:
        descriptor = os.open(file, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=self._data())
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def _standing(self) -> Iterator[int | None]:
        try:
            folder = os.open(self.target, _FOLDER)
        except FileNotFoundError:
            yield None
            return
        try:
            if not is_at(folder, self.target):
                self._check()
            yield folder
        finally:
            os.close(folder)

    def _busy(self) -> InstanceChangingError:
        reason = "another process still works on the same copy of it"
        return InstanceChangingError(store=self._store, path=self.path, reason=reason)

    def _lost(self) -> StagingLostError:
        return StagingLostError(store=self._store, path=self.path, token=self.token)

    def _translated(self, file: str = "") -> Translated:
        return Translated(self._refuse, f"{self.path}/{file}" if file else self.path)
