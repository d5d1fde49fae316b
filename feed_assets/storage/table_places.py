"""Where the partitions of tables lie: which store a location of a metastore is in, and which folders are ours there.

What is published into a table lies below its location in `_feed-assets/<partition>/<token>`: a folder that Hive, Spark
and their repair commands take for no partition. `<partition>` is the name in Hive's words.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from feed_assets.storage.metastore import Table
from feed_assets.storage.partition_names import PartitionSpec
from feed_assets.storage.port import InstanceStore

VERSIONS_FOLDER = "_feed-assets"

OpenStore = Callable[[str], InstanceStore]
"""Opens the store at a URL with the options of the cluster's storage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A directory: the store that it is in and its path below the root."""

    store: InstanceStore
    path: str


def plain_location(location: str) -> str:
    """A location in the way of a storage URL.

    >>> plain_location("file:/data/web.db/clicks/"), plain_location("/data"), plain_location("s3a://bucket/clicks")
    ('file:///data/web.db/clicks', 'file:///data', 's3a://bucket/clicks')
    """
    scheme, found, rest = location.rstrip("/").partition(":")
    if not found or "/" in scheme:
        return f"file://{location.rstrip('/')}"
    return f"file:///{rest.lstrip('/')}" if scheme == "file" else location.rstrip("/")


class TablePlaces:
    """Finds the store of a location; the table's own is the one that new content is staged and published in."""

    def __init__(self, opener: OpenStore) -> None:
        self._opener = opener
        self._stores: dict[str, InstanceStore] = {}

    def root(self, table: Table) -> InstanceStore:
        """The store of all that lies below a table's location."""
        return self.open(plain_location(table.location))

    def find(self, table: Table, location: str) -> Place:
        """Where a partition of the table lies: below the table's location, or in a folder of its own."""
        root, whole = plain_location(table.location), plain_location(location)
        if whole.startswith(f"{root}/"):
            return Place(store=self.open(root), path=whole.removeprefix(f"{root}/"))
        parent, _, name = whole.rpartition("/")
        return Place(store=self.open(parent), path=name)

    def open(self, url: str) -> InstanceStore:
        """The store at a URL, the same object each time."""
        store = self._stores.get(url)
        if store is None:
            store = self._stores[url] = self._opener(url)
        return store


def version_path(spec: PartitionSpec, token: str) -> str:
    """Where the content that a staging holds is published, below the table's location."""
    return f"{VERSIONS_FOLDER}/{spec.name}/{token}"


def is_own_folder(names: Collection[str], path: str) -> bool:
    """Whether a path below a table's location belongs to the partition of these names alone: the folder that Hive gives
    it, or one of ours.

    >>> paths = ("hour=05", "_feed-assets/hour=5/run-1", "hour=5/part", "raw/clicks")
    >>> [is_own_folder({"hour=5", "hour=05"}, path) for path in paths]
    [True, True, False, False]
    """
    folder = path.rpartition("/")[0]
    return path in names or any(folder == f"{VERSIONS_FOLDER}/{name}" for name in names)
