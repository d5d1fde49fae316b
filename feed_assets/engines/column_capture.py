"""Ask Spark what the columns of an output were made of, beside the run: whatever goes wrong, only this is unknown."""

import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from types import MappingProxyType
from typing import TYPE_CHECKING
from urllib.parse import unquote

from feed_assets.engines.failures import render_cause
from feed_assets.engines.plan_columns import FILES, INPUT_MARK, InputColumns, PlanNotReadError, read_plan
from feed_assets.engines.plan_tree import OPTIMIZED
from feed_assets.engines.port import InputData, OutputReport, Work
from feed_assets.engines.spark.sessions import with_settings
from feed_assets.entities.content.column_lineage import ColumnLineage
from feed_assets.entities.content.quality import OnFail
from feed_assets.masking import get_logger, mask

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_logger = get_logger(__name__)
_ALL_FIELDS = MappingProxyType({"spark.sql.debug.maxToStringFields": str(2**31 - 1)})
_WHOLE = MappingProxyType({**_ALL_FIELDS, "spark.sql.maxPlanStringLength": str(2**31 - 16)})
_CUT = re.compile(r"Truncated plan of \d+ characters|\.\.\. \d+ more (?:characters|fields)")
_ANALYZED = "== Analyzed Logical Plan =="
_LONGEST_PLAN = 250_000  # reading it costs less than half a second
_MOST_FOLDERS = 20


def mark_input(frame: "DataFrame", name: str) -> "DataFrame":
    """Return a frame that a plan shows to be an input. Its rows, names, qualifiers and metadata are those of the frame,
    which an alias would change. Only a plan before it is optimized shows the filter, and one where code has forbidden
    Spark to fold constants.
    """
    from pyspark.sql import functions as sf

    return frame.where(sf.lit(f"{INPUT_MARK}{name}").isNotNull())


def with_lineage(
    report: OutputReport, frame: "DataFrame", work: Work, inputs: "Mapping[str, DataFrame]"
) -> OutputReport:
    """Return the report of an output with what the columns of its frame were made of; `inputs` were handed in."""
    try:
        lineage = _read(_without_bad(frame, report, work), work, inputs)
        columns = {name.lower(): sources for name, sources in lineage.columns.items()}
        if len(columns) < len(frame.columns):
            raise PlanNotReadError("two of its columns have the same name, at least without regard to case")
        names = [name for name, _ in report.columns or ()] or list(lineage.columns)
        lineage = replace(lineage, columns={name: columns[name.lower()] for name in names})
    except Exception as exc:  # noqa: BLE001 - a run never fails for it
        reason = mask(str(exc) if isinstance(exc, PlanNotReadError) else render_cause(exc))
        _log_once(work.process, report.name, reason)
        lineage = ColumnLineage(unknown=reason)
    return replace(report, lineage=lineage)


def _without_bad(frame: "DataFrame", report: OutputReport, work: Work) -> "DataFrame":
    """Return the frame without the rows that a quality leaves out: its plan tells by which columns."""
    qualities = [each.quality for each in work.outputs if each.name == report.name and report.judged is not None]
    for quality in qualities:
        if quality is not None and quality.on_fail is OnFail.BLOCK:
            frame = frame.dropDuplicates(list(quality.unique)) if quality.unique else frame
            for rule in quality.rules.values():
                frame = frame.where(rule)
    return frame


@lru_cache(maxsize=1_000)
def _log_once(process: str, output: str, reason: str) -> None:
    _logger.info("what columns of output %r of process %r are made of is unknown: %s", output, process, reason)


def _read(frame: "DataFrame", work: Work, inputs: "Mapping[str, DataFrame]") -> ColumnLineage:
    known = {
        data.name: InputColumns(names=_find_names(data, inputs[data.name]), made_of=data.made_of)
        for data in work.inputs
        if data.name in inputs
    }
    root = f"feed_assets_{uuid.uuid4().hex}"
    text = _explain(frame.alias(root))
    if len(text) > _LONGEST_PLAN:
        raise PlanNotReadError(f"its plan has more than {_LONGEST_PLAN:,} characters")
    are_constant = work.engine == "sql" or not inputs
    lineage = read_plan(
        text, root, frame.columns, known, are_values_constant=are_constant, tell_words=partial(_tell_words, frame, work)
    )
    if FILES not in lineage.beyond:
        return lineage
    handed_in = tuple(f"{unquote(each.url).rstrip('/')}/" for data in work.inputs for each in data.instances)
    files = (file for file in map(unquote, frame.inputFiles()) if not file.startswith(handed_in))
    folders = sorted({mask(f"external/{file.rpartition('/')[0]}") for file in files})[:_MOST_FOLDERS] or [FILES]
    return replace(lineage, beyond=tuple(sorted({*lineage.beyond, *folders} - ({FILES} - set(folders)))))


def _find_names(data: InputData, frame: "DataFrame") -> "Sequence[str] | None":
    """Return the names of the columns of an input, unless a plan tells them, too: a server takes time for it."""
    is_plain = data.columns is not None and "#" not in data.columns
    return None if is_plain and data.made_of is None else frame.columns


def _tell_words(frame: "DataFrame", work: Work) -> str:
    """Return the literals and names in the plan of a frame, among others, but no ids of Spark behind a `#`. A client of
    Spark Connect does not know what views are made of, so those in the file of the work count.
    """
    from pyspark.sql import is_remote

    if is_remote():
        file = work.path.partition(":")[0]
        text = work.read_file(file) if work.engine == "sql" or file.endswith(".py") else b""
        plan = frame._plan.to_proto(frame.sparkSession.client)  # type: ignore[operator]
        return (text + bytes(plan.SerializeToString())).decode("utf-8", "replace")
    return str(frame._jdf.queryExecution().analyzed().toJSON())


def _explain(frame: "DataFrame") -> str:
    """Return the analyzed plan of a frame as text. Spark Connect tells it only with the plans that are made of it."""
    from pyspark.sql import is_remote

    for settings in (_ALL_FIELDS, _WHOLE):  # each costs a call; Spark's own limit of the length is the highest
        with with_settings(frame.sparkSession, settings):
            if is_remote():
                told = str(frame._explain_string(extended=True))  # type: ignore[operator]
                text = told.rpartition(_ANALYZED)[2].partition(OPTIMIZED)[0]
            else:
                text = str(frame._jdf.queryExecution().analyzed().treeString())
        if not _CUT.search(text):
            return text
    raise PlanNotReadError("Spark has cut off its plan")
