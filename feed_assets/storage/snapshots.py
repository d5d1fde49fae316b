"""The port to snapshots: named past states of a directory, kept in the store's hidden folder.

A snapshot is a manifest. Its content is kept too if the storage can keep it without a copy.
"""

import gzip
import zlib
from abc import ABC, abstractmethod

from feed_assets.errors import describe_error
from feed_assets.storage.errors import ManifestError
from feed_assets.storage.manifests import parse_manifest, render_manifest
from feed_assets.storage.records import Manifest

FOLDER = "snapshots"
SUFFIX = ".json.gz"


class Snapshots(ABC):
    """One list of snapshots of one directory, with one writer at a time. Names follow the rule of staging tokens.

    Every method raises `StorageError` if the filesystem refuses.
    """

    @abstractmethod
    def names(self) -> list[str]:
        """Return the names of all snapshots, sorted."""

    @abstractmethod
    def find(self, name: str) -> Manifest | None:
        """Return the manifest of a snapshot; None if it does not exist. Raises `ManifestError` if it is unreadable."""

    @abstractmethod
    def keep(self, name: str, manifest: Manifest, *, with_content: bool) -> None:
        """Save a snapshot atomically, and replace one of the same name; it is on disk on return.

        `with_content` also keeps the content of the directory, if the storage supports hard links. Raises
        `InstanceChangingError` if the directory is not a publication with this manifest at that time.
        """

    @abstractmethod
    def content(self, name: str) -> str | None:
        """Return the URL of the content; None if only the manifest is kept."""

    @abstractmethod
    def drop(self, name: str) -> None:
        """Remove a snapshot, if it exists, and the remains of interrupted calls."""


def pack_manifest(manifest: Manifest) -> bytes:
    """Render a manifest as the file of a snapshot."""
    return gzip.compress(render_manifest(manifest), mtime=0)


def unpack_manifest(data: bytes, *, store: str, path: str) -> Manifest:
    """Parse the file of a snapshot. Raises `ManifestError` if it is damaged."""
    try:
        text = gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as exc:
        raise ManifestError(store=store, path=path, reason=f"it is damaged ({describe_error(exc)})") from exc
    return parse_manifest(text, store=store, path=path)
