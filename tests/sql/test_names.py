"""A new name reaches every column that names a feed or process, and no column is forgotten."""

from typing import Any

import pytest
from sqlalchemy import BigInteger, Boolean, Column, Float, Integer, LargeBinary, TypeDecorator, text

from feed_assets.entities.common import Kind
from feed_assets.sql.column_types import UtcDateTime
from feed_assets.sql.database import Database
from feed_assets.sql.names import Renaming, rename_everywhere, rules_of
from feed_assets.sql.tables import load_tables

pytestmark = pytest.mark.both_databases

# What people and programs have said, what names something else, and what `definitions/renaming.py` makes anew.
NAMES_NOTHING = {
    "fa_agenda": "kind cluster state",
    "fa_arrival_polls": "cluster found obstacle",
    "fa_attempts": "cluster run_id status reason cause_detail cause outputs",
    "fa_audit": "author action target details digest",
    "fa_batches": "cluster input feed_cluster use",
    "fa_changes": "change_id state author origin content",
    "fa_column_sets": "digest content",
    "fa_definitions": "kind action digest text format file author origin change_id",
    "fa_deliveries": "way kind error",
    "fa_facts": "cluster category name value",
    "fa_feed_events": "cluster kind origin manifest_digest payload idempotency_key marking",
    "fa_feed_instances": "cluster status manifest_digest",
    "fa_feed_places": "cluster url template zone flag",
    "fa_holds": "name cluster reason author released_by",
    "fa_leases": "cluster holder",
    "fa_listed_versions": "cluster name version status",
    "fa_manifests": "cluster digest",
    "fa_metadata": "scope kind name value origin author",
    "fa_metadata_changes": "author origin before after",
    "fa_metadata_entities": "uid kind created_by described",
    "fa_outbox": "topic user_topic level kind",
    "fa_process_instances": "cluster status run_id request_key cause_detail definition_digest overrides notice_digest "
    "cause",
    "fa_queue_changes": "cluster input action author reason",
    "fa_releases": "cluster fingerprint reason",
    "fa_renames": "kind former author",
    "fa_schedules": "kind cluster state author",
    "fa_search_tokens": "token field scope",
    "fa_shared_payloads": "payload",
    "fa_sla": "kind cluster level recovered_by acknowledged_by",
    "fa_sla_pauses": "cluster",
    "fa_steps": "cluster step status reason basis frames",
    "fa_sweep_chunks": "sweep_id kind digest state holder items outcomes",
    "fa_sweeps": "sweep_id cluster state author origin digest obstacles approved_by note",
    "fa_taken_files": "name cluster checksum",
    "fa_tick_failures": "cluster step reason",
    "fa_tokens": "name digest may author revoked_by groups session_of",
    "fa_totals": "kind cluster label",
    "fa_trigger_inputs": "cluster input feed_cluster",
    "fa_triggers": "cluster sign",
    "fa_watermarks": "kind cluster",
    "fa_ways_out": "name error holder",
    "fa_workflow_files": "digest",
    "feed_assets_alembic_version": "version_num",
}
PLAIN = ("old", "new")
PATH = ("KIND/old/column/id", "KIND/new/column/id")
# What stands in a column before and after, and in others beside it. KIND is the kind of what is renamed.
SAMPLES: list[tuple[str, str, tuple[str, str], dict[str, Any]]] = [
    ("fa_agenda", "name", PLAIN, {"kind": {Kind.FEED: "late feed", Kind.PROCESS: "late inputs"}}),
    ("fa_cursors", "name", ("ENDS/primary/old", "ENDS/primary/new"), {}),
    ("fa_cursors", "value", ('{"MANY":[["old","old@x"]]}', '{"MANY":[["new","old@x"]]}'), {}),
    ("fa_definitions", "name", PLAIN, {"kind": Kind}),
    ("fa_deliveries", "entity", PLAIN, {"kind": Kind}),
    ("fa_leases", "entity", ("KIND/old", "KIND/new"), {}),
    ("fa_metadata_changes", "path", PATH, {}),
    ("fa_metadata_entities", "name", PLAIN, {"kind": Kind, "path": "some"}),
    ("fa_metadata_entities", "path", PATH, {"kind": "column", "uid": "another"}),
    ("fa_outbox", "entity", PLAIN, {"kind": Kind}),
    ("fa_outbox", "idempotency_key", ("entity/KIND/old/1", "entity/KIND/new/1"), {}),
    ("fa_outbox", "payload", ('[1,{"KIND":"old","reason":"old"}]', '[1,{"KIND":"new","reason":"old"}]'), {}),
    ("fa_outbox", "payload", ('[1,{"kind":"KIND","entity":"old"}]', '[1,{"kind":"KIND","entity":"new"}]'), {}),
    ("fa_releases", "members", ('[1,[["KIND","old",3]]]', '[1,[["KIND","new",3]]]'), {}),
    ("fa_renames", "name", PLAIN, {"kind": Kind}),
    ("fa_schedules", "name", PLAIN, {"kind": Kind}),
    ("fa_sla", "name", PLAIN, {"kind": Kind}),
    ("fa_tick_failures", "subject", PLAIN, {"step": {Kind.FEED: "inboxes", Kind.PROCESS: "gates"}}),
    ("fa_totals", "entity", PLAIN, {"kind": {Kind.FEED: "EVENTS", Kind.PROCESS: "ATTEMPTS"}}),
    ("fa_watermarks", "entity", PLAIN, {"kind": {Kind.FEED: "sla/feed/low", Kind.PROCESS: "process"}}),
]
FEED_TABLES = (
    *("fa_arrival_polls", "fa_batches", "fa_feed_events", "fa_feed_instances", "fa_feed_places", "fa_holds"),
    *("fa_listed_versions", "fa_manifests", "fa_sweep_chunks", "fa_taken_files", "fa_trigger_inputs"),
)
PROCESS_TABLES = (
    *("fa_attempts", "fa_batches", "fa_facts", "fa_process_instances", "fa_queue_changes", "fa_releases"),
    *("fa_sla_pauses", "fa_steps", "fa_trigger_inputs", "fa_triggers"),
)
INPUTS = "\x01old\0{}\x001\0\0\0\0\0\0\0\0\x01\x01a"  # at one time, with the digest `a`
OF_FEEDS = [
    *((table, "feed", PLAIN, {}) for table in FEED_TABLES),
    ("fa_attempts", "inputs", (INPUTS.format("old"), INPUTS.format("new")), {}),
    ("fa_sweeps", "counts", ('[1,[{"feed":"old","policy":""}]]', '[1,[{"feed":"new","policy":""}]]'), {}),
    ("fa_attempts", "process", ("old@east", "new@east"), {}),
    ("fa_cursors", "value", ('{"behind":{"old":7}}', '{"behind":{"new":7}}'), {}),
    ("fa_cursors", "value", ('{"feeds":{"old":"told","a":"old"}}', '{"feeds":{"a":"old"}}'), {}),
]
OF_PROCESSES = [(table, "process", PLAIN, {}) for table in PROCESS_TABLES]


def test_each_column_of_text_has_a_rule_or_names_nothing() -> None:
    texts = {
        table.name: {
            each.name
            for each in table.columns
            if not rules_of(each) and not isinstance(each.type, UtcDateTime | BigInteger | Integer | Boolean | Float)
        }
        for table in load_tables().sorted_tables
    }
    listed = {table: set(columns.split()) for table, columns in NAMES_NOTHING.items()}
    contents = {"fa_manifests": {"content"}, "fa_workflow_files": {"content"}}
    assert {name: each - contents.get(name, set()) for name, each in texts.items() if each} == listed


def test_each_rule_has_a_sample() -> None:
    ruled = {
        (table.name, each.name) for table in load_tables().sorted_tables for each in table.columns if rules_of(each)
    }
    assert {(table, column) for table, column, _, _ in (*SAMPLES, *OF_FEEDS, *OF_PROCESSES)} == ruled


@pytest.mark.parametrize("of", [Kind.FEED, Kind.PROCESS])
@pytest.mark.parametrize("renamed", [Kind.FEED, Kind.PROCESS])
def test_a_new_name_is_written_everywhere_and_into_nothing_else(database: Database, renamed: Kind, of: Kind) -> None:
    tables, samples = load_tables().tables, [*SAMPLES, *(OF_FEEDS if of is Kind.FEED else OF_PROCESSES)]
    with database.begin() as connection:
        expected = []
        for number, (name, column, (before, after), beside) in enumerate(samples):
            row = {each.name: _fill(each, number, beside.get(each.name), of) for each in tables[name].columns}
            row[column] = _of(of, before) if column != "inputs" else before.encode()
            connection.execute(text(f"INSERT INTO {name} ({', '.join(row)}) VALUES (:{', :'.join(row)})"), row)
            then = _of(of, after if renamed is of else before)
            expected.append((name, row | {column: then if column != "inputs" else then.encode()}))
        rename_everywhere(connection, Renaming(kind=renamed, old="old", new="new", clusters=("east",)))
        for name in {name for name, *_ in samples}:
            rows = connection.execute(text(f"SELECT * FROM {name}")).mappings()
            found = [
                {key: bytes(each) if isinstance(each, memoryview) else each for key, each in row.items()}
                for row in rows
            ]
            wanted = [row for of_table, row in expected if of_table == name]
            assert sorted(found, key=str) == sorted(wanted, key=str)


def _of(kind: Kind, text: str) -> str:
    many, ends = ("feeds", "inbox") if kind is Kind.FEED else ("processes", "queue-ended")
    return text.replace("KIND", kind).replace("ENDS", ends).replace("MANY", many)


def _fill(column: Column[Any], number: int, given: Any, kind: Kind) -> object:
    match column.type.impl if isinstance(column.type, TypeDecorator) else column.type:
        case _ if given is not None:
            return given[kind] if isinstance(given, dict) else kind.value if given is Kind else given
        case Boolean():
            return False
        case BigInteger() | Integer() | Float():
            return number
        case LargeBinary():
            return b""
        case _:
            return None if column.nullable else f"x{number}"
