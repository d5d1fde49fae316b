"""The threads of copies: see `feed_assets/lifecycle/replication/threads.py`."""

from feed_assets.lifecycle.replication.plans import Side
from feed_assets.lifecycle.replication.threads import copy_threads
from feed_assets.lifecycle.stores import StorePool
from feed_assets.plan.records import StoreAddress
from tests.lifecycle.replication.sides import Pair

UNKNOWN = Side(store=StoreAddress(url="nowhere://x"), path="weather")


def test_small_files_have_threads_of_their_own_where_nothing_is_remote(any_pair: Pair) -> None:
    sides = [any_pair.source.side(), any_pair.target.side()]
    are_local = [any_pair.stores.get(side.store).root_url.startswith("file:") for side in sides]
    with copy_threads(3, any_pair.stores, sides) as threads:
        assert (threads.small is not threads.many) is all(are_local)


def test_what_cannot_be_opened_counts_as_remote() -> None:
    with copy_threads(0, StorePool(), [UNKNOWN]) as threads:
        assert threads.small is threads.many
        assert threads.run(lambda task: task, []) == []  # type: ignore[arg-type, return-value]
