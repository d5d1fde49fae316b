"""Map locations of a metastore to stores and paths, and name the folders of feed-assets below a table.

Published content is below the table's location in `_feed-assets/<partition>/<token>`. Hive, Spark and their repair
commands do not take this folder for a partition. `<partition>` is the name in Hive's spelling.
"""

from collections.abc import Callable, Collection

from feed_assets.storage.port import InstanceStore, Place
from feed_assets.storage.table.metastore import Table
from feed_assets.storage.table.partition_names import PartitionSpec

VERSIONS_FOLDER = "_feed-assets"

OpenStore = Callable[[str], InstanceStore]
"""Opens the store at a URL with the options of the cluster's storage."""


def plain_location(location: str) -> str:
    """Convert a location of a metastore to a storage URL.

    >>> plain_location("file:/data/web.db/clicks/"), plain_location("/data"), plain_location("s3a://bucket/clicks")
    ('file:///data/web.db/clicks', 'file:///data', 's3a://bucket/clicks')
    """
    scheme, found, rest = location.rstrip("/").partition(":")
    if not found or "/" in scheme:
        return f"file://{location.rstrip('/')}"
    return f"file:///{rest.lstrip('/')}" if scheme == "file" else location.rstrip("/")


class TablePlaces:
    """Finds the stores of locations. New content is staged and published in the store at the table's location."""

    def __init__(self, opener: OpenStore) -> None:
        self._opener = opener
        self._stores: dict[str, InstanceStore] = {}

    def root(self, table: Table) -> InstanceStore:
        """Return the store at a table's location."""
        return self.open(plain_location(table.location))

    def find(self, table: Table, location: str) -> Place:
        """Return the place of a partition: below the table's location, or in a folder elsewhere."""
        root, whole = plain_location(table.location), plain_location(location)
        if whole.startswith(f"{root}/"):
            return Place(store=self.open(root), path=whole.removeprefix(f"{root}/"))
        parent, _, name = whole.rpartition("/")
        return Place(store=self.open(parent), path=name)

    def open(self, url: str) -> InstanceStore:
        """Return the store at a URL, always the same object."""
        store = self._stores.get(url)
        if store is None:
            store = self._stores[url] = self._opener(url)
        return store


def version_path(spec: PartitionSpec, token: str) -> str:
    """Return the path below the table's location where the content of a staging is published."""
    return f"{VERSIONS_FOLDER}/{spec.name}/{token}"


def is_own_folder(names: Collection[str], path: str) -> bool:
    """Return whether a path below a table's location belongs only to the partition with these names.

    That is the case for Hive's default folder of the partition and for the folders of feed-assets.

    >>> paths = ("hour=05", "_feed-assets/hour=5/run-1", "hour=5/part", "raw/clicks")
    >>> [is_own_folder({"hour=5", "hour=05"}, path) for path in paths]
    [True, True, False, False]
    """
    folder = path.rpartition("/")[0]
    return path in names or any(folder == f"{VERSIONS_FOLDER}/{name}" for name in names)
