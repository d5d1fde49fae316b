"""Copy tables between Iceberg catalogs: the table that receives the files of another one, as they are. So its columns
have the same field ids, by which readers know the columns of a file.
"""

from collections.abc import Iterator
from contextlib import suppress

from pyiceberg.exceptions import CommitFailedException, NoSuchNamespaceError, TableAlreadyExistsError
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema, index_name_by_id
from pyiceberg.table import CreateTableTransaction, StagedTable, Table, TableProperties
from pyiceberg.table.name_mapping import NameMapping
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AssertLastAssignedFieldId,
    AssertTableUUID,
    SetCurrentSchemaUpdate,
    SetPropertiesUpdate,
    TableUpdate,
)

from feed_assets.entities.copies.options import Columns
from feed_assets.errors import render_some
from feed_assets.storage.errors import InstanceChangingError, TableRefusedError
from feed_assets.storage.iceberg.commits import require_writable
from feed_assets.storage.iceberg.partitions import LakePartitions, LakeTable

_ALTER = "Alter one of the tables, or drop the target: a new one is made from the source."


def receive_table(source: LakePartitions, target: LakePartitions, columns: Columns) -> None:
    """Make the target of copies like their source if it does not exist, with the same field ids, but neither its
    properties nor its order; else require the same partition spec, and the same columns as far as `columns` says.

    Raises:
        TableRefusedError: one of them is not written here, they differ, or there is no such namespace.
    """
    told = source.table()
    require_writable(told.table, source.store)
    if target.find_table() is None:
        _make(told, target)
    found = target.table()
    require_writable(found.table, target.store)
    name = f"{told.database}.{told.name}"
    specs = [[(each.source_id, str(each.transform), each.name) for each in table.fields] for table in (told, found)]
    if specs[0] != specs[1]:
        raise _refused(target, f"its partition spec is not that of the source {name}: {told.table.spec()}", _ALTER)
    if differing := tuple(_differences(told.table, found.table, columns)):
        reason = f"its columns are not those of the source {name}: {render_some(differing, 5)}"
        raise _refused(target, reason, f"{_ALTER} Columns of one of them: write columns: add or ignore at the feed.")
    _learn(told.table.schema(), found.table, target, columns)


def _make(told: LakeTable, target: LakePartitions) -> None:
    """Make a table with the schema and the partition spec of another one. A catalog gives new ids, so the table that
    it would make is changed before the commit.
    """
    schema = told.table.schema().model_copy(update={"schema_id": 0, "identifier_field_ids": []})
    spec, identifier = PartitionSpec(*told.fields, spec_id=0), (target.database, target.name)
    with target.catalog.translated(store=target.store):
        try:
            planned = target.catalog.open().create_table_transaction(identifier, schema, partition_spec=spec)
            staged = planned._table
            assert isinstance(staged, StagedTable)
            staged.metadata = staged.metadata.model_copy(update={"schemas": [schema], "partition_specs": [spec]})
            with suppress(CommitFailedException, TableAlreadyExistsError):  # another copy has made it
                CreateTableTransaction(staged).commit_transaction()
        except NoSuchNamespaceError as exc:
            reason = f"there is no namespace {target.database}, so the table of the copies cannot be made"
            raise _refused(target, reason, "Create it in the catalog of the target.") from exc


def _learn(source: Schema, table: Table, target: LakePartitions, columns: Columns) -> None:
    """Add the columns that a table lacks to its schema; if they are ignored, to one that is not in use, so that no
    other column gets their ids.
    """
    known, adds = set(index_name_by_id(table.schema())), columns is Columns.ADD
    lacking = index_name_by_id(source).keys() - known
    if not lacking or (not adds and max(lacking) <= table.metadata.last_column_id):
        return
    fields = [each.model_copy(update={"required": False}) for each in source.fields if each.field_id in lacking]
    if nested := lacking - set(index_name_by_id(Schema(*fields))):
        names = render_some(tuple(sorted(str(source.find_column_name(each)) for each in nested)), 5)
        raise _refused(target, f"it lacks parts of columns: {names}", _ALTER)
    mapping = table.metadata.name_mapping() or table.schema().name_mapping
    mapping = NameMapping([*mapping.root, *Schema(*fields).name_mapping.root])  # for readers of files without ids
    number = max(each.schema_id for each in table.metadata.schemas) + 1
    updates: tuple[TableUpdate, ...] = (
        AddSchemaUpdate(schema_=Schema(*table.schema().fields, *fields, schema_id=number)),
        SetPropertiesUpdate(updates={TableProperties.DEFAULT_NAME_MAPPING: mapping.model_dump_json()}),
    )
    updates += (SetCurrentSchemaUpdate(schema_id=-1),) if adds else ()
    last = AssertLastAssignedFieldId(last_assigned_field_id=table.metadata.last_column_id)
    with target.catalog.translated(store=target.store):
        try:
            table._do_commit(updates, (AssertTableUUID(uuid=table.metadata.table_uuid), last))
        except CommitFailedException as exc:
            raise InstanceChangingError(store=target.store, path="", reason="others alter the table") from exc


def _differences(told: Table, found: Table, columns: Columns) -> Iterator[str]:
    """Yield the columns that have one id and differ, also from what the source had by it before, or one name and two
    ids; if they are to be refused, also those of one table.
    """
    source, target = told.schema(), found.schema()
    one, two = index_name_by_id(source), index_name_by_id(target)
    ids = {name: number for number, name in two.items()}
    for number, name in one.items():
        if number in two:
            there, here = source.find_field(number), target.find_field(number)
            kinds = [str(each.field_type) if each.field_type.is_primitive else "nested" for each in (there, here)]
            if (name, kinds[0]) != (two[number], kinds[1]):
                yield f"{number}: {name} {kinds[0]} there, {two[number]} {kinds[1]} here"
            elif here.required and not there.required:
                yield f"{name} may be null there"
        elif name in ids:
            yield f"{name} (id {number} there, {ids[name]} here)"
        elif columns is Columns.REFUSE:
            yield f"{name} (only there)"
    for number, name in two.items():
        had = {each.find_column_name(number) for each in told.metadata.schemas} - {None}
        if number not in one and (
            (had and name not in had) or (columns is Columns.REFUSE and name not in one.values())
        ):
            yield f"{name} (only here{f', was {sorted(map(str, had))[0]} there' if had else ''})"


def _refused(target: LakePartitions, reason: str, next_step: str) -> TableRefusedError:
    return TableRefusedError(store=target.store, path="", reason=reason, next_step=next_step)
