"""Replicas compared with their manifests and their sources, on every pair of kinds of storage."""

from typing import Any

import pytest

from feed_assets.plan.copy_records import CopyOptions
from feed_assets.storage.errors import StorageError
from feed_assets.transfer.auditing import Audit, audit_copy
from tests.transfer.sides import FLAG, PATH, SMALL, Pair

FILE = "part-0.csv"


def audit(pair: Pair, *, deep: bool = False, is_new: bool = False, **options: Any) -> Audit:
    sides = pair.source.side(), pair.target.side()
    return audit_copy(pair.stores, *sides, CopyOptions(**options), pair.clock, deep=deep, is_new=is_new)


def is_clean(found: Audit) -> bool:
    return found.replica is not None and not found.distrusted and not found.behind and not found.removed


def test_a_copy_is_clean_and_what_was_never_copied_is_not_there(any_pair: Pair) -> None:
    any_pair.source.land(SMALL)
    before = audit(any_pair, is_new=True)
    assert (before.is_there, before.has_source, len(before.behind)) == (False, True, len(SMALL))
    any_pair.copy()
    for deep in (False, True):
        after = audit(any_pair, deep=deep)
        assert is_clean(after)
        assert after.plan is not None
        assert after.plan.is_unchanged


def test_lost_rotten_and_extra_files_are_told_apart_and_a_repair_brings_what_is_wrong_only(any_pair: Pair) -> None:
    pair = any_pair
    pair.source.publish(SMALL)
    pair.copy()
    target = pair.target.harness
    target.put(f"{PATH}/{FILE}", b"y" + SMALL[FILE][1:])
    target.put(f"{PATH}/x.csv", b"longer")
    target.put(f"{PATH}/mine.csv", b"1")
    shallow, deep = audit(pair), audit(pair, deep=True)
    assert (shallow.lost, shallow.rotten, shallow.extra) == ((), ("x.csv",), ("mine.csv",))
    assert deep.rotten == (FILE, "x.csv")
    assert deep.plan is not None
    assert sorted(file.path for file in deep.plan.transfers) == [FILE, "x.csv"]
    assert deep.plan.removed == ("mine.csv",)
    (copied,) = pair.copy_many([pair.request(distrusted=deep.distrusted)])
    assert (copied.files, copied.removed) == (2, ("mine.csv",))
    pair.require_equal()
    assert is_clean(audit(pair, deep=True))


def test_a_source_that_has_changed_leaves_its_copy_behind(any_pair: Pair) -> None:
    any_pair.source.publish(SMALL)
    any_pair.copy()
    any_pair.source.publish({"y.csv": b"y", FILE: SMALL[FILE]}, token="run-2")
    found = audit(any_pair)
    assert found.behind == ("y.csv",)
    assert set(found.removed) == set(SMALL) - {FILE}


def test_a_publication_that_was_written_in_place_leaves_its_copy_behind(any_pair: Pair) -> None:
    any_pair.source.publish(SMALL)
    any_pair.copy()
    any_pair.source.harness.put(f"{PATH}/{FILE}", b"other" + SMALL[FILE])
    found = audit(any_pair)
    assert found.behind == (FILE,)
    any_pair.copy_many([any_pair.request(distrusted=frozenset(found.behind))])
    assert is_clean(audit(any_pair))


def test_a_source_that_is_not_there_any_more_leaves_the_manifest_to_compare_with(pair: Pair) -> None:
    pair.source.publish(SMALL)
    pair.copy()
    sides = pair.source.side("clicks/elsewhere"), pair.target.side()
    (pair.target.root / PATH / FILE).unlink()  # type: ignore[operator]
    found = audit_copy(pair.stores, *sides, CopyOptions(), pair.clock)
    assert (found.has_source, found.lost) == (False, (FILE,))
    assert "clicks/elsewhere" in found.reason
    assert audit_copy(pair.stores, None, pair.target.side(), CopyOptions(), pair.clock).lost == (FILE,)


def test_a_flag_that_is_gone_is_lost(pair: Pair) -> None:
    pair.source.land(SMALL)
    pair.copy()
    (pair.target.root / PATH / FLAG).unlink()  # type: ignore[operator]
    found = audit(pair)
    assert found.lost == (FLAG,)
    assert found.plan is not None
    assert not found.plan.is_unchanged


@pytest.mark.parametrize("is_head_whole", [True, False])
def test_a_manifest_that_cannot_be_read_is_rotten_and_a_repair_writes_another(pair: Pair, is_head_whole: bool) -> None:
    pair.source.publish(SMALL)
    pair.copy()
    assert pair.target.root is not None
    manifest = pair.target.root / PATH / ".feed-assets.manifest.json"
    whole = manifest.read_bytes()
    manifest.write_bytes(whole[:-3] if is_head_whole else whole[:3])
    found = audit(pair)
    assert (found.is_there, found.replica, found.rotten) == (True, None, (manifest.name,))
    (copied,) = pair.copy_many([pair.request(distrusted=found.distrusted)])
    assert copied.files == len(SMALL)
    pair.require_equal()
    assert is_clean(audit(pair, deep=True))


def test_hidden_files_that_were_copied_are_compared_too(pair: Pair) -> None:
    pair.source.land({**SMALL, "_metadata": b"12345"})
    pair.copy(hidden=True)
    assert is_clean(audit(pair, deep=True, hidden=True))
    pair.target.harness.put(f"{PATH}/_metadata", b"1234x")
    assert audit(pair, deep=True, hidden=True).rotten == ("_metadata",)
    assert is_clean(audit(pair, hidden=True))


def test_a_part_is_compared_by_itself(pair: Pair) -> None:
    pair.source.land(SMALL)
    for part in ("region=eu", "region=us"):
        pair.copy(sub_path=part)
    pair.target.harness.put(f"{PATH}/region=eu/part-1.csv", b"two")
    assert audit(pair, deep=True, sub_path="region=eu").rotten == ("region=eu/part-1.csv",)
    assert is_clean(audit(pair, deep=True, sub_path="region=us"))


def test_a_storage_that_is_not_there_is_no_empty_one(pair: Pair) -> None:
    pair.source.land(SMALL)
    pair.copy()
    for place in (pair.source, pair.target):
        assert place.root is not None
        away = place.root.rename(place.root.with_name("away"))
        with pytest.raises(StorageError, match="the root is not there"):
            audit(pair)
        away.rename(place.root)


def test_overwriting_is_no_reason_to_be_behind(pair: Pair) -> None:
    pair.source.land(SMALL)
    pair.copy(overwrite=True)
    assert is_clean(audit(pair, overwrite=True))
