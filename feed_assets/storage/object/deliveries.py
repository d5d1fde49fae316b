"""Remove delivered files from a prefix of an object store: each by the tag that it had when it was read."""

from collections.abc import Sequence

from feed_assets.storage.deliveries import DeliveredFile, Deliveries
from feed_assets.storage.listing import Entry
from feed_assets.storage.object.client import ObjectClient, each
from feed_assets.storage.object.listings import entry_of
from feed_assets.storage.port import InstanceStore
from feed_assets.storage.refusals import Translated


class ObjectDeliveries(Deliveries):
    """The objects of a store directly below a key."""

    def __init__(self, store: InstanceStore, client: ObjectClient, key: str) -> None:
        self._store = store
        self._client = client
        self._key = key

    def find(self) -> list[Entry]:
        self._store.check_root()
        with Translated(self._store._refused, self._key):
            found = self._client.children(self._key)
        folders = frozenset(found.folders)
        return [entry_of(file) for name, file in sorted(found.files.items()) if name not in folders]

    def remove(self, files: Sequence[DeliveredFile]) -> dict[str, str]:
        with Translated(self._store._refused, self._key):
            reasons = each(self._remove, files)
        return {file.name: reason for file, reason in zip(files, reasons, strict=True) if reason is not None}

    def _remove(self, file: DeliveredFile) -> str | None:
        key = f"{self._key}/{file.name}"
        try:
            self._client.remove_unchanged(key, file.size, file.version)
        except PermissionError as exc:
            return self._store._refused(key, exc).reason
        return None
