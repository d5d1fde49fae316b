"""Keep traces in an object store: one object each."""

from feed_assets.storage.object.client import ObjectClient
from feed_assets.storage.object.tree import read_object
from feed_assets.storage.paths import CONTROL_FOLDER, parse_token
from feed_assets.storage.refusals import Refuse, Translated
from feed_assets.storage.traces import FOLDER, SUFFIX, Traces

_AREA = f"{CONTROL_FOLDER}/{FOLDER}"


class ObjectTraces(Traces):
    """The traces of an object store."""

    def __init__(self, client: ObjectClient, root_url: str, refuse: Refuse) -> None:
        self._client = client
        self._root_url = root_url
        self._refuse = refuse

    def names(self) -> frozenset[str]:
        with self._translated():
            found = self._client.children(_AREA).files
        return frozenset(name.removesuffix(SUFFIX) for name in found if name.endswith(SUFFIX))

    def find(self, name: str) -> bytes | None:
        with self._translated():
            return read_object(self._client, self._key(name))

    def keep(self, name: str, content: bytes) -> None:
        with self._translated():
            self._client.check()
            self._client.put(self._key(name), content)

    def drop(self, name: str) -> None:
        with self._translated():
            self._client.remove([self._key(name)])

    def _key(self, name: str) -> str:
        return f"{_AREA}/{parse_token(self._root_url, name)}{SUFFIX}"

    def _translated(self) -> Translated:
        return Translated(self._refuse, _AREA)
