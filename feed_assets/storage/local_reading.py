"""Instances on a local filesystem as sources of copies: listed without reading, read by descriptor."""
# System calls on text and descriptors: half of them have no pathlib form, and this is a hot path.
# ruff: noqa: PTH112, PTH116, PTH123

import errno
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from operator import itemgetter

from feed_assets.storage.checksums import is_of_content
from feed_assets.storage.copy_port import CHUNK, Reading, SourceFile, Survey
from feed_assets.storage.errors import (
    InstanceChangingError,
    InstanceNotFoundError,
    ManifestError,
    PathRefusedError,
    StorageError,
)
from feed_assets.storage.local_files import is_at
from feed_assets.storage.local_reader import LocalReader
from feed_assets.storage.manifests import Publication, hidden_entries, parse_head, parse_manifest
from feed_assets.storage.paths import CONTROL_FOLDER, MANIFEST_NAME, PUBLISHING_NAME, is_content_name, parse_flag
from feed_assets.storage.records import Availability, ManifestEntry

_TRIES = 3
_SETTLING = 2_000_000_000
_HEAD = 1 << 13
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_CLOEXEC
_PLAIN_FILE = _FILE | os.O_NOFOLLOW
_new_source_file = partial(tuple.__new__, SourceFile)
"""A `SourceFile` of a tuple of its fields, in half the time of its own way."""
_OWN = frozenset({MANIFEST_NAME, PUBLISHING_NAME})


class LocalSources:
    """The source side of copies on one root."""

    def __init__(self, root: str, root_url: str, reader: LocalReader) -> None:
        self._root = root
        self._root_url = root_url
        self._reader = reader

    def survey(self, path: str, flag: str | None, now: int, everything: bool) -> Survey:
        """As `Copying.survey`; may raise `OSError`."""
        flag, target = parse_flag(self._root_url, flag), self._reader.target(path)
        for _ in range(_TRIES):
            try:
                folder = self._open(path, target)
            except FileNotFoundError:
                self._require_root()
                return Survey(availability=Availability.MISSING)
            try:
                survey = self._survey_folder(path, target, folder, flag, now, everything)
                if os.path.samestat(os.fstat(folder), os.stat(target)):
                    return survey
            except FileNotFoundError:
                continue
            finally:
                os.close(folder)
        raise InstanceChangingError(store=self._root_url, path=path, reason="it does not hold still")

    def mark(self, path: str) -> str:
        """As `Copying.mark`; may raise `OSError`."""
        target = self._reader.target(path)
        try:
            return _mark(os.lstat(target), os.lstat(f"{target}/{MANIFEST_NAME}"))
        except (FileNotFoundError, NotADirectoryError):
            return ""

    def find_publication(self, path: str, flags: Sequence[str]) -> Publication | None:
        """As `Copying.find_publication`; may raise `OSError`."""
        target = self._reader.target(path)
        try:
            for flag in flags:
                os.lstat(f"{target}/{flag}")
            file = os.open(f"{target}/{MANIFEST_NAME}", _PLAIN_FILE)
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            head = parse_head(os.read(file, _HEAD))
            if head is None:
                os.lseek(file, 0, os.SEEK_SET)
                head = parse_head(os.read(file, os.fstat(file).st_size))
        finally:
            os.close(file)
        return head

    @contextmanager
    def reading(self, path: str) -> Iterator[Reading]:
        """As `Copying.reading`; may raise `OSError`."""
        target = self._reader.target(path)
        try:
            folder = self._open(path, target)
        except FileNotFoundError:
            raise InstanceNotFoundError(store=self._root_url, path=path) from None
        try:
            yield LocalReading(folder, path, target, self._root_url, self._reader)
        finally:
            os.close(folder)

    def _open(self, path: str, target: str) -> int:
        """Open the directory of an instance unless it is out of the root."""
        try:
            folder = os.open(target, _FOLDER)
        except FileNotFoundError:
            self._reader.check_inside(path, target)
            raise
        try:
            if not is_at(folder, target):
                self._reader.check_inside(path, target)
        except BaseException:
            os.close(folder)
            raise
        return folder

    def _require_root(self) -> None:
        if not os.path.isdir(self._root or "/"):
            raise StorageError(
                store=self._root_url,
                path="",
                reason="the root is not there",
                next_step="Mount the storage, or correct the cluster's address; nothing is taken for deleted.",
            )

    def _survey_folder(
        self, path: str, target: str, folder: int, flag: str | None, now: int, everything: bool
    ) -> Survey:
        before = os.fstat(folder)
        found: list[tuple[str, os.stat_result]] = []
        self._walk(path, target, folder, "", everything, found)
        found.sort(key=itemgetter(0))
        availability = Availability.AVAILABLE if any(seen.st_size for _, seen in found) else Availability.EMPTY
        if flag is not None:
            availability = Availability.AVAILABLE
            try:
                os.stat(flag, dir_fd=folder, follow_symlinks=False)
            except (FileNotFoundError, NotADirectoryError):
                return Survey(availability=Availability.PARTIAL)
            found = [each for each in found if each[0] != flag]
        known, manifest = self._published(folder, path)
        published_at, settled = manifest.st_mtime_ns if manifest else 0, now - _SETTLING
        files = tuple(
            [
                _source_file(name, seen, _known(known, name, seen, published_at) if known else "", settled)
                for name, seen in found
            ]
        )
        return Survey(availability=availability, files=files, mark=_mark(before, manifest) if manifest else "")

    def _walk(
        self,
        path: str,
        target: str,
        folder: int,
        prefix: str,
        everything: bool,
        found: list[tuple[str, os.stat_result]],
    ) -> None:
        for name in os.listdir(folder):  # with a look at each, it takes two thirds of the time of `os.scandir`
            if name[0] in "._" and not is_content_name(name) and (not everything or _is_ours(prefix, name)):
                continue
            seen = os.stat(name, dir_fd=folder, follow_symlinks=False)
            kind = stat.S_IFMT(seen.st_mode)
            if kind == stat.S_IFREG:
                found.append((prefix + name, seen))
            elif kind == stat.S_IFDIR:
                below = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
                try:
                    self._walk(path, target, below, f"{prefix}{name}/", everything, found)
                finally:
                    os.close(below)
            elif kind == stat.S_IFLNK:
                seen = self._follow(path, target, prefix + name)
                if stat.S_ISREG(seen.st_mode):
                    found.append((prefix + name, seen))

    def _follow(self, path: str, target: str, file: str) -> os.stat_result:
        self._reader.check_inside(f"{path}/{file}", f"{target}/{file}")
        try:
            seen = os.stat(f"{target}/{file}")
        except FileNotFoundError:
            os.lstat(f"{target}/{file}")
            reason = "it is a symbolic link that leads nowhere"
            raise PathRefusedError(store=self._root_url, path=f"{path}/{file}", reason=reason) from None
        if stat.S_ISDIR(seen.st_mode):
            reason = "it is a symbolic link to a directory"
            raise PathRefusedError(store=self._root_url, path=f"{path}/{file}", reason=reason)
        return seen

    def _published(self, folder: int, path: str) -> tuple[Mapping[str, ManifestEntry], os.stat_result | None]:
        """What the manifest of the publication says of the files, and when it was written."""
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


class LocalReading(Reading):
    """The files below an open directory."""

    has_descriptors = True

    def __init__(self, folder: int, path: str, target: str, root_url: str, reader: LocalReader) -> None:
        self._folder = folder
        self._path = path
        self._target = target
        self._root_url = root_url
        self._reader = reader

    def read(self, file: str, size: int) -> bytes:
        try:
            descriptor = os.open(file, _PLAIN_FILE, dir_fd=self._folder)
        except OSError:
            descriptor = self.descriptor(file)  # which follows a link, or tells what is wrong
        try:
            return read_whole(descriptor, size)
        except OSError as exc:
            raise self._refused(file, exc) from exc
        finally:
            os.close(descriptor)

    def chunks(self, file: str, offset: int, size: int) -> Iterator[bytes | memoryview]:
        descriptor = self.descriptor(file)
        try:
            yield from read_chunks(descriptor, offset, size)
        except OSError as exc:
            raise self._refused(file, exc) from exc
        finally:
            os.close(descriptor)

    def descriptor(self, file: str) -> int:
        try:
            return self._open(file)
        except (FileNotFoundError, NotADirectoryError):
            raise InstanceNotFoundError(store=self._root_url, path=f"{self._path}/{file}") from None
        except OSError as exc:
            raise self._refused(file, exc) from exc

    def _open(self, file: str) -> int:
        try:
            return os.open(file, _PLAIN_FILE, dir_fd=self._folder)
        except OSError as exc:
            if exc.errno != errno.ELOOP:
                raise
        self._reader.check_inside(f"{self._path}/{file}", f"{self._target}/{file}")
        return os.open(file, _FILE, dir_fd=self._folder)

    def _refused(self, file: str, exc: OSError) -> StorageError:
        return StorageError(
            store=self._root_url,
            path=f"{self._path}/{file}",
            reason=f"the filesystem refused: {exc.strerror or exc}",
            next_step="Check that the storage is reachable and that this user may read the file.",
        )


def read_whole(descriptor: int, size: int) -> bytes:
    """An open file of about this size from its beginning to its end, or to one byte more."""
    data = os.read(descriptor, size + 1)
    while len(data) < size and (more := os.read(descriptor, size - len(data) + 1)):
        data += more
    return data


def read_chunks(descriptor: int, offset: int, size: int) -> Iterator[memoryview]:
    """A stretch of an open file in one buffer that is used again and again."""
    buffer = memoryview(bytearray(min(CHUNK, max(size, 1))))
    with ExitStack() as stack:
        stack.callback(buffer.release)
        while size > 0:
            count = os.preadv(descriptor, [buffer[: min(size, CHUNK)]], offset)
            if count == 0:
                return
            yield buffer[:count]
            offset, size = offset + count, size - count


def _is_ours(prefix: str, name: str) -> bool:
    """Whether it belongs to us: to the publication, or to a store whose root is in the source."""
    return name == CONTROL_FOLDER or (not prefix and name in _OWN)


def _mark(folder: os.stat_result, manifest: os.stat_result) -> str:
    return (
        f"{folder.st_ino:x}.{folder.st_mtime_ns:x}.{folder.st_ctime_ns:x}."
        f"{manifest.st_ino:x}.{manifest.st_mtime_ns:x}.{manifest.st_ctime_ns:x}.{manifest.st_size:x}"
    )


def _source_file(name: str, seen: os.stat_result, checksum: str, settled: int) -> SourceFile:
    modified, changed = seen.st_mtime_ns, seen.st_ctime_ns
    sign = "%x.%x.%x" % (seen.st_ino, modified, changed)  # noqa: UP031 - half as long as any other way, for each file
    return _new_source_file((name, seen.st_size, sign, changed < settled, checksum, modified, seen.st_mode & 0o7777))


def _known(known: Mapping[str, ManifestEntry], name: str, seen: os.stat_result, published_at: int) -> str:
    """The checksum that the publication gives a file which was not written since."""
    entry = known.get(name)
    if entry is None or entry.size != seen.st_size or seen.st_mtime_ns > published_at:
        return ""
    return entry.checksum if is_of_content(entry.checksum) else ""
