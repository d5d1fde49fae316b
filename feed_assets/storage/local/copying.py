"""Use a local store as the source and target of copies: list it without reading, read it by descriptor."""
# System calls on text and descriptors: half of them have no pathlib form.
# ruff: noqa: PTH101, PTH102, PTH104, PTH105, PTH108, PTH112, PTH114, PTH123

import errno
import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice

from feed_assets.storage.copy_port import (
    SNAPSHOTS_FOLDER,
    SNAPSHOTS_SUFFIX,
    Copying,
    Reading,
    Snapshots,
    Staging,
    Standing,
    Survey,
    pack_manifest,
    unpack_manifest,
)
from feed_assets.storage.errors import (
    InstanceChangingError,
    InstanceNotFoundError,
    ManifestError,
    PathRefusedError,
    Refuse,
    StorageError,
    Translated,
)
from feed_assets.storage.listing import decide_availability, source_files
from feed_assets.storage.local.calls import LocalCalls, find_mounts, is_network, touches_mount
from feed_assets.storage.local.files import (
    NO_LINK,
    entry_of,
    is_wanted_content,
    iter_files,
    link_tree,
    opened,
    read_chunks,
)
from feed_assets.storage.local.reader import LocalReader
from feed_assets.storage.local.staging import LocalStaging
from feed_assets.storage.local.tree import flush_file, list_directory, make_directories, remove_tree, write_flushed
from feed_assets.storage.local.walk import open_measure
from feed_assets.storage.manifests import Publication, hidden_entries, parse_head, parse_manifest
from feed_assets.storage.paths import (
    CONTROL_FOLDER,
    MANIFEST_NAME,
    PUBLISHING_NAME,
    SINGLE_FILE,
    parse_flag,
    parse_path,
    parse_token,
    path_name,
)
from feed_assets.storage.records import Availability, Manifest, ManifestEntry

_WORTH_FLUSHING_ALL = 64
_TRIES = 3
_HEAD = 1 << 13
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
"""A pipe that has taken the place of a file has no content, and nobody waits for some."""
_PLAIN_FILE = _FILE | os.O_NOFOLLOW
_OWN = frozenset({MANIFEST_NAME, PUBLISHING_NAME})

OpenStaging = Callable[[str, str], LocalStaging]
"""Returns the staging of a path and a token."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class LocalCopying(Copying):
    """Copies from and to instances below a root. `recover` and `open_staging` are those of the store."""

    _root: str
    _root_url: str
    _calls: LocalCalls
    _reader: LocalReader
    _recover: Callable[[str], bool]
    _open_staging: OpenStaging
    _refuse: Refuse

    @property
    def is_remote(self) -> bool:
        return is_network(self._root)

    def require_root(self) -> None:
        if not os.path.isdir(self._root or "/"):
            raise StorageError(
                store=self._root_url,
                path="",
                reason="the root is not there",
                next_step="Mount the storage, or correct the cluster's address; nothing is taken for deleted.",
            )

    def survey(self, path: str, flag: str | None, now: int, *, everything: bool = False) -> Survey:
        with self._translated(path):
            flag = parse_flag(self._root_url, flag)
            survey = partial(self._survey_folder, path, flag=flag, now=now, everything=everything)
            try:
                return self._reader.hold(path, survey, _TRIES)
            except FileNotFoundError:
                return Survey(availability=Availability.MISSING)

    def survey_all(self, path: str, now: int) -> Survey:
        plain = parse_path(self._root_url, path)
        with self._translated(path), open_measure(self._calls, self._root) as measure:
            tree = None if measure is None else measure.find(plain)
        if tree is None:
            return Survey(availability=Availability.MISSING)
        if (reason := tree.find_uncopied()) is not None:
            raise PathRefusedError(store=self._root_url, path=path, reason=reason)
        found = [entry_of(file[1:] or SINGLE_FILE, seen) for file, seen in tree.files]
        return Survey(availability=Availability.AVAILABLE, files=source_files(found, {}, 0, now))

    def mark(self, path: str) -> str:
        with self._translated(path):
            target = self._reader.target(path)
            try:
                return _mark(os.lstat(target), os.lstat(f"{target}/{MANIFEST_NAME}"))
            except (FileNotFoundError, NotADirectoryError):
                return ""

    def standing(self, path: str) -> Standing:
        self._recover(path)
        return Standing(self.mark(path), self._open_staging(path, "look").standing(), is_unfinished=False)

    def find_publication(self, path: str, flags: Sequence[str]) -> Publication | None:
        with self._translated(path):
            target = self._reader.target(path)
            try:
                for flag in flags:
                    os.lstat(f"{target}/{flag}")
                with opened(f"{target}/{MANIFEST_NAME}", _PLAIN_FILE) as file:
                    head = parse_head(os.read(file, _HEAD))
                    if head is None:
                        os.lseek(file, 0, os.SEEK_SET)
                        head = parse_head(os.read(file, os.fstat(file).st_size))
                    return head
            except (FileNotFoundError, NotADirectoryError):
                return None

    @contextmanager
    def reading(self, path: str) -> Iterator[Reading]:
        with self._translated(path):
            target = self._reader.target(path)
            try:
                try:
                    folder = self._reader.open(path)
                except NotADirectoryError:
                    self._reader.check_inside(path, target)
                    folder = os.open(target, _PLAIN_FILE)
            except FileNotFoundError:  # at once, or when it was to be opened as a file
                raise InstanceNotFoundError(store=self._root_url, path=path) from None
            try:
                yield LocalReading(folder, path, self._reader)
            finally:
                os.close(folder)

    def staging(self, path: str, token: str) -> Staging:
        self._recover(path)
        return self._open_staging(path, token)

    def find_obstacle(self, path: str) -> str | None:
        plain, target = parse_path(self._root_url, path), self._reader.target(path)
        with self._translated(path):
            if os.path.islink(target):
                return "it is a symbolic link"
            if os.path.lexists(target) and not os.path.isdir(target):
                return "it is no directory"
            mounts = find_mounts(self._root)
        return "something is mounted on it, in it or around it" if touches_mount(plain, mounts) else None

    def snapshots(self, path: str, shelf: str) -> Snapshots:
        plain = parse_path(self._root_url, path)
        return LocalSnapshots(self._root, self._root_url, self._calls, plain, shelf, self._refuse)

    def flush(self, stagings: Sequence[Staging]) -> None:
        """Flush the staged and the swapped files, or the whole filesystem at once if there are many."""
        local = [each for each in stagings if isinstance(each, LocalStaging)]
        with self._translated(""):
            touched = list(islice((path for each in local for path in each.touched()), _WORTH_FLUSHING_ALL + 1))
            if len(touched) <= _WORTH_FLUSHING_ALL:
                for path in touched:
                    flush_file(path)
                return
            folder = self._calls.open_root(self._root)
            try:
                self._calls.flush_all(folder)
            finally:
                self._calls.close(folder)

    def _survey_folder(self, path: str, folder: int, *, flag: str | None, now: int, everything: bool) -> Survey:
        before = os.fstat(folder)
        wants = _is_copied if everything else is_wanted_content
        others: list[str] = []
        follow = partial(self._reader.follow_or_refuse, path)
        walk = iter_files(folder, wants=wants, follow=follow, skip=others.append)
        found = [entry_of(name, seen) for name, seen in walk if name != flag]
        has_flag = flag is not None and _has(folder, flag)
        availability = decide_availability(flag, has_flag, sum([entry.size for entry in found]))
        if availability is Availability.PARTIAL:
            return Survey(availability=availability)
        known, manifest = self._published(folder, path)
        files = source_files(found, known, manifest.st_mtime_ns if manifest else 0, now)
        mark = _mark(before, manifest) if manifest else ""
        return Survey(availability=availability, files=files, mark=mark, others=tuple(sorted(others)))

    def _published(self, folder: int, path: str) -> tuple[Mapping[str, ManifestEntry], os.stat_result | None]:
        """Return the entries of the published manifest by path, and its file status; nothing if it cannot be read."""
        try:
            file = os.open(MANIFEST_NAME, _PLAIN_FILE, dir_fd=folder)
        except FileNotFoundError:
            return {}, None
        with open(file, "rb", buffering=0) as stream:
            seen, text = os.fstat(file), stream.read()
        with suppress(ManifestError):
            manifest = parse_manifest(text, store=self._root_url, path=path)
            return {entry.path: entry for entry in (*manifest.entries, *hidden_entries(manifest))}, seen
        return {}, None

    def _translated(self, path: str) -> Translated:
        return Translated(self._refuse, path)


class LocalReading(Reading):
    """The files below an open directory, or the single file that is the instance."""

    def __init__(self, folder: int, path: str, reader: LocalReader) -> None:
        self._folder = folder
        self._path = path
        self._reader = reader

    def chunks(self, file: str) -> Iterator[bytes | memoryview]:
        try:
            descriptor = self._open(file)
        except (FileNotFoundError, NotADirectoryError):
            raise InstanceNotFoundError(store=self._reader.root_url, path=f"{self._path}/{file}") from None
        except OSError as exc:
            raise self._refused(file, exc) from exc
        try:
            yield from read_chunks(descriptor)
        except OSError as exc:
            raise self._refused(file, exc) from exc
        finally:
            os.close(descriptor)

    def _open(self, file: str) -> int:
        if file == SINGLE_FILE:
            return os.open(self._reader.target(self._path), _PLAIN_FILE)
        try:
            return os.open(file, _PLAIN_FILE, dir_fd=self._folder)
        except OSError as exc:
            if exc.errno != errno.ELOOP:
                raise
        self._reader.check_inside(f"{self._path}/{file}", f"{self._reader.target(self._path)}/{file}")
        return os.open(file, _FILE, dir_fd=self._folder)

    def _refused(self, file: str, exc: OSError) -> StorageError:
        return StorageError(
            store=self._reader.root_url,
            path=f"{self._path}/{file}",
            reason=f"the filesystem refused: {exc.strerror or exc}",
            next_step="Check that the storage is reachable and that this user may read the file.",
        )


def _is_copied(prefix: str, name: str) -> bool:
    """Return whether a name is copied. Our own files are not: those of a publication, or of a store in the source."""
    return name != CONTROL_FOLDER and (bool(prefix) or name not in _OWN)


def _has(folder: int, file: str) -> bool:
    try:
        os.stat(file, dir_fd=folder, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _mark(folder: os.stat_result, manifest: os.stat_result) -> str:
    return (
        f"{folder.st_ino:x}.{folder.st_mtime_ns:x}.{folder.st_ctime_ns:x}."
        f"{manifest.st_ino:x}.{manifest.st_mtime_ns:x}.{manifest.st_ctime_ns:x}.{manifest.st_size:x}"
    )


_PRIVATE = 0o700
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW


class LocalSnapshots(Snapshots):
    """Snapshots below `.feed-assets/snapshots/`.

    Only the owner can enter that folder, because the permissions of the directories around a past state are unknown.
    """

    def __init__(self, root: str, root_url: str, calls: LocalCalls, path: str, shelf: str, refuse: Refuse) -> None:
        self._all = f"{root}/{CONTROL_FOLDER}/{SNAPSHOTS_FOLDER}"
        self._folder = f"{self._all}/{path_name(path)}/{parse_token(root_url, shelf)}"
        self._target = f"{root}/{path}"
        self._path = path
        self._root_url = root_url
        self._calls = calls
        self._refuse = refuse

    def names(self) -> list[str]:
        with self._translated():
            return [name.removesuffix(SNAPSHOTS_SUFFIX) for name in list_directory(self._folder) if _is_snapshot(name)]

    def find(self, name: str) -> Manifest | None:
        with self._translated():
            try:
                with open(self._file(name), "rb") as stream:
                    data = stream.read()
            except FileNotFoundError:
                return None
        return unpack_manifest(data, store=self._root_url, path=self._path)

    def keep(self, name: str, manifest: Manifest, *, with_content: bool) -> None:
        file = self._file(name)
        with self._translated():
            make_directories(self._all)
            os.chmod(self._all, _PRIVATE)
            make_directories(self._folder)
            self._tidy()
            if with_content:
                self._keep_content(name, manifest)
            draft = f"{self._folder}/.{uuid.uuid4().hex}"
            write_flushed(draft, pack_manifest(manifest))
            os.replace(draft, file)
            flush_file(self._folder)

    def content(self, name: str) -> str | None:
        folder = self._content(name)
        return f"file://{folder}" if os.path.isdir(folder) else None

    def drop(self, name: str) -> None:
        file = self._file(name)
        with self._translated():
            with suppress(FileNotFoundError):
                os.unlink(file)
            self._tidy()

    def _keep_content(self, name: str, manifest: Manifest) -> None:
        draft = f"{self._folder}/.{uuid.uuid4().hex}"
        os.mkdir(draft, _PRIVATE)
        if not self._link(draft):
            remove_tree(draft)
            return
        if self._read_manifest(draft) != manifest:
            remove_tree(draft)
            reason = "it is not what was published, so there is no snapshot of it"
            raise InstanceChangingError(store=self._root_url, path=self._path, reason=reason)
        folder = self._calls.open_root(draft)
        try:
            self._calls.flush_all(folder)
        finally:
            self._calls.close(folder)
        if os.path.isdir(self._content(name)):
            remove_tree(self._content(name))
        os.rename(draft, self._content(name))

    def _link(self, draft: str) -> bool:
        """Hard-link all files of the directory; return False if the filesystem has no hard links."""
        with opened(self._target, _DIRECTORY) as source, opened(draft, _DIRECTORY) as target:
            try:
                link_tree(source, target)
            except OSError as exc:
                if exc.errno not in NO_LINK:
                    raise
                return False
        return True

    def _read_manifest(self, folder: str) -> Manifest | None:
        try:
            with open(f"{folder}/{MANIFEST_NAME}", "rb") as stream:
                return parse_manifest(stream.read(), store=self._root_url, path=self._path)
        except (FileNotFoundError, ManifestError):
            return None

    def _tidy(self) -> None:
        """Remove drafts, and content without a manifest."""
        names = list_directory(self._folder)
        named = {name.removesuffix(SNAPSHOTS_SUFFIX) for name in names if _is_snapshot(name)}
        for name in names:
            if name not in named and not _is_snapshot(name):
                remove_tree(f"{self._folder}/{name}")

    def _file(self, name: str) -> str:
        return f"{self._content(name)}{SNAPSHOTS_SUFFIX}"

    def _content(self, name: str) -> str:
        return f"{self._folder}/{parse_token(self._root_url, name)}"

    def _translated(self) -> Translated:
        return Translated(self._refuse, self._path)


def _is_snapshot(name: str) -> bool:
    return name.endswith(SNAPSHOTS_SUFFIX) and not name.startswith(".")
