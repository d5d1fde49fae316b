"""Whether readers of an Iceberg table understand the columns of a Parquet file, which they find by name."""

from collections.abc import Iterator

import pyarrow as pa
from pyiceberg.exceptions import ResolveError
from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException, pyarrow_to_schema
from pyiceberg.schema import Schema, promote
from pyiceberg.types import DecimalType, IcebergType

from feed_assets.errors import render_some


def require_columns(schema: Schema, columns: pa.Schema) -> None:
    """Raise `ValueError` unless readers of a table find these columns by their names, with types that it can have."""
    numbers = {each.name: each.field_id for each in schema.fields}
    if others := tuple(sorted(set(columns.names) - numbers.keys())):
        raise ValueError(f"the table has no {render_some(others)}; add it there, or leave it out")
    ids = {each.name: (each.metadata or {}).get(b"PARQUET:field_id") for each in columns}
    if any(ids.values()) and any(int(ids[name] or 0) != numbers[name] for name in columns.names):
        raise ValueError("its columns have ids of another table, by which readers would mix them up; write it without")
    try:
        given = pyarrow_to_schema(columns, name_mapping=schema.name_mapping)
    except UnsupportedPyArrowTypeException as exc:
        step = "; times are microseconds there: spark.sql.parquet.outputTimestampType: TIMESTAMP_MICROS"
        raise ValueError(f"{exc}{step if '[ns' in str(exc) else ''}") from exc
    if wrong := tuple(_iter_misfits(schema, given)):
        raise ValueError(f"it has {render_some(wrong)}")


def _iter_misfits(schema: Schema, given: Schema) -> Iterator[str]:
    """Yield what readers of a table would not understand of the columns of a file, with those below columns."""
    for name in schema.column_names:
        wanted, parent = schema.find_field(name), name.rpartition(".")[0]
        if wanted.field_id in given.field_ids:
            found = given.find_field(wanted.field_id)
            if not (_is_readable(found.field_type, wanted.field_type) and found.required >= wanted.required):
                yield f"{found} (the table has {wanted})"
        elif wanted.required and (not parent or schema.find_field(parent).field_id in given.field_ids):
            yield f"no {name} (the table has {wanted})"


def _is_readable(found: IcebergType, wanted: IcebergType) -> bool:
    if not (found.is_primitive and wanted.is_primitive):
        return type(found) is type(wanted)  # what is below is compared by itself
    if isinstance(found, DecimalType) and isinstance(wanted, DecimalType) and found.scale != wanted.scale:
        return False  # `promote` compares precisions only
    try:
        return found == wanted or promote(found, wanted) == wanted
    except ResolveError:
        return False
