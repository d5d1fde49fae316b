"""Compare two contents of an instance in Spark: their columns, and their rows as multisets, by keys if there are any.

Only counts and the rows of a sample leave Spark. Values are compared exactly, and NULL is equal to NULL. A map is
compared by its entries, in any order.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from feed_assets.engines.data.quality import column_named
from feed_assets.engines.data.tables import columns_of
from feed_assets.json_form import shown

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

SampleRow: TypeAlias = Mapping[str, str | None]
"""The values of a row as texts, by column: those of structures as JSON, bytes as hexadecimal digits."""


class DifferenceKind(StrEnum):
    """How a key, or a row without keys, differs: only one side has it, or both have it with other rows."""

    ONLY_NEW = "only new"
    ONLY_OLD = "only old"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnDifference:
    """A column of either side, with its types; None where it is not."""

    column: str
    type: str | None
    old_type: str | None

    @shown
    def change(self) -> str:
        """How it differs; empty if it does not."""
        if self.old_type is None:
            return "added"
        return "removed" if self.type is None else "" if self.type == self.old_type else "other type"


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledDifference:
    """A difference: of a key one row of each side that has others there; of a row, how often one side has it more."""

    kind: DifferenceKind
    number: int
    new: SampleRow | None
    old: SampleRow | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How a new content differs from an old one, with the numbers of their rows.

    Rows are told apart by the columns `keys`, or as wholes without any: then none is `changed`. `compared` are the
    columns that both have with the same type; others do not count for rows.
    """

    rows: int
    old_rows: int
    keys: tuple[str, ...]
    compared: tuple[str, ...]
    only_new: int
    only_old: int
    changed: int
    sample: tuple[SampledDifference, ...]


def compare_columns(new: "DataFrame", old: "DataFrame | None") -> tuple[ColumnDifference, ...]:
    """Return the columns of both sides, in the order of the new one; their case and place do not matter."""
    before = {name.lower(): (name, kind) for name, kind in columns_of(old.schema)} if old is not None else {}
    found = [
        ColumnDifference(column=name, type=kind, old_type=before.pop(name.lower(), (name, None))[1])
        for name, kind in columns_of(new.schema)
    ]
    return (*found, *(ColumnDifference(column=name, type=None, old_type=kind) for name, kind in before.values()))


def compare_rows(
    new: "DataFrame", old: "DataFrame", columns: Sequence[ColumnDifference], unique: Sequence[str], sample: int
) -> Difference:
    """Compare the rows of two contents with these columns; `sample` is the most of each kind of difference to show.

    Keys are the columns `unique`, if both sides have them with the same type.
    """
    compared = tuple(each.column for each in columns if not each.change)
    known = {name.lower(): name for name in compared}
    keys = tuple(known[name.lower()] for name in unique if name.lower() in known)
    keys = keys if len(keys) == len(unique) else ()
    numbers, sampled = _find_differences(new, old, compared, keys, sample) if compared else ({}, ())
    return Difference(
        rows=new.count(),
        old_rows=old.count(),
        keys=keys,
        compared=compared,
        only_new=numbers.get(DifferenceKind.ONLY_NEW, 0),
        only_old=numbers.get(DifferenceKind.ONLY_OLD, 0),
        changed=numbers.get(DifferenceKind.CHANGED, 0),
        sample=sampled,
    )


def _find_differences(
    new: "DataFrame", old: "DataFrame", compared: Sequence[str], keys: Sequence[str], sample: int
) -> tuple[Mapping[str, int], tuple[SampledDifference, ...]]:
    """Return the number of differences of each kind, and a sample of them: of keys, or of rows without any."""
    from pyspark.sql import functions as sf

    places = [_place(number) for number in range(len(compared))]
    sides = new.select(*_cells(new, compared), sf.lit(1).alias("n"), sf.lit(0).alias("o")).unionByName(
        old.select(*_cells(old, compared), sf.lit(0).alias("n"), sf.lit(1).alias("o"))
    )
    n, o, row = sf.col("n"), sf.col("o"), sf.struct(*places)
    counted = sides.groupBy(*places).agg(sf.sum(n).alias("n"), sf.sum(o).alias("o"))
    subject = [_place(compared.index(key)) for key in keys] or places
    by_subject = counted.groupBy(*subject).agg(
        sf.sum(n).alias("n"),
        sf.sum(o).alias("o"),
        sf.min(sf.when(n > o, row)).alias("new"),
        sf.min(sf.when(o > n, row)).alias("old"),
    )
    differs = sf.col("new").isNotNull() | sf.col("old").isNotNull()
    kind = sf.when(n == 0, DifferenceKind.ONLY_OLD.value).when(o == 0, DifferenceKind.ONLY_NEW.value)
    kind = kind.when(differs, DifferenceKind.CHANGED.value)
    number = sf.lit(1)
    if not keys:
        kind = sf.when(n > o, DifferenceKind.ONLY_NEW.value).when(o > n, DifferenceKind.ONLY_OLD.value)
        number = sf.abs(n - o)
    found = by_subject.select(
        kind.alias("kind"), number.alias("number"), sf.struct(*subject).alias("place"), "new", "old"
    )
    found = found.where(sf.col("kind").isNotNull()).persist()
    try:
        numbers = {kind: int(number) for kind, number in found.groupBy("kind").agg(sf.sum("number")).collect()}
        return numbers, tuple(_iter_sample(found, compared, numbers, sample))
    finally:
        found.unpersist()


def _place(number: int) -> str:
    return f"c{number}"


def _cells(frame: "DataFrame", compared: Sequence[str]) -> "Iterator[Column]":
    fields = {field.name.lower(): field for field in frame.schema.fields}
    for number, name in enumerate(compared):
        field = fields[name.lower()]
        yield _orderable(column_named(frame, field.name), field.dataType).alias(_place(number))


def _orderable(value: "Column", kind: "DataType") -> "Column":
    """Return a value in a form that Spark can group by and sort: equal ones have equal forms, and others do not."""
    from pyspark.sql import functions as sf
    from pyspark.sql.types import ArrayType, CalendarIntervalType, MapType, StructType, VariantType

    match kind:
        case ArrayType():
            return sf.transform(value, lambda each: _orderable(each, kind.elementType))
        case MapType():
            entries = sf.transform(
                sf.map_entries(value),
                lambda each: sf.struct(
                    _orderable(each["key"], kind.keyType).alias("key"),
                    _orderable(each["value"], kind.valueType).alias("value"),
                ),
            )
            return sf.array_sort(entries)
        case StructType():
            parts = [_orderable(value[field.name], field.dataType).alias(field.name) for field in kind.fields]
            return sf.when(value.isNotNull(), sf.struct(*parts)) if parts else value.isNull()
        case VariantType():
            return sf.to_json(value)
        case CalendarIntervalType():
            return value.cast("string")
        case _:
            return value


def _iter_sample(
    found: "DataFrame", compared: Sequence[str], numbers: Mapping[str, int], sample: int
) -> Iterator[SampledDifference]:
    from pyspark.sql import functions as sf

    kinds = {field.name: field.dataType for field in found.schema["new"].dataType.fields}  # type: ignore[attr-defined]
    for kind in DifferenceKind if sample else ():
        if kind not in numbers:
            continue
        rows = found.where(sf.col("kind") == kind.value).orderBy("place").limit(sample)
        sides = [
            sf.when(sf.col(side).isNotNull(), sf.array(*(_text(sf.col(side)[name], kinds[name]) for name in kinds)))
            for side in ("new", "old")
        ]
        for number, new, old in rows.select("number", *sides).collect():
            yield SampledDifference(
                kind=kind,
                number=int(number),
                new=None if new is None else dict(zip(compared, new, strict=True)),
                old=None if old is None else dict(zip(compared, old, strict=True)),
            )


def _text(value: "Column", kind: "DataType") -> "Column":
    from pyspark.sql import functions as sf
    from pyspark.sql.types import ArrayType, BinaryType, StructType

    match kind:
        case ArrayType() | StructType():
            return sf.to_json(value, {"ignoreNullFields": "false"})
        case BinaryType():
            return sf.hex(value)
        case _:
            return value.cast("string")
