"""The tables of the state database: each room has its own in a module `tables`, made with `define_table`.

Tables are made from these definitions. Until release 0.1.0 a change makes another baseline: `SCHEMA_REVISION` has a
digest of it, which a test compares. From then on a change needs a migration.
"""

from importlib import import_module
from typing import Any

from sqlalchemy import Column, Index, MetaData, PrimaryKeyConstraint, Table, TextClause
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import CreateIndex

from feed_assets.sql.column_types import Text

SCHEMA_REVISION = "0023-148267fd"
VERSION_TABLE = "feed_assets_alembic_version"  # where Alembic looks for it, once there are migrations

TABLE_MODULES = (
    "feed_assets.alerts.deadlines.tables",
    "feed_assets.alerts.delivery.tables",
    "feed_assets.catalog.tables",
    "feed_assets.context.bulkheads",
    "feed_assets.instances.inbox.store",
    "feed_assets.instances.steps.store",
    "feed_assets.log.agenda",
    "feed_assets.log.definitions.tables",
    "feed_assets.log.instances.tables",
    "feed_assets.log.messages.outbox",
    "feed_assets.log.removals.tables",
    "feed_assets.log.tables",
    "feed_assets.releases.store",
    "feed_assets.server.identity.tokens",
    "feed_assets.sql.totals",
    "feed_assets.triggers.queue.tables",
)
metadata = MetaData()


def load_tables() -> MetaData:
    """Return the tables of all rooms."""
    for module in TABLE_MODULES:
        import_module(module)
    return metadata


def define_table(name: str, *parts: Column[Any] | Index, key: tuple[str, ...]) -> Table:
    """Define a table whose rows SQLite keeps in the order of their key."""
    primary = PrimaryKeyConstraint(*key, name=f"{name}_pk")
    return Table(name, metadata, *parts, primary, sqlite_with_rowid=False)


def index_where(name: str, condition: TextClause, *columns: str, unique: bool = False) -> Index:
    """Return an index of the rows that meet a condition."""
    return Index(name, *columns, unique=unique, sqlite_where=condition)


@compiles(CreateIndex, "postgresql")
def _create_with_condition(create: CreateIndex, compiler: Any, **options: Any) -> str:
    """The condition of `index_where`. Given at the import, it would load what SQLAlchemy knows of PostgreSQL: 18 ms."""
    index = create.element
    index.dialect_options["postgresql"]["where"] = index.dialect_options["sqlite"]["where"]
    if index.table is not None and index.table.metadata is metadata:
        index.dialect_options["postgresql"]["with"] = {"fillfactor": 100}  # most is added at ends: no room for more
    statement: str = compiler.visit_create_index(create, **options)
    return statement


@compiles(PrimaryKeyConstraint, "postgresql")
def _create_key(key: PrimaryKeyConstraint, compiler: Any, **options: Any) -> str:
    made: str = compiler.visit_primary_key_constraint(key, **options)
    return f"{made} WITH (fillfactor = 100)" if key.table is not None and key.table.metadata is metadata else made


version = Table(VERSION_TABLE, metadata, Column("version_num", Text, primary_key=True))
