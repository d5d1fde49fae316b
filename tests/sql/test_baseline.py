import hashlib
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import create_engine, inspect, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from feed_assets.log.events import EventLog
from feed_assets.sql.database import Database, open_database
from feed_assets.sql.errors import StateSchemaError
from feed_assets.sql.tables import SCHEMA_REVISION, VERSION_TABLE, load_tables
from tests.log.samples import event
from tests.log.workers import Team, migrate

pytestmark = pytest.mark.both_databases


def test_the_revision_names_the_tables_that_are_made() -> None:
    statements = [
        str(CreateTable(table).compile(dialect=dialect))
        + "".join(sorted(str(CreateIndex(index).compile(dialect=dialect)) for index in table.indexes))
        for dialect in (sqlite.dialect(), postgresql.dialect())
        for table in sorted(load_tables().tables.values(), key=lambda table: table.name)
    ]
    digest = hashlib.sha256("".join(statements).encode()).hexdigest()[:8]
    assert f"0023-{digest}" == SCHEMA_REVISION, "the tables have changed: write this revision into sql/tables.py"


def test_a_database_that_is_opened_first_has_every_table(database_url: str) -> None:
    database = open_database(database_url)
    database.migrate()
    with database.read() as connection:
        assert set(inspect(connection).get_table_names()) == set(load_tables().tables)
    database.close()


def test_migrating_again_changes_nothing(database_url: str) -> None:
    database = open_database(database_url)
    database.migrate()
    with database.begin() as connection:
        EventLog(connection).append([event()])
    database.migrate()
    other = open_database(database_url)
    other.migrate()
    with other.read() as connection:
        assert EventLog(connection).last_seq() == 1
    database.close()
    other.close()


def test_processes_that_start_at_once_migrate_once(database_url: str) -> None:
    assert Team(migrate, database_url, 4).results() == ["migrated"] * 4
    database = open_database(database_url)
    with database.read() as connection:
        assert connection.scalars(text(f"SELECT version_num FROM {VERSION_TABLE}")).all() == [SCHEMA_REVISION]
    database.close()


def test_a_newer_schema_is_refused(database_url: str) -> None:
    database = open_database(database_url)
    database.migrate()
    with database.begin() as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    database.close()
    late = open_database(database_url)
    for use in (late.migrate, late.begin().__enter__, late.read().__enter__):
        with pytest.raises(StateSchemaError, match=r"schema 9999 is newer than .* Upgrade feed-assets here"):
            use()
    late.close()


def test_a_schema_that_becomes_newer_is_refused_by_who_looks_again(database: Database) -> None:
    with database.begin() as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    for use in (database.migrate, database.begin().__enter__, database.read().__enter__):
        with pytest.raises(StateSchemaError):
            use()


def test_a_refused_sqlite_file_stays_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "state.db"
    with closing(sqlite3.connect(file)) as made:
        made.executescript(f"CREATE TABLE {VERSION_TABLE} (version_num); INSERT INTO {VERSION_TABLE} VALUES ('9999')")
    before = file.read_bytes()
    database = open_database(f"sqlite:///{file}")
    with pytest.raises(StateSchemaError):
        database.migrate()
    database.close()
    assert [each.name for each in tmp_path.iterdir()] == ["state.db"]
    assert file.read_bytes() == before


@pytest.mark.parametrize("revision", ["0021", "0023-00000000"])
def test_another_schema_is_refused_and_stays_as_it_is(database_url: str, revision: str) -> None:
    database = open_database(database_url)
    database.migrate()
    with database.begin() as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '{revision}'"))
    database.close()
    late = open_database(database_url)
    for use in (late.migrate, late.begin().__enter__, late.read().__enter__):
        with pytest.raises(StateSchemaError, match=rf"schema {revision} is another than .* state rebuild"):
            use()
    late.close()


def test_the_tables_of_others_are_left_alone(database_url: str) -> None:
    database = open_database(database_url)
    engine = create_engine(database_url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE runs (id INTEGER)"))
        connection.execute(text("CREATE TABLE alembic_version (version_num TEXT)"))
    engine.dispose()
    database.migrate()
    with database.read() as connection:
        assert {"runs", "alembic_version"} < set(inspect(connection).get_table_names())
        assert EventLog(connection).last_seq() == 0
    database.close()
