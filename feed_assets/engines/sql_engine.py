"""Run a Spark SQL file: inputs are temporary views, facts are named parameters, results are outputs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from feed_assets.engines.column_capture import mark_input, with_lineage
from feed_assets.engines.data.frames import frame_targets, name_single, read_input, write_output
from feed_assets.engines.errors import OutputMismatchError
from feed_assets.engines.failures import reporting_failures
from feed_assets.engines.port import Engine, OutputReport, OutputTarget, StepPlace, Work, WorkReport
from feed_assets.engines.spark.sessions import open_session, restored
from feed_assets.engines.workflow.files import add_libraries
from feed_assets.engines.workflow.sql_script import MARK_OUTPUTS, Statement, find_marker_faults, parse_statements

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class SqlEngine(Engine):
    """An engine that runs the statements of a file below the project's root, one after the other.

    - An input is a temporary view with the input's name, `-` written as `_`. Afterwards these views are dropped, and so
      are those that the statements created; what they `SET` is put back.
    - `:nominal_time` (TIMESTAMP), `:nominal_date` (DATE, in the process's time zone), `:process`, `:cluster`, `:run_id`
      and each property (STRING, `-` and `.` written as `_`; cast it: `CAST(:min_delay AS INT)`) are named parameters:
      values that are never spliced into the statement's text. A property does not replace a fact of the same name.
    - The last statement makes the only output. With several outputs, a comment `-- output: name` marks the statement
      that makes each of them.
    - An optional output is left out if its statement has no rows.
    - A step marks its frames in the same way; its own name is that of a frame of the last statement without a mark.
    - Other statements are commands (`CREATE TEMPORARY VIEW`, `CACHE TABLE`, `INSERT`); the result of a query that is
      not an output is discarded. `SET` stays in force until the end of the file.
    """

    def run(self, work: Work, session: "Callable[[], SparkSession]") -> WorkReport:
        statements = load_statements(work)
        makers = match_outputs(work, statements)
        reports: dict[str, OutputReport] = {}
        with reporting_failures(work):
            spark = open_session(session, work.run_id)
            add_libraries(spark, work)
            with views_of(spark, work) as inputs:
                for statement in statements:
                    result = spark.sql(statement.text, args=dict(parameters(work)))
                    if work.step is not None and statement.output is None and not result.columns:
                        continue  # a step may end with a command, and yield nothing
                    for target in makers.get(statement, ()):
                        if not result.columns:
                            reason = f"the statement of {target.subject} is a command and has no result"
                            place = f"process {work.process!r}, {work.path}:{statement.line}"
                            next_step = "Use a query as the statement of the output."
                            raise OutputMismatchError(subject=place, reason=reason, next_step=next_step)
                        report = write_output(result, target)
                        if not (target.optional and _is_empty(report, result)):
                            reports[target.name] = with_lineage(report, result, work, inputs)
        ordered = reports if work.step is not None else [each.name for each in work.outputs if each.name in reports]
        return WorkReport(
            outputs=tuple(reports[name] for name in ordered), details={"statements": str(len(statements))}
        )


def load_statements(work: Work) -> tuple[Statement, ...]:
    """Return the statements of the file. Raises WorkflowNotFoundError if it cannot be read, or has none."""
    file = work.root / work.path
    try:
        statements = parse_statements(work.read_file(work.path).decode())
    except (OSError, UnicodeDecodeError) as exc:
        next_step = "Name a SQL file (UTF-8) relative to the project's folder."
        raise work.not_found(f"{file} cannot be read: {exc}", next_step) from exc
    if not statements:
        raise work.not_found(f"{file} contains no statement", "Write at least one SQL statement.")
    return statements


def match_outputs(work: Work, statements: tuple[Statement, ...]) -> Mapping[Statement, tuple[OutputTarget, ...]]:
    """Return the statement that makes each output.

    Raises:
        WorkflowSignatureError: a marker names no output, or an output does not have exactly one statement.
    """
    marked = [statement for statement in statements if statement.output is not None]
    if work.step is not None:
        return _match_frames(work, work.step, statements, marked)
    if not marked and len(work.outputs) == 1:
        return {statements[-1]: work.outputs}
    reasons = find_marker_faults(statements, {target.name: target.feed for target in work.outputs})
    if reasons:
        raise work.not_fitting(reasons, MARK_OUTPUTS)
    return {s: tuple(target for target in work.outputs if target.name == s.output) for s in marked}


def _match_frames(
    work: Work, step: StepPlace, statements: Sequence[Statement], marked: Sequence[Statement]
) -> Mapping[Statement, tuple[OutputTarget, ...]]:
    """Return the statement that makes each frame of a step."""
    names = [statement.output or "" for statement in marked]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise work.not_fitting([f"several statements make {', '.join(twice)}"], MARK_OUTPUTS)
    if marked:
        return {each: (target,) for each, target in zip(marked, frame_targets(work, step, names), strict=True)}
    single = name_single(work, step)
    is_free = step.frames_url is not None or single in {target.name for target in work.outputs}
    return {statements[-1]: frame_targets(work, step, [single])} if is_free else {}


def parameters(work: Work) -> Iterator[tuple[str, object]]:
    """Yield the named parameters of the statements."""
    context = work.context()
    for name, value in work.properties.items():
        yield name.replace("-", "_").replace(".", "_"), value
    yield "process", work.process
    yield "cluster", work.cluster
    yield "run_id", work.run_id
    yield "nominal_time", work.nominal_time
    yield "nominal_date", context.local_time.date()


@contextmanager
def views_of(spark: "SparkSession", work: Work) -> "Iterator[Mapping[str, DataFrame]]":
    """Create the inputs as temporary views, and yield them. Afterwards the session is as it was before."""
    with restored(spark):
        inputs = {data.name: mark_input(read_input(spark, data), data.name) for data in work.inputs}
        for name, frame in inputs.items():
            frame.createOrReplaceTempView(name.replace("-", "_"))
        yield inputs


def _is_empty(report: OutputReport, result: "DataFrame") -> bool:
    if report.judged is not None:
        return report.judged.rows == 0
    return result.isEmpty() if report.rows is None else report.rows == 0
