"""The port to snapshots: states that a directory of a store has had, by name, kept in the hidden folder of the store.

A snapshot is a manifest; the content is kept with it where that costs no copy.
"""

import gzip
import zlib
from abc import ABC, abstractmethod

from feed_assets.storage.errors import ManifestError
from feed_assets.storage.manifests import parse_manifest, render_manifest
from feed_assets.storage.records import Manifest

FOLDER = "snapshots"
SUFFIX = ".json.gz"


class Snapshots(ABC):
    """One list of snapshots of one directory, with one writer at a time. A name is one of a file, as a staging token.

    Every method raises `StorageError` when the filesystem refuses.
    """

    @abstractmethod
    def names(self) -> list[str]:
        """The names, in their order."""

    @abstractmethod
    def find(self, name: str) -> Manifest | None:
        """The state of that name; None if there is none. Raises `ManifestError` for one that cannot be read."""

    @abstractmethod
    def keep(self, name: str, manifest: Manifest, *, with_content: bool) -> None:
        """Remember a state, whole or not at all, in the place of one with this name; on disk when this returns.

        Its content is kept `with_content` where the storage can let a file stand in two places, and then it is what
        stands at the directory: raises `InstanceChangingError` if that is no publication with this manifest.
        """

    @abstractmethod
    def content(self, name: str) -> str | None:
        """The URL of the content; None where only the manifest is kept."""

    @abstractmethod
    def drop(self, name: str) -> None:
        """Forget a snapshot, if it is there, and what broken-off calls have left behind."""


def pack_manifest(manifest: Manifest) -> bytes:
    """A manifest as the file of a snapshot."""
    return gzip.compress(render_manifest(manifest), mtime=0)


def unpack_manifest(data: bytes, *, store: str, path: str) -> Manifest:
    """What `pack_manifest` made; `ManifestError` if it is damaged."""
    try:
        text = gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as exc:
        raise ManifestError(store=store, path=path, reason=f"it is damaged ({exc!r})") from exc
    return parse_manifest(text, store=store, path=path)
