"""Entity verbs with the state in a real PostgreSQL, by several people at once."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from feed_assets.context.safe_mode import set_safe_mode
from feed_assets.definitions.lists.reading import find_status
from feed_assets.definitions.verbs import changes as entity_changes
from feed_assets.definitions.verbs.changes import update_cluster_dependents
from feed_assets.definitions.verbs.schedules import change_work
from feed_assets.definitions.verbs.states import EntityState
from feed_assets.definitions.verbs.verb_results import EntityVerb, VerbOutcome
from feed_assets.entities.common import Kind
from feed_assets.log.audit import Audit
from feed_assets.log.records import ProcessInstanceStatus
from tests.definitions.verbs.harness import ALL, CLUSTER, COUNTING, EntityHarness, changed, file_of
from tests.instances.harness import at

pytestmark = pytest.mark.server


@pytest.fixture
def harness(postgres_url: str, tmp_path: Path) -> EntityHarness:
    return EntityHarness.at(tmp_path, state=postgres_url)


def together(*commands: Callable[[], object]) -> list[object]:
    with ThreadPoolExecutor(len(commands)) as pool:
        return [future.result() for future in [pool.submit(command) for command in commands]]


def test_the_life_of_an_entity(harness: EntityHarness) -> None:
    def submit() -> list[VerbOutcome]:
        result = entity_changes.submit(harness.context(skip_checks=True), [file_of(*ALL)])
        return [each.outcome for each in result.outcomes]

    found = together(submit, submit, submit)
    assert sorted(map(str, found)) == sorted(
        map(str, [[VerbOutcome.SUBMITTED] * 4, *[[VerbOutcome.UNCHANGED] * 4] * 2])
    )
    together(
        *[lambda: change_work(harness.context(skip_checks=True), EntityVerb.SCHEDULE, Kind.PROCESS, ["counting"])] * 2
    )
    harness.tick()
    deadline = harness.instances()[at("03T12")].deadline_at
    change_work(harness.context(), EntityVerb.SUSPEND, Kind.PROCESS, ["counting"])
    assert find_status(harness.context(), Kind.PROCESS, "counting").state is EntityState.SUSPENDED
    harness.later(hours=2)
    harness.tick()
    assert max(harness.instances()) == at("03T12")
    together(*[lambda: change_work(harness.context(), EntityVerb.RESUME, Kind.PROCESS, ["counting"])] * 3)
    harness.tick()
    assert max(harness.instances()) == at("03T14")
    assert deadline is not None
    assert harness.instances()[at("03T12")].deadline_at == deadline + timedelta(hours=2)
    updated = entity_changes.update(harness.context(), [file_of(changed(COUNTING, parallel=2))])
    assert updated.outcomes[0].version == 2
    set_safe_mode(harness.database, is_on=True, author="root", now=harness.now)
    entity_changes.update(harness.context(), [file_of(changed(CLUSTER, colo="nyc"))])
    set_safe_mode(harness.database, is_on=False, author="root", now=harness.now)
    assert len(update_cluster_dependents(harness.context(), "primary").outcomes) == 3
    harness.put(ProcessInstanceStatus.SUCCEEDED, at("01"))
    deleted = entity_changes.delete(harness.context(), Kind.PROCESS, ["counting"])
    assert len(deleted.stopped) == len(harness.instances()) - 1
    assert harness.statuses() == {ProcessInstanceStatus.SUCCEEDED, ProcessInstanceStatus.KILLED}
    with harness.database.read() as connection:
        actions = [entry.action for entry in Audit(connection).newest(100)]
    assert actions.count("schedule") == 1
    assert actions.count("resume") == 1
    assert actions.count("submit") == 4
