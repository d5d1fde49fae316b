"""What can be asked of datasources: whether they can be used, and what is in them."""

from typing import TYPE_CHECKING, Annotated

from feed_assets.definitions.datasources.requests import FeedRequest
from feed_assets.entities.common import Kind
from feed_assets.operation import WRITES_FILES, Param, operation
from feed_assets.parameters import Force, Target

if TYPE_CHECKING:
    from feed_assets.context.operation import OperationContext
    from feed_assets.definitions.datasources.asking import CheckedDatasource, ColumnList, TableList
    from feed_assets.definitions.datasources.foreseeing import ImportPlan
    from feed_assets.definitions.datasources.marks import ImportedStretch
    from feed_assets.definitions.templates import Template

GROUPS = {
    "datasource": """Ask the databases that feeds are imported from and exported to.

    DATASOURCE is one that is declared; its readonly interface is asked, or else its write interface.
    """,
    "import": "Make feeds of tables of databases, and show what imports will read and have read.",
}

Datasource = Annotated[str, Param("The datasource.", argument=True, of=(Kind.DATASOURCE,))]


@operation(
    "datasource check",
    table="interface, database, user, tables, reads, makes tables=creates, state",
    rows="interfaces",
    example="shop",
)
def check(context: "OperationContext", *, datasource: Datasource) -> "CheckedDatasource":
    """Open a connection by each interface of DATASOURCE, and tell what its user may do, where the database says that.

    Tables are counted in the schema of the connection. The exit code is 1 if an interface cannot be used.
    """
    from feed_assets.definitions.datasources.asking import check_datasource

    return check_datasource(context, datasource)


@operation(
    "datasource tables",
    none="there is no such table",
    table="schema, table=name, type",
    rows="tables",
    example="shop --like 'order%'",
)
def list_tables(
    context: "OperationContext",
    *,
    datasource: Datasource,
    schema: Annotated[str | None, Param("The schema; by default that of the connection.")] = None,
    like: Annotated[str | None, Param("Only tables whose name matches this pattern, with % and _ as in SQL.")] = None,
) -> "TableList":
    """List the tables and views of DATASOURCE in a schema."""
    from feed_assets.definitions.datasources.asking import list_tables

    return list_tables(context, datasource, schema, like)


@operation(
    "datasource columns",
    table="column=name, type, type in Spark=ddl, nullable, keys",
    rows="columns",
    example="shop orders",
)
def list_columns(
    context: "OperationContext",
    *,
    datasource: Datasource,
    table: Annotated[str, Param("The table, or schema.table.", argument=True)],
) -> "ColumnList":
    """List the columns of TABLE: their types in the database and in Spark, and the unique keys that they are in."""
    from feed_assets.definitions.datasources.asking import list_columns

    return list_columns(context, datasource, table)


@operation(
    "import marks",
    none="no instance was imported yet",
    table="cluster, instance=nominal_time, above, up to=upto, rows, recorded=recorded_at:seconds",
    rows="stretches",
    example="orders",
)
def list_marks(
    context: "OperationContext", *, feed: Annotated[str, Param("The feed.", argument=True, of=(Kind.FEED,))]
) -> "tuple[ImportedStretch, ...]":
    """Show which rows of the table each instance of FEED has that was imported by mark, newest first."""
    from feed_assets.definitions.datasources.marks import list_marks

    return list_marks(context, feed)


@operation(
    "import plan",
    table="column=name, type, type in Spark=ddl, schema",
    rows="columns",
    example="orders",
)
def plan(
    context: "OperationContext",
    *,
    feed: Annotated[str, Param("The feed.", argument=True, of=(Kind.FEED,))],
    cluster: Annotated[str | None, Param("Where it is imported, if on several.", of=(Kind.CLUSTER,))] = None,
) -> "ImportPlan":
    """Show what the next run of the import of FEED would read: columns, condition, marks and parts, as the database
    says them now. It is asked for extremes, and no row is read.

    The exit code is 1 if the columns are not those of the feed's schema.
    """
    from feed_assets.definitions.datasources.foreseeing import foresee_import

    return foresee_import(context, feed, cluster)


@operation(
    "import new",
    text="lines",
    example="orders --datasource shop --table orders --to entities/orders.yaml",
    no_route=WRITES_FILES,
)
def new(*, request: FeedRequest, to: Target = None, force: Force = False) -> "Template":
    """Write a feed NAME that is imported from a table, and validate it together with the declared entities.

    Its schema has the columns of the table, with their types in Spark. The database is asked, and not changed.
    """
    from feed_assets.clock import open_clock
    from feed_assets.definitions.checks.declared_definitions import load_declared
    from feed_assets.definitions.datasources.new_feeds import make_feed
    from feed_assets.definitions.templates import write_template
    from feed_assets.settings import load_settings

    settings = load_settings()
    template = make_feed(request, load_declared(settings), open_clock(settings).now(), settings.root, is_forced=force)
    return template if to is None else write_template(template, to, what="new feed", is_forced=force)
