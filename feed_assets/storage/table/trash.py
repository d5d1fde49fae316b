"""The trash of a table: drop partitions and move their directories to the trash of their stores.

The definition of each partition is written into the trash before the partition is dropped, so that it can be restored.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from feed_assets.storage.errors import InstanceNotFoundError, StorageError
from feed_assets.storage.paths import parse_token, path_name
from feed_assets.storage.port import InstanceStore, Kept, StorePath
from feed_assets.storage.records import Moved, Outcome, Purged, moved_nothing
from feed_assets.storage.table.metastore import Partition, Table
from feed_assets.storage.table.partition_names import PartitionSpec, parse_partition
from feed_assets.storage.table.partitions import VERSIONS_FOLDER, TablePartitions
from feed_assets.storage.table.trash_records import (
    PartitionTrash,
    read_records,
    record_names,
    recorded_sweeps,
    write_records,
)

_SUPERSEDED = "superseded-"


def remove_superseded(store: InstanceStore, path: str) -> None:
    """Delete a directory that no partition points to any more, or that none ever pointed to."""
    sweep = f"{_SUPERSEDED}{path_name(path)}"
    trash = store.trash()
    trash.put(sweep, [path])
    trash.purge(sweep)


def purge_superseded(store: InstanceStore) -> None:
    """Finish interrupted calls of `remove_superseded`."""
    trash = store.trash()
    for sweep in trash.sweeps():
        if sweep.startswith(_SUPERSEDED):
            trash.purge(sweep)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Record:
    """A dropped partition: the given `path`, its definition `packed` by `Partition.pack`, and its directory `place`."""

    path: str
    packed: str
    place: StorePath


class TableTrash(PartitionTrash[Table]):
    """The trash of a table's partitions.

    A put first drops the partition from the metastore, then moves the directory. A restore moves the directory back
    first, then adds the partition. Directories outside the table's location are moved too, to the trash of their
    parent.

    Differs from Falcon: there Hive deletes the directories of managed tables, and Falcon those of external tables.
    """

    _partitions: TablePartitions

    def put(self, sweep: str, paths: Sequence[str], *, flag: str | None = None) -> list[Moved]:
        table, request = self._parse(sweep, paths)
        records = self._records(sweep)
        standing = self._partitions.find(table, list(request.specs.values()))
        done = dict.fromkeys(request.specs, moved_nothing(Outcome.VANISHED, "the table has no such partition"))
        for name in self._in_trash(sweep, {name: records[name] for name in standing if name in records}):
            del standing[name]
            reason = "this sweep has removed the partition, and another one has arrived since"
            done[name] = moved_nothing(Outcome.CHANGED, reason)
        for measure in self.store.measure([request.first[name] for name in standing]):
            if measure.obstacle is not None:
                name = request.names[measure.path]
                del standing[name]
                done[name] = moved_nothing(Outcome.REFUSED, measure.obstacle)
        if standing:
            fresh = {name: self._record(table, partition, request.first[name]) for name, partition in standing.items()}
            self._write_records(sweep, fresh)
            self._partitions.metastore.drop_partitions(table, list(standing.values()))
            records |= fresh
        dropped_names = [name for name in request.specs if done[name].outcome is Outcome.VANISHED and name in records]
        done |= self._move(sweep, {name: records[name] for name in dropped_names}, set(standing), flag)
        return request.answer(done, again={Outcome.MOVED: Outcome.ALREADY})

    def keep(self, sweep: str, path: str, *, flag: str | None = None) -> Moved:
        table, spec = self._partitions.parse_one(path)
        partition = self._partitions.find(table, [spec]).get(spec.name)
        if partition is None:
            return replace(moved_nothing(Outcome.VANISHED, "the table has no such partition"), path=path)
        record = self._records(sweep).get(spec.name) or self._record(table, partition, path)
        self._write_records(sweep, {spec.name: record})
        return replace(record.place.store.trash().keep(sweep, record.place.path, flag=flag), path=path)

    def reading(self, sweep: str, path: str) -> AbstractContextManager[Kept]:
        record = self._records(sweep).get(self._partitions.parse_one(path)[1].name)
        if record is None:
            raise InstanceNotFoundError(store=self.store.root_url, path=path)
        return record.place.store.trash().reading(sweep, record.place.path)

    def restore(self, sweep: str, paths: Sequence[str]) -> list[Moved]:
        table, request = self._parse(sweep, paths)
        records = {name: record for name, record in self._records(sweep).items() if name in request.specs}
        standing = self._partitions.find(table, list(request.specs.values()))
        in_trash = set(self._in_trash(sweep, records))
        done = dict.fromkeys(request.specs, moved_nothing(Outcome.LOST, "it is not in the trash"))
        for name in in_trash & standing.keys():
            done[name] = moved_nothing(Outcome.OCCUPIED, "the table has such a partition")
        restorable = {name: record for name, record in records.items() if name not in standing}
        for store, places in _by_store(restorable).items():
            measures = store.measure(list(places.values()))
            restored = store.trash().restore(sweep, list(places.values()))
            for (name, found), measure in zip(zip(places, restored, strict=True), measures, strict=True):
                was_restored = found.outcome is Outcome.LOST and measure.exists
                if found.outcome is Outcome.MOVED or was_restored:
                    self._partitions.metastore.put_back(records[name].packed)
                    found = replace(found, outcome=Outcome.MOVED, reason=None)
                done[name] = found
        return request.answer(done, again={Outcome.MOVED: Outcome.LOST})

    def settle(self, sweep: str, paths: Sequence[str]) -> frozenset[str]:
        begun = [path for path in paths if self.holds(sweep, path)]
        removed = (Outcome.MOVED, Outcome.ALREADY)
        return frozenset(moved.path for moved in self.put(sweep, begun) if moved.outcome in removed)

    def purge(self, sweep: str) -> Purged:
        parse_token(self.store.root_url, sweep)
        records = self._records(sweep)
        root = self._partitions.home()
        stores = dict.fromkeys([root, *(record.place.store for record in records.values())])
        purged = [store.trash().purge(sweep) for store in stores]
        is_complete = all(each.is_complete for each in purged)
        if is_complete:
            for name in record_names(root.trash(), sweep):
                root.trash().purge(name)
        obstacle = next((each.obstacle for each in purged if each.obstacle is not None), None)
        files = sum(each.files for each in purged)
        return Purged(sweep=sweep, files=files, is_complete=is_complete, obstacle=obstacle)

    def remove_empty_parents(self, base: str, paths: Sequence[str]) -> list[str]:  # noqa: ARG002 - part of the contract
        """Remove the empty parents of Hive's folders and of those of feed-assets; return none, as tables show none."""
        table = self._partitions.table()
        folders = []
        for path in paths:
            name = parse_partition(self.store.root_url, path, table.keys).name
            folders += [name, f"{VERSIONS_FOLDER}/{name}/any"]
        self._root().remove_empty_parents("", folders)
        return []

    def sweeps(self) -> list[str]:
        return recorded_sweeps(self._root(), _SUPERSEDED)

    def contents(self, sweep: str) -> Iterator[str]:
        parse_token(self.store.root_url, sweep)
        records = self._records(sweep)
        yield from (records[name].path for name in self._in_trash(sweep, records))

    def receive(self, path: str, copy: Callable[[StorePath], Moved]) -> Moved:
        """Let `copy` copy an instance to the partition's directory, or to a new one that the partition then gets."""
        try:
            table, spec = self._partitions.parse_one(path)
        except StorageError as exc:
            return Moved(path=path, outcome=Outcome.REFUSED, reason=exc.reason)
        partition = self._partitions.find(table, [spec]).get(spec.name)
        if partition is not None:
            return copy(self._partitions.place(table, partition))
        version = f"{VERSIONS_FOLDER}/{spec.name}/received-{path_name(path)}"
        received = copy(StorePath(store=self._partitions.root(table), path=version))
        if received.outcome in (Outcome.MOVED, Outcome.ALREADY):
            self._partitions.metastore.add_partition(table, spec.values, f"{table.location}/{version}")
            return replace(received, outcome=Outcome.MOVED)
        return received

    def holds(self, sweep: str, path: str) -> bool:
        table, request = self._parse(sweep, [path])
        if not table.keys:
            return path in self._records(sweep)
        standing = self._partitions.find(table, list(request.specs.values()))
        return any(name in self._records(sweep) for name in request.specs if name not in standing)

    def _spec(self, table: Table, path: str) -> PartitionSpec:
        return parse_partition(self.store.root_url, path, table.keys)

    def _move(
        self, sweep: str, records: Mapping[str, _Record], dropped: set[str], flag: str | None
    ) -> dict[str, Moved]:
        """Move the directories of dropped partitions; restore a partition whose directory cannot be moved."""
        done: dict[str, Moved] = {}
        for store, places in _by_store(records).items():
            for name, found in zip(places, store.trash().put(sweep, list(places.values()), flag=flag), strict=True):
                if found.outcome is Outcome.VANISHED:
                    found = replace(found, outcome=Outcome.MOVED if name in dropped else Outcome.ALREADY, files=0)
                elif found.outcome in (Outcome.REFUSED, Outcome.CHANGED) and name in dropped:
                    self._partitions.metastore.put_back(records[name].packed)
                done[name] = found
        return done

    def _in_trash(self, sweep: str, records: Mapping[str, _Record]) -> Iterator[str]:
        """Yield the names of the partitions whose directories are in the trash."""
        for store, places in _by_store(records).items():
            there = set(store.trash().contents(sweep))
            yield from (name for name, inner in places.items() if inner in there)

    def _record(self, table: Table, partition: Partition, path: str) -> _Record:
        return _Record(path=path, packed=partition.pack(), place=self._partitions.place(table, partition))

    def _write_records(self, sweep: str, records: Mapping[str, _Record]) -> None:
        partitions = {
            name: {
                "asked": record.path,
                "partition": record.packed,
                "store": record.place.store.root_url,
                "path": record.place.path,
            }
            for name, record in records.items()
        }
        write_records(self._root(), sweep, self.store.root_url, partitions)

    def _records(self, sweep: str) -> dict[str, _Record]:
        found: dict[str, _Record] = {}
        for name, values in read_records(self._root(), sweep).items():
            place = StorePath(store=self._partitions.open(values["store"]), path=values["path"])
            found[name] = _Record(path=values["asked"], packed=values["partition"], place=place)
        return found


def _by_store(records: Mapping[str, _Record]) -> dict[InstanceStore, dict[str, str]]:
    grouped: dict[InstanceStore, dict[str, str]] = defaultdict(dict)
    for path, record in records.items():
        grouped[record.place.store][path] = record.place.path
    return grouped
