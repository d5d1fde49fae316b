"""Rows of real databases become the files of an instance."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from pyspark.sql import DataFrame, SparkSession

from feed_assets.engines.databases.dialects import Value
from feed_assets.engines.databases.parts import parts_between
from feed_assets.engines.databases.reading import ImportEngine
from feed_assets.engines.errors import OutputMismatchError, ServiceAwayError, ServiceError
from feed_assets.engines.java.machine import JavaMachine
from feed_assets.engines.port import OutputTarget, Work, WorkReport
from feed_assets.entities.content.event_messages import NO_ROWS
from feed_assets.entities.datasource import (
    Credential,
    Datasource,
    Driver,
    Extract,
    ExtractType,
    Fields,
    ImportSource,
    Interface,
    Interfaces,
)
from feed_assets.plan.transfers import ImportRecord
from tests.shops import PASSWORD, Shop, run_postgres
from tests.spark_session import spark

__all__ = ["spark"]
NIGHT, NEXT = datetime(2024, 3, 30, 23, tzinfo=UTC), datetime(2024, 3, 31, 22, tzinfo=UTC)
WINDOW = Extract(type=ExtractType.INCREMENTAL, delta_column="at")
Read = Callable[..., WorkReport]


def extremes() -> Iterator[tuple[Value, Value]]:
    yield from ((0, 9), (7, 7), (-3, 10**12), (0.5, 2.75), (Decimal("1.5"), Decimal("9.25")))
    yield date(2024, 1, 1), date(2024, 1, 9)
    yield datetime.fromisoformat("2024-01-01"), datetime.fromisoformat("2024-01-01 00:00:00.000007")


@pytest.mark.parametrize(("low", "high"), list(extremes()))
@pytest.mark.parametrize("parts", [2, 3, 8])
def test_each_row_is_in_one_part_also_one_without_a_value(low: Any, high: Any, parts: int) -> None:
    found = parts_between("c", low, high, parts, "postgres")
    rows = [None, low, high, *([low + (high - low) / 3] if not isinstance(low, date) else ())]
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE t (n INTEGER, c)")
        texts = [str(each) if isinstance(each, date) else None if each is None else float(each) for each in rows]
        connection.executemany("INSERT INTO t VALUES (?, ?)", list(enumerate(texts)))
        plain = [part.replace("DATE '", "'").replace("TIMESTAMP '", "'") for part in found]
        taken = [n for part in plain for (n,) in connection.execute(f"SELECT n FROM t WHERE {part}")]
    assert sorted(taken) == list(range(len(rows)))
    assert len(found) == 1 if low == high else 1 < len(found) <= parts


@pytest.fixture
def read(spark: SparkSession, machine: JavaMachine, tmp_path: Path) -> Read:
    def run(
        shop: Shop,
        *,
        schema: str | None = None,
        zone: str = "Europe/Berlin",
        meanwhile: Callable[[], object] = lambda: None,
        **record: Any,
    ) -> WorkReport:
        datasource = Datasource(
            name="shop",
            type=shop.type,
            timezone=zone,
            interfaces=Interfaces(readonly=Interface(endpoint=shop.url)),
            driver=Driver(driver_class=shop.driver, jars=(str(shop.jar),)),
            credential=Credential(user="shop", password=PASSWORD),
        )
        target = OutputTarget(
            name="rows", feed="orders", url=(tmp_path / "rows").as_uri(), format="parquet", columns=schema
        )
        work = Work(
            process="orders.import",
            cluster="primary",
            nominal_time=NIGHT,
            timezone=ZoneInfo(zone),
            run_id="run",
            attempt=1,
            inputs=(),
            outputs=(target,),
            engine="import",
            path="",
            root=tmp_path,
        )
        told = {name: record.pop(name) for name in ("parts", "split_by", "null_text") if name in record}
        what = {"table": "orders"} if "query" not in record else {}
        meant = ImportRecord(source=ImportSource(name="shop", **{**what, **record}), **told)
        period, java = (NIGHT, NEXT), lambda: nullcontext(machine)
        engine = ImportEngine(record=meant, datasource=datasource, root=tmp_path, period=period, java=java)
        return engine.run(work, lambda: (meanwhile(), spark)[1])

    return run


@pytest.fixture
def rows(spark: SparkSession, tmp_path: Path) -> Callable[[], DataFrame]:
    return lambda: spark.read.parquet((tmp_path / "rows").as_uri())


@pytest.mark.spark
@pytest.mark.server
def test_row_144_four_parts_see_the_rows_of_one_moment_while_half_of_them_are_deleted(
    shop_postgres: Shop, read: Read, rows: Callable[[], DataFrame]
) -> None:
    shop_postgres.run(
        "CREATE TABLE orders AS SELECT i AS id, md5(i::text) AS what FROM generate_series(1, 200000) i",
        "INSERT INTO orders VALUES (NULL, 'null')",
    )
    delete = lambda: shop_postgres.run("DELETE FROM orders WHERE id % 2 = 0")  # noqa: E731
    report = read(shop_postgres, split_by="id", parts=4, meanwhile=delete)
    assert (report.outputs[0].rows, report.details["rows_read"], report.details["parts"]) == (200_001, 200_001, 4)
    assert (rows().count(), rows().select("id").distinct().count()) == (200_001, 200_001)
    assert shop_postgres.run("SELECT count(*) FROM orders") == [(100_001,)]


_TYPES = {
    "postgres": "big numeric, exact numeric(8,2), clock timestamp, moment timestamptz, day date, hour time,"
    " flag boolean, document jsonb, key uuid, price money, list integer[], bytes bytea, yes text, yr integer",
    "mysql": "big decimal(30,24), exact decimal(8,2), clock datetime, moment timestamp null, day date, hour time,"
    " flag tinyint(1), document json, key_ char(36), price bigint unsigned, list text, bytes blob, yes text, yr year",
}
_VALUES = {
    "postgres": "123456789012345678901234.000000000000000000000005, 1.50, '2024-03-31 01:30', '2024-03-31 01:30+02',"
    " '2024-03-31', '25:00'::interval::time, true, '{\"a\": 1}', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 12.5,"
    " '{1,2}', '\\x01', 'x', 2024",
    "mysql": "5.000000000000000000000005, 1.50, '2024-03-31 01:30', '2024-03-30 23:30', '2024-03-31', '25:00', 7,"
    " '{\"a\": 1}', 'k', 18446744073709551615, 'x', x'01', 'x', 2024",
}


@pytest.mark.spark
@pytest.mark.server
def test_values_have_the_types_of_the_schema_and_times_their_moment(
    shop: Shop, read: Read, rows: Callable[[], DataFrame]
) -> None:
    shop.run(
        f"CREATE TABLE orders (id integer primary key, {_TYPES[shop.type]})",
        *(["SET time_zone = '+00:00'"] if shop.type == "mysql" else []),
        f"INSERT INTO orders VALUES (1, {_VALUES[shop.type]})",
        "INSERT INTO orders (id) VALUES (2)",
        *(["SET sql_mode = ''", "UPDATE orders SET clock = 0, day = 0 WHERE id = 2"] if shop.type == "mysql" else []),
    )
    chosen = ("id", "big", "exact", "clock", "moment", "day", "hour", "flag", "document", "price", "yr")
    flag = "boolean" if shop.type == "postgres" else "int"
    read(
        shop,
        fields=Fields(includes=tuple(chosen)),
        schema="id long, big string, exact double, clock timestamp, moment timestamp, day date, hour string, "
        f"flag {flag}, document string, price string, yr int",
    )
    first, second = (row.asDict() for row in rows().orderBy("id").collect())
    assert second == {name: 2 if name == "id" else None for name in chosen}
    assert str(first.pop("big")).endswith("000000000005")
    assert first.pop("price") == ("$12.50" if shop.type == "postgres" else "18446744073709551615")
    assert str(first.pop("document")).replace(" ", "") == '{"a":1}'
    assert str(first.pop("hour")) == ("01:00:00" if shop.type == "postgres" else "25:00:00")
    assert first == {
        "id": 1,
        "exact": 1.5,
        "clock": datetime.fromisoformat("2024-03-31 00:30"),  # 01:30 in Berlin, an hour before its clocks change
        "moment": datetime.fromisoformat("2024-03-30 23:30"),
        "day": date(2024, 3, 31),
        "flag": True if shop.type == "postgres" else 7,
        "yr": 2024,
    }
    read(shop, fields=Fields(excludes=("big",)))  # which has more digits than a decimal of Spark
    assert dict(rows().dtypes)["clock"] == "timestamp"


@pytest.mark.spark
@pytest.mark.server
def test_of_the_hour_that_comes_twice_the_first_counts_also_in_arrays(
    shop: Shop, read: Read, rows: Callable[[], DataFrame]
) -> None:
    is_postgres = shop.type == "postgres"
    shop.run(
        f"CREATE TABLE orders (at {'timestamp, times timestamp[]' if is_postgres else 'datetime'})",
        *(
            f"INSERT INTO orders (at) VALUES ('2024-{time}')"
            for time in ("10-27 02:30", "10-27 03:00", "10-28 02:30", "03-31 03:00")
        ),
    )
    read(shop, fields=Fields(includes=("at",)))
    first, *others = ("10-27 00:30", "10-27 02:00", "10-28 01:30", "03-31 01:00")
    moments = [datetime.fromisoformat(f"2024-{time}") for time in (first, *others)]
    assert {row.at for row in rows().collect()} == set(moments)
    if is_postgres:
        shop.run("UPDATE orders SET times = ARRAY[at, NULL]")
        read(shop)
        assert {row.at: row.times for row in rows().collect()} == {each: [each, None] for each in moments}
        read(shop, schema="at timestamp_ntz, times array<timestamp_ntz>")
        assert {tuple(row.times) for row in rows().collect()} >= {(datetime.fromisoformat("2024-10-27 02:30"), None)}


@pytest.mark.spark
@pytest.mark.server
def test_a_column_that_must_not_be_null_is_written_or_refused_with_a_count(
    shop_postgres: Shop, read: Read, rows: Callable[[], DataFrame]
) -> None:
    shop_postgres.run("CREATE TABLE orders (id int, name text)", "INSERT INTO orders VALUES (1, 'a'), (2, NULL)")
    schema = "ID long NOT NULL COMMENT 'it', name string"
    read(shop_postgres, schema=schema)
    assert sorted(row.ID for row in rows().collect()) == [1, 2]
    with pytest.raises(OutputMismatchError, match="1 rows have no name, but the schema says NOT NULL"):
        read(shop_postgres, schema=f"{schema} NOT NULL")


@pytest.mark.spark
@pytest.mark.server
def test_a_window_has_the_rows_of_its_day_on_the_clock_of_the_database(
    shop: Shop, read: Read, rows: Callable[[], DataFrame]
) -> None:
    times = ("03-30 23:59:59", "03-31 00:00:00", "03-31 23:59:59", "04-01 00:00:00")  # a day of 23 hours
    shop.run(
        f"CREATE TABLE orders (id integer, at {'datetime' if shop.type == 'mysql' else 'timestamp'})",
        *(f"INSERT INTO orders VALUES ({number}, '2024-{time}')" for number, time in enumerate(times)),
        "INSERT INTO orders VALUES (9, NULL)",
    )
    report = read(shop, extract=WINDOW)
    assert sorted(row.id for row in rows().collect()) == [1, 2]
    assert report.outputs[0].message.marking is None
    shop.run("DELETE FROM orders")
    report = read(shop, extract=WINDOW)
    assert (report.outputs[0].rows, report.outputs[0].message.marking, rows().count()) == (0, NO_ROWS, 0)
    with pytest.raises(
        OutputMismatchError, match=r"column id of table orders of shop is \w+, and no time lies in a period"
    ):
        read(shop, extract=Extract(type=ExtractType.INCREMENTAL, delta_column="id"))


@pytest.mark.spark
@pytest.mark.server
def test_a_query_with_a_condition_and_a_text_for_nulls(shop: Shop, read: Read, rows: Callable[[], DataFrame]) -> None:
    shop.run(
        'CREATE TABLE orders (id integer, "of" text)'.replace('"', "`" if shop.type == "mysql" else '"'),
        "INSERT INTO orders VALUES (1, NULL), (2, 'b'), (3, 'c')",
    )
    query = 'SELECT id, "of", id * 2 AS twice FROM orders'.replace('"', "`" if shop.type == "mysql" else '"')
    where = "twice < 6 OR id IS NULL -- or both"
    read(shop, query=f"{query};\n", where=where, null_text="none", split_by="TWICE", parts=3)
    assert sorted(map(tuple, rows().collect())) == [(1, "none", 2), (2, "b", 4)]
    read(shop, fields=Fields(excludes=("OF",)))
    assert rows().columns == ["id"]


@pytest.mark.spark
@pytest.mark.server
def test_what_does_not_fit_is_refused_before_anything_is_written(shop: Shop, read: Read, tmp_path: Path) -> None:
    shop.run("CREATE TABLE orders (id integer, name varchar(9))", "INSERT INTO orders VALUES (1, 'a'), (2, 'b')")

    def refusal(error: type[Exception], **record: Any) -> str:
        with pytest.raises(error) as caught:
            read(shop, **record)
        return str(caught.value)

    assert "missing: total; not declared: name" in refusal(OutputMismatchError, schema="id int, total int")
    assert "column `name`" in refusal(OutputMismatchError, schema="id int, name int")
    assert "no column total, which the import names. Name some of id, name" in refusal(
        OutputMismatchError, fields=Fields(includes=("total",))
    )
    assert "its column name splits nothing: it has neither numbers nor times" in refusal(
        ServiceError, split_by="name", parts=2
    )
    assert "it refuses: " in refusal(ServiceError, table="nowhere")
    assert "it refuses: " in refusal(ServiceError, where="(SELECT id FROM orders) = 1")
    assert PASSWORD not in refusal(ServiceError, where="nothing()")
    assert not list((tmp_path / "rows").rglob("*.parquet"))


@pytest.mark.spark
@pytest.mark.server
def test_the_database_says_why_a_value_is_none_and_columns_equal_but_for_case_are_refused(
    shop_postgres: Shop, read: Read, rows: Callable[[], DataFrame]
) -> None:
    shop_postgres.run(
        "CREATE TABLE orders (id int, wide numeric(40,2), bits bit(5))", "INSERT INTO orders VALUES (2, 1.25, '10101')"
    )
    read(shop_postgres)
    assert [tuple(row) for row in rows().collect()] == [(2, Decimal("1.25"), "10101")]
    with pytest.raises(ServiceError, match="division by zero"):
        read(shop_postgres, query="SELECT 1 / (id - 2) AS half FROM orders")
    with pytest.raises(OutputMismatchError, match="equal but for case: Id, id"):
        read(shop_postgres, query='SELECT id AS "Id", id FROM orders')


@pytest.mark.spark
@pytest.mark.server
def test_a_database_without_a_connection_left_says_so(shop_postgres: Shop, postgres_port: int, read: Read) -> None:
    shop_postgres.run("CREATE TABLE orders (id integer)")
    run_postgres(postgres_port, "postgres", "ALTER ROLE shop CONNECTION LIMIT 1")
    try:
        with pytest.raises(ServiceError, match='it refuses: FATAL: too many connections for role "shop"'):
            read(shop_postgres)
    finally:
        run_postgres(postgres_port, "postgres", "ALTER ROLE shop CONNECTION LIMIT -1")


@pytest.mark.spark
@pytest.mark.server
def test_mariadb_is_not_written_and_its_values_are_what_it_says(
    shop_mariadb: Shop, read: Read, rows: Callable[[], DataFrame]
) -> None:
    shop_mariadb.run(
        "CREATE TABLE orders (id bigint unsigned, kind enum('a', 'long'), code char(5), bits bit(8), day date, "
        "wide decimal(65,30))",
        "SET sql_mode = ''",
        "INSERT INTO orders VALUES (18446744073709551615, 'a', 'ab', 129, '2024-02-00', 1.25), (0, '', '', 1, 0, 0)",
        "CREATE SEQUENCE numbers",
    )
    read(shop_mariadb, split_by="id", parts=2)
    assert [tuple(row) for row in rows().orderBy("id").collect()] == [
        (0, "", "", "1", None, 0),
        (2**64 - 1, "a", "ab", "10000001", None, Decimal("1.25")),
    ]
    with pytest.raises(ServiceError, match="READ ONLY"):
        read(shop_mariadb, query="SELECT nextval(numbers) AS id")


@pytest.mark.spark
@pytest.mark.server
def test_a_database_that_does_not_answer_is_away(shop_postgres: Shop, read: Read) -> None:
    gone = replace(shop_postgres, url="jdbc:postgresql://127.0.0.1:1/postgres")
    with pytest.raises(ServiceAwayError, match="it cannot be reached"):
        read(gone)
