from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from psycopg2.errors import UniqueViolation

from feed_assets.engines.databases.connections import DatabaseAddress, DatabaseConnection, UniqueKey, open_connection
from feed_assets.engines.errors import ServiceAwayError, ServiceError
from feed_assets.engines.java.machine import JavaMachine
from tests.engines.java_tools import DERBY_JARS, DRIVER, make_database
from tests.servers import free_port
from tests.shops import Shop

pytestmark = [pytest.mark.spark, pytest.mark.server]


@pytest.fixture(scope="module")
def database(machine: JavaMachine, tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_database(machine, tmp_path_factory.mktemp("derby") / "shop", {"me": "pass-word"})


def _address(url: str, **changes: object) -> DatabaseAddress:
    known = {"driver_class": DRIVER, "jars": DERBY_JARS, "user": "me", "password": "pass-word"}
    return DatabaseAddress(url=url, **{**known, **changes})


def test_a_connection_opens_with_the_driver_of_the_jars_and_the_credential(machine: JavaMachine, database: str) -> None:
    with open_connection(machine, _address(database)) as connection:
        assert connection.query("VALUES (1, 'a')") == [(1, "a")]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"password": "wrong-one"}, "refuses the connection: .*authentication"),
        ({"user": "you"}, "refuses the connection: .*authentication"),
        ({"driver_class": "org.nowhere.Driver"}, "cannot be loaded .*: ClassNotFoundException: org.nowhere.Driver"),
        ({"driver_class": "java.lang.Object"}, "is not a JDBC driver"),
        ({"jars": DERBY_JARS[:1]}, "cannot be loaded from derby-"),
        ({"url": "jdbc:oracle:thin:@host"}, "does not support such addresses"),
    ],
)
def test_what_keeps_a_connection_from_opening_is_said(
    machine: JavaMachine, database: str, changes: dict[str, object], reason: str
) -> None:
    with pytest.raises(ServiceError, match=reason):
        open_connection(machine, _address(**{"url": database, **changes}))


def test_no_password_is_in_a_message(machine: JavaMachine, tmp_path: Path) -> None:
    with pytest.raises(ServiceError) as caught:
        open_connection(machine, _address(f"jdbc:derby:{tmp_path}/pass-word;password=other-word"))
    assert "pass-word" not in str(caught.value)
    assert "other-word" not in str(caught.value)


@pytest.fixture
def connection(machine: JavaMachine, shop: Shop) -> Iterator[DatabaseConnection]:
    with open_connection(machine, shop.address) as connection:
        yield connection


def test_values_are_bound_and_come_back_as_they_are(connection: DatabaseConnection, shop: Shop) -> None:
    naive, aware, blob = "timestamp(6)", "timestamptz", "bytea"
    if shop.type == "mysql":
        naive, aware, blob = "datetime(6)", "timestamp(6) NULL", "blob"
    connection.execute(
        f"CREATE TABLE kinds (n int, long_n bigint, text varchar(40), amount numeric(12,2), ratio double precision, "
        f"day date, at {naive}, moment {aware}, raw {blob})"
    )
    moment = datetime(2013, 11, 3, 5, 0, 0, 123456, UTC)
    clock = moment.replace(tzinfo=None)
    values = (
        1,
        2**40,
        'it\'s ? "x" ünï',
        Decimal("10.50"),
        0.5,
        date(2013, 11, 3),
        clock,
        moment,
        b"\0a",
    )
    marks = ", ".join("?" * len(values))
    assert connection.execute(f"INSERT INTO kinds VALUES ({marks})", *values) == 1
    assert connection.execute(f"INSERT INTO kinds VALUES ({marks})", *(None for _ in values)) == 1
    assert connection.query("SELECT * FROM kinds WHERE n = ?", 1) == [values]
    assert connection.query("SELECT * FROM kinds WHERE at = ? AND moment = ?", clock, values[7]) == [values]
    assert connection.query("SELECT * FROM kinds WHERE n IS NULL") == [(None,) * len(values)]


def test_what_is_not_committed_is_not_kept(machine: JavaMachine, connection: DatabaseConnection, shop: Shop) -> None:
    shop.run("CREATE TABLE orders (id int)")
    connection.execute("INSERT INTO orders VALUES (?)", 1)
    connection.commit()
    connection.execute("INSERT INTO orders VALUES (?)", 2)
    connection.rollback()
    with open_connection(machine, shop.address) as other:
        other.execute("INSERT INTO orders VALUES (?)", 3)
    assert [str(value) for (value,) in shop.run("SELECT id FROM orders")] == ["1"]


def test_tables_columns_and_keys_are_told_with_quoted_names(connection: DatabaseConnection, shop: Shop) -> None:
    quote = connection.quote
    shop.run(
        f"CREATE TABLE {quote('my orders')} (id int PRIMARY KEY, {quote('a b')} varchar(20) NOT NULL, "
        "day date NOT NULL, amount numeric(12,2), UNIQUE (day, id))",
        "CREATE VIEW few AS SELECT 1 AS n",
    )
    assert [(each.schema, each.name) for each in connection.tables()] == [
        (shop.schema, "few"),
        (shop.schema, "my orders"),
    ]
    assert [each.name for each in connection.tables(shop.schema, "my%")] == ["my orders"]
    columns = connection.columns(f"{shop.schema}.my orders")
    assert [(each.name, each.ddl, each.nullable) for each in columns] == [
        ("id", "INT", False),
        ("a b", "STRING", False),
        ("day", "DATE", False),
        ("amount", "DECIMAL(12,2)", True),
    ]
    assert [each.type.lower() for each in columns][1:] == [
        "varchar(20)",
        "date",
        f"{columns[3].type[:7].lower()}(12,2)",
    ]
    primary, other = connection.unique_keys("my orders")
    assert (primary.columns, primary.is_primary) == (("id",), True)
    assert (other.columns, other.is_primary) == (("day", "id"), False)
    assert [each.ddl for each in connection.describe("SELECT count(*) AS n FROM few")] == ["BIGINT"]


def test_a_database_tells_where_its_user_may_make_tables(connection: DatabaseConnection, shop: Shop) -> None:
    may_create = connection.dialect.may_create
    assert may_create is not None
    found = [connection.query(may_create, schema)[0][0] for schema in (shop.schema, "information_schema")]
    assert [bool(each) for each in found] == [True, False]


def test_an_index_over_some_rows_or_an_expression_or_that_failed_is_no_key(
    machine: JavaMachine, shop_postgres: Shop
) -> None:
    shop_postgres.run(
        "CREATE TABLE orders (id int UNIQUE, name text, day int)",
        "CREATE UNIQUE INDEX part ON orders (name) WHERE id > 0",
        "CREATE UNIQUE INDEX lowered ON orders (lower(name))",
        "CREATE INDEX double ON orders (name)",
        "CREATE UNIQUE INDEX covering ON orders (id) INCLUDE (name)",
        "INSERT INTO orders VALUES (1, 'a', 1), (2, 'b', 1)",
    )
    with suppress(UniqueViolation):
        shop_postgres.run("CREATE UNIQUE INDEX CONCURRENTLY failed ON orders (day)")
    with open_connection(machine, shop_postgres.address) as connection:
        keys = [UniqueKey(name, ("id",), False) for name in ("covering", "orders_id_key")]
        assert connection.unique_keys("orders") == tuple(keys)


def test_a_column_that_spark_cannot_read_is_the_only_one_without_a_type(machine: JavaMachine, database: str) -> None:
    with open_connection(machine, _address(database)) as connection:
        connection.execute("CREATE TYPE parcel EXTERNAL NAME 'java.util.UUID' LANGUAGE JAVA")
        connection.execute("CREATE TABLE parcels (id int, content parcel)")
        assert [(each.name, each.ddl) for each in connection.columns("PARCELS")] == [("ID", "INT"), ("CONTENT", None)]


def test_a_time_that_python_does_not_have_is_refused(machine: JavaMachine, shop_postgres: Shop) -> None:
    with open_connection(machine, shop_postgres.address) as connection:
        for text in ("infinity", "20000-01-01"):
            for kind in ("date", "timestamp"):
                with pytest.raises(ServiceError, match="is not in the years 1 to 9999"):
                    connection.query(f"SELECT CAST(? AS {kind})", text)


def test_a_database_refuses_in_its_own_words(connection: DatabaseConnection, shop: Shop) -> None:
    with pytest.raises(ServiceError, match=f"{shop.url.partition('?')[0]}.*: it refuses: .*absent"):
        connection.query("SELECT * FROM absent")
    connection.rollback()
    shop.run("CREATE TABLE orders (id int PRIMARY KEY)")
    connection.execute("INSERT INTO orders VALUES (1)")
    with pytest.raises(ServiceError, match=r"(?i)duplicate"):
        connection.execute("INSERT INTO orders VALUES (1)")


def test_a_database_that_is_away_is_an_outage(machine: JavaMachine, shop: Shop) -> None:
    port = free_port()
    address = DatabaseAddress(
        type=shop.type,
        url=shop.url.partition("127.0.0.1")[0] + f"127.0.0.1:{port}/shop",
        driver_class=shop.driver,
        jars=(shop.jar,),
        user="shop",
        password="pass-word",
    )
    with pytest.raises(ServiceAwayError, match=f"{port}.*it cannot be reached: "):
        open_connection(machine, address)


def test_a_connection_that_is_lost_before_the_commit_is_an_outage_and_keeps_nothing(
    connection: DatabaseConnection, shop: Shop
) -> None:
    is_postgres = shop.type == "postgres"
    shop.run("CREATE TABLE orders (id int)")
    ((number,),) = connection.query(f"SELECT {'pg_backend_pid' if is_postgres else 'CONNECTION_ID'}()")
    connection.execute("INSERT INTO orders VALUES (1)")
    shop.run(f"SELECT pg_terminate_backend({number})" if is_postgres else f"KILL {number}")
    with pytest.raises(ServiceAwayError, match="it cannot be reached"):
        connection.commit()
    assert [str(count) for (count,) in shop.run("SELECT count(*) FROM orders")] == ["0"]


def test_a_query_of_too_many_rows_is_refused(
    machine: JavaMachine, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("feed_assets.engines.databases.connections.MOST_ROWS", 2)
    with open_connection(machine, _address(database)) as connection:
        assert len(connection.query("VALUES 1, 2")) == 2
        with pytest.raises(ServiceError, match="returns more than 2 rows"):
            connection.query("VALUES 1, 2, 3")
