"""Serialize the publications of one partition on a machine with file locks, because the metastore has no locks."""

import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from feed_assets.storage.errors import StorageError
from feed_assets.storage.paths import path_name


@contextmanager
def partition_lock(store: str, name: str) -> Iterator[None]:
    """Hold the lock of a partition, by table URL and partition name; all partitions share 256 locks per user."""
    base = Path(tempfile.gettempdir()) / f"feed-assets-{os.getuid()}"
    try:
        base.mkdir(mode=0o700, exist_ok=True)
        found = base.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            raise StorageError(
                store=store,
                path=name,
                reason=f"the directory of locks {base} belongs to somebody else",
                next_step="Remove it, or name another place for temporary files by TMPDIR.",
            )
        folder = base / "table-locks"
        folder.mkdir(exist_ok=True)
        descriptor = os.open(folder / path_name(f"{store}/{name}")[:2], os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as exc:
        raise StorageError(
            store=store,
            path=name,
            reason=f"its lock cannot be opened in {base}: {exc.strerror}",
            next_step="Check the place for temporary files of this user.",
        ) from exc
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
