"""The threads of copies: see `feed_assets/lifecycle/replication/threads.py`."""

from threading import get_ident

import pytest

from feed_assets.lifecycle.replication.plans import Side
from feed_assets.lifecycle.replication.threads import are_near, copy_threads
from feed_assets.lifecycle.stores import StorePool
from feed_assets.plan.addresses import StoreAddress
from tests.lifecycle.replication.sides import Pair

UNKNOWN = Side(store=StoreAddress(url="nowhere://x"), path="weather")


def test_small_files_have_threads_of_their_own_where_nothing_is_remote(any_pair: Pair) -> None:
    sides = [any_pair.source.side(), any_pair.target.side()]
    are_local = [any_pair.stores.get(side.store).root_url.startswith("file:") for side in sides]
    with copy_threads(3, any_pair.stores, sides) as threads:
        assert (threads.small is not threads.many) is are_near(any_pair.stores, sides) is all(are_local)


def test_who_is_alone_does_small_files_without_another_thread(any_pair: Pair) -> None:
    sides = [any_pair.source.side(), any_pair.target.side()]
    with copy_threads(3, any_pair.stores, sides, is_alone=True) as threads:
        (thread,) = threads.small.map(lambda _: get_ident(), [0])
        assert (thread == get_ident()) is are_near(any_pair.stores, sides)
        assert list(threads.small.map(lambda one, two: one + two, [1, 2], [3, 4])) == [4, 6]
        with pytest.raises(ZeroDivisionError):
            list(threads.small.map(lambda one: 1 // one, [1, 0]))


def test_what_cannot_be_opened_counts_as_remote() -> None:
    with copy_threads(0, StorePool(), [UNKNOWN]) as threads:
        assert threads.small is threads.many
        assert threads.run(lambda task: task, []) == []  # type: ignore[arg-type, return-value]
