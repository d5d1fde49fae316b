"""Sweep, undo, sweep again over many instances: the trees are equal byte for byte after the undo."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from feed_assets.clock import Stopwatch
from feed_assets.log.records import FeedEventKind, FeedInstanceStatus
from feed_assets.log.removals.records import ItemOutcome, SweepState
from feed_assets.retention.sweeps.purging import find_purgeable, purge_sweeps
from tests.drills import sized
from tests.instances.harness import START
from tests.retention.harness import RetentionHarness, hourly, kept_feed, paths_of

SIZE = sized(300, 10_000)
YOUNG = 48


@contextmanager
def timed(what: str) -> Iterator[None]:
    watch = Stopwatch()
    yield
    print(f"{what} {SIZE:,} instances: {watch.seconds:.2f} s")


def fill(folder: Path, number: int) -> None:
    """What an instance is like: files of some sizes, hidden ones, links, empty folders, other rights."""
    (folder / "part.csv").write_bytes(bytes([number % 251]) * (number % 900))
    (folder / "_SUCCESS").touch()
    if number % 7 == 0:
        (folder / "link").symlink_to(folder.parent)
    if number % 11 == 0:
        (folder / "sub").mkdir(mode=0o711)
        (folder / "sub/.hidden").write_text("h")
    if number % 13 == 0:
        folder.chmod(0o750)


@pytest.mark.sample
@pytest.mark.timeout(1800)
def test_many_instances_go_come_back_and_go_again(tmp_path: Path) -> None:
    harness = RetentionHarness.of(
        tmp_path, kept_feed(flag="_SUCCESS", sweep_limits={"share": 1.0, "instances": 1_000_000})
    )
    expired, young = hourly(START, SIZE), hourly(START + timedelta(hours=SIZE), YOUNG)
    for number, time in enumerate((*expired, *young)):
        folder = harness.lifecycle.folder("clicks", time)
        folder.mkdir(parents=True)
        fill(folder, number)
    harness.arrive(START + timedelta(hours=SIZE + YOUNG))
    tree, rows = harness.tree(), harness.rows()
    for again in (False, True):
        with timed("plan of"):
            sweep = harness.planned()
        with timed("sweep of"):
            harness.run(sweep)
        assert harness.sweep(sweep.sweep_id).state is SweepState.DONE
        assert harness.outcomes(sweep) == {ItemOutcome.EVICTED: SIZE}
        assert set(harness.lifecycle.store().trash().contents(sweep.sweep_id)) == paths_of(expired)
        left = {path for path in harness.tree() if path.count("/") == 2}
        assert left == paths_of(young)
        assert len(harness.events(FeedEventKind.EVICTED)) == SIZE * (1 + again)
        with timed("undo of"):
            done = harness.undo(sweep)
        assert (done.restored, done.left, done.sweep.state) == (SIZE, (), SweepState.UNDONE)
        assert harness.tree() == tree
        for time, row in harness.rows().items():
            was = rows[time]
            assert (row.status, row.manifest_digest, row.bytes) == (was.status, was.manifest_digest, was.bytes)
    with timed("third sweep of"):
        last = harness.sweep_now()
    harness.now = last.purge_at or harness.now
    context = harness.context()
    with timed("purge of"):
        purged = purge_sweeps(context, "primary", find_purgeable(context, "primary", harness.now, at_once=True))
    assert [each.obstacle for each in purged] == [None, None, None]
    assert harness.lifecycle.store().trash().sweeps() == []
    statuses = harness.lifecycle.feed_statuses("clicks")
    assert {statuses[time] for time in expired} == {FeedInstanceStatus.EVICTED}
    assert {statuses[time] for time in young} == {FeedInstanceStatus.AVAILABLE}
