"""Serialize the publications of one partition on a machine with file locks, because the metastore has no locks."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from feed_assets.storage.errors import StorageError
from feed_assets.storage.paths import path_name
from feed_assets.storage.scratch import make_private, user_folder


@contextmanager
def partition_lock(store: str, name: str) -> Iterator[None]:
    """Hold the lock of a partition, by table URL and partition name; all partitions share 256 locks per user."""
    base = user_folder()
    try:
        make_private(base, store, name)
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
