"""The job `operate`: what Dagster has no button for, done as the commands do it."""

import re
from pathlib import Path
from typing import Any

import pytest
from dagster import DagsterInstance, ExecuteInProcessResult

from feed_assets.context.safe_mode import set_safe_mode
from feed_assets.log.audit import Audit
from feed_assets.log.records import ProcessInstanceStatus
from feed_assets.orchestration.runs.jobs import build_operate_job
from feed_assets.testing.projects import failure_of
from tests.orchestration.dagster_home import Home
from tests.orchestration.hand_ticked import NOON, LocationHarness
from tests.orchestration.small import land

WAITING, KILLED = ProcessInstanceStatus.WAITING, ProcessInstanceStatus.KILLED
SUSPENDED = ProcessInstanceStatus.SUSPENDED


@pytest.fixture
def harness(tmp_path: Path, instance: DagsterInstance) -> LocationHarness:
    """Some instances wait."""
    made = LocationHarness(Home(folder=tmp_path), instance)
    made.tick()
    return made


def launch(harness: LocationHarness, **config: Any) -> ExecuteInProcessResult:
    job = build_operate_job(harness.runtime)
    return job.execute_in_process(
        run_config={"ops": {"operation": {"config": config}}},
        instance=harness.instance,
        tags={"user": "ann"},
        raise_on_error=False,
    )


def audit(harness: LocationHarness) -> list[tuple[str, str]]:
    with harness.runtime.database(harness.instance).read() as connection:
        return [(each.author, each.action) for each in Audit(connection).newest(10)]


def log(harness: LocationHarness, done: ExecuteInProcessResult) -> str:
    return "\n".join(each.user_message for each in harness.instance.all_logs(done.run_id))


def test_instances_are_killed_suspended_resumed_and_run_again(harness: LocationHarness) -> None:
    waited = harness.counts()[WAITING]
    done = launch(harness, action="kill", name="summing", start="2026-01-01T02:00Z", end="2026-01-01T04:00Z")
    assert done.success
    assert '"changed": 2' in log(harness, done)
    assert launch(harness, action="suspend", name="summing", instance="2026-01-01T05:00Z", clusters=["here"]).success
    assert harness.counts() == {WAITING: waited - 3, KILLED: 2, SUSPENDED: 1}
    assert launch(harness, action="resume", name="summing", instance="2026-01-01-05:00").success
    assert launch(harness, action="rerun", name="summing", instance="2026-01-01T02:00Z", properties={"a": "b"}).success
    assert harness.counts() == {WAITING: waited - 1, KILLED: 1}
    actions = [f"instance {each}" for each in ("rerun", "resume", "suspend", "kill")]
    assert audit(harness)[:4] == [("ann", each) for each in actions]


def test_a_dry_run_changes_nothing(harness: LocationHarness) -> None:
    before = harness.counts()
    done = launch(harness, action="kill", name="summing", instance="2026-01-01T02:00Z", dry_run=True)
    assert '"dry_run": true' in log(harness, done)
    assert harness.counts() == before


def test_a_rerun_of_what_hangs_on_it_needs_the_digest_that_its_dry_run_says(harness: LocationHarness) -> None:
    which = {"action": "rerun", "name": "summing", "instance": "2026-01-01T02:00Z", "downstream": True}
    assert launch(harness, action="kill", name="summing", instance="2026-01-01T02:00Z").success
    before = harness.counts()
    (digest,) = re.findall(r'"digest": "(\w+)"', log(harness, launch(harness, **which, levels=2, dry_run=True)))
    assert "it is not, or no longer, that of this rerun" in failure_of(launch(harness, **which, digest=digest[:8]))
    assert harness.counts() == before
    done = launch(harness, **which, levels=2, digest=digest[:8])
    assert done.success
    assert harness.counts() == {WAITING: before[WAITING] + 1}


def test_a_feed_is_held(harness: LocationHarness) -> None:
    land(harness.home.data, 1, 1)
    done = launch(harness, action="hold", name="numbers", instance="2026-01-01T01:00Z", hold="audit", reason="asked")
    assert done.success
    assert audit(harness)[0] == ("ann", "hold add")


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (
            {"action": "kill", "name": "summing"},
            "kill summing: no range is given. Give either instance, or start and end.",
        ),
        (
            {"action": "kill", "name": "summing", "instance": "2026-01-01T02:00Z", "properties": {"a": "b"}},
            "kill summing: it takes no properties. Leave that out.",
        ),
        ({"action": "undo", "name": "2013", "start": "2013-01-01T00:00Z"}, "undo 2013: it takes no start."),
        (
            {"action": "rerun", "name": "summing", "instance": "2026-01-01T02:00Z", "levels": 2},
            "rerun summing: levels, even_unchanged and digest are of what is downstream. Say downstream, too.",
        ),
        ({"action": "approve", "name": "2013"}, "sweep '2013': it does not exist"),
        ({"action": "kill", "name": "summng", "instance": "2026-01-01T02:00Z"}, "summng"),
        ({"action": "rerun", "name": "summing", "instance": "soon"}, "'soon'"),
    ],
)
def test_a_wrong_configuration_fails_with_the_sentence(
    harness: LocationHarness, config: dict[str, Any], sentence: str
) -> None:
    before = harness.counts()
    done = launch(harness, **config)
    assert not done.success
    assert sentence in failure_of(done)
    assert harness.counts() == before


def test_safe_mode_forbids_it_as_it_does_a_command(harness: LocationHarness) -> None:
    set_safe_mode(harness.runtime.database(harness.instance), author="ann", reason="work", is_on=True, now=NOON)
    done = launch(harness, action="rerun", name="summing", instance="2026-01-01T02:00Z")
    assert "safe mode" in failure_of(done)


def test_the_launchpad_says_what_is_to_be_filled_in(harness: LocationHarness) -> None:
    (definition,) = build_operate_job(harness.runtime).all_node_defs
    fields = definition.config_schema.config_type.fields  # type: ignore[attr-defined]
    assert all(field.description for field in fields.values())
    assert [name for name, field in fields.items() if field.is_required] == ["action", "name"]
    assert [name for name, field in fields.items() if not field.default_provided] == ["action", "name"]  # filled in
