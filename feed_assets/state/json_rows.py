"""Insert thousands of rows in one statement: one JSON parameter has them.

Measured with 60,000 rows of four indexes: it takes half as long as many parameters on SQLite, a third on PostgreSQL.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Connection,
    Insert,
    Table,
    bindparam,
    cast,
    func,
    select,
    true,
)
from sqlalchemy import column as named
from sqlalchemy.dialects.postgresql import JSONB

from feed_assets.state.column_types import Text
from feed_assets.state.keyed import render_rows
from feed_assets.state.upserts import build_insert

_ROWS = "inserted_rows"


def insert_rows(
    connection: Connection,
    table: Table,
    names: tuple[str, ...],
    rows: Sequence[Sequence[Any]],
    *,
    replaces: bool = False,
) -> None:
    """Insert rows with values of the named columns: numbers, times and texts. With `replaces`,
    rows with the same primary key are overwritten.
    """
    if rows:
        connection.execute(_build(connection.dialect.name, table, names, replaces), {_ROWS: render_rows(rows)})


@cache
def _build(dialect: str, table: Table, names: tuple[str, ...], replaces: bool) -> Insert:
    columns = [table.c[name] for name in names]
    parameter: BindParameter[str] = bindparam(_ROWS, type_=Text)
    values: list[ColumnElement[Any]]
    if dialect == "sqlite":
        entry = func.json_each(parameter).table_valued("value", name="entry")
        values = [func.json_extract(entry.c.value, f"$[{i}]") for i, _ in enumerate(names)]
    else:
        entry = func.jsonb_array_elements(cast(parameter, JSONB)).table_valued(named("value", JSONB), name="entry")
        values = [cast(entry.c.value[i].astext, each.type) for i, each in enumerate(columns)]
    new = build_insert(dialect, table)
    statement = new.from_select(list(names), select(*values).where(true()), include_defaults=False)
    if not replaces:
        return statement
    keys = [each.name for each in table.primary_key]
    changes = {name: new.excluded[name] for name in names if name not in keys}
    return statement.on_conflict_do_update(index_elements=keys, set_=changes)
