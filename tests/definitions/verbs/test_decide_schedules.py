from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from feed_assets.definitions.verbs.schedules import decide_schedules
from feed_assets.entities.common import Kind
from feed_assets.log.definitions.records import Schedule, ScheduleState
from feed_assets.log.definitions.schedules import Schedules, ScheduleView, state_without_row
from feed_assets.log.records import ProcessInstanceStatus
from feed_assets.settings import ScheduleMode, load_settings
from feed_assets.sql.database import open_state_database
from tests.instances.harness import LifecycleHarness, at, hours, process

SUBMITTED, SCHEDULED, SUSPENDED = ScheduleState
ROW = Schedule(
    kind="process",
    name="counting",
    cluster="primary",
    state=SCHEDULED,
    changed_at=at("01"),
    author="ann",
    scheduled_at=at("01"),
)
VIEW = ScheduleView(without_row=SUBMITTED, rows={ROW.key: ROW})


def decide(clusters: list[str], wanted: ScheduleState) -> tuple[Schedule, ...]:
    return decide_schedules(VIEW, Kind.PROCESS, "counting", clusters, wanted, author="bob", now=at("02"))


def test_an_entity_without_a_schedule_has_the_state_of_the_setting(tmp_path: Path) -> None:
    assert VIEW.state("process", "counting", "backup") is SUBMITTED
    assert VIEW.is_scheduled("process", "counting", "primary")
    assert not VIEW.is_scheduled("feed", "counting", "primary")
    for mode, state in zip(ScheduleMode, (SCHEDULED, SUBMITTED), strict=True):
        settings = load_settings({"schedule": mode.value}, start=tmp_path)
        database = open_state_database(f"sqlite:///{tmp_path}/{mode}.db", settings)
        database.migrate()
        with database.read() as connection:
            assert state_without_row(connection) is state
        database.close()


def test_a_state_is_written_where_it_is_another() -> None:
    assert decide(["primary"], SCHEDULED) == ()
    (suspended,) = decide(["primary"], SUSPENDED)
    assert suspended == replace(ROW, state=SUSPENDED, changed_at=at("02"), author="bob")
    (new,) = decide(["primary", "backup"], SCHEDULED)
    assert (new.cluster, new.state, new.scheduled_at) == ("backup", SCHEDULED, at("02"))


@pytest.mark.parametrize("state", [SUBMITTED, SUSPENDED])
def test_the_first_time_that_something_was_scheduled_is_kept(state: ScheduleState) -> None:
    (first,) = decide(["backup"], state)
    assert first.scheduled_at is None
    later = ScheduleView(without_row=SUBMITTED, rows={ROW.key: replace(ROW, state=state)})
    (again,) = decide_schedules(
        later, Kind.PROCESS, "counting", ["primary"], SCHEDULED, author="bob", now=at("05") + timedelta(hours=1)
    )
    assert again.scheduled_at == at("01")


@pytest.mark.parametrize("ready_a_tick", [2, 5_000])
def test_what_is_suspended_is_not_launched_however_much_is_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ready_a_tick: int
) -> None:
    monkeypatch.setattr("feed_assets.instances.gates.requests.READY_A_TICK", ready_a_tick)
    lifecycle = LifecycleHarness.of(tmp_path, process("counting"), process("other"))
    with lifecycle.database.begin() as connection:
        Schedules(connection).put([replace(ROW, state=SUSPENDED)])
    for name in ("counting", "other"):
        lifecycle.put_instances(name, hours(4), ProcessInstanceStatus.READY)
    assert [request.process.process for request in lifecycle.request(at("02"))] == ["other"]
