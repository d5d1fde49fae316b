from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url, text

from feed_assets.state.database import Database, open_database

_schemas = count(1)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.server)])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database, once of each kind; PostgreSQL's is a schema of its own."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/state.db"
    server = make_url(request.getfixturevalue("postgres_url")).set(drivername="postgresql+psycopg2")
    schema = f"test_{next(_schemas)}"
    engine = create_engine(server)
    with engine.begin() as connection:
        connection.execute(text(f"CREATE SCHEMA {schema}"))
    engine.dispose()
    return server.update_query_dict({"options": f"-csearch_path={schema}"}).render_as_string(hide_password=False)


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """A database with our tables, once of each kind."""
    database = open_database(database_url)
    database.migrate()
    yield database
    database.close()
