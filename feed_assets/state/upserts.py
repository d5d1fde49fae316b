"""Insert-or-update in the two SQL dialects, written once."""

from functools import lru_cache

from sqlalchemy import Insert, Table
from sqlalchemy.dialects import postgresql, sqlite


def build_insert(dialect: str, table: Table) -> sqlite.Insert | postgresql.Insert:
    """An insert that can say what to do on a conflict."""
    return sqlite.insert(table) if dialect == "sqlite" else postgresql.insert(table)


@lru_cache
def build_upsert(dialect: str, table: Table) -> Insert:
    """Insert a row, or replace all other columns of the row with its primary key."""
    new = build_insert(dialect, table)
    keys = [column.name for column in table.primary_key]
    changes = {column.name: new.excluded[column.name] for column in table.columns if column.name not in keys}
    return new.on_conflict_do_update(index_elements=keys, set_=changes)


@lru_cache
def build_insert_if_absent(dialect: str, table: Table) -> Insert:
    """Insert a row, or leave the one with its primary key alone."""
    keys = [column.name for column in table.primary_key]
    return build_insert(dialect, table).on_conflict_do_nothing(index_elements=keys)
