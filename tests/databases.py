"""Empty databases for tests, of each kind.

Tests of stores prove that the statements mean the same to both kinds (`both_databases`); others ask PostgreSQL only in
drills.
"""

import atexit
import shutil
import tempfile
from collections.abc import Iterator
from functools import cache
from itertools import count
from pathlib import Path

import pytest
from sqlalchemy import URL, Engine, create_engine, create_mock_engine, event, make_url, text

from feed_assets.sql.database import SCHEMA_REVISION, Database, open_database
from feed_assets.sql.tables import VERSION_TABLE, load_tables

_schemas = count(1)
_engines: dict[str, Engine] = {}


def create_schema(server_url: str) -> str:
    """The URL of a new, empty schema of a PostgreSQL server."""
    server = make_url(server_url).set(drivername="postgresql+psycopg2")
    schema = f"test_{next(_schemas)}"
    engine = create_engine(server)
    with engine.begin() as connection:
        connection.execute(text(f"CREATE SCHEMA {schema}"))
    engine.dispose()
    return server.update_query_dict({"options": f"-csearch_path={schema}"}).render_as_string(hide_password=False)


def open_migrated(url: str) -> Database:
    """Open an empty database with our tables. On SQLite they come as a copy, in a schema of PostgreSQL from one text:
    this takes a part of the time.
    """
    database = open_database(url)
    file = make_url(url).database
    if database.dialect == "sqlite" and file and not Path(file).exists():
        lay_tables(Path(file))
    if "-csearch_path" in url:
        with database._engine.begin() as connection:
            if connection.exec_driver_sql(f"SELECT to_regclass('{VERSION_TABLE}')").scalar() is None:
                connection.exec_driver_sql(_tables_of_postgresql())
    database.migrate()
    return database


def share_statements() -> None:
    """Let statements be compiled once for all databases of a kind: that took a quarter of the time of the fast tests.

    The first one that has connected gives its dialect, which knows its server by then.
    """
    opened = Database.__init__

    def opened_with_shared(database: Database, engine: Engine, url: URL, namespace: str | None) -> None:
        opened(database, engine, url, namespace)
        if first := _engines.get(database.dialect):
            engine.dialect, engine._compiled_cache = first.dialect, first._compiled_cache
        else:
            event.listen(engine, "connect", lambda *_: _engines.setdefault(database.dialect, engine))

    Database.__init__ = opened_with_shared  # type: ignore[method-assign]


def lay_tables(file: Path) -> None:
    """Make a SQLite database with our tables, for what opens it by itself."""
    shutil.copyfile(_migrated_file(), file)


@cache
def _migrated_file() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="feed-assets-schema-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    database = open_database(f"sqlite:///{folder}/state.db")
    database.migrate()
    database.close()
    return folder / "state.db"


@cache
def _tables_of_postgresql() -> str:
    """What `Database.migrate` says to an empty schema."""
    statements: list[str] = []
    server = create_mock_engine("postgresql+psycopg2://", lambda each, *_: statements.append(str(each.compile(server))))
    load_tables().create_all(server, checkfirst=False)
    return ";".join([*statements, f"INSERT INTO {VERSION_TABLE} VALUES ('{SCHEMA_REVISION}')"])


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=[pytest.mark.server, pytest.mark.drill])])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database, once of each kind; PostgreSQL's is a schema of its own."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/state.db"
    return create_schema(request.getfixturevalue("postgres_url"))


@pytest.fixture
def state_url(database_url: str) -> str:
    """The same where a test has databases of other kinds, too."""
    return database_url


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """A database with our tables, once of each kind."""
    database = open_migrated(database_url)
    yield database
    database.close()
