"""Let Spark analyze the SQL of a work over empty views of its inputs; nothing is read or written."""

import re
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from feed_assets.engines.code_faults import CodeFault
from feed_assets.engines.errors import OutputMismatchError
from feed_assets.engines.failures import render_cause
from feed_assets.engines.fitting import find_misfit
from feed_assets.engines.frames import fit_to_schema, render_subject
from feed_assets.engines.port import OutputTarget, Work
from feed_assets.engines.sql_code import suggest_view
from feed_assets.engines.sql_engine import load_statements, match_outputs, parameters, views_of
from feed_assets.engines.sql_script import Statement

if TYPE_CHECKING:
    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrame, SparkSession

_COMMAND = "org.apache.spark.sql.catalyst.plans.logical.Command"
_WRITES = ("InsertInto", "MergeInto")
_MAKES_VIEW = re.compile(r"(?:\s|--[^\n]*\n)*CREATE\s+(?:OR\s+REPLACE\s+)?TEMP(?:ORARY)?\s+VIEW\b", re.IGNORECASE)
_CHANGES_NOTHING = re.compile(r"(?:\s|--[^\n]*\n)*(?:UN)?(?:CACHE|SET|RESET|REFRESH)\b", re.IGNORECASE)
_LINE = re.compile(r"\bline (\d+)\b")
_NOISE = re.compile(r"^\w+: \[[A-Z_.0-9]+\] ?|\.? SQLSTATE: \w+.*$", re.DOTALL)  # ParseException: [CODE] … SQLSTATE: 1


def try_sql(spark: "SparkSession", work: Work, conf: Mapping[str, str]) -> Iterator[CodeFault]:
    """Yield what Spark refuses in the SQL file, the first fault only; the session is spoilt afterwards.

    Queries and temporary views are analyzed, other commands parsed. Without a schema of each input, or after a command
    that may have made what a later statement needs, the statements are only parsed.
    """
    from pyspark.errors import PySparkException

    for name, value in conf.items():
        if name.startswith("spark.sql."):
            spark.conf.set(name, value)
    statements = load_statements(work)
    makers = match_outputs(work, statements)
    knows_columns = all(data.table is None and (data.columns or data.format == "text") for data in work.inputs)
    with views_of(spark, work) if knows_columns else nullcontext():
        for statement in statements:
            targets = makers.get(statement, ())
            try:
                is_query = _is_query(spark, statement)
                if not is_query and targets:
                    reason = f"the statement of {render_subject(targets[0])} is a command and has no result"
                    yield _fault(work, statement.line, reason, "Use a query as the statement of the output.")
                    return
                if is_query and knows_columns:
                    result = spark.sql(statement.text, args=dict(parameters(work)))
                    for target in targets:
                        _fit(result, target)
                elif not _CHANGES_NOTHING.match(statement.text):
                    knows_columns = False
            except PySparkException as exc:
                yield from _explain(exc, statement, work)
                return
            except OutputMismatchError as exc:
                yield _fault(work, statement.line, f"{exc.subject}: {exc.reason}", exc.next_step)
                return


def _is_query(spark: "SparkSession", statement: Statement) -> bool:
    """Return whether Spark may be given a statement: a query, which is not run, or a temporary view."""
    if _MAKES_VIEW.match(statement.text):
        return True
    session: Any = spark._jsparkSession
    plan = session.sessionState().sqlParser().parsePlan(statement.text)
    command = spark._jvm.java.lang.Class.forName(_COMMAND)  # type: ignore[union-attr]
    return not command.isInstance(plan) and not any(word in plan.toString() for word in _WRITES)


def _fit(result: "DataFrame", target: OutputTarget) -> None:
    from pyspark.errors import AnalysisException

    try:
        fit_to_schema(result, target)
    except AnalysisException as exc:
        misfit = find_misfit(render_subject(target), exc)
        if misfit is not None:
            raise misfit from exc
        raise


def _explain(exc: "PySparkException", statement: Statement, work: Work) -> Iterator[CodeFault]:
    facts = exc.getMessageParameters() or {}
    condition = exc.getCondition() or ""
    line = statement.begins + _line_in(exc, statement) - 1
    views = sorted(data.name.replace("-", "_") for data in work.inputs)
    match condition.partition(".")[0]:
        case "UNRESOLVED_COLUMN":
            proposal = facts.get("proposal", "")
            first = proposal.partition(",")[0]
            remedy = f"Did you mean {first}? There are {proposal}." if first else "Correct the name."
            yield _fault(work, line, f"there is no column {facts.get('objectName')}", remedy)
        case "TABLE_OR_VIEW_NOT_FOUND" if work.catalog is not None or "." in facts.get("relationName", ""):
            return  # the catalog of the cluster may have it
        case "TABLE_OR_VIEW_NOT_FOUND":
            name = facts.get("relationName", "").strip("`")
            close = suggest_view(name, views)
            remedy = f"Did you mean {close!r}?" if close else "Correct the name, or declare an input."
            yield _fault(work, line, f"there is no view {name!r}; the inputs are {', '.join(views) or 'none'}", remedy)
        case "UNRESOLVED_ROUTINE" if work.libs:
            return  # a library may have it
        case _:
            yield _fault(work, line, " ".join(_NOISE.sub("", render_cause(exc)).split()), "Correct the statement.")


def _line_in(exc: "PySparkException", statement: Statement) -> int:
    """Return the line of a statement, counted from 1, at which Spark refuses it."""
    for context in exc.getQueryContext() or ():
        if context.contextType().name == "SQL" and context.startIndex() >= 0:
            return statement.text.count("\n", 0, context.startIndex()) + 1
    found = _LINE.search(str(exc))
    return int(found[1]) if found else statement.line - statement.begins + 1


def _fault(work: Work, line: int, reason: str, next_step: str) -> CodeFault:
    return CodeFault(reason=reason, next_step=next_step, file=work.root / work.path, line=line)
