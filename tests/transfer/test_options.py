"""Preserved times and permissions, dry runs, limits on bandwidth, files that cannot be read."""

import os
from pathlib import Path

import pytest

from feed_assets.entities.copies.options import Preserve
from feed_assets.plan.copy_records import CopyOptions, OnError
from feed_assets.storage.errors import StorageError
from feed_assets.storage.records import Availability
from feed_assets.transfer import running
from feed_assets.transfer.finishing import INCOMPLETE
from feed_assets.transfer.plans import plan_copy
from feed_assets.transfer.requests import CopyStatus
from feed_assets.transfer.running import Throttle, run_task
from feed_assets.transfer.tasks import open_copy, part_tasks
from tests.storage.trees import read_tree
from tests.transfer.sides import FLAG, LATER, PATH, SMALL, Pair, copy_instance, pattern
from tests.transfer.watching import Watch, watched_stores

MiB = 1 << 20


class Unreadable:
    """Lets reading some files of a source fail as a disk does."""

    def __init__(self, *files: str) -> None:
        self.files = set(files)

    def __call__(self, call: str, file: str) -> None:
        if call == "source.chunks" and file in self.files:
            raise StorageError(store="source", path=file, reason="Input/output error", next_step="Look at the disk.")


class FakeTime:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.at = 0.0

    def monotonic(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += seconds


@pytest.mark.parametrize("preserve", [frozenset(), frozenset(Preserve)])
def test_times_and_permissions_are_preserved_when_asked_for(pair: Pair, preserve: frozenset[Preserve]) -> None:
    assert pair.source.root is not None
    assert pair.target.root is not None
    pair.source.land({**SMALL, "large.bin": pattern(5 * MiB)})
    for number, name in enumerate((*SMALL, "large.bin")):
        os.utime(pair.source.root / PATH / name, ns=(10**18 + number, 10**18 + number))
        (pair.source.root / PATH / name).chmod(0o640)
    pair.copy(preserve=preserve)
    for number, name in enumerate((*SMALL, "large.bin")):
        found = (pair.target.root / PATH / name).stat()
        is_same = (found.st_mtime_ns, found.st_mode & 0o777) == (10**18 + number, 0o640)
        assert is_same is bool(preserve)
    pair.require_equal()


def test_a_storage_that_knows_no_times_gets_none(any_pair: Pair) -> None:
    any_pair.source.publish(SMALL)
    any_pair.copy(preserve=frozenset(Preserve))
    any_pair.require_equal()


def test_a_dry_run_tells_files_and_bytes_and_writes_nothing(pair: Pair) -> None:
    pair.source.publish(SMALL)
    assert pair.target.root is not None
    before = read_tree(pair.target.root, hidden=True)
    plan = pair.plan()
    assert ({file.path for file in plan.transfers}, plan.bytes) == (set(SMALL), 404)
    assert read_tree(pair.target.root, hidden=True) == before == {}
    pair.copy()
    before = read_tree(pair.target.root, hidden=True)
    pair.source.publish({"x.csv": b"other"}, token="run-2")
    plan = pair.plan()
    assert (plan.bytes, plan.kept, len(plan.removed), plan.is_unchanged) == (5, (), 3, False)
    assert read_tree(pair.target.root, hidden=True) == before
    pair.copy()
    assert pair.plan().is_unchanged


def test_a_throttle_lets_a_quarter_of_a_second_pass_at_once_and_then_its_rate() -> None:
    time = FakeTime()
    limit = Throttle(1000, monotonic=time.monotonic, sleep=time.sleep)
    for _ in range(25):
        limit.take(10)
    assert time.at == 0.0
    for _ in range(1000):
        limit.take(10)
    assert time.at == pytest.approx(10.0)
    time.at += 100.0
    limit.take(1250)
    assert time.at == pytest.approx(111.0)


def test_a_limit_for_all_tasks_holds_for_all_together(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    time = FakeTime()
    monkeypatch.setattr(running, "time", time)
    monkeypatch.setattr(Throttle.__init__, "__kwdefaults__", {"monotonic": time.monotonic, "sleep": time.sleep})
    pair.source.land({f"{number}.bin": pattern(MiB, number) for number in range(10)} | {"l.bin": pattern(10 * MiB)})
    copied = pair.copy(bandwidth=4 * MiB, max_tasks=1)
    assert copied.bytes == 20 * MiB
    assert time.at == pytest.approx((20 - 1) / 4, abs=0.3)


def test_tasks_that_are_not_worth_executors_have_the_whole_limit(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    time = FakeTime()
    monkeypatch.setattr(running, "time", time)
    monkeypatch.setattr(Throttle.__init__, "__kwdefaults__", {"monotonic": time.monotonic, "sleep": time.sleep})
    pair.source.land({f"{number}.bin": pattern(MiB, number) for number in range(10)})
    sides, options = (pair.source.side(), pair.target.side()), CopyOptions(bandwidth=4 * MiB, max_tasks=5)
    copied = copy_instance(pair.stores, *sides, options, run_tasks=lambda _: None)
    assert copied.bytes == 10 * MiB
    assert time.at == pytest.approx((10 - 1) / 4, abs=0.3)


@pytest.mark.parametrize("is_published", [True, False])
def test_a_limit_for_each_task_holds_for_each(pair: Pair, monkeypatch: pytest.MonkeyPatch, is_published: bool) -> None:
    (pair.source.publish if is_published else pair.source.land)(
        {name: pattern(4 * MiB, seed) for seed, name in enumerate(("k", "l", "m"))}
    )
    options = CopyOptions(task_bandwidth=2 * MiB, max_tasks=3)
    plan = plan_copy(pair.stores, pair.source.side(), pair.target.side(), options, LATER)
    tasks = part_tasks([open_copy(pair.stores, plan)], 3, shares_bandwidth=False)
    assert [task.rate for task in tasks] == [2 * MiB] * 3
    for task in tasks:
        time = FakeTime()
        monkeypatch.setattr(Throttle.__init__, "__kwdefaults__", {"monotonic": time.monotonic, "sleep": time.sleep})
        run_task(task, pair.stores)
        assert time.at == pytest.approx(max(0, task.bytes / (2 * MiB) - 0.25), abs=0.1)


def test_tasks_that_run_elsewhere_share_the_limit_of_all(pair: Pair) -> None:
    pair.source.land({name: pattern(4 * MiB) for name in ("k", "l", "m")})
    options = CopyOptions(bandwidth=6 * MiB, task_bandwidth=5 * MiB, max_tasks=3)
    plan = plan_copy(pair.stores, pair.source.side(), pair.target.side(), options, LATER)
    copy = open_copy(pair.stores, plan)
    assert [task.rate for task in part_tasks([copy], 3)] == [2 * MiB] * 3
    assert [task.rate for task in part_tasks([copy], 1)] == [5 * MiB]


def broken(pair: Pair, *files: str) -> Unreadable:
    watch, trouble = Watch(), Unreadable(*files)
    watch.before = trouble
    pair.stores = watched_stores(watch)
    return trouble


@pytest.mark.parametrize("bad", ["x.csv", "large.bin"])
def test_a_file_that_cannot_be_read_stops_the_copy(pair: Pair, bad: str) -> None:
    pair.source.land({**SMALL, "large.bin": pattern(20 * MiB)})
    trouble = broken(pair, bad)
    with pytest.raises(StorageError, match="Input/output error"):
        pair.copy()
    assert pair.target.availability() is Availability.MISSING
    trouble.files.clear()
    pair.copy()
    pair.require_equal()


def test_with_a_report_all_others_are_copied_every_failure_is_named_and_nothing_is_published(pair: Pair) -> None:
    pair.source.land({**SMALL, "large.bin": pattern(20 * MiB)})
    trouble = broken(pair, "x.csv", "large.bin")
    copied = pair.copy(on_error=OnError.REPORT)
    assert copied.status is CopyStatus.INCOMPLETE
    assert sorted(failure.file for failure in copied.failures) == ["large.bin", "x.csv"]
    assert all("Input/output error" in failure.reason for failure in copied.failures)
    assert (copied.files, copied.bytes) == (3, 403)
    assert pair.target.availability() is Availability.MISSING
    trouble.files.clear()
    watch = Watch()
    pair.stores = watched_stores(watch)
    copied = pair.copy(on_error=OnError.REPORT)
    assert (copied.status, copied.resumed, watch.read) == (CopyStatus.COPIED, 403, 20 * MiB + 1)
    pair.require_equal()


def test_what_could_be_copied_of_a_directory_is_published_without_a_flag_when_that_is_asked_for(pair: Pair) -> None:
    pair.source.land(SMALL)
    pair.copy()
    pair.source.land({"x.csv": b"later", "part-0.csv": b"later, too"})
    trouble = broken(pair, "x.csv")
    copied = pair.copy(on_error=OnError.PUBLISH)
    assert copied.status is CopyStatus.INCOMPLETE
    assert pair.target.read() == {**SMALL, "part-0.csv": b"later, too"}
    assert pair.target.availability() is Availability.PARTIAL
    published = pair.target.store.published_manifest(PATH)
    assert published is not None
    assert published.extra[INCOMPLETE] == "1"
    assert published.digest == pair.target.store.manifest(PATH, FLAG).digest
    trouble.files.clear()
    copied = pair.copy(on_error=OnError.PUBLISH)
    assert (copied.status, copied.files) == (CopyStatus.COPIED, 1)
    pair.require_equal()
    assert pair.target.availability() is Availability.AVAILABLE


def test_a_link_inside_the_source_is_copied_as_the_file_it_leads_to(pair: Pair) -> None:
    assert pair.source.root is not None
    pair.source.land({"a.csv": b"a"})
    (pair.source.root / PATH / "b.csv").symlink_to("a.csv")
    pair.copy()
    assert pair.target.read() == {"a.csv": b"a", "b.csv": b"a"}


@pytest.mark.parametrize(
    ("to", "reason"), [("/etc/hostname", "out of the storage root"), ("nowhere", "leads nowhere"), (".", "directory")]
)
def test_a_link_that_is_no_file_of_the_source_is_refused(pair: Pair, to: str, reason: str, tmp_path: Path) -> None:
    assert pair.source.root is not None
    pair.source.land({"a.csv": b"a"})
    (pair.source.root / PATH / "b.csv").symlink_to(to)
    with pytest.raises(StorageError, match=reason):
        pair.copy()
    assert pair.target.availability() is Availability.MISSING
