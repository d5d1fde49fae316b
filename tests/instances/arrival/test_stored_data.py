"""Storage that has lost what the record has: it is looked at once a day, and before anything acts on what is left."""

from datetime import datetime, timedelta
from pathlib import Path
from shutil import rmtree

import pytest

from feed_assets.clock import FrozenClock
from feed_assets.context.bulkheads import Bulkheads, TickStep
from feed_assets.instances.arrival.stored_data import apply_stored_looks, require_stored
from feed_assets.log.records import FeedEventKind, FeedInstanceStatus
from feed_assets.rebuild.rebuilding import rebuild_instances
from feed_assets.replication.queries import AuditQuery
from feed_assets.replication.repairing import repair
from feed_assets.storage.errors import StorageAwayError, StorageError
from tests.context.contexts import context_of
from tests.instances.harness import START, LifecycleHarness, at, counted_statements, feed, hours, process
from tests.replication.test_flows import harness_of, replicated
from tests.retention.harness import RetentionHarness, kept_feed

DAY = timedelta(days=1)


def looked(lifecycle: LifecycleHarness, as_of: datetime) -> Bulkheads:
    """A tick looks at what is stored; what fails is recorded."""
    bulkheads = Bulkheads.open(lifecycle.database, "primary", FrozenClock(as_of))
    apply_stored_looks(lifecycle.open_tick(as_of, bulkheads=bulkheads))
    bulkheads.save(lifecycle.database)
    return bulkheads


def stored(root: Path) -> LifecycleHarness:
    """Two feeds have arrived for three days, and the first tick has looked."""
    lifecycle = LifecycleHarness.of(root, feed("a"), feed("b"))
    for name in ("a", "b"):
        lifecycle.land(name, *hours(72))
    lifecycle.arrive(at("03T23:30"))
    looked(lifecycle, at("03T23:30"))
    return lifecycle


def lost(lifecycle: LifecycleHarness, name: str) -> list[datetime]:
    return [each.nominal_time for each in lifecycle.events(name) if each.kind is FeedEventKind.VANISHED]


def test_what_is_gone_is_told_within_a_day_as_one_failure_of_the_storage_and_its_end(tmp_path: Path) -> None:
    lifecycle = stored(tmp_path)
    for name in ("a", "b"):
        rmtree(tmp_path / "primary" / name)
    (tmp_path / "primary" / "other").mkdir()
    for hour in range(25):
        bulkheads = looked(lifecycle, at("03T23:30") + timedelta(hours=hour))
    (failure,) = bulkheads.failures
    assert (failure.step, failure.subject) == (TickStep.STORED_DATA, f"file://{tmp_path}/primary")
    assert "it has lost what it had: " in failure.reason
    assert [max(lost(lifecycle, name)) for name in ("a", "b")] == [hours(72)[-1]] * 2
    assert all(len(lost(lifecycle, name)) <= 4 for name in ("a", "b"))
    for name in ("a", "b"):
        lifecycle.land(name, *hours(72))
    for hour in range(25, 76):
        bulkheads = looked(lifecycle, at("03T23:30") + timedelta(hours=hour))
    assert bulkheads.failures == []


def test_a_feed_that_cannot_be_looked_at_hides_no_loss_of_another(tmp_path: Path) -> None:
    lifecycle = stored(tmp_path)
    folder = lifecycle.folder("a", hours(72)[-1])
    rmtree(folder)
    folder.symlink_to(tmp_path)
    rmtree(tmp_path / "primary" / "b")
    (failure,) = looked(lifecycle, at("05")).failures
    assert "it has lost what it had: " in failure.reason
    assert "b 2013-11-03T23:00Z" in failure.reason
    assert max(lost(lifecycle, "b")) == hours(72)[-1]


def test_the_same_instance_and_another_one_each_day_are_looked_at_and_nothing_between(tmp_path: Path) -> None:
    lifecycle = stored(tmp_path)
    seen: list[set[str]] = []
    for day in range(3):
        lifecycle.looked.clear()
        for hour in range(24):
            looked(lifecycle, at("04") + day * DAY + timedelta(hours=hour))
        seen.append({path for path in lifecycle.looked if path.startswith("a/")})
        assert len(lifecycle.looked) <= 4
    newest = lifecycle.feed("a").path(hours(72)[-1])
    assert all(newest in paths for paths in seen)
    assert len(set.union(*seen) - {newest}) >= 2
    with counted_statements() as statements:
        looked(lifecycle, at("06T23:00") + timedelta(seconds=1))
    assert len(statements) <= 4


def test_a_storage_with_nothing_below_its_root_has_lost_nothing_and_says_that_it_may_be_away(tmp_path: Path) -> None:
    lifecycle = stored(tmp_path)
    rmtree(tmp_path / "primary")
    (tmp_path / "primary").mkdir()
    for hour in range(25):
        bulkheads = looked(lifecycle, at("04") + timedelta(hours=hour))
    (failure,) = bulkheads.failures
    assert "nothing at all lies below it, so what the record has there may only be away" in failure.reason
    assert lost(lifecycle, "a") == lost(lifecycle, "b") == []
    with pytest.raises(StorageAwayError):
        require_stored(lifecycle.context(at("05")), lifecycle.feed("a"))


def test_nothing_is_repaired_from_a_storage_that_has_lost_its_newest_instance(tmp_path: Path) -> None:
    lifecycle = harness_of(tmp_path, replicated())
    lifecycle.land("clicks", *hours(2))
    lifecycle.arrive(at("01T01:30"))
    rmtree(lifecycle.folder("clicks", hours(2)[-1]))
    context = context_of(lifecycle, at("01T01:30"))
    with pytest.raises(StorageError, match="it has lost what it had: clicks 2013-11-01T01:00Z"):
        repair(context.by("ann"), AuditQuery(feed="clicks"))
    assert lifecycle.feed_statuses("clicks")[START] is FeedInstanceStatus.AVAILABLE


def test_a_sweep_leaves_a_feed_alone_whose_newest_instance_is_gone(tmp_path: Path) -> None:
    harness = RetentionHarness.of(tmp_path, kept_feed("clicks", limit="hours(2)"))
    harness.land("clicks", *hours(6))
    harness.arrive(hours(6)[-1])
    sweep = harness.planned()
    rmtree(harness.lifecycle.folder("clicks", hours(6)[-1]))
    before = harness.tree()
    with pytest.raises(StorageError, match="it has lost what it had: clicks 2013-11-01T05:00Z"):
        harness.run(sweep)
    assert harness.tree() == before


def test_what_was_made_here_and_is_back_is_recorded_by_a_rebuild(tmp_path: Path) -> None:
    made = process("make", inputs={"a": "now(0,0)"}, outputs={"b": "now(0,0)"}, end=hours(2)[-1])
    lifecycle = LifecycleHarness.of(tmp_path, feed("a"), feed("b"), made)
    lifecycle.land("a", START)
    lifecycle.launch(lifecycle.tick(START), START)
    aside = lifecycle.folder("b", START).rename(tmp_path / "aside")
    with pytest.raises(StorageError, match="feed-assets state rebuild"):
        require_stored(lifecycle.context(at("02")), lifecycle.feed("b"))
    aside.rename(lifecycle.folder("b", START))
    assert lifecycle.feed_statuses("b") == {START: FeedInstanceStatus.MISSING}
    rebuild_instances(context_of(lifecycle, at("02T01")))
    assert lifecycle.feed_statuses("b") == {START: FeedInstanceStatus.AVAILABLE}
    assert lifecycle.tick(at("02T02")) == []
