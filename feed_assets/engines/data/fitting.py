"""Compare the columns of a DataFrame with those of a schema or table, and describe the differences."""

from collections import Counter
from typing import TYPE_CHECKING

from feed_assets.engines.errors import OutputMismatchError

if TYPE_CHECKING:
    from pyspark.errors import AnalysisException

_MISFITS = ("INVALID_COLUMN_OR_FIELD_DATA_TYPE", "NULLABLE_COLUMN_OR_FIELD", "NULLABLE_ARRAY_OR_MAP_ELEMENT")


def find_differences(returned: list[str], declared: list[str]) -> list[str]:
    """Return which columns are missing, undeclared or repeated; like Spark, ignore the case of names.

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
    """Describe a column that Spark cannot cast to the schema; return None if Spark refused something else."""
    if exc.getCondition() not in _MISFITS:
        return None
    facts = exc.getMessageParameters() or {}
    column = facts.get("name", "?")
    if exc.getCondition() == "INVALID_COLUMN_OR_FIELD_DATA_TYPE":
        reason = f"column {column} is {facts.get('type')}, but the schema says {facts.get('expectedType')}"
        next_step = "Cast it in the workflow, which can handle invalid values, or change the schema."
    else:
        reason = f"column {column} may be null, but the schema says NOT NULL"
        next_step = "Drop or fill the nulls in the workflow, or change the schema."
    return OutputMismatchError(subject=subject, reason=reason, next_step=next_step)
