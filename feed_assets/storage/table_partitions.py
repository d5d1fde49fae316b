"""The partitions of one table by the paths that name them, and the directories that they show."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from feed_assets.storage.errors import InstanceNotFoundError, TableRefusedError
from feed_assets.storage.metastore import Metastore, Partition, Table
from feed_assets.storage.partition_names import (
    PartitionSpec,
    is_integer,
    is_same_value,
    parse_partition,
    parse_partition_name,
)
from feed_assets.storage.paths import parse_path
from feed_assets.storage.port import InstanceStore
from feed_assets.storage.table_places import OpenStore, Place, TablePlaces


class TablePartitions:
    """What the store of a table and its trash ask; `store` is the URL of the table. Nothing is remembered."""

    def __init__(self, metastore: Metastore, database: str, table: str, store: str, opener: OpenStore) -> None:
        self.metastore = metastore
        self.store = store
        self._database = database
        self._name = table
        self._places = TablePlaces(opener)

    def table(self) -> Table:
        """The table as it is now.

        Raises:
            TableRefusedError: there is none, or it is not partitioned.
        """
        table = self.metastore.find_table(self._database, self._name)
        if table is None:
            raise TableRefusedError(
                store=self.store,
                path="",
                reason=f"there is no table {self._database}.{self._name}",
                next_step="Create it in the catalog, or correct table: of the feed.",
            )
        if not table.keys:
            raise TableRefusedError(
                store=self.store,
                path="",
                reason="it has no partitions that the metastore knows",
                next_step="Use a table that is PARTITIONED BY the keys that the feed names.",
            )
        return table

    def parse(self, paths: Sequence[str]) -> tuple[Table, dict[str, PartitionSpec]]:
        """The table, and the partition that each path names.

        Raises:
            PathRefusedError, TableRefusedError: a path names none.
        """
        for path in paths:
            parse_path(self.store, path)
        table = self.table()
        return table, {path: parse_partition(self.store, path, table.keys) for path in paths}

    def parse_one(self, path: str) -> tuple[Table, PartitionSpec]:
        table, specs = self.parse([path])
        return table, specs[path]

    def find(self, table: Table, specs: Collection[PartitionSpec]) -> dict[str, Partition]:
        """The partitions that exist, by the names of what asks for them; Hive's own spelling before another."""
        wanted = {table.render(values) for spec in specs for values in spec.spellings}
        by_values = {each.values: each for each in self.metastore.find_partitions(table, sorted(wanted))}
        found = {}
        for spec in specs:
            partition = next((by_values[values] for values in spec.spellings if values in by_values), None)
            if partition is not None:
                found[spec.name] = partition
        return found

    def root(self, table: Table) -> InstanceStore:
        """The store of all that lies below the table's location: new content is staged and published there."""
        return self._places.root(table)

    def place(self, table: Table, partition: Partition) -> Place:
        """The directory that a partition shows."""
        return self._places.find(table, partition.location)

    def by_store(self, table: Table, partitions: Mapping[str, Partition]) -> dict[InstanceStore, dict[str, str]]:
        """The directories that partitions show: for each store, whatever names the partition and the path in it."""
        grouped: dict[InstanceStore, dict[str, str]] = defaultdict(dict)
        for name, partition in partitions.items():
            place = self.place(table, partition)
            grouped[place.store][name] = place.path
        return grouped

    def place_of(self, path: str) -> Place:
        """The directory that the partition of a path shows now.

        Raises:
            InstanceNotFoundError: there is no such partition.
        """
        table, spec = self.parse_one(path)
        partition = self.find(table, [spec]).get(spec.name)
        if partition is None:
            raise InstanceNotFoundError(store=self.store, path=path)
        return self.place(table, partition)

    def shows(self, table: Table, partition: Partition | None, path: str) -> bool:
        """Whether a partition shows a directory, by its path below the table's location."""
        return partition is not None and self.place(table, partition) == Place(store=self.root(table), path=path)

    def names(self, table: Table, fixed: Mapping[str, str]) -> list[dict[str, str]]:
        """The values of all partitions that have certain values of some keys, by the keys in lower case."""
        kinds = {key.lower(): kind for key, kind in table.keys}
        exact = {key: value for key, value in fixed.items() if not is_integer(kinds[key])}
        found = (parse_partition_name(name) for name in self.metastore.partition_names(table, exact))
        return [
            values
            for values in found
            if all(is_same_value(values[key], value, kinds[key]) for key, value in fixed.items())
        ]

    def open(self, url: str) -> InstanceStore:
        """The store of files at a URL that a place has had."""
        return self._places.open(url)
