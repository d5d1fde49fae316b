"""What can be asked of datasources: whether they can be used, and what is in them."""

from typing import TYPE_CHECKING, Annotated

from feed_assets.clock import open_clock
from feed_assets.definitions.datasources.requests import FeedRequest
from feed_assets.entities.common import Kind
from feed_assets.operation import WRITES_FILES, Param, later, operation
from feed_assets.parameters import Force, Target
from feed_assets.settings import load_settings

if TYPE_CHECKING:
    from feed_assets.context.operation import OperationContext
    from feed_assets.definitions import templates
    from feed_assets.definitions.checks import declared_definitions
    from feed_assets.definitions.datasources import asking, foreseeing, marks, new_feeds

later(globals())

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
def check(context: "OperationContext", *, datasource: Datasource) -> "asking.CheckedDatasource":
    """Open a connection by each interface of DATASOURCE, and tell what its user may do, where the database says that.

    Tables are counted in the schema of the connection. The exit code is 1 if an interface cannot be used.
    """
    return asking.check_datasource(context, datasource)


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
) -> "asking.TableList":
    """List the tables and views of DATASOURCE in a schema."""
    return asking.list_tables(context, datasource, schema, like)


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
) -> "asking.ColumnList":
    """List the columns of TABLE: their types in the database and in Spark, and the unique keys that they are in."""
    return asking.list_columns(context, datasource, table)


@operation(
    "import marks",
    none="no instance was imported yet",
    table="cluster, instance=nominal_time, above, up to=upto, rows, recorded=recorded_at:seconds",
    rows="stretches",
    example="orders",
)
def list_marks(
    context: "OperationContext", *, feed: Annotated[str, Param("The feed.", argument=True, of=(Kind.FEED,))]
) -> "tuple[marks.ImportedStretch, ...]":
    """Show which rows of the table each instance of FEED has that was imported by mark, newest first."""
    return marks.list_marks(context, feed)


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
) -> "foreseeing.ImportPlan":
    """Show what the next run of the import of FEED would read: columns, condition, marks and parts, as the database
    says them now. It is asked for extremes, and no row is read.

    The exit code is 1 if the columns are not those of the feed's schema.
    """
    return foreseeing.foresee_import(context, feed, cluster)


@operation(
    "import new",
    text="lines",
    example="orders --datasource shop --table orders --to entities/orders.yaml",
    no_route=WRITES_FILES,
)
def new(*, request: FeedRequest, to: Target = None, force: Force = False) -> "templates.Template":
    """Write a feed NAME that is imported from a table, and validate it together with the declared entities.

    Its schema has the columns of the table, with their types in Spark. The database is asked, and not changed.
    """
    settings = load_settings()
    template = new_feeds.make_feed(
        request,
        declared_definitions.load_declared(settings),
        open_clock(settings).now(),
        settings.root,
        is_forced=force,
    )
    return template if to is None else templates.write_template(template, to, what="new feed", is_forced=force)
