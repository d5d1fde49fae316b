"""Replace an instance by a staged directory: in one exchange, or by two renames that a later process can finish.

If the system cannot exchange directories, the old instance is renamed away and the staged directory is renamed to
its path. A record file exists while these two renames are in progress.
"""
# System calls on text and descriptors: half of them have no pathlib form.
# ruff: noqa: PTH104, PTH108, PTH119, PTH120, PTH123

import ctypes
import errno
import json
import os
from dataclasses import dataclass

from feed_assets.storage.local.calls import load_function
from feed_assets.storage.local.tree import flush_file, make_directories, write_flushed

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
