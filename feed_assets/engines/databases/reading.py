"""Read rows of a database into a feed: in parts, at one moment, with the columns and types that the feed declares."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from zoneinfo import ZoneInfo

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql import types as st

from feed_assets.engines.data.fitting import find_differences
from feed_assets.engines.data.frames import fit_to_schema, parse_schema, read_input, write_output
from feed_assets.engines.data.quality import column_named
from feed_assets.engines.databases.connections import DatabaseColumn, DatabaseConnection
from feed_assets.engines.databases.credentials import open_interface
from feed_assets.engines.databases.dialects import Dialect
from feed_assets.engines.databases.marks import KnownStretches, Marks, Stretch, before_mark, parse_mark, render_mark
from feed_assets.engines.databases.parts import ALL, SPLIT, find_parts, literal
from feed_assets.engines.databases.sessions import add_driver, jdbc_options, telling_refusals
from feed_assets.engines.errors import OutputMismatchError
from feed_assets.engines.failures import reporting_failures
from feed_assets.engines.java.machine import JavaMachine
from feed_assets.engines.port import STRETCH, Engine, InputData, OutputReport, OutputTarget, Work, WorkReport
from feed_assets.engines.spark.sessions import open_session
from feed_assets.entities.content.column_lineage import ColumnLineage
from feed_assets.entities.content.event_messages import NO_ROWS, EventMessage
from feed_assets.entities.datasource import Datasource, DatasourceType, Extract
from feed_assets.plan.transfers import ImportRecord

_CLOCK, _MOMENT = "timestamp_ntz", "timestamp"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeseenImport:
    """What an import would read: the columns, the condition of an increment with its stretch, and those of parts."""

    columns: Sequence[DatabaseColumn]
    condition: str | None
    stretch: Stretch | None
    parts: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportEngine(Engine):
    """An engine that writes the rows of a table into the only output. `root` is the project's folder.

    What is read is one moment of the database, where it can tell one. Rows that were read and rows that were written
    are counted by the job that does both. An increment by window has the rows from the start of the `period` to before
    its end, one by mark those of its stretch by the `marks`; of what lies in its overlap those that no other has.
    """

    record: ImportRecord
    datasource: Datasource
    root: Path
    period: tuple[datetime, datetime]
    marks: Marks | None = None
    java: Callable[[], AbstractContextManager[JavaMachine]] = JavaMachine

    def run(self, work: Work, session: Callable[[], SparkSession]) -> WorkReport:
        (target,) = work.outputs
        with self._open(target.subject) as asking, reporting_failures(work):
            connection = asking.connection
            asking.columns = connection.describe(asking.source, is_typed=False)  # refused before Spark starts
            with _telling_refusals(connection, [f"SELECT count(*) FROM ({asking.source}) meant"]):
                spark = open_session(session, work.run_id)
                add_driver(spark, connection.address)
                target, required = _without_constraints(target)
                asking.columns = asking.typed(spark)
            marked = self.marks.known() if self.marks is not None else None
            condition, stretch = asking.increment(marked)
            asking.source += f" AND {condition}"
            if self.marks is not None and marked is not None and stretch is not None and marked.own is None:
                self.marks.freeze(stretch)
            asked = [f"SELECT count(*) FROM ({asking.source}) meant"]
            with _telling_refusals(connection, asked):
                columns, parts = asking.reads(target), asking.parts()
                rows = asking.render_rows(columns)
                counted = ", ".join(f"count({connection.dialect.quoted(each.name)})" for each in columns)
                asked[:] = [f"SELECT {counted} FROM {rows} WHERE {part}" for part in parts]
                frame = asking.frame(spark, rows, columns, parts)
                if stretch is not None and marked is not None:
                    frame = self._without_others(frame, target, marked, stretch)
                report, read = _write_counted(frame, target, required)
        written = report.rows if report.judged is None else report.judged.rows
        if read != written:
            reason = f"{read:,} rows were read of {self.record.name}, and {written or 0:,} written"
            raise target.mismatch(reason, "Run it again.")
        if self.record.source.extract.increment is not None and not read:
            report = replace(report, message=EventMessage(marking=NO_ROWS))
        if stretch is not None:
            report = replace(report, notes={STRETCH: json.dumps(stretch)})
        details: dict[str, str | int | float] = {"read": self.record.name, "rows_read": read, "parts": len(parts)}
        return WorkReport(outputs=(report,), details=details)

    def foresee(self, known: KnownStretches | None, subject: str) -> ForeseenImport:
        """Ask the database what would be read now, by the `known` stretches if it is read by mark. Of the rows only
        extremes are asked.

        Raises:
            ServiceError: it refuses.
            OutputMismatchError: a column that the import names is not there.
        """
        with self._open(subject) as asking:
            asking.columns = asking.connection.describe(asking.source)
            condition, stretch = asking.increment(known)
            asking.source += f" AND {condition}"
            parts = asking.parts()
        is_all = condition == ALL
        return ForeseenImport(
            columns=asking.chosen(), condition=None if is_all else condition, stretch=stretch, parts=parts
        )

    @contextmanager
    def _open(self, subject: str) -> "Iterator[_Asking]":
        """Open the database for readers who see one moment. What is wrong is said of the `subject`."""
        own = self.datasource
        with self.java() as machine, open_interface(own, own.readonly, self.root, lambda: machine) as connection:
            yield _Asking(engine=self, connection=connection, subject=subject, start=begin_moment(connection))

    def _without_others(
        self, frame: DataFrame, target: OutputTarget, known: KnownStretches, stretch: Stretch
    ) -> DataFrame:
        """Leave out the rows that other instances have, which may have some of this stretch."""
        others = [each for each, other in known.others.items() if self._meets(stretch, other)]
        if not others or self.marks is None:
            return frame
        return _without_known(frame, target, self.marks.rows_of(others), self.record.source.extract)

    @property
    def overlap(self) -> timedelta:
        """What is read again below a mark."""
        overlap = self.record.source.extract.overlap
        return timedelta(0) if overlap is None else overlap.as_duration()

    def _meets(self, one: Stretch, other: Stretch) -> bool:
        """Return whether two instances read rows of one time."""
        return bool(self.overlap) and all(
            high is not None and (low is None or parse_mark(before_mark(low, self.overlap)) < parse_mark(high))
            for low, high in ((one.low, other.high), (other.low, one.high))
        )


class _Asking:
    """What an import asks over one connection, of which each reader says `start` first. `source` is the query for the
    rows that are meant, with all `columns`.
    """

    def __init__(self, engine: ImportEngine, connection: DatabaseConnection, subject: str, start: str | None) -> None:
        self.connection = connection
        self.columns: Sequence[DatabaseColumn] = ()
        self._engine = engine
        self._record = engine.record
        self._subject = subject
        self._start = start
        source = engine.record.source
        query = (source.query or "").rstrip().removesuffix(";")
        rows = f"({query}\n) asked" if source.table is None else connection.quote(source.table)  # after a comment, too
        self.source = f"SELECT * FROM {rows} WHERE ({source.where or ALL}\n)"

    def typed(self, spark: SparkSession) -> Sequence[DatabaseColumn]:
        """Return the columns with the types as which this session reads them."""
        rows, options = f"({self.source}) meant", self._options()
        try:
            fields = spark.read.jdbc(options["url"], rows, properties=options).schema.fields
        except PySparkException:  # of a single column, which Spark does not name
            return self.connection.describe(self.source)
        types = (each.dataType.simpleString() for each in fields)
        return [replace(each, ddl=ddl) for each, ddl in zip(self.columns, types, strict=True)]

    def increment(self, known: KnownStretches | None) -> tuple[str, Stretch | None]:
        """Return the condition that a row is one of the increment, and its stretch if that is told by marks."""
        extract = self._record.source.extract
        if extract.increment is None:
            return ALL, None
        (column,) = self._find([extract.delta_column or ""])
        if known is None:
            return self._window(column), None
        stretch = known.own or self._stretch(column, known)
        return self._within(column, stretch), stretch

    def parts(self) -> list[str]:
        """Return the conditions of the parts."""
        split = next((each.name for each in self._split()), None)
        return find_parts(self.connection, split, self._record.parts, self.source)

    def chosen(self) -> list[DatabaseColumn]:
        """Return the columns that are read. Raises OutputMismatchError if one of `fields` is not there."""
        fields = self._record.source.fields
        if fields is None:
            return [*self.columns]
        self._find(fields.names)
        return [each for each in self.columns if fields.take(each.name)]

    def reads(self, target: OutputTarget) -> "list[_Read]":
        """Return how each column is read.

        Raises:
            OutputMismatchError: they are not those of the feed's schema, or one of `fields` is not there.
        """
        chosen = self.chosen()
        lowered = [each.name.lower() for each in chosen]
        if doubles := [each.name for each in chosen if lowered.count(each.name.lower()) > 1]:
            reason = f"columns of {self._record.name} are equal but for case: {', '.join(doubles)}"
            raise target.mismatch(reason, "Write a query in the place of table, with other names.")
        schema = None if target.columns is None else parse_schema(target.columns)
        wanted = {} if schema is None else {each.name.lower(): each.dataType for each in schema.fields}
        if schema is not None:
            names = [each.name for each in chosen]
            if reasons := find_differences(names, schema.fieldNames(), target.other_columns):
                reason = f"the columns of {self._record.name} are not those of the feed's schema: {'; '.join(reasons)}"
                next_step = f"Choose them by fields, or change schema or columns of the feed {target.feed!r}."
                raise target.mismatch(reason, next_step)
        zone = self._engine.datasource.timezone
        return [_read_of(self.connection.dialect, each, wanted.get(each.name.lower()), zone) for each in chosen]

    def render_rows(self, reads: "Sequence[_Read]") -> str:
        """Return the table of a query that has the columns as they are read, and the one that splits."""
        quoted = self.connection.dialect.quoted
        selected = [f"{each.sql} AS {quoted(each.name)}" for each in reads]
        selected += [f"{quoted(each.name)} AS {SPLIT}" for each in self._split()]
        return f"(SELECT {', '.join(selected)} FROM ({self.source}) meant) imported"

    def frame(self, spark: SparkSession, rows: str, reads: "Sequence[_Read]", parts: Sequence[str]) -> DataFrame:
        """Return the rows in Spark, which reads them when they are written."""
        options = self._options() | ({} if self._start is None else {"sessionInitStatement": self._start})
        frame = spark.read.jdbc(options["url"], rows, predicates=list(parts), properties=options)
        made = (each.made(column_named(frame, each.name)).alias(each.name) for each in reads)
        frame = frame.select(*made)
        if (null := self._record.null_text) is None:
            return frame
        texts = [name for name, kind in frame.dtypes if kind == "string"]
        return frame.withColumns({name: sf.coalesce(column_named(frame, name), sf.lit(null)) for name in texts})

    def _options(self) -> dict[str, str]:
        return {
            **jdbc_options(self.connection.address, self.connection.dialect.reading),
            "fetchsize": str(self._record.fetch_size),
            "preferTimestampNTZ": "true",
        }

    def _split(self) -> list[DatabaseColumn]:
        """Return the column that splits, if there is one."""
        return self._find([self._record.split_by] if self._record.split_by else [])

    def _find(self, names: Sequence[str]) -> list[DatabaseColumn]:
        """Return columns by their names in any case. Raises OutputMismatchError if one is not there."""
        columns = {each.name.lower(): each for each in self.columns}
        if lacking := [name for name in names if name.lower() not in columns]:
            reason = f"{self._record.name} has no column {', '.join(lacking)}, which the import names"
            raise self._mismatch(reason, f"Name some of {', '.join(each.name for each in self.columns)}.")
        return [columns[name.lower()] for name in names]

    def _mismatch(self, reason: str, next_step: str) -> OutputMismatchError:
        return OutputMismatchError(subject=self._subject, reason=reason, next_step=next_step)

    def _stretch(self, column: DatabaseColumn, known: KnownStretches) -> Stretch:
        """Return the stretch of an instance that has none yet: up to the maximum."""
        name, (low, behind) = self.connection.dialect.quoted(column.name), known.around(self._engine.period[0])
        above = f" AND {name} > {self._literal(low)}" if low is not None else ""
        ((value,),) = self.connection.query(f"SELECT max({name}) FROM ({self.source}{above}) meant")
        if isinstance(value, str | bytes | bool):
            reason = f"column {column.name} of {self._record.name} is {column.type}, and marks are numbers or times"
            raise self._mismatch(reason, "Name another delta_column.")
        return Stretch(low, behind.low if behind is not None else low if value is None else render_mark(value))

    def _within(self, column: DatabaseColumn, stretch: Stretch) -> str:
        """Return the condition that a row is read: in the stretch, or in the overlap below it."""
        name, low = self.connection.dialect.quoted(column.name), stretch.low
        if stretch.high is None:
            return "1 = 0"
        above = f"{name} > {self._literal(before_mark(low, self._engine.overlap))} AND " if low is not None else ""
        return f"{above}{name} <= {self._literal(stretch.high)}"

    def _literal(self, mark: str) -> str:
        return literal(parse_mark(mark), self.connection.address.type)

    def _window(self, column: DatabaseColumn) -> str:
        """Return the condition that a row lies in the period: a time without zone by that of the datasource."""
        kind, own = column.type.lower().split("(")[0], self._engine.datasource
        if (column.ddl or "").lower() not in (_CLOCK, _MOMENT, "date"):
            reason = f"column {column.name} of {self._record.name} is {column.type}, and no time lies in a period"
            raise self._mismatch(reason, "Name a column with times as delta_column.")
        is_moment, zone = kind in self.connection.dialect.zoned, ZoneInfo(own.timezone)
        ends = (literal(each if is_moment else clock_at(each, zone), own.type) for each in self._engine.period)
        low, high = ends
        name = self.connection.dialect.quoted(column.name)
        return f"{name} >= {low} AND {name} < {high}"


def begin_moment(connection: DatabaseConnection) -> str | None:
    """Begin a transaction of which all readers see the moment, as long as it is open; return what each says first.

    Where the database has no such moment, each reader has its own. None can write, where the database can tell that.
    """
    if not DatasourceType(connection.address.type).has_snapshots:
        if connection.dialect.read_only is not None:
            connection.execute(connection.dialect.read_only)
        return connection.dialect.read_only
    connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
    snapshot = str(connection.query("SELECT pg_export_snapshot()")[0][0])
    connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
    same = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
    return f"{same}; SET TRANSACTION SNAPSHOT '{snapshot}'"


def clock_at(moment: datetime, zone: ZoneInfo) -> datetime:
    """Return the earliest time on a clock that is not before a moment; of the hour that comes twice, the first counts.

    >>> from datetime import UTC
    >>> clock_at(datetime(2024, 10, 27, 1, 15, tzinfo=UTC), ZoneInfo("Europe/Berlin"))
    datetime.datetime(2024, 10, 27, 3, 0)
    """
    while moment.astimezone(zone).fold:
        moment += timedelta(minutes=1)
    return moment.astimezone(zone).replace(tzinfo=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """A column as it is read: its expression in the database, and what Spark makes of that."""

    name: str
    sql: str
    made: Callable[[Column], Column] = lambda column: column


def _read_of(dialect: Dialect, column: DatabaseColumn, wanted: st.DataType | None, zone: str) -> _Read:
    """Return how a column is read, so that it can be stored in the type that the feed wants, if it wants one."""
    name, ddl, kind = dialect.quoted(column.name), (column.ddl or "").lower(), column.type.lower()
    as_text = f"CAST({name} AS {dialect.text})"
    read_as = (column.read_as or "").lower()
    if kind == "bit" and ddl == "binary" and not isinstance(wanted, st.BinaryType):
        bits = as_text if dialect.bits is None else dialect.bits.format(name)
        return _Read(name=column.name, sql=f"{name} + 0" if isinstance(wanted, st.NumericType) else bits)
    is_text = isinstance(wanted, st.StringType) or read_as == "string"
    is_padded = dialect.times_as_text and kind.startswith("char")  # which Spark fills with blanks
    if not ddl or is_padded or (is_text and not ddl.startswith(("string", "char", "varchar"))):
        return _Read(name=column.name, sql=as_text)
    if ddl == kind == "date" and dialect.times_as_text:  # the driver makes another day of one that is none
        return _Read(name=column.name, sql=as_text, made=lambda text: text.try_cast("date"))
    if ddl == f"array<{_CLOCK}>" and not _is_of_clocks(wanted):
        return _Read(name=column.name, sql=name, made=partial(_each_moment, f" {zone}"))
    if ddl in (_CLOCK, _MOMENT) and not isinstance(wanted, st.TimestampNTZType):
        is_clock = kind.split("(")[0] not in dialect.zoned
        if dialect.knows_zones:
            return _Read(name=column.name, sql=_first_moment(name, zone) if is_clock else name)
        if is_clock or dialect.times_as_text:
            at = f" {zone if is_clock else 'UTC'}"
            return _Read(name=column.name, sql=as_text if dialect.times_as_text else name, made=partial(_moment, at))
    if isinstance(wanted, st.IntegralType) and ddl in ("boolean", "date"):  # tinyint(1), year
        return _Read(name=column.name, sql=f"{name} + 0")
    if read_as != ddl or kind == "numeric":  # with more digits than a decimal of Spark has, or no number
        to = wanted.simpleString() if isinstance(wanted, st.FractionalType) else read_as
        return _Read(name=column.name, sql=as_text, made=lambda text: text.cast(to))
    return _Read(name=column.name, sql=name)


def _first_moment(name: str, zone: str) -> str:
    """Return the moment of a time on a clock in SQL of PostgreSQL, which takes the second of an hour that comes twice:
    the first has the offset of the day before.

    >>> _first_moment("at", "UTC")
    "at AT TIME ZONE 'UTC'"
    """
    told = zone.replace("'", "")
    at = f"AT TIME ZONE '{told}'"
    if zone == "UTC":
        return f"{name} {at}"
    first = f"(({name} - INTERVAL '1 day') {at} + INTERVAL '24 hours')"
    return f"LEAST({name} {at}, CASE WHEN {first} {at} = {name} THEN {first} END)"


def _is_of_clocks(kind: st.DataType | None) -> bool:
    is_array = isinstance(kind, st.ArrayType) and kind.elementType == st.TimestampNTZType()
    return is_array or isinstance(kind, st.StringType)


def _each_moment(zone: str, clocks: Column) -> Column:
    """Return the moments of an array of times that were read on a clock."""
    return sf.transform(clocks, partial(_moment, zone))


def _moment(zone: str, clock: Column) -> Column:
    """Return the moment of a time that was read on a clock; null for one that is no time, such as a zero date."""
    return sf.concat(clock.cast("string"), sf.lit(zone)).try_cast("timestamp")


def _without_known(frame: DataFrame, target: OutputTarget, known: InputData, extract: Extract) -> DataFrame:
    """Leave out rows that other instances have: with the same key, and the same value of the column."""
    fitted, there = fit_to_schema(frame, target), read_input(frame.sparkSession, known)
    names = {name.lower(): name for name in fitted.columns}
    wanted = [name.lower() for name in dict.fromkeys((*extract.key, extract.delta_column or ""))]
    if lacking := [name for name in wanted if name not in names]:
        reason = f"rows are known by {', '.join(lacking)}, which the import leaves out"
        raise target.mismatch(reason, "Import these columns, too.")
    found = there.select(*(column_named(there, name).alias(f"known_{n}") for n, name in enumerate(wanted)))
    same = [column_named(fitted, names[name]).eqNullSafe(found[f"known_{n}"]) for n, name in enumerate(wanted)]
    return fitted.join(found, same, "left_anti")


def _without_constraints(target: OutputTarget) -> tuple[OutputTarget, list[str]]:
    """Return an output whose schema has no NOT NULL, and the columns that had it: Spark takes each column of a database
    for one that may be null.
    """
    fields = [] if target.columns is None else parse_schema(target.columns).fields
    required = [each.name for each in fields if not each.nullable]
    if not required:
        return target, []
    plain = st.StructType([st.StructField(each.name, each.dataType, metadata=each.metadata) for each in fields])
    return replace(target, columns=plain.toDDL()), required


def _write_counted(frame: DataFrame, target: OutputTarget, required: Sequence[str]) -> tuple[OutputReport, int]:
    """Write rows, and return also how many were read, as the job that wrote them has counted.

    Raises:
        OutputMismatchError: a required column is null in one of them.
    """
    observation, there = Observation(), {name.lower(): column_named(frame, name) for name in frame.columns}
    nulls = (sf.count_if(there.get(name.lower(), sf.lit(None)).isNull()) for name in required)
    counts = (each.alias(f"null_{n}") for n, each in enumerate(nulls))
    report = write_output(frame.observe(observation, sf.count(sf.lit(1)).alias("rows"), *counts), target)
    for n, name in enumerate(required):
        if found := int(observation.get[f"null_{n}"]):
            reason = f"{found:,} rows have no {name}, but the schema says NOT NULL"
            raise target.mismatch(reason, "Leave them out by where, or change the schema.")
    lineage = ColumnLineage(unknown="its rows come from a database")
    return replace(report, lineage=lineage), int(observation.get["rows"])


def _telling_refusals(connection: DatabaseConnection, asked: Sequence[str]) -> AbstractContextManager[None]:
    return telling_refusals(
        connection, "Check the declared table, query, where and fields, and what its user may do.", asked
    )
