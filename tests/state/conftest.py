from collections.abc import Iterator
from itertools import count
from pathlib import Path

import psycopg2
import pytest
from sqlalchemy import make_url

from feed_assets.state.database import Database, open_database
from tests.servers import postgres_url  # noqa: F401

_schemas = count(1)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.server)])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database, once of each kind; PostgreSQL's is a schema of its own."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/state.db"
    server: str = request.getfixturevalue("postgres_url")
    schema = f"test_{next(_schemas)}"
    connection = psycopg2.connect(server)
    with connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE SCHEMA {schema}")
    connection.close()
    url = make_url(server).update_query_dict({"options": f"-csearch_path={schema}"})
    return url.render_as_string(hide_password=False)


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """A database with our tables, once of each kind."""
    database = open_database(database_url)
    database.migrate()
    yield database
    database.close()
