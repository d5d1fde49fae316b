"""How the columns of a DataFrame fit those that a schema or a table declares, and how a misfit is told."""

from collections import Counter
from typing import TYPE_CHECKING

from feed_assets.engines.errors import OutputMismatchError

if TYPE_CHECKING:
    from pyspark.errors import AnalysisException

_MISFITS = ("INVALID_COLUMN_OR_FIELD_DATA_TYPE", "NULLABLE_COLUMN_OR_FIELD", "NULLABLE_ARRAY_OR_MAP_ELEMENT")


def find_differences(returned: list[str], declared: list[str]) -> list[str]:
    """What is missing, too much, or there more than once; names are compared as Spark does, without regard to case.

    >>> find_differences(["Origin", "extra", "ORIGIN"], ["origin", "delay"])
    ['missing: delay', 'not declared: extra', 'more than once: origin']
    """
    have = Counter(name.lower() for name in returned)
    want = {name.lower() for name in declared}
    groups = {
        "missing": [name for name in declared if name.lower() not in have],
        "not declared": [name for name in returned if name.lower() not in want],
        "more than once": [name for name in declared if have[name.lower()] > 1],
    }
    return [f"{what}: {', '.join(names)}" for what, names in groups.items() if names]


def find_misfit(subject: str, exc: "AnalysisException") -> OutputMismatchError | None:
    """What it means that Spark does not cast columns as a schema wants them; None if it refused something else."""
    if exc.getCondition() not in _MISFITS:
        return None
    facts = exc.getMessageParameters() or {}
    column = facts.get("name", "?")
    if exc.getCondition() == "INVALID_COLUMN_OR_FIELD_DATA_TYPE":
        reason = f"column {column} is {facts.get('type')}, and the schema says {facts.get('expectedType')}"
        next_step = "Cast it in the workflow, where a value that does not fit can be dealt with, or change the schema."
    else:
        reason = f"column {column} may be null, and the schema says NOT NULL"
        next_step = "Drop or fill the nulls in the workflow, or change the schema."
    return OutputMismatchError(subject=subject, reason=reason, next_step=next_step)
