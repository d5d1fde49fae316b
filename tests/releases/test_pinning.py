import hashlib
from datetime import timedelta
from pathlib import Path

import pytest

from feed_assets.engines.port import Work
from feed_assets.explain.explanations import explain
from feed_assets.explain.records import ReasonCode
from feed_assets.instances.gates.plan_changes import touch_process
from feed_assets.plan import pinned_files
from feed_assets.plan.pinned_files import with_pinned_files
from feed_assets.plan.release_fingerprint import Step
from feed_assets.releases.store import WorkflowFiles, store_pinned_files
from tests.context.contexts import about, context_of
from tests.instances.harness import START, LifecycleHarness, at, feed, hours, process

SQL = {"engine": "sql", "path": "count.sql"}
KEY = ("count", "primary")


def written(work: Work) -> dict[str, str]:
    """What a job writes that writes its own file."""
    return {target.name: work.read_file(work.path).decode() for target in work.outputs}


def entities(**more: object) -> tuple[object, ...]:
    counting = process("count", inputs={"clicks": "now(0,0)"}, outputs={"counts": "now(0,0)"}, workflow=SQL, **more)
    return (feed("clicks"), feed("counts"), counting)


@pytest.fixture
def lifecycle(tmp_path: Path) -> LifecycleHarness:
    """A process with a SQL file that has made the instances of six hours; it is 05:30."""
    (tmp_path / "count.sql").write_text("first")
    lifecycle = LifecycleHarness.of(tmp_path, *entities())
    lifecycle.job = written
    lifecycle.land("clicks", *hours(10))
    lifecycle.now = at("01T05:30")
    lifecycle.launch(lifecycle.tick(lifecycle.now), lifecycle.now)
    return lifecycle


def change(lifecycle: LifecycleHarness, text: str, **more: object) -> None:
    """Change the file; the definitions are loaded again."""
    (lifecycle.root / "count.sql").write_text(text)
    lifecycle.declare(*entities(**more))


def made_again(lifecycle: LifecycleHarness, hour: int) -> str | None:
    nominal_time = START + timedelta(hours=hour)
    (published,) = lifecycle.run("count", nominal_time, max(lifecycle.now, nominal_time), lifecycle.run_id())
    content = lifecycle.content("counts", nominal_time) or ""
    assert published.details["code"] == f"sha256:{hashlib.sha256(content.encode()).hexdigest()}"
    return content


def test_row_104_a_changed_file_takes_effect_from_the_next_instance_on(lifecycle: LifecycleHarness) -> None:
    change(lifecycle, "second")
    (decision,) = lifecycle.decisions
    assert (decision.step, decision.effective_from) == (Step.SUCCEEDED, at("01T06:00"))
    lifecycle.now = at("01T07:30")
    lifecycle.launch(lifecycle.tick(lifecycle.now), lifecycle.now)
    assert [made_again(lifecycle, hour) for hour in (0, 5, 6, 7)] == ["first", "first", "second", "second"]


def test_row_104_the_file_of_a_release_outlives_the_file(lifecycle: LifecycleHarness) -> None:
    change(lifecycle, "second")
    (lifecycle.root / "count.sql").unlink()
    assert made_again(lifecycle, 0) == "first"
    assert made_again(lifecycle, 8) == "second"


def test_row_104_a_touch_of_the_past_gives_old_instances_the_present_file(lifecycle: LifecycleHarness) -> None:
    change(lifecycle, "second")
    touch_process(lifecycle.database, lifecycle.timeline, KEY, lifecycle.now, at("01T03:00"))
    assert [made_again(lifecycle, hour) for hour in (2, 3)] == ["first", "second"]


def test_an_old_release_of_another_definition_keeps_its_file_too(lifecycle: LifecycleHarness) -> None:
    change(lifecycle, "second", properties={"limit": "3"})
    assert [made_again(lifecycle, hour) for hour in (0, 6)] == ["first", "second"]
    change(lifecycle, "third", properties={"limit": "3"}, parallel=2)
    assert made_again(lifecycle, 0) == "first"


def test_an_unchanged_file_makes_no_release(lifecycle: LifecycleHarness) -> None:
    change(lifecycle, "first")
    assert lifecycle.decisions == ()
    change(lifecycle, "first", parallel=3)
    assert [each.step for each in lifecycle.decisions] == [Step.IN_PLACE]
    (lifecycle.root / "count.sql").unlink()
    lifecycle.declare(*entities(parallel=4))
    assert [each.step for each in lifecycle.decisions] == [Step.IN_PLACE]
    change(lifecycle, "first")
    assert made_again(lifecycle, 0) == "first"


def test_a_release_from_before_files_were_pinned_takes_the_present_ones(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, *entities())
    lifecycle.land("clicks", *hours(2))
    lifecycle.now = at("01T01:30")
    lifecycle.launch(lifecycle.tick(lifecycle.now), lifecycle.now)
    lifecycle.job = written
    change(lifecycle, "first")
    assert [each.step for each in lifecycle.decisions] == [Step.IN_PLACE]
    change(lifecycle, "second")
    assert [each.step for each in lifecycle.decisions] == [Step.SUCCEEDED]
    assert made_again(lifecycle, 0) == "first"


def test_why_says_that_an_instance_has_a_file_of_its_own(lifecycle: LifecycleHarness) -> None:
    def governed(hour: int) -> str:
        (found,) = about(explain, context_of(lifecycle, lifecycle.now), "count", START + timedelta(hours=hour)).items
        return next(each.text for each in found.reasons if each.code is ReasonCode.GOVERNED_BY)

    assert governed(0) == "it follows release 1, version 1 of the process"
    change(lifecycle, "second")
    assert (
        governed(0)
        == "it follows release 1, version 1 of the process, with its own content of count.sql, changed since"
    )
    lifecycle.now = at("01T06:30")
    lifecycle.launch(lifecycle.tick(lifecycle.now), lifecycle.now)
    assert governed(6) == "it follows release 2, version 1 of the process"


def test_a_file_that_is_too_large_is_not_kept_and_the_run_says_so(
    lifecycle: LifecycleHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pinned_files, "KEPT_BYTES", 3)
    change(lifecycle, "second")
    lifecycle.now = at("01T08:30")
    change(lifecycle, "third")
    (published,) = lifecycle.run("count", at("01T06:00"), lifecycle.now, "another")
    assert lifecycle.content("counts", at("01T06:00")) == "third"
    assert published.details["changed_since_release"] == "count.sql"


def test_files_that_change_while_they_are_recorded_make_no_release(lifecycle: LifecycleHarness) -> None:
    (lifecycle.root / "count.sql").write_text("second")
    plan = with_pinned_files(lifecycle.plan, lifecycle.root)
    (lifecycle.root / "count.sql").write_text("third")
    assert not store_pinned_files(lifecycle.database, plan, lifecycle.root)
    lifecycle.use(plan)
    assert lifecycle.decisions == ()
    with lifecycle.database.read() as connection:
        known = WorkflowFiles(connection).known(set(pinned_files.pinned_digests(plan).values()))
    assert known == frozenset()
