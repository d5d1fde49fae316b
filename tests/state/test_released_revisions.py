"""A database of every revision that was released is migrated with all that is in it, and read."""

from typing import Any

import pytest
from sqlalchemy import Connection, select

from feed_assets.state.attempts import Attempts
from feed_assets.state.changes import Changes
from feed_assets.state.database import open_database
from feed_assets.state.definitions import Definitions
from feed_assets.state.event_log import EventLog
from feed_assets.state.feed_instances import FeedInstances
from feed_assets.state.holds import Holds
from feed_assets.state.late_checks import LateChecks
from feed_assets.state.manifests import Manifests
from feed_assets.state.process_instances import ProcessInstances
from feed_assets.state.schema import metadata
from feed_assets.state.sweep_chunks import SweepChunks
from feed_assets.state.sweeps import Sweeps
from tests.state.released import PATH, ROWS, make_released, released_revisions
from tests.state.samples import hour

ALL = ("primary", hour(0), hour(ROWS))
Rows = dict[str, list[dict[str, Any]]]


@pytest.mark.parametrize("revision", released_revisions())
def test_what_a_release_has_written_is_migrated_and_read(database_url: str, revision: str) -> None:
    filled = make_released(database_url, revision)
    assert all(len(rows) == ROWS for rows in filled.values())
    database = open_database(database_url)
    database.migrate()
    with database.read() as connection:
        for table in metadata.sorted_tables:
            found = connection.execute(select(table)).all()
            assert table.name not in filled or len(found) == ROWS, table.name
        require_instances(connection, filled)
        if "fa_definitions" in filled:
            require_definitions(connection, filled)
        if "fa_late_checks" in filled:
            require_late_data(connection, filled)
        if "fa_sweeps" in filled:
            require_retention(connection, filled)
    database.close()


def require_instances(connection: Connection, filled: Rows) -> None:
    events = EventLog(connection).read(-1, ROWS)
    assert [event.kind for event in events] == values(filled, "fa_feed_events", "kind")
    assert [event.payload for event in events[:1]] == [{"path": PATH, "process": "daily"}]
    feeds = FeedInstances(connection).find_between("clicks", *ALL)
    assert [row.status for row in feeds] == values(filled, "fa_feed_instances", "status")
    processes = ProcessInstances(connection).find_between("daily", *ALL)
    assert [row.status for row in processes] == values(filled, "fa_process_instances", "status")
    assert [[each.digests for each in row.inputs] for row in processes] == [[("sha256:0",)]] * (ROWS - 1) + [[]]
    written = values(filled, "fa_process_instances", "cause_detail", "reason")
    assert [row.cause_detail for row in processes] == written
    attempts = [each for row in processes for each in Attempts(connection).of(row.key)]
    assert {each.status for each in attempts} >= {"RUNNING", "SUCCEEDED", "FAILED", "KILLED"}


def require_definitions(connection: Connection, filled: Rows) -> None:
    assert [version.text for version in Definitions(connection).all()] == values(filled, "fa_definitions", "text")
    assert {change.versions[0].name for change in Changes(connection).all()} == {"clicks"}


def require_late_data(connection: Connection, filled: Rows) -> None:
    checks = LateChecks(connection).due("primary", hour(ROWS), ROWS)
    assert sorted(check.nominal_time for check in checks) == [hour(n) for n in range(ROWS - 1)]
    assert {check.changed for check in checks} == {("clicks",)}
    manifests = Manifests(connection).get_many(
        [row.key for row in FeedInstances(connection).find_between("clicks", *ALL)]
    )
    assert [each.files[0].path for each in manifests.values()] == ["part-0.csv"] * ROWS


def require_retention(connection: Connection, filled: Rows) -> None:
    holds = Holds(connection).newest()
    assert [hold.reason for hold in reversed(holds)] == values(filled, "fa_holds", "reason")
    assert all(hold.is_readable for hold in holds)
    for row in filled["fa_sweeps"]:
        sweep = Sweeps(connection).find(row["sweep_id"])
        assert sweep is not None
        assert sweep.state == row["state"]
        assert [count.protected_by for count in sweep.counts] == ([] if row["counts"] is None else [{"lease": 2}])
        chunks = SweepChunks(connection, sweep.sweep_id)
        chunks.require_intact(sweep)
        assert [item.path for chunk in chunks.iter_all() for item in chunk.items] == [PATH]


def values(filled: Rows, table: str, *columns: str) -> list[Any]:
    """What was written into a column, which may have had another name."""
    return [next(row[name] for name in columns if name in row) for row in filled[table]]
