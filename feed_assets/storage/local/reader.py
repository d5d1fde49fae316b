"""List and read instances on a local filesystem, always by one open directory, never through a link out of the root."""
# System calls on text and descriptors: half of them have no pathlib form, and listing is a hot path.
# ruff: noqa: PTH114, PTH116, PTH118, PTH120

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from functools import partial

from feed_assets.storage.copy_port import Reading
from feed_assets.storage.errors import (
    InstanceChangingError,
    InstanceNotFoundError,
    ManifestError,
    PathRefusedError,
    Refuse,
    StorageError,
    Translated,
)
from feed_assets.storage.listing import NOTHING, Listing, View
from feed_assets.storage.local.files import Wants, entry_of, is_at, is_wanted_content, iter_files, read_chunks
from feed_assets.storage.paths import CONTROL_FOLDER, MANIFEST_NAME, SINGLE_FILE, parse_path

_TRIES = 50
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
"""A pipe that has taken the place of a file has no content, and nobody waits for some."""
_PLAIN_FILE = FILE | os.O_NOFOLLOW


class LocalReader:
    """Reads the instances below one root directory."""

    def __init__(self, root: str, root_url: str, refuse: Refuse) -> None:
        self._root = root
        self.root_url = root_url
        self.refuse = refuse

    def target(self, path: str) -> str:
        """Return the absolute path of an instance without accessing the filesystem."""
        return f"{self._root}/{parse_path(self.root_url, path)}"

    def check_inside(self, path: str, target: str) -> None:
        """Raise `PathRefusedError` for an absolute path that leads out of the root through a symbolic link."""
        if not self._is_inside(target):
            raise PathRefusedError(
                store=self.root_url, path=path, reason="a symbolic link leads out of the storage root"
            )

    def list(self, path: str, view: View, names: Sequence[str], inside: set[str], *, manifest: int) -> Listing:
        """List one instance until it holds still; `inside` remembers the checked parents. May raise `OSError`.

        It did not if the directory was replaced, or something in it vanished, meanwhile.
        """
        target, is_replaced = self.target(path), view is View.STANDING
        for _ in range(_TRIES):
            try:
                directory = self._enter(path, target, may_follow=not is_replaced)
            except FileNotFoundError:
                if is_replaced:
                    self.check_inside(path, target)
                return NOTHING
            except NotADirectoryError:
                if is_replaced:
                    raise
                if (found := self._list_file(path, target)) is None:
                    continue
                return found
            try:
                if (parent := os.path.dirname(target)) not in inside:
                    if not is_at(directory, target):
                        self.check_inside(path, parent)
                    inside.add(parent)
                own = os.fstat(directory)
                listing = self._list_folder(path, directory, own, view, names, manifest)
                if os.path.samestat(own, os.stat(target)):
                    return listing
            except (FileNotFoundError, NotADirectoryError):
                continue
            finally:
                os.close(directory)
        raise InstanceChangingError(store=self.root_url, path=path, reason="it does not hold still")

    def open(self, path: str) -> int:
        """Open the directory of an instance. Raises `PathRefusedError` if it is outside of the root."""
        target = self.target(path)
        directory = os.open(target, _DIRECTORY)
        try:
            if not is_at(directory, target):
                self.check_inside(path, target)
        except BaseException:
            os.close(directory)
            raise
        return directory

    def _enter(self, path: str, target: str, *, may_follow: bool) -> int:
        """Open a directory, or the one to which a link leads."""
        try:
            return os.open(target, _DIRECTORY | os.O_NOFOLLOW)
        except NotADirectoryError:
            if not may_follow or not os.path.islink(target):
                raise
        self.check_inside(path, target)
        try:
            return os.open(target, _DIRECTORY)
        except FileNotFoundError:
            raise NotADirectoryError(path) from None  # it is a link all the same

    def _list_folder(
        self, path: str, folder: int, own: os.stat_result, view: View, names: Sequence[str], manifest: int
    ) -> Listing:
        there = {name: seen for name in names if (seen := _find(name, folder)) is not None}
        entries = [entry_of(name, seen) for name, seen in there.items()]
        links: dict[str, StorageError | None] = {}
        others: list[str] = []
        if view is not View.NAMED:
            follow = partial(self._follow, path, links)
            walk = iter_files(folder, wants=_WANTS[view], follow=follow, skip=others.append)
            entries += [entry_of(name, seen) for name, seen in walk if name not in there]
        return Listing(
            entries=entries,
            version=entry_of("", own).version,
            modified=own.st_mtime_ns,
            links=links,
            others=tuple(sorted(others)),
            manifest=self._read_manifest(path, folder, manifest) if manifest else None,
        )

    def _list_file(self, path: str, target: str) -> Listing | None:
        """List a file at a path where a directory is expected; return None if it is a directory by now."""
        try:
            found = os.stat(target)
        except (FileNotFoundError, NotADirectoryError):
            if not os.path.islink(target):
                return NOTHING
            reason = "a symbolic link leads to nothing"
            return Listing(exists=False, links={"": PathRefusedError(store=self.root_url, path=path, reason=reason)})
        self.check_inside(path, target)
        return None if stat.S_ISDIR(found.st_mode) else Listing(entries=[entry_of("", found)])

    def _read_manifest(self, path: str, folder: int, most: int) -> bytes | None:
        try:
            text = bytearray()
            for chunk in LocalReading(folder, path, self).chunks(MANIFEST_NAME):
                text += chunk
                if len(text) >= most:
                    break
            return bytes(text)
        except InstanceNotFoundError:
            return None
        except StorageError as exc:
            if isinstance(exc.__cause__, IsADirectoryError):
                raise ManifestError(store=self.root_url, path=path, reason="it is a folder") from exc
            raise

    def _follow(self, path: str, links: dict[str, StorageError | None], file: str) -> os.stat_result | None:
        """Return the status of the file to which a link leads; None if it leads to none, and keep the reason."""
        link, links[file] = f"{self.target(path)}/{file}", None
        try:
            self.check_inside(f"{path}/{file}", link)
            seen = os.stat(link)
            if not stat.S_ISDIR(seen.st_mode):
                return seen
            reason = "it is a symbolic link to a directory"
        except PathRefusedError as exc:
            links[file] = exc
            return None
        except FileNotFoundError:
            os.lstat(link)
            reason = "it is a symbolic link that leads nowhere"
        except OSError as exc:
            links[file] = self.refuse(f"{path}/{file}", exc)
            return None
        links[file] = PathRefusedError(store=self.root_url, path=f"{path}/{file}", reason=reason)
        return None

    def _is_inside(self, target: str) -> bool:
        real = os.path.realpath(target)
        if real == target:  # no link is on the way
            return True
        root = os.path.realpath(self._root or "/").rstrip("/")
        return f"{real}/".startswith(f"{root}/")


class LocalReading(Reading):
    """The files below an open directory, or the single file that is the instance."""

    def __init__(self, folder: int, path: str, reader: LocalReader) -> None:
        self._folder = folder
        self._path = path
        self._reader = reader

    def chunks(self, file: str) -> Iterator[bytes | memoryview]:
        with Translated(self._reader.refuse, f"{self._path}/{file}"):
            try:
                descriptor = self._open(file)
            except (FileNotFoundError, NotADirectoryError):
                raise InstanceNotFoundError(store=self._reader.root_url, path=f"{self._path}/{file}") from None
            try:
                yield from read_chunks(descriptor)
            finally:
                os.close(descriptor)

    def _open(self, file: str) -> int:
        name = self._reader.target(self._path) if file == SINGLE_FILE else file  # an absolute one needs no folder
        try:
            return os.open(name, _PLAIN_FILE, dir_fd=self._folder)
        except OSError as exc:
            if exc.errno != errno.ELOOP:
                raise
        self._reader.check_inside(f"{self._path}/{file}", os.path.join(self._reader.target(self._path), name))
        return os.open(name, FILE, dir_fd=self._folder)


def _is_of_source(prefix: str, name: str) -> bool:  # noqa: ARG001 - its folder does not matter
    """Return whether a name may be a source's: it is not the hidden folder of a store whose root is inside."""
    return name != CONTROL_FOLDER


_WANTS: dict[View, Wants | None] = {
    View.CONTENT: is_wanted_content,
    View.SOURCE: _is_of_source,
    View.STANDING: None,
}


def _find(file: str, folder: int) -> os.stat_result | None:
    try:
        return os.stat(file, dir_fd=folder, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return None
