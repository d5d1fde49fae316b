"""Archiving as the tests write it: by stores and paths."""

from dataclasses import replace

from feed_assets.storage.port import InstanceStore, StorePath
from feed_assets.storage.records import Moved, Outcome
from feed_assets.transfer.archiving import archive_instance, copy_exactly
from tests.transfer.sides import LATER


def archive(
    store: InstanceStore, path: str, to: InstanceStore, to_path: str, sweep: str, *, flag: str | None = None
) -> Moved:
    """Copy an instance to an archive, and take it away."""
    return archive_instance(
        StorePath(store=store, path=path), StorePath(store=to, path=to_path), sweep, LATER, flag=flag
    )


def receive(store: InstanceStore, source: InstanceStore, path: str, to_path: str, *, flag: str | None = None) -> Moved:
    """Copy an instance into a store."""
    return copy_exactly(StorePath(store=source, path=path), StorePath(store=store, path=to_path), LATER, flag=flag)


def bring_back(
    store: InstanceStore, path: str, origin: InstanceStore, to_path: str, sweep: str, *, flag: str | None = None
) -> Moved:
    """Restore an instance as an undo does: from the trash, or as a copy from the archive."""
    restored = store.trash().restore(sweep, [path])[0]
    if restored.outcome is not Outcome.LOST:
        return restored
    received = replace(receive(store, origin, to_path, path, flag=flag), path=path)
    return restored if received.outcome is Outcome.VANISHED else received
