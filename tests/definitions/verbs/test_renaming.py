"""A feed or process gets another name, and everything that is recorded of it goes along."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from sqlalchemy import text

from feed_assets.catalog.editing import get_metadata, update_metadata
from feed_assets.context.errors import PlanOutdatedError, VerbRefusedError
from feed_assets.context.operation import open_context
from feed_assets.context.tick import open_tick
from feed_assets.definitions.errors import RenamedInFilesError
from feed_assets.definitions.folder import find_entity
from feed_assets.definitions.lists.history import entity_history
from feed_assets.definitions.renamed_texts import renamed_text
from feed_assets.definitions.verbs import changes as entity_changes
from feed_assets.definitions.verbs.planning import apply_planned, plan_files
from feed_assets.definitions.verbs.renaming import Renamed, rename
from feed_assets.definitions.verification import verify_store
from feed_assets.entities.common import Kind
from feed_assets.entities.errors import EntityNotFoundError
from feed_assets.loading.falcon.writing import render_falcon
from feed_assets.log.cursors import Cursors
from feed_assets.log.definitions.records import DocumentFormat
from feed_assets.log.events import EventLog
from feed_assets.log.records import ProcessInstanceStatus, WatermarkKind
from feed_assets.log.removals.chunks import SweepChunks, SweepDraft
from feed_assets.log.removals.records import SweepItem, SweepState
from feed_assets.log.removals.store import Sweeps
from feed_assets.log.watermarks import Watermarks
from feed_assets.plan.records import DEFINITION_DIGITS
from feed_assets.sql.names import Renaming
from feed_assets.sql.tables import load_tables
from feed_assets.triggers.apply_triggers import apply_triggers
from tests.databases import database_url
from tests.definitions.harness import NO_VALUES
from tests.definitions.test_cloning import XML
from tests.definitions.verbs.harness import CLICKS, CLUSTER, COUNTING, COUNTS, NOON, EntityHarness, changed, file_of
from tests.instances.harness import at
from tests.log.samples import event

__all__ = ["database_url"]

ZEBRA = changed(CLICKS, name="zebra")
READING = changed(COUNTING, inputs={"clicks": {"feed": "zebra", "start": "now(0,0)", "end": "now(0,0)"}})
HISTORY = {
    ("fa_audit", "details"),
    ("fa_audit", "target"),
    ("fa_changes", "content"),  # the names of files
    ("fa_changes", "origin"),
    ("fa_definitions", "file"),
    ("fa_definitions", "origin"),
    ("fa_metadata_changes", "after"),
    ("fa_metadata_changes", "before"),
    ("fa_outbox", "idempotency_key"),
    ("fa_outbox", "payload"),  # what was said
    ("fa_renames", "former"),
}
"""Where a former name stays."""


@pytest.fixture
def harness(tmp_path: Path, database_url: str) -> EntityHarness:
    harness = EntityHarness.at(tmp_path, state=database_url)
    entity_changes.submit(harness.context(), [file_of(CLUSTER, ZEBRA, COUNTS, READING)], and_schedule=True)
    harness.tick()
    return harness


def renamed(harness: EntityHarness, old: str, new: str, kind: Kind | None = None, **options: Any) -> Renamed:
    return rename(harness.context(**options), kind, old, new)


def find(harness: EntityHarness, word: str) -> set[tuple[str, str]]:
    """The columns of all tables in which a word stands."""
    found = set()
    with harness.database.read() as connection:
        for table in load_tables().sorted_tables:
            for row in connection.execute(text(f"SELECT * FROM {table.name}")).mappings():
                found |= {(table.name, name) for name, value in row.items() if word in str(value)}
    return found


def problems(harness: EntityHarness) -> list[str]:
    store = harness.context().store
    return [each.message for each in verify_store(harness.database, store.folder, store.values, harness.now)]


def releases(harness: EntityHarness) -> list[Any]:
    with harness.database.read() as connection:
        rows = connection.execute(
            text("SELECT process, release, effective_from FROM fa_releases ORDER BY process, release")
        )
        return [tuple(row) for row in rows]


@pytest.mark.both_databases
def test_the_record_goes_along_and_nothing_begins_anew(harness: EntityHarness) -> None:
    update_metadata(open_context(harness.settings, harness.database).by("ann"), "feed/zebra", {}, ["mine"])
    before, rows = releases(harness), harness.instances()
    found = renamed(harness, "zebra", "lion")
    assert found.recorded_version == 2
    assert found.readers == ("process 'counting'",)
    assert find(harness, "zebra") <= HISTORY
    assert releases(harness) == before
    (digest,) = {each.definition_digest for each in harness.instances().values()}
    assert digest == entity_history(harness.database, "process", "counting")[-1].row.digest[:DEFINITION_DIGITS]
    assert harness.instances() == {time: replace(each, definition_digest=digest) for time, each in rows.items()}
    said = get_metadata(open_context(harness.settings, harness.database), "feed/lion")
    assert "mine" in str(said)
    actions = [each.row.action.value for each in entity_history(harness.database, "feed", "lion")]
    assert actions == ["SUBMITTED", "RENAMED"]
    assert problems(harness) == []
    harness.later(hours=1)
    harness.tick()
    assert releases(harness) == before
    assert harness.instances().keys() - rows.keys() == {at("03T13")}
    assert problems(harness) == []


@pytest.mark.both_databases
def test_a_process_takes_its_instances_along(harness: EntityHarness) -> None:
    before = harness.instances()
    renamed(harness, "counting", "tallying")
    of_file = {("fa_definitions", "text"), ("fa_metadata", "value"), ("fa_search_tokens", "token")}
    assert find(harness, "counting") <= HISTORY | of_file | {("fa_workflow_files", "content")}  # counting.sql
    assert harness.instances("counting") == {}
    found = harness.instances("tallying")
    assert found.keys() == before.keys()
    digests = {each.definition_digest for each in found.values()}
    assert digests == {entity_history(harness.database, "process", "tallying")[-1].row.digest[:DEFINITION_DIGITS]}
    harness.tick()
    assert harness.instances("tallying") == found
    assert problems(harness) == []


def test_only_names_change_in_files_and_comments_stay(harness: EntityHarness) -> None:
    files = harness.folder / "entities"
    for file in files.rglob("*.yaml"):
        file.unlink()
    text = """# all zebra
kind: cluster
name: primary
storage: file://${PROJECT_ROOT}/data
---
kind: feed
name:   zebra # the zebra
tags: {name: zebra}
frequency: hours(1)
format: csv
locations: {data: "/zebra/${YEAR}-${MONTH}-${DAY}/${HOUR}"}
clusters:
  primary:
    validity: {start: 2013-11-01T00:00Z}
    retention: {limit: days(90), until_read_by: [counting]}
---
kind: feed
name: counts
frequency: hours(1)
format: csv
schema: n int
quality: {min_rows: 1, quarantine: bad}
locations: {data: "/counts/${YEAR}-${MONTH}-${DAY}/${HOUR}"}
clusters: {primary: {validity: {start: 2013-11-01T00:00Z}}}
---
kind: feed
name: "bad"
frequency: hours(1)
format: csv
locations: {data: "/bad/${YEAR}-${MONTH}-${DAY}/${HOUR}"}
clusters: {primary: {validity: {start: 2013-11-01T00:00Z}}}
---
kind: process
name: counting
frequency: hours(1)
clusters: {primary: {validity: {start: 2013-11-01T00:00Z}}}
inputs: {"zebra": {feed: 'zebra', start: "now(0,0)", end: "now(0,0)"}}   # a zebra
outputs: {counts: {feed: counts, instance: "now(0,0)"}}
workflow: {engine: sql, path: counting.sql}
"""
    (files / "all.yaml").write_text(text)
    (harness.folder / "counting.sql").write_text("select 1 as n from zebra")
    harness.context().store.record_found(harness.now, may_delete_all=True)
    edits = {"name:   zebra": "name:   lion", "feed: 'zebra'": "feed: lion"}
    expected = text
    for old, new in edits.items():
        assert expected.count(old) == 1
        expected = expected.replace(old, new)
    renamed(harness, "zebra", "lion")
    assert (files / "all.yaml").read_text() == expected
    renamed(harness, "counting", "tallying")
    renamed(harness, "bad", "null")
    expected = expected.replace("[counting]", "[tallying]").replace("name: counting", "name: tallying")
    expected = expected.replace("quarantine: bad", 'quarantine: "null"').replace('name: "bad"', 'name: "null"')
    assert (files / "all.yaml").read_text() == expected


def test_a_dry_run_changes_nothing_and_its_digest_is_that_of_the_change(harness: EntityHarness) -> None:
    before = find(harness, "zebra")
    planned = renamed(harness, "zebra", "lion", dry_run=True)
    assert planned.lines[0] == "feed 'zebra': would be renamed to 'lion'"
    assert "code is not searched" in planned.lines[-2]
    assert find(harness, "lion") == set()
    assert find(harness, "zebra") == before
    entity_changes.update(harness.context(), [file_of(changed(COUNTS, description="numbers"))])
    assert planned.digest is not None
    with pytest.raises(PlanOutdatedError):
        rename(harness.context(), None, "zebra", "lion", planned.digest)
    again = renamed(harness, "zebra", "lion", dry_run=True).digest
    assert again is not None
    assert rename(harness.context(), None, "zebra", "lion", again[:8]).is_change


@pytest.mark.both_databases
def test_repeating_it_says_that_it_is_done_and_back_is_back(harness: EntityHarness) -> None:
    renamed(harness, "zebra", "lion")
    assert renamed(harness, "zebra", "lion").lines == ("feed 'zebra': it is called 'lion' already",)
    with pytest.raises(EntityNotFoundError, match="It is called 'lion' now"):
        renamed(harness, "zebra", "tiger")
    renamed(harness, "lion", "zebra")
    assert find(harness, "lion") <= HISTORY
    assert problems(harness) == []
    with pytest.raises(EntityNotFoundError):
        renamed(harness, "tiger", "cat")


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("zebra", "counts", "it is declared already"),
        ("zebra", "zebra", "it is declared already"),
        ("zebra", "no_name", "no feed and no process can have this name"),
        ("zebra", "gone", "it was deleted, and its record stays under this name"),
        ("primary", "other", "a cluster cannot be renamed"),
    ],
)
def test_a_name_that_cannot_be_had_is_refused(harness: EntityHarness, old: str, new: str, reason: str) -> None:
    gone = changed(CLICKS, name="gone", locations={"data": "/gone/${YEAR}-${MONTH}-${DAY}/${HOUR}"})
    entity_changes.submit(harness.context(), [file_of(gone)])
    entity_changes.delete(harness.context(), Kind.FEED, ["gone"])
    with pytest.raises(VerbRefusedError, match=reason):
        renamed(harness, old, new)


def test_it_is_refused_while_a_run_works_on_it(harness: EntityHarness) -> None:
    harness.put(ProcessInstanceStatus.RUNNING, at("03T10"), run_id="a run")
    for old in ("zebra", "counts", "counting"):
        with pytest.raises(VerbRefusedError, match=r"run a run works on counting 2013-11-03T10:00Z .* instance kill"):
            renamed(harness, old, "lion")
    harness.put(ProcessInstanceStatus.FAILED, at("03T10"))
    assert renamed(harness, "zebra", "lion").is_change


def test_a_name_that_was_edited_in_a_file_loses_nothing_unasked(harness: EntityHarness) -> None:
    for file in (harness.folder / "entities").rglob("*.yaml"):
        file.write_text(file.read_text().replace("zebra", "lion"))
    planned = plan_files(harness.context(), None)
    (issue,) = [each for each in planned.issues if each.code == "renamed-in-files"]
    assert "feed 'zebra' goes, and feed 'lion' has its place" in issue.message
    assert "feed-assets entity rename feed zebra lion" in issue.line
    with pytest.raises(RenamedInFilesError, match=r"feed 'zebra' is gone, and feed 'lion' has its place"):
        harness.tick()
    with harness.database.begin() as connection:  # what ticks note that go by the files meanwhile
        Cursors(connection).put("watch/primary/zebra", "old")
        Cursors(connection).put("watch/primary/lion", "new")
        (mark,) = [each for each in Watermarks(connection).all(WatermarkKind.FEED).values() if each.entity == "zebra"]
        Watermarks(connection).put([replace(mark, entity="lion", next_index=0)])
    before = releases(harness)
    assert renamed(harness, "zebra", "lion").is_change
    with harness.database.read() as connection:
        assert Watermarks(connection).get(WatermarkKind.FEED, "lion", "primary") == replace(mark, entity="lion")
        assert Cursors(connection).with_prefix("watch/primary/") == {"lion": "old"}
    assert find(harness, "zebra") <= HISTORY
    harness.tick()
    assert releases(harness) == before
    assert problems(harness) == ["the file was edited by other means after the change 1"] * 2
    assert plan_files(harness.context(), None).difference.is_empty


def test_another_entity_at_the_same_place_is_confirmed_by_applying(harness: EntityHarness) -> None:
    file = harness.folder / "entities" / "process" / "counting.yaml"
    file.write_text(file.read_text().replace("name: counting", "name: tallying"))
    planned = plan_files(harness.context(), None)
    assert [each.code for each in planned.issues if "entity rename" in each.line] == ["renamed-in-files"]
    apply_planned(harness.context(), planned)
    assert {each.status for each in harness.instances("counting").values()} == {ProcessInstanceStatus.KILLED}


def test_falcons_xml_is_edited_too(harness: EntityHarness) -> None:
    entity = find_entity(
        yaml.safe_dump(changed(CLICKS, name="views", locations={"data": "/seen/${YEAR}/${MONTH}/${DAY}/${HOUR}"})),
        DocumentFormat.YAML,
    )
    assert entity is not None
    text = render_falcon(entity)
    file = harness.folder / "entities/feed/views.xml"
    file.write_text(text)
    harness.context().record()
    renamed(harness, "views", "looks")
    assert file.read_text() == text.replace('name="views"', 'name="looks"')
    assert find(harness, "views") <= HISTORY
    assert problems(harness) == []


@pytest.mark.parametrize(
    ("renaming", "expected"),
    [
        (Renaming(kind=Kind.PROCESS, old="old", new="new"), {'process name="old"': 'process name="new"'}),
        (Renaming(kind=Kind.FEED, old="old", new="new"), {"feed='old'": "feed='new'"}),
    ],
)
def test_attributes_of_xml_are_replaced(renaming: Renaming, expected: dict[str, str]) -> None:
    text = XML.replace(
        "<workflow", '<inputs><input name="old" feed=\'old\' start="today(0,0)" end="today(0,0)"/></inputs><workflow'
    )
    (wanted,) = [text.replace(old, new) for old, new in expected.items()]
    assert renamed_text(text, ("process", "old"), DocumentFormat.XML, renaming, NO_VALUES) == wanted != text


@pytest.mark.both_databases
def test_a_queue_goes_on_where_it_was(harness: EntityHarness) -> None:
    """The feed has no input of its own, so that the queue has it under its own name."""
    trigger = {"when": ["zebra", "counts"], "from": "earliest"}
    batch = {**changed(READING, name="batching", trigger=trigger)}
    for gone in ("frequency", "inputs", "outputs"):
        del batch[gone]
    entity_changes.submit(harness.context(skip_checks=True), [file_of(batch)], and_schedule=True)
    with harness.database.begin() as connection:
        EventLog(connection).append([event(feed="zebra", nominal_time=at("03T05"), recorded_at=harness.now)])
    trigger_tick(harness)
    marks, (state,) = rows(harness, "fa_trigger_inputs"), rows(harness, "fa_triggers")
    assert {row["input"]: row["pending"] for row in marks} == {"zebra": 1, "counts": 0}
    renamed(harness, "zebra", "lion")
    expected = [row | ({"input": "lion", "feed": "lion"} if row["feed"] == "zebra" else {}) for row in marks]
    assert sorted(rows(harness, "fa_trigger_inputs"), key=str) == sorted(expected, key=str)
    (after,) = rows(harness, "fa_triggers")
    assert after["sign"] != state["sign"]
    assert after | {"sign": ""} == state | {"sign": ""}
    trigger_tick(harness)
    assert sorted(rows(harness, "fa_trigger_inputs"), key=str) == sorted(expected, key=str)
    assert rows(harness, "fa_triggers")[0]["sign"] == after["sign"]
    assert find(harness, "zebra") <= HISTORY


def rows(harness: EntityHarness, table: str) -> list[dict[str, Any]]:
    with harness.database.read() as connection:
        return [dict(row) for row in connection.execute(text(f"SELECT * FROM {table}")).mappings()]


def trigger_tick(harness: EntityHarness) -> None:
    """What a tick does to queues."""
    harness.tick()
    context = replace(open_context(harness.settings, harness.database), as_of=harness.now)
    apply_triggers(open_tick(context, "primary"))


def test_paths_of_events_and_plans_of_sweeps_stay_what_they_are(harness: EntityHarness) -> None:
    paths = [f"data/zebra/2013-11-03/{hour:02}" for hour in (5, 6)]
    draft = SweepDraft("s1", "primary")
    draft.add("zebra", "data", [SweepItem(paths[0], at("03T05"), 5, 1, "age", "older than days(2)")])
    asking = draft.finish(SweepState.ASKING, as_of=NOON, created_at=NOON, author="ann", origin="a test", log_seq=0)
    payloads = [{"path": path, "process": "counting"} for path in paths]
    with harness.database.begin() as connection:
        EventLog(connection).append([event(feed="zebra", nominal_time=at("03T05"), payload=payloads[0])])
        EventLog(connection).append([event(feed="counts", nominal_time=at("03T06"), payload=payloads[1])])
        Sweeps(connection).add(asking, draft.chunks)
    renamed(harness, "zebra", "lion")
    renamed(harness, "counting", "tallying")
    with harness.database.read() as connection:
        first, second = EventLog(connection).read(0, 10)
        sweep = Sweeps(connection).find("s1")
        assert sweep is not None
        SweepChunks(connection, "s1").require_intact(sweep)
        assert sweep.counts[0].feed == "lion"
    assert (first.feed, first.payload) == ("lion", payloads[0] | {"process": "tallying"})
    assert (second.feed, second.payload) == ("counts", payloads[1] | {"process": "tallying"})
