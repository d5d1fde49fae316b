"""Find the partitions of one table by path, and the directories of these partitions."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from feed_assets.storage.errors import InstanceNotFoundError, TableRefusedError
from feed_assets.storage.paths import parse_path
from feed_assets.storage.port import InstanceStore, Place
from feed_assets.storage.table.metastore import Metastore, Partition, Table
from feed_assets.storage.table.partition_names import (
    PartitionSpec,
    is_integer,
    is_same_value,
    parse_partition,
    parse_partition_name,
)
from feed_assets.storage.table.places import OpenStore, TablePlaces


class TablePartitions:
    """Queries on the partitions of one table, for its store and its trash. `store` is the URL of the table.

    Nothing is cached.
    """

    def __init__(self, metastore: Metastore, database: str, table: str, store: str, opener: OpenStore) -> None:
        self.metastore = metastore
        self.store = store
        self._database = database
        self._name = table
        self._places = TablePlaces(opener)

    def table(self) -> Table:
        """Return the current table.

        Raises:
            TableRefusedError: the table does not exist or is not partitioned.
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
        """Return the table and the partition of each path.

        Raises:
            PathRefusedError, TableRefusedError: a path does not name a partition.
        """
        for path in paths:
            parse_path(self.store, path)
        table = self.table()
        return table, {path: parse_partition(self.store, path, table.keys) for path in paths}

    def parse_with(self, table: Table, path: str) -> PartitionSpec:
        """Return the partition of a path. Raises like `parse`."""
        parse_path(self.store, path)
        return parse_partition(self.store, path, table.keys)

    def parse_one(self, path: str) -> tuple[Table, PartitionSpec]:
        table, specs = self.parse([path])
        return table, specs[path]

    def find(self, table: Table, specs: Collection[PartitionSpec]) -> dict[str, Partition]:
        """Return the existing partitions by the names of their specs; Hive's own spelling is preferred."""
        spelled_names = {table.render(values) for spec in specs for values in spec.spellings}
        by_values = {each.values: each for each in self.metastore.find_partitions(table, sorted(spelled_names))}
        found = {}
        for spec in specs:
            partition = next((by_values[values] for values in spec.spellings if values in by_values), None)
            if partition is not None:
                found[spec.name] = partition
        return found

    def root(self, table: Table) -> InstanceStore:
        """Return the store at the table's location, where new content is staged and published."""
        return self._places.root(table)

    def place(self, table: Table, partition: Partition) -> Place:
        """Return the directory of a partition."""
        return self._places.find(table, partition.location)

    def by_store(self, table: Table, partitions: Mapping[str, Partition]) -> dict[InstanceStore, dict[str, str]]:
        """Group the directories of partitions by store; each group maps the given keys to paths in that store."""
        grouped: dict[InstanceStore, dict[str, str]] = defaultdict(dict)
        for name, partition in partitions.items():
            place = self.place(table, partition)
            grouped[place.store][name] = place.path
        return grouped

    def place_of(self, path: str) -> Place:
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
        return partition is not None and self.place(table, partition) == Place(store=self.root(table), path=path)

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
        """Return the store at the URL of a recorded place."""
        return self._places.open(url)
