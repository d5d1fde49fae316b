"""The rules about made-up data; see `cases`."""

from tests.entities.samples import REMOVED
from tests.validation.cases import DAILY, Case

SCHEMA = "id int, price decimal(6,2), day date, code string"
COLUMNS = {
    "id": {"range": [1, 100]},
    "price": {"decimal": {"range": [0, 9999.99]}},
    "day": {"dates": ["today(0,0)", "2099-01-01"]},
    "code": {"regex": "[A-Z]{2}"},
}


def _made(schema: str | None = SCHEMA, **changed: object) -> dict[str, object]:
    """A process that makes up columns, some made in other ways, or None for none."""
    columns = {name: how for name, how in {**COLUMNS, **changed}.items() if how is not None}
    return {
        f"{DAILY}/workflow": {"engine": "generate", "rows": 10, "columns": columns},
        **({} if schema is None else {"feed summary/schema": schema}),
    }


MADE_UP_CASES = (
    Case(
        code="made-up-output",
        good=_made(),
        bad=_made(schema=None, code={"choice": ["x"]}),
        text="process 'daily': feed 'summary' has no schema, so the types of its columns are not known. "
        'Write schema: "id bigint, price decimal(18,2), day date, code string" at the feed.',
    ),
    Case(
        code="made-up-output",
        name="none",
        bad={**_made(), f"{DAILY}/outputs": REMOVED},
        text="process 'daily': rows are made up for one output, but the process has none. "
        "Write a process for each feed.",
    ),
    Case(
        code="made-up-columns",
        name="missing",
        good=_made(CODE={"choice": ["x"]}, code=None),
        bad=_made(code=None),
        text="process 'daily': columns of feed 'summary' are not made up: code. Say how their values are made.",
    ),
    Case(
        code="made-up-columns",
        name="unknown",
        bad=_made(more={"range": [1, 2]}),
        text="process 'daily': column 'more' is none of feed 'summary'. Remove it.",
    ),
    Case(
        code="made-up-columns",
        name="way",
        good=_made(day={"choice": ["2013-11-03"]}),
        bad=_made(day={"regex": "[0-9]{4}"}),
        text="process 'daily': column 'day' of feed 'summary' is date, and regex makes texts. "
        "Change it, or the schema of the feed.",
    ),
    Case(
        code="made-up-columns",
        name="value",
        good=_made(id={"choice": [1, -7]}),
        bad=_made(id={"choice": [1, "1.5"]}),
        text="process 'daily': column 'id' of feed 'summary' is int, and 1.5 is not. "
        "Change it, or the schema of the feed.",
    ),
    Case(
        code="made-up-columns",
        name="digits",
        good=_made(price={"range": [-9999, 9999]}),
        bad=_made(price={"decimal": {"range": [0, 10000]}}),
        text="process 'daily': column 'price' of feed 'summary' is decimal(6,2), and 10000.00 is not. "
        "Change it, or the schema of the feed.",
    ),
    Case(
        code="made-up-columns",
        name="null",
        bad=_made(schema="id int NOT NULL, price double, day timestamp, code string"),
        text="process 'daily': column 'id' of feed 'summary' is int NOT NULL, but Spark reads the columns of files as "
        "nullable: remove NOT NULL. Change it, or the schema of the feed.",
    ),
    Case(
        code="made-up-columns",
        name="dates",
        bad=_made(day={"dates": ["today(0,0)", "2014-01-01"]}),
        text="process 'daily': column 'day': its dates end at 2014-01-01T23:59:59Z, before they begin at "
        "2015-01-02T00:00Z. Write the earlier one first.",
    ),
)
