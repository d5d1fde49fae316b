"""Read instances on a local filesystem: availability and consistent content, never through a link out of the root."""
# System calls on text and descriptors: half of them have no pathlib form, and `look` is a hot path.
# ruff: noqa: PTH110, PTH112, PTH116, PTH119, PTH120

import os
import stat
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

from feed_assets.storage.errors import InstanceChangingError, PathRefusedError
from feed_assets.storage.listing import Entry, decide_availability, look_at, scan_listing
from feed_assets.storage.local.files import Follow, entry_of, is_at, is_wanted_content, iter_files, opened
from feed_assets.storage.local.tree import read_file, read_files
from feed_assets.storage.paths import parse_path
from feed_assets.storage.records import Availability, Look, Scan, missing, nothing_to_scan

_TRIES = 50
_SCANS = 3
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

Result = TypeVar("Result")


class LocalReader:
    """Reads the instances below one root directory."""

    def __init__(self, root: str, root_url: str) -> None:
        self._root = root
        self.root_url = root_url

    def target(self, path: str) -> str:
        """Return the absolute path of an instance without accessing the filesystem."""
        return f"{self._root}/{parse_path(self.root_url, path)}"

    def check_inside(self, path: str, target: str) -> None:
        """Raise `PathRefusedError` for an absolute path that leads out of the root through a symbolic link."""
        if not self._is_inside(target):
            raise PathRefusedError(
                store=self.root_url, path=path, reason="a symbolic link leads out of the storage root"
            )

    def look(self, path: str, flag: str | None, inside: set[str]) -> Look:
        """Return the `Look` of one instance; `inside` remembers the checked parents. May raise `OSError`."""
        target = self.target(path)
        for _ in range(_TRIES):
            try:
                directory = os.open(target, _DIRECTORY | os.O_NOFOLLOW)
            except FileNotFoundError:
                return missing(path)
            except NotADirectoryError:
                self.check_inside(path, target)
                if not os.path.isdir(target):
                    if Path(target).is_symlink() and not Path(target).exists():
                        raise PathRefusedError(
                            store=self.root_url, path=path, reason="a symbolic link leads to nothing"
                        ) from None
                    return _look_at_file(path, target, flag)
                directory = os.open(target, _DIRECTORY)
            try:
                if (parent := os.path.dirname(target)) not in inside:
                    self.check_inside(path, parent)
                    inside.add(parent)
                look = self._look_into(path, target, directory, flag)
            finally:
                os.close(directory)
            if look is not None:
                return look
        raise InstanceChangingError(store=self.root_url, path=path, reason="it does not hold still")

    def scan(self, path: str, flag: str | None, earlier: Scan | None, now: datetime) -> Scan:
        """Scan one instance; read only the files that an earlier scan does not cover."""
        target = self.target(path)
        try:
            return self.hold(path, lambda directory: self._scan_into(target, directory, flag, earlier, now), _SCANS)
        except FileNotFoundError:
            return nothing_to_scan(Availability.MISSING)
        except NotADirectoryError:
            return self._scan_file(path, target, flag, earlier, now)

    def hold(self, path: str, work: Callable[[int], Result | None], tries: int = _TRIES) -> Result:
        """Call `work` with the open directory of an instance until it holds still, and return the result.

        It did not if the directory was replaced, something in it vanished, or `work` returned None.

        Raises:
            FileNotFoundError: the instance does not exist; `NotADirectoryError`: it is a file.
            InstanceChangingError: it does not hold still.
        """
        target = self.target(path)
        for _ in range(tries):
            directory = self.open(path)
            try:
                result = work(directory)
                if result is not None and os.path.samestat(os.fstat(directory), os.stat(target)):
                    return result
            except FileNotFoundError:
                continue
            finally:
                os.close(directory)
        raise InstanceChangingError(store=self.root_url, path=path, reason="it does not hold still")

    def open(self, path: str) -> int:
        """Open the directory of an instance. Raises `PathRefusedError` if it is outside of the root."""
        target = self.target(path)
        try:
            directory = os.open(target, _DIRECTORY)
        except FileNotFoundError:
            self.check_inside(path, target)
            raise
        try:
            if not is_at(directory, target):
                self.check_inside(path, target)
        except BaseException:
            os.close(directory)
            raise
        return directory

    def follow_or_refuse(self, path: str, file: str) -> os.stat_result:
        """Return the status of the file to which a link in an instance leads."""
        link = f"{self.target(path)}/{file}"
        self.check_inside(f"{path}/{file}", link)
        try:
            seen = os.stat(link)
        except FileNotFoundError:
            os.lstat(link)
            reason = "it is a symbolic link that leads nowhere"
            raise PathRefusedError(store=self.root_url, path=f"{path}/{file}", reason=reason) from None
        if stat.S_ISDIR(seen.st_mode):
            reason = "it is a symbolic link to a directory"
            raise PathRefusedError(store=self.root_url, path=f"{path}/{file}", reason=reason)
        return seen

    def _scan_into(
        self, target: str, directory: int, flag: str | None, earlier: Scan | None, now: datetime
    ) -> Scan | None:
        """Scan an open directory; return None if its files changed while they were read."""
        before = self._content(target, directory, flag)
        has_flag = flag is not None and _modified(flag, directory) is not None
        availability = decide_availability(flag, has_flag, sum(entry.size for entry in before))
        scan = scan_listing(availability, before, earlier, now, partial(read_files, directory))
        return scan if not scan.read or self._content(target, directory, flag) == before else None

    def _content(self, target: str, directory: int, flag: str | None) -> list[Entry]:
        """List the content of an open directory in the order of the paths; skip links out of the root."""
        found = iter_files(directory, wants=is_wanted_content, follow=self._follow_inside(target))
        return sorted(entry_of(path, seen) for path, seen in found if path != flag)

    def _scan_file(self, path: str, target: str, flag: str | None, earlier: Scan | None, now: datetime) -> Scan:
        """Scan a file at a path where a directory is expected."""
        try:
            before = entry_of("", os.stat(target))
            availability = decide_availability(flag, False, before.size)
            if availability is Availability.AVAILABLE:
                self.check_inside(path, target)
            with opened(os.path.dirname(target), _DIRECTORY) as parent:
                read = partial(read_file, parent, os.path.basename(target))
                scan = scan_listing(availability, [before], earlier, now, lambda files: [read() for _ in files])
            if entry_of("", os.stat(target)) != before:
                raise InstanceChangingError(store=self.root_url, path=path, reason="it does not hold still")
            return scan
        except FileNotFoundError:
            return nothing_to_scan(Availability.MISSING)

    def _is_inside(self, target: str) -> bool:
        real = os.path.realpath(target)
        if real == target:  # no link is on the way
            return True
        root = os.path.realpath(self._root or "/").rstrip("/")
        return f"{real}/".startswith(f"{root}/")

    def _look_into(self, path: str, target: str, directory: int, flag: str | None) -> Look | None:
        """Return the `Look` of an open directory; None if it was replaced, or files vanished, meanwhile."""
        own = os.fstat(directory)
        try:
            flag_modified = None if flag is None else _modified(flag, directory)
            content = self._content(target, directory, flag)
            if not os.path.samestat(own, os.stat(target)):
                return None
        except FileNotFoundError:
            return None
        return look_at(path, content, flag, flag_modified is not None, (own.st_mtime_ns, flag_modified or 0))

    def _follow_inside(self, target: str) -> Follow:
        def follow(file: str) -> os.stat_result | None:
            link = f"{target}/{file}"
            return os.stat(link) if os.path.exists(link) and self._is_inside(link) else None

        return follow


def _modified(file: str, directory: int) -> int | None:
    try:
        return os.stat(file, dir_fd=directory, follow_symlinks=False).st_mtime_ns
    except (FileNotFoundError, NotADirectoryError):
        return None


def _look_at_file(path: str, target: str, flag: str | None) -> Look:
    try:
        found = os.stat(target)
    except (FileNotFoundError, NotADirectoryError):
        return missing(path)
    return look_at(path, [entry_of("", found)], flag, False, ())
