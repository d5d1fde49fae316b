"""Exactly the expired instances go, whatever stands beside them, and come back byte for byte."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from feed_assets.entities.bundle import Bundle
from feed_assets.entities.cluster import Cluster
from feed_assets.entities.locations.overlaps import find_overlaps
from feed_assets.log.removals.records import SweepState
from feed_assets.plan.compile import compile_plan
from feed_assets.storage.local.calls import LocalCalls
from feed_assets.storage.local.store import LocalStore
from feed_assets.storage.pool import StorePool
from tests.drills import drill_seed, sized
from tests.retention.adversary import NOW, Scenario, make, make_neighbour
from tests.retention.harness import RetentionHarness, Tree, kept_feed, tree_of

RUNS = sized(15, 1000)
NEIGHBOURS = sized(6, 40)
MOST_CALLS = 300
"""About how many calls the largest plan and run of a scenario make."""


class SwappingCalls(LocalCalls):
    """System calls between which somebody swaps something."""

    def __init__(self) -> None:
        self.left = 0
        self.swap: Callable[[], None] = lambda: None

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if not name.startswith("_") and callable(found) and name != "swap":
            self.left -= 1
            if self.left == 0:
                self.swap()
        return found


@pytest.fixture
def grounds(tmp_path: Path) -> tuple[RetentionHarness, Path, SwappingCalls]:
    """A harness, a place outside of it that nobody may touch, and the system calls of its storage."""
    (tmp_path / "world").mkdir()
    harness = RetentionHarness.of(tmp_path / "world", kept_feed("first"))
    outside = tmp_path / "outside"
    (outside / "2015-01-01").mkdir(parents=True)
    (outside / "2015-01-01/part").write_text("precious")
    (outside / "treasure").write_text("precious")
    calls = SwappingCalls()
    harness.lifecycle.stores = StorePool(lambda url, _: LocalStore(url.removeprefix("file://"), calls))
    harness.now = NOW
    return harness, outside, calls


def in_letters(number: int) -> str:
    """A number that no look-alike of a date is like."""
    return "".join(chr(ord("a") + int(digit)) for digit in str(number))


def without(tree: Tree, gone: set[str], base: str) -> dict[str, tuple[str, int, bytes]]:
    """A tree without some paths, and without the folders below the base that are empty by that."""
    left = {path: entry for path, entry in tree.items() if not any(path == g or path.startswith(f"{g}/") for g in gone)}
    parents = {path.rsplit("/", n)[0] for path in gone for n in range(1, path.count("/") + 1)}
    for parent in sorted(parents, key=len, reverse=True):
        if parent.startswith(f"{base}/") and not any(path.startswith(f"{parent}/") for path in left):
            left.pop(parent, None)
    return left


def sweep(harness: RetentionHarness, scenario: Scenario) -> Any:
    planned = harness.plan(scenario.feed.name)
    if not planned.sweeps:
        return None
    (found,) = planned.sweeps
    return harness.run(harness.approve(found) if found.state is SweepState.ASKING else found)


@pytest.mark.sample
def test_exactly_the_expired_instances_go_and_come_back(grounds: tuple[RetentionHarness, Path, SwappingCalls]) -> None:
    harness, outside, _ = grounds
    guarded, seed = tree_of(outside), drill_seed()
    swept = 0
    for number in range(RUNS):
        chance = random.Random(f"{seed}/{number}")
        scenario = make(chance, f"clicks-{in_letters(number)}", harness.root, outside)
        place = harness.root / scenario.feed.name
        before = {f"{scenario.feed.name}/{path}": entry for path, entry in tree_of(place).items()}
        harness.lifecycle.declare(scenario.feed)
        done = sweep(harness, scenario)
        after = {f"{scenario.feed.name}/{path}": entry for path, entry in tree_of(place).items()}
        assert after == without(before, scenario.expired, scenario.base), (seed, number, str(scenario.feed.locations))
        assert tree_of(outside) == guarded
        if done is not None:
            swept += 1
            assert harness.undo(done).sweep.state is SweepState.UNDONE
            back = {f"{scenario.feed.name}/{path}": entry for path, entry in tree_of(place).items()}
            assert back == before, (seed, number)
        assert (done is None) == (not scenario.expired)
    assert swept > RUNS / 2


@pytest.mark.sample
def test_neighbours_that_are_left_out_keep_what_is_theirs_and_nothing_else(
    grounds: tuple[RetentionHarness, Path, SwappingCalls],
) -> None:
    harness, outside, _ = grounds
    lifecycle, guarded, seed = harness.lifecycle, tree_of(outside), drill_seed()
    (lifecycle.root / "disk").mkdir()
    harness.root.symlink_to(lifecycle.root / "disk")
    links = [harness.root, lifecycle.root / "disk", lifecycle.root / "another"]
    links[-1].symlink_to(harness.root)
    found: dict[tuple[bool, bool], int] = {}
    for number in range(NEIGHBOURS):
        chance = random.Random(f"neighbours/{seed}/{number}")
        scenario = make(chance, f"kept-{in_letters(number)}", harness.root, outside)
        neighbour, is_shared = make_neighbour(chance, scenario, links)
        place = harness.root / scenario.feed.name
        before = {f"{scenario.feed.name}/{path}": entry for path, entry in tree_of(place).items()}
        is_in_files = chance.choice((True, False))
        lifecycle.declare(scenario.feed)
        if is_in_files:
            bundle = Bundle(entities=(Cluster(name="primary", storage=f"file://{harness.root}"), scenario.feed))
            lifecycle.use(compile_plan(bundle, overlaps=find_overlaps(bundle, left_out=[neighbour])))
        else:
            plan = lifecycle.plan
            lifecycle.declare(neighbour)
            lifecycle.use(plan)
        done = sweep(harness, scenario)
        after = {f"{scenario.feed.name}/{path}": entry for path, entry in tree_of(place).items()}
        gone = set() if is_shared else scenario.expired
        assert after == without(before, gone, scenario.base), (seed, number, neighbour.locations)
        assert tree_of(outside) == guarded
        assert (done is None) == (not gone)
        found[is_shared, is_in_files] = found.get((is_shared, is_in_files), 0) + 1
    assert len(found) == 4, found


@pytest.mark.sample
def test_what_is_swapped_for_a_link_meanwhile_leads_nowhere(
    grounds: tuple[RetentionHarness, Path, SwappingCalls],
) -> None:
    harness, outside, calls = grounds
    guarded, seed = tree_of(outside), drill_seed()
    for number in range(max(RUNS // 2, 1)):
        chance = random.Random(f"swap/{seed}/{number}")
        scenario = make(chance, f"swapped-{in_letters(number)}", harness.root, outside)
        place = harness.root / scenario.feed.name
        folders = [path for path in sorted(place.rglob("*")) if path.is_dir() and not path.is_symlink()] or [place]
        victim = chance.choice([place, *folders])
        aside = harness.lifecycle.root / f"aside-{number}"

        def swap(victim: Path = victim, aside: Path = aside) -> None:
            if victim.is_dir() and not victim.is_symlink():
                victim.rename(aside)
                victim.symlink_to(outside)

        before = {f"{scenario.feed.name}/{path}": entry for path, entry in tree_of(place).items()}
        harness.lifecycle.declare(scenario.feed)
        calls.swap, calls.left = swap, chance.randint(1, MOST_CALLS)
        sweep(harness, scenario)
        calls.left = 0
        assert tree_of(outside) == guarded
        after = {f"{scenario.feed.name}/{path}": entry for path, entry in tree_of(place).items()}
        swapped = victim.relative_to(harness.root).as_posix()
        kept = without(before, scenario.expired, scenario.base)
        for path, entry in kept.items():
            if path != swapped and not path.startswith(f"{swapped}/"):
                assert after[path] == entry, (seed, number, path)
