"""Snapshots on an object store: one object for each, its manifest; nothing there can stand in two places."""

from collections.abc import Callable
from contextlib import AbstractContextManager

from fsspec import AbstractFileSystem

from feed_assets.storage.object_requests import put_object
from feed_assets.storage.object_tree import list_objects, read_object, remove_objects
from feed_assets.storage.paths import CONTROL_FOLDER, parse_token, path_name
from feed_assets.storage.records import Manifest
from feed_assets.storage.snapshots import FOLDER, SUFFIX, Snapshots, pack_manifest, unpack_manifest


class ObjectSnapshots(Snapshots):
    """Below `.feed-assets/snapshots/`."""

    def __init__(
        self,
        fs: AbstractFileSystem,
        root: str,
        root_url: str,
        path: str,
        shelf: str,
        translated: Callable[[str], AbstractContextManager[None]],
    ) -> None:
        self._fs = fs
        self._root_url = root_url
        self._path = path
        self._prefix = f"{root}/{CONTROL_FOLDER}/{FOLDER}/{path_name(path)}/{parse_token(root_url, shelf)}"
        self._translated = translated

    def names(self) -> list[str]:
        with self._translated(self._path):
            found = list_objects(self._fs, self._prefix).files
        return sorted(name.removesuffix(SUFFIX) for name in found if name.endswith(SUFFIX))

    def find(self, name: str) -> Manifest | None:
        with self._translated(self._path):
            data = read_object(self._fs, self._key(name))
        return None if data is None else unpack_manifest(data, store=self._root_url, path=self._path)

    def keep(self, name: str, manifest: Manifest, *, with_content: bool) -> None:  # noqa: ARG002 - it cannot be kept
        with self._translated(self._path):
            put_object(self._fs, self._key(name), pack_manifest(manifest))

    def content(self, name: str) -> str | None:  # noqa: ARG002 - there is none
        return None

    def drop(self, name: str) -> None:
        with self._translated(self._path):
            remove_objects(self._fs, [self._key(name)])

    def _key(self, name: str) -> str:
        return f"{self._prefix}/{parse_token(self._root_url, name)}{SUFFIX}"
