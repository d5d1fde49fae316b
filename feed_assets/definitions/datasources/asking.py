"""What the database of a datasource says: whether it can be used, its tables, and their columns."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from feed_assets.context.operation import OperationContext
from feed_assets.engines.databases.connections import DatabaseColumn, DatabaseConnection, DatabaseTable
from feed_assets.engines.databases.credentials import open_interface
from feed_assets.engines.errors import ServiceError
from feed_assets.engines.java.machine import JavaMachine
from feed_assets.entities.datasource import DatabaseInterface, Datasource
from feed_assets.json_form import shown


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedInterface:
    """One interface and its database. `reads` is how many of the `tables` in the schema of the connection its user may
    read, `creates` whether exports may make their tables; None if the database does not say it.
    """

    interface: str
    url: str
    user: str
    database: str | None = None
    tables: int | None = None
    reads: int | None = None
    creates: bool | None = None
    reason: str | None = None

    @property
    def state(self) -> str:
        """`good`, or why it cannot be used."""
        return self.reason or "good"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedDatasource:
    """A datasource, and its interfaces."""

    datasource: str
    interfaces: tuple[CheckedInterface, ...]

    @shown
    def is_good(self) -> bool:
        """Whether every interface can be used."""
        return not self.has_failed

    @property
    def has_failed(self) -> bool:
        """Whether one cannot be used."""
        return any(each.reason is not None for each in self.interfaces)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableList:
    """Tables and views of a schema, by name."""

    datasource: str
    tables: tuple[DatabaseTable, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnList:
    """The columns of a table, in order."""

    datasource: str
    table: str
    columns: tuple[DatabaseColumn, ...]


def check_datasource(context: OperationContext, name: str) -> CheckedDatasource:
    """Open a connection by each interface, and ask what its user may do."""
    record = context.datasource(name)
    with JavaMachine() as machine:
        root = root_of(context)
        found = tuple(_check(machine, record, name, each, root) for name, each in record.usable_interfaces)
    return CheckedDatasource(datasource=name, interfaces=found)


def _check(
    machine: JavaMachine, record: Datasource, name: str, interface: DatabaseInterface, root: Path
) -> CheckedInterface:
    found = CheckedInterface(interface=name, url=interface.endpoint, user=interface.credential.user)
    try:
        with open_interface(record, interface, root, lambda: machine) as connection:
            dialect, schema = connection.dialect, connection.schema()
            found = replace(found, database=connection.product(), tables=len(connection.tables()))
            if dialect.may_read is not None:
                found = replace(found, reads=int(str(connection.query(dialect.may_read, schema)[0][0])))
            if name == "write" and dialect.may_create is not None:
                place = record.staging_schema or schema
                creates = bool(connection.query(dialect.may_create, place)[0][0])
                lacks = f"its user may make no table in {place}, as exports do: grant it, or set staging_schema"
                found = replace(found, creates=creates, reason=None if creates else lacks)
    except ServiceError as exc:
        found = replace(found, reason=str(exc))
    return found


def list_tables(context: OperationContext, name: str, schema: str | None, like: str | None) -> TableList:
    """List the tables and views of a schema, by default that of the connection."""
    with open_datasource(context.datasource(name), root_of(context)) as connection:
        return TableList(datasource=name, tables=connection.tables(schema, like))


def list_columns(context: OperationContext, name: str, table: str) -> ColumnList:
    """List the columns of a table."""
    with open_datasource(context.datasource(name), root_of(context)) as connection:
        keys = connection.unique_keys(table)
        columns = tuple(
            replace(each, ddl=each.read_as, keys=tuple(key.shown for key in keys if each.name in key.columns))
            for each in connection.columns(table)
        )
    return ColumnList(datasource=name, table=table, columns=columns)


@contextmanager
def open_datasource(record: Datasource, root: Path) -> Iterator[DatabaseConnection]:
    """Yield a connection by the interface of a datasource that reads, or else by the one that writes.

    Raises:
        ServiceError: it cannot be used.
    """
    interface = record.readonly or record.write
    with JavaMachine() as machine, open_interface(record, interface, root, lambda: machine) as connection:
        yield connection


def root_of(context: OperationContext) -> Path:
    assert context.settings is not None, "commands have settings"
    return context.settings.root
