"""One staging on a local filesystem, and how its content takes the place of an instance.

A slot is the folder `staging/<token>/<name of the path>/` with `slot.json` (it exists while the staging may be
published, and says for which path), `data`, and, once everything is prepared, `ready.json` with the inode of `data`:
where that inode stands tells after a crash whether the swap has happened. Where directories cannot be exchanged,
`old` is what two renames put aside, and a record outside the slot exists while they do.
"""
# System calls on text and descriptors: half of them have no pathlib form, and looking is a hot path.
# ruff: noqa: PTH102, PTH104, PTH106, PTH108, PTH110, PTH119, PTH120, PTH123

import errno
import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from feed_assets.storage.local_tree import (
    Follow,
    exchange,
    flush_file,
    iter_tree,
    make_directories,
    read_files,
    write_flushed,
)
from feed_assets.storage.manifests import render_manifest
from feed_assets.storage.paths import MANIFEST_NAME, is_content, path_name
from feed_assets.storage.records import Manifest

_OCCUPIED = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EISDIR})
_TRIES = 10


class SlotState(StrEnum):
    """How far a publication from a slot has come."""

    LOST = "LOST"
    STAGED = "STAGED"
    SWAPPED = "SWAPPED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A staging by its absolute folder."""

    folder: str

    @classmethod
    def at(cls, control: str, token: str, path: str) -> Self:
        return cls(folder=f"{control}/staging/{token}/{path_name(path)}")

    @property
    def data(self) -> str:
        return f"{self.folder}/data"

    @property
    def old(self) -> str:
        return f"{self.folder}/old"

    @property
    def sign(self) -> str:
        return f"{self.folder}/slot.json"

    @property
    def ready(self) -> str:
        return f"{self.folder}/ready.json"

    def make(self, path: str) -> None:
        """Make the slot anew and empty."""
        self.remove()
        for _ in range(_TRIES):
            with suppress(FileNotFoundError):  # the last other slot of this token was just removed, and its folder
                make_directories(self.data)
                break
        write_flushed(self.sign, json.dumps({"version": 1, "path": path}).encode())

    def staged_path(self) -> str | None:
        """The path that the slot is for; None if it may not be published."""
        try:
            with open(self.sign, "rb") as stream:
                return str(json.load(stream)["path"])
        except (FileNotFoundError, ValueError):
            return None

    def remove(self) -> None:
        """Remove the slot; its sign goes first, so that nothing half removed is ever taken for a staging."""
        with suppress(FileNotFoundError):
            os.unlink(self.sign)
        shutil.rmtree(self.folder, ignore_errors=True)
        with suppress(OSError):
            os.rmdir(os.path.dirname(self.folder))

    def state(self, target: str) -> SlotState:
        """Tell whether the staged directory is still in the slot, stands at `target`, or is neither here nor there."""
        if not os.path.exists(self.sign):
            return SlotState.LOST
        try:
            with open(self.ready, "rb") as stream:
                inode = json.load(stream)["inode"]
        except (FileNotFoundError, ValueError):
            return SlotState.STAGED
        if _inode(target) == inode:
            return SlotState.SWAPPED
        return SlotState.STAGED if _inode(self.data) == inode else SlotState.LOST

    def prepare(self, flag: str | None, extra: Mapping[str, str], follow: Follow) -> Manifest:
        """Complete the staged directory with manifest and flag, and bring all of it to disk."""
        with suppress(FileExistsError):
            os.mkdir(self.data)
        with suppress(FileNotFoundError):
            os.unlink(f"{self.data}/{MANIFEST_NAME}")
        if flag:
            make_directories(os.path.dirname(f"{self.data}/{flag}"))
            with open(f"{self.data}/{flag}", "ab"):
                pass
        directory = os.open(self.data, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            paths = [file.path for file in iter_tree(directory, follow, everything=True)]
            entries = read_files(directory, paths, flush=True)
            manifest = Manifest.of((entry for entry in entries if is_content(entry.path, flag)), extra)
            write_flushed(f"{self.data}/{MANIFEST_NAME}", render_manifest(manifest))
            for folder, _, _ in os.walk(self.data, topdown=False):
                flush_file(folder)
            inode = os.fstat(directory).st_ino
        finally:
            os.close(directory)
        write_flushed(self.ready, json.dumps({"version": 1, "inode": inode}).encode())
        flush_file(self.folder)
        return manifest

    def swap(self, target: str, record: str, *, flush: bool = True) -> None:
        """Put the staged directory at `target`; what was there, if anything, is in the slot afterwards.

        Without `flush` the caller brings the renames to disk. `record` is the file that `finish_swap` needs if the
        filesystem knows no exchange and this process dies.
        """
        for _ in range(_TRIES):
            try:
                os.rename(self.data, target)
                break
            except FileNotFoundError:  # a sweep removed the parents, which were empty
                if not os.path.lexists(self.data):
                    raise
                make_directories(os.path.dirname(target))
                continue
            except OSError as exc:
                if exc.errno not in _OCCUPIED:
                    raise
            try:
                if not exchange(self.data, target):
                    self._swap_by_two_renames(target, record)
                break
            except FileNotFoundError:
                if not os.path.lexists(self.data):
                    raise
        else:
            raise OSError(errno.EBUSY, "another program keeps making and removing the instance", target)
        if flush:
            flush_file(os.path.dirname(target))
            flush_file(self.folder)

    def _swap_by_two_renames(self, target: str, record: str) -> None:
        make_directories(os.path.dirname(record))
        token = os.path.basename(os.path.dirname(self.folder))
        write_flushed(record, json.dumps({"version": 1, "token": token}).encode())
        flush_file(os.path.dirname(record))
        os.rename(target, self.old)
        flush_file(self.folder)
        os.rename(self.data, target)
        flush_file(os.path.dirname(target))
        os.unlink(record)


def finish_swap(control: str, path: str, target: str, record: str) -> bool:
    """Finish the two renames that a record tells of, or put back what was there; False if there is no record."""
    try:
        with open(record, "rb") as stream:
            token = json.load(stream)["token"]
    except FileNotFoundError:
        return False
    except ValueError:  # torn: it is on disk before the first rename, so nothing was renamed
        os.unlink(record)
        return True
    slot = Slot.at(control, token, path)
    if not os.path.lexists(target):
        os.rename(slot.data if os.path.lexists(slot.data) else slot.old, target)
        flush_file(os.path.dirname(target))
    os.unlink(record)
    return True


def _inode(path: str) -> int | None:
    try:
        return os.lstat(path).st_ino
    except (FileNotFoundError, NotADirectoryError):
        return None
