"""Compare the columns of a DataFrame with those of a schema or table, and describe the differences."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from feed_assets.engines.port import OutputTarget
from feed_assets.entities.copies.options import Columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_MISFITS = ("INVALID_COLUMN_OR_FIELD_DATA_TYPE", "NULLABLE_COLUMN_OR_FIELD", "NULLABLE_ARRAY_OR_MAP_ELEMENT")


def find_differences(returned: list[str], declared: list[str], others: Columns = Columns.REFUSE) -> list[str]:
    """Return which columns are missing, undeclared or repeated; like Spark, ignore the case of names. If the decision
    about `others` is not to refuse, only repeated ones differ.

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
    counts = groups if others is Columns.REFUSE else {"more than once": groups["more than once"]}
    return [f"{what}: {', '.join(names)}" for what, names in counts.items() if names]


def fitting_schema(df: "DataFrame", schema: "StructType", others: Columns) -> "StructType":
    """Return the columns that a DataFrame is written with: those of a schema, and behind them its own ones if other
    columns are added. `DataFrame.to` leaves out what is not among them, and makes what is missing null.
    """
    from pyspark.sql.types import StructType

    known = {name.lower() for name in schema.fieldNames()}
    added = [field for field in df.schema.fields if field.name.lower() not in known]
    return StructType([*schema.fields, *added]) if others is Columns.ADD else schema


@contextmanager
def telling_misfits(target: OutputTarget) -> Iterator[None]:
    """Raise OutputMismatchError for a column that Spark cannot cast to the schema; what else it refuses passes."""
    from pyspark.errors import AnalysisException

    try:
        yield
    except AnalysisException as exc:
        if exc.getCondition() not in _MISFITS:
            raise
        facts = exc.getMessageParameters() or {}
        column = facts.get("name", "?")
        if exc.getCondition() == "INVALID_COLUMN_OR_FIELD_DATA_TYPE":
            reason = f"column {column} is {facts.get('type')}, but the schema says {facts.get('expectedType')}"
            next_step = "Cast it in the workflow, or in the query of an import, or change the schema."
        else:
            reason = f"column {column} may be null, but the schema says NOT NULL"
            next_step = "Drop or fill the nulls in the workflow or query, or change the schema."
        raise target.mismatch(reason, next_step) from exc
