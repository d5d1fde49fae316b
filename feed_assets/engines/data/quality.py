"""Hold the rows of an output to the quality of its feed in the Spark job that writes them.

Rows are written into one folder for the good and one for the bad, so that the files have the columns of the feed and no
others. Where a quarantine takes the bad ones, the judged rows are kept until both are written, and no row is judged
twice; there a column names the rules that a row broke.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from types import MappingProxyType
from typing import TYPE_CHECKING

from feed_assets.engines.errors import CodeFault, OutputMismatchError
from feed_assets.engines.failures import render_cause
from feed_assets.engines.port import Judged, OutputReport, OutputTarget
from feed_assets.engines.spark.sessions import with_settings
from feed_assets.entities.content.quality import BROKEN_RULES, UNIQUE, OnFail, Quality

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_FOLDER = "judged"
_BAD = "feed_assets_bad"
_GOOD = f"{_FOLDER}/{_BAD}=false"
_FLAG = "feed_assets_breaks_"
_SETTINGS = MappingProxyType(
    {
        # A task keeps a file open for each folder, which keeps the order of rows and costs no sort.
        "spark.sql.maxConcurrentOutputFileWriters": "2",
        # Measured: compressing the rows that are kept costs more than half of the time of the whole.
        "spark.sql.inMemoryColumnarStorage.compressed": "false",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileForm:
    """How rows are written into files."""

    format: str
    writes: Mapping[str, str]

    def write(self, frame: "DataFrame", url: str, *by: str) -> None:
        """Write a frame into a directory, replacing its content, with a folder for each value of the columns `by`."""
        frame.write.format(self.format).mode("overwrite").options(**self.writes).partitionBy(*by).save(url)


def write_judged(
    frame: "DataFrame",
    target: OutputTarget,
    subject: str,
    form: FileForm,
    write: Callable[["DataFrame", OutputTarget], OutputReport],
) -> OutputReport:
    """Write rows that are held to a quality below the target's directory, and report how many are good.

    The bad ones are then given to `write` with their rules, for the quarantine.

    Raises:
        OutputMismatchError: Spark does not understand a rule, or a column has the name of the quarantine's own.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as sf

    quality = target.quality
    assert quality is not None
    flags = _flag_broken(frame, quality, subject)
    columns = {name: f"{_FLAG}{number}" for number, name in enumerate(flags)}
    flagged = frame.select("*", *(flag.alias(columns[name]) for name, flag in flags.items()))
    is_bad = reduce(lambda one, other: one | other, map(sf.col, columns.values()), sf.lit(False))
    observation = Observation()
    counts = {"rows": sf.count(sf.lit(1)), "bad": sf.count_if(is_bad)}
    counts |= {column: sf.count_if(sf.col(column)) for column in columns.values()}
    report = None
    with _kept(flagged, is_needed=target.quarantine is not None):
        counted = flagged.observe(observation, *(count.alias(name) for name, count in counts.items()))
        sorted_out = counted.withColumn(_BAD, is_bad).drop(*columns.values())
        form.write(sorted_out, f"{target.url.rstrip('/')}/{_FOLDER}", _BAD)
        if target.quarantine is not None:
            broken = sf.concat_ws(",", *(sf.when(sf.col(column), name) for name, column in columns.items()))
            bad = flagged.where(is_bad).withColumn(BROKEN_RULES, broken).drop(*columns.values())
            report = write(bad, target.quarantine)
    found = {name: int(number) for name, number in observation.get.items()}
    published = found["rows"] if quality.on_fail is OnFail.WARN else found["rows"] - found["bad"]
    if not published:
        form.write(frame.limit(0), target.url)  # Spark makes no folder without rows
    judged = Judged(
        rows=found["rows"],
        bad=found["bad"],
        broken={name: found[column] for name, column in columns.items()},
        kept=None if not published else (_FOLDER,) if quality.on_fail is OnFail.WARN else (_GOOD,),
        quarantine=report,
    )
    return OutputReport(name=target.name, rows=published, judged=judged)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleTrial:
    """A quality rule of a feed that is tried without data. `columns` is the feed's schema, if it is declared."""

    columns: str | None
    text: str


def find_rule_fault(spark: "SparkSession", trial: RuleTrial) -> CodeFault | None:
    """Return what Spark does not understand of a rule; with unknown columns the rule is only parsed."""
    from pyspark.errors import AnalysisException, ParseException

    frame = spark.range(0) if trial.columns is None else spark.createDataFrame([], trial.columns)
    try:
        _is_broken(frame, trial.text)
    except AnalysisException as exc:
        if trial.columns is None and not isinstance(exc, ParseException):
            return None
        next_step = "Write a condition of Spark SQL on a row of the feed."
        return CodeFault(
            reason=f"the quality rule {trial.text!r} is not understood: {render_cause(exc)}", next_step=next_step
        )
    return None


def _is_broken(frame: "DataFrame", text: str) -> "Column":
    """Return whether a row breaks a rule: never null. Raises AnalysisException if Spark does not understand it."""
    from pyspark.sql import functions as sf

    flag = ~sf.coalesce(sf.expr(text), sf.lit(False))
    frame.select("*", flag).schema  # noqa: B018 - a session of Spark Connect analyzes now
    return flag


def _flag_broken(frame: "DataFrame", quality: Quality, subject: str) -> "dict[str, Column]":
    """Return, for each rule, whether a row breaks it: never null."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import Window
    from pyspark.sql import functions as sf

    if BROKEN_RULES in map(str.lower, frame.columns):
        raise OutputMismatchError(
            subject=subject,
            reason=f"it has a column {BROKEN_RULES}, which names the rules that bad rows broke",
            next_step="Give the column another name.",
        )
    flags: dict[str, Column] = {}
    for name, text in quality.rules.items():
        try:
            flags[name] = _is_broken(frame, text)
        except AnalysisException as exc:
            raise OutputMismatchError(
                subject=subject,
                reason=f"its quality rule {name!r} ({text}) is not understood: {render_cause(exc)}",
                next_step="Correct quality.rules of the feed.",
            ) from exc
    if quality.unique:
        known = {column.lower() for column in frame.columns}
        if unknown := [name for name in quality.unique if name.lower() not in known]:
            raise OutputMismatchError(
                subject=subject,
                reason=f"quality.unique names {', '.join(unknown)}, which it does not have",
                next_step=f"Write some of {', '.join(frame.columns)}.",
            )
        keys = [frame[name] for name in quality.unique]
        is_repeated = sf.count(sf.lit(1)).over(Window.partitionBy(*keys)) > 1
        flags[UNIQUE] = reduce(lambda one, key: one & key.isNotNull(), keys, is_repeated)
    return flags


@contextmanager
def _kept(frame: "DataFrame", *, is_needed: bool) -> Iterator[None]:
    """Keep the rows of a frame once they are computed, as long as the block lasts, if that `is_needed`."""
    with with_settings(frame.sparkSession, _SETTINGS):
        if is_needed:
            frame.persist()
        try:
            yield
        finally:
            if is_needed:
                frame.unpersist()
