from dataclasses import replace

import pytest

from feed_assets.instances.steps.records import StepRun, StepStatus
from feed_assets.instances.steps.store import Steps
from feed_assets.sql.database import Database
from tests.log.samples import hour

pytestmark = pytest.mark.both_databases


FIRST = StepRun(
    process="daily",
    cluster="primary",
    nominal_time=hour(0),
    attempt=1,
    step="load",
    position=1,
    status=StepStatus.PENDING,
    basis="a b",
    made_in=1,
)
BEFORE = replace(FIRST, step="extract", position=0)
OTHER = replace(FIRST, nominal_time=hour(5))


def test_bd_20_a_step_begins_once_in_its_attempt_and_ends_once(database: Database) -> None:
    with database.begin() as connection:
        steps = Steps(connection)
        steps.add([FIRST, BEFORE])
        assert not steps.end(FIRST, StepStatus.SUCCEEDED, hour(1))
        assert not steps.begin(FIRST.key, 2, "load", hour(1))
        assert steps.begin(FIRST.key, 1, "load", hour(1))
        assert not steps.begin(FIRST.key, 1, "load", hour(2))
        assert steps.end(FIRST, StepStatus.SUCCEEDED, hour(3), frames={"rows": {"a": 1}})
        assert not steps.end(FIRST, StepStatus.FAILED, hour(4), reason="late")
    ended = replace(FIRST, status=StepStatus.SUCCEEDED, started_at=hour(1), ended_at=hour(3), frames={"rows": {"a": 1}})
    with database.read() as connection:
        assert Steps(connection).of(FIRST.key) == [BEFORE, ended]


def test_the_steps_of_some_instances_begin_anew(database: Database) -> None:
    with database.begin() as connection:
        steps = Steps(connection)
        steps.add([FIRST, OTHER])
        assert steps.begin_anew([FIRST.key]) == [FIRST]
        assert steps.begin_anew([]) == []
        assert [run.basis for key in (FIRST.key, OTHER.key) for run in steps.of(key)] == ["", "a b"]
