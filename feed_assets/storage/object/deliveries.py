"""Remove delivered files from a prefix of an object store: each by the tag that it had when it was read."""

from collections.abc import Callable, Sequence

from feed_assets.storage.deliveries import DeliveredFile, Deliveries
from feed_assets.storage.listing import Entry
from feed_assets.storage.object.client import ObjectClient, each
from feed_assets.storage.object.listings import entry_of
from feed_assets.storage.refusals import Refuse, Translated


class ObjectDeliveries(Deliveries):
    """The objects directly below a key. `check_root` tells what is wrong with a bucket that cannot be listed."""

    def __init__(self, client: ObjectClient, key: str, check_root: Callable[[], None], refuse: Refuse) -> None:
        self._client = client
        self._key = key
        self._check_root = check_root
        self._refuse = refuse

    def find(self) -> list[Entry]:
        with Translated(self._refuse, self._key):
            self._check_root()
            found = self._client.children(self._key)
        folders = frozenset(found.folders)
        return [entry_of(file) for name, file in sorted(found.files.items()) if name not in folders]

    def remove(self, files: Sequence[DeliveredFile]) -> dict[str, str]:
        with Translated(self._refuse, self._key):
            reasons = each(self._remove, files)
        return {file.name: reason for file, reason in zip(files, reasons, strict=True) if reason is not None}

    def _remove(self, file: DeliveredFile) -> str | None:
        key = f"{self._key}/{file.name}"
        try:
            self._client.remove_unchanged(key, file.size, file.version)
        except PermissionError as exc:
            return self._refuse(key, exc).reason
        return None
