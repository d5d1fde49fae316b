"""Make up the rows of an instance: the same seed and instance give the same bytes, whatever machines Spark has.

A value follows from the seed, the column, the instance and the number of its row. So do the files: each has a fixed
number of rows, in their order.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from decimal import Decimal
from itertools import accumulate, count
from types import MappingProxyType
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from feed_assets.engines.data.frames import parse_schema, write_output
from feed_assets.engines.errors import OutputMismatchError
from feed_assets.engines.failures import reporting_failures
from feed_assets.engines.port import Engine, MadeUpRows, Work, WorkReport
from feed_assets.engines.spark.sessions import open_session
from feed_assets.entities.content.column_lineage import ColumnLineage
from feed_assets.entities.content.made_up import MadeUpColumn, MadeUpDecimal, span_of
from feed_assets.entities.content.patterns import Alternatives, OneOf, Pattern, Repetition, Sequence, parse_pattern
from feed_assets.timing.dates import render_datetime

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

_SAME_BYTES: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {"parquet": MappingProxyType({"parquet.writer.version": "v2", "parquet.enable.dictionary": "false"})}
)
"""Options of writers. Parquet's lists the encodings of a column in an order that each Java machine chooses, so that a
column must have one only.
"""
_ROWS_OF_A_FILE = 1_000_000
_ROW = "id"
_NULLS = "nulls"
_NULL_STEPS = 1_000_000


class GenerateEngine(Engine):
    """An engine that makes up the rows of the only output, in the columns of its feed's schema.

    It reads no input and runs no code of the user: Spark computes each value from hashes.
    """

    def run(self, work: Work, session: "Callable[[], SparkSession]") -> WorkReport:
        made_up, (target,) = work.made_up, work.outputs
        assert made_up is not None
        with reporting_failures(work):
            spark, lineage = open_session(session, work.run_id), ColumnLineage(unknown="its rows are made up")
            frame = make_up_frame(spark, made_up, target.columns or "", work.timezone)
            options = {**target.options, **_SAME_BYTES.get(target.format, {})}
            report = replace(write_output(frame, replace(target, options=options)), lineage=lineage)
        return WorkReport(outputs=(report,), details={"seed": made_up.seed})


def make_up_frame(spark: "SparkSession", made_up: MadeUpRows, schema: str, zone: ZoneInfo) -> "DataFrame":
    """Return the rows, in partitions that become files. Days begin in `zone`.

    Raises:
        OutputMismatchError: the dates of a column end before they begin.
    """
    frame = spark.range(0, made_up.rows, 1, -(-made_up.rows // _ROWS_OF_A_FILE))
    kinds = {each.name.lower(): (each.name, each.dataType) for each in parse_schema(schema).fields}
    columns = []
    for written, column in made_up.columns.items():
        name, kind = kinds[written.lower()]
        columns.append(_Maker(made_up, name, frame[_ROW], zone).make(column, kind).alias(name))
    return frame.select(*columns)


class _Maker:
    """Makes the values of one column. Each decision about a value is drawn by itself, from a hash of its row."""

    def __init__(self, made_up: MadeUpRows, name: str, row: "Column", zone: ZoneInfo) -> None:
        self._made_up = made_up
        self._name = name
        self._row = row
        self._zone = zone
        self._draws = count()

    def make(self, column: MadeUpColumn, kind: "DataType") -> "Column":
        """Return the values, in the type of the column."""
        from pyspark.sql import functions as sf

        made = self._make(column, kind).cast(kind)
        if not column.nulls:
            return made
        missing = round(column.nulls / 100 * _NULL_STEPS)
        return sf.when(self._draw(_NULL_STEPS, _NULLS) >= missing, made)

    def _make(self, column: MadeUpColumn, kind: "DataType") -> "Column":
        if column.range is not None:
            return self._from(*column.range)
        if column.decimal is not None:
            return self._decimal(column.decimal)
        if column.dates is not None:
            return self._time(column.dates, kind)
        if column.regex is not None:
            return self._text(parse_pattern(column.regex))
        return self._choice(column.choice)

    def _draw(self, below: int, label: object = None) -> "Column":
        """Return whole numbers from 0 on below a limit, others for each label; without one, for each call."""
        from pyspark.sql import functions as sf

        facts = (self._made_up.seed, self._name, render_datetime(self._made_up.instance))
        text = json.dumps([*facts, next(self._draws) if label is None else label])
        key = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), signed=True)
        return sf.pmod(sf.xxhash64(sf.lit(key), self._row), sf.lit(below))

    def _from(self, low: int, high: int) -> "Column":
        from pyspark.sql import functions as sf

        return sf.lit(low) + self._draw(high - low + 1)

    def _decimal(self, decimal: MadeUpDecimal) -> "Column":
        from pyspark.sql import functions as sf

        low, high = decimal.steps
        return self._from(low, high).cast("decimal(19,0)") * sf.lit(Decimal(1).scaleb(-decimal.scale))

    def _time(self, dates: tuple[str, str], kind: "DataType") -> "Column":
        """Return times of whole seconds for a timestamp, else days."""
        from pyspark.sql import functions as sf
        from pyspark.sql.types import TimestampType

        first, last = span_of(dates, self._made_up.instance, self._zone)
        if first > last:
            instance = render_datetime(self._made_up.instance)
            raise OutputMismatchError(
                subject=f"column {self._name!r} of the instance {instance}",
                reason=f"its dates begin at {render_datetime(first)} and end at {render_datetime(last)}",
                next_step="Write the earlier one first.",
            )
        if isinstance(kind, TimestampType):
            return sf.timestamp_seconds(self._from(int(first.timestamp()), int(last.timestamp())))
        day = first.astimezone(self._zone).date()
        days = (last.astimezone(self._zone).date() - day).days
        return sf.date_add(sf.lit(day), self._from(0, days).cast("int"))

    def _choice(self, choice: Mapping[str, int]) -> "Column":
        """Return one of the values: the first whose weight, with those before it, is above the number drawn."""
        from pyspark.sql import functions as sf

        values = sorted(choice)
        ends = [*accumulate(choice[value] for value in values)]
        return self._case(self._draw(ends[-1]), ends, [sf.lit(value) for value in values])

    def _case(self, drawn: "Column", ends: Iterable[int], made: list["Column"]) -> "Column":
        """Return the first of some values whose end is above the number drawn."""
        from pyspark.sql import functions as sf

        *pairs, (_, last) = zip(ends, made, strict=True)
        case = None
        for end, value in pairs:
            case = sf.when(drawn < end, value) if case is None else case.when(drawn < end, value)
        return last if case is None else case.otherwise(last)

    def _text(self, pattern: Pattern) -> "Column":
        from pyspark.sql import functions as sf

        nothing = sf.lit("")
        match pattern:
            case OneOf(characters) if len(characters) == 1:
                return sf.lit(characters)
            case OneOf(characters):
                return sf.substring(sf.lit(characters), self._draw(len(characters)).cast("int") + 1, 1)
            case Sequence(parts):
                return sf.concat(nothing, *map(self._text, parts))
            case Alternatives(options):
                made = [self._text(option) for option in options]
                return self._case(self._draw(len(options)), range(1, len(options) + 1), made)
            case Repetition(part, least, most):
                times = self._draw(most - least + 1) + least
                repeated = [
                    self._text(part) if number < least else sf.when(times > number, self._text(part)).otherwise(nothing)
                    for number in range(most)
                ]
                return sf.concat(*repeated)
