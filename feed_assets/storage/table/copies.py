"""Copy tables between metastores: what of a table can be copied, the table that receives it, and how a copy of one
partition is assembled. The files are staged by the store at the table's location; what is new is the description.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from feed_assets.errors import render_some
from feed_assets.storage.copy_port import Acl, Prepared, StagedFile, Staging, Traits
from feed_assets.storage.errors import TableRefusedError
from feed_assets.storage.paths import path_name
from feed_assets.storage.port import InstanceStore, StorePath
from feed_assets.storage.records import Guard, StagingPlace
from feed_assets.storage.table.metastore import Table
from feed_assets.storage.table.partition_names import PartitionSpec
from feed_assets.storage.table.partitions import TablePartitions, version_path

_THREADS = 8
_VIEWS = frozenset({"VIRTUAL_VIEW", "MATERIALIZED_VIEW"})
_OTHER_FORMATS = frozenset({"iceberg", "delta", "hudi", "paimon"})
_LINKS = "SymlinkTextInputFormat"


def why_not_written(table: Table) -> str | None:
    """Return why readers of a table do not see files that are put into its partitions, as a clause; None if they do."""
    if table.kind in _VIEWS:
        return "it is a view"
    if table.parameters.get("transactional", "").lower() == "true":
        return "Hive keeps transactions of it, and does not see files that others add"
    if table.buckets:
        return f"its rows are in {table.buckets} buckets, which only its own engine fills as readers expect"
    return None


def why_not_plain(table: Table) -> str | None:
    """Return why files that are laid into a table are not its rows, as a clause; None if they are."""
    kinds = {table.parameters.get(name, "").lower() for name in ("table_type", "spark.sql.sources.provider")}
    if found := kinds & _OTHER_FORMATS:
        return f"it is a table of {found.pop().capitalize()}, whose own files say which files are its rows"
    if "storage_handler" in table.parameters:
        return f"another system has its rows, by {table.parameters['storage_handler']}"
    if (table.described.sd.inputFormat or "").endswith(_LINKS):
        return "its files are links to other files"
    return why_not_written(table)


def require_copyable(table: Table, store: str, what: str) -> None:
    """Raise `TableRefusedError` unless copied files of this table, the source or the target, are its rows."""
    if (reason := why_not_plain(table)) is not None:
        raise TableRefusedError(
            store=store,
            path="",
            reason=f"{what} {table.database}.{table.name} is not copied: {reason}",
            next_step="Copy a plain table of files, or write the table on the target with a process there.",
        )


def receive_table(source: TablePartitions, target: TablePartitions) -> None:
    """Make the target of copies like their source if it does not exist; else require the same keys and columns.

    Raises:
        TableRefusedError: one of them cannot be copied (a view, …), or they differ.
    """
    told, metastore = source.table(), target.metastore
    require_copyable(told, source.store, "the source")
    found = metastore.find_table(target.database, target.name)
    if found is None:
        metastore.create_table(target.database, target.name, target.new_location(), told)
        found = target.table()
    require_copyable(found, target.store, "the target")
    columns, others = dict(told.columns), dict(found.columns)
    if target.ignores_columns:  # readers leave out what only the files have, and find null in what they lack
        columns, others = ({name: each[name] for name in columns.keys() & others} for each in (columns, others))
    for what, one, other in (("partition keys", dict(told.keys), dict(found.keys)), ("columns", columns, others)):
        if differing := _differences(one, other):
            raise TableRefusedError(
                store=target.store,
                path="",
                reason=f"its {what} are not those of the source {told.database}.{told.name}: "
                f"{render_some(differing, 5)}",
                next_step="Alter one of the tables, or drop the target: a new one is made from the source.",
            )
    _require_order(told, found, target)


def _require_order(told: Table, found: Table, target: TablePartitions) -> None:
    """Raise `TableRefusedError` if readers would take a column for another one, as they go by its place. Those of
    Parquet go by its name.
    """
    names = [name.lower() for name, _ in told.columns], [name.lower() for name, _ in found.columns]
    is_by_name = target.ignores_columns and "parquet" in (told.described.sd.inputFormat or "").lower()
    if not is_by_name and any(one != other for one, other in zip(*names, strict=False)):
        one, other = map(", ".join, names)
        raise TableRefusedError(
            store=target.store,
            path="",
            reason=f"its columns are in another order than those of the source {told.database}.{told.name}: {one} "
            f"there, {other} here",
            next_step="Alter one of the tables, or drop the target: a new one is made from the source.",
        )


def _differences(one: dict[str, str], other: dict[str, str]) -> tuple[str, ...]:
    """Return the names that two tables do not share, each with its types at the source and at the target."""
    names = [*one, *(name for name in other if name not in one)]
    return tuple(
        f"{name} ({one.get(name, 'none')} there, {other.get(name, 'none')} here)"
        for name in names
        if one.get(name) != other.get(name)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    """Where a copy is assembled: the partition of a table, and the `version` below its location that it will show."""

    table: Table
    spec: PartitionSpec
    version: str
    present: StorePath | None
    files: Staging


Show = Callable[[Table, PartitionSpec, str, Guard, str], None]
"""Points a partition to a published version, with a description of its files, after it has called a guard."""


class TableStaging(Staging):
    """A staging of one partition: that of a new directory below the table's location, to which one call to the
    metastore then points the partition. Each content that is replaced leads to another directory, so that an
    interrupted copy finds its staging, and nobody's files are written to.
    """

    copies_adopted = True

    def __init__(self, path: str, token: str, partitions: TablePartitions, show: Show) -> None:
        self.path = path
        self.token = token
        self._partitions = partitions
        self._show = show
        self._found: _Target | None = None
        self._description = ""

    @property
    def root(self) -> InstanceStore:
        """The store at the table's location."""
        return self._partitions.root(self._target.table)

    @property
    def files(self) -> Staging:
        """The staging of the new directory, in the store at the table's location."""
        return self._target.files

    def create(self, *, is_again: bool = False) -> StagingPlace:
        return self._locate().create(is_again=is_again)

    def open(self) -> int:
        return self._locate().open()

    def seal(self, generation: int | None = None) -> None:
        self._locate().seal(generation)

    def join(self, generation: int) -> None:
        self._locate().join(generation)

    def close(self) -> None:
        if self._found is not None:
            self._found.files.close()

    def put(self, file: str, size: int, chunks: Iterable[bytes | memoryview], block_size: int | None = None) -> None:
        self.files.put(file, size, chunks, block_size)

    def record(self, files: Sequence[StagedFile]) -> None:
        self.files.record(files)

    def recorded(self) -> list[StagedFile]:
        return self.files.recorded()

    def chunks(self, file: str) -> Iterator[bytes | memoryview]:
        return self.files.chunks(file)

    def drop(self, files: Collection[str]) -> None:
        self.files.drop(files)

    def adopt(self, files: Collection[str]) -> None:
        if not files:
            return
        present = self._target.present or StorePath(store=self.root, path=self._target.version)
        sizes = present.store.standing(present.path).files
        with present.store.reading(present.path) as reading, ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(lambda file: self.files.put(file, sizes.get(file, -1), reading.chunks(file)), files))

    def dress(self, file: str, modified: int | None, mode: int | None) -> None:
        self.files.dress(file, modified, mode)

    def grant(self, file: str, traits: Traits, acl: Acl | None) -> None:
        self.files.grant(file, traits, acl)

    def prepare(self, prepared: Prepared) -> None:
        self._description = prepared.description
        self.files.prepare(prepared)

    def publish(self, guard: Guard) -> None:
        target = self._target
        target.files.publish(_allow)
        self.root.flush([target.files])
        self._show(target.table, target.spec, target.version, guard, self._description)

    def remove(self) -> None:
        (self._found.files if self._found is not None else self._locate()).remove()

    @property
    def _target(self) -> _Target:
        assert self._found is not None
        return self._found

    def _locate(self) -> Staging:
        """Find the partition as it is now, and its next directory."""
        self.close()
        partitions = self._partitions
        table, spec = partitions.parse_one(self.path)
        partition = partitions.find(table, [spec]).get(spec.name)
        version = version_path(spec, f"{self.token}-{path_name(partition.location if partition else 'none')[:12]}")
        files = partitions.root(table).staging(version, self.token)
        present = None if partition is None else partitions.place(table, partition)
        self._found = _Target(table=table, spec=spec, version=version, present=present, files=files)
        return files


def _allow() -> None:
    """Allow the publication of what nobody sees yet."""
