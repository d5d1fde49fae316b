"""Two contents of an instance are compared in Spark; what is told is what Python counts by hand."""

import random
from collections import Counter
from collections.abc import Sequence

import pytest
from pyspark.sql import DataFrame, SparkSession

from feed_assets.engines.data.differences import Difference, DifferenceKind, compare_columns, compare_rows
from tests.drills import sampled
from tests.spark_session import spark

__all__ = ["spark"]
pytestmark = pytest.mark.spark

NAN = float("nan")


def compare(new: DataFrame, old: DataFrame, *unique: str, sample: int = 5) -> Difference:
    return compare_rows(new, old, compare_columns(new, old), unique, sample)


def numbers(found: Difference) -> tuple[int, int, int]:
    return found.only_new, found.only_old, found.changed


def test_columns_are_told_by_name_whatever_their_place_and_their_case(spark: SparkSession) -> None:
    new = spark.createDataFrame([], "b int, A string, c array<int>, d date")
    old = spark.createDataFrame([], "a string, B bigint, c array<int>, gone int")
    found = {each.column: each.change for each in compare_columns(new, old)}
    assert found == {"b": "other type", "A": "", "c": "", "d": "added", "gone": "removed"}
    assert compare(new, old).compared == ("A", "c")
    assert [each.change for each in compare_columns(new, None)] == ["added"] * 4


def test_rows_are_compared_exactly_with_nulls_nans_structures_and_repetitions(spark: SparkSession) -> None:
    schema = "`x.y` double, m map<string,map<string,int>>, s struct<a:int,l:array<map<int,string>>>, b binary"
    same = [
        (NAN, {"a": {"p": 1, "q": 2}}, (1, [{1: "x", 2: "y"}]), b"\x01"),
        (None, None, None, None),
        (0.1, {}, (None, []), b""),
    ]
    swapped = [(NAN, {"a": {"q": 2, "p": 1}}, (1, [{2: "y", 1: "x"}]), b"\x01"), *same[1:]]
    assert numbers(compare(spark.createDataFrame(same, schema), spark.createDataFrame(swapped, schema))) == (0, 0, 0)

    others = [
        *same,
        (None, None, None, None),  # once more
        (0.1 + 2**-55, {}, (None, []), b""),  # another float
        (1.0, {"a": None}, None, b"\xff"),
        (1.0, {"a": {}}, None, b"\xff"),
    ]
    found = compare(spark.createDataFrame(others, schema), spark.createDataFrame(same, schema), sample=9)
    assert (numbers(found), found.rows, found.old_rows) == ((4, 0, 0), 7, 3)
    texts = [each.new for each in found.sample]
    assert {"x.y": None, "m": None, "s": None, "b": None} in texts
    assert {"x.y": "1.0", "m": '[{"key":"a","value":[]}]', "s": None, "b": "FF"} in texts


def test_without_a_common_column_rows_are_only_counted(spark: SparkSession) -> None:
    found = compare(spark.range(3), spark.range(2).toDF("other"))
    assert (numbers(found), found.rows, found.old_rows, found.compared) == ((0, 0, 0), 3, 2, ())


def test_keys_are_told_apart_from_rows(spark: SparkSession) -> None:
    new = spark.createDataFrame([(1, "a"), (2, "b"), (3, "C"), (None, "n"), (5, "e"), (5, "e")], "id int, v string")
    old = spark.createDataFrame([("a", 1), ("c", 3), ("d", 4), ("n", None), ("e", 5)], "v string, id int")
    found = compare(new, old, "ID", sample=1)
    assert (found.keys, numbers(found)) == (("id",), (1, 1, 2))
    assert [(each.kind.value, each.new, each.old) for each in found.sample] == [
        ("only new", {"id": "2", "v": "b"}, None),
        ("only old", None, {"id": "4", "v": "d"}),
        ("changed", {"id": "3", "v": "C"}, {"id": "3", "v": "c"}),
    ]
    assert compare(new, old, "id", "absent").keys == ()


def by_hand(new: Sequence[tuple[object, ...]], old: Sequence[tuple[object, ...]]) -> Counter[DifferenceKind]:
    """The differences of keys, which are the first values of rows."""
    found: Counter[DifferenceKind] = Counter()
    for key in {row[0] for row in (*new, *old)}:
        here, there = (Counter(row for row in rows if row[0] == key) for rows in (new, old))
        if here != there:
            kind = DifferenceKind.ONLY_NEW if not there else DifferenceKind.ONLY_OLD if not here else None
            found[kind or DifferenceKind.CHANGED] += 1
    return found


@pytest.mark.parametrize("seed", sampled(range(2), 0))
def test_the_differences_of_random_rows_are_those_counted_by_hand(spark: SparkSession, seed: int) -> None:
    source = random.Random(seed)
    values = [None, 0.5, NAN, 2.0]

    def rows(number: int) -> list[tuple[object, ...]]:
        return [(source.choice([None, 1, 2, 3, 4, 5, 6]), source.choice(values)) for _ in range(number)]

    new, old = rows(source.randrange(20)), rows(source.randrange(20))
    frames = [spark.createDataFrame(each, "k int, v double") for each in (new, old)]
    shown = [[tuple(map(str, row)) for row in each] for each in (new, old)]
    keys, wanted = compare(*frames, "k", sample=99), by_hand(*shown)
    assert numbers(keys) == tuple(wanted[kind] for kind in DifferenceKind)
    assert Counter(each.kind for each in keys.sample) == wanted
    here, there = map(Counter, shown)
    assert numbers(compare(*frames)) == ((here - there).total(), (there - here).total(), 0)
