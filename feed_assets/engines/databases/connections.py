"""Connections to databases by JDBC, in a Java machine of their own, with only the declared driver.

Values are always bound and identifiers always quoted. The driver sees only the JDK and its own jars, so missing jars
are detected here.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, tzinfo
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from feed_assets.engines.databases.dialects import DIALECTS, Dialect, Value, spark_url
from feed_assets.engines.errors import ServiceAwayError, ServiceError
from feed_assets.engines.java.machine import JavaMachine, explain_java, iter_causes
from feed_assets.masking import remember_unnamed

_Time = TypeVar("_Time", date, datetime)

MOST_ROWS = 100_000
"""How many rows a query may return: what is asked here are facts about data, and never the data."""
_CHECK_DRIVER = "Check driver.class and driver.jars."
_JAVA_FAULTS = (Py4JError, PySparkException)  # beside a session, pyspark takes errors of every machine for its own
_AWAY, _REJECTED = ("08", "57P", "25P03"), "08004"  # of connections, and of servers of PostgreSQL that end them
_NEXT_STEPS: Mapping[tuple[str, ...], str] = MappingProxyType(
    {
        ("22", "23", "44"): "Correct the rows or the table, and try again.",  # data, constraints, views
        ("40", "55"): "Let other transactions end, and try again.",
    }
)
"""By classes of SQLSTATE."""
_TABLES = ("TABLE", "BASE TABLE", "VIEW", "PARTITIONED TABLE", "FOREIGN TABLE", "MATERIALIZED VIEW")
_TIMESTAMP, _ZONED_TIMESTAMP, _DATE = 93, 2014, 91
_DECIMAL = re.compile(r"(?:numeric|decimal|number)(?:\((\d+),(\d+)\))?")
_ALL_DIGITS, _DEFAULT_SCALE = 38, 18  # of decimals of Spark
_NO_NULLS, _NO_LIMIT = 0, 2**31 - 1
_ROWS, _COLUMNS = "java.sql.ResultSet", "java.sql.ResultSetMetaData"
_METADATA, _STATEMENT = "java.sql.DatabaseMetaData", "java.sql.PreparedStatement"


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseAddress:
    """The address of a database: the type of its datasource, JDBC URL, driver class, and all jars that the driver
    needs; `spark_jars` are their URLs for Spark, which fetches those of other machines itself.
    """

    type: str = "generic"
    url: str
    driver_class: str
    jars: tuple[Path, ...]
    spark_jars: tuple[str, ...] = ()
    user: str
    password: str = field(repr=False)
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class DatabaseTable:
    """A table or view, and its schema."""

    schema: str
    name: str
    type: str


@dataclass(frozen=True, slots=True)
class DatabaseColumn:
    """A column: its type in the database, and in Spark as DDL; None if Spark cannot read it. `keys` are the unique keys
    that it is in, where they are asked for.
    """

    name: str
    type: str
    ddl: str | None
    nullable: bool
    keys: tuple[str, ...] = ()

    @property
    def read_as(self) -> str | None:
        """Its type in Spark where it is imported: that of `ddl`, but a time of a day and several bits are texts, and a
        decimal with more digits than Spark has keeps those behind the point.

        >>> DatabaseColumn("total", "numeric(40,2)", "DECIMAL(38,0)", True).read_as
        'DECIMAL(38,2)'
        """
        kind, ddl = self.type.lower(), (self.ddl or "").upper()
        is_time = kind.startswith("time") and not kind.startswith("timestamp")
        if ddl and (is_time or (ddl, kind) == ("BINARY", "bit")):
            return "STRING"
        found = _DECIMAL.fullmatch(kind)
        if found is None or not ddl.startswith("DECIMAL") or int(found[1] or _ALL_DIGITS + 1) <= _ALL_DIGITS:
            return self.ddl
        return f"DECIMAL({_ALL_DIGITS},{min(int(found[2] or _DEFAULT_SCALE), _ALL_DIGITS)})"


@dataclass(frozen=True, slots=True)
class UniqueKey:
    """A unique index of a table and its columns, in order. Of several, the primary one is the first."""

    name: str
    columns: tuple[str, ...]
    is_primary: bool

    @property
    def shown(self) -> str:
        """`primary`, or its name."""
        return "primary" if self.is_primary else self.name


def open_connection(machine: JavaMachine, address: DatabaseAddress) -> "DatabaseConnection":
    """Open a connection without autocommit.

    Raises:
        ServiceError: the driver cannot be loaded, or the database refuses. The text contains no password.
    """
    remember_unnamed(address.password)
    driver = _load_driver(machine, address.driver_class, address.jars)
    properties = machine.view.java.util.Properties()
    for name, value in {**address.properties, "user": address.user, "password": address.password}.items():
        properties.setProperty(name, value)
    calls = _Calls(machine)
    refused = "it refuses the connection: {}", "Check address, user and password."
    try:
        connection = calls.of("java.sql.Driver", "connect(String,Properties)", driver, address.url, properties)
        if connection is not None:
            calls.of("java.sql.Connection", "setAutoCommit(boolean)", connection, False)
    except _JAVA_FAULTS as exc:
        raise _refused(address, exc, *refused) from exc
    if connection is None:
        reason = refused[0].format(f"the driver {address.driver_class} does not support such addresses")
        raise ServiceError(service=f"the database {address.url}", reason=reason, next_step=refused[1])
    opened = DatabaseConnection(address, calls, connection)
    if opened.dialect.session is not None:
        opened.execute(opened.dialect.session)
    return opened


class DatabaseConnection(AbstractContextManager["DatabaseConnection", None]):
    """An open connection to a database, with a transaction that begins with the first statement. For one thread.

    Names of tables are `orders`, or `shop.orders` with a schema; without one they are in that of the connection.

    Raises of every method:
        ServiceError: the database refuses, in its own words; ServiceAwayError if the connection is lost.
    """

    def __init__(self, address: DatabaseAddress, calls: "_Calls", connection: Any) -> None:
        self.address = address
        self.dialect = DIALECTS.get(address.type, Dialect())  # of the standard, without one of its own
        self._calls = calls
        self._connection = connection

    def __exit__(self, *_: object) -> None:
        self.close()

    def query(self, sql: str, *values: Value) -> list[tuple[Value, ...]]:
        """Return the rows of a query; each `?` in it is one of the values. Refuses more than `MOST_ROWS`."""
        with self._statement(sql, values) as statement, self._reporting():
            self._calls.of(_STATEMENT, "setMaxRows(int)", statement, MOST_ROWS + 1)
            rows = self._calls.of(_STATEMENT, "executeQuery()", statement)
            found = self._read(rows)
        if len(found) > MOST_ROWS:
            raise self._fault(f"a query returns more than {MOST_ROWS:,} rows", "Ask for fewer.")
        return found

    def execute(self, sql: str, *values: Value) -> int:
        """Execute a statement, and return how many rows it has changed."""
        with self._statement(sql, values) as statement, self._reporting():
            return int(self._calls.of(_STATEMENT, "executeUpdate()", statement))

    def commit(self) -> None:
        """End the transaction, and keep what it did."""
        with self._reporting():
            self._call("commit()")

    def rollback(self) -> None:
        """End the transaction, and undo what it did."""
        with self._reporting():
            self._call("rollback()")

    def close(self) -> None:
        """Undo what is not committed, and close the connection, also one that is lost."""
        with suppress(*_JAVA_FAULTS):
            self._call("rollback()")
        with suppress(*_JAVA_FAULTS):
            self._call("close()")

    def quote(self, name: str) -> str:
        """Return the name of a table, with or without a schema, or of a column, quoted."""
        return ".".join(map(self.dialect.quoted, name.split(".")))

    def product(self) -> str:
        """Return what the database calls itself, with its version."""
        metadata = self._metadata()
        with self._reporting():
            asked = ("getDatabaseProductName()", "getDatabaseProductVersion()")
            return " ".join(str(self._calls.of(_METADATA, each, metadata)) for each in asked)

    def schema(self) -> str:
        """Return the schema of names without one."""
        with self._reporting():
            found = self._call("getCatalog()" if self.dialect.schema_is_catalog else "getSchema()")
        return str(found or "")

    def tables(self, schema: str | None = None, like: str | None = None) -> tuple[DatabaseTable, ...]:
        """Return the tables and views of a schema, in order; `like` is a pattern of SQL for their names."""
        metadata, place = self._metadata(), self._place(schema or self.schema())
        with self._reporting():
            types = self._calls.machine.array(self._calls.machine.view.java.lang.String, *_TABLES)
            rows = self._calls.of(
                _METADATA, "getTables(String,String,String,String[])", metadata, *place, like or "%", types
            )
            found = self._read(rows, 1 if self.dialect.schema_is_catalog else 2, 3, 4)
        return tuple(DatabaseTable(*map(str, row)) for row in sorted(found, key=str))

    def columns(self, table: str) -> tuple[DatabaseColumn, ...]:
        """Return the columns of a table, in order."""
        return self.describe(f"SELECT * FROM {self.quote(table)}")

    def describe(self, query: str, *, is_typed: bool = True) -> tuple[DatabaseColumn, ...]:
        """Return the columns of a query, in order, with the types as which Spark reads them, if they are wanted: the
        first time that takes a second.
        """
        with self._statement(f"SELECT * FROM ({query}) described WHERE 1 = 0", ()) as statement, self._reporting():
            rows = self._calls.of(_STATEMENT, "executeQuery()", statement)
            metadata = self._calls.of(_ROWS, "getMetaData()", rows)
            found = [self._column(metadata, number + 1) for number in range(self._count(metadata))]
            if not is_typed:
                return tuple(found)
            try:
                types = self._spark_types(rows)
            except _JAVA_FAULTS:  # of a single column, which Spark does not name
                types = [self._spark_type(query, each.name) for each in found]
        return tuple(replace(each, ddl=ddl) for each, ddl in zip(found, types, strict=True))

    def unique_keys(self, table: str) -> tuple[UniqueKey, ...]:
        """Return the unique keys of a table over columns of all its rows."""
        asked = self.dialect.unique
        indexed = self._indexed(table) if asked is None else self.query(asked, self.quote(table))
        primary = {str(index) for index, *_, is_primary in indexed if is_primary}
        keys: dict[str, dict[int, str]] = {}
        for index, position, column, _ in indexed:
            keys.setdefault(str(index), {})[int(str(position))] = str(column)
        named = [UniqueKey(name, tuple(of[at] for at in sorted(of)), name in primary) for name, of in keys.items()]
        return tuple(sorted(named, key=lambda key: (not key.is_primary, key.name)))

    def _indexed(self, table: str) -> list[tuple[Value, ...]]:
        """Return what the `unique` of a dialect does, as JDBC tells it."""
        schema, _, name = table.rpartition(".")
        place, metadata = self._place(schema or self.schema()), self._metadata()
        known = {each.name for each in self.columns(table)}
        with self._reporting():
            rows = self._calls.of(_METADATA, "getPrimaryKeys(String,String,String)", metadata, *place, name)
            primary = {row[0] for row in self._read(rows, 6)}
            asked = "getIndexInfo(String,String,String,boolean,boolean)"
            rows = self._calls.of(_METADATA, asked, metadata, *place, name, True, True)
            indexed = self._read(rows, 6, 8, 9, 13)
        partly = {row[0] for row in indexed if row[3] is not None or row[2] not in known}
        return [(*row[:3], row[0] in primary) for row in indexed if row[0] not in (None, *partly)]

    def _spark_types(self, rows: Any) -> list[str | None]:
        view = self._calls.machine.view
        dialect = view.org.apache.spark.sql.jdbc.JdbcDialects.get(spark_url(self.address.url))
        utils = view.org.apache.spark.sql.execution.datasources.jdbc.JdbcUtils
        fields = utils.getSchema(self._connection, rows, dialect, False, False, False).fields()
        return [str(each.dataType().sql()) for each in fields]

    def _spark_type(self, query: str, column: str) -> str | None:
        sql = f"SELECT {self.dialect.quoted(column)} FROM ({query}) described WHERE 1 = 0"
        with self._statement(sql, ()) as statement:
            try:
                return self._spark_types(self._calls.of(_STATEMENT, "executeQuery()", statement))[0]
            except _JAVA_FAULTS:
                return None

    def _column(self, metadata: Any, number: int) -> DatabaseColumn:
        name, type_, precision, scale, nulls = (
            self._calls.of(_COLUMNS, f"{method}(int)", metadata, number)
            for method in ("getColumnLabel", "getColumnTypeName", "getPrecision", "getScale", "isNullable")
        )
        if type_.lower() in ("numeric", "decimal", "number") and precision:
            type_ = f"{type_}({precision},{scale})"
        elif "char" in type_.lower() and 0 < precision < _NO_LIMIT:
            type_ = f"{type_}({precision})"
        return DatabaseColumn(name, type_, None, nulls != _NO_NULLS)

    def _count(self, metadata: Any) -> int:
        return int(self._calls.of(_COLUMNS, "getColumnCount()", metadata))

    def _metadata(self) -> Any:
        with self._reporting():
            return self._call("getMetaData()")

    def _place(self, schema: str) -> tuple[str | None, str | None]:
        return (schema, None) if self.dialect.schema_is_catalog else (None, schema)

    def _call(self, method: str, *values: object) -> Any:
        return self._calls.of("java.sql.Connection", method, self._connection, *values)

    @contextmanager
    def _statement(self, sql: str, values: Sequence[Value]) -> Iterator[Any]:
        with self._reporting():
            statement = self._call("prepareStatement(String)", sql)
            for number, value in enumerate(values, start=1):
                bound = _to_java(self._calls.machine, value)
                self._calls.of(_STATEMENT, "setObject(int,Object)", statement, number, bound)
        try:
            yield statement
        finally:
            with suppress(*_JAVA_FAULTS):
                self._calls.of(_STATEMENT, "close()", statement)

    def _read(self, rows: Any, *columns: int) -> list[tuple[Value, ...]]:
        """Return some columns of all rows, by default all."""
        metadata = self._calls.of(_ROWS, "getMetaData()", rows)
        readers = [self._reader(metadata, each) for each in columns or range(1, self._count(metadata) + 1)]
        found = []
        while self._calls.of(_ROWS, "next()", rows):
            found.append(tuple(read(rows) for read in readers))
        return found

    def _reader(self, metadata: Any, number: int) -> Callable[[Any], Value]:
        """Return the function that reads a column of the current row."""
        type_ = self._calls.of(_COLUMNS, "getColumnType(int)", metadata, number)
        if type_ in (_TIMESTAMP, _ZONED_TIMESTAMP):
            name = str(self._calls.of(_COLUMNS, "getColumnTypeName(int)", metadata, number)).lower()
            zone = UTC if type_ == _ZONED_TIMESTAMP or name in self.dialect.zoned else None
            return lambda rows: self._read_time(rows, number, zone)
        return lambda rows: self._read_value(rows, number)

    def _read_time(self, rows: Any, number: int, zone: tzinfo | None) -> Value:
        found = self._calls.of(_ROWS, "getTimestamp(int)", rows, number)
        return None if found is None else self._parsed(found.toString(), datetime).replace(tzinfo=zone)

    def _read_value(self, rows: Any, number: int) -> Value:
        found = self._calls.of(_ROWS, "getObject(int)", rows, number)
        if found is None or isinstance(found, str | int | float | Decimal | bytes):
            return found
        text = str(self._calls.of(_ROWS, "getString(int)", rows, number))
        kind = found.getClass().getName()
        if kind == "java.math.BigInteger":
            return int(text)
        return self._parsed(text, date) if kind == "java.sql.Date" else text

    def _parsed(self, text: str, of: type[_Time]) -> _Time:
        try:
            return of.fromisoformat(text)
        except ValueError as exc:
            raise self._fault(f"the time {text} is not in the years 1 to 9999", "Correct it there.") from exc

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        try:
            yield
        except _JAVA_FAULTS as exc:
            raise _refused(self.address, exc, "it refuses: {}", "Check the names, and what its user may do.") from exc

    def _fault(self, reason: str, next_step: str) -> ServiceError:
        return ServiceError(service=f"the database {self.address.url}", reason=reason, next_step=next_step)


class _Calls:
    """Calls of methods through their interface, because driver classes need not be public."""

    def __init__(self, machine: JavaMachine) -> None:
        self.machine = machine
        self._methods: dict[tuple[str, str], Any] = {}
        self._numbers: dict[tuple[object, ...], Any] = {}

    def of(self, interface: str, signature: str, target: Any, *values: object) -> Any:
        """Call a method such as `getObject(int)` of an interface."""
        key = (interface, signature)
        if key not in self._methods:
            self._methods[key] = self._find(interface, signature)
        return self._methods[key].invoke(target, self._array(values))

    def _array(self, values: tuple[object, ...]) -> Any:
        if not all(type(value) is int for value in values):
            return self.machine.array(self.machine.view.java.lang.Object, *values)
        if values not in self._numbers:
            self._numbers[values] = self.machine.array(self.machine.view.java.lang.Object, *values)
        return self._numbers[values]

    def _find(self, interface: str, signature: str) -> Any:
        lang = self.machine.view.java.lang
        by_name = lang.Class.forName
        method, _, written = signature.rstrip(")").partition("(")
        known = {
            "int": lang.Integer.TYPE,
            "boolean": lang.Boolean.TYPE,
            "String[]": by_name("[Ljava.lang.String;"),
            "Properties": by_name("java.util.Properties"),
        }
        names = written.split(",") if written else []
        types = [known[name] if name in known else by_name(f"java.lang.{name}") for name in names]
        return by_name(interface).getMethod(method, self.machine.array(lang.Class, *types))


def _to_java(machine: JavaMachine, value: Value) -> object:
    sql = machine.view.java.sql
    if isinstance(value, datetime):
        clock = value if value.tzinfo is None else value.astimezone(UTC)
        return sql.Timestamp.valueOf(clock.replace(tzinfo=None).isoformat(" "))
    return sql.Date.valueOf(value.isoformat()) if isinstance(value, date) else value


def _load_driver(machine: JavaMachine, name: str, jars: Sequence[Path]) -> Any:
    view = machine.view
    try:
        found = view.java.lang.Class.forName(name, True, machine.loader(jars))
        constructor = found.getDeclaredConstructor(machine.array(view.java.lang.Class))
        driver = constructor.newInstance(machine.array(view.java.lang.Object))
        is_driver = bool(view.java.lang.Class.forName("java.sql.Driver").isInstance(driver))
    except _JAVA_FAULTS as exc:
        listed = ", ".join(jar.name for jar in jars)
        reason = f"it cannot be loaded from {listed}: {explain_java(exc)}"
        raise ServiceError(service=f"the driver {name}", reason=reason, next_step=_CHECK_DRIVER) from exc
    if not is_driver:
        raise ServiceError(service=f"the driver {name}", reason="it is not a JDBC driver", next_step=_CHECK_DRIVER)
    return driver


def _refused(address: DatabaseAddress, error: Exception, reason: str, next_step: str) -> ServiceError:
    """Return what a database refuses, in its own words; or that it is away. The class of its SQLSTATE decides."""
    service, words = f"the database {address.url}", explain_java(error)
    state = next((str(found) for each in iter_causes(error) if (found := _state_of(each)) is not None), "")
    if state.startswith(_AWAY) and state != _REJECTED:
        where = "Check that it runs, and its address."
        return ServiceAwayError(service=service, reason=f"it cannot be reached: {words}", next_step=where)
    told = (step for classes, step in _NEXT_STEPS.items() if state.startswith(classes))
    return ServiceError(service=service, reason=reason.format(words), next_step=next(told, next_step))


def _state_of(raised: Any) -> str | None:
    try:
        state: str | None = raised.getSQLState()
    except _JAVA_FAULTS:  # not an exception of SQL
        return None
    return state
