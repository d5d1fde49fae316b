"""Long proofs: `make test` makes a sample of each, `make drills` the whole.

A test whose size differs is marked `sample`, one that `make test` leaves out is marked `drill`.
"""

import os
import random
from collections.abc import Iterable
from typing import Any, TypeVar

import pytest

IS_DRILL = bool(os.environ.get("FEED_ASSETS_DRILLS"))
"""`make drills` sets it."""
SEED = int(os.environ.get("FEED_ASSETS_SEED", "0"))
"""What a random drill is to be repeated with; 0 where it may choose."""

T = TypeVar("T")


def sized(sample: T, whole: T) -> T:
    """The size of a proof."""
    return whole if IS_DRILL else sample


def drill(*values: object, id: str | None = None) -> Any:  # noqa: A002 - as pytest calls it
    """A parameter set that only `make drills` runs."""
    return pytest.param(*values, marks=pytest.mark.drill, id=id)


def sampled(values: Iterable[object], *sample: object) -> list[Any]:
    """Parameters of which `make test` takes the sample only."""
    return [value if value in sample else drill(value) for value in values]


def drill_seed(*, moves: bool = False) -> int:
    """The seed that `FEED_ASSETS_SEED` says, 1 in a sample that does not move, else one that nobody has tried; pytest
    shows it where the test fails.
    """
    new = random.SystemRandom().randrange(1, 10**6)
    found = SEED or (new if moves else sized(1, new))
    print(f"FEED_ASSETS_SEED={found} repeats this")
    return found
