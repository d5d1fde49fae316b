"""Columns of a file beside those of an Iceberg table: which ones its readers would understand."""

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, ListType, LongType, NestedField, StringType, StructType

from feed_assets.storage.iceberg.file_columns import require_columns

POINT = StructType(NestedField(3, "x", LongType(), required=True), NestedField(4, "y", StringType(), required=False))
TABLE = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "point", POINT, required=False),
    NestedField(5, "counts", ListType(6, LongType(), element_required=False), required=False),
    NestedField(7, "price", DecimalType(10, 2), required=False),
)
X = pa.field("x", pa.int64(), nullable=False)


@pytest.mark.parametrize(
    "column",
    [
        ("id", pa.int64()),
        ("id", pa.int32()),
        ("counts", pa.list_(pa.int32())),
        ("point", pa.struct([X])),
        ("price", pa.decimal128(9, 2)),
    ],
    ids=str,
)
def test_columns_that_the_table_may_read_are_taken(column: tuple[str, pa.DataType]) -> None:
    require_columns(TABLE, pa.schema([column]))


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (("id", pa.string()), "it has 1: id: optional string (the table has 1: id: optional long)"),
        (("counts", pa.list_(pa.string())), "it has 6: element: optional string"),
        (("point", pa.struct([("y", pa.string())])), "it has no point.x (the table has 3: x: required long)"),
        (("point", pa.struct([("x", pa.int64())])), "it has 3: x: optional long (the table has 3: x: required long)"),
        (("price", pa.decimal128(9, 4)), "it has 7: price: optional decimal(9, 4)"),
        (("price", pa.decimal128(12, 2)), "it has 7: price: optional decimal(12, 2)"),
        (("other", pa.int64()), "the table has no other; add it there, or leave it out"),
    ],
    ids=str,
)
def test_columns_that_readers_would_not_understand_are_refused(column: tuple[str, pa.DataType], reason: str) -> None:
    with pytest.raises(ValueError) as caught:
        require_columns(TABLE, pa.schema([column]))
    assert reason in str(caught.value)
