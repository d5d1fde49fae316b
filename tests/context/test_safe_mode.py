from pathlib import Path

import pytest

from feed_assets.context.errors import SafeModeError
from feed_assets.context.safe_mode import Operation, is_safe_mode, load_safe_mode, require_mode, set_safe_mode
from feed_assets.definitions.lists.query_fields import ListQuery
from feed_assets.definitions.lists.reading import find_page, find_status, show_definition
from feed_assets.definitions.verbs import changes as entity_changes
from feed_assets.definitions.verbs.changes import update_cluster_dependents
from feed_assets.definitions.verbs.schedules import resume, schedule, suspend, touch
from feed_assets.entities.common import Kind
from feed_assets.log.audit import Audit
from feed_assets.sql.database import open_database
from tests.definitions.verbs.harness import ALL, COUNTING, EntityHarness, changed, file_of


@pytest.fixture
def harness(tmp_path: Path) -> EntityHarness:
    harness = EntityHarness.at(tmp_path)
    entity_changes.submit(harness.context(), [file_of(*ALL)], and_schedule=True)
    set_safe_mode(harness.database, is_on=True, author="root", now=harness.now, reason="the cluster moves")
    return harness


TABLE = {
    Operation.SUBMIT: False,
    Operation.SUBMIT_AND_SCHEDULE: False,
    Operation.SCHEDULE: False,
    Operation.UPDATE: False,
    Operation.DELETE: False,
    Operation.TOUCH: False,
    Operation.RESUME: False,
    Operation.UPDATE_CLUSTER_DEPENDENTS: False,
    Operation.SUSPEND: True,
    Operation.UPDATE_CLUSTER: True,
    Operation.VALIDATE: True,
    Operation.INSTANCE_KILL: True,
    Operation.INSTANCE_SUSPEND: True,
    Operation.INSTANCE_RESUME: False,
    Operation.INSTANCE_RERUN: False,
    Operation.BATCH_INIT: False,
    Operation.FEED_TAKE: False,
    Operation.REPLICATION_REPAIR: False,
    Operation.RETENTION_RUN: False,
    Operation.RETENTION_APPROVE: False,
    Operation.RETENTION_UNDO: False,
    Operation.RETENTION_PURGE: False,
    Operation.RETENTION_RELEASE: False,
    Operation.CLEANUP: False,
}


@pytest.mark.parametrize("operation", list(Operation))
def test_row_122_what_safe_mode_allows_and_what_it_forbids(harness: EntityHarness, operation: Operation) -> None:
    if TABLE[operation]:
        require_mode(harness.database, operation)
    else:
        with pytest.raises(SafeModeError, match=r"not allowed during safe mode \(root has switched it on: the cluster"):
            require_mode(harness.database, operation)
    set_safe_mode(harness.database, is_on=False, author="root", now=harness.now)
    if operation is Operation.UPDATE_CLUSTER:
        with pytest.raises(SafeModeError, match="only allowed during safe mode"):
            require_mode(harness.database, operation)
    else:
        require_mode(harness.database, operation)


def test_row_122_the_verbs_ask(harness: EntityHarness) -> None:
    context = harness.context()
    for refused in (
        lambda: entity_changes.submit(context, [file_of(*ALL)]),
        lambda: entity_changes.submit(context, [file_of(*ALL)], and_schedule=True),
        lambda: entity_changes.update(context, [file_of(changed(COUNTING, parallel=2))]),
        lambda: entity_changes.delete(context, Kind.PROCESS, ["counting"]),
        lambda: schedule(context, Kind.PROCESS, ["counting"]),
        lambda: resume(context, Kind.PROCESS, ["counting"]),
        lambda: touch(context, Kind.PROCESS, "counting"),
        lambda: update_cluster_dependents(context, "primary"),
    ):
        with pytest.raises(SafeModeError):
            refused()
    suspend(context, Kind.PROCESS, ["counting"])
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
    set_safe_mode(harness.database, is_on=False, author="bob", now=harness.now, dry_run=True)
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
