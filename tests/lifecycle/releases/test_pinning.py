import hashlib
from datetime import timedelta
from pathlib import Path

import pytest

from feed_assets.engines.port import Work
from feed_assets.entities.common import Kind
from feed_assets.lifecycle.releases.pinning import store_pinned_files
from feed_assets.lifecycle.releases.plan_changes import touch_process
from feed_assets.operations.explaining.explanations import explain
from feed_assets.operations.explaining.records import ReasonCode
from feed_assets.plan import pinned_files
from feed_assets.plan.pinned_files import with_pinned_files
from feed_assets.plan.release_fingerprint import Step
from feed_assets.state.workflow_files import WorkflowFiles
from tests.lifecycle.world import START, World, at, feed, hours, process
from tests.operations.contexts import context_of

SQL = {"engine": "sql", "path": "count.sql"}
KEY = ("count", "primary")


def written(work: Work) -> dict[str, str]:
    """What a job writes that writes its own file."""
    return {target.name: work.read_file(work.path).decode() for target in work.outputs}


def entities(**more: object) -> tuple[object, ...]:
    counting = process("count", inputs={"clicks": "now(0,0)"}, outputs={"counts": "now(0,0)"}, workflow=SQL, **more)
    return (feed("clicks"), feed("counts"), counting)


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A process with a SQL file that has made the instances of six hours; it is 05:30."""
    (tmp_path / "count.sql").write_text("first")
    world = World.of(tmp_path, *entities())
    world.job = written
    world.land("clicks", *hours(10))
    world.now = at("01T05:30")
    world.launch(world.tick(world.now), world.now)
    return world


def change(world: World, text: str, **more: object) -> None:
    """Change the file; the definitions are loaded again."""
    (world.root / "count.sql").write_text(text)
    world.declare(*entities(**more))


def made_again(world: World, hour: int) -> str | None:
    nominal_time = START + timedelta(hours=hour)
    (published,) = world.run("count", nominal_time, max(world.now, nominal_time), world.run_id())
    content = world.content("counts", nominal_time) or ""
    assert published.details["code"] == f"sha256:{hashlib.sha256(content.encode()).hexdigest()}"
    return content


def test_row_104_a_changed_file_takes_effect_from_the_next_instance_on(world: World) -> None:
    change(world, "second")
    (decision,) = world.decisions
    assert (decision.step, decision.effective_from) == (Step.SUCCEEDED, at("01T06:00"))
    world.now = at("01T07:30")
    world.launch(world.tick(world.now), world.now)
    assert [made_again(world, hour) for hour in (0, 5, 6, 7)] == ["first", "first", "second", "second"]


def test_row_104_the_file_of_a_release_outlives_the_file(world: World) -> None:
    change(world, "second")
    (world.root / "count.sql").unlink()
    assert made_again(world, 0) == "first"
    assert made_again(world, 8) == "second"


def test_row_104_a_touch_of_the_past_gives_old_instances_the_present_file(world: World) -> None:
    change(world, "second")
    touch_process(world.database, world.timeline, KEY, world.now, at("01T03:00"))
    assert [made_again(world, hour) for hour in (2, 3)] == ["first", "second"]


def test_an_old_release_of_another_definition_keeps_its_file_too(world: World) -> None:
    change(world, "second", properties={"limit": "3"})
    assert [made_again(world, hour) for hour in (0, 6)] == ["first", "second"]
    change(world, "third", properties={"limit": "3"}, parallel=2)
    assert made_again(world, 0) == "first"


def test_an_unchanged_file_makes_no_release(world: World) -> None:
    change(world, "first")
    assert world.decisions == ()
    change(world, "first", parallel=3)
    assert [each.step for each in world.decisions] == [Step.IN_PLACE]
    (world.root / "count.sql").unlink()
    world.declare(*entities(parallel=4))
    assert [each.step for each in world.decisions] == [Step.IN_PLACE]
    change(world, "first")
    assert made_again(world, 0) == "first"


def test_a_release_from_before_files_were_pinned_takes_the_present_ones(tmp_path: Path) -> None:
    world = World.of(tmp_path, *entities())
    world.land("clicks", *hours(2))
    world.now = at("01T01:30")
    world.launch(world.tick(world.now), world.now)
    world.job = written
    change(world, "first")
    assert [each.step for each in world.decisions] == [Step.IN_PLACE]
    change(world, "second")
    assert [each.step for each in world.decisions] == [Step.SUCCEEDED]
    assert made_again(world, 0) == "first"


def test_why_says_that_an_instance_has_a_file_of_its_own(world: World) -> None:
    def governed(hour: int) -> str:
        (found,) = explain(context_of(world, world.now), Kind.PROCESS, "count", START + timedelta(hours=hour)).items
        return next(each.text for each in found.reasons if each.code is ReasonCode.GOVERNED_BY)

    assert governed(0) == "it follows release 1, version 1 of the process"
    change(world, "second")
    assert (
        governed(0)
        == "it follows release 1, version 1 of the process, with its own content of count.sql, changed since"
    )
    world.now = at("01T06:30")
    world.launch(world.tick(world.now), world.now)
    assert governed(6) == "it follows release 2, version 1 of the process"


def test_a_file_that_is_too_large_is_not_kept_and_the_run_says_so(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pinned_files, "KEPT_BYTES", 3)
    change(world, "second")
    world.now = at("01T08:30")
    change(world, "third")
    (published,) = world.run("count", at("01T06:00"), world.now, "another")
    assert world.content("counts", at("01T06:00")) == "third"
    assert published.details["changed_since_release"] == "count.sql"


def test_files_that_change_while_they_are_recorded_make_no_release(world: World) -> None:
    (world.root / "count.sql").write_text("second")
    plan = with_pinned_files(world.plan, world.root)
    (world.root / "count.sql").write_text("third")
    assert not store_pinned_files(world.database, plan, world.root)
    world.use(plan)
    assert world.decisions == ()
    with world.database.read() as connection:
        known = WorkflowFiles(connection).known(set(pinned_files.pinned_digests(plan).values()))
    assert known == frozenset()
