"""Derive the Avro schema of Spark columns as Hive's AvroSerDe does; Spark needs it to write Avro files."""

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_PRIMITIVES = {
    "string": "string",
    "boolean": "boolean",
    "byte": "int",
    "short": "int",
    "integer": "int",
    "long": "long",
    "float": "float",
    "double": "double",
    "binary": "bytes",
}


class AvroTypeError(ValueError):
    """A type that Hive's AvroSerDe does not support."""


def render_avro_schema(columns: "StructType") -> str:
    """Return the schema of a record as JSON; every value may be null.

    Raises:
        AvroTypeError: a column has a type that AvroSerDe does not support.
    """
    return json.dumps(_record(columns, "row"))


def _record(columns: "StructType", name: str) -> dict[str, object]:
    fields = [
        {"name": field.name, "type": ["null", _type(field.dataType, f"{name}_{field.name}")], "default": None}
        for field in columns.fields
    ]
    return {"type": "record", "name": name, "fields": fields}


def _type(kind: "DataType", name: str) -> object:
    from pyspark.sql.types import ArrayType, DateType, DecimalType, MapType, StringType, StructType, TimestampType

    match kind:
        case StructType():
            return _record(kind, name)
        case ArrayType():
            return {"type": "array", "items": ["null", _type(kind.elementType, name)]}
        case MapType() if isinstance(kind.keyType, StringType):
            return {"type": "map", "values": ["null", _type(kind.valueType, name)]}
        case DecimalType():
            return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
        case DateType():
            return {"type": "int", "logicalType": "date"}
        case TimestampType():
            return {"type": "long", "logicalType": "timestamp-millis"}
        case _ if kind.typeName() in _PRIMITIVES:
            return _PRIMITIVES[kind.typeName()]
        case _:
            raise AvroTypeError(f"a table in Avro files has no column of type {kind.simpleString()}")
