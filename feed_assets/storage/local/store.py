"""Implement the store for a local or mounted filesystem.

An instance is replaced by a staged directory: in one exchange, or by two renames that a later process can finish. If
the system cannot exchange directories, the old instance is renamed away and the staged directory is renamed to its
path. A record file exists while these two renames are in progress.
"""
# System calls on text and descriptors: half of them have no pathlib form, and `look` is a hot path.
# ruff: noqa: PTH100, PTH104, PTH108, PTH110, PTH112, PTH114, PTH119, PTH120, PTH123

import ctypes
import errno
import fcntl
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from errno import EACCES, ENOTDIR
from functools import partial
from itertools import islice
from pathlib import Path
from typing import assert_never
from uuid import uuid4

from feed_assets.storage.checksums import checksum_of
from feed_assets.storage.clearing import clearing_guard
from feed_assets.storage.copy_port import Documents, Reading, Snapshots, Staging
from feed_assets.storage.deliveries import WRITTEN, DeliveredFile, Deliveries
from feed_assets.storage.errors import (
    InstanceChangingError,
    InstanceNotFoundError,
    PathRefusedError,
    PlaceOccupiedError,
    Refuse,
    StagingLostError,
    StorageError,
    Translated,
)
from feed_assets.storage.listing import NOTHING, Entry, Listing, View
from feed_assets.storage.local.calls import OBSTACLES, LocalCalls, find_mounts, is_network, load_function, touches_mount
from feed_assets.storage.local.documents import LocalDocuments, LocalSnapshots
from feed_assets.storage.local.files import Follow, entry_of, opened, read_chunks
from feed_assets.storage.local.reader import FILE, LocalReader, LocalReading
from feed_assets.storage.local.staging import LocalStaging, StagingState, find_header, remove_staging
from feed_assets.storage.local.trash import LocalTrash
from feed_assets.storage.local.tree import flush_file, list_directory, make_directories, newest_change, write_flushed
from feed_assets.storage.local.walk import LocalMeasure, open_measure, walk_below
from feed_assets.storage.paths import (
    CONTROL_FOLDER,
    SINGLE_FILE,
    parse_flag,
    parse_path,
    parse_token,
    path_name,
)
from feed_assets.storage.port import Choose, FolderNames, InstanceStore, Trash
from feed_assets.storage.records import Clearing, Extra, Guard, Manifest, StagingPlace
from feed_assets.storage.scratch import keep_files

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_NO_EXCHANGE = frozenset({errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP})
_OCCUPIED = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EISDIR})
_TRIES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """The exchange of `data` in a staging `folder` with `target`; `record` is the record file of two renames."""

    folder: str
    target: str
    record: str

    @property
    def data(self) -> str:
        return f"{self.folder}/data"

    @property
    def old(self) -> str:
        """The path of the old instance between and after two renames."""
        return f"{self.folder}/old"

    def run(self, *, flush: bool) -> None:
        """Move the staged directory to the target; the old instance, if any, is in the staging afterwards.

        Without `flush` the caller must flush the renames to disk.
        """
        for _ in range(_TRIES):
            try:
                os.rename(self.data, self.target)
                break
            except FileNotFoundError:  # a sweep removed the empty parents
                if not os.path.lexists(self.data):
                    raise
                make_directories(os.path.dirname(self.target))
                continue
            except OSError as exc:
                if exc.errno not in _OCCUPIED:
                    raise
            try:
                if not exchange(self.data, self.target):
                    self._rename_twice()
                break
            except FileNotFoundError:
                if not os.path.lexists(self.data):
                    raise
        else:
            raise OSError(errno.EBUSY, "another program keeps making and removing the instance", self.target)
        if flush:
            flush_file(os.path.dirname(self.target))
            flush_file(self.folder)

    def finish(self) -> None:
        """Finish two interrupted renames, or restore the old instance."""
        if not os.path.lexists(self.target):
            os.rename(self.data if os.path.lexists(self.data) else self.old, self.target)
            flush_file(os.path.dirname(self.target))
        os.unlink(self.record)

    def _rename_twice(self) -> None:
        make_directories(os.path.dirname(self.record))
        token = os.path.basename(os.path.dirname(self.folder))
        write_flushed(self.record, json.dumps({"version": 1, "token": token}).encode())
        flush_file(os.path.dirname(self.record))
        os.rename(self.target, self.old)
        flush_file(self.folder)
        os.rename(self.data, self.target)
        flush_file(os.path.dirname(self.target))
        os.unlink(self.record)


def find_token(record: str) -> str | None:
    """Return the token of the staging that a record file names; None if there is no record.

    A half-written record is removed: it is on disk before the first rename, so nothing was renamed.
    """
    try:
        with open(record, "rb") as stream:
            return str(json.load(stream)["token"])
    except FileNotFoundError:
        return None
    except ValueError:
        os.unlink(record)
        return None


def exchange(one: str, other: str) -> bool:
    """Exchange two existing paths of one filesystem atomically; return False if system or filesystem cannot."""
    renameat2 = load_function("renameat2")
    if renameat2 is None:
        return False
    if renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _NO_EXCHANGE:
        return False
    raise OSError(number, os.strerror(number), one, None, other)


_WORTH_FLUSHING_ALL = 64


class LocalStore(InstanceStore):
    """The instances below a directory of this machine; the first staging creates the directory."""

    spark_scheme = "file"

    def __init__(self, root: str | Path, calls: LocalCalls | None = None) -> None:
        self._calls = calls or LocalCalls()
        self._root = os.path.abspath(root).rstrip("/")
        self._control = f"{self._root}/{CONTROL_FOLDER}"
        self.root_url = f"file://{self._root or '/'}"
        self._reader = LocalReader(self._root, self.root_url, self._refused)

    def check_root(self) -> None:
        place = Path(self._root or "/")
        with self._translated(""):
            while not place.exists():
                place = place.parent
            if not place.is_dir():
                raise NotADirectoryError(ENOTDIR, os.strerror(ENOTDIR), str(place))
            if not os.access(place, os.R_OK | os.W_OK | os.X_OK):
                raise PermissionError(EACCES, os.strerror(EACCES), str(place))

    def listings(
        self, paths: Sequence[str], view: View, names: Sequence[str] = (), *, manifest: int = 0
    ) -> Iterator[Listing]:
        if view is View.WHOLE:
            with self._translated(""), open_measure(self._calls, self._root) as measuring:
                for path in paths:
                    yield self._list_tree(measuring, path)
            return
        inside: set[str] = set()
        for path in paths:
            try:
                if view is View.STANDING:
                    self.recover(path)
                listing = self._reader.list(path, view, names, inside, manifest=manifest)
            except StorageError as exc:
                listing = Listing(obstacle=exc)
            except OSError as exc:
                listing = Listing(obstacle=self._refused(path, exc))
            yield listing

    @contextmanager
    def reading(self, path: str) -> Iterator[Reading]:
        with self._translated(path):
            target = self._reader.target(path)
            try:
                try:
                    folder = self._reader.open(path)
                except NotADirectoryError:
                    self._reader.check_inside(path, target)
                    folder = os.open(target, FILE)
            except FileNotFoundError:  # at once, or when it was to be opened as a file
                raise InstanceNotFoundError(store=self.root_url, path=path) from None
            try:
                yield LocalReading(folder, path, self._reader)
            finally:
                os.close(folder)

    def staging_url(self, path: str, token: str) -> str:
        return f"file://{self._staging(path, token).folder}/data"

    def staged_files(self, path: str, token: str) -> Mapping[str, int]:
        folder = Path(self._staging(path, token).folder, "data")
        with self._translated(path):
            return {
                file.relative_to(folder).as_posix(): file.stat().st_size for file in folder.rglob("*") if file.is_file()
            }

    def keep_staged(self, path: str, token: str, names: Mapping[str, str]) -> None:
        with self._translated(path):
            keep_files(Path(self._staging(path, token).folder, "data"), names)

    def publish(
        self, staging: StagingPlace, *, flag: str | None, guard: Guard, extra: Extra, clearing: Clearing | None = None
    ) -> Manifest:
        flag = parse_flag(self.root_url, flag)
        own = self._staging(staging.path, staging.token)
        path = own.path
        with self._translated(path):
            self._reader.check_inside(path, os.path.dirname(own.target))
            with self._locked(path):
                self._finish_swap(path)
                state = own.state()
                published = self.published_manifest(path) if state is StagingState.SWAPPED else None
        match state:
            case StagingState.LOST:
                raise StagingLostError(store=self.root_url, path=path, token=own.token)
            case StagingState.SWAPPED if published is not None:
                manifest = published
            case StagingState.SWAPPED | StagingState.STAGED:
                with self._translated(path):
                    manifest = own.complete(flag, extra, self._refuse_links(path))
                own.publish(clearing_guard(self, path, own.token, flag, guard, clearing))
            case never:
                assert_never(never)
        own.remove()
        return manifest

    def discard(self, staging: StagingPlace) -> None:
        own = self._staging(staging.path, staging.token)
        if not os.path.exists(own.folder):
            return
        with self._translated(own.path), self._locked(own.path):
            self._finish_swap(own.path)
            own.remove()

    def recover(self, path: str) -> bool:
        path = parse_path(self.root_url, path)
        if not os.path.exists(self._record(path)):
            return False
        with self._translated(path), self._locked(path):
            return self._finish_swap(path)

    def sweep_staging(self, older_than: datetime) -> int:
        limit = int(older_than.timestamp() * 1_000_000_000)
        staging = f"{self._control}/staging"
        with self._translated(CONTROL_FOLDER):
            folders = [
                f"{staging}/{token}/{name}"
                for token in list_directory(staging)
                for name in list_directory(f"{staging}/{token}")
            ]
            return sum(self._sweep(folder, limit) for folder in folders)

    def walk_folders(self, base: str, depth: int, choose: Choose) -> Iterator[FolderNames]:
        plain = parse_path(self.root_url, base) if base.strip("/") else ""
        with self._translated(base), ExitStack() as stack:
            try:
                folder = stack.enter_context(self._calls.opened_below(self._root, plain))
            except FileNotFoundError:
                return
            except OSError as exc:
                if exc.errno in OBSTACLES:
                    raise PathRefusedError(store=self.root_url, path=base, reason=OBSTACLES[exc.errno]) from exc
                raise
            yield from walk_below(self._calls, folder, depth, choose, f"{plain}/" if plain else "")

    def trash(self) -> Trash:
        return LocalTrash(self, self._root, self._calls)

    def documents(self, folder: str, suffix: str, about: str = "") -> Documents:
        whole = f"{CONTROL_FOLDER}/{folder}"
        return LocalDocuments(self._root, self._calls, self.root_url, whole, suffix, self._translated(about or whole))

    @property
    def is_remote(self) -> bool:
        return is_network(self._root)

    def require_root(self) -> None:
        if not os.path.isdir(self._root or "/"):
            raise StorageError(
                store=self.root_url,
                path="",
                reason="the root is not there",
                next_step="Mount the storage, or correct the cluster's address; nothing is taken for deleted.",
            )

    def staging(self, path: str, token: str) -> Staging:
        self.recover(path)
        return self._staging(path, token, is_copy=True)

    def find_obstacle(self, path: str) -> str | None:
        plain, target = parse_path(self.root_url, path), self._reader.target(path)
        with self._translated(path):
            if os.path.islink(target):
                return "it is a symbolic link"
            if os.path.lexists(target) and not os.path.isdir(target):
                return "it is no directory"
            mounts = find_mounts(self._root)
        return "something is mounted on it, in it or around it" if touches_mount(plain, mounts) else None

    def snapshots(self, path: str, shelf: str) -> Snapshots:
        documents = self._shelf(path, shelf)
        assert isinstance(documents, LocalDocuments)
        return LocalSnapshots(documents, self.root_url, path, self._reader.target(path))

    def flush(self, stagings: Sequence[Staging]) -> None:
        """Flush the staged and the swapped files, or the whole filesystem at once if there are many."""
        local = [each for each in stagings if isinstance(each, LocalStaging)]
        with self._translated(""):
            touched = list(islice((path for each in local for path in each.touched()), _WORTH_FLUSHING_ALL + 1))
            if len(touched) <= _WORTH_FLUSHING_ALL:
                for path in touched:
                    flush_file(path)
                return
            with self._calls.opened_below(self._root, "") as folder:
                self._calls.flush_all(folder)

    def deliveries(self, folder: str) -> Deliveries:
        return LocalDeliveries(self._root, parse_path(self.root_url, folder), self._calls, self._refused)

    def url(self, path: str) -> str:
        return f"file://{self._reader.target(path)}"

    def local_path(self, path: str) -> Path | None:
        return Path(self._reader.target(path))

    def _list_tree(self, measuring: LocalMeasure | None, path: str) -> Listing:
        """List a tree as a removal would move it."""
        try:
            plain = parse_path(self.root_url, path)
        except PathRefusedError as exc:
            return Listing(exists=False, obstacle=exc)
        tree = None if measuring is None else measuring.find(plain)
        if tree is None:
            return NOTHING
        obstacle = tree.obstacle and PathRefusedError(store=self.root_url, path=path, reason=tree.obstacle)
        return Listing(
            entries=tree.entries,
            obstacle=obstacle or None,
            others=tuple(tree.others),
            folders=tuple(tree.folders),
        )

    def _staging(self, path: str, token: str, *, is_copy: bool = False) -> LocalStaging:
        plain = parse_path(self.root_url, path)
        folder = self._staging_folder(plain, parse_token(self.root_url, token))
        return LocalStaging(plain, token, folder, self._reader, partial(self._swap, is_copy=is_copy))

    def _staging_folder(self, path: str, token: str) -> str:
        return f"{self._control}/staging/{token}/{path_name(path)}"

    def _swap(self, staging: LocalStaging, guard: Guard, *, is_copy: bool) -> None:
        """Publish a prepared staging. A copy is not flushed here, and its staging stays if the guard raises."""
        path = staging.path
        with ExitStack() as stack:
            with self._translated(path):
                stack.enter_context(self._locked(path))
                self._finish_swap(path)
            with ExitStack() as forbidden:
                if not is_copy:
                    forbidden.callback(staging.remove)
                guard()
                forbidden.pop_all()
            with self._translated(path):
                if staging.is_exact:
                    self._move_in(staging)
                else:
                    self._exchange(path, staging.folder).run(flush=not is_copy)

    def _move_in(self, staging: LocalStaging) -> None:
        """Move an exact copy to its path if nothing is there, and no link and no mount on the way."""
        (parent, _, name), folder = staging.path.rpartition("/"), staging.folder.removeprefix(f"{self._root}/")
        with ExitStack() as stack:
            root = self._calls.open_root(self._root)
            stack.callback(self._calls.close, root)
            try:
                to_folder = stack.enter_context(self._calls.opened(root, parent))
                staged = stack.enter_context(self._calls.opened(root, folder))
                data = stack.enter_context(self._calls.opened(staged, "data"))
                if self._calls.find(data, SINGLE_FILE) is None:
                    self._calls.move(staged, "data", to_folder, name)
                else:
                    self._calls.move(data, SINGLE_FILE, to_folder, name)
            except FileExistsError:
                raise PlaceOccupiedError(store=self.root_url, path=staging.path) from None
            except OSError as exc:
                if exc.errno not in OBSTACLES:
                    raise
                raise PathRefusedError(store=self.root_url, path=staging.path, reason=OBSTACLES[exc.errno]) from exc

    def _exchange(self, path: str, folder: str) -> Exchange:
        return Exchange(folder=folder, target=self._reader.target(path), record=self._record(path))

    def _record(self, path: str) -> str:
        return f"{self._control}/swaps/{path_name(path)}.json"

    def _finish_swap(self, path: str) -> bool:
        """Finish an interrupted exchange; return whether there was a record of one."""
        if not os.path.exists(record := self._record(path)):
            return False
        if (token := find_token(record)) is not None:
            self._exchange(path, self._staging_folder(path, token)).finish()
        return True

    def _sweep(self, folder: str, limit: int) -> bool:
        header = find_header(folder)
        if header is not None:
            self.recover(header.path)
        with self._locked(folder if header is None else header.path):
            if newest_change(folder) >= limit:
                return False
            remove_staging(folder)
            return True

    def _refuse_links(self, path: str) -> Follow:
        def follow(file: str) -> os.stat_result | None:
            raise PathRefusedError(
                store=self.root_url, path=f"{path}/{file}", reason="a symbolic link cannot be published"
            )

        return follow

    @contextmanager
    def _locked(self, path: str) -> Iterator[None]:
        """Hold the lock that serializes the swaps of a path; all paths share 256 locks."""
        folder = f"{self._control}/locks"
        make_directories(folder)
        with opened(f"{folder}/{path_name(path)[:2]}", os.O_RDONLY | os.O_CREAT) as descriptor:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield


_ASIDE = re.compile(r"\.feed-assets\.[0-9a-f]{8}\.(.+)", re.DOTALL)  # ".feed-assets.0123abcd.orders.json"
_IN_USE = (FileNotFoundError, FileExistsError)


class LocalDeliveries(Deliveries):
    """A folder below a root. Each removal has hidden names of its own, so that it never meets those of another one."""

    def __init__(self, root: str, folder: str, calls: LocalCalls, refuse: Refuse) -> None:
        self._root = root
        self._folder = folder
        self._calls = calls
        self._refuse = refuse

    def find(self) -> list[Entry]:
        with self._opened() as (folder, names):
            seen = {name: found for name in names if (found := self._calls.find(folder, name)) is not None}
            return [entry_of(name, found) for name, found in seen.items() if stat.S_ISREG(found.st_mode)]

    def chunks(self, name: str, version: str) -> Iterator[bytes | memoryview]:
        path = f"{self._folder}/{name}"
        changing = InstanceChangingError(store=f"file://{self._root}", path=path, reason=WRITTEN)
        with Translated(self._refuse, path), ExitStack() as stack:
            try:
                folder = stack.enter_context(self._calls.opened_below(self._root, self._folder))
                file = stack.enter_context(opened(name, FILE | os.O_NOFOLLOW, folder))
            except OSError as exc:
                raise changing if exc.errno in (errno.ENOENT, errno.ELOOP) else exc from None
            if entry_of("", os.fstat(file)).version != version:
                raise changing
            yield from read_chunks(file)
            if entry_of("", os.fstat(file)).version != version:
                raise changing

    def put_back(self) -> None:
        with self._opened() as (folder, names):
            for found in filter(None, map(_ASIDE.fullmatch, names)):
                with suppress(*_IN_USE):
                    self._calls.move(folder, found[0], folder, found[1])

    def remove(self, files: Sequence[DeliveredFile]) -> dict[str, str]:
        token = uuid4().hex[:8]
        with self._opened() as (folder, names):
            known = frozenset(names)
            there = [file for file in files if file.name in known]
            reasons = [self._remove(folder, file, f".feed-assets.{token}.{file.name}") for file in there]
        return {file.name: reason for file, reason in zip(there, reasons, strict=True) if reason is not None}

    def _remove(self, folder: int, file: DeliveredFile, aside: str) -> str | None:
        """Remove a file if it is the one that was read; return what keeps it from getting another name."""
        try:
            self._calls.move(folder, file.name, folder, aside)
        except OSError as exc:
            if exc.errno not in OBSTACLES and not isinstance(exc, FileNotFoundError):
                raise
            return OBSTACLES.get(exc.errno or 0)
        with suppress(*_IN_USE):
            if self._is_same(folder, file, aside):
                self._calls.remove_file(folder, aside)
            else:
                self._calls.move(folder, aside, folder, file.name)
        return None

    def _is_same(self, folder: int, file: DeliveredFile, aside: str) -> bool:
        found = self._calls.find(folder, aside)
        if found is None or not stat.S_ISREG(found.st_mode) or found.st_size != file.size:
            return False
        with opened(aside, os.O_RDONLY | os.O_NOFOLLOW, folder) as descriptor:
            return checksum_of(read_chunks(descriptor)) == file.checksum

    @contextmanager
    def _opened(self) -> Iterator[tuple[int, list[str]]]:
        """Open the folder, and list its names in order; one that does not exist has none."""
        with Translated(self._refuse, self._folder), ExitStack() as stack:
            folder, names = -1, list[str]()
            with suppress(FileNotFoundError):
                folder = stack.enter_context(self._calls.opened_below(self._root, self._folder))
                names = sorted(self._calls.list_folder(folder))
            yield folder, names
