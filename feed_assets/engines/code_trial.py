"""Try the code of works without data: import functions, and let Spark analyze SQL over empty views.

Importing runs modules of the user. So it is done in a process of its own, `python -m feed_assets.engines.code_trial`,
which may print, hang or end as it likes.
"""

import inspect
import os
import pickle
import re
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from subprocess import TimeoutExpired
from typing import TYPE_CHECKING, Any

from feed_assets.engines.data.fitting import telling_misfits
from feed_assets.engines.data.frames import fit_to_schema
from feed_assets.engines.data.quality import RuleTrial, find_rule_fault
from feed_assets.engines.errors import (
    CodeFault,
    OutputMismatchError,
    WorkflowFailedError,
    WorkflowNotFoundError,
    WorkflowSignatureError,
)
from feed_assets.engines.failures import last_lines, render_cause
from feed_assets.engines.port import Work
from feed_assets.engines.python_engine import bind_names, importable, load_function
from feed_assets.engines.spark.sessions import session_conf, start_session
from feed_assets.engines.spark.supervised import SupervisedProcess
from feed_assets.engines.sql_engine import load_statements, match_outputs, parameters, views_of
from feed_assets.engines.workflow.sql_code import suggest_view
from feed_assets.engines.workflow.sql_script import Statement

if TYPE_CHECKING:
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

_IMPORTING = ("importlib", "feed_assets/engines/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A work without data, whose inputs are all optional, and the Spark configuration of its cluster.

    Without `is_certain` a step may get more frames than are known.
    """

    work: Work
    conf: Mapping[str, str]
    is_certain: bool = True


def try_elsewhere(trials: Sequence[Trial | RuleTrial], seconds: float) -> list[tuple[CodeFault, ...]]:
    """Return the faults of each trial, found by another process.

    After `seconds`, or when that process ends early, the trial that it was at has failed; those after it have not been
    made.
    """
    with tempfile.TemporaryDirectory(prefix="feed-assets-trial-") as place:
        folder = Path(place)
        given, found, log = folder / "trials", folder / "faults", folder / "log"
        given.write_bytes(pickle.dumps(tuple(trials)))
        found.touch()
        command = [sys.executable, "-m", __spec__.name if __spec__ else __name__, str(folder)]
        with log.open("wb") as output, SupervisedProcess(command, env=os.environ, cwd=Path.cwd(), output=output) as run:
            try:
                ended = f"it ended Python with exit code {run.wait(seconds)}"
            except TimeoutExpired:
                ended = f"it has not ended within {seconds:g} seconds"
        faults = list(_load(found))
        if len(faults) < len(trials):
            last = last_lines(log.read_text("utf-8", "replace").splitlines())[-1:]
            reason = ": ".join(["the code could not be tried", ended, *last])
            faults.append((CodeFault(reason=reason, next_step="Run it by itself to see why."),))
        return [*faults, *[()] * (len(trials) - len(faults))]


def try_here(
    trials: Sequence[Trial | RuleTrial], session: "Callable[[], SparkSession]"
) -> Iterator[tuple[CodeFault, ...]]:
    """Yield the faults of each trial. Imports modules of the user; `session` is called for the first SQL."""
    for trial in trials:
        if isinstance(trial, RuleTrial):
            fault = find_rule_fault(session(), trial)
            yield () if fault is None else (fault,)
            continue
        match trial.work.engine:
            case "python":
                fault = _try_function(trial.work, is_certain=trial.is_certain)
                yield () if fault is None else (fault,)
            case "sql":
                yield tuple(try_sql(session().newSession(), trial.work, trial.conf))
            case _:
                yield ()


def _try_function(work: Work, *, is_certain: bool) -> CodeFault | None:
    with importable(work.root):
        try:
            function = load_function(work)
        except WorkflowNotFoundError as exc:
            return CodeFault(reason=exc.reason, next_step=exc.next_step)
        except WorkflowFailedError as exc:
            file, line = _place_of(exc.__cause__)
            return CodeFault(
                reason=f"importing it fails: {exc.reason}", next_step="Correct the module.", file=file, line=line
            )
        try:
            bind_names(work, function)
        except WorkflowSignatureError as exc:
            code = getattr(inspect.unwrap(function), "__code__", None)
            return CodeFault(
                reason=f"{work.path.rpartition(':')[2]} does not match the inputs: {exc.reason}",
                next_step=exc.next_step,
                file=Path(code.co_filename) if code else None,
                line=code.co_firstlineno if code else None,
                is_certain=is_certain,
            )
    return None


def _place_of(error: BaseException | None) -> tuple[Path | None, int | None]:
    """Return the file and line at which an import failed."""
    if isinstance(error, SyntaxError) and error.filename is not None:
        return Path(error.filename), error.lineno
    frames = traceback.extract_tb(error.__traceback__) if error is not None else []
    own = [frame for frame in frames if not any(part in frame.filename for part in _IMPORTING)]
    return (Path(own[-1].filename), own[-1].lineno) if own else (None, None)


def _load(file: Path) -> Iterator[tuple[CodeFault, ...]]:
    with file.open("rb") as stream, suppress(EOFError, pickle.UnpicklingError):
        while True:
            yield pickle.load(stream)  # our own process has written it


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
                    reason = f"the statement of {targets[0].subject} is a command and has no result"
                    yield _fault(work, statement.line, reason, "Use a query as the statement of the output.")
                    return
                if is_query and knows_columns:
                    result = spark.sql(statement.text, args=dict(parameters(work)))
                    for target in targets:
                        with telling_misfits(target):
                            fit_to_schema(result, target)
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
            remedy = "Write :name for ${name}, or IDENTIFIER(:name) for a column." if "${" in statement.text else ""
            reason = " ".join(_NOISE.sub("", render_cause(exc)).split())
            yield _fault(work, line, reason, remedy or "Correct the statement.")


def _line_in(exc: "PySparkException", statement: Statement) -> int:
    """Return the line of a statement, counted from 1, at which Spark refuses it."""
    for context in exc.getQueryContext() or ():
        if context.contextType().name == "SQL" and context.startIndex() >= 0:
            return statement.text.count("\n", 0, context.startIndex()) + 1
    found = _LINE.search(str(exc))
    return int(found[1]) if found else statement.line - statement.begins + 1


def _fault(work: Work, line: int, reason: str, next_step: str) -> CodeFault:
    return CodeFault(reason=reason, next_step=next_step, file=work.root / work.path, line=line)


@cache
def _start_spark() -> "SparkSession":
    return start_session(session_conf(master="local[1]"))


def main(folder: Path) -> None:
    """Make the trials of a folder, and write the faults of each as soon as they are known."""
    trials = pickle.loads((folder / "trials").read_bytes())
    with (folder / "faults").open("wb") as stream:
        for faults in try_here(trials, _start_spark):
            pickle.dump(faults, stream)
            stream.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
