"""Exactly the expired instances go, whatever stands beside them, and come back byte for byte."""

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from feed_assets.lifecycle.stores import StorePool
from feed_assets.state.sweep_records import SweepState
from feed_assets.storage.local import LocalStore
from feed_assets.storage.local_calls import LocalCalls
from tests.lifecycle.retention.adversary import NOW, Scenario, make
from tests.lifecycle.retention.yard import Tree, Yard, kept_feed, tree_of

RUNS = int(os.environ.get("FEED_ASSETS_TEST_ADVERSARIAL_RUNS", "15"))
SEED = int(os.environ.get("FEED_ASSETS_TEST_SEED", "1"))
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
def grounds(tmp_path: Path) -> tuple[Yard, Path, SwappingCalls]:
    """A yard, a place outside of it that nobody may touch, and the system calls of its storage."""
    (tmp_path / "world").mkdir()
    yard = Yard.of(tmp_path / "world", kept_feed("first"))
    outside = tmp_path / "outside"
    (outside / "2015-01-01").mkdir(parents=True)
    (outside / "2015-01-01/part").write_text("precious")
    (outside / "treasure").write_text("precious")
    calls = SwappingCalls()
    yard.world.stores = StorePool(lambda url, _: LocalStore(url.removeprefix("file://"), calls))
    yard.now = NOW
    return yard, outside, calls


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


def sweep(yard: Yard, scenario: Scenario) -> Any:
    yard.world.declare(scenario.feed)
    planned = yard.plan(scenario.feed.name)
    if not planned.sweeps:
        return None
    (found,) = planned.sweeps
    return yard.run(yard.approve(found) if found.state is SweepState.ASKING else found)


def test_exactly_the_expired_instances_go_and_come_back(grounds: tuple[Yard, Path, SwappingCalls]) -> None:
    yard, outside, _ = grounds
    guarded = tree_of(outside)
    swept = 0
    for number in range(RUNS):
        chance = random.Random(f"{SEED}/{number}")
        scenario = make(chance, f"clicks-{in_letters(number)}", yard.root, outside)
        place = yard.root / scenario.feed.name
        before = {f"{scenario.feed.name}/{path}": entry for path, entry in tree_of(place).items()}
        done = sweep(yard, scenario)
        after = {f"{scenario.feed.name}/{path}": entry for path, entry in tree_of(place).items()}
        assert after == without(before, scenario.expired, scenario.base), (SEED, number, str(scenario.feed.locations))
        assert tree_of(outside) == guarded
        if done is not None:
            swept += 1
            assert yard.undo(done).sweep.state is SweepState.UNDONE
            back = {f"{scenario.feed.name}/{path}": entry for path, entry in tree_of(place).items()}
            assert back == before, (SEED, number)
        assert (done is None) == (not scenario.expired)
    assert swept > RUNS / 2


def test_what_is_swapped_for_a_link_meanwhile_leads_nowhere(grounds: tuple[Yard, Path, SwappingCalls]) -> None:
    yard, outside, calls = grounds
    guarded = tree_of(outside)
    for number in range(max(RUNS // 2, 1)):
        chance = random.Random(f"swap/{SEED}/{number}")
        scenario = make(chance, f"swapped-{in_letters(number)}", yard.root, outside)
        place = yard.root / scenario.feed.name
        folders = [path for path in sorted(place.rglob("*")) if path.is_dir() and not path.is_symlink()] or [place]
        victim = chance.choice([place, *folders])
        aside = yard.world.root / f"aside-{number}"

        def swap(victim: Path = victim, aside: Path = aside) -> None:
            if victim.is_dir() and not victim.is_symlink():
                victim.rename(aside)
                victim.symlink_to(outside)

        before = {f"{scenario.feed.name}/{path}": entry for path, entry in tree_of(place).items()}
        calls.swap, calls.left = swap, chance.randint(1, MOST_CALLS)
        sweep(yard, scenario)
        calls.left = 0
        assert tree_of(outside) == guarded
        after = {f"{scenario.feed.name}/{path}": entry for path, entry in tree_of(place).items()}
        swapped = victim.relative_to(yard.root).as_posix()
        kept = without(before, scenario.expired, scenario.base)
        for path, entry in kept.items():
            if path != swapped and not path.startswith(f"{swapped}/"):
                assert after[path] == entry, (SEED, number, path)
