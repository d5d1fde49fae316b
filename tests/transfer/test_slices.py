"""Copies of parts of an instance: several sources into one target, one source sliced over targets, patterns."""

from pathlib import Path

import pytest

from feed_assets.storage.pool import StorePool
from feed_assets.storage.records import Availability
from feed_assets.transfer.plans import CopyFilter
from feed_assets.transfer.requests import CopyStatus
from tests.transfer.sides import FLAG, LATER, PATH, Pair, local_place

EU = {"region=eu/part-0.csv": b"eu zero", "region=eu/site=1/part-1.csv": b"eu one"}
US = {"region=us/part-0.csv": b"us zero"}


@pytest.fixture
def other(pair: Pair, tmp_path: Path) -> Pair:
    """Another source for the same target."""
    return Pair(local_place(tmp_path / "other"), pair.target)


def test_two_sources_into_one_target_each_publish_their_slice_with_its_own_flag(any_pair: Pair, tmp_path: Path) -> None:
    any_pair.source.publish({**EU, "region=xx/stray.csv": b"stray"})
    other = Pair(local_place(tmp_path / "other"), any_pair.target)
    other.source.publish({**US, "stray.csv": b"stray"})
    copied = any_pair.copy(sub_path="region=eu")
    assert any_pair.target.names() == {*EU, f"region=eu/{FLAG}"}
    assert any_pair.target.availability() is Availability.PARTIAL
    other.copy(sub_path="region=us")
    assert any_pair.target.names() == {*EU, *US, f"region=eu/{FLAG}", f"region=us/{FLAG}"}
    published = any_pair.target.store.published_manifest(PATH)
    assert published is not None
    assert {entry.path for entry in published.entries} == {*EU, *US}
    assert copied.files == len(EU)
    for one, part in ((any_pair, "region=eu"), (other, "region=us")):
        assert one.copy(sub_path=part).status is CopyStatus.UNCHANGED


def test_a_slice_that_changes_leaves_the_other_as_it_is(pair: Pair, other: Pair) -> None:
    pair.source.publish(EU)
    other.source.publish(US)
    pair.copy(sub_path="region=eu")
    other.copy(sub_path="region=us")
    pair.source.publish({"region=eu/part-2.csv": b"eu two"}, token="run-2")
    copied = pair.copy(sub_path="region=eu")
    assert copied.removed == ("region=eu/part-0.csv", "region=eu/site=1/part-1.csv")
    assert pair.target.read() == {"region=eu/part-2.csv": b"eu two", **US}
    assert other.copy(sub_path="region=us").status is CopyStatus.UNCHANGED


def test_slices_that_are_copied_in_one_go_do_not_lose_each_other(pair: Pair, other: Pair) -> None:
    everything = {f"region={number}/part.csv": str(number).encode() for number in range(2)}
    pair.source.publish(everything)
    pair.source.publish(everything, path="copy/05")
    requests = [pair.request(), pair.request(source=pair.source.side("copy/05"))]
    outcomes = pair.copy_many(requests, sub_path="region=*")
    assert {type(outcome).__name__ for outcome in outcomes} == {"Copied"}
    assert pair.target.read() == everything
    assert sorted(outcome.tries for outcome in outcomes) == [1, 2]


def test_the_flag_of_the_whole_instance_can_be_asked_for(pair: Pair, other: Pair) -> None:
    pair.source.publish(EU)
    other.source.publish(US)
    pair.copy(sub_path="region=eu")
    other.copy(sub_path="region=us", instance_flag=True)
    assert pair.target.names() == {*EU, *US, f"region=eu/{FLAG}", f"region=us/{FLAG}", FLAG}
    assert pair.target.availability() is Availability.AVAILABLE


def test_one_source_is_sliced_over_two_targets(pair: Pair, tmp_path: Path) -> None:
    pair.source.publish({**EU, **US})
    second = Pair(pair.source, local_place(tmp_path / "second"), StorePool(), LATER)
    pair.copy(sub_path="region=eu")
    second.copy(sub_path="region=us")
    assert pair.target.read() == EU
    assert second.target.read() == US


def test_a_slice_without_files_is_published_empty_with_its_flag(any_pair: Pair) -> None:
    any_pair.source.publish(US)
    copied = any_pair.copy(sub_path="region=eu")
    assert (copied.status, copied.files) == (CopyStatus.COPIED, 0)
    assert any_pair.target.names() == {f"region=eu/{FLAG}"}


def test_the_flag_of_a_slice_with_globs_stands_in_its_deepest_plain_folder(pair: Pair) -> None:
    pair.source.publish({**EU, **US})
    pair.copy(sub_path="region=eu/site=*")
    assert pair.target.names() == {"region=eu/site=1/part-1.csv", f"region=eu/{FLAG}"}


def test_only_what_is_included_and_not_excluded_is_copied_and_removed(any_pair: Pair) -> None:
    files = {"a.csv": b"a", "a.json": b"{}", "tmp/b.csv": b"b", "s/c.csv": b"c"}
    any_pair.source.publish(files)
    any_pair.copy(include=("**.csv",), exclude=("tmp/**",))
    assert any_pair.target.read() == {"a.csv": b"a", "s/c.csv": b"c"}
    any_pair.target.land({"own.txt": b"own"}, flag=None)
    any_pair.source.publish({"a.csv": b"a"}, token="run-2")
    assert any_pair.copy(include=("**.csv",), exclude=("tmp/**",)).removed == ("s/c.csv",)
    assert any_pair.target.read() == {"a.csv": b"a", "own.txt": b"own"}


def test_hidden_files_are_copied_only_when_asked_for(any_pair: Pair) -> None:
    files = {"a.csv": b"a", "_metadata": b"m", "s/.b.crc": b"crc"}
    any_pair.source.publish(files)
    any_pair.copy()
    assert any_pair.target.names() == {"a.csv", FLAG}
    copied = any_pair.copy(hidden=True)
    assert copied.files == 2
    assert any_pair.target.names() == {*files, FLAG}
    assert any_pair.copy(hidden=True).status is CopyStatus.UNCHANGED
    any_pair.require_equal()


def test_hidden_files_that_were_copied_are_verified_and_replaced_as_others(pair: Pair) -> None:
    pair.source.publish({"a.csv": b"a", "_metadata": b"m"})
    pair.copy(hidden=True)
    pair.source.publish({"a.csv": b"a", "_metadata": b"n"}, token="run-2")
    assert pair.copy(hidden=True).files == 1
    assert pair.target.root is not None
    assert (pair.target.root / PATH / "_metadata").read_bytes() == b"n"


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("region=eu", ["region=eu/a", "region=eu/x/b"], ["region=europe/a", "x/region=eu/a", "region=e"]),
        ("region=*/site=1", ["region=eu/site=1/a"], ["region=eu/site=10/a", "region=eu/x/site=1/a"]),
        ("{eu,us}/[a-c]?", ["eu/a1/f", "us/c2"], ["eu/d1/f", "cn/a1/f", "eu/a/f", "eu/a12/f"]),
        ("/region=eu//", ["region=eu/a"], ["region=us/a"]),
        ("a.b", ["a.b/c"], ["axb/c"]),
    ],
)
def test_a_sub_path_matches_whole_names(pattern: str, matching: list[str], other: list[str]) -> None:
    part = CopyFilter(sub_path=pattern)
    assert [file for file in (*matching, *other) if part.matches(file)] == matching
