"""Copies of whole instances between all kinds of storage: equal by manifest, flag last, only what has changed."""

import pytest

from feed_assets.entities.copies.options import RemovedFiles
from feed_assets.storage.records import Availability
from feed_assets.transfer.requests import CopyStatus
from tests.transfer.sides import FLAG, PATH, SMALL, SOON, Pair, pattern

LARGE = {"large.bin": pattern(9 << 20), "small.csv": b"small"}


@pytest.mark.parametrize("is_published", [True, False])
def test_a_copy_equals_its_source_by_manifest(any_pair: Pair, is_published: bool) -> None:
    (any_pair.source.publish if is_published else any_pair.source.land)(SMALL)
    copied = any_pair.copy(extra={"run": "7"})
    assert copied.status is CopyStatus.COPIED
    assert (copied.files, copied.bytes) == (len(SMALL), sum(map(len, SMALL.values())))
    assert any_pair.target.read() == SMALL
    assert any_pair.target.names() == {*SMALL, FLAG}
    assert any_pair.target.availability() is Availability.AVAILABLE
    any_pair.require_equal()
    published = any_pair.target.store.published_manifest(PATH)
    assert published is not None
    assert published.extra["run"] == "7"
    assert copied.publication.digest == copied.source_digest == published.digest


def test_a_copy_just_after_the_source_was_written_is_equal_too(any_pair: Pair) -> None:
    any_pair.clock = SOON
    any_pair.source.land(SMALL)
    any_pair.copy()
    any_pair.require_equal()


@pytest.mark.parametrize("is_published", [True, False])
def test_a_large_file_is_copied_whole(any_pair: Pair, is_published: bool) -> None:
    (any_pair.source.publish if is_published else any_pair.source.land)(LARGE)
    assert any_pair.copy().bytes == sum(map(len, LARGE.values()))
    assert any_pair.target.read() == LARGE
    any_pair.require_equal()


def test_a_copy_without_an_availability_flag_has_none(any_pair: Pair) -> None:
    any_pair.source.land(SMALL, flag=None)
    any_pair.copy(flag=None)
    assert any_pair.target.names() == set(SMALL)
    any_pair.require_equal(flag=None)


def test_an_empty_instance_is_copied_as_an_empty_one(any_pair: Pair) -> None:
    any_pair.source.land({})
    copied = any_pair.copy()
    assert (copied.status, copied.files, copied.bytes) == (CopyStatus.COPIED, 0, 0)
    assert any_pair.target.names() == {FLAG}
    assert any_pair.target.availability() is Availability.AVAILABLE
    assert any_pair.copy().status is CopyStatus.UNCHANGED


@pytest.mark.parametrize("is_published", [True, False])
def test_a_second_copy_of_the_same_source_has_nothing_to_do(any_pair: Pair, is_published: bool) -> None:
    (any_pair.source.publish if is_published else any_pair.source.land)(SMALL)
    first = any_pair.copy()
    again = any_pair.copy()
    assert (again.status, again.files, again.bytes) == (CopyStatus.UNCHANGED, 0, 0)
    assert again.source_digest == first.source_digest


@pytest.mark.parametrize("is_published", [True, False])
def test_only_what_has_changed_is_transferred(any_pair: Pair, is_published: bool) -> None:
    write = any_pair.source.publish if is_published else any_pair.source.land
    write(SMALL)
    any_pair.copy()
    changed = {**SMALL, "x.csv": b"another", "new.csv": b"new"}
    if is_published:
        any_pair.source.publish(changed, token="run-2")
    else:
        any_pair.source.land({"x.csv": b"another", "new.csv": b"new"})
    copied = any_pair.copy()
    assert (copied.files, copied.bytes, copied.kept) == (2, 10, 3)
    assert any_pair.target.read() == changed
    any_pair.require_equal()


def test_files_that_the_source_does_not_have_any_more_go_unless_they_are_to_be_kept(any_pair: Pair) -> None:
    any_pair.source.publish(SMALL)
    any_pair.copy()
    less = {name: data for name, data in SMALL.items() if name != "x.csv"}
    any_pair.source.publish(less, token="run-2")
    kept = any_pair.copy(removed_files=RemovedFiles.KEEP)
    assert kept.removed == ()
    assert any_pair.target.read() == SMALL
    any_pair.source.publish({**less, "y.csv": b"y"}, token="run-3")
    copied = any_pair.copy()
    assert copied.removed == ("x.csv",)
    assert any_pair.target.read() == {**less, "y.csv": b"y"}
    any_pair.require_equal()


def test_what_others_left_at_the_target_is_replaced(any_pair: Pair) -> None:
    any_pair.target.land({"x.csv": b"foreign", "foreign.csv": b"foreign", "_hidden": b"hidden"}, flag=None)
    any_pair.source.land(SMALL)
    copied = any_pair.copy(removed_files=RemovedFiles.REMOVE)
    assert copied.removed == ("_hidden", "foreign.csv")
    assert any_pair.target.names() == {*SMALL, FLAG}
    any_pair.require_equal()
