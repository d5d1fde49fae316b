"""Which columns of a feed are exported to which of a table, and as what. Times are told as texts, so that no time zone
of a machine or driver has a say.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql import types as st

from feed_assets.engines.data.quality import column_named
from feed_assets.engines.databases.connections import DatabaseColumn, DatabaseConnection, UniqueKey
from feed_assets.engines.databases.dialects import Dialect
from feed_assets.engines.errors import ExportRefusedError
from feed_assets.entities.datasource import LoadType
from feed_assets.plan.transfers import ExportRecord
from feed_assets.timing.dates import render_datetime

_TIME, _TEXTS = "TIMESTAMP", ("STRING", "VARCHAR", "CHAR")


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceValue:
    """The column of a table with the nominal time of each instance, and its value of one."""

    column: str
    value: date | str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportColumns:
    """The columns of a table, for the rows of a feed. Times without a zone are in `timezone` there."""

    export: ExportRecord
    dialect: Dialect
    table: Sequence[DatabaseColumn]
    timezone: ZoneInfo

    @classmethod
    def of(cls, connection: DatabaseConnection, export: ExportRecord, timezone: ZoneInfo) -> "ExportColumns":
        table = connection.columns(export.target.table)
        return cls(export=export, dialect=connection.dialect, table=table, timezone=timezone)

    def find_instance(self, nominal_time: datetime, timezone: ZoneInfo) -> InstanceValue | None:
        """Return the value of an instance; a day is that of `timezone`.

        Raises:
            ExportRefusedError: the table lacks the column, or it has no times.
        """
        if self.export.target.load.instance_column is None:
            return None
        remedy = "Name a column of days, times or texts in load.instance_column."
        column = self.find(self.export.target.load.instance_column)
        if column is None:
            raise self.refused(f"it has no column {self.export.target.load.instance_column}", remedy)
        value: date | str
        match (column.ddl or "").upper():
            case "DATE" if self.export.pace is not None:
                raise self.refused(f"several instances have the same {column.name}", "Name a column of times.")
            case "DATE":
                value = nominal_time.astimezone(timezone).date()
                text = value.isoformat()
            case kind if kind.startswith(_TIME):
                is_zoned = self._is_zoned(column)
                value = nominal_time.astimezone(UTC if is_zoned else self.timezone)
                if self._is_twice(value):
                    fault = f"two instances have the same {column.name}, since {value:%H:%M} comes twice that day"
                    raise self.refused(fault, "Name a column of times with a zone, or of texts.")
                text = f"{value:%Y-%m-%d %H:%M:%S}{self.dialect.utc if is_zoned else ''}"
                value = value if is_zoned else value.replace(tzinfo=None)
            case kind if kind.startswith(_TEXTS):
                value = text = render_datetime(nominal_time)
            case _:
                raise self.refused(f"its column {column.name} is {column.type}", remedy)
        return InstanceValue(column=column.name, value=value, text=text)

    def _is_twice(self, clock: datetime) -> bool:
        """Return whether another instance has the same time on its clock, in the hour after summer time."""
        first, second = (clock.replace(fold=fold).utcoffset() or timedelta(0) for fold in (0, 1))
        return first > second and self.export.pace is not None and self.export.pace <= first - second

    def fit(self, frame: DataFrame, instance: InstanceValue | None) -> DataFrame:
        """Return the chosen columns of a feed as those of the table, and the instance, if the feed has no such column.

        Raises:
            ExportRefusedError: the table or the feed lacks one of them, two are the same, or one is of no type of it.
        """
        lists = () if self.dialect.has_arrays else (st.ArrayType,)
        strange = (st.StructType, st.MapType, st.VariantType, st.AnsiIntervalType, *lists)
        there = {each.lower() for each in frame.columns}
        fields = self.export.target.fields
        if missing := [each for each in (fields.names if fields else ()) if each.lower() not in there]:
            raise self.refused(f"the feed has no column {missing[0]}", "Correct fields of the export.")
        made: dict[str, Column] = {}
        for field in frame.schema.fields:
            if fields is not None and not fields.take(field.name):
                continue
            column = self.find(field.name)
            if column is None or column.name in made:
                fault = f"it has no column {field.name}" if column is None else f"two columns are called {column.name}"
                raise self.refused(fault, "Name those of the feed that it has in fields of the export.")
            if isinstance(field.dataType, strange):
                fault = f"no column takes {field.name}, which is {field.dataType.simpleString()}"
                raise self.refused(fault, "Leave it out by fields, or make it a text.")
            value = self._convert(column_named(frame, field.name), field.dataType, column)
            made[column.name] = value.alias(column.name)
        if instance is not None and instance.column not in made:
            made[instance.column] = sf.lit(instance.text).alias(instance.column)
        return frame.select(*made.values())

    def find_key(self, unique: Sequence[UniqueKey], written: Sequence[str]) -> tuple[str, ...]:
        """Return the columns by which rows are found in the table; none if the rows of an instance are replaced.

        Raises:
            ExportRefusedError: they are no unique key of the table, or are not among those that are `written`.
        """
        asked = [(name, self.find(name)) for name in self.export.key]
        unknown = next((name for name, found in asked if found is None or found.name not in written), None)
        if unknown is not None:
            raise self.refused(f"{unknown} of --update-key is not written", "Name columns of the feed.")
        key, known = tuple(found.name for _, found in asked if found is not None), [each.columns for each in unique]
        if self.export.target.load.type is LoadType.REPLACE or (key and any(set(key) == set(each) for each in known)):
            return key
        fitting = next((each for each in known if set(each) <= set(written)), None)
        if not key and self.export.target.load.type is LoadType.INSERT and fitting is not None:
            return fitting
        told = "; ".join(", ".join(each) for each in known) or "none"
        what = f"{', '.join(key)} is no unique key of it" if key else "the feed has no unique key of it"
        raise self.refused(f"{what}; there are: {told}", "Name one as --update-key: else a repeat would double rows.")

    def find(self, name: str) -> DatabaseColumn | None:
        """Return a column of the table: the one of that name, else the only one that has it in other letters."""
        alike = [each for each in self.table if each.name.lower() == name.lower()]
        exact = [each for each in alike if each.name == name]
        return (exact or alike)[0] if exact or len(alike) == 1 else None

    def refused(self, reason: str, next_step: str) -> ExportRefusedError:
        """Return the error that says why the rows do not fit the table."""
        table = f"{self.export.target.table} of {self.export.datasource}"
        return ExportRefusedError(table=table, reason=reason, next_step=next_step)

    def _is_zoned(self, column: DatabaseColumn) -> bool:
        return column.type.lower() in self.dialect.zoned

    def _convert(self, value: Column, kind: st.DataType, column: DatabaseColumn) -> Column:
        match kind:
            case st.StringType():
                is_text = (column.ddl or "").upper().startswith(_TEXTS)
                null = self.export.null_string if is_text else self.export.null_other
                return value if null is None else sf.when(value != sf.lit(null), value)
            case st.DateType():
                return value.cast("string")
            case st.TimestampType():
                return self._time(_in_utc(value), UTC.tzname(None), column)
            case st.TimestampNTZType():
                return self._time(value, self.timezone.key, column)
            case _:
                return value

    def _time(self, clock: Column, zone: str, column: DatabaseColumn) -> Column:
        """Return times of a clock in a zone as texts of the clock of a column."""
        is_zoned = self._is_zoned(column)
        own = UTC.tzname(None) if is_zoned else self.timezone.key
        text = (clock if zone == own else sf.convert_timezone(sf.lit(zone), sf.lit(own), clock)).cast("string")
        return sf.concat(text, sf.lit(self.dialect.utc)) if is_zoned else text


def _in_utc(moment: Column) -> Column:
    """Return moments as times of a clock in UTC, whatever the time zone of the session is."""
    seconds = (sf.unix_micros(moment).cast("decimal(20,0)") / sf.lit(1_000_000)).cast("decimal(18,6)")
    zero = sf.lit(0)
    return sf.lit("1970-01-01").cast("timestamp_ntz") + sf.make_dt_interval(zero, zero, zero, seconds)
