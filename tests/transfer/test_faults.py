"""Copies that fail at every single operation of a storage: the old instance or the new one, and repeats converge."""

import errno
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from feed_assets.errors import FeedAssetsError
from feed_assets.plan.copy_records import StoreAddress
from feed_assets.storage.pool import StorePool
from feed_assets.storage.records import Availability
from feed_assets.transfer.requests import CopyStatus
from tests.drills import sized
from tests.storage.harnesses import object_harness
from tests.storage.trees import Died, memory_folder
from tests.transfer.faults import (
    CHANGES,
    LOOKS,
    OBJECT_CHANGES,
    OBJECT_LOOKS,
    Fault,
    faulty_objects,
    make_faulty,
)
from tests.transfer.sides import FLAG, PATH, Pair, Place, local_place, pattern
from tests.transfer.watching import Watch, watched_stores

pytestmark = pytest.mark.sample
SPARSE = sized(7, 1)
"""Errors are tried at every n-th operation, single ones at more; with 1 at each."""
EVERY = (SPARSE + 1) // 2
SAME = {f"s/same-{number}.csv": b"same" for number in range(2)}
OLD = {**SAME, "x.csv": b"old", "gone/old.csv": b"old"}
NEW = {**SAME, "x.csv": b"new", "new/a.csv": b"new", "new/b.csv": b"new", "large.bin": pattern(5 << 20)}
SIZE = sum(len(data) for name, data in NEW.items() if name not in SAME)

Errors = Callable[[], BaseException]


def eio() -> BaseException:
    return OSError(errno.EIO, "Input/output error")


def enospc() -> BaseException:
    return OSError(errno.ENOSPC, "No space left on device")


def eacces() -> BaseException:
    return PermissionError(errno.EACCES, "Permission denied")


FAULTS = [
    pytest.param(eio, True, False, EVERY, id="EIO"),
    pytest.param(eacces, False, False, SPARSE, id="EACCES"),
    pytest.param(enospc, False, True, SPARSE, id="full from then on"),
    pytest.param(Died, True, True, SPARSE, id="died"),
]


@pytest.fixture
def folder() -> Iterator[Path]:
    with memory_folder() as folder:
        yield folder


def state(place: Place) -> str:
    """What a reader finds."""
    availability = place.availability()
    if availability is not Availability.AVAILABLE:
        return str(availability)
    names = {tuple(sorted(OLD)): "old", tuple(sorted(NEW)): "new"}
    found = place.read()
    name = names.get(tuple(sorted(found)), f"mix of {sorted(found)}")
    published = place.store.published_manifest(PATH)
    is_whole = published is not None and published.digest == place.store.manifest(PATH, FLAG).digest
    return name if is_whole else f"{name}, not whole"


def attempt(work: Callable[[], object]) -> None:
    with suppress(FeedAssetsError, Died):
        work()


@pytest.mark.parametrize(("error", "looks", "forever", "step"), FAULTS)
@pytest.mark.parametrize("is_fresh", [True, False], ids=["fresh", "standing"])
def test_a_local_copy_that_fails_at_any_system_call_leaves_old_or_new_and_its_repeat_converges(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: Errors,
    looks: bool,
    forever: bool,
    step: int,
    is_fresh: bool,
) -> None:
    fault = Fault()
    make_faulty(monkeypatch, fault)
    source = local_place(folder / "source")
    source.publish(NEW)
    before = "MISSING" if is_fresh else "old"
    ends = set()
    for number in count(1, step):
        target = local_place(folder / f"target-{number}")
        pair = Pair(source, target)
        if not is_fresh:
            target.publish(OLD)
        with fault.armed(number, error, (*LOOKS, *CHANGES) if looks else CHANGES, forever=forever):
            attempt(pair.copy)
        found = state(target)
        assert found in (before, "new"), number
        ends.add(found)
        again = Pair(source, target).copy()
        assert again.status is (CopyStatus.UNCHANGED if found == "new" else CopyStatus.COPIED), number
        assert state(target) == "new"
        assert found == "new" or pair.staged() == [], number
        assert {item for item in target.names() if item.startswith("gone")} == set()
        if not fault.struck:
            assert number > 100
            break
    assert ends == {before, "new"}


@pytest.mark.parametrize(("error", "looks", "forever", "step"), FAULTS)
@pytest.mark.parametrize("is_fresh", [True, False], ids=["fresh", "standing"])
def test_a_copy_to_objects_that_fails_at_any_request_is_old_new_or_partial_and_its_repeat_converges(
    folder: Path, error: Errors, looks: bool, forever: bool, step: int, is_fresh: bool
) -> None:
    fault = Fault()
    source = local_place(folder / "source")
    source.publish(NEW)
    before = "MISSING" if is_fresh else "old"
    ends = set()
    for number in count(1, step):
        url = f"memory://objects-{number}"
        stores = faulty_objects(fault, url)
        address = StoreAddress(url=url)
        target = Place(address=address, harness=object_harness(stores.get(address)))
        pair = Pair(source, target, stores)
        if not is_fresh:
            target.publish(OLD)
        operations = (*OBJECT_LOOKS, *OBJECT_CHANGES) if looks else OBJECT_CHANGES
        with fault.armed(number, error, operations, forever=forever):
            attempt(pair.copy)
        found = state(target)
        assert found in (before, "new", "PARTIAL"), number
        ends.add(found)
        pair.copy()
        assert state(target) == "new", number
        assert {item for item in target.names() if item.startswith("gone")} == set()
        if not fault.struck:
            assert number > 20
            break
    assert ends == {before, "new", "PARTIAL"}


def test_after_a_failure_at_any_point_only_what_was_not_recorded_yet_is_copied_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What both tries write is all there is, the file that was being copied, and those of the last MiB twice."""
    fault = Fault()
    make_faulty(monkeypatch, fault)
    source = local_place(folder / "source")
    files = {f"part-{number:03}.bin": pattern(64 << 10, number) for number in range(128)}
    source.publish(files)
    size = sum(map(len, files.values()))
    worst = 0
    for number in count(1, SPARSE * 20):
        target = local_place(folder / f"target-{number}")
        watch = Watch()
        pair = Pair(source, target, watched_stores(watch))
        with fault.armed(number, Died, CHANGES, forever=True):
            attempt(pair.copy)
        pair.copy()
        worst = max(worst, watch.written - size)
        pair.require_equal()
        if not fault.struck:
            break
    assert 0 < worst <= (1 << 20) + (64 << 10)


def test_a_staging_that_an_earlier_try_left_half_removed_is_begun_anew(pair: Pair) -> None:
    pair.source.publish(NEW)

    def die() -> None:
        raise Died

    with pytest.raises(Died):
        pair.copy(guard=die)
    assert pair.target.root is not None
    (sign,) = pair.target.root.glob(".feed-assets/staging/*/*/staging.json")
    sign.unlink()
    copied = pair.copy()
    assert copied.resumed == 0
    pair.require_equal()


def test_what_an_earlier_try_has_prepared_is_published_without_another_byte(any_pair: Pair) -> None:
    any_pair.source.publish(NEW)

    def die() -> None:
        raise Died

    with pytest.raises(Died):
        any_pair.copy(guard=die)
    watch = Watch()
    any_pair.stores = watched_stores(watch)
    copied = any_pair.copy()
    assert (copied.resumed, watch.written, watch.read) == (copied.bytes, 0, 0)
    any_pair.require_equal()


def test_an_adopted_file_in_a_staging_is_never_written_into(pair: Pair) -> None:
    """Its other link stands at the target."""
    pair.source.publish({"large.bin": pattern(5 << 20), "x.csv": b"x"})
    pair.copy()
    pair.source.publish({"large.bin": pattern(5 << 20), "x.csv": b"y"}, token="run-2")

    def die() -> None:
        raise Died

    with pytest.raises(Died):
        pair.copy(guard=die)
    pair.source.publish({"large.bin": pattern(5 << 20, 2), "x.csv": b"y"}, token="run-3")
    before = pair.target.read()
    with pytest.raises(Died):
        pair.copy(guard=die)
    assert pair.target.read() == before
    pair.stores = StorePool()
    pair.copy()
    pair.require_equal()
