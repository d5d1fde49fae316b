"""Copy tables between metastores: what of a table can be copied, and the table that receives it."""

from feed_assets.entities.copies.options import Columns
from feed_assets.errors import render_some
from feed_assets.storage.errors import TableRefusedError
from feed_assets.storage.table.metastore import Table
from feed_assets.storage.table.partitions import TablePartitions

_VIEWS = frozenset({"VIRTUAL_VIEW", "MATERIALIZED_VIEW"})
_OTHER_FORMATS = frozenset({"iceberg", "delta", "hudi", "paimon"})
_LINKS = "SymlinkTextInputFormat"


def why_not_written(table: Table) -> str | None:
    """Return why readers of a table do not see files that are put into its partitions, as a clause; None if they do."""
    if table.kind in _VIEWS:
        return "it is a view"
    if table.parameters.get("transactional", "").lower() == "true":
        return "Hive keeps transactions of it, and does not see files that others add"
    if table.buckets:
        return f"its rows are in {table.buckets} buckets, which only its own engine fills as readers expect"
    return None


def why_not_plain(table: Table) -> str | None:
    """Return why files that are laid into a table are not its rows, as a clause; None if they are."""
    kinds = {table.parameters.get(name, "").lower() for name in ("table_type", "spark.sql.sources.provider")}
    if found := kinds & _OTHER_FORMATS:
        return f"it is a table of {found.pop().capitalize()}, whose own files say which files are its rows"
    if "storage_handler" in table.parameters:
        return f"another system has its rows, by {table.parameters['storage_handler']}"
    if (table.described.sd.inputFormat or "").endswith(_LINKS):
        return "its files are links to other files"
    return why_not_written(table)


def require_copyable(table: Table, store: str, what: str) -> None:
    """Raise `TableRefusedError` unless copied files of this table, the source or the target, are its rows."""
    if (reason := why_not_plain(table)) is not None:
        raise TableRefusedError(
            store=store,
            path="",
            reason=f"{what} {table.database}.{table.name} is not copied: {reason}",
            next_step="Copy a plain table of files, or write the table on the target with a process there.",
        )


def receive_table(source: TablePartitions, target: TablePartitions) -> None:
    """Make the target of copies like their source if it does not exist; else require the same keys and columns.

    Raises:
        TableRefusedError: one of them cannot be copied (a view, …), or they differ.
    """
    told, metastore = source.table(), target.metastore
    require_copyable(told, source.store, "the source")
    found = metastore.find_table(target.database, target.name)
    if found is None:
        metastore.create_table(target.database, target.name, target.new_location(), told)
        found = target.table()
    require_copyable(found, target.store, "the target")
    columns, others = dict(told.columns), dict(found.columns)
    if target.columns is Columns.IGNORE:  # readers leave out what only the files have, and find null in what they lack
        columns, others = ({name: each[name] for name in columns.keys() & others} for each in (columns, others))
    for what, one, other in (("partition keys", dict(told.keys), dict(found.keys)), ("columns", columns, others)):
        if differing := _differences(one, other):
            raise TableRefusedError(
                store=target.store,
                path="",
                reason=f"its {what} are not those of the source {told.database}.{told.name}: "
                f"{render_some(differing, 5)}",
                next_step="Alter one of the tables, or drop the target: a new one is made from the source.",
            )
    _require_order(told, found, target)


def _require_order(told: Table, found: Table, target: TablePartitions) -> None:
    """Raise `TableRefusedError` if readers would take a column for another one, as they go by its place. Those of
    Parquet go by its name.
    """
    names = [name.lower() for name, _ in told.columns], [name.lower() for name, _ in found.columns]
    is_by_name = target.columns is Columns.IGNORE and "parquet" in (told.described.sd.inputFormat or "").lower()
    if not is_by_name and any(one != other for one, other in zip(*names, strict=False)):
        one, other = map(", ".join, names)
        raise TableRefusedError(
            store=target.store,
            path="",
            reason=f"its columns are in another order than those of the source {told.database}.{told.name}: {one} "
            f"there, {other} here",
            next_step="Alter one of the tables, or drop the target: a new one is made from the source.",
        )


def _differences(one: dict[str, str], other: dict[str, str]) -> tuple[str, ...]:
    """Return the names that two tables do not share, each with its types at the source and at the target."""
    names = [*one, *(name for name in other if name not in one)]
    return tuple(
        f"{name} ({one.get(name, 'none')} there, {other.get(name, 'none')} here)"
        for name in names
        if one.get(name) != other.get(name)
    )
