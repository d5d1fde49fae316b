"""Keep snapshots on an object store: only a manifest each, because object stores have no hard links."""

from feed_assets.storage.object.client import ObjectClient
from feed_assets.storage.object.tree import read_object
from feed_assets.storage.paths import CONTROL_FOLDER, parse_token, path_name
from feed_assets.storage.records import Manifest
from feed_assets.storage.refusals import Refuse, Translated
from feed_assets.storage.snapshots import FOLDER, SUFFIX, Snapshots, pack_manifest, unpack_manifest


class ObjectSnapshots(Snapshots):
    """Snapshots below `.feed-assets/snapshots/`."""

    def __init__(
        self,
        client: ObjectClient,
        root_url: str,
        path: str,
        shelf: str,
        refuse: Refuse,
    ) -> None:
        self._client = client
        self._root_url = root_url
        self._path = path
        self._prefix = f"{CONTROL_FOLDER}/{FOLDER}/{path_name(path)}/{parse_token(root_url, shelf)}"
        self._refuse = refuse

    def names(self) -> list[str]:
        with Translated(self._refuse, self._path):
            found = self._client.list(self._prefix).files
        return sorted(name.removesuffix(SUFFIX) for name in found if name.endswith(SUFFIX))

    def find(self, name: str) -> Manifest | None:
        with Translated(self._refuse, self._path):
            data = read_object(self._client, self._key(name))
        return None if data is None else unpack_manifest(data, store=self._root_url, path=self._path)

    def keep(self, name: str, manifest: Manifest, *, with_content: bool) -> None:  # noqa: ARG002 - it cannot be kept
        with Translated(self._refuse, self._path):
            self._client.put(self._key(name), pack_manifest(manifest))

    def content(self, name: str) -> str | None:  # noqa: ARG002 - there is none
        return None

    def drop(self, name: str) -> None:
        with Translated(self._refuse, self._path):
            self._client.remove([self._key(name)])

    def _key(self, name: str) -> str:
        return f"{self._prefix}/{parse_token(self._root_url, name)}{SUFFIX}"
