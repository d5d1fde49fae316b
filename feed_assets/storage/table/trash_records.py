"""What trashes of tables share: the paths of a call as partitions, and the records of what a sweep has removed, which
are documents in the trash at the location of the table.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic

from feed_assets.storage.errors import StorageError
from feed_assets.storage.paths import parse_token, path_name
from feed_assets.storage.port import InstanceStore, Trash
from feed_assets.storage.records import Moved, Outcome, moved_nothing
from feed_assets.storage.table.partition_names import PartitionSpec
from feed_assets.storage.table.partition_store import Partitions, TableT

_VERSION = 1
_RECORDS = "partitions-"


@dataclass(frozen=True, slots=True)
class PathRequest:
    """The parsed paths of a call.

    `specs` has the partitions by Hive's names, `names` the name for each path, `first` the first path for each name,
    and `refused` the results for paths that do not name a partition.
    """

    paths: tuple[str, ...]
    specs: dict[str, PartitionSpec] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    first: dict[str, str] = field(default_factory=dict)
    refused: dict[str, Moved] = field(default_factory=dict)

    def answer(self, done: Mapping[str, Moved], again: Mapping[Outcome, Outcome]) -> list[Moved]:
        """Return one result per path; `again` maps the first outcome of a partition to that of repeated paths."""
        answers: list[Moved] = []
        seen: set[str] = set()
        for path in self.paths:
            name = self.names.get(path)
            found = self.refused[path] if name is None else done[name]
            if name is not None and name in seen and found.outcome in again:
                found = moved_nothing(again[found.outcome], "it was named before")
            seen |= {name} if name is not None else set()
            answers.append(replace(found, path=path))
        return answers


class PartitionTrash(Trash, Generic[TableT]):
    """The trash of a table's partitions, whose documents are at the location of the table."""

    takes_files = False

    def __init__(self, store: InstanceStore, partitions: Partitions[TableT]) -> None:
        self.store = store
        self._partitions = partitions

    def _parse(self, sweep: str, paths: Sequence[str]) -> tuple[TableT, PathRequest]:
        """Return the table, and the partitions of the paths of a call."""
        parse_token(self.store.root_url, sweep)
        table, request = self._partitions.table(), PathRequest(tuple(paths))
        for path in paths:
            try:
                spec = self._spec(table, path)
            except StorageError as exc:
                request.refused[path] = moved_nothing(Outcome.REFUSED, exc.reason)
            else:
                request.specs[spec.name] = spec
                request.names[path] = spec.name
                request.first.setdefault(spec.name, path)
        return table, request

    def _spec(self, table: TableT, path: str) -> PartitionSpec:
        return self._partitions.parse_with(table, path)

    def _root(self) -> Trash:
        return self._partitions.home().trash()


def write_records(trash: Trash, sweep: str, store: str, partitions: Mapping[str, Mapping[str, object]]) -> None:
    """Write the records of a call, by names of partitions, next to those of the sweep's other calls; a repeated call
    overwrites its own. `store` is the URL of the table.
    """
    digest = hashlib.sha256("\n".join(sorted(partitions)).encode("utf-8", "surrogateescape")).hexdigest()[:24]
    number = len(record_names(trash, sweep))
    document = {"version": _VERSION, "sweep": sweep, "number": number, "table": store, "partitions": partitions}
    trash.describe(f"{_prefix(sweep)}{digest}", document)


def record_names(trash: Trash, sweep: str) -> list[str]:
    """Return the names of the documents with the records of a sweep."""
    return [name for name in trash.sweeps() if name.startswith(_prefix(sweep))]


def read_records(trash: Trash, sweep: str) -> dict[str, Mapping[str, str]]:
    """Return the records of a sweep by names of partitions; the last one of a partition counts."""
    documents = [document for name in record_names(trash, sweep) if (document := trash.find_description(name))]
    found: dict[str, Mapping[str, str]] = {}
    for document in sorted(documents, key=lambda each: int(str(each["number"]))):
        partitions = document["partitions"]
        assert isinstance(partitions, Mapping)
        found |= partitions
    return found


def recorded_sweeps(trash: Trash, hidden: str = _RECORDS) -> list[str]:
    """Return the sweeps of a trash, also those that have only records; names that begin with `hidden` are none."""
    found = trash.sweeps()
    undescribed = {
        str(document["sweep"])
        for name in found
        if name.startswith(_RECORDS) and (document := trash.find_description(name)) is not None
    }
    return sorted(undescribed | {name for name in found if not name.startswith((_RECORDS, hidden))})


def _prefix(sweep: str) -> str:
    return f"{_RECORDS}{path_name(sweep)}-"
