"""Hold the rows of an output to the quality of its feed in the Spark job that writes them.

Rows are written into one folder for the good and one for the bad, so that the files have the columns of the feed and no
others. Where a quarantine takes the bad ones, the judged rows are kept until both are written, and no row is judged
twice; there a column names the rules that a row broke.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import reduce
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from feed_assets.engines.errors import CodeFault, OutputMismatchError
from feed_assets.engines.failures import render_cause
from feed_assets.engines.port import Judged, OutputReport, OutputTarget
from feed_assets.engines.spark.sessions import with_settings
from feed_assets.entities.content.quality import BROKEN_RULES, UNIQUE, Comparison, OnFail, Quality
from feed_assets.timing.dates import render_datetime

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_FOLDER = "judged"
_BAD = "feed_assets_bad"
_GOOD = f"{_FOLDER}/{_BAD}=false"
_FLAG = "feed_assets_breaks_"
_MEASURE = "feed_assets_measure_"
_KIND = {True: "a number", False: "a condition"}
_WANTED = {
    "rules": "a condition of Spark SQL on a row",
    "aggregates": "a condition of Spark SQL on all rows, such as sum(amount) > 0,",
    "compare": "a number that is an aggregate of Spark SQL over the rows",
}
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


Others: TypeAlias = "Mapping[str, tuple[DataFrame, datetime]]"
"""Frames with which rows are compared, and the nominal times of what they have: see `OutputTarget`."""


@dataclass(frozen=True, slots=True)
class _Judging:
    """Rows with a column for each rule, and what is counted of them in one pass."""

    quality: Quality
    subject: str
    flagged: "DataFrame"
    columns: Mapping[str, str]
    others: Others

    @classmethod
    def of(cls, frame: "DataFrame", quality: Quality, subject: str, others: Others) -> "_Judging":
        """Flag the rows of a frame.

        Raises:
            OutputMismatchError: Spark does not understand a rule, or a column has the name of the quarantine's own.
        """
        joined, keys = _with_keys(frame, quality, subject, others)
        flags = {**_flag_broken(frame, quality, subject), **keys}
        columns = {name: f"{_FLAG}{number}" for number, name in enumerate(flags)}
        own = (column_named(joined, name) for name in frame.columns)
        flagged = joined.select(*own, *(flag.alias(columns[name]) for name, flag in flags.items()))
        return cls(quality, subject, flagged, columns, others)

    @property
    def is_bad(self) -> "Column":
        """Whether a row breaks any rule."""
        from pyspark.sql import functions as sf

        return reduce(lambda one, other: one | other, map(sf.col, self.columns.values()), sf.lit(False))

    def measures(self) -> "list[Column]":
        """Return all that is counted.

        Raises:
            OutputMismatchError: Spark does not understand a condition.
        """
        from pyspark.sql import functions as sf

        found = {"rows": sf.count(sf.lit(1)), "bad": sf.count_if(self.is_bad)}
        found |= {column: sf.count_if(sf.col(column)) for column in self.columns.values()}
        where = {name: f"quality.aggregates.{name}" for name in self.quality.aggregates}
        where |= {name: f"quality.compare.{name}" for name in self.quality.compare}
        for number, (name, text) in enumerate(self._expressions.items()):
            with _understood(self.subject, name, text, where[name]):
                found[f"{_MEASURE}{number}"] = _measure(self.flagged, text, is_number=name in self.quality.compare)
        return [measure.alias(name) for name, measure in found.items()]

    @property
    def _expressions(self) -> dict[str, str]:
        return {**self.quality.aggregates, **{name: each.value for name, each in self.quality.compare.items()}}

    def judge(self, found: Mapping[str, object]) -> Judged:
        """Return what was counted, by the names of the measures."""
        values = {name: found[f"{_MEASURE}{number}"] for number, name in enumerate(self._expressions)}
        failed = {
            name: f"{text} does not hold" for name, text in self.quality.aggregates.items() if values[name] is not True
        }
        return Judged(
            rows=_number(found["rows"]),
            bad=_number(found["bad"]),
            broken={name: _number(found[column]) for name, column in self.columns.items()},
            conditions={**failed, **self._compare(values)},
        )

    def _compare(self, values: Mapping[str, object]) -> dict[str, str]:
        """Return why comparisons do not hold; each earlier instance is read once."""
        failed: dict[str, str] = {}
        for to in dict.fromkeys(each.to for each in self.quality.compare.values()):
            if to not in self.others:
                continue
            frame, time = self.others[to]
            those = {name: each for name, each in self.quality.compare.items() if each.to == to}
            measures: list[Column] = []
            for name, each in those.items():
                there = f"{self.subject}, compared with the instance of {render_datetime(time)}"
                with _understood(there, name, each.value, f"quality.compare.{name}"):
                    measures.append(_measure(frame, each.value).alias(name))
            row = frame.agg(*measures).first()
            for name, each in those.items():
                fault = _find_misproportion(each, values[name], row[name] if row is not None else None)
                failed |= {name: f"{fault} of {render_datetime(time)}"} if fault else {}
        return failed


def _number(value: object) -> int:
    assert isinstance(value, int)
    return value


def _find_misproportion(comparison: Comparison, now: object, before: object) -> str | None:
    """Return why a value is not in proportion to an earlier one, as the beginning of a clause; None if it is."""
    if before is None:
        return None
    least = f"at least {comparison.at_least:g} times" if comparison.at_least is not None else ""
    most = f"at most {comparison.at_most:g} times" if comparison.at_most is not None else ""
    if now is not None:
        here, there = float(str(now)), float(str(before))
        share = here / there if there else 1.0 if not here else inf
        if (comparison.at_least or 0) <= share <= (inf if comparison.at_most is None else comparison.at_most):
            return None
    shown = "null" if now is None else f"{now:,}" if isinstance(now, int) else str(now)
    demand = " and ".join(filter(None, (least, most)))
    return f"{comparison.value} is {shown}, and must be {demand} the {before}"


def judge_frame(frame: "DataFrame", quality: Quality, subject: str, others: Others) -> Judged:
    """Hold rows to a quality without writing them: one pass over them, and one over each earlier instance.

    Raises:
        OutputMismatchError: Spark does not understand a rule or a condition.
    """
    judging = _Judging.of(frame, quality, subject, others)
    row = judging.flagged.agg(*judging.measures()).first()
    assert row is not None
    return judging.judge(row.asDict())


def write_judged(
    frame: "DataFrame",
    target: OutputTarget,
    form: FileForm,
    write: Callable[["DataFrame", OutputTarget], OutputReport],
    others: Others,
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
    judging = _Judging.of(frame, quality, target.subject, others)
    flagged, columns, observation, report = judging.flagged, judging.columns, Observation(), None
    with _kept(flagged, is_needed=target.quarantine is not None):
        with _understood(target.subject, "conditions", "computed while rows are written", "quality.aggregates"):
            counted = flagged.observe(observation, *judging.measures())
            counted.schema  # noqa: B018 - a session of Spark Connect analyzes now
        sorted_out = counted.withColumn(_BAD, judging.is_bad).drop(*columns.values())
        form.write(sorted_out, f"{target.url.rstrip('/')}/{_FOLDER}", _BAD)
        if target.quarantine is not None:
            broken = sf.concat_ws(",", *(sf.when(sf.col(column), name) for name, column in columns.items()))
            bad = flagged.where(judging.is_bad).withColumn(BROKEN_RULES, broken).drop(*columns.values())
            report = write(bad, target.quarantine)
    judged = judging.judge(observation.get)
    published = judged.rows if quality.on_fail is OnFail.WARN else judged.rows - judged.bad
    if not published:
        form.write(frame.limit(0), target.url)  # Spark makes no folder without rows
    kept = None if not published else (_FOLDER,) if quality.on_fail is OnFail.WARN else (_GOOD,)
    return OutputReport(name=target.name, rows=published, judged=replace(judged, kept=kept, quarantine=report))


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleTrial:
    """A quality rule of a feed that is tried without data, and the field of `Quality` that has it. `columns` is the
    feed's schema, if it is declared.
    """

    columns: str | None
    text: str
    field: str = "rules"


def find_rule_fault(spark: "SparkSession", trial: RuleTrial) -> CodeFault | None:
    """Return what Spark does not understand of a rule; with unknown columns the rule is only parsed."""
    from pyspark.errors import AnalysisException, ParseException

    frame = spark.range(0) if trial.columns is None else spark.createDataFrame([], trial.columns)
    try:
        if trial.field == "rules":
            _is_broken(frame, trial.text)
        else:
            _measure(frame, trial.text, is_number=trial.field == "compare")
    except AnalysisException as exc:
        if trial.columns is None and not isinstance(exc, ParseException):
            return None
        what = _WANTED[trial.field]
        next_step = f"Write {what} of the feed."
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


@contextmanager
def _understood(subject: str, name: str, text: str, where: str) -> Iterator[None]:
    """Raise OutputMismatchError for what Spark does not understand."""
    from pyspark.errors import AnalysisException

    try:
        yield
    except AnalysisException as exc:
        raise OutputMismatchError(
            subject=subject,
            reason=f"its quality rule {name!r} ({text}) is not understood: {render_cause(exc)}",
            next_step=f"Correct {where} of the feed.",
        ) from exc


def _measure(frame: "DataFrame", text: str, *, is_number: bool = True) -> "Column":
    """Return an aggregate over all rows of a frame: a number, or a condition. Raises AnalysisException if it is none,
    or Spark does not understand it.
    """
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as sf
    from pyspark.sql.types import BooleanType, NumericType

    measure = sf.expr(text)
    kind = frame.agg(measure).schema.fields[0].dataType
    if not isinstance(kind, NumericType if is_number else BooleanType):
        raise AnalysisException(f"it is of type {kind.simpleString()}, and must be {_KIND[is_number]}")
    return measure


def _with_keys(
    frame: "DataFrame", quality: Quality, subject: str, others: Others
) -> "tuple[DataFrame, dict[str, Column]]":
    """Join the keys that other feeds have, each once; return also, by column, whether a row's value is none of them."""
    from pyspark.sql import functions as sf

    joined: DataFrame = frame
    flags: dict[str, Column] = {}
    for number, (column, key) in enumerate(quality.keys.items()):
        keys, name = others[key.feed][0], f"{_FLAG}key_{number}"
        _require_columns(subject, f"quality.in_feed of {column}", [column], frame.columns)
        _require_columns(subject, f"quality.in_feed of {key.feed}", [key.column], keys.columns)
        known = keys.select(column_named(keys, key.column).alias(name)).where(sf.col(name).isNotNull()).distinct()
        value = column_named(frame, column)
        joined = joined.join(known, value.eqNullSafe(known[name]), "left")
        flags[column] = value.isNotNull() & sf.col(name).isNull()
    return joined, flags


def column_named(frame: "DataFrame", name: str) -> "Column":
    """Return a column by its name, which may have any signs."""
    return frame[f"`{name.replace('`', '``')}`"]


def _require_columns(subject: str, field: str, names: Sequence[str], columns: Sequence[str]) -> None:
    known = {column.lower() for column in columns}
    if unknown := [name for name in names if name.lower() not in known]:
        reason = f"{field} names {', '.join(unknown)}, which it does not have"
        raise OutputMismatchError(subject=subject, reason=reason, next_step=f"Write some of {', '.join(columns)}.")


def _flag_broken(frame: "DataFrame", quality: Quality, subject: str) -> "dict[str, Column]":
    """Return, for each rule, whether a row breaks it: never null."""
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
        with _understood(subject, name, text, "quality.rules"):
            flags[name] = _is_broken(frame, text)
    if quality.unique:
        _require_columns(subject, "quality.unique", quality.unique, frame.columns)
        keys = [column_named(frame, name) for name in quality.unique]
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
