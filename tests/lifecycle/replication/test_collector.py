"""How often the collector of garbage looks: see `feed_assets/lifecycle/replication/collector.py`."""

import gc
from collections.abc import Iterator

import pytest

from feed_assets.lifecycle.replication.collector import SeldomCollected


@pytest.fixture
def _restored() -> Iterator[None]:
    former = gc.get_threshold()
    yield
    gc.set_threshold(*former)


@pytest.mark.usefixtures("_restored")
@pytest.mark.parametrize(("first", "meanwhile"), [(700, 200_000), (300_000, 300_000), (0, 0)])
def test_it_looks_seldom_until_the_last_one_has_left(first: int, meanwhile: int) -> None:
    gc.set_threshold(first, 11, 12)
    seldom = SeldomCollected()
    with seldom:
        assert gc.get_threshold() == (meanwhile, 11, 12)
        with pytest.raises(ZeroDivisionError), seldom:
            _ = 1 // 0
        assert gc.get_threshold() == (meanwhile, 11, 12)
    assert gc.get_threshold() == (first, 11, 12)
    gc.set_threshold(first, 13, 14)  # which somebody else does
    with seldom:
        assert gc.get_threshold() == (meanwhile, 13, 14)
    assert gc.get_threshold() == (first, 13, 14)
