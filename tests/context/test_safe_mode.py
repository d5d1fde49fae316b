from contextlib import nullcontext
from pathlib import Path

import pytest

from feed_assets.context.errors import SafeModeError
from feed_assets.context.safe_mode import is_safe_mode, load_safe_mode, require_allowed, set_safe_mode
from feed_assets.definitions.lists.query_fields import ListQuery
from feed_assets.definitions.lists.reading import find_page, find_status, show_definition
from feed_assets.definitions.verbs import changes as entity_changes
from feed_assets.definitions.verbs.schedules import change_work
from feed_assets.definitions.verbs.verb_results import EntityVerb
from feed_assets.entities.common import Kind
from feed_assets.log.audit import Audit
from feed_assets.operation_list import list_operations
from feed_assets.sql.database import open_database
from tests.definitions.verbs.harness import ALL, COUNTING, EntityHarness, changed, file_of


@pytest.fixture
def harness(tmp_path: Path) -> EntityHarness:
    harness = EntityHarness.at(tmp_path)
    entity_changes.submit(harness.context(), [file_of(*ALL)], and_schedule=True)
    set_safe_mode(harness.database, is_on=True, author="root", now=harness.now, reason="the cluster moves")
    return harness


REFUSED = {
    "admin cleanup",
    "batch init",
    "entity clone",
    "entity delete",
    "entity rename",
    "entity resume",
    "entity schedule",
    "entity submit",
    "entity submit-and-schedule",
    "entity touch",
    "entity update-cluster-dependents",
    "extension enable",
    "extension job delete",
    "extension job resume",
    "extension job schedule",
    "extension job submit",
    "extension register",
    "extension unregister",
    "hold release",
    "instance rerun",
    "instance resume",
    "registration repair",
    "replication repair",
    "retention approve",
    "retention purge",
    "retention run",
    "retention undo",
}


def test_row_122_what_safe_mode_allows_and_what_it_forbids(harness: EntityHarness) -> None:
    for each in list_operations().items:
        told = r"not allowed during safe mode \(root has switched it on: the cluster moves\)"
        with pytest.raises(SafeModeError, match=told) if each.name in REFUSED else nullcontext():
            require_allowed(harness.database, each)
    set_safe_mode(harness.database, is_on=False, author="root", now=harness.now)
    for each in list_operations().items:
        require_allowed(harness.database, each)


def test_row_122_safe_mode_lets_clusters_be_updated_and_work_be_stopped(harness: EntityHarness) -> None:
    context = harness.context()
    with pytest.raises(SafeModeError):
        entity_changes.update(context, [file_of(changed(COUNTING, parallel=2))])
    change_work(context, EntityVerb.SUSPEND, Kind.PROCESS, ["counting"])
    entity_changes.validate(context, [file_of(COUNTING)])
    entity_changes.update(context, [file_of(changed(ALL[0], colo="nyc"))])
    assert find_status(context, Kind.PROCESS, "counting").state == "SUSPENDED"
    assert find_page(context, ListQuery()).total == 4
    assert show_definition(context, Kind.PROCESS, "counting")


def test_row_122_safe_mode_survives_a_restart(harness: EntityHarness) -> None:
    harness.database.close()
    with open_database(f"sqlite:///{harness.folder}/state.db").read() as connection:
        mode = load_safe_mode(connection)
    assert (mode.is_on, mode.author, mode.changed_at, mode.reason) == (True, "root", harness.now, "the cluster moves")


def test_switching_is_in_the_audit_and_switching_again_is_nothing(harness: EntityHarness) -> None:
    set_safe_mode(harness.database, is_on=True, author="eve", now=harness.now)
    tried = set_safe_mode(harness.database, is_on=False, author="bob", now=harness.now, reason="done", dry_run=True)
    assert tried.sentence == "safe mode would be off: done"
    with harness.database.read() as connection:
        assert is_safe_mode(connection)
    set_safe_mode(harness.database, is_on=False, author="bob", now=harness.now)
    with harness.database.read() as connection:
        assert not is_safe_mode(connection)
        newest = Audit(connection).newest(2)
    assert [(entry.author, entry.action) for entry in newest] == [("bob", "safemode off"), ("root", "safemode on")]


def test_nobody_is_asked_outside_in_safe_mode(harness: EntityHarness) -> None:
    unreachable = changed(ALL[0], catalog="thrift://127.0.0.1:1")
    assert entity_changes.update(harness.context(), [file_of(unreachable)]).is_change
