"""A second copy reads and writes only what has changed, whoever wrote source and target."""

from pathlib import Path

import pytest

from feed_assets.storage.records import Availability
from feed_assets.transfer.requests import CopyStatus
from tests.transfer.sides import FLAG, PATH, SMALL, SOON, Pair, pattern
from tests.transfer.watching import Watch, watched_stores

MANY = {f"day={number % 7}/part-{number:03}.csv": pattern(4096, number) for number in range(200)}


@pytest.fixture
def watch(pair: Pair) -> Watch:
    watch = Watch()
    pair.stores = watched_stores(watch)
    return watch


def test_a_first_copy_reads_and_writes_every_byte_once(pair: Pair, watch: Watch) -> None:
    pair.source.publish(MANY)
    size = pair.copy().bytes
    assert (watch.read, watch.written, watch.read_back) == (size, size, size)


def test_a_source_that_stands_as_it_was_published_costs_two_heads_and_no_listing(pair: Pair, watch: Watch) -> None:
    pair.source.publish(MANY)
    pair.copy()
    watch.reset()
    assert pair.copy().status is CopyStatus.UNCHANGED
    assert [call for call, _ in watch.calls] == ["receive_from", "url", "find_publication", "mark", "url"]


def test_a_source_of_others_that_did_not_change_is_listed_and_not_read(pair: Pair, watch: Watch) -> None:
    pair.source.land(MANY)
    pair.copy()
    watch.reset()
    assert pair.copy().status is CopyStatus.UNCHANGED
    assert (watch.read, watch.written, watch.read_back) == (0, 0, 0)
    assert "standing" not in {call for call, _ in watch.calls}


@pytest.mark.parametrize("is_published", [True, False])
def test_one_percent_changed_is_one_percent_read_and_written(pair: Pair, watch: Watch, is_published: bool) -> None:
    if is_published:
        pair.source.publish(MANY)
    else:
        pair.source.land(MANY)
    pair.copy()
    changed = {name: pattern(5000, 999) for name in list(MANY)[:2]}
    if is_published:
        pair.source.publish({**MANY, **changed}, token="run-2")
    else:
        pair.source.land(changed)
    watch.reset()
    copied = pair.copy()
    assert (copied.files, copied.bytes, copied.kept) == (2, 10_000, 198)
    assert (watch.read, watch.written, watch.read_back) == (10_000, 10_000, 10_000)
    pair.require_equal()


def test_a_source_that_was_published_again_as_it_was_is_only_written_down(pair: Pair, watch: Watch) -> None:
    pair.source.publish(MANY)
    pair.copy()
    pair.source.publish(MANY, token="run-2")
    watch.reset()
    assert pair.copy().status is CopyStatus.UNCHANGED
    assert (watch.read, watch.written) == (0, 0)


def test_a_source_that_was_published_again_under_other_names_has_the_same_content_unless_names_matter(
    pair: Pair, watch: Watch
) -> None:
    pair.source.publish(SMALL)
    pair.copy()
    pair.source.publish({name.replace("part-", "part-a"): data for name, data in SMALL.items()}, token="run-2")
    watch.reset()
    assert pair.copy().status is CopyStatus.UNCHANGED
    assert (watch.read, watch.written) == (0, 0)
    assert pair.copy(by_name=True).files == 3


def test_equal_files_that_were_brought_by_others_are_read_once_and_kept(pair: Pair, watch: Watch) -> None:
    pair.source.land(SMALL)
    pair.target.publish(SMALL)
    copied = pair.copy()
    assert (copied.files, copied.kept, copied.removed) == (0, len(SMALL), ())
    assert (watch.read, watch.written) == (sum(map(len, SMALL.values())), 0)
    watch.reset()
    assert pair.copy().status is CopyStatus.UNCHANGED
    assert watch.read == 0


def test_a_file_that_was_written_in_place_just_now_is_seen_although_its_size_is_the_same(pair: Pair) -> None:
    pair.clock = SOON
    pair.source.land(SMALL)
    pair.copy()
    pair.source.land({"x.csv": b"y"})
    assert pair.copy().files == 1
    pair.require_equal()


def test_a_published_source_that_was_written_by_hand_is_seen_without_quick(pair: Pair) -> None:
    pair.source.publish({"s/x.csv": b"x", "y.csv": b"y"})
    pair.copy()
    pair.source.land({"s/x.csv": b"z"}, flag=None)
    assert pair.copy().status is CopyStatus.UNCHANGED
    assert pair.copy(quick=False).files == 1
    pair.require_equal()


def test_overwrite_transfers_every_file(pair: Pair) -> None:
    pair.source.publish(SMALL)
    pair.copy()
    copied = pair.copy(overwrite=True)
    assert (copied.status, copied.files, copied.kept) == (CopyStatus.COPIED, len(SMALL), 0)


def test_a_target_that_lost_its_flag_gets_it_again_without_a_transfer(pair: Pair, watch: Watch) -> None:
    pair.source.publish(SMALL)
    pair.copy()
    pair.target.harness.remove(f"{PATH}/{FLAG}")
    watch.reset()
    copied = pair.copy()
    assert (copied.status, copied.files) == (CopyStatus.COPIED, 0)
    assert watch.written == 0
    assert pair.target.availability() is Availability.AVAILABLE


def test_another_source_into_the_same_target_replaces_it(pair: Pair, tmp_path: Path) -> None:
    pair.source.publish(SMALL)
    pair.copy()
    pair.source.publish({"x.csv": b"x", "part-0.csv": b"other"}, path="other")
    request = pair.request(source=pair.source.side("other"))
    (copied,) = pair.copy_many([request])
    assert (copied.files, copied.kept) == (1, 1)
    assert pair.target.read() == {"x.csv": b"x", "part-0.csv": b"other"}


def test_what_a_repair_distrusts_is_compared_and_brought_again(pair: Pair, watch: Watch) -> None:
    pair.source.publish(SMALL)
    pair.copy()
    assert pair.target.root is not None
    (pair.target.root / PATH / "x.csv").write_bytes(b"!")
    pair.target.harness.remove(f"{PATH}/part-0.csv")
    pair.target.land({"extra.csv": b"extra"}, flag=None)
    assert pair.copy().status is CopyStatus.UNCHANGED
    watch.reset()
    (copied,) = pair.copy_many([pair.request(distrusted=frozenset({"x.csv", "part-0.csv", "extra.csv"}))])
    assert (copied.files, copied.kept, copied.removed) == (2, 2, ("extra.csv",))
    assert watch.written == 401
    pair.require_equal()
