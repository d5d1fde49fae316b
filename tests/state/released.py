"""Rows as the release of each revision wrote them, in every table that the database has at that revision.

The database says which columns there are. What releases wrote into columns with a closed set of values, with JSON or
with compressed content stands here as text, so that it stays what it was when the product changes.
"""

import json
import zlib
from collections.abc import Collection, Sequence
from typing import Any

import sqlalchemy as sa
from alembic.command import upgrade
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, inspect, make_url

from feed_assets.state.column_types import to_micros
from feed_assets.state.schema import TABLE_PREFIX, metadata
from tests.state.samples import START, hour

ROWS = 21
"""The rows of a table: enough for each of its values. The last one has only what it must have."""

PATH = f"clicks/{START:%Y/%m/%d/%H}"
NEW_NAMES = {
    "fa_looks": "fa_arrival_polls",
    "fa_frontiers": "fa_watermarks",
    "fa_sweep_turns": "fa_retention_schedule",
}

_INSTANCE = "WAITING READY RUNNING SUSPENDED SUCCEEDED FAILED KILLED TIMEDOUT SKIPPED"
_CAUSES = (
    "INPUTS BY_HAND REPAIR COMMAND RETRY LATE_DATA LATE_DATA_REFUSED SUPERSEDED MISSED OVERTAKEN TIMED_OUT FAILURE "
    "RETRIES_EXHAUSTED INTERRUPTED RUN_CANCELLED RUN_LOST WORKERS_LOST UNDECLARED REMOVED"
)
_CHOICES = {
    place: values.split()
    for place, values in {
        "fa_attempts.cause": _CAUSES,
        "fa_batches.use": "TAKEN PASSED",
        "fa_queue_changes.action": "ADD DROP HOLD PASS",
        "fa_attempts.status": _INSTANCE,
        "fa_changes.state": "PREPARED DONE UNDONE",
        "fa_definitions.action": "SUBMITTED UPDATED DELETED",
        "fa_definitions.format": "yaml xml",
        "fa_feed_events.kind": "ARRIVED PRODUCED REPLICATED CHANGED EVICTED RESTORED VANISHED",
        "fa_feed_instances.status": "MISSING PARTIAL EMPTY AVAILABLE EVICTED",
        "fa_frontiers.kind": "feed process",
        "fa_late_checks.kind": "feed process",
        "fa_metadata.kind": "property tag",
        "fa_metadata.origin": "definition person program system",
        "fa_metadata.scope": "USER SYSTEM",
        "fa_metadata_changes.origin": "definition person program system",
        "fa_outbox.topic": "eviction",
        "fa_process_instances.cause": _CAUSES,
        "fa_process_instances.status": _INSTANCE,
        "fa_schedules.kind": "feed process",
        "fa_search_tokens.scope": "USER SYSTEM",
        "fa_schedules.state": "SUBMITTED SCHEDULED SUSPENDED",
        "fa_sweep_chunks.kind": "data",
        "fa_sweep_items.outcome": "EVICTED KEPT CHANGED VANISHED REFUSED RESTORED OCCUPIED LOST",
        "fa_steps.status": "PENDING RUNNING SUCCEEDED FAILED KILLED KEPT",
        "fa_sweeps.state": "PLANNED ASKING RUNNING DONE UNDOING UNDONE PURGED CANCELLED SUPERSEDED",
        "fa_watermarks.kind": "feed process",
    }.items()
}
_NAMES = {"feed": "clicks", "process": "daily", "cluster": "primary"}

_T = to_micros(START)
_ITEMS = (
    f'{{"version":1,"paths":["{PATH}"],"times":[{_T}],"bytes":[100],"files":[2],"rules":{{"values":["age"],"at":[0]}},'
    '"reasons":{"values":["it is older than days(2)"],"at":[0]}}'
)
_RESULTS = (
    '{"version":1,"outcomes":{"values":["EVICTED"],"at":[0]},"reasons":{"values":[null],"at":[0]},'
    '"bytes":[100],"files":[2]}'
)
_FILES = '{"version":1,"files":[["part-0.csv",100,"1-2","blake3:0"]]}'
_FILE = ["clicks.yaml", "before", "after", "0", "1"]
_VERSION = {
    "kind": "feed",
    "name": "clicks",
    "action": "UPDATED",
    "digest": "d",
    "text": None,
    "format": "yaml",
    "file": "clicks.yaml",
    "author": "ann",
    "origin": "a test",
    "recorded_at": _T,
    "change_id": "1",
}
_COUNT = {
    "feed": "clicks",
    "instances": 1,
    "paths": 1,
    "bytes": 100,
    "files": 2,
    "evicted": 1,
    "kept": 0,
    "failed": 0,
    "policy": "p",
    "protected": 2,
}
_PAYLOADS: dict[str, dict[str, object]] = {
    "payload": {"path": PATH, "process": "daily"},
    "overrides": {"spark.executor.memory": "2g"},
    "details": {"versions": 2},
    "members": {"members": [["process", "daily", 1], ["feed", "clicks", 1]]},
    "changed": {"inputs": ["clicks"]},
    "obstacles": {"obstacles": [["share", "it would remove half of all instances"]]},
    "outputs": {"events": [7]},
    "counts": {"counts": [_COUNT | {"protected_by": {"lease": 2}}]},
    "fa_outbox.payload": {
        "operation": "DELETE",
        "feed": "clicks",
        "cluster": "primary",
        "nominal_time": "2013-11-01T00:00:00+00:00",
        "kind": "data",
        "store": "file:///data",
        "path": PATH,
        "sweep": "s1",
        "rule": "age",
        "of_a_later_release": 1,
    },
    "fa_steps.frames": {"rows": {"clicks": 3}, "url": "file:///data", "digest": "d"},
    "fa_metadata_changes.before": {},
    "fa_metadata_changes.after": {"USER": {"properties": {"owner": "ann"}, "tags": ["checked"]}},
    "fa_changes.content": {"files": [_FILE], "versions": [_VERSION]},
}
_VALUES: dict[str, object] = {name: json.dumps({"version": 1, "payload": value}) for name, value in _PAYLOADS.items()}
_INPUTS = {
    "version": 1,
    "inputs": [{"name": "clicks", "feed": "clicks", "nominal_times": [_T], "digests": ["sha256:0"]}],
}
_VALUES |= {
    "counts_unchanged": False,
    "fa_attempts.inputs": json.dumps(_INPUTS),
    "fa_holds.version": 1,
    "fa_metadata_entities.hidden": False,
    "fa_search_tokens.number": 1.5,
    "fa_manifests.content": zlib.compress(_FILES.encode()),
    "fa_process_instances.inputs": json.dumps(_INPUTS),
    "fa_sweep_chunks.content": zlib.compress(_ITEMS.encode()),
    "fa_sweep_chunks.results": zlib.compress(_RESULTS.encode()),
    "fa_sweep_chunks.digest": "sha256:45e36a12888380ecb6c8299f46c927f8028ea08d1c760111961bf114827f0d41",
    "fa_sweep_chunks.number": 0,
    "fa_sweep_chunks.count": 1,
    "fa_sweep_chunks.state": 1,
    "fa_sweep_chunks.first_time": _T,
    "fa_sweep_chunks.last_time": _T,
    "fa_sweeps.digest": "sha256:7e707b1b908302e90233653003ab39d3957cc279f8bea5e6e28f67e5a0470e02",
    "fa_sweeps.chunks": 1,
    "fa_sweep_items.chunk": 0,
    "fa_sweep_items.position": 0,
    "fa_sweep_items.path": PATH,
    "fa_sweep_items.nominal_time": _T,
    "fa_sweep_items.bytes": 100,
    "fa_sweep_items.files": 2,
    "fa_sweep_items.rule": "age",
    "fa_sweep_items.reason": "it is older than days(2)",
    "fa_sweep_items.fingerprint": "",
}
_PLANNED = frozenset({"fa_sweep_items.bytes", "fa_sweep_items.files", "fa_outbox.payload"})  # never missing
_DIGESTS_OF_ITEMS = {
    "fa_sweep_chunks.digest": "sha256:3103dd29a37dceae5e76ec7615e39a2fe81c9245a80bce848172edc7a22cc94e",
    "fa_sweeps.digest": "sha256:aab70c0371259c1fef226faf7975107c8b93f95f9ca3d1f046dc8640be003cbc",
}
_FORMER_COUNTS = json.dumps({"version": 1, "payload": {"counts": [_COUNT | {"keepers": {"lease": 2}}]}})
_TIMES = ("_at", "_time", "_until", "as_of", "since", "effective_from")


def released_revisions() -> list[str]:
    """All revisions, the oldest first."""
    return sorted(script.revision for script in ScriptDirectory.from_config(alembic_config()).walk_revisions())


def alembic_config(connection: Connection | None = None) -> Config:
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", "feed_assets.state:migrations")
    return config


def make_released(url: str, revision: str) -> dict[str, list[dict[str, Any]]]:
    """Make a database of a revision with rows in each of its tables; return them by the present name of the table."""
    engine = create_engine(make_url(url))
    filled = {}
    with engine.begin() as connection:
        upgrade(alembic_config(connection), revision)
        inspector = inspect(connection)
        for table in inspector.get_table_names():
            if table.startswith(TABLE_PREFIX):
                columns = inspector.get_columns(table)
                key = inspector.get_pk_constraint(table)["constrained_columns"]
                rows = _rows(table, columns, key, revision)
                connection.execute(sa.table(table, *(sa.column(each["name"]) for each in columns)).insert(), rows)
                filled[NEW_NAMES.get(table, table)] = rows
    engine.dispose()
    return filled


def _rows(table: str, columns: Sequence[Any], key: Collection[str], revision: str) -> list[dict[str, Any]]:
    """Names that are a key without a number or time differ from row to row, all others are the same."""
    are_keys = not any(isinstance(each["type"], sa.Integer) for each in columns if each["name"] in key)
    numbered = {name for name in key if are_keys}
    return [{each["name"]: _value(table, each, n, numbered, revision) for each in columns} for n in range(ROWS)]


def _value(table: str, column: Any, n: int, numbered: Collection[str], revision: str) -> Any:
    name, kind = column["name"], column["type"]
    place = f"{table}.{name}"
    if n == ROWS - 1 and column["nullable"] and place not in _PLANNED:
        return None
    if place == "fa_sweeps.counts" and revision < "0008":
        return _FORMER_COUNTS
    if place in _DIGESTS_OF_ITEMS and revision >= "0010":
        return _DIGESTS_OF_ITEMS[place]
    if values := _CHOICES.get(place) or _members(table, name):
        return values[n % len(values)]
    if name in _NAMES and name not in numbered:
        return _NAMES[name]
    for known in (place, name):
        if known in _VALUES:
            return _VALUES[known]
    if isinstance(kind, sa.LargeBinary):
        return b""
    if isinstance(kind, sa.Integer):
        return to_micros(hour(n)) if name.endswith(_TIMES) else n
    return f"{name} {n:02}"


def _members(table: str, column: str) -> Sequence[str]:
    """The values of a column that has come with a revision which nobody has listed above."""
    known = metadata.tables.get(table)
    found = None if known is None else known.columns.get(column)
    return [member.value for member in getattr(None if found is None else found.type, "members", ())]
