import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from feed_assets.context.errors import VersionNotFoundError
from feed_assets.definitions.edits import Put, Remove
from feed_assets.definitions.lists.history import blame, entity_history, governing_version
from feed_assets.entities.errors import EntityNotFoundError
from feed_assets.json_form import render_document
from feed_assets.log.definitions.records import Member, Release
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import ProcessInstance, ProcessInstanceStatus
from feed_assets.releases.store import Releases
from feed_assets.sql.database import Database
from tests.databases import open_migrated
from tests.definitions.harness import NOW, DefinitionsHarness, put, remove

DAY = timedelta(days=1)
PROCESS = """kind: process
name: daily
frequency: days(1)
clusters: {primary: {validity: {start: 2015-01-01T00:00Z}}}
workflow: {engine: python, path: a:b}
"""


@pytest.fixture
def harness(tmp_path: Path) -> DefinitionsHarness:
    database = open_migrated(f"sqlite:///{tmp_path}/state.db")
    return DefinitionsHarness(database=database, location=str(tmp_path / "entities"))


def _tell(harness: DefinitionsHarness, *authors: str) -> None:
    """The life of a process, a day for each author."""
    texts = [
        PROCESS,
        PROCESS + "timeout: hours(6)\ntags: {owner: ops}\n",
        PROCESS + "timeout: hours(9)\ntags: {owner: ops}\n",
        PROCESS + "tags: {owner: ops, tier: one}\n",
    ]
    for n, author in enumerate(authors):
        harness.change(Put(text=texts[n]), author=author, now=NOW + n * DAY)


def _fields(found: Any) -> dict[str, tuple[object, int, str]]:
    json.dumps(render_document(fields=found))
    return {each.field: (each.value, each.version, each.author) for each in found}


def test_a_history_says_who_changed_what_and_when(harness: DefinitionsHarness) -> None:
    _tell(harness, "ann", "bob", "cid")
    harness.change(Remove(key=("process", "daily")), author="dan", now=NOW + 3 * DAY)
    entries = entity_history(harness.database, "process", "daily")
    document = json.loads(json.dumps(render_document(history=entries)))
    versions = [(each.version, each.action.value, each.author) for each in entries]
    changes = [[change.field for change in each.changes] for each in entries]
    assert [(*version, fields) for version, fields in zip(versions, changes, strict=True)] == [
        (
            1,
            "SUBMITTED",
            "ann",
            ["name", "clusters.primary.validity.start", "frequency", "workflow.path"],
        ),
        (2, "UPDATED", "bob", ["tags.owner", "timeout"]),
        (3, "UPDATED", "cid", ["timeout"]),
        (4, "DELETED", "dan", []),
    ]
    (change,) = entries[2].changes
    assert (change.before, change.after) == ("hours(6)", "hours(9)")
    assert document["history"][2]["recorded_at"] == "2024-01-03T00:00:00Z"


def test_blame_names_the_version_that_made_each_field_what_it_is(harness: DefinitionsHarness) -> None:
    _tell(harness, "ann", "bob", "cid")
    found = _fields(blame(harness.database, "process", "daily"))
    assert found == {
        "name": ("daily", 1, "ann"),
        "frequency": ("days(1)", 1, "ann"),
        "clusters.primary.validity.start": ("2015-01-01T00:00Z", 1, "ann"),
        "workflow.path": ("a:b", 1, "ann"),
        "timeout": ("hours(9)", 3, "cid"),
        "tags.owner": ("ops", 2, "bob"),
    }


def test_blame_of_one_field_shows_what_is_below_it_too(harness: DefinitionsHarness) -> None:
    _tell(harness, "ann", "bob", "cid", "dan")
    assert _fields(blame(harness.database, "process", "daily", "tags")) == {
        "tags.owner": ("ops", 2, "bob"),
        "tags.tier": ("one", 4, "dan"),
    }
    assert _fields(blame(harness.database, "process", "daily", "timeout")) == {"timeout": (None, 4, "dan")}
    with pytest.raises(VersionNotFoundError, match="'parallel'; its default has always held"):
        blame(harness.database, "process", "daily", "parallel")


def test_what_is_submitted_again_after_a_deletion_is_blamed_on_that(harness: DefinitionsHarness) -> None:
    harness.change(put("a", 2), author="ann")
    harness.change(remove("a"), author="bob")
    with pytest.raises(EntityNotFoundError):
        blame(harness.database, "feed", "a")
    harness.change(put("a", 2), author="cid")
    assert {(each.version, each.author) for each in blame(harness.database, "feed", "a")} == {(3, "cid")}


def test_what_was_never_declared_has_no_history(harness: DefinitionsHarness) -> None:
    database = harness.database
    for ask in (entity_history, blame):
        with pytest.raises(EntityNotFoundError, match="no feed 'nothing'"):
            ask(database, "feed", "nothing")


def _release(database: Database, number: int, start: int, version: int) -> None:
    members = (Member(kind="feed", name="a", version=1), Member(kind="process", name="daily", version=version))
    with database.begin() as connection:
        Releases(connection).put(
            [
                Release(
                    process="daily",
                    cluster="primary",
                    release=number,
                    effective_from=NOW + start * DAY,
                    fingerprint=str(number),
                    members=members,
                    recorded_at=NOW,
                    reason="a test",
                )
            ]
        )


def test_an_instance_is_governed_by_the_release_of_its_time_or_the_one_it_ran_by(harness: DefinitionsHarness) -> None:
    harness.change(put("a"))
    _tell(harness, "ann", "bob")
    _release(harness.database, 1, 0, 1)
    _release(harness.database, 2, 5, 2)
    ran = ProcessInstance(
        process="daily",
        cluster="primary",
        nominal_time=NOW + 6 * DAY,
        status=ProcessInstanceStatus.SUCCEEDED,
        updated_at=NOW,
        release=1,
    )
    with harness.database.begin() as connection:
        ProcessInstances(connection).add_waiting([ran])

    def version(day: int) -> list[tuple[str, int]] | None:
        found = governing_version(harness.database, "daily", "primary", NOW + day * DAY)
        return [(each.name, each.version) for each in found.versions] or None

    assert [version(day) for day in (-1, 0, 4, 5, 6, 7)] == [
        None,
        [("daily", 1), ("a", 1)],
        [("daily", 1), ("a", 1)],
        [("daily", 2), ("a", 1)],
        [("daily", 1), ("a", 1)],
        [("daily", 2), ("a", 1)],
    ]
    found = governing_version(harness.database, "daily", "primary", NOW)
    json.dumps(render_document(found))
