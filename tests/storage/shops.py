"""A table that the tests of tables share, with partitions that others have made."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from feed_assets.storage.table.metastore import Partition, Table
from feed_assets.storage.table.partitions import TablePartitions
from feed_assets.storage.table.store import TableStore
from tests.storage.table_harness import open_local
from tests.tables import KEYS, Catalog

_numbers = itertools.count()


@dataclass(frozen=True, slots=True, kw_only=True)
class Shop:
    """A table with its store and its files."""

    catalog: Catalog
    table: Table
    store: TableStore
    folder: Path

    def partition(self, *values: str) -> Partition:
        found = self.catalog.partition(self.table, *values)
        assert found is not None
        return found

    def location(self, *values: str) -> Path:
        return Path(self.partition(*values).location.removeprefix("file:"))

    def add(self, folder: Path, *values: str, text: str = "old") -> None:
        """A partition as others make one."""
        folder.mkdir(parents=True)
        (folder / "part-0").write_text(text)
        self.catalog.add_partition(self.table, values, f"file://{folder}")


def open_shop(
    catalog: Catalog,
    folder: Path,
    keys: Sequence[tuple[str, str]] = KEYS,
    **more: Any,
) -> Shop:
    name = f"shop_{next(_numbers)}"
    table = catalog.make_table("default", name, folder, keys, **more)
    url = f"thrift://127.0.0.1/default/{name}"
    store = TableStore(TablePartitions(catalog, "default", name, url, open_local))
    return Shop(catalog=catalog, table=table, store=store, folder=folder)
