"""Abandoned stagings are removed, others are not, and not at every tick."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from feed_assets.clock import SystemClock
from feed_assets.context.bulkheads import Bulkheads, TickStep
from feed_assets.instances.gates.staging_sweep import ABANDONED_AFTER, apply_staging_sweep
from feed_assets.plan.copy_records import StoreAddress
from tests.instances.harness import LifecycleHarness, process
from tests.orchestration.dagster_home import Home, open_dagster
from tests.orchestration.hand_ticked import LocationHarness
from tests.retention.harness import kept_feed


def test_a_staging_is_removed_after_a_week_and_looked_for_once_a_day(tmp_path: Path) -> None:
    with open_dagster(tmp_path / "instance") as instance:
        harness = LocationHarness(Home(folder=tmp_path), instance)
        store = harness.runtime.stores.get(harness.location.plan.feeds["sums", "here"].store)
        staging = store.stage("sums/2026-01-01/00", "abandoned")
        assert staging.local_path is not None
        made = SystemClock().now()

        def sweep(after: timedelta) -> int | None:
            return apply_staging_sweep(replace(harness.open_tick("here"), real_now=made + after))

        assert sweep(timedelta(hours=1)) == 0
        assert sweep(timedelta(hours=24)) is None
        assert staging.local_path.exists()
        assert sweep(ABANDONED_AFTER + timedelta(hours=1)) == 1
        assert not staging.local_path.exists()
        assert sweep(timedelta(hours=2)) == 0, "the clock was set back"
        assert sweep(timedelta(hours=3)) is None


def test_a_store_that_fails_is_tried_again_the_same_day(tmp_path: Path) -> None:
    with open_dagster(tmp_path / "instance") as instance:
        harness = LocationHarness(Home(folder=tmp_path), instance)
        control = harness.home.data / ".feed-assets"
        control.write_text("no folder")

        def sweep() -> int | None:
            return apply_staging_sweep(harness.open_tick("here", bulkheads))

        bulkheads = Bulkheads("here", harness.runtime.real_clock)
        assert sweep() == 0
        (failure,) = bulkheads.failures
        assert (failure.step, failure.subject) == (TickStep.STAGING_SWEEP, harness.home.data.as_uri())
        assert sweep() is None
        control.unlink()
        harness.at(failure.next_try_at)
        bulkheads = Bulkheads("here", harness.runtime.real_clock, bulkheads.failures)
        assert sweep() == 0
        assert bulkheads.failures == []


def test_stagings_in_archives_and_targets_of_mirrors_are_removed_too(tmp_path: Path) -> None:
    archived = kept_feed(action="archive", archive_to=f"file://{tmp_path}/old/${{YEAR}}-${{MONTH}}-${{DAY}}/${{HOUR}}")
    directory = f"file://{tmp_path}/{{}}/models"
    mirror = {"source": {"directory": "/models"}, "target": {"directory": directory.format("there")}}
    mirrored = process("models", workflow={"engine": "directory-mirror", "mirror": mirror})
    lifecycle = LifecycleHarness.of(tmp_path, archived, mirrored)
    places = [StoreAddress(url=f"file://{tmp_path}/{name}") for name in ("primary", "old", "there")]
    stagings = [lifecycle.stores.get(place).stage("some/path", "killed").local_path for place in places]
    made = SystemClock().now()
    assert apply_staging_sweep(lifecycle.open_tick(made + ABANDONED_AFTER + timedelta(hours=1))) == 3
    assert [staging for staging in stagings if staging is not None and staging.exists()] == []
