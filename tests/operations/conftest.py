from itertools import count
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url, text

_schemas = count(1)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.server)])
def state_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty state database, once of each kind; PostgreSQL's is a schema of its own."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/state.db"
    server = make_url(request.getfixturevalue("postgres_url")).set(drivername="postgresql+psycopg2")
    schema = f"operations_{next(_schemas)}"
    engine = create_engine(server)
    with engine.begin() as connection:
        connection.execute(text(f"CREATE SCHEMA {schema}"))
    engine.dispose()
    return server.update_query_dict({"options": f"-csearch_path={schema}"}).render_as_string(hide_password=False)
