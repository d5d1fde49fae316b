"""Render table partitions as text for scripts and applications, in the syntax that Falcon uses for Hive and Pig."""

from collections.abc import Sequence

Values = Sequence[tuple[str, str]]


def render_filter(partitions: Sequence[Values], equals: str = "=") -> str:
    """Return a condition that selects the rows of these partitions; "" for a whole table. Pig's `equals` is `==`.

    >>> render_filter([[("ds", "2013-11-03"), ("region", "eu")], [("ds", "2013-11-02"), ("region", "eu")]])
    "(ds='2013-11-03' AND region='eu') OR (ds='2013-11-02' AND region='eu')"
    """
    alternatives = (" AND ".join(f"{key}{equals}{quote_text(value)}" for key, value in values) for values in partitions)
    return " OR ".join(f"({each})" for each in alternatives if each)


def render_values(values: Values, *, quoted: bool = False) -> str:
    """Return the values of one partition. Hive expects them quoted, Pig and Java do not.

    >>> render_values([("ds", "2013-11-03"), ("region", "eu")]), render_values([("ds", "it's")], quoted=True)
    ('ds=2013-11-03,region=eu', "ds='it\\\\'s'")
    """
    return ",".join(f"{key}={quote_text(value) if quoted else value}" for key, value in values)


def quote_text(value: str) -> str:
    """Return a text as a literal of SQL."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
