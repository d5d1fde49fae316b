"""Find the partitions of one table by path, and the directories of these partitions. A table without partition keys is
like one partition, `WHOLE_TABLE`, whose location is that of the table.

Published content is below the table's location in `_feed-assets/<partition>/<token>`. Hive, Spark and their repair
commands do not take this folder for a partition. `<partition>` is the name in Hive's spelling.
"""

import re
from collections.abc import Callable, Collection, Mapping

from feed_assets.clock import Stopwatch
from feed_assets.entities.copies.options import Columns
from feed_assets.storage.errors import InstanceNotFoundError, TableRefusedError
from feed_assets.storage.port import InstanceStore, StorePath
from feed_assets.storage.table.metastore import Metastore, Partition, Table, whole_table
from feed_assets.storage.table.partition_names import (
    PartitionSpec,
    is_integer,
    is_same_value,
    parse_partition_name,
)
from feed_assets.storage.table.partition_store import Partitions
from feed_assets.timing.templates import WHOLE_TABLE

VERSIONS_FOLDER = "_feed-assets"
_DESCRIBED_SECONDS = 120
_VERSION = re.compile(
    rf"(.+)/{VERSIONS_FOLDER}/{WHOLE_TABLE}/[^/]+"
)  # /data/web.db/countries/_feed-assets/whole-table/7

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


def base_location(table: Table) -> str:
    """Return a table's location; of a whole table the one that it had before our first publication."""
    found = None if table.keys else _VERSION.fullmatch(table.location)
    return found[1] if found else table.location


def is_own_folder(names: Collection[str], path: str) -> bool:
    """Return whether a path below a table's location belongs only to the partition with these names.

    That is the case for Hive's default folder of the partition and for the folders of feed-assets.

    >>> paths = ("hour=05", "_feed-assets/hour=5/run-1", "hour=5/part", "raw/clicks")
    >>> [is_own_folder({"hour=5", "hour=05"}, path) for path in paths]
    [True, True, False, False]
    """
    folder = path.rpartition("/")[0]
    return path in names or any(folder == f"{VERSIONS_FOLDER}/{name}" for name in names)


class TablePartitions(Partitions[Table]):
    """Queries on the partitions of one table, for its store and its trash. `store` is the URL of the table.

    Nothing is cached but the keys of the table, for those who look. A missing table is made by the first copy, if it is
    `received_on` the storage of its cluster; `columns` says whether copies may have others.
    """

    def __init__(
        self,
        metastore: Metastore,
        database: str,
        table: str,
        store: str,
        opener: OpenStore,
        columns: Columns = Columns.REFUSE,
        received_on: str = "",
    ) -> None:
        self.metastore = metastore
        self.columns = columns
        self.store = store
        self.database = database
        self.name = table
        self._opener = opener
        self._received_on = received_on
        self._stores: dict[str, InstanceStore] = {}
        self._described: tuple[Table, Stopwatch] | None = None

    def table(self) -> Table:
        """Return the current table.

        Raises:
            TableRefusedError: the table does not exist, or is a view of no partitions.
        """
        return self._require(self.metastore.find_table(self.database, self.name))

    def _require(self, table: Table | None) -> Table:
        if table is None:
            raise TableRefusedError(
                store=self.store,
                path="",
                reason=f"there is no table {self.database}.{self.name}",
                next_step="Create it in the catalog, or correct table: of the feed.",
            )
        if not table.keys and not table.location:
            raise TableRefusedError(
                store=self.store, path="", reason="it is a view, which has no files", next_step="Use a table."
            )
        self._described = table, Stopwatch()
        return table

    def table_to_look_at(self) -> Table | None:
        """Return what `find_table` does, or the table as it was at most `_DESCRIBED_SECONDS` ago, to look for
        partitions: a tick looks for those of many tables, and of one with other keys none is found.
        """
        known = self._described
        return known[0] if known is not None and known[1].seconds < _DESCRIBED_SECONDS else self.find_table()

    def find_table(self) -> Table | None:
        """Return the current table; None if it is missing, and copies will make it. Raises as `table`."""
        table = self.metastore.find_table(self.database, self.name)
        return None if table is None and self._received_on else self._require(table)

    def new_location(self) -> str:
        """Return where a missing table is made: where its database has its tables, if that is on the storage, else
        there.

        Raises:
            TableRefusedError: there is no such database.
        """
        given = self.metastore.find_location(self.database)
        if given is None:
            raise TableRefusedError(
                store=self.store,
                path="",
                reason=f"there is no database {self.database}, so the table of the copies cannot be made",
                next_step="Create the database in the catalog of the target.",
            )
        below, root = (plain_location(url).partition("://")[2] for url in (given, self._received_on))
        is_there = f"{below}/".startswith(f"{root}/")
        return f"{given}/{self.name}" if is_there else f"{self._received_on.rstrip('/')}/{self.database}.db/{self.name}"

    def home(self) -> InstanceStore:
        """Return the store at the location of the table, or of the one that copies will make. Raises as `table`."""
        table = self.find_table()
        return self.open(plain_location(self.new_location())) if table is None else self.root(table)

    def find(self, table: Table, specs: Collection[PartitionSpec]) -> dict[str, Partition]:
        """Return the existing partitions by the names of their specs; Hive's own spelling is preferred. Raises as
        `table`.
        """
        if not table.keys:
            return {WHOLE_TABLE: whole_table(self.table())} if specs else {}
        spelled_names = {table.render(values) for spec in specs for values in spec.spellings}
        try:
            by_values = {each.values: each for each in self.metastore.find_partitions(table, sorted(spelled_names))}
        except LookupError:
            self.find_table()
            return {}
        found = {}
        for spec in specs:
            partition = next((by_values[values] for values in spec.spellings if values in by_values), None)
            if partition is not None:
                found[spec.name] = partition
        return found

    def root(self, table: Table) -> InstanceStore:
        """Return the store at the table's location, where new content is staged and published."""
        return self.open(plain_location(base_location(table)))

    def place(self, table: Table, partition: Partition) -> StorePath:
        """Return the directory of a partition: below the table's location, or a folder elsewhere."""
        root, whole = plain_location(base_location(table)), plain_location(partition.location)
        if whole.startswith(f"{root}/"):
            return StorePath(store=self.open(root), path=whole.removeprefix(f"{root}/"))
        parent, _, name = whole.rpartition("/")
        return StorePath(store=self.open(parent), path=name)

    def place_of(self, path: str) -> StorePath:
        """Return the current directory of the partition that a path names.

        Raises:
            InstanceNotFoundError: the partition does not exist.
        """
        table, spec = self.parse_one(path)
        partition = self.find(table, [spec]).get(spec.name)
        if partition is None:
            raise InstanceNotFoundError(store=self.store, path=path)
        return self.place(table, partition)

    def points_to(self, table: Table, partition: Partition | None, path: str) -> bool:
        """Return whether the location of a partition is this path below the table's location."""
        return partition is not None and self.place(table, partition) == StorePath(store=self.root(table), path=path)

    def names(self, table: Table, fixed: Mapping[str, str]) -> list[dict[str, str]]:
        """Return the values of all partitions with the `fixed` values, by lower-case key."""
        kinds = {key.lower(): kind for key, kind in table.keys}
        exact = {key: value for key, value in fixed.items() if not is_integer(kinds[key])}
        found = (parse_partition_name(name) for name in self.metastore.partition_names(table, exact))
        return [
            values
            for values in found
            if all(is_same_value(values[key], value, kinds[key]) for key, value in fixed.items())
        ]

    def open(self, url: str) -> InstanceStore:
        """Return the store at a URL, always the same object."""
        store = self._stores.get(url)
        if store is None:
            store = self._stores[url] = self._opener(url)
        return store
