import multiprocessing
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url, text

from feed_assets.log.cursors import Cursors
from feed_assets.log.events import EventLog
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.sql import database as database_module
from feed_assets.sql.database import Database, lock_definitions, lock_log, open_database
from feed_assets.sql.errors import StateError, StateUnreachableError
from tests.databases import create_schema, open_migrated
from tests.log.samples import event, feed_instance, hour
from tests.log.workers import PATIENCE_SECONDS, write_until_killed
from tests.processes import PROCESSES

pytestmark = pytest.mark.both_databases


def test_what_a_failed_block_has_written_is_gone(database: Database) -> None:
    with pytest.raises(ZeroDivisionError):
        _write_and_fail(database)
    with database.read() as connection:
        assert EventLog(connection).last_seq() == 0
        assert FeedInstances(connection).get("clicks", "primary", hour(0)) is None


def test_whoever_has_a_connection_never_waits_for_another(database: Database) -> None:
    with ExitStack() as held:
        for _ in range(40):  # else threads that have one and need another wait for each other
            held.enter_context(database.read())


def test_namespaces_have_tables_and_locks_of_their_own(database_url: str) -> None:
    databases = [open_database(database_url, namespace) for namespace in (None, "a", "b")]
    for number, database in enumerate(databases):
        database.migrate()
        with database.begin() as connection:
            Cursors(connection).put("number", str(number))
    with databases[0].changing_definitions(), databases[1].changing_definitions():
        for number, database in enumerate(databases):
            with database.begin() as connection:
                lock_log(connection)
                lock_definitions(connection)
                assert Cursors(connection).get("number") == str(number)
    for database in databases:
        database.close()


def _write_and_fail(database: Database) -> None:
    with database.begin() as connection:
        EventLog(connection).append([event()])
        FeedInstances(connection).put([feed_instance()])
        raise ZeroDivisionError


def test_a_read_refuses_to_write(database: Database) -> None:
    with pytest.raises(StateError, match=r"read-?only"), database.read() as connection:
        Cursors(connection).put("a", "b")
    with database.begin() as connection:
        assert Cursors(connection).get("a") is None
        Cursors(connection).put("a", "b")


@pytest.mark.parametrize(
    "statement",
    ["DELETE FROM fa_cursors", "  delete from fa_cursors", "WITH a AS (SELECT 1) DELETE FROM fa_cursors"],
)
def test_a_read_refuses_to_write_however_that_is_said(database: Database, statement: str) -> None:
    with database.begin() as connection:
        Cursors(connection).put("a", "b")
    with pytest.raises(StateError, match=r"read-?only"), database.read() as connection:
        connection.execute(text(statement))
    with pytest.raises(StateError, match=r"read-?only"), database.read() as connection:
        connection.execute(text("INSERT INTO fa_cursors (name, value) VALUES (:name, '')"), [{"name": "c"}] * 2)
    with database.read() as connection:
        assert Cursors(connection).get_many(["a", "c"]) == {"a": "b"}


def test_a_read_sees_one_moment(database: Database) -> None:
    with database.read() as reader:
        before = EventLog(reader).last_seq()
        with database.begin() as writer:
            EventLog(writer).append([event()])
        assert (before, EventLog(reader).last_seq()) == (0, 0)
    with database.read() as reader:
        assert EventLog(reader).last_seq() == 1


def test_a_time_without_a_zone_is_refused(database: Database) -> None:
    with pytest.raises(StateError, match="offset-naive"), database.begin() as connection:
        EventLog(connection).append([event(recorded_at=hour(0).replace(tzinfo=None))])


def test_a_writer_that_is_killed_leaves_nothing_and_blocks_nobody(database: Database, database_url: str) -> None:
    ours, theirs = PROCESSES.Pipe()
    writer = PROCESSES.Process(target=write_until_killed, args=(database_url, theirs))
    writer.start()
    assert ours.poll(PATIENCE_SECONDS)
    writer.kill()
    writer.join()
    ours.close()
    theirs.close()
    with database.begin() as connection:
        assert EventLog(connection).append([event(1)]) == [1]
        assert FeedInstances(connection).find_between("clicks", "primary", hour(0), hour(100_000)) == []


def test_a_forked_child_uses_connections_of_its_own(database: Database) -> None:
    with database.begin() as connection:
        EventLog(connection).append([event(0)])
    child = multiprocessing.get_context("fork").Process(target=_append, args=(database,))
    child.start()
    child.join()
    assert child.exitcode == 0
    with database.begin() as connection:
        assert EventLog(connection).append([event(2)]) == [3]


def _append(database: Database) -> None:
    with database.begin() as connection:
        EventLog(connection).append([event(1)])


def test_a_database_without_our_tables_says_so(database_url: str, tmp_path: Path) -> None:
    (tmp_path / "state.db").touch()
    database = open_database(database_url)
    for opened in (database.begin, database.read):
        with pytest.raises(StateError, match="no feed-assets tables"), opened():
            pass
    database.close()


def test_a_closed_database_opens_again(database: Database) -> None:
    database.close()
    with database.begin() as connection:
        EventLog(connection).append([event()])
    database.close()


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("mysql://me:secret@host/db", r"mysql://me:\*\*\*@host/db: databases of the kind 'mysql' are not supported"),
        ("what is this", "its address is not a database URL"),
    ],
)
def test_an_address_of_something_else_is_refused(url: str, reason: str) -> None:
    with pytest.raises(StateError, match=reason):
        open_database(url)


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    database = open_database(f"sqlite:///{tmp_path}/absent/state.db")
    with pytest.raises(StateError, match=r"absent/state.db: it cannot be used: unable to open"):
        database.migrate()


def test_a_file_that_is_no_database_is_named_as_the_obstacle(tmp_path: Path) -> None:
    (tmp_path / "state.db").write_bytes(b"no database" * 1_000)
    with pytest.raises(StateUnreachableError, match=r"state.db: it cannot be used: file is not a database"):
        open_database(f"sqlite:///{tmp_path}/state.db").migrate()


@pytest.mark.server
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"port": 1}, "No such file or directory"),
        ({"database": "absent"}, 'database "absent" does not exist'),
        ({"username": "nobody", "password": "wrong"}, 'role "nobody" does not exist|password authentication failed'),
    ],
)
def test_a_server_that_is_away_or_refuses_us_is_named_as_the_obstacle(
    postgres_url: str, changes: dict[str, Any], reason: str
) -> None:
    url = make_url(postgres_url).set(**changes).render_as_string(hide_password=False)
    with pytest.raises(StateUnreachableError, match=reason):
        open_database(url).migrate()


@pytest.mark.server
def test_a_server_that_forbids_us_to_write_or_ends_our_connection_is_the_obstacle(postgres_url: str) -> None:
    url = create_schema(postgres_url)
    options = make_url(url).query["options"]
    read_only = make_url(url).update_query_dict({"options": f"{options} -cdefault_transaction_read_only=on"})
    with pytest.raises(StateUnreachableError, match="read-only transaction"):
        open_database(read_only.render_as_string(hide_password=False)).migrate()
    database = open_migrated(url)
    for statement, reason in (
        ("SELECT pg_terminate_backend(pg_backend_pid())", "it cannot be used"),
        ("SET LOCAL ROLE pg_monitor; SELECT * FROM pg_authid", "permission denied"),
    ):
        with pytest.raises(StateUnreachableError, match=reason), database.begin() as connection:
            connection.execute(text(statement))
    database.close()


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg2", "postgresql+psycopg"])
def test_every_way_to_write_postgresql_means_one_driver_and_hides_the_password(scheme: str) -> None:
    database = open_database(f"{scheme}://me:secret@host/db")
    assert (database.name, database.dialect) == ("postgresql+psycopg2://me:***@host/db", "postgresql")


def test_a_sqlite_file_is_in_write_ahead_mode_and_waits_for_its_turn(tmp_path: Path) -> None:
    database = open_database(f"sqlite:///{tmp_path}/state.db")
    database.migrate()
    with database.read() as connection:
        assert connection.scalar(text("PRAGMA journal_mode")) == "wal"
        assert connection.scalar(text("PRAGMA busy_timeout")) == 30_000
        assert connection.scalar(text("PRAGMA foreign_keys")) == 1
    database.close()


def test_a_sqlite_file_that_is_replaced_or_removed_is_noticed(tmp_path: Path) -> None:
    database, other = (open_database(f"sqlite:///{tmp_path}/{name}.db") for name in ("state", "backup"))
    for each, value in ((database, "new"), (other, "old")):
        each.migrate()
        with each.begin() as connection:
            Cursors(connection).put("is", value)
    other.close()
    for file in tmp_path.glob("state.db-*"):
        file.unlink()
    (tmp_path / "backup.db").replace(tmp_path / "state.db")
    with database.begin() as connection:
        assert Cursors(connection).get("is") == "old"
        Cursors(connection).put("is", "restored")
    for file in tmp_path.glob("state.db*"):
        file.unlink()
    for open_transaction in (database.read, database.begin):
        with pytest.raises(StateUnreachableError, match="unable to open database file"), open_transaction():
            pass
    assert not [*tmp_path.glob("state.db*")], "only who makes the tables makes the file"
    database.migrate()
    with database.read() as connection:
        assert Cursors(connection).get("is") is None
    database.close()


def test_a_database_in_memory_is_shared_by_threads_that_take_turns() -> None:
    database = open_database("sqlite://")
    database.migrate()

    def work() -> None:
        for n in range(20):
            with database.begin() as connection:
                EventLog(connection).append([event(n)])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with database.read() as connection:
        assert EventLog(connection).last_seq() == 80
    database.close()


def test_databases_in_memory_are_apart() -> None:
    first, second = open_database("sqlite://"), open_database("sqlite://")
    for database in (first, second):
        database.migrate()
    with first.begin() as connection:
        EventLog(connection).append([event()])
    with second.read() as connection:
        assert EventLog(connection).last_seq() == 0
    first.close()
    second.close()


def test_a_transaction_inside_another_in_memory_fails_instead_of_mixing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_module, "MEMORY_WAIT_SECONDS", 0.05)
    database = open_database("sqlite://")
    database.migrate()
    with database.begin(), pytest.raises(StateError, match="timed out"), database.read():
        pass
    database.close()
