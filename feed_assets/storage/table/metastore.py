"""The client of a Hive metastore: read and change the partitions of tables over Thrift, without a JVM.

It works with the metastores of Hive 2.3 and later. A process has at most eight connections to an address, whatever the
number of tables there; dead ones are replaced transparently.
"""

import base64
import copy
import json
import os
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from operator import methodcaller
from typing import Any, TypeVar

from pymetastore.hive_metastore import ThriftHiveMetastore, ttypes
from thrift import TSerialization
from thrift.protocol.TBinaryProtocol import TBinaryProtocolAccelerated, TBinaryProtocolFactory
from thrift.Thrift import TApplicationException, TException
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport, TTransportException

from feed_assets.storage.errors import StorageAwayError, StorageError
from feed_assets.storage.table.partition_names import render_partition

_CONNECT_MILLISECONDS = 8_000
_ANSWER_MILLISECONDS = 300_000
_NAMES_A_CALL = 500
_ADDED_A_CALL = 100
_MOST_CONNECTIONS = 8
_CHANGED = "transient_lastDdlTime"
# Statistics of the old content, which readers would apply to the new content.
_STATISTICS = ("COLUMN_STATS_ACCURATE", "numRows", "rawDataSize", "totalSize", "numFiles", "numFilesErasureCoded")
_ROW_STATISTICS = ("COLUMN_STATS_ACCURATE", "numRows", "rawDataSize")
_SPARK_STATISTICS = "spark.sql.statistics."
_SPARK_SCHEMA = "spark.sql.sources.schema"
_SPARK_PATH = "path"  # where Spark looks for the location of a table that it has made

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of the metastore: its location, its partition keys with their Hive types, and its parameters."""

    database: str
    name: str
    kind: str
    location: str
    keys: tuple[tuple[str, str], ...]
    buckets: int
    parameters: Mapping[str, str]
    described: Any = field(repr=False, compare=False)

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        """The columns without the partition keys, each with the text of its type. Of a table of Spark's own, which Hive
        may not know to read, they are what Spark says.
        """
        found = _read_spark_columns(self.parameters)
        if found is None:
            return tuple((each.name.lower(), each.type) for each in self.described.sd.cols or ())
        keys = {key.lower() for key, _ in self.keys}
        return tuple((name, kind) for name, kind in found if name.lower() not in keys)

    def render(self, values: Sequence[str]) -> str:
        """Return the name of the partition with these values."""
        return render_partition(values, self.keys)


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A partition: its values in the order of the keys, its location, and the time of its last change (UTC).

    Without values it is the whole of a table.
    """

    values: tuple[str, ...]
    location: str
    changed_at: datetime | None
    described: Any = field(repr=False, compare=False)

    @property
    def has_statistics(self) -> bool:
        """Whether readers find figures of its rows here, such as the answer to `COUNT(*)`."""
        told = self.described.parameters or {}
        return any(name in told for name in _ROW_STATISTICS) or any(each.startswith(_SPARK_STATISTICS) for each in told)

    def pack(self) -> str:
        """Serialize the complete definition as text, from which `Metastore.put_back` restores the partition."""
        return _pack(self.described)

    def describe(self) -> str:
        """Serialize as text what readers must know of the files: format, columns, parameters. Equal for equal ones."""
        described = self.described
        sd = copy.deepcopy(described.sd)
        sd.location = ""
        sd.parameters = _ordered(sd.parameters)
        if sd.serdeInfo is not None:
            found = _ordered(sd.serdeInfo.parameters)
            sd.serdeInfo.parameters = {**found, **({_SPARK_PATH: ""} if _SPARK_PATH in found else {})}
        kept = _ordered(_without_statistics(described.parameters)) if self.values else {}
        return _pack(ttypes.Partition(sd=sd, parameters=kept))


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFormat:
    """How Hive reads files: SerDe, input and output format by their classes, and the parameters of the SerDe."""

    library: str
    input_format: str
    output_format: str
    serde: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parquet(cls) -> "TableFormat":
        io = "org.apache.hadoop.hive.ql.io.parquet"
        kinds = (f"{io}.MapredParquetInputFormat", f"{io}.MapredParquetOutputFormat")
        return cls(library=f"{io}.serde.ParquetHiveSerDe", input_format=kinds[0], output_format=kinds[1])

    @classmethod
    def orc(cls) -> "TableFormat":
        io = "org.apache.hadoop.hive.ql.io.orc"
        kinds = (f"{io}.OrcInputFormat", f"{io}.OrcOutputFormat")
        return cls(library=f"{io}.OrcSerde", input_format=kinds[0], output_format=kinds[1])

    @classmethod
    def text(cls, separator: str = "\x01") -> "TableFormat":
        """Return lines whose columns are separated."""
        return cls(
            library="org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe",
            input_format="org.apache.hadoop.mapred.TextInputFormat",
            output_format="org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat",
            serde={"field.delim": separator, "serialization.format": separator},
        )


class Metastore:
    """The metastores of one address, `thrift://one:9083,two:9083`; the first that answers is used. Thread-safe.

    `store` is the URL in error messages. Every method raises `StorageError` if no metastore answers, or one refuses.
    """

    def __init__(self, hosts: Sequence[tuple[str, int]], store: str) -> None:
        self._connections = _connections(tuple(hosts), os.getpid())
        self._store = store

    def check(self) -> None:
        """Contact the metastores, writing nothing."""
        self._request(lambda client: client.get_all_databases())

    def find_keys(self, database: str, name: str) -> tuple[str, ...] | None:
        """Return the partition keys of a table; None if it does not exist."""
        table = self.find_table(database, name)
        return None if table is None else tuple(key for key, _ in table.keys)

    def find_table(self, database: str, name: str) -> Table | None:
        """Return a table by name; None if it does not exist."""
        try:
            found = self._request(lambda client: _get_table(client, database, name))
        except _Missing:
            return None
        sd = found.sd
        return Table(
            database=database,
            name=name,
            kind=found.tableType or "",
            location=(sd.location or "").rstrip("/"),
            keys=tuple((key.name, key.type) for key in found.partitionKeys or ()),
            buckets=max(sd.numBuckets or 0, 0),
            parameters=dict(found.parameters or {}),
            described=found,
        )

    def find_partitions(self, table: Table, names: Sequence[str]) -> list[Partition]:
        """Return the existing ones of the named partitions, in no particular order. Raises `LookupError` if the table
        has been dropped.
        """
        found: list[Partition] = []
        for start in range(0, len(names), _NAMES_A_CALL):
            batch = list(names[start : start + _NAMES_A_CALL])
            call = methodcaller("get_partitions_by_names", table.database, table.name, batch)
            found += [_partition(each) for each in self._request(call)]
        return found

    def partition_names(self, table: Table, values: Mapping[str, str]) -> list[str]:
        """Return the names of all partitions, or of those with the given values of some keys."""
        if not values:
            return list(self._request(lambda client: client.get_partition_names(table.database, table.name, -1)))
        some_values = [values.get(key.lower(), "") for key, _ in table.keys]
        return list(
            self._request(lambda client: client.get_partition_names_ps(table.database, table.name, some_values, -1))
        )

    def find_location(self, database: str) -> str | None:
        """Return where a database has its tables by default; None if it does not exist."""
        try:
            return str(self._request(lambda client: client.get_database(database)).locationUri or "").rstrip("/")
        except _Missing:
            return None

    def has_database(self, database: str) -> bool:
        """Return whether a database exists."""
        return self.find_location(database) is not None

    def create_table(self, database: str, name: str, location: str, like: Table) -> bool:
        """Create an external table like another one, with its columns, keys, format and parameters; return False if one
        of this name exists.
        """
        described = ttypes.Table(
            dbName=database,
            tableName=name,
            owner=like.described.owner,
            sd=_storage(like.described, location),
            partitionKeys=like.described.partitionKeys,
            parameters={**_without_statistics(like.parameters), "EXTERNAL": "TRUE"},
            tableType="EXTERNAL_TABLE",
        )
        return self._make(lambda client: client.create_table(described))

    def add_partition(self, table: Table, values: Sequence[str], location: str, description: str = "") -> bool:
        """Add a partition in the table's current format, or as described by `Partition.describe`; return False if one
        with these values exists.
        """
        described = _new_partition(table, values, location, _unpack(description) if description else None)
        return self._make(lambda client: client.add_partition(described))

    def add_partitions(self, table: Table, places: Mapping[tuple[str, ...], str]) -> None:
        """Add partitions by their values, each at a location, in the table's current format; those that exist stay."""
        described = [_new_partition(table, values, location) for values, location in places.items()]
        for start in range(0, len(described), _ADDED_A_CALL):
            request = ttypes.AddPartitionsRequest(
                dbName=table.database,
                tblName=table.name,
                parts=described[start : start + _ADDED_A_CALL],
                ifNotExists=True,
                needResult=False,
            )
            self._request(methodcaller("add_partitions_req", request))

    def alter_partition(self, table: Table, partition: Partition, location: str, description: str = "") -> bool:
        """Point a partition to another location, in the table's current format, or as described by
        `Partition.describe`; return False if it no longer exists. The partition may be a whole table.

        Statistics of the old content are removed, because readers answer `COUNT(*)` from them.
        """
        described = copy.copy(partition.described)
        found = _unpack(description) if description else None
        described.parameters = _without_statistics(described.parameters)
        if found is not None and table.keys:
            described.parameters = found.parameters
        described.sd = _storage(found or (table if table.keys else partition).described, location)
        alter = "alter_partition" if table.keys else "alter_table"
        try:
            self._request(lambda client: getattr(client, alter)(table.database, table.name, described))
        except _Missing:
            return False
        return True

    def drop_partitions(self, table: Table, partitions: Sequence[Partition]) -> None:
        """Drop the partitions that still exist; do not delete their files."""
        for start in range(0, len(partitions), _NAMES_A_CALL):
            names = [table.render(each.values) for each in partitions[start : start + _NAMES_A_CALL]]
            request = ttypes.DropPartitionsRequest(
                dbName=table.database,
                tblName=table.name,
                parts=ttypes.RequestPartsSpec(names=names),
                deleteData=False,
                ifExists=True,
                needResult=False,
            )
            self._request(methodcaller("drop_partitions_req", request))

    def make_table(
        self,
        database: str,
        name: str,
        *,
        location: str,
        columns: Sequence[tuple[str, str]],
        keys: Sequence[tuple[str, str]],
        form: TableFormat,
        parameters: Mapping[str, str],
    ) -> None:
        """Make an external table, unless one has the name."""
        library = ttypes.SerDeInfo(serializationLib=form.library, parameters=dict(form.serde))
        storage = ttypes.StorageDescriptor(
            cols=[ttypes.FieldSchema(name=column, type=kind) for column, kind in columns],
            location=location,
            inputFormat=form.input_format,
            outputFormat=form.output_format,
            serdeInfo=library,
            numBuckets=-1,
            bucketCols=[],
            sortCols=[],
            parameters={},
        )
        described = ttypes.Table(
            dbName=database,
            tableName=name,
            sd=storage,
            partitionKeys=[ttypes.FieldSchema(name=key, type=kind) for key, kind in keys],
            parameters={"EXTERNAL": "TRUE", **parameters},
            tableType="EXTERNAL_TABLE",
        )
        self._make(lambda client: client.create_table(described))

    def put_parameter(self, table: Table, name: str, text: str) -> None:
        """Let a table have a parameter."""
        described = copy.copy(table.described)
        described.parameters = {**(described.parameters or {}), name: text}
        self._request(lambda client: client.alter_table(table.database, table.name, described))

    def put_back(self, packed: str) -> bool:
        """Restore a dropped partition (see `Partition.pack`); return False if one with its values exists."""
        described = _unpack(packed)
        return self._make(lambda client: client.add_partition(described))

    def _make(self, call: Callable[[Any], object]) -> bool:
        """Make a table or a partition; return False if there is one already."""
        try:
            self._request(call)
        except _Existing:
            return False
        return True

    def _request(self, call: Callable[[Any], Answer]) -> Answer:
        """Make a call on one of the address's connections."""
        try:
            return self._connections.request(call)
        except _NoAnswer as exc:
            raise self._refused(str(exc), StorageAwayError) from exc.__cause__
        except TException as exc:
            raise self._translated(exc) from exc

    def _translated(self, exc: TException) -> Exception:
        match exc:
            case ttypes.NoSuchObjectException():
                return _Missing()
            case ttypes.AlreadyExistsException():
                return _Existing()
            case ttypes.InvalidOperationException() if "does not exist" in _message(exc):
                return _Missing()
            case _:
                return self._refused(f"it refused: {_message(exc)}")

    def _refused(self, reason: str, kind: type[StorageError] = StorageError) -> StorageError:
        return kind(
            store=self._store,
            path="",
            reason=f"the metastore: {reason}",
            next_step="Check catalog of the cluster, and that a Hive metastore runs there.",
        )


class _Missing(LookupError):
    """The table or partition does not exist."""


class _Existing(Exception):
    """The partition already exists."""


class _NoAnswer(Exception):
    """No metastore answers."""


@cache
def _connections(hosts: tuple[tuple[str, int], ...], process: int) -> "_Connections":  # noqa: ARG001 - not to share any
    """Return the connections of a process to an address."""
    return _Connections(hosts)


class _Connections:
    """The connections to the metastores of one address. Who finds all of them at work waits for one."""

    def __init__(self, hosts: Sequence[tuple[str, int]]) -> None:
        self._hosts = hosts
        self._free = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        self._idle: list[_Connection] = []

    def request(self, call: Callable[[Any], Answer]) -> Answer:
        """Make a call; use a new connection if an idle one is dead. Raises `_NoAnswer`, and what the call raises."""
        if not self._free.acquire(timeout=_ANSWER_MILLISECONDS / 1000):
            raise _NoAnswer(f"all {_MOST_CONNECTIONS} connections have waited for answers too long")
        try:
            return self._request(call)
        finally:
            self._free.release()

    def _request(self, call: Callable[[Any], Answer]) -> Answer:
        while True:
            try:
                connection, is_new = self._idle.pop(), False
            except IndexError:
                connection, is_new = self._connect(), True
            try:
                answer = call(connection.client)
            except (TTransportException, OSError, EOFError) as exc:
                connection.close()
                if is_new:
                    raise _NoAnswer(f"it broke off: {_message(exc)}") from exc
            except TException:
                self._idle.append(connection)
                raise
            except BaseException:
                connection.close()
                raise
            else:
                self._idle.append(connection)
                return answer

    def _connect(self) -> "_Connection":
        reasons = []
        for host, port in self._hosts:
            try:
                return _Connection(host, port)
            except (TTransportException, OSError) as exc:
                reasons.append(f"{host}:{port}: {_message(exc)}")
        raise _NoAnswer(f"it does not answer at {', '.join(reasons)}")


class _Connection:
    def __init__(self, host: str, port: int) -> None:
        self._socket = TSocket(host, port)
        self._socket.setTimeout(_CONNECT_MILLISECONDS)
        self._transport = TBufferedTransport(self._socket)
        self._transport.open()
        self._socket.handle.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setTimeout(_ANSWER_MILLISECONDS)
        self.client = ThriftHiveMetastore.Client(TBinaryProtocolAccelerated(self._transport))

    def close(self) -> None:
        self._transport.close()

    def __del__(self) -> None:
        self.close()


def _new_partition(table: Table, values: Sequence[str], location: str, like: Any = None) -> Any:
    return ttypes.Partition(
        values=list(values),
        dbName=table.database,
        tableName=table.name,
        createTime=0,
        lastAccessTime=0,
        sd=_storage(like or table.described, location),
        parameters=like.parameters if like else {},
    )


def _get_table(client: Any, database: str, name: str) -> Any:
    try:
        return client.get_table_req(ttypes.GetTableRequest(dbName=database, tblName=name)).table
    except TApplicationException as exc:
        if exc.type != TApplicationException.UNKNOWN_METHOD:
            raise
        return client.get_table(database, name)


def whole_table(table: Table) -> Partition:
    """Return a table without partition keys as a partition without values."""
    return _partition(table.described, ())


def _partition(described: Any, values: Sequence[str] | None = None) -> Partition:
    seconds = (described.parameters or {}).get(_CHANGED) or described.createTime
    return Partition(
        values=tuple(described.values if values is None else values),
        location=(described.sd.location or "").rstrip("/"),
        changed_at=datetime.fromtimestamp(int(seconds), UTC) if seconds else None,
        described=described,
    )


def _read_spark_columns(parameters: Mapping[str, str]) -> list[tuple[str, str]] | None:
    """Return the columns that Spark has written into the parameters of a table, in one text or in numbered parts."""
    count = int(parameters.get(f"{_SPARK_SCHEMA}.numParts", "0"))
    parts = (parameters.get(f"{_SPARK_SCHEMA}.part.{number}", "") for number in range(count))
    text = parameters.get(_SPARK_SCHEMA) or "".join(parts)
    if not text:
        return None
    types = {each["name"]: each["type"] for each in json.loads(text)["fields"]}
    return [(name, kind if isinstance(kind, str) else json.dumps(kind)) for name, kind in types.items()]


def _pack(described: Any) -> str:
    return base64.b64encode(TSerialization.serialize(described, TBinaryProtocolFactory())).decode()


def _unpack(packed: str) -> Any:
    return TSerialization.deserialize(ttypes.Partition(), base64.b64decode(packed), TBinaryProtocolFactory())


def _ordered(parameters: Mapping[str, str] | None) -> dict[str, str]:
    return dict(sorted((parameters or {}).items()))


def _without_statistics(parameters: Mapping[str, str] | None) -> dict[str, str]:
    return {
        name: text
        for name, text in (parameters or {}).items()
        if name not in (*_STATISTICS, _CHANGED) and not name.startswith(_SPARK_STATISTICS)
    }


def _storage(like: Any, location: str) -> Any:
    described = copy.copy(like.sd)
    described.location = location
    if _SPARK_PATH in (described.serdeInfo.parameters or {}):
        described.serdeInfo = copy.copy(described.serdeInfo)
        described.serdeInfo.parameters = {**described.serdeInfo.parameters, _SPARK_PATH: location}
    return described


def _message(exc: Exception) -> str:
    message = getattr(exc, "message", None) or str(exc) or type(exc).__name__
    return str(message).strip().partition("\n")[0]
