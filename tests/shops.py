"""Databases of a shop for tests: a PostgreSQL and a MariaDB, with the drivers of Debian; left out where those are not.

A server lives as long as the test session of a worker, and each test has a schema of its own: `shop_postgres`,
`shop_mariadb`, or `shop` for both.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from feed_assets.engines.databases.connections import DatabaseAddress
from feed_assets.engines.spark.supervised import SupervisedProcess
from tests.servers import free_port, run_tcp_postgres, wait_for_port

_JAVA = Path("/usr/share/java")
POSTGRES_JAR, MARIADB_JAR = _JAVA / "postgresql.jar", _JAVA / "mariadb-java-client.jar"
PASSWORD = "pass-word"


@dataclass(frozen=True, kw_only=True)
class Shop:
    """A new schema in a database, with a user `shop` that may do all in it. `run` executes statements as that user,
    each committed, and returns the rows of the last one.
    """

    type: str
    schema: str
    url: str
    driver: str
    jar: Path
    run: Callable[..., list[tuple[Any, ...]]]

    @property
    def address(self) -> DatabaseAddress:
        return DatabaseAddress(
            type=self.type,
            url=self.url,
            driver_class=self.driver,
            jars=(self.jar,),
            spark_jars=(self.jar.as_uri(),),
            user="shop",
            password=PASSWORD,
        )

    @property
    def document(self) -> dict[str, Any]:
        """The fields of a datasource `shop`; its password is that of the variable SHOP_PASSWORD."""
        return {
            "name": "shop",
            "type": self.type,
            "interfaces": {"readonly": {"endpoint": self.url}, "write": {"endpoint": self.url}},
            "driver": {"class": self.driver, "jars": [str(self.jar)]},
            "credential": {"user": "shop", "password": "${env:SHOP_PASSWORD}"},
        }


_numbers = count(1)


@pytest.fixture(scope="session")
def postgres_port() -> Iterator[int]:
    if not POSTGRES_JAR.exists():
        pytest.skip("the driver of PostgreSQL is not installed: apt-get install libpostgresql-jdbc-java")
    with run_tcp_postgres() as port:
        run_postgres(port, "postgres", f"CREATE ROLE shop LOGIN PASSWORD '{PASSWORD}'")
        yield port


@pytest.fixture(scope="session")
def mariadb_port() -> Iterator[int]:
    if not MARIADB_JAR.exists():
        pytest.skip("the driver of MariaDB is not installed: apt-get install libmariadb-java")
    with run_mariadb() as port:
        yield port


@pytest.fixture
def shop_postgres(postgres_port: int) -> Shop:
    schema = f"shop_{next(_numbers)}"
    run_postgres(postgres_port, "postgres", f"CREATE SCHEMA {schema} AUTHORIZATION shop")
    return Shop(
        type="postgres",
        schema=schema,
        url=f"jdbc:postgresql://127.0.0.1:{postgres_port}/postgres?currentSchema={schema}",
        driver="org.postgresql.Driver",
        jar=POSTGRES_JAR,
        run=lambda *sql: run_postgres(postgres_port, "shop", f"SET search_path = {schema}", *sql),
    )


@pytest.fixture
def shop_mariadb(mariadb_port: int) -> Shop:
    schema = f"shop_{next(_numbers)}"
    _run_mariadb(mariadb_port, f"CREATE DATABASE {schema}; GRANT ALL ON {schema}.* TO 'shop'@'127.0.0.1'", user="root")
    return Shop(
        type="mysql",
        schema=schema,
        url=f"jdbc:mariadb://127.0.0.1:{mariadb_port}/{schema}",
        driver="org.mariadb.jdbc.Driver",
        jar=MARIADB_JAR,
        run=lambda *sql: _run_mariadb(mariadb_port, "; ".join(sql), schema),
    )


@pytest.fixture(params=["postgres", "mariadb"])
def shop(request: pytest.FixtureRequest) -> Shop:
    found: Shop = request.getfixturevalue(f"shop_{request.param}")
    return found


@contextmanager
def run_mariadb() -> Iterator[int]:
    """A MariaDB server on a free port of 127.0.0.1, with a user `shop`; yields the port. It has little memory."""
    path = f"{os.environ['PATH']}:/usr/sbin"
    if (program := shutil.which("mariadbd", path=path)) is None:
        pytest.skip("MariaDB is not installed: apt-get install mariadb-server")
    folder, port = Path(tempfile.mkdtemp(prefix="feed-assets-mariadb-")), free_port()
    as_owner = ["--user=root"] if os.geteuid() == 0 else []
    place = ["--no-defaults", f"--datadir={folder}/data", *as_owner]
    small = ("--innodb-buffer-pool-size=8M", "--innodb-log-file-size=4M", "--key-buffer-size=1M")
    careless = ("--innodb-flush-log-at-trx-commit=0", "--skip-log-bin", "--skip-name-resolve")
    network = ("--bind-address=127.0.0.1", f"--port={port}", f"--socket={folder}/socket")
    making = ["mariadb-install-db", *place, "--skip-test-db", "--auth-root-authentication-method=normal"]
    try:
        subprocess.run(making, check=True, capture_output=True)
        command = [program, *place, *small, *careless, *network]
        with (
            (folder / "log").open("wb") as log,
            SupervisedProcess(command, env=os.environ, cwd=folder, output=log) as server,
        ):
            wait_for_port(port, server)
            _run_mariadb(port, f"CREATE USER 'shop'@'127.0.0.1' IDENTIFIED BY '{PASSWORD}'", user="root")
            yield port
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run_postgres(port: int, user: str, *statements: str) -> list[tuple[Any, ...]]:
    from psycopg2 import connect

    with closing(connect(host="127.0.0.1", port=port, user=user, dbname="postgres")) as connection:
        connection.autocommit = True
        with connection.cursor() as cursor:
            for sql in statements:
                cursor.execute(sql)
            return cursor.fetchall() if cursor.description else []


def _run_mariadb(port: int, sql: str, schema: str = "", *, user: str = "shop") -> list[tuple[Any, ...]]:
    """Values come as texts: there is no driver for Python here."""
    address = ("-h127.0.0.1", f"-P{port}", f"-u{user}")
    command = ("mariadb", "--no-defaults", *address, "--batch", "--skip-column-names", *([schema] if schema else []))
    password = PASSWORD if user == "shop" else ""
    environment = {**os.environ, "MYSQL_PWD": password}
    done = subprocess.run(command, input=sql, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [tuple(line.split("\t")) for line in done.stdout.splitlines()]
