"""Dagster's event log with a long history, for the peers: copied inside SQLite, because Dagster reports about 200
events a second.
"""

import os
import sqlite3
from collections.abc import Iterable
from pathlib import Path

import dagster as dg


def repeat_events(instance: dg.DagsterInstance, first: str, others: Iterable[str]) -> None:
    """Copy all materializations of the partition `first` into others."""
    (file,) = Path(instance.root_directory).rglob("index.db")
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("BEGIN")
    connection.execute("CREATE TEMP TABLE other (key TEXT)")
    connection.executemany("INSERT INTO other VALUES (?)", ((key,) for key in others))
    same = "run_id, dagster_event_type, timestamp, step_key, asset_key"
    connection.execute(
        f"INSERT INTO event_logs ({same}, event, partition) "
        f"SELECT {same}, replace(event, :first, other.key), other.key FROM event_logs CROSS JOIN other "
        "WHERE partition = :first",
        {"first": first},
    )
    connection.execute("COMMIT")
    connection.close()
    os.sync()
