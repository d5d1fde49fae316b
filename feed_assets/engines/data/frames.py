"""Read feed instances into DataFrames and write them, with the defaults of each format and a declared schema."""

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING

from feed_assets.engines.data.fitting import find_differences, fitting_schema, telling_misfits
from feed_assets.engines.data.quality import FileForm, Others, judge_frame, write_judged
from feed_assets.engines.data.tables import columns_of, read_partitions, write_partition
from feed_assets.engines.errors import OutputMismatchError
from feed_assets.engines.failures import render_cause
from feed_assets.engines.port import InputData, InputInstance, Judged, OutputReport, OutputTarget, StepPlace, Work
from feed_assets.entities.content.column_lineage import ColumnLineage
from feed_assets.entities.content.quality import Quality

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_READER_DEFAULTS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {"csv": MappingProxyType({"header": "true", "enforceSchema": "false"})}
)
_WRITER_DEFAULTS: Mapping[str, Mapping[str, str]] = MappingProxyType({"csv": MappingProxyType({"header": "true"})})
_NO_SUCCESS_MARKER = MappingProxyType({"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"})
_SESSION = "feed_assets_session"
_TEXT_COLUMNS = "value string"


def read_input(spark: "SparkSession", data: InputData) -> "DataFrame":
    """Read all instances of an input into one DataFrame: one read of several paths, without added columns.

    Spark's reader defaults apply (among them `mode: PERMISSIVE`: a malformed field becomes null), with one exception: a
    csv has a header line (`header: true`) whose names must be those of the declared schema in the same order
    (`enforceSchema: false`; Spark's own default assigns columns by position and ignores the names). The feed's options
    override both. Directories below an instance are read if the feed declares partitions. They become `key=value`
    columns if the schema has a column with a partition's name; otherwise only their files are read
    (`recursiveFileLookup: true`; Spark's own default silently skips such files).

    Two properties of Spark's csv reader: a quoted empty string is read as null, and a value may contain a line break
    only with the option `multiLine: true`.

    An optional input without an instance is an empty DataFrame with the feed's schema. Differs from Falcon: Falcon
    passes the path of an empty directory.

    A feed in a table is read as rows of the table (see `tables.py`); its own format, schema and options are ignored.

    Raises:
        InputReadError: a mandatory input has no instance, a required schema is missing, or Spark refused.
            Over Spark Connect, Spark refuses only when the data are used, with its own exception.
    """
    from pyspark.errors import PySparkException

    if data.table is not None:
        return read_partitions(spark, data)
    columns = data.columns or (_TEXT_COLUMNS if data.format == "text" else None)
    try:
        schema = None if columns is None else parse_schema(columns)
    except ValueError as exc:
        raise data.unreadable(str(exc), f"Correct schema: of the feed {data.feed!r}.") from exc
    if not data.paths:
        return _empty_input(spark, data, schema)
    options = _with_options(_reader_defaults(data, schema), data.options) | _own_reads(spark)
    reader = spark.read.format(data.format).options(**options)
    try:
        return (reader.schema(schema) if schema else reader).load(list(data.paths))
    except PySparkException as exc:
        raise data.unreadable(*_explain(data, render_cause(exc))) from exc


def write_output(df: "DataFrame", target: OutputTarget) -> OutputReport:
    """Write a DataFrame into the target's directory, replacing its content, and report the number of rows.

    The job that writes the rows also counts them. With a declared schema the columns must have its names, in any order.
    They are written in the order of the schema, cast by Spark's rules for storing into a table: number to wider number,
    or to a narrower one with an error on overflow; anything to string; never string to number. A csv gets a header line
    unless the feed's options say otherwise. No `_SUCCESS` file is written: publication writes the availability flag.
    Rows that are held to a quality are written as `write_judged` says.

    Raises:
        OutputMismatchError: the columns are not those of the feed, the feed's schema is not Spark DDL, or Spark does
            not understand a rule of its quality.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as sf

    if target.partition is not None:
        return write_partition(df, target, write_output, open_others(df.sparkSession, target.others))
    observation = Observation()
    options = _with_options(_WRITER_DEFAULTS.get(target.format, {}), target.options) | _NO_SUCCESS_MARKER
    with telling_misfits(target):
        fitted = fit_to_schema(df, target)
        if target.quality is not None:
            form = FileForm(format=target.format, writes=options)
            report = write_judged(fitted, target, form, write_output, open_others(df.sparkSession, target.others))
            return replace(report, columns=columns_of(fitted.schema))
        counted = fitted.observe(observation, sf.count(sf.lit(1)).alias("rows"))
        counted.write.format(target.format).mode("overwrite").options(**options).save(target.url)
    return OutputReport(name=target.name, rows=int(observation.get["rows"]), columns=columns_of(fitted.schema))


def open_others(spark: "SparkSession", others: Mapping[str, InputData]) -> Others:
    """Open what rows are compared with: one instance each."""
    return {name: (read_input(spark, data), data.instances[0].nominal_time) for name, data in others.items()}


def judge_input(spark: "SparkSession", data: InputData, quality: Quality, others: Mapping[str, InputData]) -> Judged:
    """Hold the rows of an instance to a quality, as `judge_frame` does.

    Raises:
        InputReadError: Spark cannot open it, or one that it is compared with.
        OutputMismatchError: Spark does not understand a rule or a condition, or fails when it reads or judges a row.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    frame, subject = read_input(spark, data), f"feed {data.feed!r}"
    try:
        return judge_frame(frame, quality, subject, open_others(spark, others))
    except (PySparkException, Py4JError) as exc:
        next_step = "Correct its data, or its quality, format, schema or options."
        reason = f"its rows cannot be judged: {render_cause(exc)}"
        raise OutputMismatchError(subject=subject, reason=reason, next_step=next_step) from exc


def judge_output(spark: "SparkSession", target: OutputTarget, nominal_time: datetime) -> OutputReport:
    """Hold files to a quality that an application has written into the target's directory: their rows are read, and
    written anew as `write_output` does.

    Raises:
        InputReadError: Spark cannot read them as the feed declares.
        OutputMismatchError: as `write_output`.
    """
    written = InputData(
        name=target.name,
        feed=target.feed,
        instances=(InputInstance(nominal_time=nominal_time, url=target.url),),
        format=target.format,
        columns=target.columns,
        options=target.options,
    )
    return write_output(read_input(spark, written), target)


def _empty_input(spark: "SparkSession", data: InputData, schema: "StructType | None") -> "DataFrame":
    if not data.optional:
        raise data.without_instance()
    if schema is None:
        reason = "its window contains no instance, and without a schema the columns of an empty input are unknown"
        raise data.unreadable(reason, f"Declare schema: on the feed {data.feed!r}.")
    from pyspark.sql import functions as sf

    return spark.range(0).select(*(sf.lit(None).cast(field.dataType).alias(field.name) for field in schema.fields))


def _reader_defaults(data: InputData, schema: "StructType | None") -> Mapping[str, str]:
    defaults = _READER_DEFAULTS.get(data.format, {})
    by_key = schema is not None and not set(data.partitions).isdisjoint(schema.fieldNames())
    if not data.partitions or by_key:
        return defaults
    return {**defaults, "recursiveFileLookup": "true"}


def _own_reads(spark: "SparkSession") -> dict[str, str]:
    """Return an option without effect that makes reads of a Spark Connect session differ from those of others.

    Sessions of one server share cached data of equal reads, also of files that have been replaced since.
    """
    from pyspark.sql import is_remote

    return {_SESSION: spark.session_id} if is_remote() else {}  # type: ignore[attr-defined]


def _with_options(defaults: Mapping[str, str], options: Mapping[str, str]) -> dict[str, str]:
    given = {name.lower() for name in options}
    return {**{name: value for name, value in defaults.items() if name.lower() not in given}, **options}


def _explain(data: InputData, refusal: str) -> tuple[str, str]:
    """Return the reason of what Spark has refused, and the next step."""
    if "UNABLE_TO_INFER_SCHEMA" in refusal:
        reason = "its instances have no file from which Spark could infer a schema"
        return reason, f"Declare schema: on the feed {data.feed!r}."
    if "PATH_NOT_FOUND" in refusal:
        path = refusal.split("Path does not exist: ")[-1].split(". SQLSTATE")[0]
        return f"{path} does not exist", "Check the input's partition and the feed's locations."
    return refusal, f"Check format, schema and options of the feed {data.feed!r}."


def fit_to_schema(df: "DataFrame", target: OutputTarget) -> "DataFrame":
    """Return the frame with the columns, the order and the types of the feed's schema, if it has one.

    Raises:
        OutputMismatchError: the columns are not those of the feed, or the schema is not Spark DDL.
        AnalysisException: a column cannot be cast (see `telling_misfits`).
    """
    if target.columns is None:
        return df
    try:
        schema = parse_schema(target.columns)
    except ValueError as exc:
        raise target.mismatch(str(exc), f"Correct schema: of the feed {target.feed!r}.") from exc
    reasons = find_differences(df.columns, schema.fieldNames(), target.other_columns)
    if reasons:
        names = ", ".join(schema.fieldNames())
        next_step = f"Return exactly {names}, or change schema: of the feed {target.feed!r}."
        raise target.mismatch(f"the columns are not those of the feed's schema: {'; '.join(reasons)}", next_step)
    return df.to(fitting_schema(df, schema, target.other_columns))


def parse_schema(columns: str) -> "StructType":
    """Parse the schema in a DDL text. Requires an active session.

    Raises:
        ValueError: the text is not Spark DDL of columns; the message is Spark's.
    """
    from pyspark.errors import AnalysisException, PySparkTypeError, PySparkValueError
    from pyspark.sql.types import StructType

    try:
        schema = StructType.fromDDL(columns)
    except (AnalysisException, PySparkTypeError, PySparkValueError) as exc:
        raise ValueError(f"{columns!r} is not a Spark schema: {render_cause(exc)}") from exc
    if not isinstance(schema, StructType):
        raise ValueError(f"{columns!r} is a Spark type and names no column")
    return schema


_FORMAT = "parquet"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


def name_single(work: Work, step: StepPlace) -> str:
    """Return the name of the only frame that a step yields: the only output, if it is a last step, else its own."""
    is_only_output = step.frames_url is None and len(work.outputs) == 1
    return work.outputs[0].name if is_only_output else step.name


def frame_targets(work: Work, step: StepPlace, names: Collection[str]) -> tuple[OutputTarget, ...]:
    """Return where a step writes its frames.

    Raises:
        OutputMismatchError: a last step yields what is no output; or a frame cannot have its name.
    """
    if step.frames_url is None:
        outputs = {target.name: target for target in work.outputs}
        if unknown := sorted(set(names) - outputs.keys()):
            reason = f"it yields {', '.join(unknown)}, but no step comes after it, and the outputs are "
            next_step = "Name its frames as outputs, or let a step come after it."
            raise work.mismatch(f"{reason}{', '.join(outputs) or 'none'}", next_step)
        return tuple(outputs[name] for name in names)
    wrong = next((name for name in names if not _NAME.fullmatch(name)), None)
    if wrong is not None:
        reason = f"a frame cannot be called {wrong!r}: names have letters, digits, _ and -, and no digit first"
        raise work.mismatch(reason, "Give the frame another name.")
    return tuple(
        OutputTarget(name=name, feed=step.name, url=f"{step.frames_url}/{name}", format=_FORMAT) for name in names
    )


def frame_input(work: Work, step: str, name: str, url: str, made_of: ColumnLineage | None = None) -> InputData:
    """Return a frame of a step as an input of the steps after it."""
    instance = InputInstance(nominal_time=work.nominal_time, url=f"{url}/{name}")
    return InputData(name=name, feed=step, instances=(instance,), format=_FORMAT, made_of=made_of)
