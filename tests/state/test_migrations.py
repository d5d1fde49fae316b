import json
import sqlite3
import zlib
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from alembic.command import downgrade
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, column, inspect, table, text

from feed_assets.state.arrival_polls import ArrivalPolls
from feed_assets.state.attempts import Attempts
from feed_assets.state.causes import Cause, describe_cause
from feed_assets.state.column_types import to_micros
from feed_assets.state.cursors import Cursors
from feed_assets.state.database import Database, open_database
from feed_assets.state.errors import StateError, StateNewerError, SweepDamagedError
from feed_assets.state.event_log import EventLog
from feed_assets.state.feed_instances import FeedInstances
from feed_assets.state.late_checks import LateChecks
from feed_assets.state.overdue_notices import OverdueNotices
from feed_assets.state.process_instances import ProcessInstances
from feed_assets.state.records import Attempt, FeedInstanceStatus, ProcessInstanceStatus, Watermark, WatermarkKind
from feed_assets.state.retention_schedule import RetentionSchedule
from feed_assets.state.retention_schema import sweeps
from feed_assets.state.schema import SCHEMA_REVISION, VERSION_TABLE
from feed_assets.state.sweep_chunks import SweepChunks
from feed_assets.state.sweep_drafts import SweepDraft
from feed_assets.state.sweep_records import ChunkState, ItemOutcome, ItemResult
from feed_assets.state.sweeps import Sweeps
from feed_assets.state.watermarks import Watermarks
from tests.state.released import alembic_config
from tests.state.samples import (
    arrival_poll,
    event,
    feed_instance,
    finished,
    hour,
    late_check,
    process_instance,
    scheduled_retention,
    sweep_draft,
    sweep_item,
)
from tests.state.workers import Team, migrate


def schema_of(connection: Connection) -> list[tuple[str, str]]:
    """Everything the database knows about our tables and indexes, in its own words."""
    statements = {
        "sqlite": """
            SELECT name, sql FROM sqlite_master WHERE type = 'index' AND name LIKE 'fa!_%' ESCAPE '!'
            UNION ALL
            SELECT tables.name || '.' || columns.name,
                cid || columns.type || ' not null ' || "notnull" || ' default ' || coalesce(dflt_value, 'none')
                || ' key ' || pk || ' without rowid ' || wr
            FROM pragma_table_list AS tables JOIN pragma_table_info(tables.name) AS columns
            WHERE tables.name LIKE 'fa!_%' ESCAPE '!'
            """,
        "postgresql": """
            SELECT indexname, replace(indexdef, current_schema(), '') FROM pg_indexes
            WHERE schemaname = current_schema() AND tablename LIKE 'fa!_%' ESCAPE '!'
            UNION ALL
            SELECT table_name || '.' || column_name,
                concat_ws(
                    ' ', row_number() OVER (PARTITION BY table_name ORDER BY ordinal_position), data_type, is_nullable,
                    column_default
                )
            FROM information_schema.columns WHERE table_schema = current_schema() AND table_name LIKE 'fa!_%' ESCAPE '!'
            """,
    }
    rows = connection.execute(text(statements[connection.dialect.name]))
    return sorted((name, " ".join((definition or "").split())) for name, definition in rows)


def test_the_code_knows_the_newest_migration() -> None:
    assert ScriptDirectory.from_config(alembic_config()).get_current_head() == SCHEMA_REVISION


def test_migrating_an_empty_database_makes_the_tables_the_code_uses(database_url: str) -> None:
    database = open_database(database_url)
    database.migrate()
    with database.read() as connection:
        migrated = schema_of(connection)
    with database.begin() as connection:
        sweeps.metadata.drop_all(connection)
        assert schema_of(connection) == []
        sweeps.metadata.create_all(connection)
        assert schema_of(connection) == migrated
    assert len(migrated) > 10
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
        with pytest.raises(StateNewerError, match=r"schema 9999 is newer than .* Upgrade feed-assets here"):
            use()
    late.close()


def test_a_schema_that_becomes_newer_is_refused_by_who_looks_again(database: Database) -> None:
    with database.begin() as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    for use in (database.migrate, database.begin().__enter__, database.read().__enter__):
        with pytest.raises(StateNewerError):
            use()


def test_a_refused_sqlite_file_stays_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "state.db"
    with closing(sqlite3.connect(file)) as made:
        made.executescript(f"CREATE TABLE {VERSION_TABLE} (version_num); INSERT INTO {VERSION_TABLE} VALUES ('9999')")
    before = file.read_bytes()
    database = open_database(f"sqlite:///{file}")
    with pytest.raises(StateNewerError):
        database.migrate()
    database.close()
    assert [each.name for each in tmp_path.iterdir()] == ["state.db"]
    assert file.read_bytes() == before


def test_an_older_schema_is_refused_until_it_is_migrated(database_url: str) -> None:
    database = open_database(database_url)
    database.migrate()
    with database.begin() as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '0000'"))
    database.close()
    late = open_database(database_url)
    with pytest.raises(StateError, match=r"schema 0000 is out of date\. Migrate it"), late.read():
        pass
    late.close()


def test_the_tables_of_others_are_left_alone_and_ours_can_be_taken_away(database_url: str) -> None:
    database = open_database(database_url)
    database.migrate()
    with database.begin() as connection:
        connection.execute(text("CREATE TABLE runs (id INTEGER)"))
        connection.execute(text("CREATE TABLE alembic_version (version_num TEXT)"))
        downgrade(alembic_config(connection), "base")
        assert set(inspect(connection).get_table_names()) == {"runs", "alembic_version", VERSION_TABLE}
    database.migrate()
    with database.read() as connection:
        assert EventLog(connection).last_seq() == 0
    database.close()


def test_planned_polls_survive_the_migration_to_a_table_of_their_own_and_back(database_url: str) -> None:
    database = open_database(database_url)
    database.migrate()
    with database.begin() as connection:
        FeedInstances(connection).put([feed_instance(0, FeedInstanceStatus.MISSING), feed_instance(1)])
        ArrivalPolls(connection).put([arrival_poll(0)])
        downgrade(alembic_config(connection), "0001")
        found = connection.execute(text("SELECT nominal_time, next_look_at FROM fa_feed_instances ORDER BY 1")).all()
        assert [row.next_look_at for row in found] == [to_micros(arrival_poll(0).next_poll_at), None]
    database.close()
    again = open_database(database_url)
    again.migrate()
    with again.read() as connection:
        (poll,) = ArrivalPolls(connection).due("primary", hour(9), 9)
        assert (poll.key, poll.next_poll_at, poll.found) == (arrival_poll(0).key, arrival_poll(0).next_poll_at, "")
    again.close()


def test_what_there_was_survives_the_migration_to_sweeps(database_url: str) -> None:
    database = open_database(database_url)
    database.migrate()
    with database.begin() as connection:
        EventLog(connection).append([event(0), event(1)])
        FeedInstances(connection).put([feed_instance(0)])
        LateChecks(connection).put([late_check(0)])
    with database.begin() as connection:
        downgrade(alembic_config(connection), "0005")
        assert "fa_sweeps" not in inspect(connection).get_table_names()
    database.close()
    again = open_database(database_url)
    again.migrate()
    draft = sweep_draft()
    with again.begin() as connection:
        assert EventLog(connection).last_seq() == 2
        assert FeedInstances(connection).get(*feed_instance(0).key) == feed_instance(0)
        assert LateChecks(connection).get(*late_check(0).key) == late_check(0)
        Sweeps(connection).add(finished(draft), draft.chunks)
        assert Sweeps(connection).find("s1") == finished(draft)
    again.close()


CAUSES: list[dict[str, Any]] = [
    {"cause": Cause.SUPERSEDED, "cause_detail": None},
    {"cause": Cause.RUN_LOST, "cause_detail": None},
    {"cause": Cause.RETRY, "cause_detail": "retry 2 after: no luck"},
    {"cause": Cause.LATE_DATA, "cause_detail": "late data: clicks changed"},
    {"cause": Cause.LATE_DATA_REFUSED, "cause_detail": "late data: clicks changed; not run again: views are gone"},
    {"cause": Cause.COMMAND, "cause_detail": "run again by ann"},
    {"cause": Cause.FAILURE, "cause_detail": "no luck by ann", "status": ProcessInstanceStatus.FAILED},
]
REASONS = [describe_cause(causes["cause"], causes["cause_detail"]) for causes in CAUSES]
FORMER_REASONS = ["a newer instance has come into being, and the order is LAST_ONLY", *REASONS[1:]]


def attempt(n: float, **fields: Any) -> Attempt:
    return Attempt(
        process="daily",
        cluster="primary",
        nominal_time=hour(n),
        attempt=1,
        run_id="r",
        status=ProcessInstanceStatus.RUNNING,
        started_at=hour(n),
        **fields,
    )


def test_what_there_was_survives_the_migration_to_plain_names_and_back(database_url: str) -> None:
    watermark = Watermark(
        kind=WatermarkKind.FEED,
        entity="clicks",
        cluster="primary",
        next_index=3,
        next_time=hour(3),
        delay=hour(1) - hour(0),
    )
    draft = sweep_draft()
    sweep = finished(draft)
    protected = replace(sweep, counts=tuple(replace(each, protected_by={"lease": 2}) for each in sweep.counts))
    database = open_database(database_url)
    database.migrate()
    with database.begin() as connection:
        ArrivalPolls(connection).put([arrival_poll(0)])
        Watermarks(connection).put([watermark])
        RetentionSchedule(connection).put([scheduled_retention(0)])
        ProcessInstances(connection).add_waiting([process_instance(0, notice_at=hour(5), notice_digest="d")])
        ProcessInstances(connection).add_waiting(process_instance(n + 1, **causes) for n, causes in enumerate(CAUSES))
        for n, causes in enumerate(CAUSES):
            Attempts(connection).begin(attempt(n + 1, cause=causes["cause"], cause_detail=causes["cause_detail"] or ""))
        Cursors(connection).put("retention/schedule/primary", "p")
        Sweeps(connection).add(protected, draft.chunks)
    with database.begin() as connection:
        downgrade(alembic_config(connection), "0007")
        for table in ("fa_looks", "fa_frontiers", "fa_sweep_turns"):
            assert connection.scalar(text(f"SELECT count(*) FROM {table}")) == 1
        assert connection.scalar(text("SELECT told FROM fa_process_instances WHERE told IS NOT NULL")) == "d"
        reasons = "SELECT reason FROM fa_process_instances WHERE reason IS NOT NULL ORDER BY nominal_time"
        assert connection.scalars(text(reasons)).all() == FORMER_REASONS
        triggers = "SELECT trigger FROM fa_attempts ORDER BY nominal_time"
        assert connection.scalars(text(triggers)).all() == FORMER_REASONS
        assert connection.scalar(text("SELECT name FROM fa_cursors")) == "retention/turns/primary"
        counts = connection.scalar(text("SELECT counts FROM fa_sweeps"))
        assert '"keepers": {"lease": 2}' in counts.replace('":{', '": {').replace('":2', '": 2')
    database.close()
    again = open_database(database_url)
    again.migrate()
    with again.read() as connection:
        assert ArrivalPolls(connection).due("primary", hour(9), 9) == [arrival_poll(0)]
        assert Watermarks(connection).get(WatermarkKind.FEED, "clicks", "primary") == watermark
        assert RetentionSchedule(connection).of_cluster("primary") == {"clicks": scheduled_retention(0)}
        (row,) = OverdueNotices(connection).due("primary", hour(5), 9)
        assert (row.notice_at, row.notice_digest) == (hour(5), "d")
        found = ProcessInstances(connection).find_between("daily", "primary", hour(1), hour(99))
        assert [{"cause": each.cause, "cause_detail": each.cause_detail} for each in found] == [
            {name: causes[name] for name in ("cause", "cause_detail")} for causes in CAUSES
        ]
        assert [each.reason for each in found] == REASONS
        assert [Attempts(connection).of(each.key)[0].trigger for each in found] == REASONS
        assert Cursors(connection).get("retention/schedule/primary") == "p"
        assert Sweeps(connection).find("s1") == protected
    again.close()


def compressed(document: object) -> bytes:
    return zlib.compress(json.dumps(document, separators=(",", ":")).encode())


FORMER_CHUNKS = [
    {
        "sweep_id": "s1",
        "number": 0,
        "feed": "clicks",
        "kind": "data",
        "first_time": to_micros(hour(0)),
        "last_time": to_micros(hour(1)),
        "count": 2,
        "digest": "sha256:fb7fcea02f43058e3a35d5e2f788bf7e74289daf1a2c6849cea515ec8c053591",
        "state": 1,
        "content": compressed(
            {
                "version": 1,
                "paths": ["clicks/2024/01/01/00", 'clicks/\udcff"\u00e4'],
                "times": [to_micros(hour(0)), to_micros(hour(1))],
                "bytes": [100, None],
                "files": [2, None],
                "rules": {"values": ["age"], "at": [0, 0]},
                "reasons": {"values": ["it is older than days(2)", "another"], "at": [0, 1]},
                "signs": ["", "f1"],
            }
        ),
        "results": compressed(
            {
                "version": 1,
                "outcomes": {"values": ["EVICTED", "REFUSED"], "at": [0, 1]},
                "reasons": {"values": [None, "no \u0000 right"], "at": [0, 1]},
                "bytes": [5, None],
                "files": [1, None],
            }
        ),
    },
    {
        "sweep_id": "s1",
        "number": 1,
        "feed": "views",
        "kind": "stats",
        "first_time": to_micros(hour(2)),
        "last_time": to_micros(hour(2)),
        "count": 1,
        "digest": "sha256:6624d6da318c7b0f750a6c4aa2b55e043f6aa86635f2cf177956b695836bd2e8",
        "state": 0,
        "content": compressed(
            {
                "version": 1,
                "paths": ["clicks/2024/01/01/02"],
                "times": [to_micros(hour(2))],
                "bytes": [102],
                "files": [2],
                "rules": {"values": ["age"], "at": [0]},
                "reasons": {"values": ["it is older than days(2)"], "at": [0]},
            }
        ),
        "results": None,
    },
]
FORMER_DIGEST = "sha256:8aad27d6c7353bb8befe83c3dde77101d52c8b13dc4786f3668756796a4a66db"


def test_items_of_sweeps_survive_the_migration_to_rows_and_back(database_url: str) -> None:
    draft = SweepDraft("s1", "primary")
    odd = sweep_item(1, path='clicks/\udcff"\u00e4', bytes=None, files=None, fingerprint="f1", reason="another")
    draft.add("clicks", "data", [sweep_item(0), odd])
    draft.add("views", "stats", [sweep_item(2)])
    sweep = finished(draft)
    results = {
        sweep_item(0): ItemResult(ItemOutcome.EVICTED, None, 5, 1),
        odd: ItemResult(ItemOutcome.REFUSED, "no \0 right"),
    }
    database = open_database(database_url)
    database.migrate()
    former = table("fa_sweep_chunks", *map(column, FORMER_CHUNKS[0]))
    with database.begin() as connection:
        Sweeps(connection).add(sweep, [])
        Sweeps(connection).add(replace(sweep, sweep_id="s2"), [])
        downgrade(alembic_config(connection), "0009")
        damaged = {**FORMER_CHUNKS[1], "sweep_id": "s2", "content": b"nothing"}
        connection.execute(former.insert(), [*FORMER_CHUNKS, damaged])
        connection.execute(text("UPDATE fa_sweeps SET digest = :digest"), {"digest": FORMER_DIGEST})
    for _ in range(2):
        database.close()
        database = open_database(database_url)
        database.migrate()
        with database.begin() as connection:
            assert Sweeps(connection).find("s1") == sweep
            chunks = SweepChunks(connection, "s1")
            chunks.require_intact(sweep)
            done, left = draft.chunks
            assert list(chunks.iter_all()) == [replace(done, state=ChunkState.DONE, results=results), left]
            with pytest.raises(SweepDamagedError):
                SweepChunks(connection, "s2").get(1)
            with pytest.raises(SweepDamagedError):
                SweepChunks(connection, "s2").require_intact(replace(sweep, digest=FORMER_DIGEST))
            downgrade(alembic_config(connection), "0009")
            found = connection.execute(former.select().where(text("sweep_id = 's1'")).order_by(text("number"))).all()
            assert [readable(row._mapping) for row in found] == list(map(readable, FORMER_CHUNKS))
            assert connection.scalar(text("SELECT digest FROM fa_sweeps WHERE sweep_id = 's1'")) == FORMER_DIGEST
    database.close()


def readable(row: Mapping[str, Any]) -> dict[str, Any]:
    """A former chunk with what its content and its results say."""
    said = {name: row[name] and json.loads(zlib.decompress(bytes(row[name]))) for name in ("content", "results")}
    return {**row, **said}
