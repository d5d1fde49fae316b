"""Copy tables between Iceberg catalogs: the table that receives the files of another one, as they are. So its columns
have the same field ids, by which readers know the columns of a file.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress

from pyiceberg.exceptions import CommitFailedException, NoSuchNamespaceError, TableAlreadyExistsError
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema, index_name_by_id
from pyiceberg.table import CreateTableTransaction, StagedTable, Table, TableProperties
from pyiceberg.table.name_mapping import MappedField, NameMapping
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AssertLastAssignedFieldId,
    AssertTableUUID,
    SetCurrentSchemaUpdate,
    SetPropertiesUpdate,
    TableUpdate,
)
from pyiceberg.types import NestedField, StringType

from feed_assets.entities.copies.options import Columns
from feed_assets.errors import render_some
from feed_assets.storage.errors import InstanceChangingError, TableRefusedError
from feed_assets.storage.iceberg.commits import require_writable
from feed_assets.storage.iceberg.partitions import LakePartitions, LakeTable

_ALTER = "Alter one of the tables, or drop the target: a new one is made from the source."
_TRIES = 5


def receive_table(source: LakePartitions, target: LakePartitions, columns: Columns) -> None:
    """Make the target of copies like their source if it does not exist, with the same field ids, but neither its
    properties nor its order; else require the same partition spec, and the same columns as far as `columns` says.

    Raises:
        TableRefusedError: one of them is not written here, they differ, or there is no such namespace.
    """
    for _ in range(_TRIES):
        if _receive(source, target, columns):
            return
    raise InstanceChangingError(store=target.store, path="", reason="others keep altering the table")


def _receive(source: LakePartitions, target: LakePartitions, columns: Columns) -> bool:
    """Do what `receive_table` says; return False if others have altered the target meanwhile."""
    told = source.table()
    require_writable(told.table, source.store, is_source=True)
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
    return _learn(told.table, found.table, target, columns)


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
        except ValueError as exc:
            reason = f"the table of the copies cannot be made: {exc}"
            raise _refused(target, reason, "Write warehouse in catalog_options of the target, or make it.") from exc


def _learn(told: Table, table: Table, target: LakePartitions, columns: Columns) -> bool:
    """Let a table know of its source the columns that it is to get, all ids that it has given, so that no other column
    gets them, and the names that columns have in files without ids. Return False if others have altered it meanwhile.
    """
    source, schema, last = told.schema(), table.schema(), told.metadata.last_column_id
    lacking = index_name_by_id(source).keys() - index_name_by_id(schema).keys() if columns is Columns.ADD else set()
    fields = [each.model_copy(update={"required": False}) for each in source.fields if each.field_id in lacking]
    if nested := lacking - index_name_by_id(Schema(*fields)).keys():
        names = render_some(tuple(sorted(str(source.find_column_name(each)) for each in nested)), 5)
        raise _refused(target, f"it lacks parts of columns: {names}", _ALTER)
    spare = NestedField(last, _spare(last), StringType(), required=False)
    number = max(each.schema_id for each in table.metadata.schemas) + 1
    added = [[spare]] if last > max({table.metadata.last_column_id, *lacking}) else []
    updates: tuple[TableUpdate, ...] = tuple(
        AddSchemaUpdate(
            schema_=Schema(
                *schema.fields, *more, schema_id=number + at, identifier_field_ids=schema.identifier_field_ids
            )
        )
        for at, more in enumerate([*added, fields] if fields else added)
    )
    updates += (SetCurrentSchemaUpdate(schema_id=-1),) if fields else ()
    theirs = (told.metadata.name_mapping() or Schema(*fields).name_mapping).root
    ours = (table.metadata.name_mapping() or schema.name_mapping).root
    mapping = NameMapping(_merged(theirs, ours)).model_dump_json()
    if theirs and mapping != table.properties.get(TableProperties.DEFAULT_NAME_MAPPING):
        updates += (SetPropertiesUpdate(updates={TableProperties.DEFAULT_NAME_MAPPING: mapping}),)
    asserted = (
        AssertTableUUID(uuid=table.metadata.table_uuid),
        AssertLastAssignedFieldId(last_assigned_field_id=table.metadata.last_column_id),
    )
    with target.catalog.translated(store=target.store):
        try:
            if updates:
                table._do_commit(updates, asserted)
        except CommitFailedException:
            return False
    return True


def _merged(theirs: Sequence[MappedField], ours: Sequence[MappedField]) -> list[MappedField]:
    """Return the names of columns in files without ids at the source, and those that only the target has."""
    taken, there = {name for each in theirs for name in each.names}, {each.field_id: each for each in ours}
    found = []
    for each in theirs:
        other = there.pop(each.field_id, each)
        names = [*each.names, *(name for name in other.names if name not in taken)]
        found.append(each.model_copy(update={"names": names, "fields": _merged(each.fields, other.fields)}))
    return [*found, *(each for each in there.values() if taken.isdisjoint(each.names))]


def _spare(number: int) -> str:
    """Return the name of a column that keeps an id."""
    return f"feed-assets-{number}"


def _differences(told: Table, found: Table, columns: Columns) -> Iterator[str]:
    """Yield the columns that have one id and differ, also from what the other table had by it before, or one name and
    two ids; if they are to be refused, also those of one table.
    """
    source, target = told.schema(), found.schema()
    one, two = index_name_by_id(source), index_name_by_id(target)
    ids = {name: number for number, name in two.items()}
    for number, name in one.items():
        if number in two:
            there, here = _kind(source, number), _kind(target, number)
            if there != here:
                yield f"{number}: {there} there, {here} here"
            elif target.find_field(number).required and not source.find_field(number).required:
                yield f"{name} may be null there"
        elif name in ids:
            yield f"{name} (id {number} there, {ids[name]} here)"
        elif (had := _had(found, number)) and _kind(source, number) not in had:
            yield f"{name} (only there, its id {number} was {min(had)} here)"
        elif columns is Columns.REFUSE:
            yield f"{name} (only there)"
    for number, name in two.items():
        had = _had(told, number)
        if number not in one and (
            (had and _kind(target, number) not in had) or (columns is Columns.REFUSE and name not in one.values())
        ):
            yield f"{name} (only here{f', its id {number} was {min(had)} there' if had else ''})"


def _had(table: Table, number: int) -> set[str]:
    """Return what an id has been in a table, with names and types."""
    known = [each for each in table.metadata.schemas if each.find_column_name(number) is not None]
    return {_kind(each, number) for each in known} - {f"{_spare(number)} string"}


def _kind(schema: Schema, number: int) -> str:
    kind = schema.find_field(number).field_type
    return f"{schema.find_column_name(number)} {kind if kind.is_primitive else 'nested'}"


def _refused(target: LakePartitions, reason: str, next_step: str) -> TableRefusedError:
    return TableRefusedError(store=target.store, path="", reason=reason, next_step=next_step)
