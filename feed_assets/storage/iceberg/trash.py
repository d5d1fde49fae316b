"""The trash of an Iceberg table: one commit takes the files of many partitions out of the table, and tags the snapshot
before. The tag keeps their files from the maintenance of the table until a purge drops it.

What a sweep has removed is recorded at the location of the table before the commit, and counts if its tag is there.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import blake2b

from pyiceberg.manifest import DataFileContent

from feed_assets.storage.errors import InstanceChangingError, InstanceNotFoundError, StorageError
from feed_assets.storage.iceberg.commits import Change, commit_change, require_writable
from feed_assets.storage.iceberg.partitions import Found, LakePartitions, LakeTable
from feed_assets.storage.paths import parse_token
from feed_assets.storage.port import Kept, StorePath
from feed_assets.storage.records import Moved, Outcome, Purged, moved_nothing
from feed_assets.storage.table.partition_names import PartitionSpec
from feed_assets.storage.table.trash_records import (
    PartitionTrash,
    PathRequest,
    read_records,
    record_names,
    recorded_sweeps,
    write_records,
)

_TRIES = 20
_GONE = "the table has no such partition"


class LakeTrash(PartitionTrash[LakeTable]):
    """The trash of an Iceberg table's partitions. A removal and a restore are one commit each, whatever their number.

    Purged partitions are no longer kept from the maintenance of the table, which removes their files when it expires
    the snapshots that have them.
    """

    _partitions: LakePartitions

    def put(self, sweep: str, paths: Sequence[str], *, flag: str | None = None) -> list[Moved]:  # noqa: ARG002
        for _ in range(_TRIES):
            table, request = self._parse(sweep, paths)
            records = self._records(table, sweep)
            live = self._find(table, request)
            done = dict.fromkeys(request.specs, moved_nothing(Outcome.VANISHED, _GONE))
            for name in records.keys() & request.specs.keys():
                reason = "this sweep has removed the partition"
                done[name] = moved_nothing(Outcome.ALREADY, reason)
                if name in live:
                    del live[name]
                    done[name] = moved_nothing(Outcome.CHANGED, f"{reason}, and another one has arrived since")
            if not live or self._change(table, sweep, request, live):
                done |= {name: _moved(found) for name, found in live.items()}
                return request.answer(done, again={Outcome.MOVED: Outcome.ALREADY})
        raise self._busy()

    def keep(self, sweep: str, path: str, *, flag: str | None = None) -> Moved:  # noqa: ARG002
        for _ in range(_TRIES):
            table, request = self._parse(sweep, [path])
            live = self._find(table, request)
            done = dict.fromkeys(request.specs, moved_nothing(Outcome.VANISHED, _GONE))
            done |= {name: moved_nothing(Outcome.ALREADY, "it is kept") for name in self._records(table, sweep)}
            fresh = {name: found for name, found in live.items() if done[name].outcome is not Outcome.ALREADY}
            if not fresh or self._change(table, sweep, request, fresh, is_kept=True):
                return request.answer(done | {name: _moved(found) for name, found in fresh.items()}, again={})[0]
        raise self._busy()

    @contextmanager
    def reading(self, sweep: str, path: str) -> Iterator[Kept]:
        table, request = self._parse(sweep, [path])
        kept = self._kept(table, sweep, request.specs)
        if not kept:
            raise InstanceNotFoundError(store=self.store.root_url, path=path)
        (found,) = kept.values()
        urls = {url.rpartition("/")[2]: url for url in sorted(found.paths)}

        yield list(urls), lambda name: table.chunks(urls[name])

    def restore(self, sweep: str, paths: Sequence[str]) -> list[Moved]:
        for _ in range(_TRIES):
            table, request = self._parse(sweep, paths)
            records = self._records(table, sweep)
            live, kept = self._find(table, request), self._kept(table, sweep, request.specs)
            done = dict.fromkeys(request.specs, moved_nothing(Outcome.LOST, "it is not in the trash"))
            restored: dict[str, Found] = {}
            for name, found in kept.items():
                if name not in live:
                    done[name] = self._refuse_undeleted(table, request.specs[name], found) or _moved(found)
                elif live[name].paths == found.paths:
                    done[name] = _moved(found)
                else:
                    done[name] = moved_nothing(Outcome.OCCUPIED, "the table has such a partition")
                if done[name].outcome is Outcome.MOVED:
                    restored[name] = found
            entries = [entry for name, found in restored.items() if name not in live for entry in found.data]
            left = {tag for name, tag in records.items() if name not in restored}
            change = Change(
                restored=entries,
                untagged=sorted({records[name] for name in restored} - left),
                properties={"feed-assets.undone": sweep},
            )
            if self._commit(table, change):
                if gone := {name: {"asked": request.first[name], "tag": ""} for name in restored}:
                    write_records(self._root(), sweep, self.store.root_url, gone)
                return request.answer(done, again={Outcome.MOVED: Outcome.LOST})
        raise self._busy()

    def purge(self, sweep: str) -> Purged:
        parse_token(self.store.root_url, sweep)
        for _ in range(_TRIES):
            table = self._partitions.table()
            tags = [tag for tag in table.table.refs() if tag.startswith(_prefix(sweep))]
            if not tags or self._commit(table, Change(untagged=tags)):
                break
        else:
            raise self._busy()
        trash = self._root()
        for name in record_names(trash, sweep):
            trash.purge(name)
        return trash.purge(sweep)

    def sweeps(self) -> list[str]:
        return recorded_sweeps(self._root())

    def contents(self, sweep: str) -> Iterator[str]:
        parse_token(self.store.root_url, sweep)
        there = self._records(self._partitions.table(), sweep)
        asked = read_records(self._root(), sweep)
        yield from (asked[name]["asked"] for name in there)

    def receive(self, path: str, copy: Callable[[StorePath], Moved]) -> Moved:  # noqa: ARG002 - files are not rows
        return Moved(path=path, outcome=Outcome.REFUSED, reason="an Iceberg table takes no files of an archive")

    def holds(self, sweep: str, path: str) -> bool:
        table, request = self._parse(sweep, [path])
        recorded = self._records(table, sweep).keys() & request.specs.keys()
        return bool(recorded - self._find(table, request).keys())

    def _find(self, table: LakeTable, request: PathRequest) -> dict[str, Found]:
        return self._partitions.find(table, list(request.specs.values()))

    def _records(self, table: LakeTable, sweep: str) -> dict[str, str]:
        """Return the tags that keep what a sweep has removed, by names of partitions."""
        refs = table.table.refs()
        found = read_records(self._root(), sweep)
        return {name: values["tag"] for name, values in found.items() if values["tag"] in refs}

    def _kept(self, table: LakeTable, sweep: str, specs: Mapping[str, PartitionSpec]) -> dict[str, Found]:
        """Return what the tags of a sweep keep of these partitions."""
        by_tag: dict[str, list[PartitionSpec]] = defaultdict(list)
        for name, tag in self._records(table, sweep).items():
            if name in specs:
                by_tag[tag].append(specs[name])
        found: dict[str, Found] = {}
        for tag, each in by_tag.items():
            found |= self._partitions.find_in(table, table.table.snapshot_by_name(tag), each)
        return found

    def _change(
        self,
        table: LakeTable,
        sweep: str,
        request: PathRequest,
        found: Mapping[str, Found],
        *,
        is_kept: bool = False,
    ) -> bool:
        """Record partitions, and take them out of the table unless they are only kept; return False if another commit
        was faster.
        """
        snapshot = table.table.current_snapshot()
        assert snapshot is not None
        digest = blake2b("\n".join([str(snapshot.snapshot_id), *sorted(found)]).encode(), digest_size=12).hexdigest()
        tag = f"{_prefix(sweep)}{digest}"
        records = {name: {"asked": request.first[name], "tag": tag} for name in found}
        write_records(self._root(), sweep, self.store.root_url, records)
        removed = [] if is_kept else [entry.data_file for each in found.values() for entry in each.data]
        return self._commit(table, Change(removed=removed, tag=tag, properties={"feed-assets.sweep": sweep}))

    def _commit(self, table: LakeTable, change: Change) -> bool:
        require_writable(table.table, self.store.root_url)
        with self._partitions.catalog.translated(store=self.store.root_url):
            return commit_change(table.table, change, self.store.root_url)

    def _refuse_undeleted(self, table: LakeTable, spec: PartitionSpec, found: Found) -> Moved | None:
        """Refuse a partition whose deleted rows would be back, because the table has dropped what deletes them."""
        files = [each.data_file for each in found.entries]
        deletes = {each.file_path for each in files if each.content != DataFileContent.DATA}
        if not deletes:
            return None
        values = {table.parse_values(spec, self.store.root_url)}
        live = self._partitions.live(table, table.table.current_snapshot(), values)
        if deletes <= {path for each in live.values() for path in each.paths}:
            return None
        return moved_nothing(Outcome.REFUSED, "the table no longer has what deletes rows of it")

    def _busy(self) -> StorageError:
        return InstanceChangingError(store=self.store.root_url, path="", reason="others keep changing the table")


def _moved(found: Found) -> Moved:
    sizes = [entry.data_file.file_size_in_bytes for entry in found.data]
    return Moved(path="", outcome=Outcome.MOVED, bytes=sum(sizes), files=len(sizes))


def _prefix(sweep: str) -> str:
    return f"feed-assets-{sweep}-"
